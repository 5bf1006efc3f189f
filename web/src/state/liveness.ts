// Whether the screen as a whole is alive. Everything on the page asks this before it looks alive.
import { ServerClock } from "./clock";

/**
 * connecting: no word from the server yet.
 * live: a heartbeat of the last second has been heard, on time.
 * silent: connected, but heartbeats are missing or arrive late (server stopped, network stalled).
 * stalled: the page itself did not run for more than a second; what it shows may be old until the next
 *   heartbeat that is on time.
 * offline: the connection is gone.
 */
export type Mode = "connecting" | "live" | "silent" | "stalled" | "offline";

/** A missed second turns the screen stale. */
export const HEARTBEAT_LIMIT_MS = 1000;
/** The page's own loop ticks every 100 ms; a second without one is a stall. */
export const STALL_LIMIT_MS = 1000;

export class Liveness {
  mode: Mode = "connecting";
  readonly clock = new ServerClock();
  private lastHeartbeatMs = -Infinity;
  private lastTickMs: number;

  constructor(monotonicMs: number) {
    this.lastTickMs = monotonicMs;
  }

  /** The connection greeted us: a new server may have a new clock. */
  hello(serverNs: bigint, monotonicMs: number): void {
    this.clock.reset();
    this.clock.observe(serverNs, monotonicMs);
  }

  /** A heartbeat arrived; one that was queued for more than a second proves nothing. */
  heartbeat(serverNs: bigint, monotonicMs: number): void {
    const lateMs = this.clock.observe(serverNs, monotonicMs);
    if (lateMs > HEARTBEAT_LIMIT_MS) return;
    this.lastHeartbeatMs = monotonicMs;
    this.mode = "live";
  }

  /** The connection closed or could not be opened. */
  closed(): void {
    this.lastHeartbeatMs = -Infinity;
    if (this.mode !== "connecting") this.mode = "offline";
  }

  /** Runs every 100 ms on the page's own loop. */
  tick(monotonicMs: number): Mode {
    const gapMs = monotonicMs - this.lastTickMs;
    this.lastTickMs = monotonicMs;
    if (gapMs > STALL_LIMIT_MS) {
      // Also where a heartbeat was read from the queue just before: the values beside it are old.
      if (this.mode === "live" || this.mode === "silent") this.mode = "stalled";
    } else if (this.mode === "live" && monotonicMs - this.lastHeartbeatMs > HEARTBEAT_LIMIT_MS) {
      this.mode = "silent";
    }
    return this.mode;
  }

  /** Server time for ages and clocks: runs while heartbeats come, and on through their absence. */
  now(monotonicMs: number): bigint | null {
    return this.clock.now(monotonicMs);
  }
}
