// A panel's look at the past while the rest goes on: a window of time of its own, filled from the statistics that the
// server keeps, so that any span is there at once. What is in sight is asked for with as much again on both sides;
// moving within it asks nothing.
import * as api from "../state/api";
import { Feed } from "../state/feed";
import { live } from "../state/live.svelte";
import type { Channel, Event } from "../connection/message";
import type { Panel } from "../layout/panel";
import { naming } from "../text/pattern";
import { told } from "../text/told";

export interface Window {
  from: bigint;
  to: bigint;
}

const LEAST_NS = 10_000n;
const MOST_NS = 20n * 365n * 86_400n * 1_000_000_000n;
const POINTS = 1600;
const EVENTS_MAX = 500;
/** Loaded again when the window is this much wider or narrower than what was loaded for. */
const DETAIL = 1.5;

/** All that look at the past: one key ends it everywhere. */
const open = new Set<Past>();

export function leavePast(): void {
  for (const past of [...open]) past.leave();
}

export class Past {
  /** Null: the panel shows what the screen shows. */
  window = $state.raw<Window | null>(null);
  feed = $state.raw<Feed | null>(null);
  events = $state.raw<Event[]>([]);
  error = $state<string | null>(null);
  private loaded: (Window & { spanNs: bigint; what: string }) | null = null;
  private asking: AbortController | null = null;
  private stale = false;

  /** `channels`: those of the panel, in their order. */
  constructor(private readonly panel: () => Panel, private readonly channels: () => Channel[]) {}

  /** Looks at an interval; what lies beyond now is not there yet. */
  look(from: bigint, to: bigint): void {
    let span = to - from;
    if (span < LEAST_NS) span = LEAST_NS;
    if (span > MOST_NS) span = MOST_NS;
    const now = live.now();
    const end = now !== null && to > now ? now : to;
    this.window = { from: end - span, to: end };
    open.add(this);
    void this.load();
  }

  /** The window in sight, whether of the past or what the screen shows. */
  seen(): Window | null {
    const now = live.now();
    return this.window ?? (now === null ? null : { from: now - BigInt(Math.round(this.panel().span_s * 1e9)), to: now });
  }

  /** `factor` above 1 shows more time; `at`, the instant that stays where it is. */
  zoom(factor: number, at?: bigint): void {
    const seen = this.seen();
    if (!seen) return;
    const anchor = at ?? (seen.from + seen.to) / 2n;
    const scaled = (ns: bigint) => BigInt(Math.round(Number(ns) * factor));
    this.look(anchor - scaled(anchor - seen.from), anchor + scaled(seen.to - anchor));
  }

  /** Moves the window by a share of its span; above 0 to later times. */
  shift(share: number): void {
    const seen = this.seen();
    if (!seen) return;
    const by = BigInt(Math.round(Number(seen.to - seen.from) * share));
    this.look(seen.from + by, seen.to + by);
  }

  leave(): void {
    open.delete(this);
    this.asking?.abort();
    this.asking = null;
    this.window = this.feed = this.loaded = null;
    this.events = [];
    this.error = null;
  }

  /** Must run when the channels changed. */
  refresh(): void {
    if (this.window) void this.load();
  }

  private async load(): Promise<void> {
    const window = this.window;
    if (!window) return;
    const channels = this.channels();
    const names = channels.map((c) => c.name);
    const what = names.join("\n");
    const span = window.to - window.from;
    const ratio = this.loaded ? Number(span) / Number(this.loaded.spanNs) : Infinity;
    const within = this.loaded && this.loaded.what === what && window.from >= this.loaded.from && window.to <= this.loaded.to;
    if (within && ratio < DETAIL && ratio > 1 / DETAIL) return;
    // One question at a time: the newest window is asked for when the answer is there.
    if (this.asking) {
      this.stale = true;
      return;
    }
    const mine = (this.asking = new AbortController());
    this.stale = false;
    const [from, to] = [window.from - span / 2n, window.to + span / 2n];
    const asked = live.now();
    try {
      const [found, events] = names.length === 0 ? [[], []] : await Promise.all([
        api.history(channels.map(naming), from, to, POINTS, mine.signal), api.events(from, EVENTS_MAX, to),
      ]);
      if (mine.signal.aborted) return;
      const series = found.filter((one) => names.includes(one.channel.name));
      const panel = this.panel();
      const feed = new Feed(live.origin, Number(span) / 1e9, panel.kind === "states", names);
      feed.past(series.map((one) => one.channel), series);
      this.feed = feed;
      this.events = events;
      // What was not there yet when it was asked for is asked for again.
      this.loaded = { from, to: asked !== null && asked < to ? asked : to, spanNs: span, what };
      this.error = null;
    } catch (e) {
      if (mine.signal.aborted) return;
      this.error = told(e);
    } finally {
      if (this.asking === mine) this.asking = null;
    }
    if (this.stale) void this.load();
  }
}
