import { describe, expect, it } from "vitest";
import type { Channel, ServerMessage, StateRow, StreamWindow } from "../connection/message";
import { Values } from "./values";

type Update = Extract<ServerMessage, { type: "update" }>;

const S = 1_000_000_000n;
const NOW = 1_790_000_000n * S;

function channel(id: number, more: Partial<Channel> = {}): Channel {
  return {
    id, name: `t.c${id}`, table: "t", channel: `c${id}`, tags: {}, stream: 1, type: "f64", unit: "", description: "",
    source: "s", expected_period_ns: null, interpolation: "hold", ...more,
  };
}

/** An update with one value of one channel: its time, when it was received, and when the server sent it. */
function update(id: number, value: number, [time, received, sent]: [bigint, bigint, bigint], rows: [number, number] = [0, 1]): Update {
  const window: StreamWindow = {
    stream: 1, from_row: String(rows[0]), to_row: String(rows[1]), committed: String(rows[1]), recorded: true,
    time: [String(time), String(time)], receive_time: String(received), gap: false,
    channels: [[id, 1, value, value, value, value, value]],
  };
  return { type: "update", id: 7, epoch: 1, time: String(sent), streams: [window], conflated: 0, dropped: 0 };
}

function state(id: number, value: number, time: bigint | null, received: bigint | null): StateRow {
  const text = (ns: bigint | null) => (ns === null ? null : String(ns));
  return {
    channel: channel(id), value, time: text(time), receive_time: text(received), age_ns: null, period_ns: null, status: "fresh",
  } as StateRow;
}

describe("the newest values", () => {
  it("are written as a panel rounds, and learnt from all the same", () => {
    const values = new Values();
    values.update(update(1, 4.3127, [NOW, NOW, NOW]), false);
    const rounding = { decimals: 1, bounds: [4.3] };
    expect([values.text(channel(1), { decimals: 1, bounds: [] }), values.text(channel(1), rounding), values.words(channel(1), 7.77, rounding)]).toEqual(["4.3", "4.31", "7.8"]);
    expect(values.extremes(channel(1), { min: 4, max: 9 }, rounding)).toEqual({ min: "4.0", max: "9.0" });
    expect([values.text(channel(2), rounding), values.words(channel(1), 5)]).toEqual(["–", "5.0000"]);
  });
  it("are those of the newest update", () => {
    const values = new Values();
    values.update(update(1, 10, [NOW, NOW, NOW]), false);
    values.update(update(1, 11, [NOW + S, NOW + S, NOW + S]), false);
    expect(values.of(1)).toMatchObject({ value: 11, timeNs: NOW + S });
    expect(values.of(2)).toBeNull();
  });

  it("are not replaced by late ones while newer ones come", () => {
    const values = new Values();
    values.update(update(1, 10, [NOW, NOW, NOW]), false);
    values.update(update(1, 5, [NOW - 10n * S, NOW + S / 2n, NOW + S / 2n]), false);
    expect(values.of(1)?.value).toBe(10);
    // With nothing newer for a while, the late one is the newest that there is.
    values.update(update(1, 6, [NOW - 9n * S, NOW + 5n * S, NOW + 5n * S]), false);
    expect(values.of(1)?.value).toBe(6);
  });

  it("follow a server's clock that was set back", () => {
    const values = new Values();
    values.update(update(1, 10, [NOW + 3600n * S, NOW + 3600n * S, NOW + 3600n * S]), false);
    values.update(update(1, 11, [NOW, NOW, NOW]), false);
    expect(values.of(1)?.value).toBe(11);
  });

  it("come from a state only where nothing newer is known", () => {
    const values = new Values();
    values.update(update(1, 10, [NOW, NOW, NOW]), false);
    values.know([state(1, 3, NOW - 60n * S, NOW - 60n * S), state(2, 4, NOW - 60n * S, null), state(3, 5, null, null)], NOW);
    expect(values.of(1)?.value).toBe(10);
    expect(values.of(2)).toMatchObject({ value: 4, receiveNs: NOW - 60n * S });
    expect(values.of(3)).toBeNull();
  });

  it("count in a playback as received at their own time", () => {
    const values = new Values();
    values.update(update(1, 10, [NOW - 3600n * S, NOW, NOW - 3600n * S]), true);
    expect(values.of(1)?.receiveNs).toBe(NOW - 3600n * S);
    // A jump back brings older values, and they are the newest.
    values.clear();
    values.snapshot({ type: "snapshot", id: 7, streams: [{ stream: 1, channels: [[1, 2, String(NOW - 7200n * S), null]] }] } as never);
    expect(values.of(1)).toMatchObject({ value: 2, receiveNs: NOW - 7200n * S });
  });

  it("age, and are stale on a screen that is not alive", () => {
    const values = new Values();
    values.update(update(1, 10, [NOW, NOW, NOW]), false);
    expect(values.age(channel(1), NOW + S, true)).toEqual({ ageNs: S, stale: false });
    expect(values.age(channel(1), NOW + 3n * S, true).stale).toBe(true);
    expect(values.age(channel(1, { expected_period_ns: String(10n * S) }), NOW + 3n * S, true).stale).toBe(false);
    expect(values.age(channel(1), NOW + S, false).stale).toBe(true);
    expect(values.age(channel(9), NOW, true)).toEqual({ ageNs: null, stale: true });
  });

  it("widen the extremes of a span that does not have them yet", () => {
    const values = new Values();
    values.update(update(1, 12.5, [NOW, NOW, NOW]), false);
    const { min, max } = values.extremes(channel(1), { min: 1, max: 2 })!;
    expect([Number(min), Number(max)]).toEqual([1, 12.5]);
    expect(values.extremes(channel(1), null)).toBeNull();
  });

  it("count frames by rows, of all channels alike", () => {
    const values = new Values();
    for (let s = 0n; s < 3n; s++) {
      values.update(update(1, 1, [NOW + s * S, NOW + s * S, NOW + s * S], [Number(s) * 50, Number(s) * 50 + 50]), false);
    }
    expect(values.rates.hz(1, NOW + 2n * S)).toBe(50);
    values.forget();
    expect(values.rates.hz(1, NOW + 2n * S)).toBeNull();
    expect(values.of(1)).toBeNull();
  });
});
