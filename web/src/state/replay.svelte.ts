// A playback on this screen: its connection, its clock, who directs it, and what else is known of its interval: events,
// gaps and the alarms that stood.
import * as api from "./api";
import { alarmsAt, type AlarmStep } from "./alarmbook";
import { eventsKnownFrom, knownFrom } from "./gaps";
import type { Alarm, Event, Gap, PlaybackState, ServerMessage } from "../connection/message";
import { eventBeside, joined, PlaybackClock, playOrPause } from "./playback";
import { countdownOf, runWithin, type ShownRun } from "./runs";
import { overWebSocket } from "../connection/socket";
import type { Stream } from "../connection/stream";
import { told } from "../text/told";

/** Without a word of the server for so long the picture is no longer what is played. */
const DEAF_MS = 2500;
const EVENTS_MAX = 5000;
/** Events are known from so long before the interval. */
const EVENTS_BEFORE_NS = 3_600_000_000_000n;
const GAPS_MAX = 500;
/** What was refused is asked for again after so long, and after twice as long each time, up to the most. */
const AGAIN_MS = { least: 2000, most: 30_000 };
/** What is not answered for so long is asked for again. */
const PATIENCE_MS = 15_000;
const KEY = "strongback.director.";

export class Replay {
  state = $state.raw<PlaybackState>()!;
  /** What the session or a command said that the operator must know. */
  problem = $state<string | null>(null);
  events = $state.raw<Event[]>([]);
  gaps = $state.raw<Gap[]>([]);
  /** From when on all of them are there; null: that is not known yet. */
  eventsFrom = $state.raw<bigint | null>(null);
  gapsFrom = $state.raw<bigint | null>(null);
  /** Whether the alarms that stood are known. */
  alarmsKnown = $state(false);
  directs = $state(false);
  readonly stream: Stream;
  readonly clock = new PlaybackClock();
  private token: string | null;
  private steps: AlarmStep[] = [];
  private run: ShownRun | null = null;
  private heardMs = performance.now();
  /** The interval whose events are known or being read. */
  private loaded = "";
  private loading = Promise.resolve(false);
  private reading = 0;
  /** Events that were added while others are being read. */
  private late: Event[] | null = null;
  private jumping = Promise.resolve();
  /** Why the interval is not known. */
  private refusal: string | null = null;
  private waitMs = AGAIN_MS.least;
  /** When it is asked for again. */
  private dueMs = Infinity;

  constructor(
    state: PlaybackState,
    token: string | null,
    /** Takes what the subscriptions get. */
    message: (message: ServerMessage) => void,
    /** The session is over, with the reason. */
    private readonly over: (why: string) => void,
  ) {
    this.state = state;
    this.token = token ?? sessionStorage.getItem(KEY + state.id);
    this.directs = this.token !== null;
    if (token !== null) sessionStorage.setItem(KEY + state.id, token);
    this.clock.hear(state, performance.now());
    this.stream = overWebSocket(() => api.liveUrl(state.id), {
      message: (heard) => this.receive(heard, message),
      closed: () => void this.check(),
    });
  }

  start(): void {
    this.stream.start();
    void this.load();
  }

  end(): void {
    this.stream.end();
  }

  tick(): void {
    this.stream.tick();
    if (performance.now() >= this.dueMs) void this.load();
  }

  get alive(): boolean {
    return performance.now() - this.heardMs < DEAF_MS;
  }

  now(): bigint {
    return this.clock.now(performance.now());
  }

  /** An event that is added while its time is replayed. */
  added(event: Event): void {
    if (BigInt(event.time) >= BigInt(this.state.to)) return;
    this.late?.push(event);
    this.events = joined(this.events, [event]);
  }

  alarms(): Alarm[] {
    return alarmsAt(this.steps, this.clock.known);
  }

  /** The run that the interval belongs to. */
  clockRun(): ShownRun | null {
    return this.run;
  }

  /** A command of the director; answers whether it was done. */
  async command(what: api.PlaybackCommand): Promise<boolean> {
    try {
      this.hear(await api.commandPlayback(this.state.id, { ...what, director: this.token ?? "" }));
      this.problem = null;
      return true;
    } catch (e) {
      this.problem = told(e);
      // Somebody else took the direction.
      if (e instanceof api.ApiError && e.status === 403) this.forget();
      return false;
    }
  }

  /** Pauses or plays, from the beginning where the end was reached. */
  async toggle(): Promise<void> {
    for (const what of playOrPause(this.state)) if (!(await this.command(what))) return;
  }

  /** Takes the direction over; who had it is a viewer from then on. */
  async take(): Promise<void> {
    try {
      const answer = await api.takePlayback(this.state.id);
      this.token = answer.director;
      this.directs = true;
      sessionStorage.setItem(KEY + this.state.id, answer.director);
      this.problem = null;
    } catch (e) {
      this.problem = told(e);
    }
  }

  private forget(): void {
    this.token = null;
    this.directs = false;
    sessionStorage.removeItem(KEY + this.state.id);
  }

  private hear(state: PlaybackState): void {
    const before = this.state;
    this.state = state;
    this.clock.hear(state, performance.now());
    if (before.from === state.from && before.to === state.to) return;
    this.forgive();
    void this.load();
  }

  private receive(heard: ServerMessage, pass: (message: ServerMessage) => void): void {
    const ms = (this.heardMs = performance.now());
    if (heard.type === "hello" && heard.playback) this.hear(heard.playback);
    else if (heard.type === "heartbeat") {
      if ("playback" in heard) this.hear(heard.playback);
    } else if (heard.type === "event") this.problem = heard.text;
    else if (heard.type === "error" && heard.id === null) this.over(heard.message);
    else {
      if (heard.type === "update") this.clock.told(BigInt(heard.time), ms);
      pass(heard);
    }
  }

  /** The connection is gone: whether the session is, too. */
  private async check(): Promise<void> {
    try {
      await api.playback(this.state.id);
    } catch (e) {
      if (e instanceof api.ApiError && e.status === 404) this.over("the playback has ended");
    }
  }

  /** Jumps to the next event, or the one before, as seen from where the jumps that were asked for earlier lead. */
  jump(way: 1 | -1): Promise<void> {
    return (this.jumping = this.jumping.then(() => this.jumpNow(way)));
  }

  private async jumpNow(way: 1 | -1): Promise<void> {
    if (!(await this.load())) {
      if (this.refusal !== null) this.problem = this.refusal;
      return;
    }
    const found = eventBeside(this.events.map((e) => BigInt(e.time)), this.state, this.now(), way);
    if (found !== null) await this.command({ do: "seek", at: found.toString() });
  }

  private get interval(): string {
    return `${this.state.from} ${this.state.to}`;
  }

  /** Until it is answered whether events, gaps and alarms of the interval are known; those that cannot be read are asked for again. */
  async load(): Promise<boolean> {
    for (;;) {
      const what = this.interval;
      if (this.loaded !== what) {
        this.loaded = what;
        this.loading = this.read();
      }
      const loading = this.loading;
      const known = await loading;
      // Another interval may have been chosen meanwhile.
      if (this.interval === what && this.loading === loading) return known;
    }
  }

  private forgive(): void {
    if (this.problem === this.refusal) this.problem = null;
    this.refusal = null;
    this.waitMs = AGAIN_MS.least;
  }

  private async read(): Promise<boolean> {
    const number = ++this.reading;
    const late: Event[] = (this.late = []);
    const [from, to] = [BigInt(this.state.from), BigInt(this.state.to)];
    const since = from - EVENTS_BEFORE_NS;
    this.eventsFrom = this.gapsFrom = null;
    this.alarmsKnown = false;
    this.dueMs = Infinity;
    try {
      const patience = AbortSignal.timeout(PATIENCE_MS);
      const [events, gaps, steps, { runs }] = await Promise.all([
        api.events(since, EVENTS_MAX, to, patience), api.gaps(from, GAPS_MAX, undefined, patience, to),
        api.alarmSteps(to, patience), api.runs(patience),
      ]);
      if (number !== this.reading) return false;
      this.eventsFrom = eventsKnownFrom(events, EVENTS_MAX) ?? since;
      this.gapsFrom = knownFrom(gaps, GAPS_MAX) ?? from;
      this.alarmsKnown = steps.length < api.STEPS_MAX;
      [this.events, this.gaps, this.steps] = [joined(events.reverse(), late), gaps, steps];
      const run = runWithin(runs, from, to);
      this.run = run ? { name: run.name, countdown: countdownOf(run), clock: null } : null;
      this.late = null;
      this.forgive();
      return true;
    } catch (e) {
      if (number !== this.reading) return false;
      this.loaded = "";
      this.late = null;
      this.dueMs = performance.now() + this.waitMs;
      this.waitMs = Math.min(AGAIN_MS.most, 2 * this.waitMs);
      const before = this.refusal;
      this.refusal = `events and alarms of this time are not known: ${told(e)}`;
      // Once: who closed it knows.
      if (before === null || this.problem === before) this.problem = this.refusal;
      return false;
    }
  }
}
