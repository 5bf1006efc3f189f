import { describe, expect, it } from "vitest";
import { aboveZeroOn, axesOf, extentOn, unitsOf } from "./axes";
import type { Channel } from "../connection/message";
import { Series } from "../state/series";

const channel = (id: number, unit: string) => ({ id, name: `c${id}`, unit }) as Channel;

describe("value axes", () => {
  const all = [channel(1, "bar"), channel(2, "°C"), channel(3, "bar"), channel(4, "V")];
  it("are one for each unit, left then right, and the side that was chosen for a channel", () => {
    expect([...axesOf(all, {}).values()]).toEqual([0, 1, 0, 2]);
    expect([...axesOf(all, { c3: "right", c2: "left" }).values()]).toEqual([0, 0, 1, 1]);
    expect([...axesOf(all.slice(0, 1), { c1: "right" }).values()]).toEqual([1]);
  });
  it("say their units, each once, and nothing of channels without one", () => {
    expect(unitsOf(all, axesOf(all, {}))).toEqual(["bar", "°C", "V"]);
    expect(unitsOf(all, axesOf(all, { c2: "left" }))).toEqual(["bar, °C", "V"]);
    const bare = [channel(1, ""), channel(2, "")];
    expect(unitsOf(bare, axesOf(bare, {}))).toEqual([""]);
    // There is a left axis beside a right one, and one at least.
    expect(unitsOf(all.slice(0, 1), axesOf(all.slice(0, 1), { c1: "right" }))).toEqual(["", "bar"]);
    expect(unitsOf([], new Map())).toEqual([""]);
  });
});

describe("what an axis shows", () => {
  const series = (...values: [t: number, min: number, max: number][]) => {
    const made = new Series(1);
    for (const [t, min, max] of values) made.push({ t0: t, t1: t, count: 2, first: min, last: min, min, max, mean: min, broken: false });
    return made;
  };
  const axisOf = new Map([[1, 0], [2, 0], [3, 1], [4, 0]]);
  const known = new Map([[1, series([0, -9, 9], [10, 1, 2])], [2, series([10, 0, 5])], [3, series([10, 70, 80])]]);
  it("is min and max of its channels within the times in sight, a spike between two means included", () => {
    expect(extentOn(0, axisOf, known, 5, 15)).toEqual({ min: 0, max: 5 });
    expect(extentOn(0, axisOf, known, 0, 15)).toEqual({ min: -9, max: 9 });
    expect(extentOn(1, axisOf, known, 0, 15)).toEqual({ min: 70, max: 80 });
  });
  it("is on a logarithmic axis what lies above zero, and how many channels reach down to zero or below", () => {
    expect(aboveZeroOn(0, axisOf, known, 5, 15)).toEqual({ least: 1, others: 1 });
    expect(aboveZeroOn(0, axisOf, known, 0, 15)).toEqual({ least: 1, others: 2 });
    expect(aboveZeroOn(1, axisOf, known, 0, 15)).toEqual({ least: 70, others: 0 });
    expect(aboveZeroOn(1, axisOf, known, 20, 30)).toEqual({ least: Infinity, others: 0 });
  });
  it("is nothing where none of them has a value", () => {
    const { min, max } = extentOn(0, axisOf, known, 20, 30);
    expect(min > max).toBe(true);
  });
});
