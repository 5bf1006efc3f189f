// The clock of a playback as a screen needs it: where it is between two words of the server, and what can be jumped to.
import type { PlaybackCommand } from "./api";
import type { Event, PlaybackState } from "../connection/message";
import type { Countdown } from "../text/countdown";
import { notTime, parseTime } from "../text/time";
import { eventKey } from "./lately";

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

/** So long after an event, as a viewer sees it, going back still means the one before it. */
const JUST_AFTER_NS = 1_000_000_000;

/** Finds where a jump from `at` leads: to the next event of the interval, or the one before, or its beginning. */
export function eventBeside(times: readonly bigint[], state: PlaybackState, at: bigint, way: 1 | -1): bigint | null {
  const [from, to] = [BigInt(state.from), BigInt(state.to)];
  const within = times.filter((time) => time >= from && time < to);
  if (way === 1) return jumpFrom(within, at, 1);
  // While it runs, the event that was jumped to is behind by the time that one goes back again.
  const passed = isRunning(state) ? BigInt(Math.round(JUST_AFTER_NS * Math.max(1, state.speed))) : 0n;
  return jumpFrom(within, at - passed, -1) ?? from;
}

/** Whether a playback moves on by itself. */
export function isRunning(state: PlaybackState): boolean {
  return !state.paused && !state.ended;
}

/** The commands behind the play button, in order: pause, or play, from the beginning where the end was reached. */
export function playOrPause(state: PlaybackState): PlaybackCommand[] {
  if (state.ended) return [{ do: "seek", at: state.from }, { do: "play" }];
  return [{ do: isRunning(state) ? "pause" : "play" }];
}

/** The command of a key; `null`: it has none. */
export function commandOfKey(key: string, state: PlaybackState): PlaybackCommand | null {
  if (key === ".") return { do: "step", frames: 1 };
  if (key === "<" || key === ">") return { do: "speed", speed: faster(state.speed, key === ">" ? 1 : -1) };
  return null;
}

/** Speeds to choose from, the one that is set among them. */
export function speedsWith(speed: number): number[] {
  return SPEEDS.includes(speed) ? SPEEDS : [...SPEEDS, speed].sort((a, b) => a - b);
}

/** Reads the interval that an operator typed; returns why it is none, in words. */
export function intervalOf(from: string, to: string, now: bigint | null, run: Countdown | null): { from: bigint; to: bigint } | string {
  if (now === null) return "the time of the server is not known yet";
  const [a, b] = [parseTime(from, now, run), parseTime(to, now, run)];
  if (a === null || b === null) return notTime(a === null ? from : to, run);
  return a >= b ? "from must be before to" : { from: a, to: b };
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
