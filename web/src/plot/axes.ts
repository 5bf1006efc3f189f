// Which value axis a channel is drawn on.
import type { Channel } from "../connection/message";

/** Side by the channel's name, where it is not the unit's. */
export type Sides = Readonly<Record<string, "left" | "right">>;

/** The value axis of each channel, by its number: its own side, else by unit; the third unit and those after it have none. */
export function axesOf(channels: Channel[], sides: Sides): Map<number, number> {
  const units = [...new Set(channels.filter((c) => sides[c.name] === undefined).map((c) => c.unit))];
  return new Map(channels.map((c) => [c.id, sides[c.name] === "left" ? 0 : sides[c.name] === "right" ? 1 : units.indexOf(c.unit)]));
}
