import { describe, expect, it } from "vitest";
import { MAX_SEGMENTS, stateColour, Track } from "./track";

const names = (t: Track) => t.segments.map((s) => `${s.state} ${s.from}-${s.to}`);

describe("states over time", () => {
  it("extends a state and begins the next where it was first seen", () => {
    const t = new Track();
    t.push(0, 1, "OPEN", "OPEN", false, false);
    t.push(2, 3, "OPEN", "CLOSED", false, false);
    t.push(4, 5, "CLOSED", "CLOSED", false, false);
    expect(names(t)).toEqual(["OPEN 0-3", "CLOSED 3-5"]);
    expect(t.at(2.5)!.state).toBe("OPEN");
    expect(t.at(-1)).toBeNull();
  });
  it("does not claim a state across a gap", () => {
    const t = new Track();
    t.push(0, 1, true, true, false, false);
    t.push(5, 6, true, true, false, true);
    expect(names(t)).toEqual(["ON 0-1", "ON 5-6"]);
  });
  it("marks what flickered inside one window", () => {
    const t = new Track();
    t.push(0, 1, 2, 2, true, false);
    expect(t.segments[0]!.flicker).toBe(true);
  });
  it("is bounded, and ignores nulls and late windows", () => {
    const t = new Track();
    for (let i = 0; i < 3 * MAX_SEGMENTS; i++) t.push(i, i, i, i, false, false);
    expect(t.segments).toHaveLength(MAX_SEGMENTS);
    t.push(9999, 9999, null, null, false, false);
    t.push(3, 3, "late", "late", false, false);
    expect(t.segments.at(-1)!.state).toBe(String(3 * MAX_SEGMENTS - 1));
    t.expire(1e9);
    expect(t.segments).toHaveLength(1);
  });
  it("gives a name one colour and resting states none", () => {
    expect(stateColour("CLOSED")).toBe(0);
    expect(stateColour("TERMINAL_COUNT")).toBe(stateColour("TERMINAL_COUNT"));
    expect(stateColour("OPEN")).toBeGreaterThan(0);
  });
});
