// Messages of the server: REST bodies and WebSocket frames, as the page receives them.
// Times and 64-bit integers are decimal strings on the wire; nothing here converts them.

/** A nanosecond instant since 1970 UTC as decimal text. */
export type NsText = string;

/** A channel's value on the wire: the channel's `type` tells how to read it. */
export type WireValue = number | string | boolean | null;

export type ChannelType =
  | "bool" | "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "f32" | "f64" | "string";

export interface Channel {
  id: number;
  name: string;
  table: string;
  channel: string;
  tags: Record<string, string>;
  stream: number;
  type: ChannelType;
  unit: string;
  description: string;
  source: string;
  expected_period_ns: NsText | null;
  interpolation: "hold" | "linear";
}

/** [t0, count, first, last, min, max, mean]; t0 is the bucket's start. */
export type Bucket = [NsText, number, WireValue, WireValue, WireValue, WireValue, WireValue];

/** [channel id, count, first, last, min, max, mean] of one update window. */
export type WindowCells = [number, number, WireValue, WireValue, WireValue, WireValue, WireValue];

export interface StreamWindow {
  stream: number;
  from_row: string | null;
  to_row: string | null;
  committed: string | null;
  recorded: boolean;
  time: [NsText, NsText];
  receive_time: NsText;
  gap: boolean;
  channels: WindowCells[];
}

export interface HistorySeries {
  channel: number;
  buckets: Bucket[];
  gaps: [NsText, NsText][];
}

export interface SourceBrief {
  name: string;
  status: SourceStatus;
  rate_hz: number;
  lost: number | string;
}

export type SourceStatus = "ok" | "silent" | "slow" | "dropping" | "disconnected";

export interface Heartbeat {
  type: "heartbeat";
  time: NsText;
  epoch: number;
  store: string;
  commit_ms: number | null;
  points_per_s: number;
  ingest_dropped: number | string;
  last_data: NsText | null;
  sources: SourceBrief[];
}

export interface Gap {
  id: number | string;
  stream: string | number | null;
  source: string;
  from_time: NsText;
  to_time: NsText;
  from_sequence: string | number | null;
  to_sequence: string | number | null;
  count: number | string | null;
  cause: string;
  open: number | string;
  words: string;
}

export type EventLevel = "info" | "watch" | "warning" | "critical";

export interface Event {
  time: NsText;
  text: string;
  level: EventLevel;
  source?: string;
}

export type ServerMessage =
  | { type: "hello"; version: string; origin: string; epoch: number; time: NsText; heartbeat_ms: number }
  | { type: "subscribed"; id: number; channels: Channel[]; unmatched: string[] }
  | { type: "channels"; id: number; channels: Channel[] }
  | { type: "history"; id: number; series: HistorySeries[]; rows: Record<string, string> }
  | {
      type: "update"; id: number; epoch: number; time: NsText; streams: StreamWindow[];
      conflated: number; dropped: number;
    }
  | Heartbeat
  | { type: "rewound"; id: number; stream: number; epoch: number; row: string }
  | ({ type: "event" } & Event)
  | ({ type: "gap" } & Gap)
  | { type: "error"; id: number | null; message: string };

export interface Subscribe {
  channels: string[];
  max_rate_hz: number;
  history_s?: number;
  history_points?: number;
}

export interface Source {
  name: string;
  kind: string;
  address: string;
  streams: number;
  received: string | number;
  stored: string | number;
  duplicate: string | number;
  rejected: string | number;
  lost: string | number;
  filled: string | number;
  late: string | number;
  restarts: string | number;
  rejected_by: Record<string, string | number>;
  rate_hz: number;
  expected_rate_hz: number | null;
  points_per_s: number;
  last_receive_time: NsText | null;
  status: SourceStatus;
  kernel_drops: string | number;
  unknown_streams: Record<string, string | number>;
}

export type Freshness = "fresh" | "stale" | "gap" | "never";

export interface StateRow {
  channel: Channel;
  value: WireValue;
  time: NsText | null;
  receive_time: NsText | null;
  age_ns: NsText | null;
  status: Freshness;
}

export type PanelKind = "plot" | "states" | "now";

export interface ServerView {
  title: string;
  /** `clock`: channel with the countdown in seconds, where holds move T-0. */
  run: { name: string; t0: NsText | null; clock?: string | null } | null;
  panels: { kind: PanelKind; title: string; channels: string[]; span_s?: number }[];
}

export interface SqlAnswer {
  columns: { name: string; type: string }[];
  rows: WireValue[][];
  truncated: boolean;
  elapsed_ms: number;
}

/** A wire value as a number to plot; null when it has no place on an axis. */
export function toNumber(value: WireValue): number | null {
  if (typeof value === "number") return value;
  if (typeof value === "boolean") return value ? 1 : 0;
  if (typeof value !== "string") return null;
  if (value === "" || value.trim() !== value) return null;
  const number = Number(value);
  return Number.isFinite(number) ? number : null;
}

/** Whether a channel is drawn as named states (bars) rather than as a line. */
export function hasStates(type: ChannelType): boolean {
  return type === "string" || type === "bool";
}
