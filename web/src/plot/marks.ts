// What a plot shows beside its lines: gaps as shades, and events as upright lines with their names.
import type { Event } from "../connection/message";
import type { Shade } from "../state/feed";
import { secondsBetween } from "../text/time";
import { withoutOverlap } from "./ticks";

const TEXT_MAX = 28;
/** Between an event's line and its name, and between two names, px. */
const BESIDE_PX = 4;
const APART_PX = 6;

/** Joins the shades of all streams where they touch, so that two are not darker than one; oldest first. */
export function joinedShades(shades: readonly Shade[]): Shade[] {
  const out: Shade[] = [];
  for (const shade of [...shades].sort((a, b) => a.from - b.from)) {
    const last = out.at(-1);
    if (last && shade.from <= last.to) last.to = Math.max(last.to, shade.to);
    else out.push({ ...shade });
  }
  return out;
}

/** An event in sight, and where its line stands. */
export interface EventLine {
  event: Event;
  x: number;
}

/** Events between `from` and `to`, s from `origin`; `x`: where a time stands. */
export function eventLines(events: readonly Event[], origin: bigint, from: number, to: number, x: (s: number) => number): EventLine[] {
  return events.flatMap((event) => {
    const s = secondsBetween(origin, BigInt(event.time));
    return s < from || s > to ? [] : [{ event, x: x(s) }];
  });
}

/** The name of an event; it lies from `at` to `at + width`. */
export interface EventLabel {
  at: number;
  width: number;
  text: string;
}

/**
 * Names of events between two edges, newest first: right of the line, at its left where the right edge is too close.
 * Where two would touch, the older one gives way. `measure`: width of a text.
 */
export function eventLabels(lines: readonly EventLine[], left: number, right: number, measure: (text: string) => number, ratio: number): EventLabel[] {
  const labels = [...lines].sort((a, b) => b.x - a.x).map(({ event, x }) => {
    const text = event.text.length > TEXT_MAX ? `${event.text.slice(0, TEXT_MAX - 1)}…` : event.text;
    const width = measure(text);
    const fits = x + BESIDE_PX * ratio + width <= right;
    return { at: fits ? x + BESIDE_PX * ratio : x - BESIDE_PX * ratio - width, width, text };
  });
  return withoutOverlap(labels.filter((label) => label.at >= left), APART_PX * ratio);
}
