import { expect, test } from "vitest";
import { boundsOf } from "./limits";
import type { Channel, Limit } from "./message";

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
