import { expect, test } from "vitest";
import { type Bounded, boundLines, boundsOf, placeLabels } from "./limits";
import type { Channel, Limit } from "../connection/message";

const channel = { name: "tank.p{n=1}", table: "tank", channel: "p", tags: { n: "1" } } as unknown as Channel;
const limit = (changes: Partial<Limit>): Limit => ({ name: null, channels: ["tank.*"], watch: null, warning: null, critical: null, ...changes });

test("the bounds of a channel's limits, worst first, each value once", () => {
  const limits = [
    limit({ watch: { low: 1, high: 8 }, critical: { low: null, high: 9 } }),
    limit({ channels: ["tank.p{n=1}"], warning: { low: null, high: 8 } }),
    limit({ channels: ["tank.q"], warning: { low: null, high: 7 } }),
  ];
  expect(boundsOf(channel, limits).map((b) => b.name)).toEqual(["critical high 9", "warning high 8", "watch low 1"]);
  expect(boundsOf(channel, [])).toEqual([]);
});

const bounded = (name: string, bounds: Bounded["bounds"], axis = 0): Bounded => ({ name, colour: `of ${name}`, axis, bounds, y: (value) => 100 - 10 * value });
const high = (level: "watch" | "critical", value: number) => ({ level, value, name: `${level} high ${value}` });

test("a line says whose it is where it is not of every channel of the plot", () => {
  const lines = boundLines([bounded("acu1.p", [high("watch", 4), high("critical", 5)]), bounded("fast.p", [])]);
  expect(lines).toEqual([
    { level: "critical", at: 50, text: "acu1.p · critical high 5", colours: ["of acu1.p"] },
    { level: "watch", at: 60, text: "acu1.p · watch high 4", colours: ["of acu1.p"] },
  ]);
  expect(boundLines([bounded("p", [high("critical", 5)])]).map((l) => [l.text, l.colours])).toEqual([["critical high 5", []]]);
  const shared = [high("critical", 5)];
  expect(boundLines([bounded("a", shared), bounded("b", shared)]).map((l) => l.text)).toEqual(["critical high 5"]);
  expect(boundLines([..."abc"].map((n) => bounded(n, shared)).concat(bounded("d", []))).map((l) => l.text)).toEqual(["a, b +1 · critical high 5"]);
  // The same number on another axis is another line.
  expect(boundLines([bounded("a", shared), bounded("b", shared, 1)]).map((l) => l.text)).toEqual(["a · critical high 5", "b · critical high 5"]);
});

test("every label stands on its own line, beside those that are close", () => {
  const box = { left: 0, top: 0, width: 400, height: 200 };
  const label = (at: number) => ({ at, width: 100 });
  const places = (ats: number[], taken = [] as (typeof box)[]) => placeLabels(ats.map(label), box, 12, 8, taken);
  expect(places([50, 150]).map((p) => [p.left, p.top])).toEqual([[292, 44], [292, 144]]);
  const close = places([50, 55, 52]);
  expect(close.map((p) => p.top + 6)).toEqual([50, 55, 52]);
  expect(close.map((p) => Math.round(p.left))).toEqual([292, 184, 76]);
  // At the edges within the plot, and beside the names of events.
  expect(places([1, 199]).map((p) => p.top)).toEqual([0, 188]);
  expect(Math.round(places([3], [{ left: 350, top: 0, width: 40, height: 16 }])[0]!.left)).toBe(242);
  // None is lost, and none over another, where a row has no room for all.
  const many = places([50, 50, 50, 50, 50]);
  expect(many.every((p) => p.left >= 0)).toBe(true);
  for (const [i, a] of many.entries()) for (const b of many.slice(i + 1)) {
    expect(Math.abs(a.top - b.top) >= 12 || Math.abs(a.left - b.left) >= 100).toBe(true);
  }
});
