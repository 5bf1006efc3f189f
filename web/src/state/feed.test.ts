import { beforeEach, describe, expect, it } from "vitest";
import { MAX_CHANNELS } from "./choice";
import { Feed } from "./feed";
import type { Bucket, Channel, Gap, ServerMessage, StreamWindow } from "../connection/message";

const ORIGIN = 1_795_192_867_000_000_000n;
const at = (s: number) => (ORIGIN + BigInt(Math.round(s * 1e9))).toString();

const channel = (id: number, more: Partial<Channel> = {}): Channel => ({
  id, name: `t.c${id}`, table: "t", channel: `c${id}`, tags: {}, stream: 3, type: "f64", unit: "bar", description: "",
  source: "s", expected_period_ns: "40000000", interpolation: "linear", ...more,
});
const bucket = (t: number, value: number): Bucket => [at(t), 2, value, value, value - 1, value + 1, value];
const update = (rows: [string, string], t: [number, number], value: number, more: Partial<StreamWindow> = {}) =>
  ({
    type: "update", id: 1, epoch: 7, time: at(t[1]), conflated: 0, dropped: 0,
    streams: [{
      stream: 3, from_row: rows[0], to_row: rows[1], committed: null, recorded: true, time: [at(t[0]), at(t[1])],
      receive_time: at(t[1]), gap: false, channels: [[17, 5, value, value, value - 2, value + 2, value]], ...more,
    }],
  }) as Extract<ServerMessage, { type: "update" }>;

let feed: Feed;
beforeEach(() => {
  feed = new Feed(ORIGIN, 60, false);
  feed.subscribed([channel(17)], []);
  feed.history({
    type: "history", id: 1, rows: { "3": "1200" },
    series: [{ channel: 17, buckets: [bucket(-3, 1), bucket(-2, 2), bucket(-1, 3)], gaps: [[at(-1.9), at(-1.1)]] }],
  });
});
const series = () => feed.series.get(17)!;
const broken = () => Array.from({ length: series().length }, (_, i) => series().broken[series().slot(i)]);

describe("a panel's feed", () => {
  it("draws the snapshot, broken at its gap, then the tail", () => {
    expect(feed.update(update(["1200", "1205"], [-0.2, 0], 4))).toBe(0);
    expect(series().length).toBe(4);
    expect(broken()).toEqual([0, 0, 1, 0]);
    expect(series().extent(-60, 0)).toEqual({ min: 0, max: 6 });
    expect(feed.shades).toEqual([{ stream: 3, from: -1.9, to: -1.1 }]);
  });
  it("draws no window twice, and breaks where one was missed", () => {
    feed.update(update(["1200", "1205"], [-0.2, 0], 4));
    expect(feed.update(update(["1200", "1205"], [-0.2, 0], 4))).toBe(0);
    expect(series().length).toBe(4);
    expect(feed.update(update(["1210", "1215"], [0.2, 0.4], 4))).toBe(1);
    expect(broken()).toEqual([0, 0, 1, 0, 1]);
  });
  it("breaks where the server knows of missing frames, and shades the gap it tells of", () => {
    feed.update(update(["1200", "1205"], [-0.2, 0], 4, { gap: true }));
    expect(broken()).toEqual([0, 0, 1, 1]);
    const gap = { id: 1, stream: "3", from_time: at(-0.3), to_time: at(-0.2) } as Gap;
    feed.gap(gap);
    feed.gap({ ...gap, to_time: at(-0.1) });
    feed.gap({ ...gap, stream: "4" });
    expect(feed.shades.slice(1)).toEqual([{ stream: 3, from: -0.3, to: -0.1 }]);
    feed.expire(1);
    expect(feed.shades).toEqual([]);
  });
  it("shades every gap in sight, however many there are", () => {
    const gaps = (count: number, everyS: number) => {
      feed.subscribed([channel(17)], []);
      for (let i = 0; i < count; i++) feed.gap({ id: i, stream: "3", from_time: at(i * everyS), to_time: at(i * everyS + 0.01) } as Gap);
      return feed.shades;
    };
    expect([gaps(500, 0.1).length, feed.shades[0]!.from]).toEqual([500, 0]);
    // Those that cannot be drawn apart are one.
    const shades = gaps(10_000, 0.02);
    expect(shades).toHaveLength(1);
    expect([shades[0]!.from, shades[0]!.to]).toEqual([0, 199.99]);
  });
  it("shades the gaps of each stream, however many another has, and those that another joins as one", () => {
    feed.subscribed([channel(17), channel(18, { stream: 4 })], []);
    const gap = (stream: string, from: number, to: number) => feed.gap({ id: 1, stream, from_time: at(from), to_time: at(to) } as Gap);
    gap("4", 1, 2);
    const gaps = Array.from({ length: 5000 }, (_, i): [string, string] => [at(i), at(i + 0.1)]);
    feed.history({ type: "history", id: 1, rows: {}, series: [{ channel: 17, buckets: [], gaps }] });
    expect(feed.shades.filter((s) => s.stream === 4)).toEqual([{ stream: 4, from: 1, to: 2 }]);
    const shades = feed.shades.filter((s) => s.stream === 3);
    expect([shades.length, shades[0]!.from, shades.at(-1)!.from]).toEqual([4096, 904, 4999]);
    gap("3", 4998.05, 4999.05);
    expect(feed.shades.filter((s) => s.stream === 3).at(-1)).toEqual({ stream: 3, from: 4998, to: 4999.1 });
  });
  it("takes a history that comes in parts", () => {
    feed.subscribed([channel(17), channel(18, { stream: 4 })], []);
    feed.history({ type: "history", id: 1, rows: { "3": "1200" }, series: [{ channel: 17, buckets: [bucket(-3, 1)], gaps: [[at(-3), at(-2)]] }] });
    feed.history({ type: "history", id: 1, rows: { "4": "7" }, series: [{ channel: 18, buckets: [bucket(-3, 1)], gaps: [] }] });
    expect(feed.shades).toHaveLength(1);
    expect(feed.update(update(["1201", "1205"], [-0.2, 0], 4))).toBe(1);
  });
  it("shows frames that are not recorded, and values that JSON cannot hold as nothing", () => {
    feed.update(update(["1200", "1201"], [0, 0], 4, { from_row: null, to_row: null, recorded: false }));
    expect(series().length).toBe(4);
    feed.update(update(["1200", "1201"], [1, 1], 4, { channels: [[17, 1, "NaN", "NaN", null, null, null]] }));
    expect(series().length).toBe(4);
  });
  it("shows what is finite beside what is not", () => {
    feed.update(update(["1200", "1203"], [0, 0.1], 4, { channels: [[17, 3, 5, "Infinity", 5, "Infinity", "Infinity"]] }));
    expect(series().extent(-0.05, 1)).toEqual({ min: 5, max: 5 });
    feed.update(update(["1203", "1206"], [0.2, 0.3], 4, { channels: [[17, 3, "NaN", -3, "-Infinity", 8, "NaN"]] }));
    expect(series().extent(0.15, 1)).toEqual({ min: -3, max: 8 });
  });
  it("breaks a line over values that are no numbers", () => {
    feed.update(update(["1200", "1205"], [-0.2, 0], 4));
    feed.update(update(["1205", "1206"], [0.2, 0.2], 4, { channels: [[17, 1, "NaN", "NaN", null, null, null]] }));
    feed.update(update(["1206", "1211"], [0.4, 0.6], 4));
    feed.update(update(["1211", "1216"], [0.8, 1], 4));
    expect(broken()).toEqual([0, 0, 1, 0, 1, 0]);
  });
  it("reads what is said of cells beside their values", () => {
    feed.update(update(["1200", "1203"], [0, 0.1], 4, {
      channels: [[99, 1, 0, 0, 0, 0, 0], [17, 3, 5, "Infinity", -3, "Infinity", "Infinity"]], finite: [[1, -3, 900]],
    }));
    expect(series().extent(-0.05, 1)).toEqual({ min: -3, max: 900 });
    feed.subscribed([channel(17, { type: "string" })], []);
    feed.history({
      type: "history", id: 1, rows: {},
      series: [{ channel: 17, buckets: [[at(0), 4, "GO", "GO", null, null, null], [at(1), 4, "GO", "HOLD", null, null, null]], gaps: [], changed: [1] }],
    });
    const marks = () => feed.tracks.get(17)!.segments.map((s) => `${s.state}${s.flicker ? "!" : ""}`);
    expect(marks()).toEqual(["GO!", "HOLD"]);
    feed.update(update(["1203", "1209"], [2, 2.2], 4, { channels: [[17, 6, "HOLD", "HOLD", null, null, null]], changed: [0] }));
    expect(marks()).toEqual(["GO!", "HOLD!"]);
  });
  it("keeps states as names, and marks those that flickered", () => {
    feed.subscribed([channel(17, { type: "string" }), channel(18, { type: "bool" })], []);
    feed.update(update(["1200", "1205"], [0, 0.2], 0, {
      channels: [[17, 5, "OPEN", "CLOSED", null, null, null], [18, 5, false, false, false, true, 0.2]],
    }));
    expect(feed.tracks.get(17)!.segments.map((s) => s.state)).toEqual(["OPEN", "CLOSED"]);
    expect(feed.tracks.get(18)!.segments).toMatchObject([{ state: "OFF", flicker: true }]);
    expect(feed.series.size).toBe(0);
  });
  it("marks states that were neither the first nor the last of a window", () => {
    feed = new Feed(ORIGIN, 60, true);
    feed.subscribed([channel(17, { type: "i64" })], []);
    const marks = () => feed.tracks.get(17)!.segments.map((s) => `${s.state}${s.flicker ? "!" : ""}`);
    feed.update(update(["1200", "1202"], [0, 0.2], 0, { channels: [[17, 2, "1", "2", "1", "2", 1.5]] }));
    expect(marks()).toEqual(["1", "2"]);
    feed.update(update(["1202", "1205"], [0.4, 0.6], 0, { channels: [[17, 3, "2", "3", "2", "9", 4]] }));
    expect(marks()).toEqual(["1", "2!", "3"]);
    // Beyond 2^53, too.
    feed.update(update(["1205", "1207"], [0.8, 1], 0, { channels: [[17, 2, "9007199254740993", "9007199254740993", "9007199254740992", "9007199254740993", 0]] }));
    expect(marks()).toEqual(["1", "2!", "3", "9007199254740993!"]);
  });
  it("keeps the order in which channels were asked for, then that of names", () => {
    feed = new Feed(ORIGIN, 60, false, ["t.c9", "t.*"]);
    feed.subscribed([2, 10, 9].map((id) => channel(id)), []);
    feed.add([channel(1)]);
    expect(feed.channels.map((c) => c.channel)).toEqual(["c9", "c1", "c2", "c10"]);
  });
  it("is bounded: counts the channels it does not draw", () => {
    feed.subscribed(Array.from({ length: 1000 }, (_, i) => channel(i)), ["none.*"]);
    expect([feed.channels.length, feed.hidden, feed.unmatched]).toEqual([MAX_CHANNELS, 1000 - MAX_CHANNELS, ["none.*"]]);
    const version = feed.version;
    feed.add([channel(0, { unit: "Pa" })]);
    expect([feed.channels[0]!.unit, feed.version]).toEqual(["Pa", version + 1]);
    // The same one once more, with another description.
    feed.add([channel(999, { unit: "Pa" })]);
    expect(feed.hidden).toBe(1000 - MAX_CHANNELS);
  });
  it("says why it does not show all that was asked for, as long as that is so", () => {
    expect(feed.problem).toBeNull();
    feed.subscribed([channel(17)], ["none.*", "t.c18"]);
    expect(feed.problem).toBe("no channel matches none.*, t.c18");
    feed.add([channel(18)]);
    expect(feed.problem).toBe("no channel matches none.*");
    feed.error = "too many channels";
    expect(feed.problem).toBe("too many channels · no channel matches none.*");
    feed.subscribed([channel(17)], []);
    expect(feed.problem).toBeNull();
    // Of a picture that stands, nobody says what is not matched.
    const then = new Feed(ORIGIN, 60, false, ["t.*", "none.*"]);
    then.past([channel(17)], []);
    expect(then.problem).toBe("no channel matches none.*");
  });
});
