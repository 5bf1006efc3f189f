// How far back a list of gaps, or of events, goes.
import type { Event, Gap } from "../connection/message";

/** A full list holds the newest `most`: of what lies before its oldest gap it says nothing. Null: it holds all. */
export function knownFrom(gaps: Gap[], most: number): bigint | null {
  return oldestOf(gaps.map((gap) => gap.from_time), most);
}

/** The same of events. */
export function eventsKnownFrom(events: Event[], most: number): bigint | null {
  return oldestOf(events.map((event) => event.time), most);
}

function oldestOf(times: string[], most: number): bigint | null {
  if (times.length < most) return null;
  return times.map(BigInt).reduce((oldest, time) => (time < oldest ? time : oldest));
}
