import { describe, expect, it } from "vitest";
import { type Point, Series, SLOTS } from "../state/series";
import { newestPoint, type Path, traceBand, traceLine, type View } from "./trace";

const point = (t0: number, value: number, more: Partial<Point> = {}): Point => ({
  t0, t1: t0, count: 1, first: value, last: value, min: value, max: value, mean: value, broken: false, ...more,
});
const filled = (spanS: number, ...points: Point[]) => {
  const series = new Series(spanS);
  for (const p of points) series.push(p);
  return series;
};

/** Writes shapes down in words: `M` begins a line, `L` goes on with it, `R` is a rectangle. */
class Recorder implements Path {
  readonly words: string[] = [];
  readonly rects: { x: number; y: number; width: number; height: number }[] = [];
  readonly points: { x: number; y: number }[] = [];
  moveTo(x: number, y: number): void {
    this.points.push({ x, y });
    this.words.push(`M${x},${y}`);
  }
  lineTo(x: number, y: number): void {
    this.points.push({ x, y });
    this.words.push(`L${x},${y}`);
  }
  rect(x: number, y: number, width: number, height: number): void {
    this.rects.push({ x, y, width, height });
    this.words.push(`R${x},${y} ${width}×${height}`);
  }
}

/** Ten pixels a second; a value of 0 stands at 100, and one more is ten pixels higher. */
const view = (more: Partial<View> = {}): View => ({
  begin: 0, silence: Infinity, hold: false, ratio: 1, x: (t) => 10 * t, y: (v) => 100 - 10 * v, ...more,
});
const line = (series: Series, more: Partial<View> = {}) => {
  const path = new Recorder();
  const alone = traceLine(path, series, view(more));
  return { words: path.words.join(" "), points: path.points, alone };
};
const band = (series: Series, more: Partial<View> = {}) => {
  const path = new Recorder();
  traceBand(path, series, view(more));
  return path;
};

describe("a line", () => {
  it("goes from value to value, and through the mean of a bucket at its middle", () => {
    const series = filled(1, point(0, 1), point(1, 3), point(2, 2, { t1: 3, count: 4, mean: 5, first: 2, last: 9, max: 9 }));
    expect(line(series).words).toBe("M0,90 L10,70 L25,50");
  });
  it("begins at the entry before the left edge, so that it enters the plot from there", () => {
    const series = filled(1, point(0, 1), point(1, 2), point(2, 3));
    expect(line(series, { begin: 1 }).words).toBe("M10,80 L20,70");
  });
  it("breaks where frames are known missing, and after a silence", () => {
    const gap = filled(1, point(0, 1), point(1, 1), point(2, 1, { broken: true }), point(3, 1));
    expect(line(gap).words).toBe("M0,90 L10,90 M20,90 L30,90");
    const quiet = filled(1, point(0, 1), point(1, 1), point(9, 1), point(10, 1));
    expect(line(quiet, { silence: 5 }).words).toBe("M0,90 L10,90 M90,90 L100,90");
    expect(line(quiet, { silence: 8 }).words).toBe("M0,90 L10,90 L90,90 L100,90");
    // A silence begins at the end of a bucket, not at its beginning.
    const long = filled(1, point(0, 1), point(1, 1, { t1: 7, count: 9 }), point(9, 1));
    expect(line(long, { silence: 5 }).words).not.toContain("M90");
  });
  it("answers the points that no line reaches, wherever they stand, so that none of them is lost", () => {
    const lonely = (value: number, t: number) => point(t, value, { broken: true });
    expect(line(filled(1, lonely(1, 0), lonely(2, 1), point(2, 2), lonely(3, 3))).alone).toEqual([[0, 90], [30, 70]]);
    expect(line(filled(1, point(5, 4))).alone).toEqual([[50, 60]]);
    expect(line(new Series(1))).toEqual({ words: "", points: [], alone: [] });
  });
  it("steps where a value holds until the next", () => {
    const series = filled(1, point(0, 1), point(1, 3), point(2, 2));
    expect(line(series, { hold: true }).words).toBe("M0,90 L10,90 L10,70 L20,70 L20,80");
  });
  it("holds the last value of a bucket, not a mean that the channel never had", () => {
    // A setpoint went from 0 to 8 and 2 within one bucket, and stood at 2 from then on.
    const series = filled(1, point(0, 0), point(1, 0, { t1: 2, count: 3, first: 0, last: 2, max: 8, mean: 3 }), point(9, 2));
    expect(line(series, { hold: true }).words).toBe("M0,100 L10,100 L15,70 L20,80 L90,80 L90,80");
    // A line between values goes through means all the same.
    expect(line(series).words).toBe("M0,100 L15,70 L90,80");
    expect(line(filled(1, point(1, 0, { t1: 2, count: 3, last: 2, max: 8, mean: 3 })), { hold: true }).words).toBe("M15,70 L20,80");
  });
});

describe("a band", () => {
  it("covers all between min and max of a bucket, up to the next bucket", () => {
    const many = (t0: number, more: Partial<Point> = {}) => point(t0, 1, { t1: t0 + 0.5, count: 5, min: -2, max: 4, ...more });
    expect(band(filled(1, many(0), many(1))).words).toEqual(["R0,60 10×60", "R10,60 5×60"]);
    // Not over a gap, nor over a silence.
    expect(band(filled(1, many(0), many(1, { broken: true }))).words[0]).toBe("R0,60 5×60");
    expect(band(filled(1, many(0), many(9)), { silence: 2 }).words[0]).toBe("R0,60 5×60");
    expect(band(filled(1, many(0), many(1)), { begin: 1 }).words).toEqual(["R10,60 5×60"]);
  });
  it("has nothing of single values and of buckets whose values are all one", () => {
    expect(band(filled(1, point(0, 3), point(1, 4, { t1: 2, count: 9 }))).words).toEqual([]);
  });
  it("is thick enough to be seen, on every screen", () => {
    // Two values at one instant, hardly apart.
    const series = filled(1, point(0, 1, { count: 2, min: 1, max: 1.03125 }));
    for (const ratio of [1, 2]) expect(band(series, { ratio }).rects).toEqual([{ x: 0, y: 89.6875, width: 1.2 * ratio, height: ratio }]);
  });
});

describe("reduced points", () => {
  it("hide no spike: it stands in the line or in the band, at its own place", () => {
    const spanS = 3600;
    for (const spikeAt of [0, 1, 4321, 8999, 9000, 17_998, 17_999]) {
      for (const size of [50, -50]) {
        const series = new Series(spanS);
        for (let i = 0; i < 18_000; i++) series.push(point(i / 5, i === spikeAt ? size : Math.sin(i)));
        expect(series.length).toBeLessThanOrEqual(SLOTS + 2);
        const { points } = line(series);
        const { rects } = band(series);
        // One value of the ring is one of 1024 columns; the spike reaches to y, within a column of its time.
        const [x, y] = [10 * (spikeAt / 5), 100 - 10 * size];
        const near = (at: number, width = 0) => at <= x + 1e-6 && x <= at + width + (10 * spanS) / SLOTS;
        const inBand = rects.some((r) => near(r.x, r.width) && r.y - 1e-6 <= y && y <= r.y + r.height + 1e-6);
        const inLine = points.some((p) => near(p.x) && Math.abs(p.y - y) < 1e-6);
        expect([spikeAt, size, inBand || inLine]).toEqual([spikeAt, size, true]);
      }
    }
  });
  it("hide no late value either", () => {
    const series = new Series(60);
    for (let i = 0; i < 600; i++) if (i !== 300) series.push(point(i / 10, 0));
    series.push(point(30, 7));
    const { points } = line(series);
    const { rects } = band(series);
    const seen = points.some((p) => p.y === 30 && Math.abs(p.x - 300) < 2) || rects.some((r) => r.y === 30 && Math.abs(r.x - 300) < 2);
    expect(seen).toBe(true);
  });
});

describe("the newest value", () => {
  it("is a dot at the end of its bucket, at the edge where it is just beyond, and none far beyond or of nothing", () => {
    const series = filled(1, point(0, 1), point(1, 5, { t1: 2, count: 3, last: 2, mean: 4 }));
    expect(newestPoint(series, view(), 100)).toEqual([20, 80]);
    expect(newestPoint(series, view(), 18)).toEqual([18, 80]);
    expect(newestPoint(series, view(), 16)).toBeNull();
    expect(newestPoint(series, view({ ratio: 2 }), 16)).toEqual([16, 80]);
    expect(newestPoint(new Series(1), view(), 100)).toBeNull();
  });
});
