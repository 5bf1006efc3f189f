import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import type { Bucket, Channel } from "../connection/message";
import { Feed } from "../state/feed";
import type { CursorReading } from "./reading";

interface Options {
  width: number;
  scales: Record<string, { range: () => [number, number] }>;
  axes: { scale: string; size?: (u: unknown, values: string[]) => number; splits: (u: unknown) => number[]; values: () => string[] }[];
  hooks: Record<"drawClear" | "draw" | "setCursor", ((u: unknown) => void)[]>;
}

const made = vi.hoisted(() => [] as { options: unknown; destroyed: boolean; data: unknown; size: unknown }[]);

// The part of uPlot that a plot talks to: it draws nothing, and calls the hooks when a test says so.
vi.mock("uplot", () => ({
  default: class {
    destroyed = false;
    data: unknown = null;
    size: unknown = null;
    width: number;
    height: number;
    cursor = { left: -10 };
    over = { clientWidth: 400, getBoundingClientRect: () => ({ left: 100, width: 400 }) };
    bbox = { left: 54, top: 25, width: 400, height: 200 };
    series: unknown[];
    ctx = recorder();
    constructor(readonly options: { width: number; height: number; series: unknown[] }) {
      [this.width, this.height, this.series] = [options.width, options.height, options.series];
      made.push(this);
    }
    setData(data: unknown) {
      this.data = data;
    }
    setSize(size: unknown) {
      this.size = size;
    }
    valToPos(value: number) {
      return 54 + value;
    }
    posToVal(px: number) {
      return px;
    }
    destroy() {
      this.destroyed = true;
    }
  },
}));

/** A canvas that writes down what was called on it, with the colour it was called in. */
function recorder() {
  const calls: { name: string; args: unknown[]; colour: unknown; stroke: unknown }[] = [];
  const state: Record<string, unknown> = { calls };
  return new Proxy(state, {
    get: (of, name: string) => of[name] ?? ((...args: unknown[]) => {
      calls.push({ name, args, colour: of.fillStyle, stroke: of.strokeStyle });
      return name === "measureText" ? { width: 7 * String(args[0]).length } : undefined;
    }),
    set: (of, name: string, value) => ((of[name] = value), true),
  }) as unknown as { calls: typeof calls };
}

const { Plot } = await import("./plot");

const channel = (id: number, unit: string): Channel => ({
  id, name: `t.c${id}`, table: "t", channel: `c${id}`, tags: {}, stream: 1, type: "f64", unit, description: "", source: "s",
  expected_period_ns: null, interpolation: "linear",
});
const bucket = (s: number, min: number, max: number): Bucket => [String(BigInt(s * 1e9)), 9, min, max, min, max, (min + max) / 2];

/** A feed of 60 s, each channel with a value from 0 to 1 each second, and a spike of 50 in the 30th of the first. */
function feed(...channels: Channel[]): Feed {
  const of = new Feed(0n, 60, false);
  of.past(channels, channels.map((one, i) => ({
    channel: one, gaps: [], buckets: Array.from({ length: 60 }, (_, s) => bucket(s, 0, i === 0 && s === 30 ? 50 : 1)),
  })) as unknown as Parameters<Feed["past"]>[1]);
  return of;
}
const frame = (of: Feed, more: object = {}) => ({
  feed: of, axes: {}, ends: {}, scales: {}, band: true, now: 60, spanS: 60, run: null, events: [], live: true, bounds: new Map(), names: new Map(),
  stale: new Set<number>(), hidden: new Set<number>(), ...more,
});
/** A feed with one value a second of each channel. */
function valued(...all: [Channel, number[]][]): Feed {
  const of = new Feed(0n, 60, false);
  of.past(all.map(([one]) => one), all.map(([one, values]) => ({
    channel: one, gaps: [], buckets: values.map((v, s) => [String(BigInt(s * 1e9)), 1, v, v, v, v, v]),
  })) as unknown as Parameters<Feed["past"]>[1]);
  return of;
}
const newest = () => made.at(-1)! as unknown as { options: Options; data: unknown; size: unknown; ctx: ReturnType<typeof recorder>; cursor: { left: number } };
/** Draws as uPlot would, and answers what came onto the canvas. */
function painted() {
  const u = newest();
  u.ctx.calls.length = 0;
  for (const hook of [...u.options.hooks.drawClear, ...u.options.hooks.draw]) hook(u);
  return [...u.ctx.calls];
}

/** What is said of values beyond the ends of the axes. */
const marks = () => painted().filter((c) => c.name === "fillText").map((c) => String(c.args[0])).filter((t) => /[▲▼]/.test(t));
function axisLabels(index: number): string[] {
  const axis = newest().options.axes[index]!;
  axis.splits(newest());
  return axis.values();
}

let host: { clientWidth: number; clientHeight: number };
let readings: (CursorReading | null)[];
const plot = () => new Plot(host as HTMLElement, (reading) => readings.push(reading));

beforeAll(() => {
  const token = (name: string) => name.slice(2);
  vi.stubGlobal("document", { documentElement: { dataset: {} } });
  vi.stubGlobal("getComputedStyle", () => ({ getPropertyValue: token }));
  vi.stubGlobal("devicePixelRatio", 1);
});
afterAll(() => vi.unstubAllGlobals());
beforeEach(() => {
  made.length = 0;
  readings = [];
  host = { clientWidth: 600, clientHeight: 300 };
});

describe("a plot", () => {
  it("shows all values in sight, spikes included, and the time that it was given", () => {
    const one = plot();
    one.draw(frame(feed(channel(1, "bar"))));
    const { scales } = newest().options;
    expect(scales.x!.range()).toEqual([0, 60]);
    expect(scales.y0!.range()[1]).toBeGreaterThanOrEqual(50);
    expect(scales.y0!.range()[0]).toBeLessThanOrEqual(0);
    expect(newest().data).toEqual([[0, 60], [null, null]]);
    // The spike is no longer in sight.
    one.draw(frame(feed(channel(1, "bar")), { now: 60, spanS: 20 }));
    expect(newest().options.scales.y0!.range()[1]).toBeLessThan(2);
  });
  it("keeps the ends of an axis that were set, and says what lies beyond", () => {
    const one = plot();
    const said = () => {
      for (const hook of newest().options.hooks.draw!) hook(newest());
      return newest().ctx.calls.filter((c) => c.name === "fillText").map((c) => String(c.args[0])).filter((t) => /[▲▼]/.test(t));
    };
    one.draw(frame(feed(channel(1, "bar")), { ends: { left: { min: 0.25, max: 10 } } }));
    expect(newest().options.scales.y0!.range()).toEqual([0.25, 10]);
    expect(said()).toEqual(["▲ 50", "▼ 0"]);
    one.draw(frame(feed(channel(1, "bar")), { ends: { left: { max: 60 }, right: { max: 1 } } }));
    expect(newest().options.scales.y0!.range()[0]).toBeLessThanOrEqual(0);
    expect([newest().options.scales.y0!.range()[1], said().length]).toEqual([60, 2]);
    one.draw(frame(feed(channel(1, "bar"))));
    expect(newest().options.scales.y0!.range()[1]).toBeGreaterThanOrEqual(50);
  });
  it("stands decades at equal heights on a logarithmic axis, with its ends, and each axis as it was set", () => {
    const one = plot();
    const of = valued([channel(1, "bar"), [0.01, 0.1, 1, 10, 1000]], [channel(2, "V"), [-5, 5]]);
    one.draw(frame(of, { scales: { left: "log" } }));
    const [left, right] = ["y0", "y1"].map((scale) => newest().options.scales[scale]!.range());
    expect(left).toEqual([-3, 4]);
    expect([right![0] < -5, right![1] > 5]).toEqual([true, true]);
    expect(axisLabels(1)).toEqual(["0.001", "0.01", "0.1", "1", "10", "100", "1000", "10000"]);
    // Each value a decade above the one before: lines as high, one as the other.
    const heights = painted().filter((c) => ["moveTo", "lineTo"].includes(c.name) && c.stroke === "c1").map((c) => c.args[1] as number);
    const steps = heights.slice(1, 4).map((y, i) => Math.round(heights[i]! - y));
    expect(new Set(steps).size).toBe(1);
    expect(steps[0]).toBeGreaterThan(20);
    // Turned to the other side, and back to what it was.
    one.draw(frame(of, { scales: { right: "log" } }));
    expect([newest().options.scales.y0!.range()[1] >= 1000, newest().options.scales.y1!.range()[1] < 1]).toEqual([true, true]);
    one.draw(frame(of, { scales: { left: "log" }, ends: { left: { min: 0.1, max: 100 } } }));
    expect(newest().options.scales.y0!.range()).toEqual([-1, 2]);
    expect(marks()).toEqual(["▲ 1000", "▼ 0.01"]);
    // An end that is not above zero is none of a logarithmic axis.
    one.draw(frame(of, { scales: { left: "log" }, ends: { left: { min: -3, max: 100 } } }));
    expect([newest().options.scales.y0!.range()[0] <= -2, newest().options.scales.y0!.range()[1]]).toEqual([true, 2]);
  });
  it("says on a logarithmic axis what has no place there, and draws such a spike down to the edge", () => {
    const one = plot();
    const of = valued([channel(1, "bar"), [1, 10, -3.25, 10]], [channel(2, "bar"), [2, 2]], [channel(3, "bar"), [0, 1]]);
    one.draw(frame(of, { scales: { left: "log" } }));
    expect(marks()).toEqual(["▼ −3.25 (≤ 0 in 2 channels)"]);
    const { range } = newest().options.scales.y0!;
    expect([range()[0] > -1, range()[1] < 2]).toEqual([true, true]);
    const heights = painted().filter((c) => ["moveTo", "lineTo"].includes(c.name) && c.stroke === "c1").map((c) => c.args[1] as number);
    expect(heights.map((y) => (y > 225 ? "below" : y >= 25 ? "seen" : "above"))).toEqual(["seen", "seen", "below", "seen"]);
    // No further: out of sight a dashed line would cost the more the longer it is.
    expect(Math.max(...heights)).toBe(425);
    // What is hidden is not spoken of; nor what is no longer in sight.
    one.draw(frame(of, { scales: { left: "log" }, hidden: new Set([1]) }));
    expect(marks()).toEqual(["▼ 0 (≤ 0 in 1 channel)"]);
    one.draw(frame(of, { scales: { left: "log" }, hidden: new Set([1, 3]) }));
    expect(marks()).toEqual([]);
    one.draw(frame(of));
    expect(marks()).toEqual([]);
    // Not one value has a place: no numbers are made up.
    const low = plot();
    low.draw(frame(valued([channel(1, "bar"), [-1, 0]]), { scales: { left: "log" } }));
    expect([axisLabels(1), marks()]).toEqual([[], ["▼ −1 (≤ 0 in 1 channel)"]]);
  });
  it("draws limits on a logarithmic axis where their values stand, and none that has no place", () => {
    const one = plot();
    const bounds = new Map([[1, [{ level: "critical", value: 1, name: "critical high 1" }, { level: "watch", value: -1, name: "watch low -1" }]]]);
    one.draw(frame(valued([channel(1, "bar"), [0.1, 10]]), { scales: { left: "log" }, bounds, ends: { left: { min: 0.01, max: 100 } } }));
    const lines = painted().filter((c) => c.name === "moveTo" && ["crit", "watch"].includes(String(c.stroke)));
    expect(lines.map((c) => [c.stroke, c.args[1]])).toEqual([["crit", 125]]);
    expect(painted().filter((c) => c.name === "fillText" && String(c.args[0]).includes("low"))).toEqual([]);
  });
  it("has a second axis once there is a second unit, and gives each the range of its own channels", () => {
    const one = plot();
    one.draw(frame(feed(channel(1, "bar"))));
    expect([made.length, newest().options.axes.length]).toEqual([1, 2]);
    const both = feed(channel(1, "bar"), channel(2, "V"));
    one.draw(frame(both));
    expect([made.length, made[0]!.destroyed, newest().options.axes.map((a) => a.scale)]).toEqual([2, true, ["x", "y0", "y1"]]);
    const { scales } = newest().options;
    expect([scales.y0!.range()[1] >= 50, scales.y1!.range()[1] < 2]).toEqual([true, true]);
    // On one side by the operator's choice: one axis again, which contains both.
    one.draw(frame(both, { axes: { "t.c2": "left" } }));
    expect(newest().options.axes.map((a) => a.scale)).toEqual(["x", "y0"]);
    // A third unit has a range, and no axis that would be drawn.
    one.draw(frame(feed(channel(1, "bar"), channel(2, "V"), channel(3, "A"))));
    expect(newest().options.axes).toHaveLength(3);
  });
  it("keeps its axis where the same channels are shown over another time", () => {
    const one = plot();
    one.draw(frame(feed(channel(1, "bar"))));
    const range = newest().options.scales.y0!.range();
    const smaller = new Feed(0n, 60, false);
    smaller.past([channel(1, "bar")], [{ channel: channel(1, "bar"), gaps: [], buckets: [bucket(1, 0, 30)] }] as unknown as Parameters<Feed["past"]>[1]);
    one.draw(frame(smaller));
    expect([made.length, newest().options.scales.y0!.range()]).toEqual([1, range]);
  });
  it("makes room for wide numbers, and never takes it back", () => {
    const one = plot();
    one.draw(frame(feed(channel(1, "bar"))));
    const size = newest().options.axes[1]!.size!;
    expect(size(null, ["1"])).toBe(54);
    const wide = size(null, ["−1000000.00"]);
    expect(wide).toBeGreaterThan(11 * 6.7);
    expect([size(null, ["1"]), size(null, [])]).toEqual([wide, wide]);
  });
  it("labels its ticks as they stand", () => {
    const one = plot();
    one.draw(frame(feed(channel(1, "bar"))));
    const [time, value] = newest().options.axes;
    for (const axis of [time!, value!]) {
      const at = axis.splits(newest());
      expect(at.length).toBeGreaterThan(1);
      expect(axis.values()).toHaveLength(at.length);
    }
    expect(value!.values()[0]).toBe(String(value!.splits(newest())[0]).replace("-", "−"));
  });
  it("follows the size of its place, and waits where that has none", () => {
    const one = plot();
    const of = feed(channel(1, "bar"));
    one.draw(frame(of));
    expect(newest().size).toBeNull();
    [host.clientWidth, host.clientHeight] = [700, 200];
    one.draw(frame(of));
    expect(newest().size).toEqual({ width: 700, height: 200 });
    const before = newest().data;
    host.clientHeight = 10;
    one.draw(frame(of, { now: 61 }));
    expect(newest().data).toBe(before);
  });
  it("is made again with another theme, showing the same", () => {
    const one = plot();
    one.draw(frame(feed(channel(1, "bar"))));
    one.restyle();
    expect([made.length, made[0]!.destroyed, newest().data]).toEqual([2, true, [[0, 60], [null, null]]]);
    one.destroy();
    expect(made[1]!.destroyed).toBe(true);
  });
  it("knows the instant under a place of the screen", () => {
    const one = plot();
    one.draw(frame(feed(channel(1, "bar")), { now: 160 }));
    expect([one.timeAt(100), one.timeAt(300), one.timeAt(500), one.widthPx]).toEqual([100, 130, 160, 400]);
  });
  it("reads what is under the cursor, and nothing where it has left", () => {
    const one = plot();
    one.draw(frame(feed(channel(1, "bar"))));
    const [read] = newest().options.hooks.setCursor;
    newest().cursor.left = 30.5;
    read!(newest());
    newest().cursor.left = -10;
    read!(newest());
    expect(readings.map((r) => r && [r.at, r.values.get(1)])).toEqual([[30.5, 25], null]);
  });
});

describe("what a plot draws", () => {
  const names = (calls: ReturnType<typeof painted>) => calls.map((c) => c.name);

  it("is every band before any line, and no band where none is wanted", () => {
    const one = plot();
    const both = feed(channel(1, "bar"), channel(2, "bar"));
    one.draw(frame(both));
    const calls = names(painted());
    // The clip of gaps, that of lines, and then 60 buckets of each channel.
    expect(calls.filter((name) => name === "rect")).toHaveLength(2 + 120);
    expect(calls.lastIndexOf("rect")).toBeLessThan(calls.indexOf("lineTo"));
    one.draw(frame(both, { band: false }));
    expect(names(painted()).filter((name) => name === "rect")).toHaveLength(2);
  });
  it("is grey where values are stale or nothing is heard", () => {
    const one = plot();
    const both = feed(channel(1, "bar"), channel(2, "bar"));
    const colours = () => [...new Set(painted().filter((c) => c.name === "lineTo").map((c) => c.stroke))];
    one.draw(frame(both));
    expect(colours()).toEqual(["c1", "c2"]);
    one.draw(frame(both, { stale: new Set([2]) }));
    expect(colours()).toEqual(["c1", "stale"]);
    one.draw(frame(both, { live: false }));
    expect(colours()).toEqual(["stale"]);
  });
  it("is a line for each event in sight, in the colour of its level, with its name", () => {
    const one = plot();
    one.draw(frame(feed(channel(1, "")), {
      events: [{ time: "10000000000", text: "hold", level: "critical" }, { time: "70000000000", text: "later", level: "info" }],
    }));
    const calls = painted();
    expect(calls.filter((c) => c.name === "moveTo" && c.stroke === "crit").map((c) => c.args)).toEqual([[64, 25]]);
    expect(calls.filter((c) => c.name === "fillText" && c.args[0] !== "").map((c) => c.args[0])).toEqual(["hold"]);
  });
  it("is nothing that would cover the words on what to do where there is no channel yet, and no made-up numbers", () => {
    const one = plot();
    const events = [{ time: "10000000000", text: "hold", level: "critical" }];
    const numbers = () => {
      const axis = newest().options.axes[1]!;
      return [axis.splits(newest()), axis.values()].map((all) => all.length);
    };
    one.draw(frame(new Feed(0n, 60, false), { events }));
    expect(painted().filter((c) => ["moveTo", "lineTo"].includes(c.name) || (c.name === "fillText" && c.args[0] !== ""))).toEqual([]);
    expect(numbers()).toEqual([0, 0]);
    expect(newest().options.axes[0]!.splits(newest()).length).toBeGreaterThan(1);
    // A channel without a value in sight has no numbers either, until it has one, and keeps them then.
    const silent = new Feed(0n, 60, false);
    silent.past([channel(1, "")], []);
    one.draw(frame(silent, { events }));
    expect(numbers()).toEqual([0, 0]);
    expect(painted().some((c) => c.name === "fillText" && c.args[0] === "hold")).toBe(true);
    one.draw(frame(feed(channel(1, ""))));
    expect(numbers()[0]).toBeGreaterThan(1);
    one.draw(frame(silent));
    expect(numbers()[0]).toBeGreaterThan(1);
    // The last channel left.
    one.draw(frame(new Feed(0n, 60, false)));
    expect(numbers()).toEqual([0, 0]);
  });
  it("is without what is hidden, in an axis that fits the others, whose colours stay", () => {
    const one = plot();
    const both = feed(channel(1, "bar"), channel(2, "bar"));
    const colours = () => [...new Set(painted().filter((c) => c.name === "lineTo").map((c) => c.stroke))];
    one.draw(frame(both, { hidden: new Set([1]) }));
    expect(colours()).toEqual(["c2"]);
    expect(newest().options.scales.y0!.range()[1]).toBeLessThan(2);
    one.draw(frame(both));
    expect(colours()).toEqual(["c1", "c2"]);
    expect(newest().options.scales.y0!.range()[1]).toBeGreaterThanOrEqual(50);
    const range = newest().options.scales.y0!.range();
    one.draw(frame(both, { hidden: new Set([1, 2]) }));
    expect([colours(), newest().options.scales.y0!.range()]).toEqual([[], range]);
  });
  it("is a shade for each gap in sight, three pixels wide at least", () => {
    const one = plot();
    const of = feed(channel(1, "bar"));
    of.shades = [{ stream: 1, from: 10, to: 10.5 }, { stream: 1, from: 20, to: 40 }, { stream: 1, from: 900, to: 901 }];
    one.draw(frame(of));
    const u = newest();
    u.ctx.calls.length = 0;
    u.options.hooks.drawClear[0]!(u);
    expect(u.ctx.calls.filter((c) => c.name === "fillRect").map((c) => c.args)).toEqual([[54 + 10.25 - 1.5, 25, 3, 200], [74, 25, 20, 200]]);
  });
  it("says the unit of each axis", () => {
    const one = plot();
    one.draw(frame(feed(channel(1, "bar"), channel(2, "V"))));
    expect(painted().filter((c) => c.name === "fillText").map((c) => c.args[0])).toEqual(["bar", "V"]);
  });
  it("is nothing before there is anything to show", () => {
    plot();
    expect(painted()).toEqual([]);
  });
});
