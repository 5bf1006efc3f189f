// Instants and spans: nanoseconds as BigInt, and their words on the page.
import type { Countdown } from "./countdown";

export const NS_PER_MS = 1_000_000n;
export const NS_PER_S = 1_000_000_000n;

/** Nanoseconds of a whole or fractional number of seconds. */
export function secondsNs(seconds: number): bigint {
  return BigInt(Math.round(seconds * 1e9));
}

/** Seconds between two instants; exact to a nanosecond within 100 days. */
export function secondsBetween(from: bigint, to: bigint): number {
  return Number(to - from) / 1e9;
}

function pad(value: number, width: number): string {
  return String(value).padStart(width, "0");
}

/** `2026-11-20 16:41:07.482`, floored to the millisecond. */
export function utc(ns: bigint): string {
  const ms = floorDiv(ns, NS_PER_MS);
  const date = new Date(Number(ms));
  if (Number.isNaN(date.getTime())) return `${ns} ns`;
  return date.toISOString().replace("T", " ").replace("Z", "");
}

/** `16:41:07` or, with digits, `16:41:07.48`. */
export function utcClock(ns: bigint, fractionDigits = 0): string {
  const text = utc(ns).slice(11);
  return fractionDigits === 0 ? text.slice(0, 8) : text.slice(0, 9 + fractionDigits);
}

/** The same instant where the operator is: `2026-11-20 17:41:07.482 +01:00`. */
export function localTime(ns: bigint): string {
  const ms = Number(floorDiv(ns, NS_PER_MS));
  const minutes = -new Date(ms).getTimezoneOffset();
  if (Number.isNaN(minutes)) return `${ns} ns`;
  const size = Math.abs(minutes);
  const zone = `${minutes < 0 ? "−" : "+"}${pad(Math.floor(size / 60), 2)}:${pad(size % 60, 2)}`;
  return `${utc(ns + BigInt(minutes) * 60n * NS_PER_S)} ${zone}`;
}

/** `2026-11-20T16:41:07.123456789Z`: every digit of the instant. */
export function rfc3339(ns: bigint): string {
  const seconds = floorDiv(ns, NS_PER_S);
  const date = new Date(Number(seconds) * 1000);
  if (Number.isNaN(date.getTime())) return ns.toString();
  return `${date.toISOString().slice(0, 19)}.${(ns - seconds * NS_PER_S).toString().padStart(9, "0")}Z`;
}

function floorDiv(a: bigint, b: bigint): bigint {
  const q = a / b;
  return a % b < 0n ? q - 1n : q;
}

/** The count to (T−) or from (T+) an instant: `T−00:00:10` and its tenth. */
export function tClock(now: bigint, t0: bigint): { clock: string; tenth: string } {
  const delta = now - t0;
  const before = delta < 0n;
  const tenths = (before ? -delta : delta) / 100_000_000n;
  const s = Number(tenths / 10n);
  const clock = `T${before ? "−" : "+"}${pad(Math.floor(s / 3600), 2)}:${pad(Math.floor(s / 60) % 60, 2)}:${pad(s % 60, 2)}`;
  return { clock, tenth: String(tenths % 10n) };
}

/**
 * An instant in the words of the run where its T± is known (`T−00:14`), else the UTC clock; with the date where that is
 * not `day`, the date that is shown.
 */
export function mark(ns: bigint, count: Countdown | null, day: string | null = null): string {
  const t = count?.t(ns) ?? null;
  if (t === null) {
    const words = utc(ns);
    return day === null || words.startsWith(day) ? utcClock(ns) : words.slice(5, 16);
  }
  const { clock } = tClock(t, 0n);
  return clock.slice(2, 5) === "00:" ? clock.slice(0, 2) + clock.slice(5) : clock;
}

/** From when to when, in UTC: to the nanosecond where that is short, and with each date that does not go without saying. */
export function fromTo(from: bigint, to: bigint, day: string | null): string {
  const [a, b] = [utc(from).slice(0, 19), utc(to).slice(0, 19)];
  if (to - from < 20n * NS_PER_S) {
    return `${day !== null && a.startsWith(day) ? "" : `${a.slice(0, 10)} `}${rfc3339(from).slice(11, -1)} +${longSpan(to - from)}`;
  }
  return `${a} – ${b.startsWith(a.slice(0, 10)) ? b.slice(11) : b}`;
}

/** An age in at most two figures and a unit: `41 ms`, `2.1 s`, `21 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`. */
export function age(ns: bigint): string {
  const ms = Number(ns / NS_PER_MS);
  if (ms < 1000) return `${Math.max(0, ms)} ms`;
  const s = ms / 1000;
  if (s < 10) return `${(Math.floor(s * 10) / 10).toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${pad(Math.floor(s) % 60, 2)} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${pad(Math.floor(s / 60) % 60, 2)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor(s / 3600) % 24} h`;
}

/** A span of seconds: `60 s`, `5 min`, `1 h`. */
export function span(seconds: number): string {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${+(seconds / 60).toFixed(1)} min`;
  return `${+(seconds / 3600).toFixed(1)} h`;
}

/** A clock with the digits that a look at `spanNs` can tell apart: `16:41:07`, `16:41:07.4821`. */
export function fineClock(ns: bigint, spanNs: bigint): string {
  const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(Number(spanNs) / 1e12))));
  return rfc3339(ns).slice(11, digits === 0 ? 19 : 20 + digits);
}

/** A span of time of any size: `20 µs`, `1.5 s`, `3.2 min`, `2.5 h`, `12 d`. */
export function longSpan(ns: bigint): string {
  const s = Number(ns) / 1e9;
  for (const [unit, size] of [["d", 86_400], ["h", 3600], ["min", 60]] as const) if (s >= 2 * size) return `${+(s / size).toPrecision(3)} ${unit}`;
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]] as const) if (s >= size) return `${+(s / size).toPrecision(3)} ${unit}`;
  return `${ns} ns`;
}

/** Examples of times that can be typed; T± only where the page knows the clock of a run. */
export function timeExamples(run: Countdown | null): string {
  return run === null ? "now-5m, 16:41:07, 2026-11-20T16:41:07Z" : "now-5m, 16:41:07, T-10, 2026-11-20T16:41:07Z";
}

/** Why a typed text is no time. */
export function notTime(text: string, run: Countdown | null): string {
  const isCount = /^\s*T\s*[-+−]/i.test(text);
  return isCount && run === null
    ? `“${text}”: T± is known only for runs started with “strongback run start”`
    : `“${text}” is not a time; try ${timeExamples(run)}`;
}

/**
 * Reads the time an operator typed: `now`, `now-30s`, `-5m`, `T-10`, `T+1:20`, `16:41:07.482` (today, UTC),
 * an RFC 3339 or `2026-11-20 16:41:07` instant (UTC unless it says otherwise), or nanoseconds.
 * Null when it is none of these; T-times need a run whose clock showed them, or will.
 */
export function parseTime(text: string, now: bigint, run: Countdown | null): bigint | null {
  const t = text.trim().replace(/−/g, "-");
  if (t === "" || /^now$/i.test(t)) return now;
  const relative = /^(?:now)?\s*([+-])\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?$/i.exec(t);
  if (relative) {
    const unit = { ms: 1e-3, s: 1, m: 60, min: 60, h: 3600, d: 86_400 }[(relative[3] ?? "s").toLowerCase()] ?? 1;
    const delta = secondsNs(Number(relative[2]) * unit);
    return relative[1] === "-" ? now - delta : now + delta;
  }
  const count = /^T\s*([+-])\s*(?:(?:(\d+):)?(\d{1,2}):)?(\d+(?:\.\d+)?)$/i.exec(t);
  if (count) {
    const delta = secondsNs(Number(count[2] ?? 0) * 3600 + Number(count[3] ?? 0) * 60 + Number(count[4]));
    return run?.instant(count[1] === "-" ? -delta : delta) ?? null;
  }
  if (/^\d{12,19}$/.test(t)) return BigInt(t);
  const instant =
    /^(?:(\d{4}-\d{2}-\d{2})[T ])?(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?\s*(Z|UTC|[+-]\d{2}:?\d{2})?$/i.exec(t);
  if (!instant) return null;
  const day = instant[1] ?? utc(now).slice(0, 10);
  const [hour, minute, second] = [Number(instant[2]), Number(instant[3]), Number(instant[4] ?? 0)];
  if (hour > 23 || minute > 59 || second > 59) return null;
  const ms = Date.parse(`${day}T${pad(hour, 2)}:${pad(minute, 2)}:${pad(second, 2)}Z`);
  // A day that its month does not have would be taken for one of the next.
  if (Number.isNaN(ms) || !new Date(ms).toISOString().startsWith(day)) return null;
  let ns = BigInt(ms) * NS_PER_MS + BigInt((instant[5] ?? "").padEnd(9, "0"));
  const zone = /^([+-])(\d{2}):?(\d{2})$/.exec(instant[6] ?? "");
  if (zone) {
    const offset = secondsNs(Number(zone[2]) * 3600 + Number(zone[3]) * 60);
    ns += zone[1] === "-" ? offset : -offset;
  }
  return ns;
}
