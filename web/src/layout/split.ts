// How panels share the screen: a tree of rows and columns with stacks of tabs at its leaves. Every change answers a
// new tree; places are shares of the whole, so that a panel that moves keeps its element and a window that grows needs
// no arithmetic.

/** Panels on one place, of which one is shown. */
export interface Stack {
  tabs: string[];
  shown: string;
}

/** Nodes side by side or above one another; sizes are shares and add up to 1. */
export interface Split {
  way: "row" | "column";
  children: Node[];
  sizes: number[];
}

export type Node = Stack | Split;
export type Side = "left" | "right" | "top" | "bottom" | "middle";
export type Direction = Exclude<Side, "middle">;

export interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Place extends Rect {
  stack: Stack;
}

/** The line between a split's child `index` and the next; `length` is the share of the whole that the split has. */
export interface Divider extends Rect {
  path: number[];
  index: number;
  way: Split["way"];
  length: number;
}

/** No child of a split gets smaller than this share of it by dragging. */
const LEAST_SHARE = 0.08;
/** Levels that a tree may have: what is deeper came from no hand. */
export const DEPTH_MAX = 12;
const WHOLE: Rect = { x: 0, y: 0, width: 1, height: 1 };

export const isSplit = (node: Node): node is Split => "way" in node;
export const stack = (...tabs: string[]): Stack => ({ tabs, shown: tabs[0]! });

/** Nodes in one row or column, as large as `sizes` says or equally. */
export function split(way: Split["way"], children: Node[], sizes: number[] = children.map(() => 1)): Node {
  return tidy({ way, children, sizes })!;
}

/** Without empty and needless levels, and with sizes that add up to 1; null when nothing is left. */
function tidy(node: Node): Node | null {
  if (!isSplit(node)) return node.tabs.length === 0 ? null : node;
  const children: Node[] = [];
  const sizes: number[] = [];
  node.children.forEach((child, i) => {
    const kept = tidy(child);
    const size = Math.max(0, node.sizes[i] ?? 0);
    if (kept === null) return;
    if (isSplit(kept) && kept.way === node.way) {
      children.push(...kept.children);
      sizes.push(...kept.sizes.map((s) => s * size));
    } else {
      children.push(kept);
      sizes.push(size);
    }
  });
  if (children.length < 2) return children[0] ?? null;
  const sum = sizes.reduce((a, b) => a + b, 0);
  return { way: node.way, children, sizes: sizes.map((s) => (sum > 0 ? s / sum : 1 / sizes.length)) };
}

/** Every panel of the tree, in the order of reading. */
export function panelsOf(node: Node | null): string[] {
  if (node === null) return [];
  return isSplit(node) ? node.children.flatMap(panelsOf) : node.tabs;
}

/** The stack that a panel is in. */
export function stackOf(node: Node | null, id: string): Stack | null {
  if (node === null) return null;
  if (!isSplit(node)) return node.tabs.includes(id) ? node : null;
  for (const child of node.children) {
    const found = stackOf(child, id);
    if (found) return found;
  }
  return null;
}

/** Each stack through `change`; a stack without tabs goes. */
function eachStack(node: Node, change: (stack: Stack) => Node): Node {
  return isSplit(node) ? { ...node, children: node.children.map((child) => eachStack(child, change)) } : change(node);
}

export function remove(root: Node | null, id: string): Node | null {
  if (root === null) return null;
  return tidy(eachStack(root, (s) => {
    if (!s.tabs.includes(id)) return s;
    const at = s.tabs.indexOf(id);
    const tabs = s.tabs.filter((t) => t !== id);
    return { tabs, shown: s.shown === id ? (tabs[Math.min(at, tabs.length - 1)] ?? "") : s.shown };
  }));
}

/** Shows a panel that stands behind another. */
export function show(root: Node | null, id: string): Node | null {
  return root && eachStack(root, (s) => (s.tabs.includes(id) && s.shown !== id ? { ...s, shown: id } : s));
}

/** Puts a panel at a side of the stack of `beside`, or of the whole; in the middle it becomes a tab. */
export function insert(root: Node | null, id: string, beside: string | null, side: Side): Node {
  if (root === null) return stack(id);
  const split = (node: Node): Node => {
    if (side === "middle") {
      if (isSplit(node)) return insert(root, id, largest(root), "middle");
      const at = beside === null ? node.tabs.length : node.tabs.indexOf(beside) + 1;
      return { tabs: [...node.tabs.slice(0, at), id, ...node.tabs.slice(at)], shown: id };
    }
    const first = side === "left" || side === "top";
    const children = first ? [stack(id), node] : [node, stack(id)];
    return { way: side === "left" || side === "right" ? "row" : "column", children, sizes: halves(node, first) };
  };
  if (beside === null) return tidy(split(root))!;
  return tidy(eachStack(root, (s) => (s.tabs.includes(beside) ? split(s) : s)))!;
}

/** The newcomer gets half of one panel's place, and an equal part beside several. */
function halves(node: Node, first: boolean): number[] {
  const many = isSplit(node) ? 1 / 3 : 1 / 2;
  return first ? [many, 1 - many] : [1 - many, many];
}

/** Moves a panel to a side of another's stack, or of the whole. */
export function move(root: Node, id: string, beside: string | null, side: Side): Node {
  const from = stackOf(root, id);
  const target = beside === null ? null : stackOf(root, beside);
  // Beside itself alone, or into the stack where it is: nothing changes.
  if (from === null || (target === from && (side === "middle" || from.tabs.length === 1))) return root;
  const anchor = target === from ? from.tabs.find((t) => t !== id)! : beside;
  return insert(remove(root, id), id, anchor, side);
}

/** Where the stacks are, as shares of the whole. */
export function places(node: Node | null, at: Rect = WHOLE): Place[] {
  if (node === null) return [];
  if (!isSplit(node)) return [{ ...at, stack: node }];
  return parts(node, at).flatMap((rect, i) => places(node.children[i]!, rect));
}

function parts(node: Split, at: Rect): Rect[] {
  let from = 0;
  return node.sizes.map((size) => {
    const rect = node.way === "row"
      ? { ...at, x: at.x + from * at.width, width: size * at.width }
      : { ...at, y: at.y + from * at.height, height: size * at.height };
    from += size;
    return rect;
  });
}

/** The lines between nodes, which can be dragged. */
export function dividers(node: Node | null, at: Rect = WHOLE, path: number[] = []): Divider[] {
  if (node === null || !isSplit(node)) return [];
  const rects = parts(node, at);
  const length = node.way === "row" ? at.width : at.height;
  return rects.flatMap((rect, i) => {
    const inner = dividers(node.children[i]!, rect, [...path, i]);
    if (i === rects.length - 1) return inner;
    const line = node.way === "row"
      ? { x: rect.x + rect.width, y: rect.y, width: 0, height: rect.height }
      : { x: rect.x, y: rect.y + rect.height, width: rect.width, height: 0 };
    return [...inner, { ...line, path, index: i, way: node.way, length }];
  });
}

/** Moves a divider by a share of its split: what one child gains the next loses. */
export function resize(root: Node, path: number[], index: number, by: number): Node {
  if (!isSplit(root)) return root;
  const [step, ...rest] = path;
  if (step !== undefined) {
    return { ...root, children: root.children.map((child, i) => (i === step ? resize(child, rest, index, by) : child)) };
  }
  const [a, b] = [root.sizes[index], root.sizes[index + 1]];
  if (a === undefined || b === undefined) return root;
  const least = Math.min(LEAST_SHARE, a, b);
  const moved = Math.max(least - a, Math.min(b - least, by));
  return { ...root, sizes: root.sizes.map((s, i) => (i === index ? s + moved : i === index + 1 ? s - moved : s)) };
}

/** The divider at a side of a panel's stack, the nearest level first: what the keyboard resizes. */
export function dividerAt(root: Node, id: string, way: Split["way"]): Divider | null {
  const place = places(root).find((p) => p.stack.tabs.includes(id));
  if (!place) return null;
  const near = (d: Divider) => way === "row"
    ? [place.x + place.width, place.x].some((x) => Math.abs(d.x - x) < 1e-6) && d.y <= place.y + 1e-6 && d.y + d.height >= place.y + place.height - 1e-6
    : [place.y + place.height, place.y].some((y) => Math.abs(d.y - y) < 1e-6) && d.x <= place.x + 1e-6 && d.x + d.width >= place.x + place.width - 1e-6;
  const found = dividers(root).filter((d) => d.way === way && near(d)).sort((a, b) => b.path.length - a.path.length);
  // The far side first: arrows then move the edge in their own direction.
  return found.find((d) => (way === "row" ? d.x > place.x + 1e-6 : d.y > place.y + 1e-6)) ?? found[0] ?? null;
}

/** The panel shown in the next place in a direction, the one with the longest common edge. */
export function neighbour(root: Node | null, id: string, to: Direction): string | null {
  const all = places(root);
  const from = all.find((p) => p.stack.tabs.includes(id));
  if (!from) return null;
  const touch = (p: Place): number => {
    const [edge, other] = {
      left: [from.x, p.x + p.width], right: [from.x + from.width, p.x],
      top: [from.y, p.y + p.height], bottom: [from.y + from.height, p.y],
    }[to] as [number, number];
    if (Math.abs(edge - other) > 1e-6) return 0;
    return to === "left" || to === "right"
      ? Math.min(from.y + from.height, p.y + p.height) - Math.max(from.y, p.y)
      : Math.min(from.x + from.width, p.x + p.width) - Math.max(from.x, p.x);
  };
  const best = all.filter((p) => p !== from).map((p) => [touch(p), p] as const).sort((a, b) => b[0] - a[0])[0];
  return best && best[0] > 1e-6 ? best[1].stack.shown : null;
}

/** The shown panel of the largest stack: a newcomer takes half of its place. */
export function largest(root: Node | null): string | null {
  return places(root).sort((a, b) => b.width * b.height - a.width * a.height)[0]?.stack.shown ?? null;
}

/** Panels above one another at most: with more than fit, the screen scrolls. */
export function storeys(node: Node | null): number {
  if (node === null) return 0;
  if (!isSplit(node)) return 1;
  const each = node.children.map(storeys);
  return node.way === "row" ? Math.max(...each) : each.reduce((a, b) => a + b, 0);
}

/** The tree of a stranger's text, with each of `ids` at most once and nothing else; throws with what is wrong. */
export function readTree(value: unknown, ids: Set<string>, depth = 0): Node | null {
  if (value === null) return null;
  if (depth > DEPTH_MAX) throw new Error(`panels nested more than ${DEPTH_MAX} deep`);
  const node = value as { tabs?: unknown; shown?: unknown; way?: unknown; children?: unknown; sizes?: unknown };
  if (typeof node !== "object") throw new Error(`a place of panels is ${JSON.stringify(value)}`);
  if (Array.isArray(node.tabs)) {
    const tabs = node.tabs.filter((t): t is string => typeof t === "string" && ids.delete(t));
    return tabs.length === 0 ? null : { tabs, shown: tabs.includes(String(node.shown)) ? String(node.shown) : tabs[0]! };
  }
  if ((node.way !== "row" && node.way !== "column") || !Array.isArray(node.children) || !Array.isArray(node.sizes)) {
    throw new Error("a place of panels has neither tabs nor a way, children and sizes");
  }
  const { way, sizes } = node;
  const children: Node[] = [];
  const kept: number[] = [];
  node.children.forEach((child: unknown, i) => {
    const read = readTree(child, ids, depth + 1);
    if (read === null) return;
    const size: unknown = sizes[i];
    children.push(read);
    kept.push(typeof size === "number" && size > 0 && Number.isFinite(size) ? size : 1);
  });
  return tidy({ way, children, sizes: kept });
}
