import { beforeEach, describe, expect, it } from "vitest";
import type { Channel, Limit } from "../connection/message";
import { roundingBy } from "./rounding";

const channel = (name: string) => ({ id: 1, name: `t.${name}`, table: "t", channel: name, tags: {} }) as unknown as Channel;
const limit = (pattern: string, high: number): Limit => ({ name: null, channels: [pattern], watch: null, warning: { low: null, high }, critical: null });

describe("how a panel writes numbers", () => {
  let decimals: number | null;
  let limits: Limit[];
  const [p, q] = [channel("p"), channel("q")];
  const rounding = () => roundingBy(() => decimals, () => limits);
  beforeEach(() => {
    [decimals, limits] = [2, [limit("t.p", 4.5)]];
  });
  it("is with the decimals chosen for it, and with the bounds of each channel", () => {
    const of = rounding();
    expect([of(p), of(q)]).toEqual([{ decimals: 2, bounds: [4.5] }, { decimals: 2, bounds: [] }]);
    decimals = 0;
    expect(of(p)).toEqual({ decimals: 0, bounds: [4.5] });
    decimals = null;
    expect(of(p)).toBeNull();
  });
  it("follows limits that change", () => {
    const of = rounding();
    of(p);
    limits = [limit("t.*", 7)];
    expect([of(p)!.bounds, of(q)!.bounds]).toEqual([[7], [7]]);
  });
});
