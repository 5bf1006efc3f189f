// The server's clock as the page knows it: heartbeats carry it, the browser's monotonic clock carries it on
// between them. The browser's wall clock is never asked.
import { NS_PER_S } from "../text/time";

const WINDOW_MS = 10_000;
const WINDOWS = 6;

/**
 * Maps monotonic milliseconds to server nanoseconds. A message can only be late, never early, so the largest
 * offset of the last minute is the least delayed and the truest; a minute is long enough to see through
 * congestion and short enough to follow drift or a step of the server's clock.
 */
export class ServerClock {
  /** Largest offset (server − monotonic, ns) of each ten seconds, newest last. */
  private offsets: { startMs: number; offset: bigint }[] = [];

  /** Forgets everything: another server, or the same one started again. */
  reset(): void {
    this.offsets = [];
  }

  /** Takes the time in a message that has just arrived; answers how late it came, in ms. */
  observe(serverNs: bigint, monotonicMs: number): number {
    const offset = serverNs - toNs(monotonicMs);
    const newest = this.offsets.at(-1);
    if (newest && monotonicMs - newest.startMs < WINDOW_MS) {
      if (offset > newest.offset) newest.offset = offset;
    } else {
      this.offsets.push({ startMs: monotonicMs, offset });
      if (this.offsets.length > WINDOWS) this.offsets.shift();
    }
    return Number(this.best()! - offset) / 1e6;
  }

  /** The server's time now, or null before its first word. */
  now(monotonicMs: number): bigint | null {
    const offset = this.best();
    return offset === null ? null : toNs(monotonicMs) + offset;
  }

  private best(): bigint | null {
    let best: bigint | null = null;
    for (const { offset } of this.offsets) if (best === null || offset > best) best = offset;
    return best;
  }
}

/** Monotonic milliseconds (fractional) as nanoseconds. */
function toNs(ms: number): bigint {
  const whole = Math.floor(ms / 1000);
  return BigInt(whole) * NS_PER_S + BigInt(Math.round((ms - whole * 1000) * 1e6));
}
