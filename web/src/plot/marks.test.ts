import { describe, expect, it } from "vitest";
import type { Event } from "../connection/message";
import type { Shade } from "../state/feed";
import { eventLabels, type EventLine, eventLines, joinedShades } from "./marks";

const shade = (from: number, to: number, stream = 1): Shade => ({ stream, from, to });
const event = (time: bigint | number, text = "e"): Event => ({ time: String(time), text, level: "info" });

describe("shades of gaps", () => {
  it("of several streams are one where they touch, whatever their order", () => {
    const all = [shade(5, 6), shade(0, 2), shade(1, 3, 2), shade(3, 4, 3), shade(1, 1.5)];
    expect(joinedShades(all).map(({ from, to }) => [from, to])).toEqual([[0, 4], [5, 6]]);
    expect(joinedShades([])).toEqual([]);
  });
  it("leaves those of the feed as they are", () => {
    const all = [shade(3, 4), shade(0, 9)];
    joinedShades(all);
    expect(all).toEqual([shade(3, 4), shade(0, 9)]);
    const [first] = joinedShades([all[0]!]);
    first!.to = 99;
    expect(all[0]!.to).toBe(4);
  });
});

describe("events", () => {
  const S = 1_000_000_000n;
  const origin = 1_795_192_867_482_000_000n;
  it("in sight have their place, edges included", () => {
    const events = [9, 10, 15.5, 20, 21].map((s) => event(origin + BigInt(s * 10) * (S / 10n)));
    expect(eventLines(events, origin, 10, 20, (s) => 100 * s).map((line) => line.x)).toEqual([1000, 1550, 2000]);
    // Before the origin of the page, too.
    expect(eventLines([event(origin - 30n * S)], origin, -60, 0, (s) => s).map((line) => line.x)).toEqual([-30]);
  });

  const lines = (...of: [x: number, text: string][]): EventLine[] => of.map(([x, text]) => ({ x, event: event(0, text) }));
  /** Seven pixels a character. */
  const labels = (of: EventLine[], left = 0, right = 500, ratio = 1) => eventLabels(of, left, right, (text) => 7 * text.length, ratio);

  it("are named right of their lines, and at the left where the right edge is too close", () => {
    expect(labels(lines([100, "hold"], [480, "start"]))).toEqual([
      { at: 480 - 4 - 35, width: 35, text: "start" }, { at: 104, width: 28, text: "hold" },
    ]);
    // Just enough room.
    expect(labels(lines([500 - 4 - 35, "start"]))[0]!.at).toBe(465);
    expect(labels(lines([100, "hold"]), 0, 500, 2)[0]!.at).toBe(108);
  });
  it("keep the name of the newer where two would touch", () => {
    expect(labels(lines([100, "older"], [120, "newer"], [300, "far"])).map((l) => l.text)).toEqual(["far", "newer"]);
    // Six pixels apart they do not.
    expect(labels(lines([100, "older"], [141, "newer"])).map((l) => l.text)).toEqual(["newer", "older"]);
    expect(labels(lines([100, "older"], [140, "newer"])).map((l) => l.text)).toEqual(["newer"]);
  });
  it("have names that fit: long ones are cut, and one that would leave the plot takes no other's place", () => {
    const text = "a very long event, longer than 28";
    expect(labels(lines([0, text]))[0]!.text).toBe(`${text.slice(0, 27)}…`);
    expect(labels(lines([0, text.slice(0, 28)]))[0]!.text).toBe(text.slice(0, 28));
    // In a narrow plot the long name has no room on either side of its line.
    expect(labels(lines([20, "a"], [60, "much too long a name"]), 0, 100).map((l) => l.text)).toEqual(["a"]);
  });
});
