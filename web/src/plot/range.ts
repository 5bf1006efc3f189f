// The value axis: it grows at once so that nothing leaves the plot, and shrinks rarely so that nothing jumps.

import type { Ends } from "../layout/panel";

const MARGIN = 0.08;
/** The axis shrinks only when the data fill less than this part of it. */
const SHRINK_BELOW = 0.4;
/** And only to less than this part of what it was: two roundings of one span differ by a step. */
const SHRINK_TO = 0.75;
/** An axis goes no further: beyond, its span would be no number. */
const FAR = Number.MAX_VALUE / 16;

/** A value as far as an axis goes. */
export function reach(value: number): number {
  return Math.min(FAR, Math.max(-FAR, value));
}

export class ValueRange {
  min = 0;
  max = 1;
  private known = false;

  /** Whether it fits any data: before, its ends are no values. */
  get isKnown(): boolean {
    return this.known;
  }

  clear(): void {
    this.known = false;
  }

  /** Fits the data [least, greatest]. */
  fit(least: number, greatest: number): void {
    if (!(least <= greatest)) return;
    const [low, high] = [reach(least), reach(greatest)];
    const inside = this.known && low >= this.min && high <= this.max;
    const filled = (high - low) / (this.max - this.min);
    const room = leastSpan(low, high);
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
