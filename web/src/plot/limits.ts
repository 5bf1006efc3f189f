// Limits in plots: the bounds of a channel as dashed lines with their names.
import type { Channel, Limit } from "../connection/message";
import { matching } from "../text/pattern";
import { currentTheme, theme } from "./theme";

export interface Bound {
  level: "watch" | "warning" | "critical";
  value: number;
  name: string;
}

const LEVELS = ["critical", "warning", "watch"] as const;

/** The bounds of a channel, worst first, each value once. */
export function boundsOf(channel: Channel, limits: Limit[]): Bound[] {
  const found: Bound[] = [];
  for (const limit of limits) {
    if (!limit.channels.some((pattern) => matching(pattern, [channel]).length > 0)) continue;
    for (const level of LEVELS) {
      const bounds = limit[level];
      for (const [side, value] of [["high", bounds?.high], ["low", bounds?.low]] as const) {
        if (value != null) found.push({ level, value, name: `${level} ${side} ${value}` });
      }
    }
  }
  found.sort((a, b) => LEVELS.indexOf(a.level) - LEVELS.indexOf(b.level));
  return found.filter((bound, i) => found.findIndex((other) => other.value === bound.value) === i);
}

/** A channel under limits, as a plot draws it. */
export interface Bounded {
  name: string;
  colour: string;
  /** Its value axis. */
  axis: number;
  bounds: Bound[];
  /** Where a value stands, px. */
  y: (value: number) => number;
}

/** A line of a plot, and whose it is. */
export interface BoundLine {
  level: Bound["level"];
  at: number;
  text: string;
  /** Colours of the channels that it belongs to; none where it is of every channel of the plot. */
  colours: string[];
}

const OWNERS_MAX = 2;

/** The lines of a plot, worst first: the same bound of many channels is one, and says of which unless of all. */
export function boundLines(channels: Bounded[]): BoundLine[] {
  const found = new Map<string, { bound: Bound; at: number; owners: Bounded[] }>();
  for (const channel of channels) {
    for (const bound of channel.bounds) {
      const key = `${channel.axis} ${bound.name}`;
      const line = found.get(key);
      if (line) line.owners.push(channel);
      else found.set(key, { bound, at: channel.y(bound.value), owners: [channel] });
    }
  }
  return [...found.values()].map(({ bound, at, owners }) => {
    const isOfAll = owners.length === channels.length;
    const more = owners.length > OWNERS_MAX ? ` +${owners.length - OWNERS_MAX}` : "";
    const whose = isOfAll ? "" : `${owners.slice(0, OWNERS_MAX).map((o) => o.name).join(", ")}${more} · `;
    return { level: bound.level, at, text: `${whose}${bound.name}`, colours: isOfAll ? [] : owners.map((o) => o.colour) };
  }).sort((a, b) => LEVELS.indexOf(a.level) - LEVELS.indexOf(b.level));
}

export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

/**
 * Where labels stand: each centred on its own line, at the right, and left of those before it that it would touch. One that
 * finds no room there stands at the right in the nearest row that is free.
 */
export function placeLabels(labels: { at: number; width: number }[], box: Box, heightPx: number, gapPx: number, taken: Box[] = []): Box[] {
  const placed: Box[] = [];
  const edge = box.left + box.width - gapPx;
  const lowest = box.top + box.height - heightPx;
  const leftOf = (top: number, width: number): number => {
    let left = edge - width;
    for (;;) {
      const hit = [...taken, ...placed].find((o) => o.top < top + heightPx && top < o.top + o.height && o.left < left + width + gapPx && left < o.left + o.width + gapPx);
      if (!hit) return left;
      left = hit.left - gapPx - width - 0.01;
    }
  };
  for (const { at, width } of labels) {
    const own = Math.max(box.top, Math.min(lowest, at - heightPx / 2));
    let place = { left: leftOf(own, width), top: own, width, height: heightPx };
    for (let step = 1; place.left < box.left && step * heightPx < box.height; step++) {
      for (const top of [own - step * heightPx, own + step * heightPx]) {
        if (top < box.top || top > lowest || place.left >= box.left) continue;
        place = { ...place, left: leftOf(top, width), top };
      }
    }
    placed.push({ ...place, left: Math.max(box.left, place.left) });
  }
  return placed;
}

/** Draws the lines in sight, and answers how their names are drawn, each on its own; `taken`: where names of other things stand. */
export function paintBounds(ctx: CanvasRenderingContext2D, lines: BoundLine[], box: Box, font: string, ratio: number, taken: Box[]): () => void {
  const t = theme();
  const colours = { critical: t.crit, warning: t.warn, watch: t.watch };
  const light = currentTheme() === "light";
  const seen = lines.filter(({ at }) => at >= box.top && at <= box.top + box.height);
  ctx.save();
  ctx.font = font;
  ctx.lineWidth = ratio;
  // Every line before any name: no line runs through a name.
  for (const { level, at } of seen) {
    ctx.strokeStyle = colours[level];
    ctx.setLineDash([6 * ratio, 4 * ratio]);
    ctx.globalAlpha = 0.8;
    ctx.beginPath();
    ctx.moveTo(box.left, at);
    ctx.lineTo(box.left + box.width, at);
    ctx.stroke();
  }
  const keys = (line: BoundLine) => line.colours.slice(0, OWNERS_MAX);
  const labels = seen.map((line) => ({ at: line.at, width: ctx.measureText(line.text).width + (6 + 10 * keys(line).length) * ratio }));
  ctx.restore();
  return () => placeLabels(labels, box, 13 * ratio, 8 * ratio, taken).forEach((place, i) => {
    ctx.save();
    ctx.font = font;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    const line = seen[i]!;
    const middle = place.top + place.height / 2;
    // What is measured shines through.
    ctx.globalAlpha = 0.55;
    ctx.fillStyle = t.bg;
    ctx.fillRect(place.left, place.top, place.width, place.height);
    ctx.globalAlpha = 1;
    let left = place.left + 3 * ratio;
    for (const colour of keys(line)) {
      ctx.fillStyle = colour;
      ctx.fillRect(left, middle - 3.5 * ratio, 7 * ratio, 7 * ratio);
      left += 10 * ratio;
    }
    // Signal colours are bright: on a light ground they are no ink.
    ctx.fillStyle = light ? t.text : colours[line.level];
    ctx.fillText(line.text, left, middle + 0.5 * ratio);
    ctx.restore();
  });
}
