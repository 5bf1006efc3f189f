// REST calls of the page, and the token that a server beyond loopback asks for.
import type {
  Alarm, Channel, Event, EventLevel, Finding, Gap, Limit, PastSeries, PlaybackState, ServerView, Source, SourceAccount, SqlAnswer, StateRow,
} from "../connection/message";
import { type AlarmStep, readStep, STEP_COLUMNS } from "./alarmbook";
import { literally } from "../text/pattern";

/** An answer that is not 2xx, in the server's words. */
export class ApiError extends Error {
  constructor(readonly status: number, message: string, readonly code: string | null, readonly sqlstate: string | null) {
    super(message);
  }
}

const TOKEN_KEY = "strongback.token";

export function token(): string | null {
  return sessionStorage.getItem(TOKEN_KEY);
}

export function setToken(value: string): void {
  sessionStorage.setItem(TOKEN_KEY, value);
}

async function send(path: string, init: RequestInit = {}): Promise<{ answer: Response; text: string; body: unknown }> {
  const headers = new Headers(init.headers);
  const bearer = token();
  if (bearer !== null) headers.set("authorization", `Bearer ${bearer}`);
  if (init.body) headers.set("content-type", "application/json");
  const answer = await fetch(path, { ...init, headers, cache: "no-store" });
  const text = await answer.text();
  let body: unknown = null;
  try {
    body = text === "" ? null : JSON.parse(text);
  } catch {
    throw new ApiError(answer.status, text.trim().slice(0, 300) || withoutWords(answer), null, null);
  }
  if (!answer.ok) {
    const e = (body ?? {}) as { error?: unknown; code?: string; sqlstate?: string };
    const said = typeof e.error === "string" ? e.error : "";
    throw new ApiError(answer.status, said || withoutWords(answer), e.code ?? null, e.sqlstate ?? null);
  }
  return { answer, text, body };
}

/** Names an error whose body says nothing; over HTTP/2 there is no text beside the status either. */
function withoutWords({ status, statusText }: Response): string {
  return statusText || `the server answered with status ${status}`;
}

async function call<T>(path: string, init: RequestInit = {}): Promise<T> {
  return (await send(path, init)).body as T;
}

function query(parts: Record<string, string | number | undefined>): string {
  const set = Object.entries(parts).filter(([, value]) => value !== undefined) as [string, string | number][];
  return set.length === 0 ? "" : "?" + new URLSearchParams(set.map(([key, value]) => [key, String(value)]));
}

/** Where live updates come from, or those of a playback. */
export function liveUrl(playback?: string): string {
  const url = new URL("api/live", location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.hash = url.search = "";
  const bearer = token();
  if (bearer !== null) url.searchParams.set("access_token", bearer);
  if (playback !== undefined) url.searchParams.set("playback", playback);
  return url.href;
}

const PAGE = 5000;

/**
 * Reads every channel, page by page. Where the catalog changes between two pages, channels move from one to the other:
 * each is kept once, and the version is that of the first page, so that the next check loads what was missed.
 */
export async function allChannels(): Promise<{ version: string; channels: Channel[] }> {
  const channels = new Map<number, Channel>();
  let version: string | null = null;
  for (let offset = 0; ; ) {
    const page = await call<{ version: string; total: number; channels: Channel[] }>(
      "api/channels" + query({ limit: PAGE, offset }),
    );
    version ??= page.version;
    offset += page.channels.length;
    for (const channel of page.channels) channels.set(channel.id, channel);
    if (page.channels.length === 0 || offset >= page.total) return { version, channels: [...channels.values()] };
  }
}

export async function catalogVersion(): Promise<string> {
  return (await call<{ version: string }>("api/channels" + query({ limit: 1 }))).version;
}

export async function sources(signal?: AbortSignal): Promise<Source[]> {
  return (await call<{ sources: Source[] }>("api/sources", { signal })).sources;
}

/** One source, stream by stream. */
export async function source(name: string, signal?: AbortSignal): Promise<SourceAccount> {
  return call("api/sources/" + encodeURIComponent(name), { signal });
}

/** Gaps since `from`, of one source if it is named; the newest first. */
export async function gaps(from: bigint, limit: number, of?: string, signal?: AbortSignal, to?: bigint): Promise<Gap[]> {
  const source = of === undefined ? undefined : literally(of);
  return (await call<{ gaps: Gap[] }>("api/gaps" + query({ from: from.toString(), to: to?.toString(), limit, source }), { signal })).gaps;
}

/** What explains missing data, of all sources, the likeliest first. */
export async function doctor(signal?: AbortSignal): Promise<Finding[]> {
  return (await call<{ findings: Finding[] }>("api/doctor", { signal })).findings;
}

/** The newest events since `from`, the oldest first. */
export async function events(from: bigint, limit: number, to?: bigint, signal?: AbortSignal): Promise<Event[]> {
  return (await call<{ events: Event[] }>("api/events" + query({ from: from.toString(), to: to?.toString(), limit }), { signal })).events;
}

export async function addEvent(text: string, level: EventLevel, time?: bigint): Promise<void> {
  await call("api/events", { method: "POST", body: JSON.stringify({ text, level, time: time?.toString() }) });
}

export async function view(): Promise<ServerView | null> {
  return call<ServerView | null>("api/view");
}

export async function history(channels: string[], from: bigint, to: bigint, points: number, signal?: AbortSignal): Promise<PastSeries[]> {
  const answer = await call<{ series: PastSeries[] }>(
    "api/history" + query({ channels: channels.join(","), from: from.toString(), to: to.toString(), points }), { signal },
  );
  return answer.series;
}

/** Values at an instant; null: now. */
export async function stateAt(at: bigint | null, channels: string): Promise<{ at: string; state: StateRow[] }> {
  return call("api/state" + query({ at: at?.toString(), channels: channels || undefined }));
}

export async function sql(text: string, limit: number, signal?: AbortSignal): Promise<SqlAnswer> {
  return call("api/sql", { method: "POST", body: JSON.stringify({ sql: text, limit }), signal });
}

/** Alarms that are not over. */
export async function alarms(signal?: AbortSignal): Promise<Alarm[]> {
  return (await call<{ alarms: Alarm[] }>("api/alarms", { signal })).alarms;
}

/** Limits as they are configured. */
export async function limits(signal?: AbortSignal): Promise<Limit[]> {
  return (await call<{ limits: Limit[] }>("api/limits", { signal })).limits;
}

async function act(verb: string, alarm: Alarm, by: string, more: object = {}): Promise<void> {
  const body = JSON.stringify({ limit: alarm.limit, channel: alarm.channel, by, ...more });
  await call(`api/alarms/${verb}`, { method: "POST", body });
}

export const acknowledge = (alarm: Alarm, by: string): Promise<void> => act("acknowledge", alarm, by);
export const shelve = (alarm: Alarm, by: string, minutes: number): Promise<void> => act("shelve", alarm, by, { minutes });
export const unshelve = (alarm: Alarm, by: string): Promise<void> => act("unshelve", alarm, by);

/** A layout of the server's list; `error`: why it cannot be shown. */
export interface LayoutEntry {
  name: string;
  title: string | null;
  error: string | null;
  etag: string;
  changed: string | null;
}

const layoutPath = (name: string) => "api/layouts/" + encodeURIComponent(name);

export async function layouts(): Promise<LayoutEntry[]> {
  return (await call<{ layouts: LayoutEntry[] }>("api/layouts")).layouts;
}

/** A layout's text, and the tag that names this text. */
export async function layout(name: string): Promise<{ text: string; tag: string }> {
  const { answer, text } = await send(layoutPath(name));
  return { text, tag: answer.headers.get("etag") ?? "" };
}

/** Saves; `known`: tag of the text that is replaced, null if there is none, "any" for whatever there is. 412 if it is another. */
export async function saveLayout(name: string, text: string, known: string | null): Promise<string> {
  const headers: Record<string, string> = known === null ? { "if-none-match": "*" } : known === "any" ? {} : { "if-match": known };
  const { answer } = await send(layoutPath(name), { method: "PUT", body: text, headers });
  return answer.headers.get("etag") ?? "";
}

export async function deleteLayout(name: string): Promise<void> {
  await call(layoutPath(name), { method: "DELETE" });
}

/** A named run; `clock` only of one with T-0 and holds. */
export interface Run {
  name: string;
  protected: boolean;
  streams: number;
  bytes: string;
  time: [string, string] | null;
  clock: null | {
    state: "planned" | "counting" | "held" | "stopped";
    started: string;
    stopped: string | null;
    t0: string | null;
    t0_now: string | null;
    holds: [string, string | null][];
    t: string | null;
    channels: string[];
  };
}

export async function runs(signal?: AbortSignal): Promise<{ at: string; runs: Run[] }> {
  return call("api/runs", { signal });
}

/** Most steps that are asked for. */
export const STEPS_MAX = 20_000;

/** Steps in the lives of alarms up to an instant, the newest, in the order of time. */
export async function alarmSteps(to: bigint, signal?: AbortSignal): Promise<AlarmStep[]> {
  try {
    const { rows } = await sql(`select ${STEP_COLUMNS} from strongback.alarms where "time_ns" <= ${to} order by "time" desc limit ${STEPS_MAX}`, STEPS_MAX, signal);
    return rows.map(readStep).reverse();
  } catch (e) {
    // Where no alarm ever was there is no such table.
    if (e instanceof ApiError && e.sqlstate === "42P01") return [];
    throw e;
  }
}

export interface NewPlayback {
  from?: string;
  to?: string;
  run?: string;
  speed?: number;
  loop?: boolean;
  at?: string;
  name?: string;
}

export interface PlaybackCommand {
  do: "play" | "pause" | "step" | "seek" | "speed" | "loop" | "interval";
  at?: string;
  speed?: number;
  loop?: boolean;
  frames?: number;
  ms?: number;
  from?: string;
  to?: string;
}

export async function playbacks(): Promise<PlaybackState[]> {
  return (await call<{ playbacks: PlaybackState[] }>("api/playbacks")).playbacks;
}

const playbackPath = (id: string) => "api/playbacks/" + encodeURIComponent(id);

export async function playback(id: string): Promise<PlaybackState> {
  return call(playbackPath(id));
}

/** Begins a playback; `director` lets its holder command it, and is told only here. */
export async function startPlayback(what: NewPlayback): Promise<PlaybackState & { director: string }> {
  return call("api/playbacks", { method: "POST", body: JSON.stringify(what) });
}

export async function commandPlayback(id: string, what: PlaybackCommand & { director: string }): Promise<PlaybackState> {
  return call(playbackPath(id), { method: "POST", body: JSON.stringify(what) });
}

export async function takePlayback(id: string): Promise<PlaybackState & { director: string }> {
  return call(playbackPath(id), { method: "POST", body: JSON.stringify({ do: "take" }) });
}
