// Which of the channels that match a panel's patterns it draws: all where they are few, else one page of them. Only those
// are subscribed to: the history of thousands of channels that nobody sees would keep the page busy for seconds.
import type { Channel } from "../connection/message";
import { count } from "../text/number";
import { matching } from "../text/pattern";

/** Channels that one panel draws. */
export const MAX_CHANNELS = 24;

/** How names are put in order. */
export const byName = new Intl.Collator("en", { numeric: true });

export interface Choice {
  /** What to subscribe to: the patterns themselves, or the full names of one page of what they match. */
  wanted: string[];
  /** How many channels match. */
  total: number;
  /** How many of them come before those that are drawn. */
  from: number;
  /** Patterns that no channel matches. */
  unmatched: string[];
}

/** Returns the channels of a page, counted from 0, and the last one where there are fewer pages. */
export function choose(patterns: readonly string[], channels: Channel[], page: number): Choice {
  const unmatched: string[] = [];
  const seen = new Set<number>();
  const groups = patterns.map((pattern) => {
    const matched = matching(pattern, channels);
    if (matched.length === 0) unmatched.push(pattern);
    return matched.filter(({ id }) => !seen.has(id) && seen.add(id));
  });
  const total = seen.size;
  // Patterns themselves also say which channels come later.
  if (total <= MAX_CHANNELS) return { wanted: [...patterns], total, from: 0, unmatched };
  const from = Math.max(0, Math.min(page, pagesOf(total) - 1)) * MAX_CHANNELS;
  const names: string[] = [];
  let before = 0;
  for (const group of groups) {
    const [begin, end] = [from - before, from + MAX_CHANNELS - before].map((place) => Math.max(0, Math.min(group.length, place)));
    for (const { name } of firstByName(group, end!).slice(begin)) names.push(name);
    before += group.length;
  }
  return { wanted: names, total, from, unmatched };
}

/** How many pages so many channels have. */
export function pagesOf(total: number): number {
  return Math.max(1, Math.ceil(total / MAX_CHANNELS));
}

/**
 * Returns which of all matching channels a panel shows, in words; `null` if it shows all. `drawn`, `beyond`: those that
 * the server told of and that are shown, and not shown.
 */
export function shownWords({ total, from }: Choice, drawn: number, beyond: number): string | null {
  if (total <= MAX_CHANNELS && beyond === 0) return null;
  const all = Math.max(total, drawn + beyond);
  const last = total > MAX_CHANNELS ? Math.min(from + MAX_CHANNELS, total) : drawn;
  return `Channels ${count(from + 1)}–${count(last)} of ${count(all)}`;
}

/** The first of all by name, in that order. Comparing costs: the others are not put in order. */
function firstByName(channels: Channel[], count: number): Channel[] {
  const first: Channel[] = [];
  for (const channel of count === 0 ? [] : channels) {
    if (first.length === count && byName.compare(channel.name, first.at(-1)!.name) >= 0) continue;
    let [low, high] = [0, first.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (byName.compare(channel.name, first[middle]!.name) < 0) high = middle;
      else low = middle + 1;
    }
    first.splice(low, 0, channel);
    if (first.length > count) first.pop();
  }
  return first;
}
