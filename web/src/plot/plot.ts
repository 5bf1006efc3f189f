// One plot: lines with their min/max band, gaps as shaded breaks, events as named lines, the newest value as a
// dot, and a cursor shared by all plots. uPlot owns scales, axes and cursor; the drawing is ours, from the rings.
import uPlot from "uplot";
import { axesOf, type Sides } from "./axes";
import type { Countdown } from "../text/countdown";
import { DISPLAY_PERIOD_S, type Feed, type Shade } from "../state/feed";
import { type Bound, type Bounded, boundLines, type Box, paintBounds } from "./limits";
import type { Event } from "../connection/message";
import { reach, ValueRange } from "./range";
import type { Series } from "../state/series";
import { secondsBetween } from "../text/time";
import { theme } from "./theme";
import { type Tick, timeTicks, valueTicks, withoutOverlap } from "./ticks";

const AXIS_PX = 54;
/** Between the numbers of an axis and the plot. */
const GAP_PX = 6;
const AXIS_HEIGHT_PX = 24;
const LABEL_PX = 11;
/** Width of one character of the monospaced axis labels at 11 px. */
const CHAR_PX = 6.7;

/** What a plot shows at one moment. */
export interface Frame {
  feed: Feed;
  /** Side of the value axis by channel name, where it is not the unit's. */
  axes: Sides;
  /** Whether min and max are drawn behind the line. */
  band: boolean;
  /** Right edge, s from the feed's origin. */
  now: number;
  spanS: number;
  run: Countdown | null;
  events: Event[];
  live: boolean;
  /** Bounds of channels under limits. */
  bounds: ReadonlyMap<number, Bound[]>;
  /** Short names of the channels, by their numbers. */
  names: ReadonlyMap<number, string>;
  /** Channels whose newest value is stale: drawn grey. */
  stale: ReadonlySet<number>;
}

export interface CursorReading {
  /** s from the feed's origin. */
  at: number;
  values: Map<number, number>;
}

/** Colour of the i-th series; from the seventh on the line is dashed. */
export function seriesColour(i: number): string {
  const colours = theme().series;
  return colours[i % colours.length]!;
}

export class Plot {
  private u: uPlot;
  private frame: Frame | null = null;
  private ranges: ValueRange[] = [];
  /** Widths of the value axes. */
  private axisPx: number[] = [];
  /** Ticks of each axis as they were worked out last. */
  private ticks = new Map<string, Tick[]>();
  /** Of each value axis what stands above it: the left one, the right one, and those that are not drawn. */
  private units: string[] = [];
  /** Axis of each channel, by its number. */
  private axisOf = new Map<number, number>();
  private feed!: Feed;
  private known: { feed: Feed; version: number; axes: Sides } | null = null;

  constructor(
    private readonly host: HTMLElement,
    private readonly onCursor: (reading: CursorReading | null) => void,
  ) {
    this.u = this.make();
  }

  /** Draws anew: new data, a new moment, or a new size. */
  draw(frame: Frame): void {
    this.frame = frame;
    const { feed, axes } = frame;
    this.feed = feed;
    const { known } = this;
    if (known?.feed !== feed || known.version !== feed.version || known.axes !== axes) this.takeUnits(frame);
    const { clientWidth: width, clientHeight: height } = this.host;
    if (width < 40 || height < 40) return;
    this.fit();
    if (width !== this.u.width || height !== this.u.height) this.u.setSize({ width, height });
    // uPlot only needs to know that something changed: ranges and drawing come from the rings.
    const empty = this.u.series.slice(1).map(() => [null, null]);
    this.u.setData([[frame.now - frame.spanS, frame.now], ...empty] as uPlot.AlignedData);
  }

  /** Starts over after a change of theme. */
  restyle(): void {
    this.u.destroy();
    this.u = this.make();
    if (this.frame) this.draw(this.frame);
  }

  destroy(): void {
    this.u.destroy();
  }

  /** The instant under a place of the screen, s from the feed's origin. */
  timeAt(clientX: number): number {
    const box = this.u.over.getBoundingClientRect();
    const { now, spanS } = this.frame ?? { now: 0, spanS: 1 };
    return now - spanS + ((clientX - box.left) / Math.max(1, box.width)) * spanS;
  }

  /** Width of the plot itself, px. */
  get widthPx(): number {
    return this.u.over.clientWidth;
  }

  private takeUnits({ feed, axes }: Frame): void {
    const before = this.units.join("\n");
    this.axisOf = axesOf(feed.channels, axes);
    const count = Math.max(1, ...[...this.axisOf.values()].map((axis) => axis + 1));
    this.units = Array.from({ length: count }, (_, axis) =>
      [...new Set(feed.channels.filter((c) => this.axisOf.get(c.id) === axis).map((c) => c.unit))].filter((u) => u !== "").join(", "));
    const rebuild = Math.min(count, 2) !== Math.min(this.ranges.length || 1, 2);
    // The same channels over another time keep their axes: nothing jumps while one moves through the past.
    if (before !== this.units.join("\n") || this.ranges.length !== count) {
      this.ranges = this.units.map(() => new ValueRange());
      this.axisPx = [];
    }
    this.known = { feed, version: feed.version, axes };
    if (rebuild) {
      this.u.destroy();
      this.u = this.make();
    }
  }

  private fit(): void {
    const { now, spanS } = this.frame!;
    for (let axis = 0; axis < this.units.length; axis++) {
      let min = Infinity;
      let max = -Infinity;
      for (const c of this.feed.channels) {
        if (this.axisOf.get(c.id) !== axis) continue;
        const extent = this.feed.series.get(c.id)?.extent(now - spanS, now);
        if (!extent) continue;
        min = Math.min(min, extent.min);
        max = Math.max(max, extent.max);
      }
      this.ranges[axis]!.fit(min, max);
    }
  }

  private make(): uPlot {
    const t = theme();
    const font = `${LABEL_PX}px ${t.mono}`;
    const second = this.units.length > 1;
    const grid = { stroke: t.line, width: 1 };
    const valueAxis = (scale: string, index: number, side: 1 | 3): uPlot.Axis => ({
      scale, side, gap: GAP_PX, font,
      // Wide enough for its numbers, and never narrower again: nothing jumps.
      size: (_u, values) => {
        const longest = Math.max(0, ...(values ?? []).map((label) => label.length));
        return (this.axisPx[index] = Math.max(this.axisPx[index] ?? AXIS_PX, longest * CHAR_PX + GAP_PX));
      },
      stroke: t.faint, ticks: { show: false },
      grid: index === 0 ? grid : { show: false },
      splits: (u) => this.splits(scale, this.valueSplits(u, index)),
      values: () => this.labels(scale),
    });
    const axes: uPlot.Axis[] = [
      {
        scale: "x", size: AXIS_HEIGHT_PX, gap: 5, font, stroke: t.faint, grid, ticks: { show: false },
        splits: (u) => this.splits("x", this.timeSplits(u)),
        values: () => this.labels("x"),
      },
      valueAxis("y0", 0, 3),
    ];
    const scales: Record<string, uPlot.Scale> = {
      x: { time: false, range: () => this.xRange() },
      y0: { range: () => this.yRange(0) },
    };
    const series: uPlot.Series[] = [{}, { scale: "y0", paths: () => null, points: { show: false } }];
    const data: (number | null)[][] = [[0, 1], [null, null]];
    if (second) {
      axes.push(valueAxis("y1", 1, 1));
      scales.y1 = { range: () => this.yRange(1) };
      series.push({ scale: "y1", paths: () => null, points: { show: false } });
      data.push([null, null]);
    }
    const options: uPlot.Options = {
      width: Math.max(40, this.host.clientWidth),
      height: Math.max(40, this.host.clientHeight),
      padding: [25, second ? 0 : 14, 0, 0],
      legend: { show: false },
      cursor: {
        sync: { key: "time", scales: ["x", null], setSeries: false },
        drag: { x: false, y: false, setScale: false },
        points: { show: false },
        y: false,
      },
      axes, scales, series,
      hooks: {
        drawClear: [(u) => this.paintBehind(u)],
        draw: [(u) => this.paint(u)],
        setCursor: [(u) => this.readCursor(u)],
      },
    };
    return new uPlot(options, data as uPlot.AlignedData, this.host);
  }

  private xRange(): [number, number] {
    return this.frame ? [this.frame.now - this.frame.spanS, this.frame.now] : [0, 1];
  }

  private yRange(index: number): [number, number] {
    const range = this.ranges[index];
    return range ? [range.min, range.max] : [0, 1];
  }

  /** Where the ticks of an axis stand; uPlot asks for their labels right after. */
  private splits(scale: string, ticks: Tick[]): number[] {
    this.ticks.set(scale, ticks);
    return ticks.map((tick) => tick.at);
  }

  private labels(scale: string): string[] {
    return this.ticks.get(scale)?.map((tick) => tick.label) ?? [];
  }

  private timeSplits(u: uPlot): Tick[] {
    const [from, to] = this.xRange();
    const ticks = timeTicks(from, to, this.feed?.origin ?? 0n, this.frame?.run ?? null, u.bbox.width / devicePixelRatio, CHAR_PX);
    // A label centred on a tick near an edge would leave the plot.
    const half = ((ticks[0]?.label.length ?? 0) * CHAR_PX) / 2;
    const width = u.bbox.width / devicePixelRatio;
    return ticks.filter((tick) => {
      const px = ((tick.at - from) / (to - from)) * width;
      return px >= Math.min(half, 12) && px <= width - half + 10;
    });
  }

  private valueSplits(u: uPlot, index: number): Tick[] {
    const [min, max] = this.yRange(index);
    return valueTicks(min, max, u.bbox.height / devicePixelRatio, 36);
  }

  /** Gaps, below grid and lines. */
  private paintBehind(u: uPlot): void {
    const frame = this.frame;
    if (!frame) return;
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.fillStyle = theme().faint;
    ctx.globalAlpha = 0.26;
    for (const shade of this.merged()) {
      const a = u.valToPos(shade.from, "x", true);
      const b = u.valToPos(shade.to, "x", true);
      if (b < bbox.left || a > bbox.left + bbox.width) continue;
      // A gap of milliseconds is still seen.
      const width = Math.max(3 * devicePixelRatio, b - a);
      ctx.fillRect((a + b - width) / 2, bbox.top, width, bbox.height);
    }
    ctx.restore();
  }

  /** Shades of all streams, joined where they touch so that two are not darker than one. */
  private merged(): Shade[] {
    const out: Shade[] = [];
    for (const shade of [...this.feed.shades].sort((a, b) => a.from - b.from)) {
      const last = out.at(-1);
      if (last && shade.from <= last.to) last.to = Math.max(last.to, shade.to);
      else out.push({ ...shade });
    }
    return out;
  }

  private paint(u: uPlot): void {
    const frame = this.frame;
    if (!frame) return;
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width + 5 * devicePixelRatio, bbox.height);
    ctx.clip();
    const taken = this.paintEvents(u, frame);
    // Every band first: no line hides behind another channel's noise.
    const [bands, lines]: (() => void)[][] = [[], []];
    const bounded: Bounded[] = [];
    this.feed.channels.forEach((channel, i) => {
      const series = this.feed.series.get(channel.id);
      const range = this.ranges[this.axisOf.get(channel.id) ?? 0];
      if (!series || series.length === 0 || !range) return;
      const pen: Pen = {
        begin: Math.max(0, series.indexAt(frame.now - frame.spanS)),
        silence: this.feed.silenceS(channel),
        hold: channel.interpolation === "hold",
        dashed: i >= 6,
        colour: frame.live && !frame.stale.has(channel.id) ? seriesColour(i) : theme().stale,
        right: bbox.left + bbox.width,
        x: (t) => bbox.left + ((t - frame.now) / frame.spanS + 1) * bbox.width,
        y: (v) => bbox.top + ((range.max - reach(v)) / (range.max - range.min)) * bbox.height,
      };
      bounded.push({
        name: frame.names.get(channel.id) ?? channel.channel, colour: pen.colour, axis: this.axisOf.get(channel.id) ?? 0,
        bounds: frame.bounds.get(channel.id) ?? [], y: pen.y,
      });
      if (frame.band) bands!.push(() => paintBand(ctx, series, pen));
      lines!.push(() => paintLine(ctx, series, pen));
    });
    for (const band of bands!) band();
    const paintNames = paintBounds(ctx, boundLines(bounded), bbox, `${LABEL_PX * devicePixelRatio}px ${theme().mono}`, devicePixelRatio, taken);
    for (const line of lines!) line();
    paintNames();
    ctx.restore();
    this.paintUnits(u);
  }

  /** The unit of each axis, above its topmost number. */
  private paintUnits(u: uPlot): void {
    const { ctx, bbox } = u;
    const t = theme();
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.font = `${LABEL_PX * ratio}px ${t.mono}`;
    ctx.fillStyle = t.muted;
    ctx.textBaseline = "bottom";
    ctx.textAlign = "right";
    ctx.fillText(this.units[0] ?? "", bbox.left - 6 * ratio, bbox.top - 8 * ratio);
    if (this.units.length > 1) {
      ctx.textAlign = "left";
      ctx.fillText(this.units[1]!, bbox.left + bbox.width + 6 * ratio, bbox.top - 8 * ratio);
    }
    ctx.restore();
  }

  /** Answers where their names stand. */
  private paintEvents(u: uPlot, frame: Frame): Box[] {
    const { ctx, bbox } = u;
    const t = theme();
    const ratio = devicePixelRatio;
    ctx.font = `${LABEL_PX * ratio}px ${t.ui}`;
    ctx.textBaseline = "top";
    const labels: { at: number; width: number; x: number; text: string; colour: string }[] = [];
    for (const event of frame.events) {
      const s = secondsBetween(this.feed.origin, BigInt(event.time));
      if (s < frame.now - frame.spanS || s > frame.now) continue;
      const x = u.valToPos(s, "x", true);
      const colour = eventColour(event.level);
      ctx.strokeStyle = colour;
      ctx.globalAlpha = 0.85;
      ctx.lineWidth = ratio;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const text = event.text.length > 28 ? `${event.text.slice(0, 27)}…` : event.text;
      const width = ctx.measureText(text).width;
      const right = x + 4 * ratio + width <= bbox.left + bbox.width;
      labels.push({ at: right ? x + 4 * ratio : x - 4 * ratio - width, width, x, text, colour });
    }
    ctx.globalAlpha = 1;
    ctx.textAlign = "left";
    const names: Box[] = [];
    // Newest first: where two labels would touch, the older one gives way.
    for (const label of withoutOverlap(labels.sort((a, b) => b.x - a.x), 6 * ratio)) {
      if (label.at < bbox.left) continue;
      names.push({ left: label.at - 2 * ratio, top: bbox.top, width: label.width + 4 * ratio, height: (LABEL_PX + 5) * ratio });
      ctx.fillStyle = t.bg;
      ctx.globalAlpha = 0.7;
      ctx.fillRect(label.at - 2 * ratio, bbox.top + ratio, label.width + 4 * ratio, (LABEL_PX + 4) * ratio);
      ctx.globalAlpha = 1;
      ctx.fillStyle = t.muted;
      ctx.fillText(label.text, label.at, bbox.top + 3 * ratio);
    }
    return names;
  }

  private readCursor(u: uPlot): void {
    const left = u.cursor.left;
    this.onCursor(left == null || left < 0 || !this.frame ? null : this.reading(u.posToVal(left, "x")));
  }

  /** What each channel was at an instant. */
  reading(at: number): CursorReading {
    const values = new Map<number, number>();
    for (const channel of this.feed.channels) {
      const series = this.feed.series.get(channel.id);
      const i = series?.indexAt(at) ?? -1;
      if (!series || i < 0) continue;
      const k = series.slot(i);
      // Nothing is read out of a silence or from beyond the newest value.
      if (at - series.t1[k]! > this.feed.silenceS(channel) + DISPLAY_PERIOD_S) continue;
      values.set(channel.id, series.count[k]! > 1 ? series.mean[k]! : series.last[k]!);
    }
    return { at, values };
  }
}

/** How one series is drawn. */
interface Pen {
  /** First entry in sight. */
  begin: number;
  /** Seconds without data over which no line is drawn. */
  silence: number;
  /** The value holds until the next: steps. */
  hold: boolean;
  dashed: boolean;
  colour: string;
  /** Right edge of the plot. */
  right: number;
  x: (t: number) => number;
  y: (value: number) => number;
}

/** The band: everything between min and max of each bucket. */
function paintBand(ctx: CanvasRenderingContext2D, series: Series, { begin, silence, colour, x, y }: Pen): void {
  const ratio = devicePixelRatio;
  ctx.fillStyle = colour;
  ctx.globalAlpha = 0.3;
  // One path for all: hundreds of rectangles a line, five times a second, filled each by itself, cost more than the line.
  ctx.beginPath();
  for (let i = begin; i < series.length; i++) {
    const k = series.slot(i);
    if (series.count[k]! < 2 || series.min[k]! === series.max[k]!) continue;
    const a = x(series.t0[k]!);
    // A bucket reaches to the next one, unless something is missing between them.
    const next = i + 1 < series.length ? series.slot(i + 1) : -1;
    const joined = next >= 0 && series.broken[next] === 0 && series.t0[next]! - series.t1[k]! <= silence;
    const width = Math.max(1.2 * ratio, x(joined ? series.t0[next]! : series.t1[k]!) - a);
    const top = y(series.max[k]!);
    ctx.rect(a, top, width, Math.max(ratio, y(series.min[k]!) - top));
  }
  ctx.fill();
  ctx.globalAlpha = 1;
}

/** The line: the mean of each bucket, or a step for values that hold; the newest value is a dot. */
function paintLine(ctx: CanvasRenderingContext2D, series: Series, pen: Pen): void {
  const { begin, silence, hold, colour, x, y } = pen;
  const ratio = devicePixelRatio;
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.5 * ratio;
  ctx.lineJoin = "round";
  ctx.setLineDash(pen.dashed ? [5 * ratio, 4 * ratio] : []);
  ctx.beginPath();
  let lastT = -Infinity;
  let lastX = 0;
  let lastY = 0;
  let run = 0;
  // Points between two breaks have no line: they are drawn as points.
  const alone: [number, number][] = [];
  for (let i = begin; i < series.length; i++) {
    const k = series.slot(i);
    const many = series.count[k]! > 1;
    const px = x(many ? (series.t0[k]! + series.t1[k]!) / 2 : series.t0[k]!);
    const py = y(many ? series.mean[k]! : series.last[k]!);
    if (i === begin || series.broken[k] === 1 || series.t0[k]! - lastT > silence) {
      if (run === 1) alone.push([lastX, lastY]);
      ctx.moveTo(px, py);
      run = 1;
    } else {
      if (hold && !many) ctx.lineTo(px, lastY);
      ctx.lineTo(px, py);
      run++;
    }
    lastT = series.t1[k]!;
    lastX = px;
    lastY = py;
  }
  if (run === 1) alone.push([lastX, lastY]);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.fillStyle = colour;
  for (const [px, py] of alone) dot(ctx, px, py, 1.5 * ratio);
  const k = series.newest();
  // A look at the past goes on beyond its right edge: there is no newest value in sight.
  const end = x(series.t1[k]!);
  if (end <= pen.right + 3 * ratio) dot(ctx, Math.min(end, pen.right), y(series.last[k]!), 3 * ratio);
}

export function eventColour(level: Event["level"]): string {
  const t = theme();
  return level === "critical" ? t.crit : level === "warning" ? t.warn : level === "watch" ? t.watch : t.muted;
}

function dot(ctx: CanvasRenderingContext2D, x: number, y: number, radius: number): void {
  ctx.beginPath();
  ctx.arc(x, y, radius, 0, 2 * Math.PI);
  ctx.fill();
}
