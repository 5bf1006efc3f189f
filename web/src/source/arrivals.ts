// Times between frames as a histogram: bars of equal width, heights by the logarithm of the count, so that one late
// frame in a million stands beside the million.
import type { InterArrival } from "../connection/message";
import { limitWords } from "../text/figures";

export interface ArrivalBar {
  /** Times of this bucket, ns: above `fromNs`, up to and with `toNs`; the last has no end. */
  fromNs: number;
  toNs: number | null;
  count: number;
  /** 0 to 1, by the logarithm of the count; what is there is always seen. */
  height: number;
  /** Wholly beyond twice the nominal period. */
  late: boolean;
  words: string;
}

export interface ArrivalLayout {
  bars: ArrivalBar[];
  total: number;
  /** Largest count of a bar. */
  most: number;
  /** Where the nominal period stands, 0 to 1 from the left; null without one. */
  nominalAt: number | null;
  nominalNs: number | null;
  /** Edges between bars, 0 to 1 from the left. */
  edges: { at: number; ns: number; label: string }[];
  over: { limitNs: number; count: number }[];
}

/** Fewer bars than this look like no histogram. */
const LEAST_BARS = 8;
/** The smallest count that is there is this high. */
const LEAST_HEIGHT = 0.06;

/** The histogram as it is drawn: buckets that are empty on both sides are left out. Null where nothing was counted. */
export function arrivalLayout(of: InterArrival): ArrivalLayout | null {
  const edges = of.edges_ns.map(Number);
  const counts = of.counts.map(Number);
  const total = counts.reduce((sum, n) => sum + n, 0);
  if (!(total > 0) || counts.length !== edges.length + 1) return null;
  const nominal = of.nominal_ns === null ? null : Number(of.nominal_ns);

  let first = counts.findIndex((n) => n > 0);
  let last = counts.findLastIndex((n) => n > 0);
  if (nominal !== null) {
    const bucket = bucketOf(nominal, edges);
    first = Math.min(first, bucket);
    last = Math.max(last, bucket);
  }
  first = Math.max(0, first - 1);
  last = Math.min(counts.length - 1, last + 1);
  while (last - first + 1 < Math.min(LEAST_BARS, counts.length)) {
    if (first > 0) first--;
    if (last < counts.length - 1) last++;
  }

  const most = Math.max(...counts);
  const bars: ArrivalBar[] = [];
  for (let i = first; i <= last; i++) {
    const fromNs = i === 0 ? 0 : edges[i - 1]!;
    const toNs = edges[i] ?? null;
    const count = counts[i]!;
    bars.push({
      fromNs, toNs, count,
      height: count === 0 ? 0 : Math.max(LEAST_HEIGHT, Math.log10(1 + count) / Math.log10(1 + most)),
      late: nominal !== null && fromNs >= 2 * nominal,
      words: toNs === null ? `over ${limitWords(fromNs)}` : i === 0 ? `up to ${limitWords(toNs)}` : `${limitWords(fromNs)} to ${limitWords(toNs)}`,
    });
  }
  return {
    bars, total, most, nominalNs: nominal,
    nominalAt: nominal === null ? null : placeOf(nominal, bars),
    edges: bars.slice(0, -1).map((bar, i) => ({ at: (i + 1) / bars.length, ns: bar.toNs!, label: limitWords(bar.toNs!) })),
    over: of.over.map((o) => ({ limitNs: Number(o.limit_ns), count: Number(o.count) })),
  };
}

function bucketOf(ns: number, edges: number[]): number {
  const found = edges.findIndex((edge) => ns <= edge);
  return found === -1 ? edges.length : found;
}

/** Where a time stands among the bars: by its logarithm inside its own. */
function placeOf(ns: number, bars: ArrivalBar[]): number {
  const i = Math.max(0, bars.findIndex((bar) => bar.toNs === null || ns <= bar.toNs));
  const { fromNs, toNs } = bars[i]!;
  const inside = toNs === null ? 0.5 : fromNs === 0 ? ns / toNs : Math.log(ns / fromNs) / Math.log(toNs / fromNs);
  return (i + Math.min(1, Math.max(0, inside))) / bars.length;
}
