// Messages of the server: REST bodies and WebSocket frames, as the page receives them.
// Times and 64-bit integers are decimal strings on the wire; nothing here converts them.

/** A nanosecond instant since 1970 UTC as decimal text. */
export type NsText = string;

/** A channel's value on the wire: the channel's `type` tells how to read it. */
export type WireValue = number | string | boolean | null;

export type ChannelType =
  | "bool" | "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "f32" | "f64" | "string" | "blob"
  /** Arrays of these: `f32[512]`, `f64[]`. Updates say how many elements came, `f32[512]`; states have them all. */
  | `${string}[${string}]`;

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

/** What there is to say of cells beside their values, by their places among those of a window or the buckets of a series. */
export interface CellNotes {
  /** Texts that changed more often than their first and last say. */
  changed?: number[];
  /** Least and greatest of the finite values where min or max is infinite. */
  finite?: [number, WireValue, WireValue][];
}

export interface StreamWindow extends CellNotes {
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

export interface HistorySeries extends CellNotes {
  channel: number;
  buckets: Bucket[];
  gaps: [NsText, NsText][];
}

/** As REST answers it: with the whole channel. */
export type PastSeries = Omit<HistorySeries, "channel"> & { channel: Channel };

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
  /** Events, gaps or alarms that were lost on the way here, in all since the connection began. */
  dropped?: number;
}

/** What a playback is doing. */
export interface PlaybackState {
  id: string;
  name: string;
  from: NsText;
  to: NsText;
  /** All up to it was played. */
  at: NsText;
  speed: number;
  paused: boolean;
  loop: boolean;
  ended: boolean;
  viewers: number;
  /** Reading cannot keep up with the speed. */
  behind: boolean;
  /** How often it jumped. */
  round: number;
  wall_ns: NsText;
}

/** The heartbeat of a playback. */
export interface PlaybackBeat {
  type: "heartbeat";
  time: NsText;
  epoch: number;
  store: string;
  playback: PlaybackState;
  dropped?: number;
}

/** Of a playback: the last value of each channel as of `at`. */
export interface Snapshot {
  type: "snapshot";
  id: number;
  round: number;
  at: NsText;
  /** [channel id, value, time, receive_time] */
  streams: { stream: number; channels: [number, WireValue, NsText, NsText | null][] }[];
}

export interface Gap {
  id: number | string;
  stream: string | number | null;
  stream_name: string;
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

export type AlarmLevel = "normal" | "watch" | "warning" | "critical";

export interface Alarm {
  limit: string;
  channel: string;
  state: "raised" | "acknowledged" | "cleared";
  level: AlarmLevel;
  /** The worst since it was raised. */
  worst: AlarmLevel;
  why: "low" | "high" | "state" | "stale" | "slow" | "fast" | null;
  value: WireValue;
  text: string;
  bound: WireValue;
  raised: NsText;
  changed: NsText;
  acknowledged: { by: string; note: string; time: NsText } | null;
  shelved: { by: string; note: string; until: NsText } | null;
}

export interface Bounds {
  low: number | null;
  high: number | null;
}

/** A limit as it is configured; states and contexts are the server's affair. */
export interface Limit {
  name: string | null;
  channels: string[];
  watch: Bounds | null;
  warning: Bounds | null;
  critical: Bounds | null;
}

export type ServerMessage =
  | { type: "hello"; version: string; origin: string; epoch: number; time: NsText; heartbeat_ms: number; playback?: PlaybackState }
  | { type: "subscribed"; id: number; channels: Channel[]; unmatched: string[] }
  | { type: "channels"; id: number; channels: Channel[] }
  | { type: "history"; id: number; series: HistorySeries[]; rows: Record<string, string> }
  | {
      type: "update"; id: number; epoch: number; time: NsText; streams: StreamWindow[];
      conflated: number; dropped: number;
    }
  | Heartbeat
  | PlaybackBeat
  | Snapshot
  | { type: "round"; round: number; at: NsText }
  | { type: "rewound"; id: number; stream: number; epoch: number; row: string }
  | ({ type: "event" } & Event)
  | ({ type: "gap" } & Gap)
  | { type: "alarm"; limit: string; channel: string; step: string; time: NsText; heard: boolean; alarm: Alarm | null }
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
  future?: string | number;
  type_conflicts?: string | number;
  plc?: Plc;
  packets?: PacketTally;
}

/** What packets say of themselves; only of a packet source. */
export interface PacketTally {
  payload_errors: string | number;
  chassis_lost: string | number;
  timeouts: string | number;
  bad_ptp: string | number;
  never_set: string | number;
  blocks: string | number;
  block_errors: string | number;
  unmapped_blocks: string | number;
}

/** What only a PLC has. */
export interface Plc {
  connected: boolean;
  connections: string | number;
  symbols: string | number;
  missing: string | number;
  troubles: { stream: string; symbol: string; why: string }[];
  handles: string | number;
  samples: string | number;
  timeouts: string | number;
  dropped_cycles: string | number;
  late: string | number;
  clock_sets: string | number;
  program_changes: string | number;
  rate_alarms: string | number;
}

export type StreamStatus = "ok" | "slow" | "silent" | "never";

/** The clock of a stream's source against that of reception. */
export interface StreamClock {
  offset_ns: string | number;
  drift_ppm: number;
  spread_ns: string | number;
  state: "good" | "learning" | "jumped" | "never set" | "gone";
  jumps: string | number;
  since: NsText;
}

/** Times between frames: `counts[i]` are those up to `edges_ns[i]`, the last those beyond all edges. */
export interface InterArrival {
  nominal_ns: string | number | null;
  edges_ns: (string | number)[];
  counts: (string | number)[];
  over: { limit_ns: string | number; count: string | number }[];
}

export interface SourceStream {
  stream: number;
  name: string;
  received: string | number;
  stored: string | number;
  duplicate: string | number;
  reduced: string | number;
  rejected: string | number;
  lost: string | number;
  filled: string | number;
  late: string | number;
  restarts: string | number;
  rate_hz: number;
  expected_rate_hz: number | null;
  expected: "given" | "learnt" | "none";
  /** By what a missing frame is noticed. */
  loss?: "by sequence" | "by period" | "not knowable";
  last_receive_time: NsText | null;
  last_source_time: NsText | null;
  status: StreamStatus;
  status_since: NsText;
  clock?: StreamClock | null;
  inter_arrival?: InterArrival | null;
  packets?: PacketTally;
}

/** One of the newest that was rejected for a reason. */
export interface Rejected {
  reason: string;
  count: string | number;
  last_time: NsText;
  from: string | null;
  text: string;
  /** Hexadecimal, at most 64 bytes. */
  bytes: string;
}

/** A source stream by stream. */
export interface SourceAccount {
  name: string;
  kind: string;
  address: string;
  status: SourceStatus;
  streams: SourceStream[];
  rejected: Rejected[];
  unknown_streams: Record<string, string | number>;
  kernel_drops: string | number;
}

/** Why data is missing, and what to do. */
export interface Finding {
  cause: string;
  wrong: boolean;
  source: string | null;
  stream: string | null;
  from: NsText | null;
  to: NsText | null;
  count: string | number | null;
  text: string;
  advice: string;
}

export type Freshness = "fresh" | "stale" | "gap" | "never";

export interface StateRow {
  channel: Channel;
  /** Of an array all its elements. */
  value: WireValue | WireValue[];
  time: NsText | null;
  receive_time: NsText | null;
  age_ns: NsText | null;
  /** Of its stream, given or learnt. */
  period_ns: NsText | null;
  status: Freshness;
}

/** Panels that a server prepares. */
export type PreparedKind = "plot" | "states" | "now";

export interface ServerView {
  title: string;
  /**
   * `t0`: as the clock runs now, holds counted. `clock`: channel with the countdown in seconds, where holds move T-0.
   * `held_t`: T± at which the clock is held. `state`: only of a run whose clock the server keeps (`GET /api/runs`).
   */
  run: { name: string; t0: NsText | null; clock?: string | null; held_t?: NsText | null; state?: string | null } | null;
  panels: { kind: PreparedKind; title: string; channels: string[]; span_s?: number }[];
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

/** A value of a state as updates say it: of an array, how many elements there are. */
export function brief(value: WireValue | WireValue[], type: ChannelType): WireValue {
  return Array.isArray(value) ? `${type.slice(0, type.indexOf("["))}[${value.length}]` : value;
}

/** Whether a channel is drawn as named states (bars) rather than as a line. */
export function hasStates(type: ChannelType): boolean {
  return type === "string" || type === "bool";
}
