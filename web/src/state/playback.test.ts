import { describe, expect, it } from "vitest";
import type { Event, PlaybackState } from "../connection/message";
import { faster, joined, jumpFrom, PlaybackClock } from "./playback";

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
