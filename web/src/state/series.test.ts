import { describe, expect, it } from "vitest";
import { type Point, Series } from "./series";

const point = (t0: number, value: number, more: Partial<Point> = {}): Point => ({
  t0, t1: t0, count: 1, first: value, last: value, min: value, max: value, mean: value, broken: false, ...more,
});

describe("series", () => {
  it("hides no spike, however many buckets are merged", () => {
    const s = new Series(3600);
    for (let i = 0; i < 100_000; i++) {
      s.push(point(i * 0.2, i === 54_321 ? 99 : Math.sin(i), { t1: i * 0.2 + 0.199, count: 200 }));
      s.expire(i * 0.2 - 3600);
      if (i === 54_321 + 10_000) expect(s.extent(i * 0.2 - 3600, i * 0.2)!.max).toBe(99);
    }
    expect(s.length).toBeLessThan(1100);
  });
  it("keeps count and mean of what it merges", () => {
    const s = new Series(10_240);
    s.push(point(0, 1, { count: 3, mean: 1 }));
    s.push(point(1, 5, { count: 1 }));
    expect(s.length).toBe(1);
    expect([s.count[0], s.mean[0], s.first[0], s.last[0], s.min[0], s.max[0]]).toEqual([4, 2, 1, 5, 1, 5]);
  });
  it("knows the least value above zero of what is in sight, also of a bucket that reaches below", () => {
    const s = new Series(1);
    expect(s.leastAboveZero(0, 10)).toBe(Infinity);
    s.push(point(0, 0.25));
    s.push(point(1, 0, { t1: 1, count: 9, min: -4, max: 8, first: 3, last: 0, mean: 2 }));
    s.push(point(2, 6));
    expect([s.leastAboveZero(0, 2), s.leastAboveZero(0.5, 2), s.leastAboveZero(1.5, 2), s.leastAboveZero(3, 4)]).toEqual([0.25, 2, 6, Infinity]);
  });
  it("does not merge across a gap", () => {
    const s = new Series(10_240);
    s.push(point(0, 1));
    s.push(point(1, 5, { broken: true }));
    expect(s.length).toBe(2);
    expect(s.broken[s.newest()]).toBe(1);
  });
  it("holds its span, and hides no spike, however often frames are missing", () => {
    for (const missing of [1, 2, 3, 7]) {
      const s = new Series(3600);
      for (let i = 0; i < 40_000; i++) {
        s.push(point(i * 0.2, i === 22_500 ? 99 : 0, { t1: i * 0.2 + 0.199, broken: i % missing === 0 }));
        s.expire(i * 0.2 - 3600);
      }
      expect(s.t0[s.slot(0)], `every ${missing}`).toBeLessThanOrEqual(39_999 * 0.2 - 3600);
      expect(s.extent(0, 9999)!.max).toBe(99);
    }
  });
  it("drops the oldest when full and keeps one entry before the span", () => {
    const s = new Series(1);
    for (let i = 0; i < 5000; i++) s.push(point(i, i));
    expect(s.length).toBe(2048);
    s.expire(4990.5);
    expect(s.t0[s.slot(0)]).toBe(4990);
    s.expire(1e9);
    expect(s.length).toBe(1);
  });
  it("gives late data to the bucket it belongs to", () => {
    const s = new Series(1);
    s.push(point(1, 1));
    s.push(point(2, 2));
    s.push(point(1.0005, 7));
    expect(s.length).toBe(2);
    expect(s.extent(0.9, 1.1)!.max).toBe(7);
    s.push(point(0.5, 50));
    expect(s.extent(0, 9)!.max).toBe(7);
  });
  it("puts what fills a hole into it, in order", () => {
    const s = new Series(60);
    for (const t of [0, 1, 2, 62, 63]) s.push(point(t, t));
    for (let t = 3; t < 62; t++) s.push(point(t, t, { t1: t + 1 }));
    expect(Array.from({ length: s.length }, (_, i) => s.t0[s.slot(i)])).toEqual(Array.from({ length: 64 }, (_, i) => i));
    expect(s.extent(30.1, 30.2)).toEqual({ min: 30, max: 30 });
    expect([s.first[s.newest()], s.t0[s.newest()]]).toEqual([63, 63]);
    // A ring that is full lets its oldest go.
    const full = new Series(1);
    for (let i = 0; i < 3000; i++) full.push(point(2 * i, i));
    full.push(point(5991, 7));
    expect([full.length, full.t0[full.slot(0)], full.t0[full.slot(full.indexAt(5991))]]).toEqual([2048, 2 * 953, 5991]);
  });
  it("finds what the cursor points at", () => {
    const s = new Series(1);
    for (let i = 0; i < 3000; i++) s.push(point(i, i));
    expect(s.indexAt(-1)).toBe(-1);
    expect(s.t0[s.slot(s.indexAt(2500.5))]).toBe(2500);
    expect(s.extent(-10, -5)).toBeNull();
  });
  it("says after which silence a line breaks", () => {
    const s = new Series(60);
    expect(s.silenceS(null, 0.2)).toBe(Infinity);
    for (let i = 0; i < 10; i++) s.push(point(i, i));
    expect(s.silenceS(null, 0.2)).toBe(5);
    expect(s.silenceS(0.001, 0.2)).toBeCloseTo(0.6);
    expect(s.silenceS(2, 0.2)).toBe(6);
  });
});
