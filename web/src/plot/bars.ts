// States over time: one bar a channel with the states' names inside, on the same time axis as the plots.
import type { Countdown } from "../text/countdown";
import type { Feed } from "../state/feed";
import type { Channel } from "../connection/message";
import { fitted, type ListedName } from "../text/names";
import { theme } from "./theme";
import { timeTicks } from "./ticks";
import { type Segment, Tints } from "../state/track";

const AXIS_HEIGHT_PX = 24;
const CHAR_PX = 6.7;
const LEFT_PX = 8;
const RIGHT_PX = 14;
/** Between the lines of a stretch of many changes. */
const MANY_PX = 4;
const TOP_PX = 8;
/** How strongly bars are filled, by shade: coloured ones, and neutral ones. */
const ALPHAS = [[0.36, 0.75, 0.18], [0.9, 0.5, 0.2]] as const;
/** On all panels alike. */
const tints = new Tints();

export interface BarsFrame {
  now: number;
  spanS: number;
  run: Countdown | null;
  live: boolean;
  stale: ReadonlySet<number>;
  labelPx: number;
  /** Names of channels as the panel lists them. */
  namesOf: (channels: readonly Channel[]) => ListedName[];
}

/** Left and right edge of the time axis in a canvas of a width, px. */
export function barEdges(width: number, labelPx: number): [number, number] {
  return [LEFT_PX + labelPx, width - RIGHT_PX];
}

/** Height of a row and of the bar in it, px. */
function rowsOf(height: number, rows: number): { rowPx: number; barPx: number } {
  const rowPx = Math.min(44, (height - AXIS_HEIGHT_PX - TOP_PX) / Math.max(1, rows));
  return { rowPx, barPx: Math.max(6, Math.min(22, rowPx - 5)) };
}

/** The bar at a height of the canvas and a time, s; null if there is none. */
export function barAt(feed: Pick<Feed, "channels" | "tracks">, height: number, y: number, at: number): { channel: Channel; segment: Segment } | null {
  const channel = feed.channels[Math.floor((y - TOP_PX) / rowsOf(height, feed.channels.length).rowPx)];
  const segment = channel && feed.tracks.get(channel.id)?.at(at);
  return channel && segment && at <= segment.to ? { channel, segment } : null;
}

/** Draws every bar into the canvas, which it first gives the size of its box. */
export function drawBars(canvas: HTMLCanvasElement, feed: Feed, frame: BarsFrame): void {
  const ratio = devicePixelRatio;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (width < 80 || height < 40) return;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const ctx = canvas.getContext("2d");
  if (!ctx) return;
  const t = theme();
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);

  const [left, right] = barEdges(width, frame.labelPx);
  const bottom = height - AXIS_HEIGHT_PX;
  const from = frame.now - frame.spanS;
  const x = (s: number) => left + ((s - from) / frame.spanS) * (right - left);

  ctx.font = `11px ${t.mono}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "top";
  for (const tick of timeTicks(from, frame.now, feed.origin, frame.run, right - left, CHAR_PX)) {
    const px = x(tick.at);
    ctx.fillStyle = t.line;
    ctx.fillRect(Math.round(px), 8, 1, bottom - 8);
    const half = (tick.label.length * CHAR_PX) / 2;
    if (px - half < left - 14 || px + half > width - 2) continue;
    ctx.fillStyle = t.faint;
    ctx.fillText(tick.label, px, bottom + 6);
  }

  const names = frame.namesOf(feed.channels);
  const { rowPx, barPx } = rowsOf(height, feed.channels.length);
  feed.channels.forEach((channel, i) => {
    const top = TOP_PX + i * rowPx + (rowPx - barPx) / 2;
    const stale = !frame.live || frame.stale.has(channel.id);
    ctx.font = `12px ${t.ui}`;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.fillStyle = stale ? t.stale : t.muted;
    const name = fitted(names[i]!, frame.labelPx - 8, (text) => ctx.measureText(text).width);
    ctx.fillText(name, LEFT_PX + 4, top + barPx / 2);
    if (stale) ctx.fillRect(LEFT_PX + 4, top + barPx / 2, ctx.measureText(name).width, 1);
    ctx.font = `11px ${t.mono}`;
    const track = feed.tracks.get(channel.id);
    if (!track) return;
    for (const segment of track.segments) {
      // A look at the past has what comes after it at hand.
      if (segment.to < from || segment.from > frame.now) continue;
      const a = Math.max(left, x(segment.from));
      const b = Math.min(right, Math.max(x(segment.to), a + 1));
      const { colour, shade } = segment.many ? { colour: 0, shade: 0 } : tints.of(channel.name, segment.state);
      ctx.globalAlpha = ALPHAS[colour === 0 || stale ? 1 : 0][shade]!;
      ctx.fillStyle = colour === 0 || stale ? t.line2 : t.series[colour - 1]!;
      ctx.beginPath();
      ctx.roundRect(a, top, Math.max(1, b - a - 1), barPx, Math.max(0, Math.min(3, (b - a) / 2)));
      ctx.fill();
      ctx.globalAlpha = 1;
      if (segment.many) {
        // Changes that cannot be told apart: upright lines, so that they are no state.
        ctx.fillStyle = stale ? t.stale : t.muted;
        for (let line = a; line < b; line += MANY_PX) ctx.fillRect(line, top, 1, barPx);
      } else {
        // Something changed and came back between two updates: a mark, since its time is not known closer.
        ctx.fillStyle = t.text;
        for (const mark of segment.marks) if (mark >= from && mark <= frame.now) ctx.fillRect(x(mark), top, 2, barPx);
      }
      const room = b - a - 12;
      if (barPx >= 12 && room >= 2 * CHAR_PX) {
        const fits = Math.floor(room / CHAR_PX);
        const state = segment.many ? "many changes" : segment.state;
        if (state.length <= fits || fits >= 5) {
          const text = state.length <= fits ? state : `${state.slice(0, fits - 1)}…`;
          if (segment.many) {
            ctx.fillStyle = t.line2;
            ctx.fillRect(a + 3, top, text.length * CHAR_PX + 6, barPx);
          }
          ctx.fillStyle = stale ? t.stale : t.text;
          ctx.fillText(text, a + 6, top + barPx / 2 + 0.5);
        }
      }
    }
    // Gaps of this channel's stream: hatched, so that they are no state of any colour.
    for (const shade of feed.shades) {
      if (shade.stream !== channel.stream || shade.to < from || shade.from > frame.now) continue;
      const a = Math.max(left, x(shade.from) - 1);
      const b = Math.min(right, Math.max(x(shade.to), a + 3));
      ctx.fillStyle = t.bg;
      ctx.fillRect(a, top, b - a, barPx);
      ctx.fillStyle = t.faint;
      for (let h = 0; h < barPx; h += 4) ctx.fillRect(a, top + h, b - a, 1);
    }
  });
}
