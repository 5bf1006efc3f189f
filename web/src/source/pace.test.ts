import { describe, expect, it } from "vitest";
import { Pace, PACE_SPAN_S, Paces } from "./pace";

function steady(from: number, to: number, hz: number, pace = new Pace()): Pace {
  for (let s = from; s <= to; s++) pace.add(s, hz);
  return pace;
}

describe("pace", () => {
  it("remembers minutes, not days", () => {
    const pace = steady(0, 100_000, 25);
    expect(pace.at.length).toBeLessThan(PACE_SPAN_S + 6);
    expect(pace.at[0]).toBeLessThanOrEqual(100_000 - PACE_SPAN_S);
    for (let i = 0; i < 10; i++) pace.add(100_000.1 + i / 100, 99);
    expect(pace.hz.at(-1)).toBe(25);
  });
  it("stands still while the rate does: what is expected, not noise, sets the scale", () => {
    expect(steady(0, 10, 25).top(25)).toBe(31.25);
    expect(steady(0, 10, 12).top(25)).toBe(31.25);
    expect(steady(0, 10, 100).top(25)).toBe(108);
    expect(new Pace().top(null)).toBe(1);
    expect(steady(0, 10, 0).top(null)).toBe(1);
  });
  it("draws now at the right, nothing at the foot, and breaks where nothing is known", () => {
    const pace = steady(0, 3, 50);
    pace.add(20, 0);
    pace.add(21, 100);
    expect(pace.path(21, 100, 180, 20)).toBe("M159.0 10.0L160.0 10.0L161.0 10.0L162.0 10.0M179.0 20.0L180.0 0.0");
    expect(pace.path(21, 50, 180, 20)).toContain("L180.0 0.0");
    expect(pace.path(21 + PACE_SPAN_S + 1, 100, 180, 20)).toBe("");
    expect(new Pace().path(0, 1, 10, 10)).toBe("");
  });
  it("forgets what went away", () => {
    const paces = new Paces();
    paces.add("gone", 0, 1);
    paces.add("here", 100, 1);
    paces.forget(PACE_SPAN_S + 50);
    expect([paces.of("gone"), paces.of("here")?.at]).toEqual([null, [100]]);
  });
});
