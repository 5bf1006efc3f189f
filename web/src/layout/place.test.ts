import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { PlaybackState } from "../connection/message";
import type { NewPlayback } from "../state/api";
import { followReplay, joinReplay, leaveReplay, openSource, startReplay } from "./place";

const live = vi.hoisted(() => ({
  replay: null as { state: { id: string } } | null, replayOver: null as string | null, watched: [] as [string, string | null][], resumed: 0,
  watchPlayback(state: { id: string }, director: string | null) {
    live.replay = { state };
    live.watched.push([state.id, director]);
  },
  resume() {
    live.replay = null;
    live.resumed++;
  },
}));
const api = vi.hoisted(() => ({ refusal: null as string | null, started: [] as unknown[] }));

vi.mock("../state/live.svelte", () => ({ live }));
vi.mock("../state/api", () => {
  const answer = <T>(value: T) => {
    if (api.refusal !== null) throw new Error(api.refusal);
    return value;
  };
  return {
    startPlayback: async (what: NewPlayback) => {
      api.started.push(what);
      return answer({ id: "new", director: "d" });
    },
    playback: async (id: string) => answer({ id } as PlaybackState),
  };
});

let hash: string;
let pushed: number;
let popped: number;

beforeEach(() => {
  [hash, pushed, popped] = ["#layout=a", 0, 0];
  Object.assign(live, { replay: null, replayOver: null, watched: [], resumed: 0 });
  Object.assign(api, { refusal: null, started: [] });
  vi.stubGlobal("location", { get hash() { return hash; }, pathname: "/", search: "" });
  vi.stubGlobal("history", { pushState: (_: unknown, __: string, url: string) => {
    hash = new URL(url, "http://page").hash;
    pushed++;
  } });
  vi.stubGlobal("PopStateEvent", class {});
  vi.stubGlobal("dispatchEvent", () => popped++);
});
afterEach(() => vi.unstubAllGlobals());

describe("a source's view", () => {
  it("is opened and closed by the address, which keeps what else it says, and is told once", () => {
    openSource("fti 1");
    expect([hash, pushed, popped]).toEqual(["#layout=a&source=fti+1", 1, 1]);
    openSource("fti 1");
    expect([pushed, popped]).toEqual([1, 1]);
    openSource(null);
    expect([hash, popped]).toEqual(["#layout=a", 2]);
  });
});

describe("a replay", () => {
  it("that is begun is directed here, and can be linked", async () => {
    expect(await startReplay({ from: "1", to: "2", speed: 10 })).toBeNull();
    expect([live.watched, hash, api.started]).toEqual([[["new", "d"]], "#layout=a&playback=new", [{ from: "1", to: "2", speed: 10 }]]);
    // The secret is not part of what the page shows of the session.
    expect(live.replay!.state).toEqual({ id: "new" });
  });
  it("that is refused says why, and the screen stays as it is", async () => {
    api.refusal = "too many playbacks";
    expect(await startReplay({ run: "r" })).toBe("no replay: too many playbacks");
    expect([live.replayOver, live.watched, hash]).toEqual(["no replay: too many playbacks", [], "#layout=a"]);
  });
  it("that is joined is watched, not directed", async () => {
    await joinReplay("x");
    expect([live.watched, hash]).toEqual([[["x", null]], "#layout=a&playback=x"]);
  });
  it("that is gone is no longer in the address", async () => {
    hash = "#playback=x";
    api.refusal = "no such playback";
    await followReplay();
    expect([hash, live.replayOver, live.watched]).toEqual(["", "no replay: no such playback", []]);
  });
  it("follows the address: into it, to another, and back to what is", async () => {
    hash = "#playback=x";
    await followReplay();
    await followReplay();
    expect(live.watched).toEqual([["x", null]]);
    hash = "#playback=y";
    await followReplay();
    expect(live.watched.at(-1)).toEqual(["y", null]);
    hash = "";
    await followReplay();
    expect([live.resumed, live.replay]).toEqual([1, null]);
    await followReplay();
    expect(live.resumed).toBe(1);
  });
  it("that is left is out of the address", async () => {
    await joinReplay("x");
    leaveReplay();
    expect([live.resumed, hash]).toEqual([1, "#layout=a"]);
  });
});
