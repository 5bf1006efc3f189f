// Limits in plots: the bounds of a channel as dashed lines with their names.
import type { Channel, Limit } from "./message";
import { matching } from "./pattern";
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

/** Draws those in sight, with their names at the right where they do not collide. */
export function paintBounds(
  ctx: CanvasRenderingContext2D, bounds: Bound[], box: { left: number; top: number; width: number; height: number },
  y: (value: number) => number, font: string, ratio: number,
): void {
  const t = theme();
  const colours = { critical: t.crit, warning: t.warn, watch: t.watch };
  const light = currentTheme() === "light";
  const named: number[] = [];
  ctx.save();
  ctx.font = font;
  ctx.textAlign = "right";
  ctx.textBaseline = "bottom";
  ctx.lineWidth = ratio;
  const seen = bounds.map((bound) => ({ bound, at: y(bound.value) })).filter(({ at }) => at >= box.top && at <= box.top + box.height);
  // Every line before any name: no line runs through a name.
  for (const { bound, at } of seen) {
    ctx.strokeStyle = colours[bound.level];
    ctx.setLineDash([6 * ratio, 4 * ratio]);
    ctx.globalAlpha = 0.8;
    ctx.beginPath();
    ctx.moveTo(box.left, at);
    ctx.lineTo(box.left + box.width, at);
    ctx.stroke();
  }
  for (const { bound, at } of seen) {
    // The names of events stand along the top.
    const below = at - box.top < 34 * ratio;
    const foot = below ? Math.max(at + 14 * ratio, box.top + 32 * ratio) : at - 2 * ratio;
    if (named.some((other) => Math.abs(other - foot) < 13 * ratio)) continue;
    named.push(foot);
    const width = ctx.measureText(bound.name).width;
    ctx.save();
    ctx.fillStyle = t.bg;
    ctx.globalAlpha = 0.7;
    ctx.fillRect(box.left + box.width - 10 * ratio - width, foot - 12 * ratio, width + 4 * ratio, 13 * ratio);
    ctx.restore();
    ctx.globalAlpha = 1;
    // Signal colours are bright: on a light ground they are no ink.
    ctx.fillStyle = light ? t.text : colours[bound.level];
    ctx.fillText(bound.name, box.left + box.width - 8 * ratio, foot);
  }
  ctx.restore();
}
