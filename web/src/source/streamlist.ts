// Which streams of a source are listed, and what of each is worth attention.
import type { SourceStream } from "../connection/message";

export type StreamFilter = "all" | "silent" | "slow" | "never" | "missing" | "rejected";

/** Frames of a stream that are missing now. */
export function missingOf(stream: SourceStream): bigint {
  const missing = BigInt(stream.lost) - BigInt(stream.filled);
  return missing > 0n ? missing : 0n;
}

const belongs: Record<StreamFilter, (s: SourceStream) => boolean> = {
  all: () => true,
  silent: (s) => s.status === "silent",
  slow: (s) => s.status === "slow",
  never: (s) => s.status === "never",
  missing: (s) => missingOf(s) > 0n,
  rejected: (s) => BigInt(s.rejected) > 0n,
};

/** How many streams each filter leaves; those that leave none are not worth a button, but for `all`. */
export function filters(streams: SourceStream[]): { filter: StreamFilter; streams: number }[] {
  return (Object.keys(belongs) as StreamFilter[])
    .map((filter) => ({ filter, streams: filter === "all" ? streams.length : streams.filter(belongs[filter]).length }))
    .filter((f) => f.filter === "all" || f.streams > 0);
}

const order = new Intl.Collator("en", { numeric: true });

/** The streams of a filter whose names have all words, in the order of their names: none moves while one looks. */
export function listed(streams: SourceStream[], filter: StreamFilter, words: string[]): SourceStream[] {
  return streams
    .filter((s) => belongs[filter](s) && words.every((word) => s.name.toLowerCase().includes(word)))
    .sort((a, b) => order.compare(a.name, b.name));
}

/** Colour class of a stream's status; a stream that is well has none. */
export function streamClass(stream: SourceStream): string {
  return { ok: "", slow: "watch", silent: "warn", never: stream.expected === "given" ? "watch" : "" }[stream.status];
}

/** Seconds between looks at a server that answers once a second, and a margin. */
const LOOK_NS = 1_600_000_000n;

/**
 * How old a stream's newest frame is, as honestly as a look once a second can tell: of a frame that was young then,
 * its age at the look, for another has come since; of others, their age now.
 */
export function frameAge(lastNs: string | null, lookedNs: bigint | null, nowNs: bigint | null): bigint | null {
  if (lastNs === null || nowNs === null) return null;
  const last = BigInt(lastNs);
  const atLook = lookedNs === null ? null : lookedNs - last;
  const age = atLook !== null && atLook < 1_000_000_000n && nowNs - lookedNs! < LOOK_NS ? atLook : nowNs - last;
  return age > 0n ? age : 0n;
}

/** The latest of instants, those that are not known left out. */
export function newestOf(all: (string | null)[]): string | null {
  return all.reduce((a, b) => (a === null || (b !== null && BigInt(b) > BigInt(a)) ? b : a), null);
}
