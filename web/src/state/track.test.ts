import { describe, expect, it } from "vitest";
import { MAX_SEGMENTS, stateColour, Tints, Track } from "./track";

const names = (t: Track) => t.segments.map((s) => `${s.many ? "many" : s.state}${s.flicker ? "!" : ""} ${s.from}-${s.to}`);

describe("states over time", () => {
  it("extends a state and begins the next where it was first seen", () => {
    const t = new Track(60);
    t.push(0, 1, "OPEN", "OPEN", false, false);
    t.push(2, 3, "OPEN", "CLOSED", false, false);
    t.push(4, 5, "CLOSED", "CLOSED", false, false);
    expect(names(t)).toEqual(["OPEN 0-3", "CLOSED 3-5"]);
    expect(t.at(2.5)!.state).toBe("OPEN");
    expect(t.at(-1)).toBeNull();
  });
  it("does not claim a state across a gap", () => {
    const t = new Track(60);
    t.push(0, 1, true, true, false, false);
    t.push(5, 6, true, true, false, true);
    expect(names(t)).toEqual(["ON 0-1", "ON 5-6"]);
  });
  it("marks what flickered inside one window", () => {
    const t = new Track(60);
    t.push(0, 1, 2, 2, true, false);
    expect(t.segments[0]!.flicker).toBe(true);
  });
  it("marks what flickered where that was, and lets go of it with the span", () => {
    const t = new Track(60);
    for (let at = 0; at < 100; at++) t.push(at, at + 0.5, "OPEN", "OPEN", at === 50 || at === 90, false);
    expect(t.segments.map((s) => [s.from, s.to, s.marks])).toEqual([[0, 99.5, [50, 90]]]);
    // Marks that cannot be drawn apart are one.
    t.push(100, 100.01, "OPEN", "OPEN", true, false);
    t.push(100.02, 100.03, "OPEN", "OPEN", true, false);
    expect(t.segments[0]!.marks).toEqual([50, 90, 100]);
    t.expire(60);
    expect([t.segments[0]!.marks, t.segments[0]!.flicker]).toEqual([[90, 100], true]);
    t.expire(100.5);
    expect([t.segments.length, t.segments[0]!.flicker]).toEqual([1, false]);
  });
  it("is bounded, and ignores nulls and late windows", () => {
    const t = new Track(60);
    for (let i = 0; i < 3 * MAX_SEGMENTS; i++) t.push(i, i, i, i, false, false);
    expect(t.segments).toHaveLength(MAX_SEGMENTS);
    t.push(9999, 9999, null, null, false, false);
    t.push(3, 3, "late", "late", false, false);
    expect(t.segments.at(-1)!.state).toBe(String(3 * MAX_SEGMENTS - 1));
    t.expire(1e9);
    expect(t.segments).toHaveLength(1);
  });
  it("has no steady bar where changes were, however many there are", () => {
    // Two seconds each are seen as they were in a span of an hour; 0.2 s are not, but that there were changes is.
    for (const [every, many] of [[2, false], [0.2, true]] as const) {
      const t = new Track(3600);
      let now = 0;
      for (let i = 0; i < 30_000; i++) {
        now = i * every;
        t.push(now, now, i % 2 === 1, i % 2 === 1, false, false);
        t.expire(now - 3600);
      }
      expect(t.segments.length).toBeLessThan(MAX_SEGMENTS / 2);
      expect(t.segments[0]!.from, `every ${every} s`).toBeLessThanOrEqual(now - 3600);
      for (let i = 1; i < t.segments.length; i++) expect(t.segments[i]!.from).toBe(t.segments[i - 1]!.to);
      // The newest two are as they are.
      expect(t.segments.slice(0, -3).every((s) => s.many === many && (many || s.to - s.from < 2.5))).toBe(true);
    }
  });
  it("holds its span however often frames are missing", () => {
    const t = new Track(3600);
    for (let i = 0; i < 30_000; i++) {
      t.push(i * 0.2, i * 0.2 + 0.1, "OPEN", "OPEN", false, true);
      t.expire(i * 0.2 - 3600);
    }
    expect(t.segments.length).toBeLessThan(MAX_SEGMENTS / 2);
    expect(t.segments[0]!.from).toBeLessThanOrEqual(29_999 * 0.2 - 3600 + 0.2);
    expect(t.segments.some((s) => s.many || s.flicker)).toBe(false);
  });
  it("names a short state between two long ones, and counts a burst as one", () => {
    const t = new Track(3600);
    t.push(0, 100, "OPEN", "OPEN", false, false);
    t.push(101, 101, "CLOSED", "CLOSED", false, false);
    t.push(102, 200, "OPEN", "OPEN", false, false);
    for (const [at, state] of [[200, "A"], [200.5, "B"], [201, "C"], [202, "OPEN"]] as const) t.push(at, at, state, state, false, false);
    t.push(203, 300, "OPEN", "OPEN", false, false);
    t.push(301, 301, "CLOSED", "CLOSED", false, false);
    expect(names(t)).toEqual(["OPEN 0-101", "CLOSED 101-102", "OPEN 102-200", "many 200-202", "OPEN 202-301", "CLOSED 301-301"]);
  });
  it("puts late windows where they belong, and never takes one for what is now", () => {
    const t = new Track(60);
    t.push(0, 1, "OPEN", "OPEN", false, false);
    t.push(5, 6, "OPEN", "OPEN", false, true);
    t.push(2, 3, "CLOSED", "CLOSED", false, false);
    t.push(1.5, 1.8, "OPEN", "OPEN", false, false);
    expect(names(t)).toEqual(["OPEN 0-1.8", "CLOSED 2-3", "OPEN 5-6"]);
    // What was seen as it was changes nothing; what was otherwise is marked.
    t.push(0.2, 0.5, "OPEN", "OPEN", false, false);
    t.push(5.2, 5.4, "CLOSED", "CLOSED", false, false);
    expect(names(t)).toEqual(["OPEN 0-1.8", "CLOSED 2-3", "OPEN! 5-6"]);
    t.push(5.9, 7, "OPEN", "OPEN", false, false);
    expect(names(t).at(-1)).toBe("OPEN! 5-7");
    // A change in a hole.
    t.push(3.5, 4.5, "CLOSED", "ARMED", false, true);
    expect(names(t).slice(1, 4)).toEqual(["CLOSED 2-3", "CLOSED 3.5-4.5", "ARMED 4.5-4.5"]);
  });
  it("follows a source whose clock was set back, and none of its late windows alone", () => {
    const t = new Track(600);
    t.push(0, 1, "OPEN", "OPEN", false, false);
    t.push(60, 60, "OPEN", "OPEN", false, false);
    // One that is late marks, and is not what is now; nor are others between which newer ones come.
    t.push(10, 11, "CLOSED", "CLOSED", false, false);
    expect([names(t), t.segments[0]!.marks]).toEqual([["OPEN! 0-60"], [10]]);
    t.push(60, 61, "OPEN", "OPEN", false, false);
    t.push(20, 21, "CLOSED", "CLOSED", false, false);
    t.push(61, 62, "OPEN", "OPEN", false, false);
    expect([names(t), t.segments[0]!.marks]).toEqual([["OPEN! 0-62"], [10, 20]]);
    // Nor is what is no other state, or goes backwards.
    for (const at of [30, 32]) t.push(at, at + 1, "OPEN", "OPEN", false, false);
    t.push(50, 51, "CLOSED", "CLOSED", false, false);
    t.push(40, 41, "CLOSED", "CLOSED", false, false);
    expect([names(t), t.segments[0]!.marks]).toEqual([["OPEN! 0-62"], [10, 20, 50, 40]]);
    // Two that go on are where the source is.
    t.push(42, 43, "CLOSED", "CLOSED", false, false);
    expect([names(t), t.segments[0]!.marks]).toEqual([["OPEN! 0-40", "CLOSED 40-43"], [10, 20]]);
    t.push(44, 45, "CLOSED", "ARMED", false, false);
    expect(names(t)).toEqual(["OPEN! 0-40", "CLOSED 40-45", "ARMED 45-45"]);
    // Through the times that it was at before it goes once more.
    t.push(46, 63, "ARMED", "ARMED", false, false);
    t.push(64, 65, "ARMED", "ARMED", false, false);
    expect(names(t)).toEqual(["OPEN! 0-40", "CLOSED 40-45", "ARMED 45-65"]);
  });
  it("goes on after one frame that was stamped ahead", () => {
    const t = new Track(600);
    t.push(0, 1, "OPEN", "OPEN", false, false);
    t.push(100, 100, "OPEN", "OPEN", false, false);
    for (let at = 2; at < 110; at += 2) t.push(at, at + 1, "CLOSED", "CLOSED", false, false);
    expect(names(t)).toEqual(["OPEN 0-2", "CLOSED 2-109"]);
  });
  it("keeps what is known of later times when many windows come late at once", () => {
    const t = new Track(600);
    for (const [from, to, state] of [[0, 30, "OPEN"], [30, 50, "CLOSED"], [50, 60, "OPEN"]] as const) t.push(from, to, state, state, false, false);
    for (const at of [10, 12, 14]) t.push(at, at + 1, "ARMED", "ARMED", false, false);
    expect(names(t)).toEqual(["OPEN 0-10", "ARMED 10-15"]);
    t.push(5, 6, "IDLE", "IDLE", false, false);
    t.push(7, 8, "IDLE", "IDLE", false, false);
    expect(names(t)).toEqual(["OPEN 0-5", "IDLE 5-8"]);
    t.push(61, 62, "OPEN", "OPEN", false, false);
    expect(names(t)).toEqual(["OPEN 0-5", "IDLE 5-8", "OPEN 8-10", "ARMED 10-15", "OPEN 15-30", "CLOSED 30-50", "OPEN 50-62"]);
    t.push(10, 11, "IDLE", "IDLE", false, false);
    t.clear();
    t.push(0, 1, "OPEN", "OPEN", false, false);
    expect(names(t)).toEqual(["OPEN 0-1"]);
  });
  it("gives no two states of a channel the same look, and each keeps its own", () => {
    const tints = new Tints();
    const states = ["RUN", "HOLD", "CLOSED", "IDLE", "SAFE", ...Array.from({ length: 15 }, (_, i) => `MODE_${i}`)];
    const looks = states.map((state) => JSON.stringify(tints.of("tank.mode", state)));
    expect(new Set(looks).size).toBe(states.length);
    expect(states.map((state) => JSON.stringify(tints.of("tank.mode", state)))).toEqual(looks);
    expect(tints.of("tank.mode", "CLOSED")).toEqual({ colour: 0, shade: 0 });
    // Another channel has its own; of one with more states than can be told apart all have a look.
    expect(tints.of("tank.valve", "OPEN")).toEqual({ colour: stateColour("OPEN"), shade: 0 });
    for (let i = 0; i < 200; i++) expect(tints.of("log.text", `line ${i}`).shade).toBeLessThan(3);
  });
  it("gives a name one colour and resting states none", () => {
    expect(stateColour("CLOSED")).toBe(0);
    expect(stateColour("TERMINAL_COUNT")).toBe(stateColour("TERMINAL_COUNT"));
    expect(stateColour("OPEN")).toBeGreaterThan(0);
  });
});
