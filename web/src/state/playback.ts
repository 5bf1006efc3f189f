// The clock of a playback as a screen needs it: where it is between two words of the server, and what can be jumped to.
import { eventKey } from "./lately";
import type { Event, PlaybackState } from "../connection/message";

/** Longest wall time that is gone on without a word of the server, ms. */
const AHEAD_MS = 400;

export const SPEEDS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

export class PlaybackClock {
  private at = 0n;
  private ms = 0;
  private speed = 0;
  private round = -1;
  private end = 0n;
  private shown = 0n;

  /** The server's word, heard at `ms` (monotonic). */
  hear(state: PlaybackState, ms: number): void {
    this.told(BigInt(state.at), ms);
    this.end = BigInt(state.to);
    this.speed = state.paused || state.ended || state.behind ? 0 : state.speed;
    if (state.round !== this.round || state.paused || state.ended) this.shown = this.at;
    this.round = state.round;
  }

  /** All up to `at` was played. */
  told(at: bigint, ms: number): void {
    this.at = at;
    this.ms = ms;
  }

  /** Up to here everything was told: ages count from it. */
  get known(): bigint {
    return this.at;
  }

  /** Where it is now; never back but for a jump. */
  now(ms: number): bigint {
    const ahead = Math.min(AHEAD_MS, Math.max(0, ms - this.ms)) * this.speed;
    let at = this.at + BigInt(Math.round(ahead * 1e6));
    if (at > this.end) at = this.end;
    if (at > this.shown) this.shown = at;
    return this.shown;
  }
}

/** The next instant in a list after `at`, or the last before it. */
export function jumpFrom(times: readonly bigint[], at: bigint, way: 1 | -1): bigint | null {
  let best: bigint | null = null;
  for (const time of times) {
    if (way === 1 ? time <= at : time >= at) continue;
    if (best === null || (way === 1 ? time < best : time > best)) best = time;
  }
  return best;
}

/** Events, newest first and each once, with others of which some may be among them. */
export function joined(events: readonly Event[], others: readonly Event[]): Event[] {
  const known = new Set(events.map(eventKey));
  const all = new Map([...others.filter((e) => !known.has(eventKey(e))), ...events].map((e) => [eventKey(e), e]));
  return [...all.values()].sort((a, b) => (a.time === b.time ? 0 : BigInt(b.time) > BigInt(a.time) ? 1 : -1));
}

/** The next speed of the scale. */
export function faster(speed: number, way: 1 | -1): number {
  const next = way === 1 ? SPEEDS.find((s) => s > speed * 1.001) : [...SPEEDS].reverse().find((s) => s < speed * 0.999);
  return next ?? speed;
}
