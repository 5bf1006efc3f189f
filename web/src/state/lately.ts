// What the server tells of beside values: alarms, events, gaps and limits. They are asked for when a connection begins,
// told of from then on, and asked for again where something was refused or lost on the way. Each answer is taken as it
// comes: alarms wait for no list of gaps.
import { ordered, stepped, unshelved } from "./alarms";
import { eventsKnownFrom, knownFrom } from "./gaps";
import type { Alarm, Event, Gap, Limit, ServerMessage } from "../connection/message";
import { NS_PER_S } from "../text/time";

type Step = Extract<ServerMessage, { type: "alarm" }>;

const MAX_EVENTS = 500;
const MAX_GAPS = 500;
/** What was refused or lost is asked for again so much later. */
const AGAIN_MS = 2000;
/** So far back they are asked for: events as far as most plots go, gaps an hour. */
const EVENTS_NS = 86_400n * NS_PER_S;
const GAPS_NS = 3600n * NS_PER_S;

/** What is not answered for so long is asked for again. */
const PATIENCE_MS = 10_000;

/** How they are asked for. */
export interface Asks {
  events(from: bigint, limit: number, to: undefined, signal: AbortSignal): Promise<Event[]>;
  gaps(from: bigint, limit: number, of: undefined, signal: AbortSignal): Promise<Gap[]>;
  alarms(signal: AbortSignal): Promise<Alarm[]>;
  limits(signal: AbortSignal): Promise<Limit[]>;
}

/** One thing that is asked for, again where it was refused or is no longer whole. */
class Question<Answer, Told = never> {
  /** When it is asked for again, ms. */
  private dueMs = Infinity;
  /** What was told since it was asked for, and is newer than the answer; null: no answer is on its way. */
  private meanwhile: Told[] | null = null;

  constructor(
    private readonly ends: { clock(): number; patience(): AbortSignal; shown(): void },
    private readonly send: (now: bigint, signal: AbortSignal) => Promise<Answer>,
    /** `isWhole`: nothing was lost while it was on its way. */
    private readonly take: (answer: Answer, meanwhile: Told[], isWhole: boolean) => void,
  ) {}

  told(one: Told): void {
    this.meanwhile?.push(one);
  }

  again(): void {
    this.dueMs = Math.min(this.dueMs, this.ends.clock() + AGAIN_MS);
  }

  get isDue(): boolean {
    return this.meanwhile === null && this.ends.clock() >= this.dueMs;
  }

  /** Answers why it was refused, or null. */
  async ask(now: bigint): Promise<unknown> {
    const meanwhile: Told[] = (this.meanwhile = []);
    this.dueMs = Infinity;
    try {
      const answer = await this.send(now, this.ends.patience());
      // Asked once more since: that answer is newer.
      if (this.meanwhile !== meanwhile) return null;
      this.take(answer, meanwhile, this.dueMs === Infinity);
    } catch (e) {
      if (this.meanwhile !== meanwhile) return null;
      this.meanwhile = null;
      this.again();
      return e;
    }
    this.meanwhile = null;
    this.ends.shown();
    return null;
  }
}

export class Lately {
  /** Those that are not over, what nobody knows of first. */
  alarms: Alarm[] = [];
  /** Whether those are all of them, as they are now. */
  alarmsKnown = false;
  /** The newest first. */
  events: Event[] = [];
  gaps: Gap[] = [];
  limits: Limit[] = [];
  /** From when on they were asked for, the earliest of all times. */
  private eventsSince: bigint | null = null;
  private gapsSince: bigint | null = null;
  /** Whether all of those are there; not while something may not have been told. */
  private eventsWhole = false;
  private gapsWhole = false;
  private readonly questions: { events: Question<Event[], Event>; gaps: Question<Gap[], Gap>; alarms: Question<Alarm[], Step>; limits: Question<Limit[]> };

  /** `clock`: monotonic, ms. `shown`: an answer is there. */
  constructor(
    asks: Asks, clock: () => number, shown: () => void = () => {}, patience: () => AbortSignal = () => AbortSignal.timeout(PATIENCE_MS),
  ) {
    const ends = { clock, shown, patience };
    const earlier = (known: bigint | null, from: bigint) => (known !== null && known < from ? known : from);
    this.questions = {
      events: new Question(ends, (now, signal) => {
        this.eventsSince = earlier(this.eventsSince, now - EVENTS_NS);
        return asks.events(this.eventsSince, MAX_EVENTS, undefined, signal);
      }, (events, meanwhile, isWhole) => {
        this.events = [];
        this.addEvents([...events, ...meanwhile]);
        this.eventsWhole = isWhole;
      }),
      gaps: new Question(ends, (now, signal) => {
        this.gapsSince = earlier(this.gapsSince, now - GAPS_NS);
        return asks.gaps(this.gapsSince, MAX_GAPS, undefined, signal);
      }, (gaps, meanwhile, isWhole) => {
        this.gaps = [];
        this.addGaps([...gaps, ...meanwhile]);
        this.gapsWhole = isWhole;
      }),
      alarms: new Question(ends, (_, signal) => asks.alarms(signal), (alarms, meanwhile, isWhole) => {
        this.alarms = meanwhile.reduce(stepped, ordered(alarms));
        this.alarmsKnown = isWhole;
      }),
      limits: new Question(ends, (_, signal) => asks.limits(signal), (limits) => (this.limits = limits)),
    };
  }

  /** From when on all events are there; null: that is not known. */
  get eventsFrom(): bigint | null {
    return this.eventsWhole ? (eventsKnownFrom(this.events, MAX_EVENTS) ?? this.eventsSince) : null;
  }

  /** From when on all gaps are there; null: that is not known. */
  get gapsFrom(): bigint | null {
    return this.gapsWhole ? (knownFrom(this.gaps, MAX_GAPS) ?? this.gapsSince) : null;
  }

  /** A connection begins, at the server's time `now`; answers what was refused, if anything was. */
  begin(now: bigint): Promise<unknown> {
    this.doubt();
    return this.load(now);
  }

  /** Something was lost on the way here. */
  lost(): void {
    this.doubt();
    const { events, gaps, alarms } = this.questions;
    for (const question of [events, gaps, alarms]) question.again();
  }

  private doubt(): void {
    this.alarmsKnown = this.eventsWhole = this.gapsWhole = false;
  }

  get isDue(): boolean {
    return Object.values(this.questions).some((question) => question.isDue);
  }

  event(event: Event): void {
    this.questions.events.told(event);
    this.addEvents([event]);
  }

  gap(gap: Gap): void {
    this.questions.gaps.told(gap);
    this.addGaps([gap]);
  }

  alarm(step: Step): void {
    this.questions.alarms.told(step);
    this.alarms = stepped(this.alarms, step);
  }

  /** Time passes: shelves end. */
  pass(now: bigint): void {
    this.alarms = unshelved(this.alarms, now);
  }

  /** Asks for all; answers what was refused, if anything was. */
  load(now: bigint): Promise<unknown> {
    return this.ask(now, () => true);
  }

  /** Asks for what was refused or lost. */
  loadDue(now: bigint): Promise<unknown> {
    return this.ask(now, (question) => question.isDue);
  }

  private async ask(now: bigint, wanted: (question: { readonly isDue: boolean }) => boolean): Promise<unknown> {
    const refused = await Promise.all(Object.values(this.questions).filter(wanted).map((question) => question.ask(now)));
    return refused.find((why) => why !== null) ?? null;
  }

  private addEvents(events: Event[]): void {
    const all = new Map([...this.events, ...events].map((event) => [eventKey(event), event]));
    this.events = [...all.values()].sort((a, b) => later(a.time, b.time)).slice(0, MAX_EVENTS);
  }

  private addGaps(gaps: Gap[]): void {
    const all = new Map([...this.gaps, ...gaps].map((gap) => [String(gap.id), gap]));
    this.gaps = [...all.values()].sort((a, b) => later(a.from_time, b.from_time)).slice(0, MAX_GAPS);
  }
}

/** What tells one event from another. */
export function eventKey({ time, level, source, text }: Event): string {
  return JSON.stringify([time, level, source, text]);
}

/** The later one first; what is equal stays as it is. */
function later(a: string, b: string): number {
  const [x, y] = [BigInt(a), BigInt(b)];
  return x === y ? 0 : y > x ? 1 : -1;
}
