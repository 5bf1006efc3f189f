// The panels of the page: what the server prepares, what the operator makes of it, and how that is kept.
import type { Channel, PanelKind, ServerView } from "./message";
import { hasStates } from "./message";

export interface Panel {
  id: string;
  kind: PanelKind;
  title: string;
  /** Patterns or full names, as the server understands them. */
  channels: string[];
  span_s: number;
  /** Width in twelfths of the page, height in rows. */
  width: number;
  height: number;
}

export interface View {
  title: string;
  panels: Panel[];
}

export const SPANS_S = [10, 30, 60, 120, 300, 900, 1800];
export const MAX_PANELS = 32;
const KINDS: PanelKind[] = ["plot", "states", "now"];

let made = 0;

/** A new panel; ids are unique within the page. */
export function panel(kind: PanelKind, title: string, channels: string[], more: Partial<Panel> = {}): Panel {
  return { id: `p${++made}`, kind, title, channels, span_s: 60, width: 6, height: 1, ...more };
}

/** The server's prepared view as panels: rows alternate wide and narrow, the eye lands on the wide one. */
export function fromServer(view: ServerView): View {
  return {
    title: view.title,
    panels: view.panels.filter((p) => KINDS.includes(p.kind)).slice(0, MAX_PANELS).map((p) =>
      panel(p.kind, p.title, p.channels, {
        span_s: p.span_s && p.span_s > 0 ? p.span_s : 60,
        width: p.kind === "now" ? 5 : p.kind === "states" ? 7 : 6,
      })),
  };
}

/** What the page picks by itself from the channels there are: a few lines, the states, the values. */
export function pick(channels: Channel[]): View {
  const lines = channels.filter((c) => !hasStates(c.type) && c.source !== "strongback" && !c.table.startsWith("strongback."));
  const states = channels.filter((c) => hasStates(c.type));
  const panels: Panel[] = [];
  const byUnit = new Map<string, Channel[]>();
  for (const c of lines) byUnit.set(c.unit, [...(byUnit.get(c.unit) ?? []), c]);
  const groups = [...byUnit.entries()].sort((a, b) => b[1].length - a[1].length).slice(0, 2);
  for (const [unit, group] of groups) {
    const shown = group.slice(0, 4);
    const title = shown.length === 1 ? shown[0]!.channel : unit === "" ? shown[0]!.table : `${shown[0]!.table} · ${unit}`;
    panels.push(panel("plot", title, shown.map((c) => c.name)));
  }
  if (states.length > 0) panels.push(panel("states", "States", states.slice(0, 8).map((c) => c.name), { width: 7 }));
  if (channels.length > 0) {
    const now = [...lines.slice(0, 6)];
    if (now.length > 0) panels.push(panel("now", "Now", now.map((c) => c.name), { width: states.length > 0 ? 5 : 12 }));
  }
  return { title: "", panels };
}

/** A view as text for local storage. */
export function freeze(view: View): string {
  return JSON.stringify({ v: 1, title: view.title, panels: view.panels.map(({ id: _, ...rest }) => rest) });
}

/** A view from local storage; null when the text is not one (older page, edited by hand). */
export function thaw(text: string | null): View | null {
  if (text === null) return null;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value !== "object" || value === null) return null;
  const { v, title, panels } = value as { v?: unknown; title?: unknown; panels?: unknown };
  if (v !== 1 || typeof title !== "string" || !Array.isArray(panels)) return null;
  const out: Panel[] = [];
  for (const p of panels.slice(0, MAX_PANELS) as Partial<Panel>[]) {
    if (!KINDS.includes(p.kind as PanelKind) || !Array.isArray(p.channels)) return null;
    out.push(
      panel(p.kind as PanelKind, String(p.title ?? ""), p.channels.map(String), {
        span_s: clamp(Number(p.span_s), 1, 86_400, 60),
        width: clamp(Math.round(Number(p.width)), 2, 12, 6),
        height: clamp(Math.round(Number(p.height)), 1, 4, 1),
      }),
    );
  }
  return { title, panels: out };
}

export function clamp(value: number, low: number, high: number, otherwise = low): number {
  return Number.isFinite(value) ? Math.min(high, Math.max(low, value)) : otherwise;
}
