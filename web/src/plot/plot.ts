// One plot: lines with their min/max band, gaps as shaded breaks, events as named lines, the newest value as a
// dot, and a cursor shared by all plots. uPlot owns scales, axes and cursor; the drawing is ours, from the rings.
import uPlot from "uplot";
import { aboveZeroOn, axesOf, drawnOf, extentOn, type Sides, unitsOf } from "./axes";
import type { Countdown } from "../text/countdown";
import type { Feed } from "../state/feed";
import { type Bound, type Bounded, boundLines, type Box, paintBounds } from "./limits";
import { eventLabels, eventLines, joinedShades } from "./marks";
import type { Event } from "../connection/message";
import { type Ends, type Panel, type Scale, SIDES } from "../layout/panel";
import { endPlaces, ValueRange, withEnds } from "./range";
import { type CursorReading, readingAt } from "./reading";
import type { Series } from "../state/series";
import { theme } from "./theme";
import { logTicks, type Tick, timeTicks, valueTicks, withinEdges } from "./ticks";
import { newestPoint, traceBand, traceLine, type View } from "./trace";

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
  /** Ends of the left and the right axis that do not follow the data. */
  ends: Panel["ends"];
  /** Which of the two are logarithmic. */
  scales: Panel["scales"];
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
  /** Channels that are not drawn, and that the axes need not fit. */
  hidden: ReadonlySet<number>;
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
  /** Min and max of what each axis shows; min is above max where that is nothing. */
  private extents: { min: number; max: number }[] = [];
  /** On each logarithmic axis, how many channels have values that are not above zero. */
  private unplaced: number[] = [];
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
    this.ranges = this.ranges.map((range, i) => (range.scale === this.scaleOf(i) ? range : new ValueRange(this.scaleOf(i))));
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
    this.units = unitsOf(feed.channels, this.axisOf);
    const count = this.units.length;
    const rebuild = Math.min(count, 2) !== Math.min(this.ranges.length || 1, 2);
    // The same channels over another time keep their axes: nothing jumps while one moves through the past.
    if (before !== this.units.join("\n") || this.ranges.length !== count) {
      this.ranges = this.units.map((_, i) => new ValueRange(this.scaleOf(i)));
      this.axisPx = [];
    }
    this.known = { feed, version: feed.version, axes };
    if (rebuild) {
      this.u.destroy();
      this.u = this.make();
    }
  }

  private fit(): void {
    const { now, spanS, hidden } = this.frame!;
    const drawn = drawnOf(this.axisOf, hidden);
    for (let axis = 0; axis < this.units.length; axis++) {
      const extent = extentOn(axis, drawn, this.feed.series, now - spanS, now);
      this.extents[axis] = extent;
      this.unplaced[axis] = 0;
      const range = this.ranges[axis]!;
      if (range.scale === "linear") range.fit(extent.min, extent.max);
      else {
        const { least, others } = aboveZeroOn(axis, drawn, this.feed.series, now - spanS, now);
        this.unplaced[axis] = others;
        range.fit(least, extent.max);
      }
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

  /** Whether there is no channel to draw: the panel says what to do about it, and nothing is drawn over its words. */
  private get isEmpty(): boolean {
    return (this.feed?.channels.length ?? 0) === 0;
  }

  private xRange(): [number, number] {
    return this.frame ? [this.frame.now - this.frame.spanS, this.frame.now] : [0, 1];
  }

  /** The places at both ends of an axis. */
  private yRange(index: number): [number, number] {
    const range = this.ranges[index];
    return range ? withEnds(range, endPlaces(this.endsOf(index), range.scale)) : [0, 1];
  }

  private endsOf(index: number): Ends | undefined {
    const side = SIDES[index];
    return side && this.frame?.ends[side];
  }

  private scaleOf(index: number): Scale {
    const side = SIDES[index];
    return (side && this.frame?.scales[side]) ?? "linear";
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
    const width = u.bbox.width / devicePixelRatio;
    const ticks = timeTicks(from, to, this.feed?.origin ?? 0n, this.frame?.run ?? null, width, CHAR_PX);
    return withinEdges(ticks, from, to, width, CHAR_PX);
  }

  private valueSplits(u: uPlot, index: number): Tick[] {
    // Where no value was ever in sight, numbers would be made up.
    if (this.isEmpty || !this.ranges[index]?.isKnown) return [];
    const [min, max] = this.yRange(index);
    const height = u.bbox.height / devicePixelRatio;
    return this.ranges[index].scale === "log" ? logTicks(min, max, height) : valueTicks(min, max, height, 36);
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
    for (const shade of joinedShades(this.feed.shades)) {
      const a = u.valToPos(shade.from, "x", true);
      const b = u.valToPos(shade.to, "x", true);
      if (b < bbox.left || a > bbox.left + bbox.width) continue;
      // A gap of milliseconds is still seen.
      const width = Math.max(3 * devicePixelRatio, b - a);
      ctx.fillRect((a + b - width) / 2, bbox.top, width, bbox.height);
    }
    ctx.restore();
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
      if (!series || series.length === 0 || !range || frame.hidden.has(channel.id)) return;
      const [min, max] = this.yRange(this.axisOf.get(channel.id) ?? 0);
      const pen: Pen = {
        begin: Math.max(0, series.indexAt(frame.now - frame.spanS)),
        silence: this.feed.silenceS(channel),
        hold: channel.interpolation === "hold",
        dashed: i >= 6,
        colour: frame.live && !frame.stale.has(channel.id) ? seriesColour(i) : theme().stale,
        right: bbox.left + bbox.width,
        ratio: devicePixelRatio,
        x: (t) => bbox.left + ((t - frame.now) / frame.spanS + 1) * bbox.width,
        y: (v) => bbox.top + beyond((max - range.place(v)) / (max - min)) * bbox.height,
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
    this.paintBeyond(u);
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

  /** What lies beyond ends that were set or has no place on a logarithmic axis: no value is out of sight unseen. */
  private paintBeyond(u: uPlot): void {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.font = `${LABEL_PX * ratio}px ${theme().mono}`;
    const say = (text: string, x: number, y: number) => {
      const width = ctx.measureText(text).width;
      // Lines run here: the text stands on a ground of its own.
      ctx.fillStyle = theme().bg;
      ctx.globalAlpha = 0.7;
      ctx.fillRect(ctx.textAlign === "left" ? x : x - width, ctx.textBaseline === "top" ? y : y - LABEL_PX * ratio, width, LABEL_PX * ratio);
      ctx.globalAlpha = 1;
      ctx.fillStyle = theme().text;
      ctx.fillText(text, x, y);
    };
    this.ranges.slice(0, 2).forEach((range, index) => {
      const extent = this.extents[index];
      const unplaced = this.unplaced[index] ?? 0;
      if ((!this.endsOf(index) && unplaced === 0) || !extent || extent.min > extent.max) return;
      const [min, max] = this.yRange(index);
      const why = unplaced === 0 ? "" : ` (≤ 0 in ${unplaced} ${unplaced === 1 ? "channel" : "channels"})`;
      ctx.textAlign = index === 0 ? "left" : "right";
      const x = index === 0 ? bbox.left + 4 * ratio : bbox.left + bbox.width - 4 * ratio;
      ctx.textBaseline = "top";
      if (range.place(extent.max) > max) say(`▲ ${figure(extent.max)}`, x, bbox.top + 18 * ratio);
      ctx.textBaseline = "bottom";
      if (unplaced > 0 || range.place(extent.min) < min) say(`▼ ${figure(extent.min)}${why}`, x, bbox.top + bbox.height - 3 * ratio);
    });
    ctx.restore();
  }

  /** Answers where their names stand. */
  private paintEvents(u: uPlot, frame: Frame): Box[] {
    const { ctx, bbox } = u;
    const t = theme();
    const ratio = devicePixelRatio;
    ctx.font = `${LABEL_PX * ratio}px ${t.ui}`;
    ctx.textBaseline = "top";
    const lines = eventLines(this.isEmpty ? [] : frame.events, this.feed.origin, frame.now - frame.spanS, frame.now, (s) => u.valToPos(s, "x", true));
    ctx.globalAlpha = 0.85;
    ctx.lineWidth = ratio;
    for (const { event, x } of lines) {
      ctx.strokeStyle = eventColour(event.level);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.globalAlpha = 1;
    ctx.textAlign = "left";
    const names: Box[] = [];
    for (const label of eventLabels(lines, bbox.left, bbox.left + bbox.width, (text) => ctx.measureText(text).width, ratio)) {
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
    return readingAt(this.feed, at);
  }
}

/**
 * A place in a plot as a share of its height from the top, at most one height out of sight: dashes there cost as much
 * as dashes in sight, and on a logarithmic axis zero is hundreds of heights away.
 */
const beyond = (share: number): number => Math.min(2, Math.max(-1, share));

/** A value in few characters. */
const figure = (value: number): string => String(Number(value.toPrecision(4))).replace("-", "−");

/** How one series is drawn. */
interface Pen extends View {
  dashed: boolean;
  colour: string;
  /** Right edge of the plot. */
  right: number;
}

function paintBand(ctx: CanvasRenderingContext2D, series: Series, pen: Pen): void {
  ctx.fillStyle = pen.colour;
  ctx.globalAlpha = 0.3;
  // One path for all: hundreds of rectangles a line, five times a second, filled one by one, cost more than the line.
  ctx.beginPath();
  traceBand(ctx, series, pen);
  ctx.fill();
  ctx.globalAlpha = 1;
}

/** The line, points that stand alone, and the newest value as a dot. */
function paintLine(ctx: CanvasRenderingContext2D, series: Series, pen: Pen): void {
  const { colour, ratio } = pen;
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.5 * ratio;
  ctx.lineJoin = "round";
  ctx.setLineDash(pen.dashed ? [5 * ratio, 4 * ratio] : []);
  ctx.beginPath();
  const alone = traceLine(ctx, series, pen);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.fillStyle = colour;
  for (const [x, y] of alone) dot(ctx, x, y, 1.5 * ratio);
  const newest = newestPoint(series, pen, pen.right);
  if (newest) dot(ctx, newest[0], newest[1], 3 * ratio);
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
