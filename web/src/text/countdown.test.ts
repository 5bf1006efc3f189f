import { describe, expect, it } from "vitest";
import { Countdown } from "./countdown";

/** T-0 set at 1000; held from 500 to 700 and again from 900. */
const held = new Countdown(1000n, [[500n, 700n], [900n, null]]);

describe("a countdown", () => {
  it("says of an instant before a hold what the clock said then", () => {
    expect([400n, 500n, 600n, 700n, 800n, 950n, 9000n].map((at) => held.t(at))).toEqual([-600n, -500n, -500n, -500n, -400n, -300n, -300n]);
    expect([499n, 500n, 699n, 700n, 899n, 900n, 9000n].map((at) => held.isHeld(at))).toEqual([false, true, true, false, false, true, true]);
  });
  it("finds the first instant at which the clock showed a time, where there is one", () => {
    expect([-600n, -500n, -400n, -300n, -299n].map((t) => held.instant(t))).toEqual([400n, 500n, 800n, 900n, null]);
    for (const at of [0n, 400n, 500n, 701n, 800n, 900n]) expect(held.instant(held.t(at)!)).toBe(at);
    expect(new Countdown(1000n).instant(70n)).toBe(1070n);
  });
  it("stands from its end on", () => {
    const over = new Countdown(1000n, [[500n, 700n], [1400n, null]], 1500n);
    expect([over.t(1450n), over.t(9000n), over.isHeld(1450n), over.isHeld(1500n)]).toEqual([200n, 200n, true, false]);
    const short = new Countdown(1000n, [], 1500n);
    expect([short.instant(500n), short.instant(501n)]).toEqual([1500n, null]);
  });
  it("says nothing of instants before which holds are not known", () => {
    const late = new Countdown(1000n, [], null, 800n);
    expect([late.t(799n), late.t(800n), late.instant(-201n), late.instant(-200n)]).toEqual([null, -200n, null, 800n]);
  });
});
