// What the server tells of beside values: alarms, events, gaps and limits. They are asked for when a connection begins,
// told of from then on, and asked for again where something was refused or lost on the way.
import { ordered, stepped, unshelved } from "./alarms";
import { knownFrom } from "./gaps";
import type { Alarm, Event, Gap, Limit, ServerMessage } from "./message";
import { NS_PER_S } from "./time";

type Step = Extract<ServerMessage, { type: "alarm" }>;

const MAX_EVENTS = 500;
const MAX_GAPS = 500;
/** What was refused or lost is asked for again so much later. */
const AGAIN_MS = 2000;
/** So far back they are asked for: events as far as most plots go, gaps an hour. */
const EVENTS_NS = 86_400n * NS_PER_S;
const GAPS_NS = 3600n * NS_PER_S;

/** How they are asked for. */
export interface Asks {
  events(from: bigint, limit: number): Promise<Event[]>;
  gaps(from: bigint, limit: number): Promise<Gap[]>;
  alarms(): Promise<Alarm[]>;
  limits(): Promise<Limit[]>;
}

/** What was told while the answers are on their way, and is newer than they are. */
interface Meanwhile {
  alarms: Step[];
  events: Event[];
  gaps: Gap[];
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
  private eventsAsked: bigint | null = null;
  private gapsAsked: bigint | null = null;
  private meanwhile: Meanwhile | null = null;
  /** When it is asked for again. */
  private dueMs = Infinity;

  /** `clock`: monotonic, ms. */
  constructor(private readonly asks: Asks, private readonly clock: () => number) {}

  /** From when on all events are there; null: that is not known yet. */
  get eventsFrom(): bigint | null {
    return this.events.length < MAX_EVENTS ? this.eventsAsked : BigInt(this.events.at(-1)!.time);
  }

  /** From when on all gaps are there; null: that is not known yet. */
  get gapsFrom(): bigint | null {
    return knownFrom(this.gaps, MAX_GAPS) ?? this.gapsAsked;
  }

  /** A connection begins, at the server's time `now`; answers what was refused, if anything was. */
  begin(now: bigint): Promise<unknown> {
    this.alarmsKnown = false;
    return this.load(now);
  }

  /** Something was lost on the way here. */
  lost(): void {
    this.alarmsKnown = false;
    this.again();
  }

  private again(): void {
    this.dueMs = Math.min(this.dueMs, this.clock() + AGAIN_MS);
  }

  get isDue(): boolean {
    return this.clock() >= this.dueMs;
  }

  event(event: Event): void {
    this.meanwhile?.events.push(event);
    this.addEvents([event]);
  }

  gap(gap: Gap): void {
    this.meanwhile?.gaps.push(gap);
    this.addGaps([gap]);
  }

  alarm(step: Step): void {
    this.meanwhile?.alarms.push(step);
    this.alarms = stepped(this.alarms, step);
  }

  /** Time passes: shelves end. */
  pass(now: bigint): void {
    this.alarms = unshelved(this.alarms, now);
  }

  /** Asks for all; answers what was refused, if anything was. */
  async load(now: bigint): Promise<unknown> {
    const [eventsFrom, gapsFrom] = [now - EVENTS_NS, now - GAPS_NS];
    const meanwhile: Meanwhile = { alarms: [], events: [], gaps: [] };
    this.meanwhile = meanwhile;
    this.dueMs = Infinity;
    const { asks } = this;
    const [events, gaps, alarms, limits] = await Promise.allSettled([
      asks.events(eventsFrom, MAX_EVENTS), asks.gaps(gapsFrom, MAX_GAPS), asks.alarms(), asks.limits(),
    ] as const);
    // Asked once more since: that answer is newer.
    if (this.meanwhile !== meanwhile) return null;
    this.meanwhile = null;
    if (limits.status === "fulfilled") this.limits = limits.value;
    if (alarms.status === "fulfilled") {
      this.alarms = meanwhile.alarms.reduce(stepped, ordered(alarms.value));
      // What was lost while they were on their way is asked for yet.
      this.alarmsKnown = this.dueMs === Infinity;
    }
    if (events.status === "fulfilled") {
      this.events = [];
      this.eventsAsked = eventsFrom;
      this.addEvents([...events.value, ...meanwhile.events]);
    }
    if (gaps.status === "fulfilled") {
      this.gaps = [];
      this.gapsAsked = gapsFrom;
      this.addGaps([...gaps.value, ...meanwhile.gaps]);
    }
    const refused = [events, gaps, alarms, limits].find((answer) => answer.status === "rejected");
    if (!refused) return null;
    this.again();
    return (refused as PromiseRejectedResult).reason;
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
