// A layout: panels and how they share the screen; its text, as files of the server hold it; and the layouts of older
// pages, which are read like new ones.
import type { Channel, ServerView } from "../connection/message";
import { hasStates } from "../connection/message";
import { MAX_PANELS, type Panel, panel, readPanel } from "./panel";
import { insert, largest, move, type Node, panelsOf, places, readTree, remove, type Side, split, stack } from "./split";
import { told } from "../text/told";

/** The version that this page writes; the server refuses newer ones. */
export const VERSION = 2;

export interface Layout {
  title: string;
  panels: Panel[];
  root: Node | null;
}

export const EMPTY: Layout = { title: "", panels: [], root: null };

/** Rows of panels, two in each, the one that is looked at first wider. */
function grid(panels: Panel[], share: (left: Panel, right: Panel) => number = () => 0.5): Node | null {
  const rows: Node[] = [];
  for (let i = 0; i < panels.length; i += 2) {
    const [left, right] = [panels[i]!, panels[i + 1]];
    const part = right ? share(left, right) : 1;
    rows.push(right ? split("row", [stack(left.id), stack(right.id)], [part, 1 - part]) : stack(left.id));
  }
  return rows.length === 0 ? null : split("column", rows);
}

/** States beside values want the room for their names. */
const byKind = (left: Panel, right: Panel) =>
  left.kind === "states" && right.kind === "now" ? 0.58 : left.kind === "now" && right.kind === "states" ? 0.42 : 0.5;

/** The server's prepared view as a layout. */
export function fromServer(view: ServerView): Layout {
  const panels = view.panels.slice(0, MAX_PANELS).map((p) =>
    panel(p.kind, p.title, p.channels, { span_s: p.span_s && p.span_s > 0 ? p.span_s : 60 }));
  return { title: view.title, panels, root: grid(panels, byKind) };
}

/** What the page picks by itself from the channels there are, those that are live first: a few lines, the states, the values. */
export function pick(all: Channel[], isLive: (channel: Channel) => boolean = () => true): Layout {
  const channels = [...all.filter(isLive), ...all.filter((c) => !isLive(c))];
  const lines = channels.filter((c) => !hasStates(c.type) && c.source !== "strongback" && !c.table.startsWith("strongback."));
  const states = channels.filter((c) => hasStates(c.type) && !c.table.startsWith("strongback."));
  const panels: Panel[] = [];
  const byUnit = new Map<string, Channel[]>();
  for (const c of lines) byUnit.set(c.unit, [...(byUnit.get(c.unit) ?? []), c]);
  const liveOf = (group: Channel[]) => group.filter(isLive).length;
  const groups = [...byUnit.entries()].sort((a, b) => liveOf(b[1]) - liveOf(a[1]) || b[1].length - a[1].length).slice(0, 2);
  for (const [unit, group] of groups) {
    const shown = group.slice(0, 4);
    const title = shown.length === 1 ? shown[0]!.channel : unit === "" ? shown[0]!.table : `${shown[0]!.table} · ${unit}`;
    panels.push(panel("plot", title, shown.map((c) => c.name)));
  }
  if (states.length > 0) panels.push(panel("states", "States", states.slice(0, 8).map((c) => c.name)));
  const now = lines.slice(0, 6);
  if (now.length > 0) panels.push(panel("now", "Now", now.map((c) => c.name)));
  return { title: "", panels, root: grid(panels, byKind) };
}

/** A layout with one panel more: at a side of another panel, else in the half of the largest. */
export function withPanel(layout: Layout, made: Panel, beside: string | null = null, side?: Side): Layout {
  const anchor = beside ?? largest(layout.root);
  const place = places(layout.root).find((p) => anchor !== null && p.stack.tabs.includes(anchor));
  // Screens are wide: a panel is divided the way that leaves both halves closest to two by one.
  const free: Side = place && place.width * 1.3 >= place.height ? "right" : "bottom";
  return { ...layout, panels: [...layout.panels, made], root: insert(layout.root, made.id, anchor, side ?? free) };
}

export function withoutPanel(layout: Layout, id: string): Layout {
  return { ...layout, panels: layout.panels.filter((p) => p.id !== id), root: remove(layout.root, id) };
}

export function withMoved(layout: Layout, id: string, beside: string | null, side: Side): Layout {
  return layout.root === null ? layout : { ...layout, root: move(layout.root, id, beside, side) };
}

/** The text that a file of the server holds: ids are places in the list of panels, so that equal layouts are equal texts. */
export function freeze(layout: Layout): string {
  const order = panelsOf(layout.root);
  const panels = order.map((id) => layout.panels.find((p) => p.id === id)!);
  const name = (id: string) => `p${order.indexOf(id) + 1}`;
  const tree = (node: Node | null): unknown =>
    node === null ? null
      : "way" in node ? { way: node.way, sizes: node.sizes.map((s) => Number(s.toFixed(4))), children: node.children.map(tree) }
        : { tabs: node.tabs.map(name), shown: name(node.shown) };
  const text = { version: VERSION, title: layout.title, root: tree(layout.root), panels: panels.map((p) => bare(p, name(p.id))) };
  return JSON.stringify(text, null, 1);
}

/** A panel without what is as usual. */
function bare(p: Panel, id: string): object {
  const { kind, title, channels, span_s, axes, ends, scales, band, decimals, text } = p;
  return {
    id, kind, title, channels, span_s, ...(Object.keys(axes).length > 0 ? { axes } : {}),
    ...(Object.keys(ends).length > 0 ? { ends } : {}), ...(Object.keys(scales).length > 0 ? { scales } : {}),
    ...(band ? {} : { band }), ...(decimals === null ? {} : { decimals }), ...(text === "" ? {} : { text }),
  };
}

/** A layout of this version or an older one; throws with what is wrong, in words for an operator. */
export function thaw(text: string): Layout {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (e) {
    throw new Error(`no layout: ${told(e)}`);
  }
  if (typeof value !== "object" || value === null) throw new Error("no layout: it is no object");
  const layout = value as { version?: unknown; v?: unknown; title?: unknown; panels?: unknown; root?: unknown };
  const version = layout.version ?? layout.v;
  if (typeof version !== "number") throw new Error("no layout: it has no version");
  if (version > VERSION) throw new Error(`version ${version} of layouts is newer than this page, which knows those up to ${VERSION}`);
  if (!Array.isArray(layout.panels)) throw new Error("no layout: it has no panels");
  if (layout.panels.length > MAX_PANELS) throw new Error(`a layout has at most ${MAX_PANELS} panels`);
  const title = String(layout.title ?? "").slice(0, 200);
  if (version < 2) return migrate(title, layout.panels);
  const ids = new Map<string, string>();
  const panels = layout.panels.map((p: unknown) => {
    const read = readPanel(p);
    const id = String((p as { id?: unknown }).id);
    if (!ids.has(id)) ids.set(id, read.id);
    return read;
  });
  const named = readTree(layout.root ?? null, new Set(ids.keys()));
  let root = named && renamed(named, ids);
  // A panel without a place, or with the id of another (a file edited by hand), gets one: none is lost in silence.
  const placed = new Set(panelsOf(root));
  for (const { id } of panels) if (!placed.has(id)) root = insert(root, id, largest(root), "right");
  return { title, panels, root };
}

function renamed(node: Node, ids: Map<string, string>): Node {
  if ("way" in node) return { ...node, children: node.children.map((child) => renamed(child, ids)) };
  return { tabs: node.tabs.map((t) => ids.get(t)!), shown: ids.get(node.shown)! };
}

/** Version 1: panels one after the other on a grid of twelve columns, with width and height in its cells. */
function migrate(title: string, old: unknown[]): Layout {
  const rows: { nodes: Node[]; widths: number[]; height: number }[] = [];
  let free = 0;
  const panels = old.map((value) => {
    const read = readPanel(value);
    const { width, height } = value as { width?: unknown; height?: unknown };
    const twelfths = Math.min(12, Math.max(1, Math.round(Number(width)) || 6));
    if (twelfths > free) {
      rows.push({ nodes: [], widths: [], height: 1 });
      free = 12;
    }
    const row = rows.at(-1)!;
    row.nodes.push(stack(read.id));
    row.widths.push(twelfths);
    row.height = Math.max(row.height, Math.min(4, Math.round(Number(height)) || 1));
    free -= twelfths;
    return read;
  });
  const root = rows.length === 0 ? null
    : split("column", rows.map((row) => split("row", row.nodes, row.widths)), rows.map((row) => row.height));
  return { title, panels, root };
}
