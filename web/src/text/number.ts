// Numbers on the page: as many digits as mean something, and never a change of width from one value to the next.
import type { ChannelType, WireValue } from "../connection/message";

const MAX_SIGNIFICANT = 5;
/** Where no value of a channel was larger, decimals would show little of them: an exponent does. */
const SMALL = 1e-3;
/** So many small values, one after the other, are not on their way through zero. */
const SMALL_MANY = 100;
/** From here on an exponent stands in for digits. */
const LARGE = 1e15;
const INTEGERS: ReadonlySet<ChannelType> = new Set(["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"]);

/** More decimals are no choice of a panel. */
export const DECIMALS_MAX = 12;
/** Digits of a number that mean something, whatever its size. */
const MEANT_DIGITS = 15;

/** How a panel writes the numbers of a channel: with so many decimals, and its bounds, which no rounding crosses. */
export interface Rounding {
  decimals: number;
  bounds: readonly number[];
}

/** Decimals that `value` needs, within five significant digits. */
export function decimalsOf(value: number): number {
  if (!Number.isFinite(value) || Number.isInteger(value)) return 0;
  const magnitude = Math.floor(Math.log10(Math.abs(value))) + 1;
  const limit = Math.min(9, Math.max(0, MAX_SIGNIFICANT - Math.max(1, magnitude)));
  const text = Math.abs(value).toFixed(limit);
  const fraction = text.split(".")[1] ?? "";
  return fraction.replace(/0+$/, "").length;
}

/**
 * How the values of one channel are written. Decimals only grow, so digits stay in their columns; a value
 * too small or too large for them is written with an exponent.
 */
export class Digits {
  private decimals = 0;
  private largest = 0;
  /** Small values since the last that was none. */
  private small = 0;

  /** When the value was received that was learnt from last. */
  private learntNs: bigint | null = null;

  /** The newest value, which was received then: it is learnt from, once, and written. */
  newest(value: WireValue, type: ChannelType, receiveNs: bigint): string {
    if (receiveNs === this.learntNs) return this.write(value, type);
    this.learntNs = receiveNs;
    return this.text(value, type);
  }

  /** Learns from a value, and writes it. */
  text(value: WireValue, type: ChannelType): string {
    const number = measured(value, type);
    if (number !== null) this.learn(number);
    return this.write(value, type);
  }

  /**
   * Any value in words; numbers with this channel's decimals, or more where it needs them. Nothing is learnt: an extreme of
   * an hour ago says nothing of what comes now. `rounding`: how they are written instead.
   */
  write(value: WireValue, type: ChannelType, rounding: Rounding | null = null): string {
    if (value === null || value === undefined) return "–";
    if (typeof value === "boolean" || type === "bool") return value ? "true" : "false";
    // Integers of 64 bits come as digits, of which a number would lose the last.
    if (typeof value === "string" && type !== "f32" && type !== "f64") return INTEGERS.has(type) ? minus(value) : value;
    const number = Number(value);
    if (Number.isNaN(number)) return "NaN";
    if (!Number.isFinite(number)) return number > 0 ? "∞" : minus("-∞");
    // A counter or a word of bits means nothing without its last digit.
    if (INTEGERS.has(type) && Number.isInteger(number)) {
      // An extreme of many values is a number: beyond 2^53 its last digits would be made up.
      return Number.isSafeInteger(number) ? minus(String(number)) : fixed(number, 0);
    }
    if (rounding !== null) return rounded(number, rounding);
    if (number !== 0 && Math.abs(number) < SMALL && this.isSmall) return minus(number.toExponential(3));
    return fixed(number, Math.max(this.decimals, decimalsOf(number)));
  }

  /** A pressure that was pumped down is no zero, whatever it was an hour ago. */
  private get isSmall(): boolean {
    return this.largest < SMALL || this.small > SMALL_MANY;
  }

  private learn(number: number): void {
    const size = Math.abs(number);
    this.largest = Math.max(this.largest, size);
    if (number !== 0) this.small = size < SMALL ? this.small + 1 : 0;
    if (number === 0 || !this.isSmall) this.decimals = Math.max(this.decimals, decimalsOf(number));
  }
}

/** A value as a number that is written with decimals; null: it is none. */
function measured(value: WireValue, type: ChannelType): number | null {
  if (value === null || value === undefined || typeof value === "boolean" || type === "bool") return null;
  if (typeof value === "string" && type !== "f32" && type !== "f64") return null;
  const number = Number(value);
  return !Number.isFinite(number) || (INTEGERS.has(type) && Number.isInteger(number)) ? null : number;
}

/** `value` with that many decimals and a true minus sign; an exponent outside 1e-5 to 1e15: what changes must be seen to. */
export function fixed(value: number, decimals: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size >= LARGE || size < 1e-5)) return minus(value.toExponential(3));
  const integerDigits = size < 1 ? 1 : Math.floor(Math.log10(size)) + 1;
  const room = Math.max(0, Math.min(decimals, 9 - integerDigits));
  return unsigned(value.toFixed(room));
}

/**
 * `value` with the decimals that were chosen. It has more where fewer would write it onto a bound or beyond it: what
 * crossed a limit by little is seen to have crossed it.
 */
export function rounded(value: number, { decimals, bounds }: Rounding): string {
  const keepsSides = (text: string) => bounds.every((bound) => Math.sign(Number(text) - bound) === Math.sign(value - bound));
  const size = Math.abs(value);
  const integerDigits = size < 1 ? 1 : Math.floor(Math.log10(size)) + 1;
  const most = MEANT_DIGITS - integerDigits;
  if (most < 0) {
    const text = value.toExponential(3);
    return minus(keepsSides(text) ? text : String(value));
  }
  for (let places = Math.min(decimals, most); places <= most; places++) {
    const text = value.toFixed(places);
    if (keepsSides(text)) return unsigned(text);
  }
  return minus(String(value));
}

/** A number in words with a true minus sign, and without any where all its digits are zero. */
function unsigned(text: string): string {
  return minus(/^-0(\.0*)?$/.test(text) ? text.slice(1) : text);
}

function minus(text: string): string {
  return text.replace("-", "−");
}

/** Every digit of a value, the sign of a zero too, for tables and copies; of an array, every element. */
export function exact(value: WireValue | WireValue[]): string {
  if (Array.isArray(value)) return `[${value.map((one) => (one === null ? "null" : exact(one))).join(", ")}]`;
  if (value === null || value === undefined) return "";
  return Object.is(value, -0) ? "-0" : String(value);
}

/** `68.5 k`, `2.10 M`: three figures and a prefix, always five characters or fewer before the space. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [factor, prefix] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]] as const) {
    if (size >= factor * 0.9995) return three(value / factor) + prefix;
  }
  return size < 100 && !Number.isInteger(value) ? three(value) : String(Math.round(value));
}

function three(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

/** A rate: `25.0 Hz`, `1.00 kHz`. */
export function rate(hz: number): string {
  if (!Number.isFinite(hz)) return "– Hz";
  if (hz >= 999.5) return `${three(hz / 1000)} kHz`;
  // What comes once a minute is not nothing.
  if (hz > 0 && hz < 0.095) return hz < 0.0005 ? "<0.001 Hz" : `${hz.toFixed(3)} Hz`;
  return `${hz >= 99.95 ? hz.toFixed(0) : hz.toFixed(1)} Hz`;
}

/** A count with thin groups: `12 408`. */
export function count(value: number | string | bigint): string {
  return String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}
