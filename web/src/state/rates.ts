// Frames a second of streams, as updates of subscriptions count them.
import { NS_PER_S, secondsBetween } from "../text/time";

export class Rates {
  /** By subscription and stream. */
  private readonly counts = new Map<string, { frames: number; sinceNs: bigint }>();
  private readonly streamHz = new Map<number, { hz: number; atNs: bigint }>();

  /** An update of a subscription brought frames of a stream, at `now`. */
  count(subscription: number, stream: number, frames: number, now: bigint): void {
    const key = `${subscription}:${stream}`;
    const known = this.counts.get(key);
    if (!known) {
      this.counts.set(key, { frames: 0, sinceNs: now });
      return;
    }
    known.frames += frames;
    const elapsed = secondsBetween(known.sinceNs, now);
    if (elapsed < 1) return;
    this.streamHz.set(stream, { hz: known.frames / elapsed, atNs: now });
    known.frames = 0;
    known.sinceNs = now;
  }

  /** Over the last second or so; null before it is known. */
  hz(stream: number, now: bigint | null): number | null {
    const known = this.streamHz.get(stream);
    if (!known || now === null) return null;
    // Counted at updates: without any for three seconds there is no rate to speak of.
    return now - known.atNs > 3n * NS_PER_S ? 0 : known.hz;
  }

  /** A subscription ended. */
  drop(subscription: number): void {
    for (const key of this.counts.keys()) if (key.startsWith(`${subscription}:`)) this.counts.delete(key);
  }

  /** Counting begins anew; the rates of before stand until then. */
  restart(): void {
    this.counts.clear();
  }

  clear(): void {
    this.counts.clear();
    this.streamHz.clear();
  }
}
