// The full-width banners: what makes the screen untrustworthy as a whole, worst first.
import type { Mode } from "./liveness";
import { age, utc } from "../text/time";

export type Severity = "critical" | "warning";

export interface Banner {
  id: "connecting" | "silent" | "stalled" | "offline" | "store" | "dropping" | "conflated";
  severity: Severity;
  text: string;
}

/** A rise or a conflation stays on the screen this long after it was last seen. */
export const HOLD_MS = 10_000;

export interface BannerInput {
  mode: Mode;
  /** The server's clock, or null if unknown. */
  nowNs: bigint | null;
  /** When the newest data that the page knows of were received, by the server's clock. */
  lastDataNs: bigint | null;
  store: string | null;
  /** Whether the server wants a token, and without it says nothing. */
  needsToken?: boolean;
}

/** Remembers what rises, and says which banners stand now. */
export class Banners {
  private dropped: bigint | null = null;
  private droppedRise = 0n;
  private droppedAtMs = -Infinity;
  private conflatedAtMs = -Infinity;
  private conflated = 0;
  private lostWindows = 0;
  private notices = 0;

  /** The server's drop counter since its start; only a rise matters, and a fall is a restart. */
  ingestDropped(total: bigint, monotonicMs: number): void {
    if (this.dropped !== null && total > this.dropped) {
      if (monotonicMs - this.droppedAtMs > HOLD_MS) this.droppedRise = 0n;
      this.droppedRise += total - this.dropped;
      this.droppedAtMs = monotonicMs;
    }
    this.dropped = total;
  }

  /** Updates merged (`conflated`) and windows lost (`dropped`) on the way to this page. */
  viewConflated(conflated: number, dropped: number, monotonicMs: number): void {
    if (conflated <= 0 && dropped <= 0) return;
    this.late(monotonicMs);
    this.conflated += conflated;
    this.lostWindows += dropped;
  }

  /** Events, gaps and alarms that were lost on the way to this page, and are asked for again. */
  noticesLost(count: number, monotonicMs: number): void {
    this.late(monotonicMs);
    this.notices += count;
  }

  private late(monotonicMs: number): void {
    if (monotonicMs - this.conflatedAtMs > HOLD_MS) this.conflated = this.lostWindows = this.notices = 0;
    this.conflatedAtMs = monotonicMs;
  }

  list(input: BannerInput, monotonicMs: number): Banner[] {
    const banners: Banner[] = [];
    const last =
      input.lastDataNs === null
        ? "no data received yet"
        : `last data ${utc(input.lastDataNs)} UTC` +
          (input.nowNs === null ? "" : `, ${age(max0(input.nowNs - input.lastDataNs))} ago`);
    switch (input.mode) {
      case "live":
        break;
      case "connecting":
        banners.push({ id: "connecting", severity: "warning", text: input.needsToken ? "Nothing is shown before the server has its token" : "Connecting to the server" });
        break;
      case "silent":
        banners.push({
          id: "silent",
          severity: "critical",
          text: `NOT LIVE · no heartbeat from the server · ${last}`,
        });
        break;
      case "stalled":
        banners.push({ id: "stalled", severity: "critical", text: `NOT LIVE · this page stalled · ${last}` });
        break;
      case "offline":
        banners.push({
          id: "offline",
          severity: "critical",
          text: `NOT LIVE · connection lost, reconnecting · ${last}`,
        });
        break;
    }
    if (input.store !== null && input.store !== "recording") {
      banners.push({
        id: "store",
        severity: "critical",
        text: input.store === "not recorded" || input.store === "not recording"
          ? "NOT RECORDED · frames reach this screen but not the store"
          : `NOT RECORDED · ${input.store} · frames reach this screen but not the store`,
      });
    }
    if (monotonicMs - this.droppedAtMs <= HOLD_MS) {
      banners.push({
        id: "dropping",
        severity: "critical",
        text: `INGEST DROPPING · ${this.droppedRise} packets or lines lost before decoding in the last seconds`,
      });
    }
    if (monotonicMs - this.conflatedAtMs <= HOLD_MS) {
      const told = [
        this.conflated > 0 ? `${this.conflated} updates merged, min and max kept` : "",
        this.lostWindows > 0 ? `${this.lostWindows} windows lost` : "",
        this.notices > 0 ? `${this.notices} events, gaps or alarms lost, and asked for again` : "",
      ].filter((words) => words !== "");
      banners.push({
        id: "conflated",
        severity: "warning",
        text: `VIEW CONFLATED · updates came too late: ${told.join(", ")} · the store has every frame`,
      });
    }
    return banners;
  }
}

function max0(ns: bigint): bigint {
  return ns > 0n ? ns : 0n;
}
