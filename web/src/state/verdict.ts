// Whether a source is well and, if not, why: from its counts alone, gravest first.
import { count, rate } from "../text/number";
import { plain } from "../text/figures";
import type { Gap, Rejected, Source, SourceAccount, SourceStream } from "../connection/message";
import { age, mark, NS_PER_S, utc, utcClock } from "../text/time";

export interface Reason {
  severity: "critical" | "warning" | "watch" | "info";
  words: string;
}

/** A gap or a rejection is news for this long; then it is only told. */
export const NEWS_NS = 300n * NS_PER_S;
const NAMED = 3;

export interface VerdictInput {
  card: Source | null;
  account: SourceAccount | null;
  gaps: Gap[];
  nowNs: bigint | null;
}

/** Streams a word in a sentence can be about: `a, b, c and 4 more`. */
export function some(names: string[], most = NAMED): string {
  const more = names.length - most;
  return names.slice(0, most).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

/** All that explains why something could be missing; empty if the source is well. */
export function reasons({ card, account, gaps, nowNs }: VerdictInput): Reason[] {
  const list: Reason[] = [];
  const say = (severity: Reason["severity"], words: string) => list.push({ severity, words });
  const since = (ns: string | null | undefined) =>
    ns == null || nowNs === null ? "" : ` for ${age(max0(nowNs - BigInt(ns)))}, since ${utcClock(BigInt(ns))} UTC`;
  const status = account?.status ?? card?.status;
  if (status === "disconnected") say("warning", "the PLC does not answer; the events say why");
  if (status === "dropping") say("critical", "the kernel drops datagrams: the receive buffer is full");
  if (status === "silent") {
    const last = card?.last_receive_time;
    say("warning", last == null ? "silent: nothing ever came" : `silent${since(last)}`);
  }
  if (status === "slow" && card?.expected_rate_hz != null) {
    say("watch", `slow: ${rate(card.rate_hz)} of ${rate(card.expected_rate_hz)} come`);
  }
  list.push(...ofStreams(account?.streams ?? [], status === "silent", since));

  const open = gaps.filter((g) => BigInt(g.open) > 0n);
  const newest = open.reduce<Gap | null>((a, b) => (a === null || BigInt(b.to_time) > BigInt(a.to_time) ? b : a), null);
  const missing = big(card?.lost) - big(card?.filled);
  if (missing > 0n) {
    const when = newest === null ? "" : `, the last at ${mark(BigInt(newest.to_time), null, nowNs === null ? null : utc(nowNs).slice(0, 10))} UTC`;
    say(newest !== null && isNews(newest.to_time, nowNs) ? "warning" : "info", `${frames(missing)} missing since the server started${when}`);
  }
  const drops = big(account?.kernel_drops ?? card?.kernel_drops);
  if (drops > 0n && status !== "dropping") say("watch", `${count(drops)} datagrams dropped by the kernel since the server started`);
  list.push(...ofRejections(card, account?.rejected ?? [], nowNs));
  const unknown = Object.entries(account?.unknown_streams ?? card?.unknown_streams ?? {});
  if (unknown.length > 0) {
    const all = unknown.reduce((sum, [, n]) => sum + BigInt(n), 0n);
    say("watch", `${count(all)} ${all === 1n ? "packet" : "packets"} that no layout is configured for: stream ${some(unknown.map(([id]) => id))}`);
  }
  if (big(card?.packets?.chassis_lost) > 0n) say("watch", `${count(card!.packets!.chassis_lost)} messages lost in the chassis, by its own word`);
  if (card?.plc && big(card.plc.missing) > 0n) {
    say("watch", `${count(card.plc.missing)} of the PLC's symbols give no values`);
  }
  if (big(card?.future) > 0n) say("watch", `${frames(big(card!.future))} with a time far ahead of their reception`);
  if (big(card?.type_conflicts) > 0n) say("info", `${count(card!.type_conflicts!)} values went to a second column: another type than the first had`);
  const order = { critical: 0, warning: 1, watch: 2, info: 3 };
  return list.map((reason, i) => ({ reason, i })).sort((a, b) => order[a.reason.severity] - order[b.reason.severity] || a.i - b.i).map((x) => x.reason);
}

function ofStreams(streams: SourceStream[], silentSource: boolean, since: (ns: string) => string): Reason[] {
  const list: Reason[] = [];
  const of = (status: string) => streams.filter((s) => s.status === status);
  const total = streams.length;
  const told = (word: string, these: SourceStream[]) =>
    these.length === 1
      ? `${these[0]!.name} is ${word}${since(these[0]!.status_since)}`
      : `${these.length} of ${total} streams are ${word}: ${some(these.map((s) => s.name))}`;
  const silent = of("silent");
  // Of a silent source with one stream nothing more is to be said.
  if (silent.length > 0 && !(silentSource && total === 1)) list.push({ severity: "warning", words: told("silent", silent) });
  const slow = of("slow");
  if (slow.length > 0) list.push({ severity: "watch", words: told("slow", slow) });
  const never = of("never").filter((s) => s.expected === "given");
  if (never.length > 0) {
    const words = never.length === 1
      ? `nothing came of ${never[0]!.name} since the server started`
      : `nothing came of ${never.length} of ${total} streams since the server started: ${some(never.map((s) => s.name))}`;
    list.push({ severity: "watch", words });
  }
  for (const [state, words] of [["never set", "was never set: its times are not believed"], ["jumped", "jumped and is learnt anew"]] as const) {
    const these = streams.filter((s) => s.clock?.state === state);
    if (these.length > 0) list.push({ severity: "watch", words: `the clock of ${some(these.map((s) => s.name))} ${words}` });
  }
  return list;
}

function ofRejections(card: Source | null, rejected: Rejected[], nowNs: bigint | null): Reason[] {
  const total = big(card?.rejected);
  const by = Object.entries(card?.rejected_by ?? {}).filter(([reason]) => reason !== "unknown_stream");
  const told = by.length > 0 ? by.map(([reason, n]) => `${plain(reason)} ${count(n)}`) : rejected.map((r) => `${plain(r.reason)} ${count(r.count)}`);
  if (total === 0n || told.length === 0) return [];
  const news = rejected.some((r) => r.reason !== "unknown_stream" && isNews(r.last_time, nowNs));
  return [{ severity: news ? "watch" : "info", words: `rejected: ${some(told)}` }];
}

function isNews(ns: string, nowNs: bigint | null): boolean {
  return nowNs !== null && nowNs - BigInt(ns) < NEWS_NS;
}

function frames(n: bigint): string {
  return `${count(n)} ${n === 1n ? "frame" : "frames"}`;
}

function big(n: string | number | undefined): bigint {
  return n === undefined ? 0n : BigInt(n);
}

function max0(ns: bigint): bigint {
  return ns > 0n ? ns : 0n;
}

/** In one line: what is gravest, or that the source is well. */
export function verdict(list: Reason[], account: SourceAccount | null): Reason {
  if (list.length > 0 && list[0]!.severity !== "info") return list[0]!;
  const streams = account?.streams.length ?? 0;
  const judged = account?.streams.filter((s) => s.expected !== "none").length ?? 0;
  const well =
    streams === 0 ? "well" : judged === streams ? `well: ${streams === 1 ? "its stream comes" : `${streams} streams come`} as expected`
      : judged === 0 ? "comes; how often is not expected" : `well: ${judged} of ${streams} streams come as expected, the others are irregular`;
  return { severity: "info", words: list.length > 0 ? `${well}; before: ${list[0]!.words}` : well };
}
