import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Event, Gap, PlaybackState, ServerMessage } from "../connection/message";
import type { AlarmStep } from "./alarmbook";
import { ApiError, type PlaybackCommand, type Run } from "./api";
import { settle } from "../test/settle";

type Hear = { message: (message: ServerMessage) => void; closed: () => void };

/** The server's part, as far as a replay asks for it. */
const server = vi.hoisted(() => ({
  events: [] as Event[], gaps: [] as Gap[], steps: [] as AlarmStep[], runs: [] as Run[],
  commands: [] as (PlaybackCommand & { director: string })[], asked: [] as string[], url: "",
  before: (async () => {}) as (call: string) => Promise<void>,
  /** What a command makes of the session; the server's own rules are its own tests. */
  obey: (() => {}) as (what: PlaybackCommand) => void,
  state: null as unknown as PlaybackState, hear: null as unknown as Hear, ended: 0,
}));

vi.mock("../connection/socket", () => ({
  overWebSocket: (url: () => string, hear: Hear) => {
    [server.url, server.hear] = [url(), hear];
    return { start: () => {}, end: () => server.ended++, tick: () => {} };
  },
}));
vi.mock("./api", async (original) => {
  const { ApiError, STEPS_MAX } = await original<typeof import("./api")>();
  const ask = async <T>(call: string, answer: () => T): Promise<T> => {
    server.asked.push(call);
    await server.before(call);
    return answer();
  };
  return {
    ApiError, STEPS_MAX,
    liveUrl: (id: string) => `ws://page/api/live?playback=${id}`,
    events: (from: bigint, limit: number, to: bigint) => ask(`events ${from} ${to}`, () => server.events.slice(0, limit)),
    gaps: (from: bigint, limit: number, _of: unknown, _signal: unknown, to: bigint) => ask(`gaps ${from} ${to}`, () => server.gaps.slice(0, limit)),
    alarmSteps: (to: bigint) => ask(`steps ${to}`, () => server.steps),
    runs: () => ask("runs", () => ({ at: "0", runs: server.runs })),
    playback: (id: string) => ask(`playback ${id}`, () => server.state),
    takePlayback: (id: string) => ask(`take ${id}`, () => ({ ...server.state, director: "mine" })),
    commandPlayback: (id: string, what: PlaybackCommand & { director: string }) => ask(`command ${id}`, () => {
      server.commands.push(what);
      server.obey(what);
      return server.state;
    }),
  };
});

const { Replay } = await import("./replay.svelte");

const S = 1_000_000_000n;
const state = (more: Partial<PlaybackState> = {}): PlaybackState => ({
  id: "x", name: "", from: String(100n * S), to: String(200n * S), at: String(150n * S), speed: 1, paused: true, loop: false, ended: false,
  viewers: 1, behind: false, round: 0, wall_ns: "0", ...more,
});
const event = (s: number, text = `e${s}`): Event => ({ time: String(BigInt(s) * S), text, level: "info", source: "s" });
/** A clock that stands until a test moves it. */
let ms: number;
let kept: Map<string, string>;
let passed: ServerMessage[];
let overs: string[];

const begin = (director: string | null = "d", more: Partial<PlaybackState> = {}) => {
  server.state = state(more);
  return new Replay(server.state, director, (message) => passed.push(message), (why) => overs.push(why));
};
/** One that knows its interval. */
async function known(director: string | null = "d", more: Partial<PlaybackState> = {}) {
  const replay = begin(director, more);
  replay.start();
  await settle();
  return replay;
}
const beat = (playback: PlaybackState) => server.hear.message({ type: "heartbeat", time: "0", wall_ns: "0", playback } as unknown as ServerMessage);
const seeks = () => server.commands.filter((c) => c.do === "seek").map((c) => Number(BigInt(c.at!) / S));
const refuse = (...calls: string[]) => {
  server.before = async (call) => {
    if (calls.some((one) => call.startsWith(one))) throw new ApiError(503, "too busy", "unavailable", null);
  };
};

beforeEach(() => {
  [ms, kept, passed, overs] = [1000, new Map(), [], []];
  Object.assign(server, {
    events: [event(110), event(130), event(170)], gaps: [], steps: [], runs: [], commands: [], asked: [], ended: 0,
    before: async () => {}, obey: (what: PlaybackCommand) => {
      if (what.do === "seek") server.state = { ...server.state, at: what.at!, ended: false, round: server.state.round + 1 };
      if (what.do === "pause" || what.do === "play") server.state = { ...server.state, paused: what.do === "pause" };
      if (what.do === "interval") server.state = { ...server.state, from: what.from!, to: what.to! };
    },
  });
  vi.spyOn(performance, "now").mockImplementation(() => ms);
  vi.stubGlobal("sessionStorage", {
    getItem: (key: string) => kept.get(key) ?? null, setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
  });
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

describe("who directs", () => {
  it("is who began it, in the same tab after a reload too, and nobody else", () => {
    expect([begin("d").directs, begin(null).directs]).toEqual([true, true]);
    kept.clear();
    expect(begin(null).directs).toBe(false);
    kept.set("strongback.director.other", "d");
    expect(begin(null).directs).toBe(false);
    expect(server.url).toBe("ws://page/api/live?playback=x");
  });
  it("names its secret with every command", async () => {
    const replay = await known("d");
    expect(await replay.command({ do: "pause" })).toBe(true);
    expect(server.commands).toEqual([{ do: "pause", director: "d" }]);
  });
  it("is a viewer once somebody else took over, and can take it back", async () => {
    const replay = await known("d");
    server.before = async () => { throw new ApiError(403, "somebody else directs", "forbidden", null); };
    expect(await replay.command({ do: "pause" })).toBe(false);
    expect([replay.directs, replay.problem, [...kept]]).toEqual([false, "somebody else directs", []]);
    await replay.take();
    expect(replay.directs).toBe(false);
    server.before = async () => {};
    await replay.take();
    expect([replay.directs, replay.problem, [...kept]]).toEqual([true, null, [["strongback.director.x", "mine"]]]);
    await replay.command({ do: "play" });
    expect(server.commands).toEqual([{ do: "play", director: "mine" }]);
  });
  it("stays director where a command fails for another reason, which the next success ends", async () => {
    const replay = await known("d");
    refuse("command");
    expect(await replay.command({ do: "pause" })).toBe(false);
    expect([replay.directs, replay.problem]).toEqual([true, "too busy"]);
    server.before = async () => {};
    await replay.command({ do: "pause" });
    expect(replay.problem).toBeNull();
  });
});

describe("the play button", () => {
  it("stops what runs and starts what stands", async () => {
    const replay = await known("d", { paused: false });
    await replay.toggle();
    await replay.toggle();
    expect(server.commands.map((c) => c.do)).toEqual(["pause", "play"]);
  });
  it("plays from the beginning at the end, where the session was never paused", async () => {
    const replay = await known("d", { paused: false, ended: true, at: String(200n * S) });
    await replay.toggle();
    expect([seeks(), replay.state.paused, replay.state.ended]).toEqual([[100], false, false]);
  });
  it("leaves it at that where the first command is refused", async () => {
    const replay = await known("d", { ended: true });
    refuse("command");
    await replay.toggle();
    expect(server.asked.filter((call) => call === "command x")).toHaveLength(1);
  });
});

describe("jumps", () => {
  it("lead from event to event, each from where the one before led", async () => {
    const replay = await known();
    void replay.jump(-1);
    void replay.jump(-1);
    await replay.jump(1);
    expect(seeks()).toEqual([130, 110, 130]);
  });
  it("lead nowhere after the last event, and back to the beginning before the first", async () => {
    const replay = await known("d", { at: String(170n * S) });
    await replay.jump(1);
    expect(seeks()).toEqual([]);
    for (let i = 0; i < 4; i++) await replay.jump(-1);
    expect(seeks()).toEqual([130, 110, 100, 100]);
  });
  it("wait for the events of the interval, and say why there are none", async () => {
    refuse("events");
    const replay = await known();
    await replay.jump(1);
    expect([seeks(), replay.problem]).toEqual([[], "events and alarms of this time are not known: too busy"]);
    server.before = async () => {};
    await replay.jump(1);
    expect([seeks(), replay.problem]).toEqual([[170], null]);
  });
});

describe("what an interval holds", () => {
  it("is asked for once, with the events of an hour before it", async () => {
    const replay = await known();
    await replay.load();
    expect(server.asked.sort()).toEqual([`events ${100n * S - 3600n * S} ${200n * S}`, `gaps ${100n * S} ${200n * S}`, "runs", `steps ${200n * S}`]);
    expect(replay.events.map((e) => e.text)).toEqual(["e170", "e130", "e110"]);
    expect([replay.eventsFrom, replay.gapsFrom, replay.alarmsKnown]).toEqual([100n * S - 3600n * S, 100n * S, true]);
  });
  it("says from when on it is known where the lists are full", async () => {
    server.events = Array.from({ length: 5000 }, (_, i) => event(120 + i / 5000 >= 121 ? 121 : 120, `e${i}`));
    server.gaps = Array.from({ length: 500 }, () => ({ from_time: String(140n * S), to_time: String(141n * S) }) as Gap);
    const replay = await known();
    expect([replay.eventsFrom, replay.gapsFrom]).toEqual([120n * S, 140n * S]);
  });
  it("has the clock of the run that it belongs to", async () => {
    const clock = { state: "stopped", started: String(90n * S), stopped: null, t0: String(160n * S), t0_now: null, holds: [], t: null, channels: [] } as Run["clock"];
    server.runs = [{ name: "r", protected: true, streams: 1, bytes: "0", time: null, clock }];
    const run = (await known()).clockRun()!;
    expect([run.name, run.countdown!.t(150n * S)]).toEqual(["r", -10n * S]);
    server.runs = [];
    expect((await known()).clockRun()).toBeNull();
  });
  it("includes events that are added while it is being read or after, but none of later times", async () => {
    let answer = () => {};
    server.before = (call) => (call.startsWith("events") ? new Promise((resolve) => (answer = resolve)) : Promise.resolve());
    const replay = await known();
    replay.added(event(140, "meanwhile"));
    answer();
    await settle();
    replay.added(event(141, "after"));
    replay.added(event(200, "beyond"));
    expect(replay.events.map((e) => e.text)).toEqual(["e170", "after", "meanwhile", "e130", "e110"]);
  });
  it("is asked for again when it is refused, less and less often", async () => {
    refuse("gaps");
    const replay = await known();
    const asks = () => server.asked.filter((call) => call.startsWith("gaps")).length;
    expect([asks(), replay.gapsFrom, replay.eventsFrom, replay.alarmsKnown]).toEqual([1, null, null, false]);
    const tick = async (later: number) => {
      ms += later;
      replay.tick();
      await settle();
      return asks();
    };
    expect([await tick(1999), await tick(1), await tick(3999), await tick(1), await tick(7999), await tick(1)]).toEqual([1, 2, 2, 3, 3, 4]);
    for (let i = 0; i < 5; i++) await tick(30_000);
    expect(asks()).toBe(9);
    server.before = async () => {};
    await tick(30_000);
    expect([replay.gapsFrom, replay.problem, await tick(1e9)]).toEqual([100n * S, null, 10]);
  });
  it("says once that it is not known: who closed the message knows", async () => {
    refuse("gaps");
    const replay = await known();
    expect(replay.problem).toMatch(/are not known: too busy$/);
    replay.problem = null;
    ms += 2000;
    replay.tick();
    await settle();
    expect(replay.problem).toBeNull();
  });
  it("is asked for again when another interval is chosen, whatever the answer for the first", async () => {
    let answer = () => {};
    server.before = (call) => (call.startsWith("events") && call.endsWith(` ${200n * S}`) ? new Promise((resolve) => (answer = resolve)) : Promise.resolve());
    const replay = await known();
    server.events = [event(120, "second")];
    await replay.command({ do: "interval", from: String(110n * S), to: String(125n * S) });
    await settle();
    expect([replay.events.map((e) => e.text), replay.gapsFrom]).toEqual([["second"], 110n * S]);
    server.events = [event(120, "late answer")];
    answer();
    await settle();
    expect(replay.events.map((e) => e.text)).toEqual(["second"]);
  });
});

describe("the connection", () => {
  it("sets the clock by heartbeats and updates, and passes on what panels get", async () => {
    const replay = await known("d", { paused: false, at: String(150n * S) });
    beat(state({ at: String(160n * S), paused: false, speed: 10 }));
    ms += 100;
    expect([replay.now(), replay.state.speed]).toEqual([161n * S, 10]);
    const update = { type: "update", time: String(162n * S), streams: [] } as unknown as ServerMessage;
    server.hear.message(update);
    expect([replay.clock.known, replay.now(), passed]).toEqual([162n * S, 162n * S, [update]]);
    const hello = { type: "hello", time: "0", playback: state({ viewers: 3 }) } as unknown as ServerMessage;
    server.hear.message(hello);
    expect([replay.state.viewers, passed.length]).toEqual([3, 1]);
  });
  it("is not alive after some seconds without a word", async () => {
    const replay = await known();
    beat(server.state);
    ms += 2499;
    expect(replay.alive).toBe(true);
    ms += 1;
    expect(replay.alive).toBe(false);
  });
  it("says what the session has to say, and its end", async () => {
    const replay = await known();
    server.hear.message({ type: "event", text: "a block is damaged" } as unknown as ServerMessage);
    expect(replay.problem).toBe("a block is damaged");
    // Of one subscription: no end.
    server.hear.message({ type: "error", id: 4, message: "no such channel" } as unknown as ServerMessage);
    expect([overs, passed.length]).toEqual([[], 1]);
    server.hear.message({ type: "error", id: null, message: "the playback ended: too old" } as unknown as ServerMessage);
    expect(overs).toEqual(["the playback ended: too old"]);
    replay.end();
    expect(server.ended).toBe(1);
  });
  it("that is lost ends the replay only where the session is gone", async () => {
    await known();
    server.before = async () => { throw new TypeError("Failed to fetch"); };
    server.hear.closed();
    await settle();
    expect(overs).toEqual([]);
    server.before = async () => { throw new ApiError(404, "no such playback", "not_found", null); };
    server.hear.closed();
    await settle();
    expect(overs).toEqual(["the playback has ended"]);
  });
});
