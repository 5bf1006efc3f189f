// One channel's states over time: named segments for the bars of a states panel.
import type { WireValue } from "../connection/message";
import { SLOTS } from "./series";

export interface Segment {
  /** First and last time this state was seen, s from the view's origin. */
  from: number;
  to: number;
  state: string;
  /** Something changed inside: the bar carries marks. */
  flicker: boolean;
  /** When, as closely as it is known; those that cannot be drawn apart are one. */
  marks: number[];
  /** Changes too close to one another to be drawn: it has no one state. */
  many: boolean;
}

/** Segments kept for one channel: as many as two spans can have, so that none in sight is missing; the oldest go first. */
export const MAX_SEGMENTS = 4 * SLOTS;

/** The words of a state; booleans are OFF and ON. */
export function stateName(value: WireValue): string | null {
  if (value === null || value === undefined) return null;
  if (typeof value === "boolean") return value ? "ON" : "OFF";
  return String(value);
}

/** What a stream brought between two times, s. */
interface Window {
  t0: number;
  t1: number;
  begin: string;
  end: string;
  flicker: boolean;
  broken: boolean;
}

export class Track {
  readonly segments: Segment[] = [];
  /** The window before, where it came late and ended in another state than the newest: one more like it is no accident. */
  private behind: Window | null = null;
  /** What was seen at later times than those that the source went back to. */
  private ahead: Segment[] = [];

  /** `spanS`: the longest span to be drawn; two segments that are together shorter than span/SLOTS become one. */
  constructor(readonly spanS: number) {}

  clear(): void {
    this.segments.length = 0;
    this.ahead = [];
    this.behind = null;
  }

  /**
   * A window [t0, t1] that began in `first` and ended in `last`. `flicker`: it had other values, too.
   * `broken`: frames are known missing before it, so the state does not reach back.
   */
  push(t0: number, t1: number, first: WireValue, last: WireValue, flicker: boolean, broken: boolean): void {
    const begin = stateName(first);
    const end = stateName(last);
    if (begin === null || end === null) return;
    const window = { t0, t1, begin, end, flicker, broken };
    const newest = this.segments.at(-1);
    if (newest && t1 < newest.to) this.passed(window, newest);
    else {
      this.behind = null;
      this.restore(t0, t1);
      this.follow(window);
    }
    if (this.segments.length > MAX_SEGMENTS) this.segments.splice(0, this.segments.length - MAX_SEGMENTS);
  }

  /** A window that reaches to the newest time or beyond. */
  private follow({ t0, t1, begin, end, flicker, broken }: Window): void {
    const newest = this.segments.at(-1);
    if (newest && t0 < newest.to) {
      if (flicker || (this.at(t0) ?? newest).state !== begin) this.mark(newest, t0);
      this.extend(t1, t1, end, false, false);
    } else {
      this.extend(t0, begin === end ? t1 : t0, begin, flicker, broken);
      if (begin !== end) this.extend(t1, t1, end, false, false);
    }
  }

  /**
   * A window of times that have passed. One alone is late and never what is now. A second one that goes on from it, with
   * nothing newer between them, is where the source is: its clock was set back, or a frame was stamped ahead.
   */
  private passed(window: Window, newest: Segment): void {
    const before = this.behind;
    const isOther = this.late(window) && window.end !== newest.state;
    this.behind = isOther ? window : null;
    if (!isOther || before === null || window.t0 < before.t0 || window.t1 <= before.t1) return;
    this.behind = null;
    this.cut(before.t0);
    this.follow(before);
    this.follow(window);
  }

  /** Puts aside what is known from `t` on. */
  private cut(t: number): void {
    const known = this.segments.at(-1)!.to;
    this.ahead = [...after(this.segments, t), ...after(this.ahead, known)].slice(-MAX_SEGMENTS);
    const kept = this.segments.filter((segment) => segment.from < t).map((segment) => within(segment, segment.from, Math.min(segment.to, t)));
    this.segments.splice(0, this.segments.length, ...kept);
  }

  /** What was put aside stands where the source leaps over most of it; where it went through those times again it is done with. */
  private restore(t0: number, t1: number): void {
    const last = this.ahead.at(-1);
    if (!last || t1 < last.to) return;
    const known = this.segments.at(-1)!.to;
    if (t0 >= last.to && t0 - known > known - this.ahead[0]!.from) this.segments.push(...after(this.ahead, known));
    this.ahead = [];
  }

  private extend(from: number, to: number, state: string, flicker: boolean, broken: boolean): void {
    const newest = this.segments.at(-1);
    if (newest && !broken) {
      const goesOn = newest.state === state && !newest.many;
      newest.to = Math.max(newest.to, goesOn ? to : from);
      if (goesOn) {
        if (flicker) this.mark(newest, from);
        return;
      }
    }
    this.add(this.segments.length, segmentOf(from, to, state, flicker));
  }

  private mark(segment: Segment, at: number): void {
    segment.flicker = true;
    const t = Math.max(at, segment.from);
    if (segment.marks.some((mark) => Math.abs(mark - t) < this.spanS / SLOTS)) return;
    segment.marks.push(t);
    if (segment.marks.length > MAX_SEGMENTS) segment.marks.shift();
  }

  /**
   * A window from before what was seen last: it fills a hole, or the bar is marked where it was otherwise. Answers whether
   * there was something already.
   */
  private late({ t0, t1, begin, end, flicker, broken }: Window): boolean {
    const touched = this.segments.filter((segment) => segment.from <= t1 && segment.to >= t0);
    if (touched.length > 0) {
      const isKnown = !flicker && this.at(t0)?.state === begin && this.at(t1)?.state === end;
      if (!isKnown) for (const segment of touched) this.mark(segment, t0);
      return true;
    }
    const i = this.segments.findIndex((segment) => segment.from > t0);
    const before = this.segments[i - 1];
    if (before && !broken && !before.many && before.state === begin && begin === end) {
      before.to = t1;
      if (flicker) this.mark(before, t0);
      return false;
    }
    if (begin !== end) this.add(i, segmentOf(t1, t1, end, false));
    this.add(i, segmentOf(t0, t1, begin, flicker));
    return false;
  }

  /** Puts a segment in its place, and joins what is around it where it cannot be told apart; the newest stays as it is. */
  private add(at: number, segment: Segment): void {
    this.segments.splice(at, 0, segment);
    for (let k = Math.min(at + 1, this.segments.length - 2); k >= Math.max(1, at - 2); k--) this.join(k);
  }

  private join(k: number): void {
    const [a, b] = [this.segments[k - 1]!, this.segments[k]!];
    const goesOn = a.many && b.many && b.from <= a.to;
    if (!goesOn && b.to - a.from >= this.spanS / SLOTS) return;
    a.many ||= b.many || a.state !== b.state;
    a.flicker ||= b.flicker;
    a.marks = a.many ? [] : [...a.marks, ...b.marks];
    a.to = Math.max(a.to, b.to);
    this.segments.splice(k, 1);
  }

  /** Forgets segments that ended before `t`. */
  expire(t: number): void {
    if (this.ahead.some((segment) => segment.to < t)) this.ahead = this.ahead.filter((segment) => segment.to >= t);
    let gone = 0;
    while (gone < this.segments.length - 1 && this.segments[gone]!.to < t) gone++;
    if (gone > 0) this.segments.splice(0, gone);
    const oldest = this.segments[0];
    if (!oldest || oldest.many || !oldest.marks.some((mark) => mark < t)) return;
    oldest.marks = oldest.marks.filter((mark) => mark >= t);
    oldest.flicker = oldest.marks.length > 0;
  }

  /** The segment at `t`, if any. */
  at(t: number): Segment | null {
    for (let i = this.segments.length - 1; i >= 0; i--) {
      const segment = this.segments[i]!;
      if (segment.from <= t) return segment;
    }
    return null;
  }
}

function segmentOf(from: number, to: number, state: string, flicker: boolean): Segment {
  return { from, to, state, flicker, marks: flicker ? [from] : [], many: false };
}

/** The part of a segment between two times. */
function within(segment: Segment, from: number, to: number): Segment {
  const marks = segment.marks.filter((mark) => mark >= from && (mark < to || from === to));
  return { ...segment, from, to, marks, flicker: segment.many ? segment.flicker : marks.length > 0 };
}

/** What of segments lies after `t`. */
function after(segments: readonly Segment[], t: number): Segment[] {
  return segments.filter((segment) => segment.to > t).map((segment) => within(segment, Math.max(segment.from, t), segment.to));
}

const RESTING =
  /^(off|false|0|closed|safe|idle|standby|disconnected|disabled|inactive|none|external|stopped|released|unlocked)$/i;

/** Colours of states that every plant has; what opens or is connected looks the same everywhere. */
const USUAL = new Map([["OPEN", 1], ["ON", 1], ["TRUE", 1], ["RUNNING", 1], ["CONNECTED", 3], ["ENABLED", 3], ["ARMED", 2], ["INTERNAL", 5]]);

/** Series colour (1 to 6) of a state's bar, or 0 for the neutral one of resting states; the same name, the same colour. */
export function stateColour(state: string): number {
  if (RESTING.test(state)) return 0;
  const usual = USUAL.get(state.toUpperCase());
  if (usual !== undefined) return usual;
  let hash = 2166136261;
  for (let i = 0; i < state.length; i++) hash = Math.imul(hash ^ state.charCodeAt(i), 16777619);
  return 1 + ((hash >>> 0) % 6);
}

/** How a bar is filled: a series colour, 0 for neutral, and how strongly, 0 the usual way. */
export interface Tint {
  colour: number;
  shade: number;
}

const COLOURS = 6;
const SHADES = 3;
/** States that one channel keeps tints for; those of more than so many have what their names give. */
const TINTS_MAX = 64;

/** The tints of each channel's states: no two of a channel look the same while there are tints, and each keeps its own. */
export class Tints {
  private readonly known = new Map<string, Map<string, Tint>>();

  of(channel: string, state: string): Tint {
    let states = this.known.get(channel);
    if (!states) this.known.set(channel, (states = new Map()));
    const tint = states.get(state) ?? free(stateColour(state), [...states.values()]);
    if (states.size < TINTS_MAX) states.set(state, tint);
    return tint;
  }
}

/** What a name gives if that is not taken, else the next colour, else a shade. */
function free(usual: number, taken: Tint[]): Tint {
  for (let shade = 0; shade < SHADES; shade++) {
    for (let i = 0; i < (usual === 0 ? 1 : COLOURS); i++) {
      const colour = usual === 0 ? 0 : 1 + ((usual - 1 + i) % COLOURS);
      if (!taken.some((t) => t.colour === colour && t.shade === shade)) return { colour, shade };
    }
  }
  return { colour: usual, shade: 0 };
}
