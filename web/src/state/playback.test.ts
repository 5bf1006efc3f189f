import { describe, expect, it } from "vitest";
import type { Event, PlaybackState } from "../connection/message";
import { Countdown } from "../text/countdown";
import { commandOfKey, eventBeside, faster, intervalOf, isRunning, joined, jumpFrom, PlaybackClock, playOrPause, SPEEDS, speedsWith } from "./playback";

const state = (at: bigint, more: Partial<PlaybackState> = {}): PlaybackState => ({
  id: "x", name: "", from: "0", to: "100000000000", at: String(at), speed: 1, paused: false, loop: false, ended: false, viewers: 1,
  behind: false, round: 0, wall_ns: "0", ...more,
});
const S = 1_000_000_000n;

describe("the clock of a playback", () => {
  it("runs at its speed between the server's words, not far without one, and never back", () => {
    const clock = new PlaybackClock();
    clock.hear(state(10n * S, { speed: 10 }), 1000);
    expect([clock.now(1000), clock.now(1100), clock.now(9000)]).toEqual([10n * S, 11n * S, 14n * S]);
    clock.told(12n * S, 1200);
    expect([clock.now(1200), clock.known]).toEqual([14n * S, 12n * S]);
    expect(clock.now(1500)).toBe(15n * S);
  });
  it("stands while it is paused, ended or behind, and jumps with a new round", () => {
    const clock = new PlaybackClock();
    for (const stop of [{ paused: true }, { ended: true }, { behind: true }]) {
      clock.hear(state(10n * S, stop), 0);
      expect(clock.now(300)).toBe(10n * S);
    }
    clock.hear(state(3n * S, { round: 1 }), 400);
    expect(clock.now(500)).toBe(3n * S + S / 10n);
    clock.hear(state(99_900_000_000n, { round: 2 }), 0);
    expect(clock.now(400)).toBe(100n * S);
  });
  it("finds what to jump to, and the next speed", () => {
    expect([jumpFrom([5n, 1n, 9n], 5n, 1), jumpFrom([5n, 1n, 9n], 5n, -1), jumpFrom([5n], 5n, 1)]).toEqual([9n, 1n, null]);
    expect([faster(1, 1), faster(1, -1), faster(1000, 1), faster(0.1, -1), faster(3, 1)]).toEqual([2, 0.5, 1000, 0.1, 5]);
  });
});

describe("events that are added while others are read", () => {
  const event = (time: bigint, text: string): Event => ({ time: String(time), text, level: "info", source: "test" });
  it("are in the list once, newest first", () => {
    const read = [event(30n, "c"), event(9n, "a")];
    const late = [event(10n, "b"), event(30n, "c"), event(30n, "d")];
    expect(joined(read, late).map((e) => e.text)).toEqual(["d", "c", "b", "a"]);
    expect(joined(read, []).map((e) => e.text)).toEqual(["c", "a"]);
    // Two that nothing tells apart are one, wherever they are.
    expect(joined([...read, event(9n, "a")], []).map((e) => e.text)).toEqual(["c", "a"]);
    expect(joined(read, [event(10n, "b"), event(10n, "b")]).map((e) => e.text)).toEqual(["c", "b", "a"]);
  });
});

describe("the play button", () => {
  const all = (more: Partial<PlaybackState>) => playOrPause(state(5n, { from: "3", ...more }));
  it("pauses what runs, and plays what stands", () => {
    expect([all({}), all({ behind: true }), all({ paused: true })]).toEqual([[{ do: "pause" }], [{ do: "pause" }], [{ do: "play" }]]);
    expect([isRunning(state(0n)), isRunning(state(0n, { paused: true })), isRunning(state(0n, { ended: true }))]).toEqual([true, false, false]);
  });
  it("plays from the beginning at the end, whether it ran into it or was stepped there", () => {
    // Back at the beginning a playback that was not paused runs at once: to pause would stop it.
    for (const paused of [false, true]) expect(all({ ended: true, paused })).toEqual([{ do: "seek", at: "3" }, { do: "play" }]);
  });
});

describe("keys of a replay", () => {
  it("step and change the speed, and are no others", () => {
    const key = (name: string, speed = 1) => commandOfKey(name, state(0n, { speed }));
    expect(key(".")).toEqual({ do: "step", frames: 1 });
    expect([key("<"), key(">"), key(">", 1000), key("<", 0.1)].map((what) => what!.speed)).toEqual([0.5, 2, 1000, 0.1]);
    expect(key("<")!.do).toBe("speed");
    expect(["n", "b", " ", "", "Enter"].map((name) => key(name))).toEqual([null, null, null, null, null]);
  });
});

describe("speeds to choose from", () => {
  it("are the scale, with the one that is set in its place", () => {
    expect(speedsWith(1)).toEqual(SPEEDS);
    const odd = speedsWith(3);
    expect(odd.slice(3, 8)).toEqual([1, 2, 3, 5, 10]);
    expect(odd).toHaveLength(SPEEDS.length + 1);
    expect(SPEEDS).not.toContain(3);
  });
});

describe("a jump from event to event", () => {
  const times = [10n, 20n, 30n, 90n, 100n].map((s) => s * S);
  const to = (at: bigint, way: 1 | -1, more: Partial<PlaybackState> = {}) =>
    (eventBeside(times, state(0n, { from: String(5n * S), ...more }), at, way) ?? -S) / S;
  it("leads to the next one of the interval, and to none beyond it", () => {
    expect([to(5n * S, 1), to(10n * S, 1), to(29n * S, 1), to(30n * S, 1)]).toEqual([10n, 20n, 30n, 90n]);
    // The interval ends before its last instant.
    expect(to(90n * S, 1)).toBe(-1n);
    expect(to(0n, 1, { from: String(15n * S) })).toBe(20n);
  });
  it("leads back to the one before, and to the beginning before all of them", () => {
    const paused = { paused: true };
    expect([to(25n * S, -1, paused), to(20n * S, -1, paused), to(10n * S, -1, paused)]).toEqual([20n, 10n, 5n]);
    expect(to(25n * S, -1, { ...paused, from: String(22n * S) })).toBe(22n);
  });
  it("leads back over the event that was just jumped to while it runs, at any speed", () => {
    expect([to(20n * S + S / 2n, -1), to(22n * S, -1)]).toEqual([10n, 20n]);
    // A second of the viewer's: at ten times the speed ten of the interval.
    expect([to(25n * S, -1, { speed: 10 }), to(31n * S, -1, { speed: 10 })]).toEqual([10n, 20n]);
    expect([to(20n * S + S / 2n, -1, { speed: 0.1 }), to(22n * S, -1, { speed: 0.1 })]).toEqual([10n, 20n]);
    expect(to(20n * S + 1n, -1, { ended: true })).toBe(20n);
  });
});

describe("an interval that was typed", () => {
  const now = 1_795_192_867_482_000_000n;
  it("is two times, the first before the second", () => {
    expect(intervalOf("now-5m", "now", now, null)).toEqual({ from: now - 300n * S, to: now });
    expect(intervalOf("T-10", "T+10", now, new Countdown(now))).toEqual({ from: now - 10n * S, to: now + 10n * S });
    expect([intervalOf("now", "now", now, null), intervalOf("now", "now-1s", now, null)]).toEqual(["from must be before to", "from must be before to"]);
  });
  it("says which of both is no time, the first of them first", () => {
    expect(intervalOf("noon", "never", now, null)).toMatch(/^“noon” is not a time/);
    expect(intervalOf("now-1s", "never", now, null)).toMatch(/^“never” is not a time/);
    expect(intervalOf("T-10", "now", now, null)).toMatch(/T± is known only/);
  });
  it("cannot be read before the server's clock is known", () => {
    expect(intervalOf("now-5m", "now", null, null)).toBe("the time of the server is not known yet");
  });
});
