// One series as shapes: the band between min and max, the line, and the points that no line reaches. They go to a path,
// straight from the ring: nothing is made for it five times a second.
import type { Series } from "../state/series";

/** The part of a canvas that shapes go to. */
export type Path = Pick<CanvasRenderingContext2D, "moveTo" | "lineTo" | "rect">;

/** How one series stands in a plot. */
export interface View {
  /** First entry in sight. */
  begin: number;
  /** Seconds without data over which no line is drawn. */
  silence: number;
  /** The value holds until the next: steps. */
  hold: boolean;
  /** Pixels of the canvas to one of the screen. */
  ratio: number;
  x: (t: number) => number;
  y: (value: number) => number;
}

/** Thinnest part of a band, px: the spike of one bucket is seen on any span. */
const LEAST_PX = 1.2;

/** Adds the band to a path: for each bucket of several values everything between its min and max. */
export function traceBand(path: Path, series: Series, { begin, silence, ratio, x, y }: View): void {
  for (let i = begin; i < series.length; i++) {
    const k = series.slot(i);
    if (series.count[k]! < 2 || series.min[k]! === series.max[k]!) continue;
    const a = x(series.t0[k]!);
    // A bucket reaches to the next one, unless something is missing between them.
    const next = i + 1 < series.length ? series.slot(i + 1) : -1;
    const joined = next >= 0 && series.broken[next] === 0 && series.t0[next]! - series.t1[k]! <= silence;
    const width = Math.max(LEAST_PX * ratio, x(joined ? series.t0[next]! : series.t1[k]!) - a);
    const top = y(series.max[k]!);
    path.rect(a, top, width, Math.max(ratio, y(series.min[k]!) - top));
  }
}

/**
 * Adds the line to a path: the mean of each bucket, and where values hold, steps from the last value of one bucket to
 * the next. Returns the points between two breaks, which have no line.
 */
export function traceLine(path: Path, series: Series, { begin, silence, hold, x, y }: View): [number, number][] {
  const alone: [number, number][] = [];
  let lastT = -Infinity;
  let lastX = 0;
  let lastY = 0;
  let run = 0;
  for (let i = begin; i < series.length; i++) {
    const k = series.slot(i);
    const many = series.count[k]! > 1;
    const px = x(many ? (series.t0[k]! + series.t1[k]!) / 2 : series.t0[k]!);
    const py = y(many ? series.mean[k]! : series.last[k]!);
    if (i === begin || series.broken[k] === 1 || series.t0[k]! - lastT > silence) {
      if (run === 1) alone.push([lastX, lastY]);
      path.moveTo(px, py);
      run = 1;
    } else {
      if (hold) path.lineTo(x(series.t0[k]!), lastY);
      path.lineTo(px, py);
      run++;
    }
    lastT = series.t1[k]!;
    [lastX, lastY] = [px, py];
    if (hold && many) {
      // What holds after a bucket is its last value: its mean may be one that the channel never had.
      [lastX, lastY] = [x(lastT), y(series.last[k]!)];
      path.lineTo(lastX, lastY);
    }
  }
  if (run === 1) alone.push([lastX, lastY]);
  return alone;
}

/** Returns where the newest value stands, or `null` if it lies beyond the right edge, as in a look at the past. */
export function newestPoint(series: Series, { ratio, x, y }: View, right: number): [number, number] | null {
  const k = series.newest();
  if (k < 0) return null;
  const end = x(series.t1[k]!);
  return end <= right + 3 * ratio ? [Math.min(end, right), y(series.last[k]!)] : null;
}
