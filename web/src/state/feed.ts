// What one panel draws: its channels, their lines or states, and the gaps of their streams, filled from one
// subscription (snapshot, then tail).
import type { CellNotes, Channel, Gap, PastSeries, ServerMessage, StreamWindow, WindowCells, WireValue } from "../connection/message";
import { hasStates, toNumber } from "../connection/message";
import { byName, MAX_CHANNELS } from "./choice";
import { matching } from "../text/pattern";
import { Series, SLOTS } from "./series";
import { DISPLAY_PERIOD_NS } from "./stale";
import { Tail } from "../connection/tail";
import { secondsBetween } from "../text/time";
import { Track } from "./track";

/** Gaps of one stream that a panel shades, those that cannot be drawn apart as one; the oldest go first. */
const MAX_GAPS = 4 * SLOTS;

export const DISPLAY_PERIOD_S = Number(DISPLAY_PERIOD_NS) / 1e9;

export interface Shade {
  stream: number;
  from: number;
  to: number;
}

type History = Extract<ServerMessage, { type: "history" }>;
type Update = Extract<ServerMessage, { type: "update" }>;

/** What there is to say of one cell. */
interface Note {
  changed: boolean;
  least: WireValue;
  greatest: WireValue;
}

/** The notes of cells by their places. */
function notesOf({ changed, finite }: CellNotes): Map<number, Note> {
  const notes = new Map<number, Note>();
  for (const place of changed ?? []) notes.set(place, { changed: true, least: null, greatest: null });
  for (const [place, least, greatest] of finite ?? []) notes.set(place, { changed: false, least, greatest });
  return notes;
}

export class Feed {
  channels: Channel[] = [];
  /** Patterns that no channel matches. */
  unmatched: string[] = [];
  error: string | null = null;
  readonly series = new Map<number, Series>();
  readonly tracks = new Map<number, Track>();
  /** Stream by stream, in the order of time. */
  shades: Shade[] = [];
  /** Rises with each change of the channel list. */
  version = 0;
  /** Windows that never reached the page, since its subscription. */
  missed = 0;
  private readonly tail = new Tail();
  private readonly beyond = new Set<number>();
  /** Channels whose newest values were no numbers: their lines break there. */
  private readonly voids = new Set<number>();

  /**
   * `origin`: instant that times are relative to. `bars`: keep states of every channel, whatever its type.
   * `patterns`: what was asked for; its order is the order of the channels.
   */
  constructor(
    readonly origin: bigint, readonly spanS: number, readonly bars: boolean, private readonly patterns: string[] = [],
  ) {}

  /** Matching channels beyond what the panel draws. */
  get hidden(): number {
    return this.beyond.size;
  }

  /** Why not all that was asked for is shown, in words; null if nothing stands in its way. */
  get problem(): string | null {
    const unmatched = this.unmatched.length === 0 ? [] : [`no channel matches ${this.unmatched.join(", ")}`];
    const words = this.error === null ? unmatched : [this.error, ...unmatched];
    return words.length === 0 ? null : words.join(" · ");
  }

  subscribed(channels: Channel[], unmatched: string[]): void {
    this.channels = [];
    this.beyond.clear();
    this.voids.clear();
    this.error = null;
    this.unmatched = unmatched;
    this.series.clear();
    this.tracks.clear();
    this.shades = [];
    this.tail.clear();
    this.add(channels);
  }

  /** Channels that came to match later, or whose description changed. */
  add(channels: Channel[]): void {
    for (const channel of this.ordered(channels)) {
      const known = this.channels.findIndex((c) => c.id === channel.id);
      if (known >= 0) {
        this.channels[known] = channel;
        continue;
      }
      if (this.channels.length >= MAX_CHANNELS) {
        this.beyond.add(channel.id);
        continue;
      }
      this.channels.push(channel);
      if (this.bars || hasStates(channel.type)) this.tracks.set(channel.id, new Track(this.spanS));
      if (!hasStates(channel.type)) this.series.set(channel.id, new Series(this.spanS));
    }
    this.channels = this.ordered(this.channels);
    this.unmatched = this.unmatched.filter((pattern) => matching(pattern, channels).length === 0);
    this.version++;
  }

  /** Channels in the order of the patterns that ask for them, then by name. */
  private ordered(channels: Channel[]): Channel[] {
    const rank = new Map<number, number>();
    this.patterns.forEach((pattern, i) => {
      for (const c of matching(pattern, channels)) if (!rank.has(c.id)) rank.set(c.id, i);
    });
    const last = this.patterns.length;
    return [...channels].sort(
      (a, b) => (rank.get(a.id) ?? last) - (rank.get(b.id) ?? last) || byName.compare(a.name, b.name),
    );
  }

  history(message: History): void {
    // A long history comes as several messages, each with its own streams.
    this.tail.snapshot(message.rows);
    const shades: Shade[] = [];
    for (const one of message.series) {
      const channel = this.channels.find((c) => c.id === one.channel);
      if (!channel) continue;
      const gaps = one.gaps.map(([from, to]) => ({
        stream: channel.stream, from: this.seconds(from), to: this.seconds(to),
      }));
      for (const gap of gaps) shades.push(gap);
      this.series.get(channel.id)?.clear();
      this.tracks.get(channel.id)?.clear();
      this.voids.delete(channel.id);
      const notes = notesOf(one);
      let before = -Infinity;
      for (let i = 0; i < one.buckets.length; i++) {
        const [t0Text, count, first, last, min, max, mean] = one.buckets[i]!;
        const t0 = this.seconds(t0Text);
        const next = one.buckets[i + 1];
        // A bucket ends where the next begins, or, before an empty stretch, about as long as it usually lasts.
        const t1 = count <= 1 || !next ? t0 : Math.min(this.seconds(next[0]), t0 + (this.spanS * 2) / 600);
        const broken = gaps.some((gap) => gap.from >= before - 1e-9 && gap.from <= t0 && gap.to > before);
        this.push(channel, t0, t1, [channel.id, count, first, last, min, max, mean], broken, notes.get(i));
        before = t0;
      }
    }
    this.shade(shades);
  }

  /** What REST says of an interval, in place of all there is. */
  past(channels: Channel[], series: PastSeries[]): void {
    this.subscribed(channels, this.patterns.filter((pattern) => matching(pattern, channels).length === 0));
    this.history({ type: "history", id: 0, rows: {}, series: series.map((one) => ({ ...one, channel: one.channel.id })) });
  }

  /** Takes a window of each stream; answers how many windows were missed on the way. */
  update(message: Update): number {
    let missed = 0;
    for (const window of message.streams) {
      const joint = this.tail.follow(window, message.epoch);
      if (joint === "repeated") continue;
      if (joint === "missed") missed++;
      this.window(window, joint === "missed");
    }
    this.missed += missed;
    return missed;
  }

  gap(gap: Gap): void {
    const stream = Number(gap.stream ?? -1);
    if (!this.channels.some((c) => c.stream === stream)) return;
    this.shade([{ stream, from: this.seconds(gap.from_time), to: this.seconds(gap.to_time) }]);
  }

  /** Forgets what is older than `t`, s from the origin. */
  expire(t: number): void {
    for (const series of this.series.values()) series.expire(t);
    for (const track of this.tracks.values()) track.expire(t);
    if (this.shades.length > 0 && this.shades.some((s) => s.to < t)) this.shades = this.shades.filter((s) => s.to >= t);
  }

  /** Silence after which a channel's line breaks, s. */
  silenceS(channel: Channel): number {
    const period = channel.expected_period_ns === null ? null : Number(channel.expected_period_ns) / 1e9;
    return this.series.get(channel.id)?.silenceS(period, DISPLAY_PERIOD_S) ?? Infinity;
  }

  private window(window: StreamWindow, missed: boolean): void {
    const t0 = this.seconds(window.time[0]);
    const t1 = this.seconds(window.time[1]);
    const broken = window.gap || missed;
    const notes = notesOf(window);
    window.channels.forEach((cells, i) => {
      const channel = this.channels.find((c) => c.id === cells[0]);
      if (channel && cells[1] > 0) this.push(channel, t0, t1, cells, broken, notes.get(i));
    });
  }

  private push(channel: Channel, t0: number, t1: number, cells: WindowCells, broken: boolean, note?: Note): void {
    const [, count, first, last, min, max, mean] = cells;
    const track = this.tracks.get(channel.id);
    if (track) {
      const flicker = [min, max].some((bound) => bound !== null && bound !== first && bound !== last);
      track.push(t0, t1, first, last, flicker || note?.changed === true, broken);
    }
    const series = this.series.get(channel.id);
    if (!series) return;
    const a = toNumber(first);
    const b = toNumber(last);
    // An extreme that is infinite hides no value beside it.
    const bounds = [min, max, note?.least ?? null, note?.greatest ?? null].map(toNumber);
    const finite = [a, b, ...bounds].filter((value) => value !== null);
    if (finite.length === 0) {
      this.voids.add(channel.id);
      return;
    }
    const isAfterVoid = this.voids.delete(channel.id);
    const low = Math.min(...finite);
    const high = Math.max(...finite);
    series.push({
      t0, t1, count, first: a ?? low, last: b ?? high, min: low, max: high,
      mean: toNumber(mean) ?? low / 2 + high / 2, broken: broken || isAfterVoid,
    });
  }

  private shade(more: Shade[]): void {
    if (more.length === 0) return;
    const near = this.spanS / SLOTS;
    const streams = new Map<number, Shade[]>();
    for (const shade of [...this.shades, ...more].sort((a, b) => a.from - b.from)) {
      const known = streams.get(shade.stream);
      const newest = known?.at(-1);
      if (!known) streams.set(shade.stream, [{ ...shade }]);
      else if (newest && shade.from <= newest.to + near) newest.to = Math.max(newest.to, shade.to);
      else known.push({ ...shade });
    }
    this.shades = [...streams.values()].flatMap((known) => known.slice(-MAX_GAPS));
  }

  private seconds(ns: string): number {
    return secondsBetween(this.origin, BigInt(ns));
  }
}
