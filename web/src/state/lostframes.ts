// Frames that sources lost within the last minute: heartbeats say how many are missing in all, and the gaps what was
// lost before the first of them. What was filled by late frames is not lost.
import type { Gap, SourceBrief } from "../connection/message";
import { NS_PER_S } from "../text/time";

/** What was lost longer ago is no news. */
const NEWS_NS = 60n * NS_PER_S;
/** Gaps that are losses by the source's or the system's own count; silences have a status of their own. */
const LOSSES = ["sequence", "kernel"];

interface Count {
  at: bigint;
  lost: bigint;
}

export class LostFrames {
  /** By source, of the last minute: each count that is less than all after it. The first is the least. */
  private readonly counts = new Map<string, Count[]>();
  /** When the first heartbeat came. */
  private since: bigint | null = null;

  /** A heartbeat, by the server's time. */
  heard(at: bigint, sources: readonly SourceBrief[]): void {
    this.since ??= at;
    const names = new Set(sources.map((source) => source.name));
    for (const name of [...this.counts.keys()]) if (!names.has(name)) this.counts.delete(name);
    for (const { name, lost } of sources) {
      const count = { at, lost: BigInt(lost) };
      // A count that is not less than this one is never the least again; one from later on says nothing, for the clock
      // went back.
      const less = this.within(name, at).filter((one) => one.at <= at && one.lost < count.lost);
      this.counts.set(name, [...less, count]);
    }
  }

  /** Another server, or another opening of its store, counts from its own beginning. */
  forget(): void {
    this.counts.clear();
    this.since = null;
  }

  /** How many each source lost in the last minute; those that lost none are left out. */
  lastMinute(now: bigint | null, gaps: readonly Gap[]): Map<string, bigint> {
    const found = new Map<string, bigint>();
    if (now === null || this.since === null) return found;
    const isWhole = now - this.since >= NEWS_NS;
    for (const [name, all] of this.counts) {
      const counts = this.within(name, now);
      const told = counts.length === 0 ? 0n : all.at(-1)!.lost - counts[0]!.lost;
      const lost = isWhole ? told : max(told, openOf(gaps, name, now));
      if (lost > 0n) found.set(name, lost);
    }
    return found;
  }

  private within(name: string, now: bigint): Count[] {
    return (this.counts.get(name) ?? []).filter((one) => now - one.at <= NEWS_NS);
  }
}

/** Frames that are missing in the gaps of a source that ended within the last minute. */
function openOf(gaps: readonly Gap[], source: string, now: bigint): bigint {
  const recent = gaps.filter((gap) => {
    const ago = now - BigInt(gap.to_time);
    return gap.source === source && LOSSES.includes(gap.cause) && ago >= 0n && ago <= NEWS_NS;
  });
  return recent.reduce((sum, gap) => sum + BigInt(gap.open), 0n);
}

const max = (a: bigint, b: bigint) => (a > b ? a : b);
