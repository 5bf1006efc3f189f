// What the server says of one source, asked once a second while its view is open, and the rates that it said before.
import * as api from "../state/api";
import { live } from "../state/live.svelte";
import type { Finding, Gap, Source, SourceAccount } from "../connection/message";
import { gapsOf } from "./gaplanes";
import { Paces } from "./pace";
import { poll } from "../connection/poll";
import { secondsNs } from "../text/time";

const ACCOUNT_MS = 1000;
const DOCTOR_MS = 5000;
/** A server that does not answer for this long is told so; the next question is then asked. */
const PATIENCE_MS = 5000;
/** Without an answer for this long the figures are old. */
const OLD_MS = 3000;
/** Gaps that could not be had are asked for again so much later. */
const GAPS_AGAIN_MS = 2000;
/** Most gaps of a source that are asked for. */
export const GAPS_MOST = 5000;

/** Rates of all sources, taken from heartbeats since the page was opened. */
const sourcePaces = new Paces();

/** Remembers what heartbeats say; called with every turn of the page's loop. */
export function notePace(): void {
  if (!live.isLive || live.heartbeat === null) return;
  const at = performance.now() / 1000;
  for (const s of live.heartbeat.sources) sourcePaces.add(s.name, at, s.rate_hz);
  sourcePaces.forget(at);
}

/** Why there is nothing, or nothing new, to show. */
export interface Refusal {
  kind: "no such source" | "old server" | "no answer";
  words: string;
}

class Account {
  account = $state.raw<SourceAccount | null>(null);
  card = $state.raw<Source | null>(null);
  refusal = $state.raw<Refusal | null>(null);
  findings = $state.raw<Finding[] | null>(null);
  /** Names of all sources, where the one asked for is none of them. */
  others = $state.raw<string[]>([]);
  /** The server's clock at the newest answer. */
  answeredNs = $state.raw<bigint | null>(null);
  gapList = $state.raw<Gap[]>([]);
  /** Whether there may be older gaps than those that were answered. */
  gapsCut = $state(false);
  /** From when on gaps were asked for and answered; null: none were yet. */
  gapsFrom = $state.raw<bigint | null>(null);
  /** How the connection was, and how often something was lost on it, when gaps were asked for last. */
  heard = "";
  readonly streamPaces = new Paces();
  private answeredMs = -Infinity;
  private hasDoctor = true;
  private readonly openedMs = performance.now();

  constructor(readonly name: string) {}

  get pace() {
    return sourcePaces.of(this.name);
  }

  /** Whether the figures are too old to be shown as current. Read on each pulse. */
  get old(): boolean {
    return performance.now() - Math.max(this.answeredMs, this.openedMs) > OLD_MS;
  }

  /** Gaps of the source: those that were asked for, and what was told since. */
  get gaps(): Gap[] {
    return gapsOf(this.name, [this.gapList, live.gaps]);
  }

  async ask(signal: AbortSignal): Promise<void> {
    if (document.hidden) return;
    const patience = AbortSignal.any([signal, AbortSignal.timeout(PATIENCE_MS)]);
    const [all, one] = await Promise.allSettled([api.sources(patience), api.source(this.name, patience)]);
    if (signal.aborted) return;
    const failed = (e: unknown): Refusal => ({ kind: "no answer", words: e instanceof api.ApiError ? e.message : "the server does not answer" });
    const missing = one.status === "rejected" && one.reason instanceof api.ApiError && one.reason.status === 404;
    if (all.status === "rejected" || (one.status === "rejected" && !missing)) {
      this.refusal = failed(all.status === "rejected" ? all.reason : (one as PromiseRejectedResult).reason);
      return;
    }
    this.answeredMs = performance.now();
    this.answeredNs = live.serverNow();
    this.card = all.value.find((s) => s.name === this.name) ?? null;
    this.others = all.value.map((s) => s.name);
    if (one.status === "fulfilled") {
      this.account = one.value;
      this.refusal = null;
      const at = this.answeredMs / 1000;
      for (const s of one.value.streams) this.streamPaces.add(String(s.stream), at, s.rate_hz);
      this.streamPaces.forget(at);
    } else {
      this.account = null;
      this.refusal = this.card
        ? { kind: "old server", words: "This server does not tell of a source stream by stream: it is older than this page." }
        : { kind: "no such source", words: `There is no source ${this.name}.` };
    }
  }

  async askDoctor(signal: AbortSignal): Promise<void> {
    if (document.hidden || !this.hasDoctor) return;
    try {
      const findings = await api.doctor(AbortSignal.any([signal, AbortSignal.timeout(PATIENCE_MS)]));
      this.findings = findings.filter((f) => this.isOwn(f));
    } catch (e) {
      // Of a server that does not answer the account tells; what it found stays, marked as old as all else is.
      if (signal.aborted || !(e instanceof api.ApiError)) return;
      // The page's own reasons stand in for it.
      this.findings = null;
      this.hasDoctor = e.status !== 404;
    }
  }

  private isOwn(finding: Finding): boolean {
    if (finding.source !== null) return finding.source === this.name;
    // What is about no source is about all of them.
    return finding.stream === null || (this.account?.streams.some((s) => s.name === finding.stream) ?? false);
  }

  /** Answers whether they are known. */
  async askGaps(spanS: number, signal: AbortSignal): Promise<boolean> {
    const now = live.serverNow();
    if (now === null) return false;
    const from = now - secondsNs(spanS);
    try {
      this.gapList = await api.gaps(from, GAPS_MOST, this.name, AbortSignal.any([signal, AbortSignal.timeout(PATIENCE_MS)]));
      this.gapsCut = this.gapList.length >= GAPS_MOST;
      this.gapsFrom = from;
      return true;
    } catch {
      // Those that the page was told of are shown.
      return false;
    }
  }
}

/** Must be called while a component is set up; the answered object's `of` is anew for each name. */
export function sourceAccount(name: () => string, spanS: () => number): { readonly of: Account } {
  const of = $derived(new Account(name()));
  $effect(() => {
    const asked = of;
    const ends = [
      poll(ACCOUNT_MS, (signal) => asked.ask(signal)),
      poll(DOCTOR_MS, (signal) => asked.askDoctor(signal)),
    ];
    return () => ends.forEach((end) => end());
  });
  $effect(() => {
    const asked = of;
    const span = spanS();
    // Anew when the connection is back, and when something was lost on the way: what came meanwhile was not told.
    const heard = `${live.mode} ${live.noticeLosses}`;
    if (heard !== asked.heard) asked.gapsFrom = null;
    asked.heard = heard;
    if (live.mode !== "live") return;
    const end = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = async (): Promise<void> => {
      const isKnown = await asked.askGaps(span, end.signal);
      if (!isKnown && !end.signal.aborted) timer = setTimeout(() => void ask(), GAPS_AGAIN_MS);
    };
    void ask();
    return () => {
      end.abort();
      clearTimeout(timer);
    };
  });
  return {
    get of() {
      return of;
    },
  };
}

export type { Account };
