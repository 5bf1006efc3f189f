// The page's one source of truth: connection, server clock, liveness, latest values, events and gaps.
// High-rate values live in plain maps; components re-read them on `pulse` (5 Hz), never on each message.
import { heard } from "./alarms";
import * as api from "./api";
import { type Banner, Banners } from "./banner";
import { Catalog } from "./catalog.svelte";
import type { Countdown } from "../text/countdown";
import type { Feed } from "./feed";
import { Lately } from "./lately";
import { Liveness, type Mode } from "./liveness";
import { Losses } from "./losses";
import { LostFrames } from "./lostframes";
import type {
  Alarm, Channel, Event, Gap, Heartbeat, Limit, PlaybackState, ServerMessage, ServerView, SourceStatus, Subscribe,
  WireValue,
} from "../connection/message";
import { Replay } from "./replay.svelte";
import { Prepared } from "./prepared.svelte";
import { Primer } from "./primer";
import type { ShownRun } from "./runs";
import { type Age, isNewer } from "./stale";
import { roughly } from "./sight";
import { overWebSocket } from "../connection/socket";
import type { Stream } from "../connection/stream";
import { listNames, type NameList } from "../text/names";
import type { Rounding } from "../text/number";
import { secondsBetween, secondsNs, utc } from "../text/time";
import { told } from "../text/told";
import { sound } from "./tone";
import { shortNames, wholeName } from "./tree";
import { type Trouble, troubles } from "./trouble";
import { type Latest, Values } from "./values";
import { some } from "./verdict";

const TICK_MS = 100;
const PULSE_MS = 200;
const CATALOG_CHECK_MS = 5000;
const VIEW_CHECK_MS = 5000;

interface Attached {
  id: number;
  what: Subscribe;
  feed: Feed | null;
}

class Live {
  mode = $state<Mode>("connecting");
  banners = $state.raw<Banner[]>([]);
  troubles = $state.raw<Trouble[]>([]);
  heartbeat = $state.raw<Heartbeat | null>(null);
  /** The newest heartbeat: shown with the next pulse, not in a frame of its own. */
  private spoken: Heartbeat | null = null;
  /** Rises 5 times a second: read it to be run again with new values. */
  pulse = $state(0);
  /** The instant that panels say they show, the same on all. */
  shownAt = $state.raw<bigint | null>(null);
  /** Its date, UTC. */
  readonly day = $derived(this.shownAt === null ? null : utc(this.shownAt).slice(0, 10));
  events = $state.raw<Event[]>([]);
  gaps = $state.raw<Gap[]>([]);
  /** Those that are not over, what nobody knows of first. */
  alarms = $state.raw<Alarm[]>([]);
  /** Whether those are all of them, as they are now. */
  alarmsKnown = $state(false);
  private eventsKnown = $state.raw<bigint | null>(null);
  private gapsKnown = $state.raw<bigint | null>(null);
  limits = $state.raw<Limit[]>([]);
  /** Whether alarms make no sound here. */
  muted = $state(false);
  /** How often events, gaps or alarms were lost on the way here. */
  noticeLosses = $state(0);
  needsToken = $state(false);
  version = $state("");
  /** Instant that plots are relative to; set by the server's first word. */
  origin = 0n;
  /** What the screen shows: what is, the instant at which it was stopped, or a playback. */
  shows = $state<"live" | "paused" | "replay">("live");
  /** The playback that is shown instead of what is. */
  replay = $state.raw<Replay | null>(null);
  /** Why the last playback ended, if not by the operator. */
  replayOver = $state<string | null>(null);
  /** Instant at which the picture stands. */
  private stopped: bigint | null = null;
  private alarmsThen: Alarm[] = [];
  /** Whether those were all when the picture was stopped. */
  private alarmsKnownThen = false;

  private readonly liveness = new Liveness(performance.now());
  private readonly marks = new Banners();
  private readonly values = new Values();
  private readonly attached = new Map<number, Attached>();
  /** How many panels show a channel. */
  private readonly watched = new Map<number, number>();
  private readonly stream: Stream;
  private lastDataNs: bigint | null = null;
  private epoch: number | null = null;
  /** The store that the server has. */
  private store = "";
  /** Whether the values that are known may be of another store than the channels, or of rows that went back. */
  isOther = $state(false);
  private timers: ReturnType<typeof setInterval>[] = [];
  private lastPulseMs = 0;
  private drawers = new Set<() => void>();
  private tickers = new Set<() => void>();

  private readonly catalog = new Catalog(api, (e) => this.refused(e));
  private readonly prepared = new Prepared(api, () => this.serverNow(), (e) => this.refused(e));
  /** Turns true when the channels and the prepared view are known; the page then decides what it shows. */
  readonly ready = $derived(this.catalog.isKnown && this.prepared.isKnown);

  constructor() {
    this.stream = overWebSocket(() => api.liveUrl(), {
      message: (message) => this.receive(message),
      closed: () => {
        this.liveness.closed();
        this.refresh(performance.now());
      },
    });
  }

  start(): void {
    this.stream.start();
    void this.catalog.check();
    void this.checkView();
    this.timers.push(setInterval(() => this.tick(), TICK_MS));
    this.timers.push(setInterval(() => void this.catalog.check(), CATALOG_CHECK_MS));
    this.timers.push(setInterval(() => void this.checkView(), VIEW_CHECK_MS));
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.stream.hurry();
    });
    addEventListener("online", () => this.stream.hurry());
  }

  get channels(): Channel[] {
    return this.catalog.channels;
  }

  /** Whether those were loaded once. */
  get channelsKnown(): boolean {
    return this.catalog.isKnown;
  }

  /** As much of each name as tells it from those beside it, on the screen, and from its twins in the catalog. */
  shortNames(channels: readonly Channel[]): string[] {
    return shortNames(channels, this.watchedChannels, this.catalog.twins);
  }

  /** Those names as a panel lists them: what all share at their beginning stands once. */
  listNames(channels: readonly Channel[]): NameList {
    return listNames(this.shortNames(channels), channels.map(wholeName));
  }

  get view(): ServerView | null {
    return this.prepared.view;
  }

  /** Asks again for what the server has prepared; `isChanged`: also where it says the same of the run. */
  async checkView(isChanged = false): Promise<void> {
    await this.prepared.check(isChanged);
  }

  get isLive(): boolean {
    return this.mode === "live";
  }

  /** Whether values may look fresh: the screen hears the server, or stands still on purpose. */
  get alive(): boolean {
    return this.replay?.alive ?? (this.shows === "paused" || this.isLive);
  }

  /** Whether plots move on. */
  get moving(): boolean {
    return this.shows !== "paused" && this.alive;
  }

  /** The run that goes on, or in a playback the one that went on then. */
  get run(): ShownRun | null {
    if (this.replay === null) return this.prepared.run;
    void this.pulse;
    // A countdown that is a channel is replayed like any other.
    return this.replay.clockRun() ?? (this.prepared.run?.clock == null ? null : { ...this.prepared.run, countdown: null });
  }

  /** T± of that run at any instant. */
  get countdown(): Countdown | null {
    return this.run?.countdown ?? null;
  }

  /** The server's clock now. Frozen where the last heartbeat left it while the screen is not live. */
  serverNow(): bigint | null {
    return this.liveness.now(performance.now());
  }

  /** The instant that the screen shows. */
  now(): bigint | null {
    return this.stopped ?? this.replay?.now() ?? this.serverNow();
  }

  /** The instant that ages are counted from: of a playback, up to where everything was told. */
  private ageNow(): bigint | null {
    return this.replay ? this.replay.clock.known : this.now();
  }

  /** Alarms as they stood at that instant. */
  get alarmsShown(): Alarm[] {
    if (this.shows === "live") return this.alarms;
    void this.pulse;
    return this.alarmsThen;
  }

  /** Whether those are all. */
  get alarmsShownKnown(): boolean {
    if (this.replay) return this.replay.alarmsKnown;
    return this.shows === "live" ? this.alarmsKnown : this.alarmsKnownThen;
  }

  /** Events by that instant. */
  get eventsShown(): Event[] {
    return this.byThen(this.replay?.events ?? this.events, (event) => event.time);
  }

  /** Before this instant nothing is said of gaps, or of events; null: nothing is known yet. */
  readonly gapsFrom = $derived(this.replay ? this.replay.gapsFrom : this.gapsKnown);
  readonly eventsFrom = $derived(this.replay ? this.replay.eventsFrom : this.eventsKnown);

  /** Gaps that had begun by that instant. */
  get gapsShown(): Gap[] {
    return this.byThen(this.replay?.gaps ?? this.gaps, (gap) => gap.from_time);
  }

  /** What had happened by the instant shown. Live that is everything, and nothing is looked through at each pulse. */
  private byThen<One>(all: One[], time: (one: One) => string): One[] {
    if (this.shows === "live") return all;
    void this.pulse;
    const until = this.now();
    return until === null ? all : all.filter((one) => BigInt(time(one)) <= until);
  }

  /** Stops the picture at this instant. What comes meanwhile is asked for when it goes on. */
  pause(): void {
    const now = this.now();
    if (this.shows !== "live" || now === null) return;
    this.stopped = now;
    [this.alarmsThen, this.alarmsKnownThen] = [this.alarms, this.alarmsKnown];
    this.shows = "paused";
    this.refresh(performance.now());
  }

  /** The screen shows what is. */
  resume(): void {
    if (this.shows === "live") return;
    this.turn(null);
  }

  /** The screen shows a playback; what was on it is asked for anew, as it was then. */
  watchPlayback(state: PlaybackState, director: string | null): void {
    this.replayOver = null;
    const replay: Replay = new Replay(state, director, (message) => {
      if (this.replay === replay) this.take(message, performance.now());
    }, (why) => {
      if (this.replay !== replay) return;
      this.resume();
      this.replayOver = why;
    });
    this.turn(replay);
    replay.start();
  }

  /** From one connection to the other: nothing of the one picture stays in the other. */
  private turn(replay: Replay | null): void {
    const before = this.line;
    const entries = [...this.attached];
    for (const [id] of entries) before.unsubscribe(id);
    this.replay?.end();
    this.stopped = null;
    if (this.replay || replay || this.isOther) this.forget();
    this.replay = replay;
    this.alarmsThen = [];
    this.shows = replay ? "replay" : "live";
    this.attached.clear();
    this.values.rates.clear();
    this.values.sights.clear();
    for (const [, entry] of entries) {
      entry.feed?.subscribed([], []);
      this.join(entry);
    }
    this.refresh(performance.now());
  }

  /** Numbers of streams and channels may stand for others, and times for those of another clock. */
  private forget(): void {
    this.values.forget();
    this.primer.forget();
    this.isOther = false;
  }

  /** The connection that panels are filled by. */
  private get line(): Stream {
    return this.replay?.stream ?? this.stream;
  }

  private join(entry: Attached): void {
    entry.id = this.line.subscribe(entry.what);
    this.attached.set(entry.id, entry);
  }

  /** Seconds from the plots' origin to an instant. */
  seconds(ns: bigint): number {
    return secondsBetween(this.origin, ns);
  }

  /** Keeps a panel's feed filled until the answered function is called. */
  attach(what: Subscribe, feed: Feed | null): () => void {
    const entry: Attached = { what, feed, id: 0 };
    this.join(entry);
    if (this.stopped !== null) void this.fill(entry, this.stopped);
    return () => this.drop(entry.id);
  }

  /** Asks anew for what a panel shows. */
  private again(entry: Attached): void {
    this.drop(entry.id);
    this.join(entry);
  }

  /** What a panel that was opened while the picture stands would have shown. */
  private async fill({ what, feed }: Attached, at: bigint): Promise<void> {
    try {
      const from = at - secondsNs(what.history_s ?? 0);
      const [series, { state }] = await Promise.all([
        feed && what.history_s ? api.history(what.channels, from, at + 1n, what.history_points ?? 600) : [],
        api.stateAt(at, what.channels.join(",")),
      ]);
      if (this.stopped !== at) return;
      feed?.past(state.map((row) => row.channel), series);
      this.values.know(state, this.now());
    } catch (e) {
      if (feed && this.stopped === at) feed.error = told(e);
    }
  }

  private readonly primer = new Primer({
    now: () => this.now(),
    isAsked: (id) => this.values.isAsked(id, this.now()),
    ask: async (at, patterns) => (await api.stateAt(at, patterns.join(","))).state,
    know: (state, at) => {
      if (this.stopped === null || this.stopped === at) this.values.know(state, this.now());
    },
    refused: (e) => this.refused(e),
    after: (ms, run) => void setTimeout(run, ms),
  });

  private drop(id: number): void {
    this.line.unsubscribe(id);
    this.attached.delete(id);
    this.values.rates.drop(id);
  }

  /** Runs `draw` with each pulse while the page is visible. */
  onDraw(draw: () => void): () => void {
    this.drawers.add(draw);
    return () => this.drawers.delete(draw);
  }

  /** Runs `tick` with every turn of the page's own loop. */
  onTick(tick: () => void): () => void {
    this.tickers.add(tick);
    return () => this.tickers.delete(tick);
  }

  private received(receiveNs: bigint, now: bigint): void {
    if (this.lastDataNs === null || isNewer(receiveNs, this.lastDataNs, now)) this.lastDataNs = receiveNs;
  }

  /** When the newest data that the page knows of were received. */
  get lastDataWords(): string {
    return this.lastDataNs === null ? "no data received yet" : `last data ${utc(this.lastDataNs)} UTC`;
  }

  /** Newest value of a channel. */
  of(id: number): Latest | null {
    return this.values.of(id);
  }

  /** A channel's newest value in words. */
  text(channel: Channel, rounding?: Rounding | null): string {
    return this.values.text(channel, rounding);
  }

  /** Any value of a channel in words, with the channel's digits or as a panel rounds. */
  words(channel: Channel, value: WireValue, rounding?: Rounding | null): string {
    return this.values.words(channel, value, rounding);
  }

  /** Extremes of a span in words, the newest value included. */
  extremes(channel: Channel, extent: { min: number; max: number } | null, rounding?: Rounding | null): { min: string; max: string } | null {
    return this.values.extremes(channel, extent, rounding);
  }

  age(channel: Channel): Age {
    return this.values.age(channel, this.ageNow(), this.alive);
  }

  /** Channels of which nothing that comes is in sight of a span up to now, in words; null if there are none. */
  outside(channels: Channel[], spanS: number): string | null {
    if (this.shows !== "live") return null;
    const found: string[] = [];
    for (const c of channels) {
      const latest = this.values.of(c.id);
      const apart = latest && !this.age(c).stale ? this.values.sights.outsideNs(c.stream, latest, secondsNs(spanS)) : 0n;
      if (apart !== 0n) found.push(`${c.name} ${roughly(apart)} ${apart < 0n ? "behind" : "ahead"}`);
    }
    return found.length === 0 ? null : `times outside of what is shown: ${some(found)}`;
  }

  /** Frames a second of a stream, over the last second or so; null before it is known. */
  hz(stream: number): number | null {
    return this.values.rates.hz(stream, this.now());
  }

  /** Those that panels show; read with the pulse. */
  get watchedChannels(): Channel[] {
    return this.channels.filter((c) => this.watched.has(c.id));
  }

  /** Channels on panels: their staleness counts as trouble. */
  watch(channels: Channel[]): () => void {
    const add = (more: number) => {
      for (const { id } of channels) {
        const panels = (this.watched.get(id) ?? 0) + more;
        if (panels > 0) this.watched.set(id, panels);
        else this.watched.delete(id);
      }
    };
    add(1);
    return () => add(-1);
  }

  /** Called after a token was given. */
  retry(): void {
    this.needsToken = false;
    this.stream.hurry();
    void this.checkView();
    void this.catalog.check();
  }

  /**
   * A REST call failed: the heartbeat tells of a dead server; only a missing token needs the operator. Answers whether the
   * same may be answered later.
   */
  private refused(e: unknown): boolean {
    const status = e instanceof api.ApiError ? e.status : 503;
    if (status === 401) this.needsToken = true;
    return status >= 500 || status === 408 || status === 429;
  }

  private receive(message: ServerMessage): void {
    const ms = performance.now();
    switch (message.type) {
      case "hello":
        this.hello(BigInt(message.time), message.version, message, ms);
        break;
      case "heartbeat":
        if ("playback" in message) break;
        if (this.epoch !== null && this.epoch !== message.epoch) this.catalog.recheck();
        this.epoch = message.epoch;
        this.spoken = message;
        this.liveness.heartbeat(BigInt(message.time), ms);
        this.lostFrames.heard(BigInt(message.time), message.sources);
        this.marks.ingestDropped(BigInt(message.ingest_dropped), ms);
        // Also of channels that no panel shows.
        if (message.last_data !== null) this.received(BigInt(message.last_data), BigInt(message.time));
        this.noticesLost(this.losses.inAll(message.dropped ?? 0), ms);
        if (this.mode !== this.liveness.mode) this.refresh(ms);
        // The timers of a page that is not in front run once a minute.
        this.sounds(ms);
        break;
      case "event":
        this.replay?.added(message);
        this.lately.event(message);
        this.showLately();
        // The clock was set, held or let go.
        if (message.source === "run") void this.checkView(true);
        break;
      case "alarm":
        this.lately.alarm(message);
        this.showLately();
        this.sounds(ms);
        break;
      case "gap":
        this.lately.gap(message);
        this.showLately();
        if (this.shows === "live") for (const { feed } of this.attached.values()) feed?.gap(message);
        break;
      default:
        // While a playback is shown its own connection fills the panels.
        if (this.replay === null) this.take(message, ms);
    }
  }

  /** What subscriptions get, from the server or from a playback. */
  private take(message: ServerMessage, ms: number): void {
    switch (message.type) {
      case "subscribed":
        if (this.shows !== "paused") this.attached.get(message.id)?.feed?.subscribed(message.channels, message.unmatched);
        if (this.replay === null) this.primer.want(message.channels);
        break;
      case "channels":
        if (this.shows !== "paused") this.attached.get(message.id)?.feed?.add(message.channels);
        if (this.replay === null) void this.catalog.check();
        break;
      case "history":
        if (this.shows !== "paused") this.attached.get(message.id)?.feed?.history(message);
        break;
      case "update":
        this.update(message, ms);
        break;
      case "rewound":
        // Rows that were shown are gone: the panel asks again, so that it shows what the store has.
        this.values.clear();
        for (const [id, entry] of [...this.attached]) if (id === message.id) this.again(entry);
        break;
      case "snapshot":
        this.values.snapshot(message);
        break;
      case "round":
        // A jump: nothing that was shown is part of the picture any more.
        this.values.clear();
        this.values.rates.restart();
        for (const entry of [...this.attached.values()]) this.again(entry);
        break;
      case "error":
        if (message.id !== null) {
          const feed = this.attached.get(message.id)?.feed;
          if (feed) feed.error = message.message;
        } else console.error(`server: ${message.message}`);
        break;
    }
  }

  private hello(time: bigint, version: string, store: { origin: string; epoch: number }, ms: number): void {
    this.liveness.hello(time, ms);
    this.losses = new Losses();
    if (this.origin === 0n) this.origin = time;
    if (this.epoch !== store.epoch || this.store !== store.origin) {
      this.values.rates.restart();
      this.lostFrames.forget();
      // Of another store, or of rows that may have gone back: a picture that stands keeps it until it goes on.
      this.isOther = true;
      if (this.shows === "live") this.forget();
      if (this.epoch !== null) this.catalog.recheck();
    }
    [this.epoch, this.store] = [store.epoch, store.origin];
    this.version = version;
    this.needsToken = false;
    // At the first word they are on their way already.
    if (!this.catalog.isChecking) void this.catalog.check();
    if (!this.prepared.isAsking) void this.checkView(true);
    void this.loadLately(time, true);
  }

  private readonly lately = new Lately(api, () => performance.now(), () => this.showLately());
  private readonly lostFrames = new LostFrames();
  /** What this connection lost. */
  private losses = new Losses();

  /** Asks for alarms, events, gaps and limits; `begins`: for the first time of this connection, else for those that are due. */
  private async loadLately(now: bigint, begins: boolean): Promise<void> {
    const asking = begins ? this.lately.begin(now) : this.lately.loadDue(now);
    this.showLately();
    const refused = await asking;
    if (refused !== null) this.refused(refused);
  }

  /** Events, gaps or alarms were lost on the way here. */
  private noticesLost(count: number, ms: number): void {
    if (count === 0) return;
    this.marks.noticesLost(count, ms);
    this.noticeLosses++;
    this.lately.lost();
    this.showLately();
  }

  private showLately(): void {
    const { alarms, alarmsKnown, events, eventsFrom, gaps, gapsFrom, limits } = this.lately;
    [this.alarms, this.alarmsKnown, this.events, this.gaps, this.limits] = [alarms, alarmsKnown, events, gaps, limits];
    [this.eventsKnown, this.gapsKnown] = [eventsFrom, gapsFrom];
  }

  private update(message: Extract<ServerMessage, { type: "update" }>, ms: number): void {
    const now = BigInt(message.time);
    for (const window of message.streams) {
      if (this.replay === null) this.received(BigInt(window.receive_time), now);
    }
    // Told once: also while the picture stands.
    if (this.replay === null) this.noticesLost(this.losses.more(message.dropped), ms);
    // The picture stands: what came is asked for again when it goes on.
    if (this.shows === "paused") return;
    const missed = this.attached.get(message.id)?.feed?.update(message) ?? 0;
    // A playback that begins anew at its end lets go of what waits, too.
    this.marks.viewConflated(message.conflated, this.replay ? Math.max(message.dropped, missed) : missed, ms);
    this.values.update(message, this.replay !== null);
  }

  /** Alarms that nobody knows of sound; what an unreachable server said last does not go on. */
  private sounds(ms: number): void {
    const now = this.serverNow();
    if (!this.isLive || now === null) return;
    this.lately.pass(now);
    this.alarms = this.lately.alarms;
    if (!this.muted) sound(heard(this.alarms), ms);
  }

  private tick(): void {
    const ms = performance.now();
    this.stream.tick();
    this.replay?.tick();
    this.liveness.tick(ms);
    for (const tick of this.tickers) tick();
    const now = this.serverNow();
    if (this.lately.isDue && this.isLive && now !== null) void this.loadLately(now, false);
    if (this.mode !== this.liveness.mode || ms - this.lastPulseMs >= PULSE_MS - TICK_MS / 2) this.refresh(ms);
  }

  private refresh(ms: number): void {
    this.lastPulseMs = ms;
    this.heartbeat = this.spoken;
    this.mode = this.liveness.mode;
    const banners = this.marks.list(
      {
        mode: this.mode,
        nowNs: this.serverNow(),
        lastDataNs: this.lastDataNs,
        store: this.heartbeat?.store ?? null,
        needsToken: this.needsToken,
      },
      ms,
    );
    if (!sameBanners(banners, this.banners)) this.banners = banners;
    const stale: string[] = [];
    if (this.moving) {
      const now = this.ageNow();
      for (const c of this.channels) {
        if (!this.watched.has(c.id) || this.values.of(c.id) === null) continue;
        if (this.values.age(c, now, true).stale) stale.push(c.name);
      }
    }
    const lost = this.lostFrames.lastMinute(this.serverNow(), this.gaps);
    this.troubles = troubles(banners, this.heartbeat?.sources ?? [], stale, this.isLive, lost);
    if (this.replay) this.alarmsThen = this.replay.alarms();
    this.shownAt = this.now();
    this.pulse++;
    this.sounds(ms);
    if (!document.hidden) for (const draw of this.drawers) draw();
  }
}

function sameBanners(a: Banner[], b: Banner[]): boolean {
  return a.length === b.length && a.every((x, i) => x.id === b[i]!.id && x.text === b[i]!.text);
}

/** Colour class and words of a source's status. */
export function sourceClass(status: SourceStatus): string {
  return { ok: "live", slow: "watch", silent: "warn", disconnected: "warn", dropping: "crit" }[status] ?? "watch";
}

export const live = new Live();
