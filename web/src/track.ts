// One channel's states over time: named segments for the bars of a states panel.
import type { WireValue } from "./message";

export interface Segment {
  /** First and last time this state was seen, s from the view's origin. */
  from: number;
  to: number;
  state: string;
  /** Something changed and came back inside: the bar carries a mark. */
  flicker: boolean;
}

/** Segments kept for one channel; the oldest go first. */
export const MAX_SEGMENTS = 500;

/** The words of a state; booleans are OFF and ON. */
export function stateName(value: WireValue): string | null {
  if (value === null || value === undefined) return null;
  if (typeof value === "boolean") return value ? "ON" : "OFF";
  return String(value);
}

export class Track {
  readonly segments: Segment[] = [];

  clear(): void {
    this.segments.length = 0;
  }

  /**
   * A window [t0, t1] that began in `first` and ended in `last`. `flicker`: its extremes differ from both.
   * `broken`: frames are known missing before it, so the state does not reach back.
   */
  push(t0: number, t1: number, first: WireValue, last: WireValue, flicker: boolean, broken: boolean): void {
    const begin = stateName(first);
    const end = stateName(last);
    if (begin === null || end === null) return;
    this.extend(t0, begin === end ? t1 : t0, begin, flicker && begin === end, broken);
    if (begin !== end) this.extend(t1, t1, end, false, false);
    if (this.segments.length > MAX_SEGMENTS) this.segments.splice(0, this.segments.length - MAX_SEGMENTS);
  }

  private extend(from: number, to: number, state: string, flicker: boolean, broken: boolean): void {
    const newest = this.segments.at(-1);
    if (newest && from < newest.from) return;
    if (newest && !broken) {
      newest.to = Math.max(newest.to, newest.state === state ? to : from);
      if (newest.state === state) {
        newest.flicker ||= flicker;
        return;
      }
    }
    this.segments.push({ from, to, state, flicker });
  }

  /** Forgets segments that ended before `t`. */
  expire(t: number): void {
    let gone = 0;
    while (gone < this.segments.length - 1 && this.segments[gone]!.to < t) gone++;
    if (gone > 0) this.segments.splice(0, gone);
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
