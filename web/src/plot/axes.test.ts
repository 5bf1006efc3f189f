import { expect, it } from "vitest";
import { axesOf } from "./axes";
import type { Channel } from "../connection/message";

const channel = (id: number, unit: string) => ({ id, name: `c${id}`, unit }) as Channel;

it("gives each unit an axis, left then right, and a channel the side that was chosen for it", () => {
  const all = [channel(1, "bar"), channel(2, "°C"), channel(3, "bar"), channel(4, "V")];
  expect([...axesOf(all, {}).values()]).toEqual([0, 1, 0, 2]);
  expect([...axesOf(all, { c3: "right", c2: "left" }).values()]).toEqual([0, 0, 1, 1]);
  expect([...axesOf(all.slice(0, 1), { c1: "right" }).values()]).toEqual([1]);
});
