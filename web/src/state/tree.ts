// The channel tree as rows of equal height: tables, and below each its channels. Thousands of channels are
// filtered here and drawn only where they are in sight.
import type { Channel } from "../connection/message";

/** What the server writes of itself: `strongback.clocks`, `strongback.events` and so on. */
const INTERNAL = "strongback.";

export interface TableRow {
  kind: "table";
  /** What a click on it turns: opens where it is closed, and closes where it is open. */
  key: string;
  table: string;
  /** Whether it stands within the group of the server's own tables. */
  inner: boolean;
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

/** Whether a table is one of the server's own. */
export function isInternal(table: string): boolean {
  return table.startsWith(INTERNAL);
}

/** A channel's name with its table and tags, in the words of short names. */
export function wholeName({ table, tags, channel }: Channel): string {
  return [table, tagWords(tags), channel].filter((part) => part !== "").join(".");
}

/** The tags that tell channels of the same table and name apart; with their keys where the values alone do not. */
interface Telling {
  keys: string[];
  withKeys: boolean;
}

/** What tells each channel of a catalog from its twins, those of the same table and name: looked for once. */
export class Twins {
  private readonly groups = new Map<string, Telling>();

  constructor(channels: readonly Channel[]) {
    const first = new Map<string, Channel>();
    const several = new Map<string, Channel[]>();
    for (const c of channels) {
      const key = twinKey(c);
      const group = several.get(key);
      const before = first.get(key);
      if (group) group.push(c);
      else if (before) several.set(key, [before, c]);
      else first.set(key, c);
    }
    for (const [key, group] of several) this.groups.set(key, tellingOf(group));
  }

  /** Whether there are others of its table and name. */
  has(channel: Channel): boolean {
    return this.groups.has(twinKey(channel));
  }

  /** The tags of a channel that tell it from those; empty where there are none. */
  words(channel: Channel): string {
    const group = this.groups.get(twinKey(channel));
    return group ? tellingWords(channel, group) : "";
  }
}

const NO_TWINS = new Twins([]);

const twinKey = (c: Channel) => `${c.table}\n${c.channel}`;

/** The tags in which the channels of a group differ. */
function tellingOf(group: Channel[]): Telling {
  const keys = new Set(group.flatMap((c) => Object.keys(c.tags)));
  const one = group[0]!.tags;
  const telling = { keys: [...keys].filter((key) => group.some((c) => c.tags[key] !== one[key])), withKeys: false };
  const isClear = new Set(group.map((c) => tellingWords(c, telling))).size === group.length;
  return { ...telling, withKeys: !isClear };
}

function tellingWords({ tags }: Channel, { keys, withKeys }: Telling): string {
  const known = keys.filter((key) => tags[key] !== undefined);
  if (withKeys) return known.map((key) => `${key}=${tags[key]}`).join(".");
  return tagWords(Object.fromEntries(known.map((key) => [key, tags[key]!])));
}

/**
 * Short names: as much of each as tells it from those beside it, of which the rest of the screen may show more, and
 * from its twins in the catalog. The channel's own name, with its tags before it, with the end of its table, with more
 * of it, or all.
 */
export function shortNames(channels: readonly Channel[], beside: readonly Channel[] = [], known: Twins = NO_TWINS): string[] {
  const twins = new Map<string, Map<number, Channel>>();
  for (const c of [...channels, ...beside]) {
    let group = twins.get(c.channel);
    if (!group) twins.set(c.channel, (group = new Map()));
    group.set(c.id, c);
  }
  const formOf = new Map<string, (c: Channel) => string>();
  for (const [name, group] of twins) formOf.set(name, apart([...group.values()], known));
  return channels.map((c) => formOf.get(c.channel)!(c));
}

/** The shortest form of names that differ, and that say of which twin in the catalog each is. */
function apart(twins: Channel[], known: Twins): (c: Channel) => string {
  const join = (parts: string[]) => parts.filter((part) => part !== "").join(".");
  const tableEnd = (c: Channel, words: number) => c.table.split(".").slice(-words).join(".");
  const most = Math.max(...twins.map((c) => c.table.split(".").length));
  const forms: ((c: Channel) => string)[] = [];
  if (twins.some((c) => known.has(c))) {
    if (twins.every((c) => known.words(c) !== "")) forms.push((c) => join([known.words(c), c.channel]));
    for (let words = 1; words <= most; words++) forms.push((c) => join([tableEnd(c, words), known.words(c), c.channel]));
    return differing(forms, twins);
  }
  forms.push((c) => c.channel);
  if (twins.every((c) => tagWords(c.tags) !== "")) forms.push((c) => join([tagWords(c.tags), c.channel]));
  for (let words = 1; words <= most; words++) {
    forms.push((c) => join([tableEnd(c, words), c.channel]), (c) => join([tableEnd(c, words), tagWords(c.tags), c.channel]));
  }
  return differing(forms, twins);
}

/** The first form in which all names differ; else the whole names. */
function differing(forms: ((c: Channel) => string)[], twins: Channel[]): (c: Channel) => string {
  return forms.find((form) => new Set(twins.map(form)).size === twins.length) ?? ((c) => c.name);
}

/** Channels by name, grouped by table, digits in numbers compared as numbers; those of the server's own tables last. */
export function sortChannels(channels: Channel[]): Channel[] {
  const order = new Intl.Collator("en", { numeric: true });
  return [...channels].sort(
    (a, b) => Number(isInternal(a.table)) - Number(isInternal(b.table)) || order.compare(a.table, b.table) ||
      order.compare(tagWords(a.tags), tagWords(b.tags)) ||
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

/**
 * Rows of the tree. Tables stand open, the server's own in one group that stands closed, at the end; `turned` has the
 * keys of what stands otherwise by a click. While something is searched every table with a hit stands open.
 */
export function treeRows(sorted: Channel[], query: string, turned: ReadonlySet<string>): TreeRow[] {
  const words = queryWords(query);
  const isSearch = words.length > 0;
  const rows: TreeRow[] = [];
  let group: TableRow | null = null;
  let head: TableRow | null = null;
  for (const channel of sorted) {
    if (!matches(channel, words)) continue;
    const { table } = channel;
    const inner = isInternal(table);
    if (inner) {
      if (group === null) {
        // No table has a name that ends with a dot: the group is no table's twin.
        const open = isSearch || turned.has(INTERNAL);
        rows.push((group = { kind: "table", key: INTERNAL, table: INTERNAL.slice(0, -1), inner: false, channels: 0, open }));
      }
      group.channels++;
      if (!group.open) continue;
    }
    if (head === null || head.table !== table) {
      head = { kind: "table", key: table, table, inner, channels: 0, open: isSearch || !turned.has(table) };
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

/** The row after so many steps from the active one. From none, -1, the first step is onto the first channel. */
export function stepped(rows: TreeRow[], active: number, by: number): number {
  const begin = Math.max(0, firstMatch(rows));
  const next = active < 0 ? begin + Math.max(0, by - 1) : active + by;
  return Math.max(0, Math.min(rows.length - 1, next));
}

/** Which rows are in sight of a scrolled list, with a few beyond each edge. */
export function visible(
  scrollTop: number, heightPx: number, rowPx: number, rows: number, beyond = 4,
): { from: number; to: number } {
  const from = Math.max(0, Math.floor(scrollTop / rowPx) - beyond);
  const to = Math.min(rows, Math.ceil((scrollTop + heightPx) / rowPx) + beyond);
  return { from: Math.min(from, to), to };
}
