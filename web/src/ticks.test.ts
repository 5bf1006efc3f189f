import { describe, expect, it } from "vitest";
import { niceStep, ValueRange } from "./range";
import { timeTicks, valueTicks, withoutOverlap } from "./ticks";

const ORIGIN = 1_795_192_867_482_000_000n; // 16:41:07.482

describe("ticks", () => {
  it("never lets two labels touch, whatever the width and span", () => {
    for (const t0 of [null, ORIGIN + 70_000_000_000n, ORIGIN - 100_000_000_000_000n]) {
      for (let width = 60; width < 2000; width += 37) {
        for (const span of [2e-5, 1e-3, 0.05, 1, 10, 60, 300, 1800, 7200, 90_000, 3e6, 1e8, 1e9]) {
          const ticks = timeTicks(5, 5 + span, ORIGIN, t0, width, 7);
          for (let i = 1; i < ticks.length; i++) {
            const distance = ((ticks[i]!.at - ticks[i - 1]!.at) / span) * width;
            const needed = ((ticks[i]!.label.length + ticks[i - 1]!.label.length) / 2) * 7;
            expect(distance).toBeGreaterThan(needed);
          }
        }
      }
    }
  });
  it("stands on round times", () => {
    expect(timeTicks(0, 60, ORIGIN, null, 500, 7).map((t) => t.label)).toEqual([
      "16:41:10", "16:41:20", "16:41:30", "16:41:40", "16:41:50", "16:42:00",
    ]);
    expect(timeTicks(0, 60, ORIGIN, ORIGIN + 70_000_000_000n, 400, 7).map((t) => t.label)).toEqual([
      "T−70s", "T−60s", "T−50s", "T−40s", "T−30s", "T−20s", "T−10s",
    ]);
  });
  it("names microseconds, months and years, and finds some for any look", () => {
    expect(timeTicks(0, 2e-4, ORIGIN, null, 600, 7).map((t) => t.label)).toEqual(["16:41:07.48200", "16:41:07.48205", "16:41:07.48210", "16:41:07.48215", "16:41:07.48220"]);
    for (const span of [2e-5, 1e-3, 1, 3600, 86_400, 3e6, 1e8, 6e8]) expect(timeTicks(-span, 0, ORIGIN, null, 600, 7).length, String(span)).toBeGreaterThan(0);
    expect(timeTicks(-1e8, 0, ORIGIN, null, 600, 7)[0]!.label).toMatch(/^20\d\d-\d\d-\d\d$/);
  });
  it("writes values with the decimals of their step", () => {
    expect(valueTicks(3.4, 4.6, 250, 36).map((t) => t.label)).toEqual(["3.4", "3.6", "3.8", "4.0", "4.2", "4.4", "4.6"]);
    expect(valueTicks(-80, 60, 130, 36).map((t) => t.label)).toEqual(["−50", "0", "50"]);
    expect(valueTicks(0, 1e7, 100, 36).length).toBeGreaterThan(1);
  });
  it("drops the less important of two labels that would touch", () => {
    const kept = withoutOverlap([{ at: 50, width: 40, n: "new" }, { at: 20, width: 40, n: "old" }, { at: 0, width: 15, n: "far" }], 4);
    expect(kept.map((k) => k.n)).toEqual(["new", "far"]);
  });
});

describe("value axis", () => {
  it("holds all data and does not move with each value", () => {
    const r = new ValueRange();
    r.fit(3.5, 4.3);
    expect(r.min).toBeLessThanOrEqual(3.5);
    expect(r.max).toBeGreaterThanOrEqual(4.3);
    const { min, max } = r;
    r.fit(3.6, 4.2);
    expect([r.min, r.max]).toEqual([min, max]);
    r.fit(3.6, 9);
    expect(r.max).toBeGreaterThanOrEqual(9);
    r.fit(4, 4.1);
    expect(r.max - r.min).toBeLessThan(1);
  });
  it("has room around a constant, zero included, and ignores nothing-at-all", () => {
    const r = new ValueRange();
    r.fit(4.1, 4.1);
    expect(r.min).toBeLessThan(4.1);
    expect(r.max).toBeGreaterThan(4.1);
    r.fit(Infinity, -Infinity);
    expect(r.max).toBeGreaterThan(4.1);
    r.clear();
    r.fit(0, 0);
    expect([r.min < 0, r.max > 0]).toEqual([true, true]);
  });
  it("steps by 1, 2 or 5", () => {
    expect(niceStep(10, 5)).toBe(2);
    expect(niceStep(1, 4)).toBe(0.5);
    expect(niceStep(0, 4)).toBe(1);
  });
});
