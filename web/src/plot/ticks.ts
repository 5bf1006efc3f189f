// Axis ticks that never touch: the step is chosen so that labels fit, and what would still overlap is dropped.
import type { Countdown } from "../text/countdown";
import { niceStep } from "./range";
import { rfc3339, secondsBetween, secondsNs, utc, utcClock } from "../text/time";

export interface Tick {
  /** Where, in the axis's own unit. */
  at: number;
  label: string;
}

const TIME_STEPS_S = [
  0.000001, 0.000002, 0.000005, 0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600,
  7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
  1_209_600, 2_592_000, 7_776_000, 15_552_000, 31_536_000, 63_072_000, 157_680_000, 315_360_000,
];

/** Characters that a label has at least. */
const LEAST_CHARS = 2;
/** Where the clock of a run stood for more than this share of an axis, the axis does not count by it. */
const HELD_MAX = 0.5;

/** T± at both ends of an axis, s; null where it does not count: T± is not known, or the clock mostly stood. */
function counted(from: number, to: number, origin: bigint, run: Countdown | null): [number, number] | null {
  const [a, b] = [from, to].map((s) => run?.t(origin + secondsNs(s)) ?? null);
  if (a == null || b == null) return null;
  const [first, last] = [Number(a) / 1e9, Number(b) / 1e9];
  return last - first < (to - from) * (1 - HELD_MAX) ? null : [first, last];
}

/**
 * Ticks of a time axis from `from` to `to` (s after `origin`), at most one each `labelPx` + gap of `widthPx`.
 * With a run they count to its T-0, else they are UTC clock times; either way they stand on round numbers.
 */
export function timeTicks(
  from: number, to: number, origin: bigint, run: Countdown | null, widthPx: number, charPx: number,
): Tick[] {
  const span = to - from;
  if (!(span > 0) || widthPx < 2 * charPx) return [];
  const count = counted(from, to, origin, run);
  // Seconds of the day (UTC) at the view's origin.
  const base = count ? 0 : Number(((origin % 86_400_000_000_000n) + 86_400_000_000_000n) % 86_400_000_000_000n) / 1e9;
  const [begin, end] = count ?? [base + from, base + to];
  // While the clock stood there is nothing to count: two ticks are never closer than their step.
  const place = (s: number): number | null => {
    if (count === null) return s - base;
    const at = run!.instant(secondsNs(s));
    return at === null ? null : secondsBetween(origin, at);
  };
  for (const step of TIME_STEPS_S) {
    const fits = (widthPx * step) / span;
    // Not even the shortest labels fit: none is made to find that out.
    if (fits < (LEAST_CHARS + 3) * charPx) continue;
    const digits = step >= 1 ? 0 : Math.min(6, Math.ceil(-Math.log10(step) - 1e-9));
    const first = Math.ceil(begin / step - 1e-9) * step;
    // One axis, one form: seconds only where all of them are few.
    const few = Math.max(Math.abs(begin), Math.abs(end)) < 120;
    const label = (s: number) => (count === null ? clockLabel(origin, s - base, digits, step) : countLabel(s, digits, few));
    const widest = Math.max(label(first).length, label(first + Math.floor(span / step) * step).length);
    if (fits < (widest + 3) * charPx) continue;
    const ticks: Tick[] = [];
    for (let i = 0; i < 200; i++) {
      const s = first + i * step;
      const at = place(s);
      if (at === null || at > to + 1e-9) break;
      // In a hold the clock showed its time first where that began.
      if (at >= from - 1e-9) ticks.push({ at, label: label(s) });
    }
    return ticks;
  }
  return [];
}

/** Ticks whose labels, centred on them, stay on an axis from `from` to `to`: one near an edge would leave the plot. */
export function withinEdges(ticks: Tick[], from: number, to: number, widthPx: number, charPx: number): Tick[] {
  const half = ((ticks[0]?.label.length ?? 0) * charPx) / 2;
  return ticks.filter((tick) => {
    const px = ((tick.at - from) / (to - from)) * widthPx;
    return px >= Math.min(half, 12) && px <= widthPx - half + 10;
  });
}

function clockLabel(origin: bigint, s: number, digits: number, step: number): string {
  const ns = origin + BigInt(Math.round(s * 1e9));
  if (step >= 2_592_000) return utc(ns).slice(0, 10);
  if (digits > 3) return rfc3339(ns).slice(11, 20 + digits);
  if (step >= 86_400) return utc(ns).slice(5, 10);
  if (step >= 60) {
    const clock = utcClock(ns).slice(0, 5);
    // The day begins here: an axis of several days says which.
    return clock === "00:00" ? utc(ns).slice(5, 10) : clock;
  }
  return utcClock(ns + 500_000n * (digits > 0 ? 1n : 1000n), digits);
}

/** `T−70s`, `T+1:20`, `T−1:05:00`. */
function countLabel(s: number, digits: number, few: boolean): string {
  const sign = s < -1e-9 ? "−" : "+";
  const size = Math.abs(s);
  const rounded = Number(size.toFixed(digits));
  if (few) return `T${sign}${rounded.toFixed(digits)}s`;
  const whole = Math.floor(rounded);
  const seconds = (rounded - whole + (whole % 60)).toFixed(digits).padStart(digits > 0 ? 3 + digits : 2, "0");
  const minutes = Math.floor(whole / 60) % 60;
  const hours = Math.floor(whole / 3600);
  return hours > 0
    ? `T${sign}${hours}:${String(minutes).padStart(2, "0")}:${seconds}`
    : `T${sign}${minutes}:${seconds}`;
}

/** Ticks of a value axis on round numbers, all with the same decimals, at most one each `spacePx`. */
export function valueTicks(min: number, max: number, heightPx: number, spacePx: number): Tick[] {
  const parts = Math.max(1, Math.floor(heightPx / spacePx));
  const step = niceStep(max - min, parts);
  const write = axisNumbers(Math.max(Math.abs(min), Math.abs(max)), step);
  const ticks: Tick[] = [];
  for (let i = Math.ceil(min / step - 1e-9); i * step <= max + step * 1e-9 && ticks.length < 100; i++) {
    ticks.push({ at: i * step, label: write(i * step) });
  }
  return ticks;
}

/** Parts of a decade that have a tick where there is room, and the shortest distance of two of them, in decades. */
const PARTS = [1, 2, 5];
const PARTS_APART = Math.log10(2);
/** Decades from one tick to the next where not each has room. */
const DECADE_STEPS = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000];
/** Labels are this high, and no closer, px. */
const LABEL_APART_PX = 18;

/**
 * Ticks of a logarithmic axis between two powers of ten, placed by their powers: decades, 2 and 5 where there is room,
 * and round numbers where the axis is too short for these. No two are closer than `LABEL_APART_PX`.
 */
export function logTicks(min: number, max: number, heightPx: number): Tick[] {
  const decadePx = heightPx / (max - min);
  if (!(min < max) || !(decadePx > 0)) return [];
  const step = DECADE_STEPS.find((decades) => decades * decadePx >= LABEL_APART_PX) ?? DECADE_STEPS.at(-1)!;
  const parts = PARTS_APART * decadePx >= LABEL_APART_PX ? PARTS : [1];
  const ticks: Tick[] = [];
  for (let power = Math.floor(min / step) * step; power <= max; power += step) {
    for (const part of parts) {
      const at = power + Math.log10(part);
      if (at >= min - 1e-9 && at <= max + 1e-9) ticks.push({ at, label: decadeLabel(part, power) });
    }
  }
  if (ticks.length >= 2) return ticks;
  const round: Tick[] = [];
  for (const { at, label } of valueTicks(10 ** min, 10 ** max, heightPx, 2 * LABEL_APART_PX)) {
    const place = at > 0 ? Math.log10(at) : -Infinity;
    const before = round.at(-1)?.at ?? -Infinity;
    if (place >= min - 1e-9 && (place - before) * decadePx >= LABEL_APART_PX) round.push({ at: place, label });
  }
  return round;
}

/** `0.001`, `50`, `2e+7`. */
function decadeLabel(part: number, power: number): string {
  if (power >= -4 && power < 6) return String(Number(`${part}e${power}`));
  return `${part}e${power < 0 ? "−" : "+"}${Math.abs(power)}`;
}

/**
 * How the numbers of an axis are written, the largest of a size: very large and small ones with an exponent where that is
 * shorter, all with the digits that tell one from the next.
 */
function axisNumbers(size: number, step: number): (value: number) => string {
  const place = Math.floor(Math.log10(step) + 1e-9);
  const decimals = Math.max(0, Math.min(15, -place));
  const digits = Math.max(0, Math.min(15, Math.floor(Math.log10(size) + 1e-9) - place));
  const isFar = size >= 1e6 || step < 1e-6;
  const hasExponent = isFar && size.toExponential(digits).length < size.toFixed(decimals).length;
  return (value) => {
    const text = hasExponent ? (value === 0 ? "0" : value.toExponential(digits)) : value.toFixed(decimals);
    return (/^-0(\.0*)?$/.test(text) ? text.slice(1) : text).replace("-", "−");
  };
}

/**
 * Of labels in order of importance, those that can be written without touching one another.
 * `at` and `width` in px; a label lies from `at` to `at + width`.
 */
export function withoutOverlap<L extends { at: number; width: number }>(labels: L[], gapPx: number): L[] {
  const kept: L[] = [];
  for (const label of labels) {
    const touches = kept.some((k) => label.at < k.at + k.width + gapPx && k.at < label.at + label.width + gapPx);
    if (!touches) kept.push(label);
  }
  return kept;
}
