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
  it("does not merge across a gap", () => {
    const s = new Series(10_240);
    s.push(point(0, 1));
    s.push(point(1, 5, { broken: true }));
    expect(s.length).toBe(2);
    expect(s.broken[s.newest()]).toBe(1);
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
    s.push(point(1.5, 7));
    expect(s.length).toBe(2);
    expect(s.extent(0.9, 1.1)!.max).toBe(7);
    s.push(point(0.5, 50));
    expect(s.extent(0, 9)!.max).toBe(7);
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
