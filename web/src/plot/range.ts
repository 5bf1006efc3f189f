// The value axis: it grows at once so that nothing leaves the plot, and shrinks rarely so that nothing jumps.

import type { Ends, Scale } from "../layout/panel";

const MARGIN = 0.08;
/** The axis shrinks only when the data fill less than this part of it. */
const SHRINK_BELOW = 0.4;
/** And only to less than this part of what it was: two roundings of one span differ by a step. */
const SHRINK_TO = 0.75;
/** An axis goes no further: beyond, its span would be no number. */
const FAR = Number.MAX_VALUE / 16;
/** Below the power of ten of every number above zero. */
const BELOW_ALL = -324;
/** A logarithmic axis spans at least this many decades, a factor of two. */
const LOG_SPAN_MIN = 0.3;

/** A value as far as an axis goes. */
export function reach(value: number): number {
  return Math.min(FAR, Math.max(-FAR, value));
}

/** The power of ten of a value; of one that is not above zero, a place below all others. */
export function powerOf(value: number): number {
  return value > 0 ? Math.log10(value) : BELOW_ALL;
}

/** Ends of an axis as places along it. A logarithmic axis has none that are not above zero. */
export function endPlaces(ends: Ends | undefined, scale: Scale): Ends | undefined {
  if (scale === "linear" || ends === undefined) return ends;
  const place = (end: number | undefined) => (end !== undefined && end > 0 ? powerOf(end) : undefined);
  return { min: place(ends.min), max: place(ends.max) };
}

/** The range of places along an axis: values themselves, or on a logarithmic axis their powers of ten. */
export class ValueRange {
  min = 0;
  max = 1;
  private known = false;

  constructor(readonly scale: Scale = "linear") {}

  /** Returns where a value stands along the axis. */
  place(value: number): number {
    return this.scale === "log" ? powerOf(value) : reach(value);
  }

  /** Whether it fits any data: before, its ends are no values. */
  get isKnown(): boolean {
    return this.known;
  }

  clear(): void {
    this.known = false;
  }

  /** Fits the data [least, greatest]; on a logarithmic axis both are above zero. */
  fit(least: number, greatest: number): void {
    if (!(least <= greatest)) return;
    const [low, high] = [this.place(least), this.place(greatest)];
    const inside = this.known && low >= this.min && high <= this.max;
    const filled = (high - low) / (this.max - this.min);
    const room = this.scale === "log" ? LOG_SPAN_MIN : leastSpan(low, high);
    if (inside && filled >= SHRINK_BELOW) return;
    const span = Math.max(high - low, room / (1 + 2 * MARGIN));
    const middle = (low + high) / 2;
    const step = niceStep(span, 8);
    const min = Math.floor((middle - span * (0.5 + MARGIN)) / step) * step;
    const max = Math.ceil((middle + span * (0.5 + MARGIN)) / step) * step;
    // Around a value that hardly changes the axis has more room than its noise fills: it does not follow the noise.
    if (inside && max - min >= (this.max - this.min) * SHRINK_TO) return;
    [this.min, this.max, this.known] = [min, max, true];
  }
}

/** A range whose ends are those that were set, and else its own. An end that leaves nothing keeps the length. */
export function withEnds(range: { min: number; max: number }, ends: Ends | undefined): [number, number] {
  const min = ends?.min ?? range.min;
  const max = ends?.max ?? range.max;
  if (min < max) return [min, max];
  const length = range.max - range.min;
  return ends?.min === undefined ? [max - length, max] : [min, min + length];
}

/** A constant line still has an axis around it: a thousandth of its size, or 1 around zero. */
function leastSpan(low: number, high: number): number {
  const size = Math.max(Math.abs(low), Math.abs(high));
  return size === 0 ? 1 : size * 1e-3;
}

/** The least of 1, 2, 5 × 10ⁿ that makes at most `parts` steps of `span`. */
export function niceStep(span: number, parts: number): number {
  const raw = span / Math.max(1, parts);
  if (!(raw > 0) || !Number.isFinite(raw)) return 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  for (const factor of [1, 2, 5]) if (power * factor >= raw * (1 - 1e-9)) return power * factor;
  return power * 10;
}
