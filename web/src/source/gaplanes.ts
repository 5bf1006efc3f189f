// Gaps of one source on a time line: a lane for each stream, and marks that never lie on one another.
import { count } from "../text/number";
import type { Gap } from "../connection/message";

export interface GapMark {
  /** Share of the line, 0 to 1 from the left. */
  left: number;
  right: number;
  /** Of several gaps in one mark, the gravest. */
  cause: string;
  /** Whether frames are still missing. */
  open: boolean;
  fromNs: bigint;
  toNs: bigint;
  gaps: number;
  words: string;
  /** Of its first gap. */
  key: string;
}

export interface GapLane {
  name: string;
  marks: GapMark[];
  /** Frames still missing. */
  missing: bigint;
}

/** Causes, gravest first: frames that were here and are lost, then those that never came, then what harms nothing. */
const GRAVITY = ["damaged", "not recorded", "torn", "kernel", "sequence", "silence", "refused", "restart", "filled"];

/** Class of a cause's colour and pattern; a cause that the page does not know is a grave one. */
export function causeClass(cause: string): string {
  if (cause === "sequence") return "sequence";
  if (cause === "kernel") return "kernel";
  if (cause === "silence") return "silence";
  if (cause === "restart" || cause === "refused" || cause === "filled") return "harmless";
  return "store";
}

const gravity = (cause: string) => {
  const at = GRAVITY.indexOf(cause);
  return at === -1 ? GRAVITY.indexOf("sequence") : at;
};

/** Gaps of a source from lists of all, each gap once. */
export function gapsOf(source: string, lists: Gap[][]): Gap[] {
  const byId = new Map<string, Gap>();
  // A later list knows better how much of a gap was filled since.
  for (const list of lists) for (const gap of list) if (gap.source === source) byId.set(String(gap.id), gap);
  return [...byId.values()];
}

/**
 * Lanes in the order of their names, at most `mostLanes`, those with the most frames missing; the last stands for
 * all others. A mark is at least `leastWidth` (share of the line) wide, and gaps that would touch in it are one mark.
 */
export function gapLanes(gaps: Gap[], fromNs: bigint, toNs: bigint, leastWidth: number, mostLanes: number): GapLane[] {
  const seen = gaps.filter((g) => BigInt(g.to_time) >= fromNs && BigInt(g.from_time) < toNs);
  const byName = new Map<string, Gap[]>();
  for (const gap of seen) {
    const name = gap.stream_name || "the whole source";
    const list = byName.get(name);
    if (list) list.push(gap);
    else byName.set(name, [gap]);
  }
  const order = new Intl.Collator("en", { numeric: true });
  let names = [...byName.keys()];
  let others: Gap[] = [];
  let left = 0;
  if (names.length > mostLanes) {
    const weight = new Map(names.map((name) => [name, missing(byName.get(name)!)]));
    names.sort((a, b) => (weight.get(b)! > weight.get(a)! ? 1 : weight.get(b)! < weight.get(a)! ? -1 : order.compare(a, b)));
    others = names.slice(mostLanes - 1).flatMap((name) => byName.get(name)!);
    left = names.length - (mostLanes - 1);
    names = names.slice(0, mostLanes - 1);
  }
  const lane = (name: string, of: Gap[]): GapLane => ({
    name, missing: missing(of), marks: marks(of, fromNs, toNs, leastWidth),
  });
  const lanes = names.sort(order.compare).map((name) => lane(name, byName.get(name)!));
  if (left > 0) lanes.push(lane(`${left} other streams`, others));
  return lanes;
}

function missing(gaps: Gap[]): bigint {
  return gaps.reduce((sum, g) => sum + BigInt(g.open), 0n);
}

function marks(gaps: Gap[], fromNs: bigint, toNs: bigint, leastWidth: number): GapMark[] {
  const span = Number(toNs - fromNs);
  const sorted = [...gaps].sort((a, b) => (BigInt(a.from_time) < BigInt(b.from_time) ? -1 : 1));
  const groups: { left: number; right: number; gaps: Gap[] }[] = [];
  for (const gap of sorted) {
    let left = Math.max(0, Number(BigInt(gap.from_time) - fromNs) / span);
    const right = Math.min(1, Math.max(left + leastWidth, Number(BigInt(gap.to_time) - fromNs) / span));
    // At the right edge there is no room to the right.
    left = Math.min(left, right - leastWidth);
    const last = groups.at(-1);
    if (last && left <= last.right) {
      last.right = Math.max(last.right, right);
      last.gaps.push(gap);
    } else groups.push({ left, right, gaps: [gap] });
  }
  return groups.map(({ left, right, gaps: all }) => {
    const cause = all.map((g) => g.cause).reduce((a, b) => (gravity(b) < gravity(a) ? b : a));
    return {
      left, right, cause, gaps: all.length, words: markWords(all), key: String(all[0]!.id),
      open: all.some((g) => BigInt(g.open) > 0n),
      fromNs: BigInt(all[0]!.from_time),
      toNs: all.map((g) => BigInt(g.to_time)).reduce((a, b) => (b > a ? b : a)),
    };
  });
}

/** One gap in the server's words, several by their causes; and what came late after all. */
function markWords(gaps: Gap[]): string {
  const open = missing(gaps);
  if (gaps.length === 1) {
    const gap = gaps[0]!;
    const all = BigInt(gap.count ?? 0);
    if (all === 0n || open === all) return gap.words;
    return `${gap.words} · ${open === 0n ? "all came late" : `${count(open)} still missing`}`;
  }
  const byCause = new Map<string, bigint>();
  for (const gap of gaps) byCause.set(gap.cause, (byCause.get(gap.cause) ?? 0n) + BigInt(gap.count ?? 0));
  const parts = [...byCause].map(([cause, frames]) => `${cause} ${count(frames)}`);
  return `${gaps.length} gaps · ${parts.join(", ")} · ${open === 0n ? "none missing now" : `${count(open)} missing`}`;
}

/** Frames of each cause in sight, gravest first: the legend. */
export function causes(gaps: Gap[], fromNs: bigint, toNs: bigint): { cause: string; frames: bigint }[] {
  const byCause = new Map<string, bigint>();
  for (const gap of gaps) {
    if (BigInt(gap.to_time) < fromNs || BigInt(gap.from_time) >= toNs) continue;
    byCause.set(gap.cause, (byCause.get(gap.cause) ?? 0n) + BigInt(gap.count ?? 0));
  }
  return [...byCause].map(([cause, frames]) => ({ cause, frames })).sort((a, b) => gravity(a.cause) - gravity(b.cause));
}
