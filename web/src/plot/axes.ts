// Which value axis a channel is drawn on, and what stands on each.
import type { Channel } from "../connection/message";
import type { Series } from "../state/series";

/** Side by the channel's name, where it is not the unit's. */
export type Sides = Readonly<Record<string, "left" | "right">>;

/** The value axis of each channel, by its number: its own side, else by unit; the third unit and those after it have none. */
export function axesOf(channels: Channel[], sides: Sides): Map<number, number> {
  const units = [...new Set(channels.filter((c) => sides[c.name] === undefined).map((c) => c.unit))];
  return new Map(channels.map((c) => [c.id, sides[c.name] === "left" ? 0 : sides[c.name] === "right" ? 1 : units.indexOf(c.unit)]));
}

/** What stands above each axis: the units of its channels. There is one axis at least. */
export function unitsOf(channels: Channel[], axisOf: ReadonlyMap<number, number>): string[] {
  const count = Math.max(1, ...[...axisOf.values()].map((axis) => axis + 1));
  return Array.from({ length: count }, (_, axis) =>
    [...new Set(channels.filter((c) => axisOf.get(c.id) === axis).map((c) => c.unit))].filter((u) => u !== "").join(", "));
}

/** Those of the channels that are drawn. */
export function drawnOf(axisOf: ReadonlyMap<number, number>, hidden: ReadonlySet<number>): ReadonlyMap<number, number> {
  return hidden.size === 0 ? axisOf : new Map([...axisOf].filter(([id]) => !hidden.has(id)));
}

/** What a logarithmic axis can show between two times: the least value above zero, Infinity if there is none. */
export interface AboveZero {
  least: number;
  /** How many channels have values that are not above zero, and that it cannot show. */
  others: number;
}

export function aboveZeroOn(
  axis: number, axisOf: ReadonlyMap<number, number>, series: ReadonlyMap<number, Series>, from: number, to: number,
): AboveZero {
  const found = { least: Infinity, others: 0 };
  for (const [id, of] of axisOf) {
    const one = of === axis ? series.get(id) : undefined;
    const extent = one?.extent(from, to);
    if (!one || !extent) continue;
    found.least = Math.min(found.least, one.leastAboveZero(from, to));
    if (extent.min <= 0) found.others++;
  }
  return found;
}

/** Min and max that an axis must show between two times; min is above max where there is nothing to show. */
export function extentOn(
  axis: number, axisOf: ReadonlyMap<number, number>, series: ReadonlyMap<number, Series>, from: number, to: number,
): { min: number; max: number } {
  let [min, max] = [Infinity, -Infinity];
  for (const [id, of] of axisOf) {
    const extent = of === axis ? series.get(id)?.extent(from, to) : null;
    if (!extent) continue;
    min = Math.min(min, extent.min);
    max = Math.max(max, extent.max);
  }
  return { min, max };
}
