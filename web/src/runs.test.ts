import { describe, expect, it } from "vitest";
import type { Run } from "./api";
import { rangeOf, tAt } from "./runs";

const run = (clock: Partial<NonNullable<Run["clock"]>> | null, time: [string, string] | null = null): Run => ({
  name: "r", protected: true, streams: 1, bytes: "0", time,
  clock: clock && { state: "counting", started: "100", stopped: null, t0: "1000", t0_now: null, holds: [], t: null, channels: [], ...clock },
});

describe("a run's clock", () => {
  it("counts from T-0, and stands still in holds", () => {
    expect([tAt(run({}), 400n), tAt(run({}), 1250n)]).toEqual([-600n, 250n]);
    const held = run({ holds: [["500", "700"], ["900", null]] });
    expect([400n, 600n, 800n, 950n, 2000n].map((at) => tAt(held, at))).toEqual([-600n, -500n, -400n, -300n, -300n]);
    expect(tAt(run({ stopped: "1500" }), 9000n)).toBe(500n);
    expect([tAt(run({ t0: null }), 5n), tAt(run(null), 5n)]).toEqual([null, null]);
  });
  it("tells from when to when it is", () => {
    expect(rangeOf(run({}), 300n)).toEqual([100n, 300n]);
    expect(rangeOf(run({ stopped: "200" }), null)).toEqual([100n, 200n]);
    expect(rangeOf(run(null, ["5", "9"]), 300n)).toEqual([5n, 9n]);
    expect([rangeOf(run(null), 1n), rangeOf(run({}), null)]).toEqual([null, null]);
  });
});
