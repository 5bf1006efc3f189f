// The kinds of panels there are, and what is kept of each.
import { DECIMALS_MAX } from "../text/number";

export const KINDS = [
  "plot", "table", "number", "now", "states", "state", "alarms", "events", "sources", "gaps", "sql", "runs",
] as const;
export type PanelKind = (typeof KINDS)[number];

/** Names of the kinds as people read them. */
export const KIND_NAMES: Record<PanelKind, string> = {
  plot: "Plot", table: "Value table", number: "Big number", now: "Tiles", states: "State time line",
  state: "State at a time", alarms: "Alarms", events: "Event log", sources: "Source health", gaps: "Gaps",
  sql: "SQL", runs: "Runs and time",
};

/** Kinds that show channels. */
export const shows = (kind: PanelKind): boolean => ["plot", "table", "number", "now", "states"].includes(kind);
/** Kinds that show channels over a span of time. */
export const spans = (kind: PanelKind): boolean => ["plot", "now", "states"].includes(kind);

/** Kinds that show numbers. */
export const hasNumbers = (kind: PanelKind): boolean => ["plot", "table", "number", "now"].includes(kind);

/** Ends of a value axis; where none is said the data decide. */
export interface Ends {
  min?: number;
  max?: number;
}

/** How values stand along an axis: evenly, or by their powers of ten. */
export type Scale = "linear" | "log";
export const SIDES = ["left", "right"] as const;
export type AxisSide = (typeof SIDES)[number];

export interface Panel {
  id: string;
  kind: PanelKind;
  title: string;
  /** Patterns or full names, as the server understands them. */
  channels: string[];
  span_s: number;
  /** Side of the value axis, by full name; where nothing is said the unit decides. */
  axes: Record<string, AxisSide>;
  /** Ends of the value axes that do not follow the data. */
  ends: Partial<Record<AxisSide, Ends>>;
  /** Value axes that are logarithmic. */
  scales: Partial<Record<AxisSide, "log">>;
  /** Whether min and max of each bucket are drawn behind the line. */
  band: boolean;
  /** Decimals of numbers; null: as many as mean something. */
  decimals: number | null;
  /** Question of a panel of SQL; filter of a state at a time. */
  text: string;
}

export const SPANS_S = [10, 30, 60, 120, 300, 900, 1800, 3600, 21_600, 86_400];
export const MAX_PANELS = 64;
/** Patterns and names of a panel. */
export const CHANNELS_MAX = 200;
const TEXT_MAX = 20_000;

let made = 0;

/** A new panel; ids are unique within the page. */
export function panel(kind: PanelKind, title: string, channels: string[] = [], more: Partial<Panel> = {}): Panel {
  return { id: `p${++made}`, kind, title, channels, span_s: 60, axes: {}, ends: {}, scales: {}, band: true, decimals: null, text: "", ...more };
}

export function clamp(value: number, low: number, high: number, otherwise = low): number {
  return Number.isFinite(value) ? Math.min(high, Math.max(low, value)) : otherwise;
}

/** Ends of an axis, as far as they are numbers; none if the min is not below the max. */
export function readEnds(value: unknown): Ends | null {
  if (typeof value !== "object" || value === null) return null;
  const { min, max } = value as { min?: unknown; max?: unknown };
  const ends: Ends = {};
  if (typeof min === "number" && Number.isFinite(min)) ends.min = min;
  if (typeof max === "number" && Number.isFinite(max)) ends.max = max;
  const none = ends.min === undefined && ends.max === undefined;
  return none || (ends.min !== undefined && ends.max !== undefined && ends.min >= ends.max) ? null : ends;
}

function readDecimals(value: unknown): number | null {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= DECIMALS_MAX ? value : null;
}

/** A panel of a stranger's text, with a new id; throws with what is wrong. */
export function readPanel(value: unknown): Panel {
  if (typeof value !== "object" || value === null) throw new Error(`a panel is ${JSON.stringify(value)}`);
  const p = value as Partial<Record<keyof Panel, unknown>>;
  const kind = KINDS.find((k) => k === p.kind);
  if (kind === undefined) throw new Error(`there is no kind of panel ${JSON.stringify(p.kind)}`);
  const channels = p.channels ?? [];
  if (!Array.isArray(channels) || channels.length > CHANNELS_MAX) throw new Error(`a panel has at most ${CHANNELS_MAX} channels`);
  const axes: Panel["axes"] = {};
  for (const [name, side] of Object.entries(typeof p.axes === "object" && p.axes !== null ? p.axes : {})) {
    if (side === "left" || side === "right") axes[name] = side;
  }
  const ends: Panel["ends"] = {};
  const scales: Panel["scales"] = {};
  for (const side of SIDES) {
    const read = readEnds((p.ends as Partial<Record<AxisSide, unknown>> | null | undefined)?.[side]);
    if (read) ends[side] = read;
    if ((p.scales as Partial<Record<AxisSide, unknown>> | null | undefined)?.[side] === "log") scales[side] = "log";
  }
  return panel(kind, String(p.title ?? "").slice(0, 200), channels.map(String), {
    span_s: clamp(Number(p.span_s ?? 60), 1, 31 * 86_400, 60), axes, ends, scales, band: p.band !== false, decimals: readDecimals(p.decimals),
    text: typeof p.text === "string" ? p.text.slice(0, TEXT_MAX) : "",
  });
}
