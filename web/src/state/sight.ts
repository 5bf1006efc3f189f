// Whether anything that a stream brings can be seen on a panel: a source whose clock is off has fresh values at times that
// a span up to now does not show.
import { outsideNs } from "./stale";
import { NS_PER_S } from "../text/time";

/** What lay nearest stands for so long: as long as something is in sight now and then, nothing is said. */
const HOLD_NS = 3n * NS_PER_S;
/** Further ahead of its reception nothing is in sight. */
const AHEAD_NS = NS_PER_S;

export class Sights {
  /** How far the nearest time of late was from its reception, by stream: below 0 before it, above 0 after. */
  private readonly nearest = new Map<number, { apartNs: bigint; receiveNs: bigint }>();

  /** Frames of a stream with times between two came. */
  received(stream: number, [one, other]: readonly [bigint, bigint], receiveNs: bigint): void {
    const [from, to] = one < other ? [one, other] : [other, one];
    const apartNs = from - receiveNs > AHEAD_NS ? from - receiveNs : to > receiveNs ? 0n : to - receiveNs;
    const known = this.nearest.get(stream);
    const isHeld = known && receiveNs >= known.receiveNs && receiveNs - known.receiveNs < HOLD_NS;
    if (!isHeld || !isNearer(known.apartNs, apartNs)) this.nearest.set(stream, { apartNs, receiveNs });
  }

  /** How far what a stream brings is outside of a span up to now: below 0 before it, above 0 after; else 0. `newest`: for one that no update brought. */
  outsideNs(stream: number, newest: { timeNs: bigint; receiveNs: bigint }, spanNs: bigint): bigint {
    const apartNs = this.nearest.get(stream)?.apartNs ?? newest.timeNs - newest.receiveNs;
    return outsideNs(apartNs, 0n, spanNs);
  }

  clear(): void {
    this.nearest.clear();
  }
}

function isNearer(a: bigint, b: bigint): boolean {
  if (a > 0n || b > 0n) return b > 0n && (a <= 0n || a < b);
  return a > b;
}

/** An amount of time to be read, not measured: one that changes a little keeps its words. `40 s`, `12 min`, `2 h`, `3 d`. */
export function roughly(ns: bigint): string {
  const s = Number(ns < 0n ? -ns : ns) / 1e9;
  for (const [unit, size] of [["d", 86_400], ["h", 3600], ["min", 60]] as const) if (s >= 2 * size) return `${Math.round(s / size)} ${unit}`;
  return `${Math.round(s)} s`;
}
