// The channel tree as rows of equal height: tables, and below each its channels. Thousands of channels are
// filtered here and drawn only where they are in sight.
import type { Channel } from "../connection/message";

export interface TableRow {
  kind: "table";
  table: string;
  channels: number;
  open: boolean;
}

export interface ChannelRow {
  kind: "channel";
  channel: Channel;
  /** Channel name and tags, without the table above it. */
  label: string;
  tags: string;
}

export type TreeRow = TableRow | ChannelRow;

/** Tags in few characters: a value that is a number needs its key (`acu1`), a name does not (`imu`). */
export function tagWords(tags: Record<string, string>): string {
  return Object.entries(tags).map(([key, value]) => (/^[\d.]+$/.test(value) ? key + value : value)).join(".");
}

/**
 * Short names: as much of each as tells it from those beside it, of which the rest of the screen may show more. The channel's
 * own name, with its tags before it, with the end of its table, with more of it, or all.
 */
export function shortNames(channels: readonly Channel[], beside: readonly Channel[] = []): string[] {
  const twins = new Map<string, Map<number, Channel>>();
  for (const c of [...channels, ...beside]) {
    let group = twins.get(c.channel);
    if (!group) twins.set(c.channel, (group = new Map()));
    group.set(c.id, c);
  }
  const formOf = new Map<string, (c: Channel) => string>();
  for (const [name, group] of twins) formOf.set(name, apart([...group.values()]));
  return channels.map((c) => formOf.get(c.channel)!(c));
}

/** The shortest form of names that differ. */
function apart(twins: Channel[]): (c: Channel) => string {
  const join = (parts: string[]) => parts.filter((part) => part !== "").join(".");
  const tableEnd = (c: Channel, words: number) => c.table.split(".").slice(-words).join(".");
  const most = Math.max(...twins.map((c) => c.table.split(".").length));
  const forms: ((c: Channel) => string)[] = [(c) => c.channel];
  if (twins.every((c) => tagWords(c.tags) !== "")) forms.push((c) => join([tagWords(c.tags), c.channel]));
  for (let words = 1; words <= most; words++) {
    forms.push((c) => join([tableEnd(c, words), c.channel]), (c) => join([tableEnd(c, words), tagWords(c.tags), c.channel]));
  }
  return forms.find((form) => new Set(twins.map(form)).size === twins.length) ?? ((c) => c.name);
}

/** Channels by name, grouped by table, digits in numbers compared as numbers. */
export function sortChannels(channels: Channel[]): Channel[] {
  const order = new Intl.Collator("en", { numeric: true });
  return [...channels].sort(
    (a, b) => order.compare(a.table, b.table) || order.compare(tagWords(a.tags), tagWords(b.tags)) ||
      order.compare(a.channel, b.channel),
  );
}

/** Whether each word of the query occurs in the channel's name, unit, source or description. */
export function matches(channel: Channel, words: string[]): boolean {
  if (words.length === 0) return true;
  const text = `${channel.name} ${channel.unit} ${channel.source} ${channel.description}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

/** The words of a query, lower case. */
export function queryWords(query: string): string[] {
  return query.toLowerCase().split(/\s+/).filter((word) => word !== "");
}

/** Rows of the tree. While something is searched every table with a hit stands open. */
export function treeRows(sorted: Channel[], query: string, closed: ReadonlySet<string>): TreeRow[] {
  const words = queryWords(query);
  const rows: TreeRow[] = [];
  let head: TableRow | null = null;
  for (const channel of sorted) {
    if (!matches(channel, words)) continue;
    if (head === null || head.table !== channel.table) {
      head = {
        kind: "table", table: channel.table, channels: 0, open: words.length > 0 || !closed.has(channel.table),
      };
      rows.push(head);
    }
    head.channels++;
    if (head.open) {
      rows.push({ kind: "channel", channel, label: channel.channel, tags: tagWords(channel.tags) });
    }
  }
  return rows;
}

/** Where the first channel of the rows stands; -1 if there is none. */
export function firstMatch(rows: TreeRow[]): number {
  return rows.findIndex((row) => row.kind === "channel");
}

/** Which rows are in sight of a scrolled list, with a few beyond each edge. */
export function visible(
  scrollTop: number, heightPx: number, rowPx: number, rows: number, beyond = 4,
): { from: number; to: number } {
  const from = Math.max(0, Math.floor(scrollTop / rowPx) - beyond);
  const to = Math.min(rows, Math.ceil((scrollTop + heightPx) / rowPx) + beyond);
  return { from: Math.min(from, to), to };
}
