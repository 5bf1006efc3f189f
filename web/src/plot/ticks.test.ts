import { describe, expect, it } from "vitest";
import { Countdown } from "../text/countdown";
import { niceStep, reach, ValueRange } from "./range";
import { logTicks, timeTicks, valueTicks, withinEdges, withoutOverlap } from "./ticks";

const ORIGIN = 1_795_192_867_482_000_000n; // 16:41:07.482

describe("ticks", () => {
  it("never lets two labels touch, whatever the width and span", () => {
    const S = 1_000_000_000n;
    const held = new Countdown(ORIGIN + 70n * S, [[ORIGIN + 6n * S, ORIGIN + 9n * S], [ORIGIN + 200n * S, ORIGIN + 700n * S]]);
    for (const run of [null, new Countdown(ORIGIN + 70n * S), new Countdown(ORIGIN - 100_000n * S), held]) {
      for (let width = 60; width < 2000; width += 37) {
        for (const span of [2e-5, 1e-3, 0.05, 1, 10, 60, 300, 1800, 7200, 90_000, 3e6, 1e8, 1e9]) {
          const ticks = timeTicks(5, 5 + span, ORIGIN, run, width, 7);
          for (let i = 1; i < ticks.length; i++) {
            const distance = ((ticks[i]!.at - ticks[i - 1]!.at) / span) * width;
            const needed = ((ticks[i]!.label.length + ticks[i - 1]!.label.length) / 2) * 7;
            expect(distance).toBeGreaterThan(needed);
          }
        }
      }
    }
  });
  it("says the day at midnight", () => {
    const labels = timeTicks(0, 3 * 86_400, ORIGIN, null, 500, 7).map((t) => t.label);
    expect(labels.filter((label) => label === "00:00")).toEqual([]);
    expect(labels.filter((label) => /^\d\d-\d\d$/.test(label)).length).toBeGreaterThanOrEqual(2);
  });
  it("stands on round times", () => {
    expect(timeTicks(0, 60, ORIGIN, null, 500, 7).map((t) => t.label)).toEqual([
      "16:41:10", "16:41:20", "16:41:30", "16:41:40", "16:41:50", "16:42:00",
    ]);
    expect(timeTicks(0, 60, ORIGIN, new Countdown(ORIGIN + 70_000_000_000n), 400, 7).map((t) => t.label)).toEqual([
      "T−70s", "T−60s", "T−50s", "T−40s", "T−30s", "T−20s", "T−10s",
    ]);
  });
  it("counts on both sides of a hold as the clock did", () => {
    const S = 1_000_000_000n;
    const ticks = (holds: [bigint, bigint | null][], from = 0, to = 60) =>
      timeTicks(from, to, ORIGIN, new Countdown(ORIGIN + 70n * S, holds), 400, 7).map((t) => `${t.at} ${t.label}`);
    expect(ticks([[ORIGIN + 25n * S, ORIGIN + 45n * S]])).toEqual(["0 T−70s", "10 T−60s", "20 T−50s", "50 T−40s", "60 T−30s"]);
    // It stood at T−50 from the 20th second on: the tick stands where that began, and nothing is counted behind it.
    expect(ticks([[ORIGIN + 20n * S, ORIGIN + 40n * S]])).toEqual(["0 T−70s", "10 T−60s", "20 T−50s", "50 T−40s", "60 T−30s"]);
    expect(ticks([[ORIGIN + 40n * S, null]])).toEqual(["0 T−70s", "10 T−60s", "20 T−50s", "30 T−40s", "40 T−30s"]);
    // Begun before the axis: T−50 is not on it.
    expect(ticks([[ORIGIN + 20n * S, ORIGIN + 40n * S]], 30, 90)).toEqual(["50 T−40s", "60 T−30s", "70 T−20s", "80 T−10s", "90 T+0s"]);
    // It stood for most of the axis.
    expect(ticks([[ORIGIN + 20n * S, null]])[0]).toMatch(/ \d\d:41:\d\d$/);
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
  it("tells each tick from the next, however large the values and narrow the axis", () => {
    expect(valueTicks(1_013_240, 1_013_260, 200, 36).map((t) => t.label)).toEqual(["1013240", "1013245", "1013250", "1013255", "1013260"]);
    expect(valueTicks(0, 1e7, 100, 36).map((t) => t.label)).toEqual(["0", "5.0e+6", "1.0e+7"]);
    for (const size of [1e-9, 1e-3, 1, 999_999, 1e6, 3.3e7, 1e12, 1e300]) {
      for (const share of [1e-3, 0.01, 0.3, 2]) {
        for (const sign of [1, -1]) {
          const [a, b] = [sign * size * (1 - share / 2), sign * size * (1 + share / 2)];
          const ticks = valueTicks(Math.min(a, b), Math.max(a, b), 300, 36);
          const words = `${size} ${share} ${sign}`;
          expect(new Set(ticks.map((t) => t.label)).size, words).toBe(ticks.length);
          for (const t of ticks) expect(Math.abs(Number(t.label.replaceAll("−", "-")) - t.at), words).toBeLessThan(size * share * 0.01);
        }
      }
    }
  });
  it("writes decades on a logarithmic axis, with 2 and 5 where there is room, and fewer where there is little", () => {
    const labels = (min: number, max: number, height: number) => logTicks(min, max, height).map((t) => t.label);
    expect(labels(-2, 1, 300)).toEqual(["0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10"]);
    expect(labels(-2, 1, 150)).toEqual(["0.01", "0.1", "1", "10"]);
    expect(labels(-9, 9, 180)).toEqual(["1e−8", "1e−6", "0.0001", "0.01", "1", "100", "10000", "1e+6", "1e+8"]);
    expect(labels(-0.4, 0.9, 200)).toEqual(["0.5", "1", "2", "5"]);
    expect(logTicks(-1, 1, 100).map((t) => t.at)).toEqual([-1, 0, 1]);
    // Too short for any of these: round numbers, at their powers of ten.
    expect(labels(Math.log10(3.05), Math.log10(4.6), 200)).toEqual(["3.5", "4.0", "4.5"]);
    expect(logTicks(Math.log10(30), Math.log10(34), 100).map((t) => [t.label, 10 ** t.at])).toEqual([["30", 30], ["32", 32], ["34", 34]].map(([l, v]) => [l, expect.closeTo(v as number, 9)]));
  });
  it("keeps the ticks of a logarithmic axis apart, and stays finite over all numbers there are", () => {
    for (const [min, max] of [[-330, 309], [-2, 3], [0.1, 0.2], [0.31, 0.69], [5, 5.001], [307, 308.4], [-324, -323]] as const) {
      for (const height of [20, 90, 400]) {
        const ticks = logTicks(min, max, height);
        const words = `${min} ${max} ${height}`;
        expect(ticks.length, words).toBeLessThanOrEqual(height / 18 + 2);
        for (const [i, { at }] of ticks.entries()) {
          expect(at >= min - 1e-6 && at <= max + 1e-6, words).toBe(true);
          if (i > 0) expect(((at - ticks[i - 1]!.at) / (max - min)) * height, words).toBeGreaterThanOrEqual(18 - 1e-6);
        }
      }
    }
    expect([logTicks(1, 1, 100), logTicks(0, 1, 0)]).toEqual([[], []]);
  });
  it("leaves out a label that would leave the plot at an edge", () => {
    const ticks = [0, 1, 5, 9, 10].map((at) => ({ at, label: "12:34" }));
    // Five characters of 6 px: 15 on either side, of which 10 may hang over at the right.
    expect(withinEdges(ticks, 0, 10, 100, 6).map((t) => t.at)).toEqual([5, 9]);
    expect(withinEdges(ticks, 0, 10, 1000, 6).map((t) => t.at)).toEqual([1, 5, 9]);
    expect(withinEdges([{ at: 0, label: "" }, { at: 10, label: "" }], 0, 10, 100, 6).map((t) => t.at)).toEqual([0, 10]);
    expect(withinEdges([], 0, 10, 100, 6)).toEqual([]);
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
  it("stays finite whatever comes: the largest number there is stands for no value in many a source", () => {
    for (const [low, high] of [[0, Number.MAX_VALUE], [-Number.MAX_VALUE, Number.MAX_VALUE], [Number.MAX_VALUE, Number.MAX_VALUE]] as const) {
      const r = new ValueRange();
      r.fit(low, high);
      expect(Number.isFinite(r.max - r.min)).toBe(true);
      expect([reach(low) >= r.min, reach(high) <= r.max]).toEqual([true, true]);
      r.fit(3, 4);
      expect([r.min > 2, r.max < 5]).toEqual([true, true]);
    }
  });
  it("steps by 1, 2 or 5", () => {
    expect(niceStep(10, 5)).toBe(2);
    expect(niceStep(1, 4)).toBe(0.5);
    expect(niceStep(0, 4)).toBe(1);
  });
});
