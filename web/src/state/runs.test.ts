import { describe, expect, it } from "vitest";
import type { Run } from "./api";
import { rangeOf, runWithin, shownRun, stateAt, tAt } from "./runs";

const run = (clock: Partial<NonNullable<Run["clock"]>> | null, time: [string, string] | null = null): Run => ({
  name: "r", protected: true, streams: 1, bytes: "0", time,
  clock: clock && { state: "counting", started: "100", stopped: null, t0: "1000", t0_now: null, holds: [], t: null, channels: [], ...clock },
});

describe("the run that is shown", () => {
  const told = { name: "r", t0: "1200", clock: null, held_t: null, state: "counting" };
  const times = (of: ReturnType<typeof shownRun>, ...at: bigint[]) => at.map((one) => of.countdown?.t(one) ?? null);
  it("counts as the clock did before a hold, though the server's T-0 is that of now", () => {
    const runs = [{ ...run(null), name: "other" }, run({ holds: [["500", "700"]], t0_now: "1200" })];
    expect(times(shownRun(told, runs, 800n), 400n, 600n, 800n)).toEqual([-600n, -500n, -400n]);
  });
  it("counts only from now on where its holds could not be had", () => {
    expect(times(shownRun(told, null, 800n), 400n, 799n, 800n, 900n)).toEqual([null, null, -400n, -300n]);
    const held = shownRun({ ...told, t0: null, held_t: "-500", state: "held" }, null, 600n);
    expect([...times(held, 599n, 600n, 900n), held.countdown!.isHeld(900n)]).toEqual([null, -500n, -500n, true]);
    expect(times(shownRun(told, null, null), 800n)).toEqual([null]);
  });
  it("has no T-0 before it is set, or one that nothing holds", () => {
    expect(shownRun({ ...told, t0: null, state: "planned" }, [run({ t0: null })], 1n).countdown).toBeNull();
    const configured = { name: "r", t0: "1000", clock: "plc.t" };
    expect(shownRun({ ...configured, t0: null }, null, 1n)).toEqual({ name: "r", countdown: null, clock: "plc.t" });
    // One of the same name with a clock is another.
    expect(times(shownRun(configured, [run({ t0: "5" })], 1n), 400n)).toEqual([-600n]);
  });
});

describe("a run's clock", () => {
  it("counts from T-0, and stands still in holds", () => {
    expect([tAt(run({}), 400n), tAt(run({}), 1250n)]).toEqual([-600n, 250n]);
    const held = run({ holds: [["500", "700"], ["900", null]] });
    expect([400n, 600n, 800n, 950n, 2000n].map((at) => tAt(held, at))).toEqual([-600n, -500n, -400n, -300n, -300n]);
    expect(tAt(run({ stopped: "1500" }), 9000n)).toBe(500n);
    expect([tAt(run({ t0: null }), 5n), tAt(run(null), 5n)]).toEqual([null, null]);
  });
  it("was at an instant what it was then, whatever it is now", () => {
    const over = run({ state: "stopped", stopped: "1500", holds: [["500", "700"]] });
    expect([99n, 100n, 500n, 700n, 1499n, 1500n].map((at) => stateAt(over, at))).toEqual([null, "begun", "held", "counting", "counting", "stopped"]);
    expect([stateAt(run({ t0: null }), 200n), stateAt(run({ holds: [["500", null]] }), 9000n), stateAt(run(null), 200n)]).toEqual(["planned", "held", null]);
    // T-0 may have been set, or set again, at any time since it began.
    expect([stateAt(run({}), 200n), stateAt(run({ holds: [["500", "700"]] }), 499n)]).toEqual(["begun", "begun"]);
  });
  it("tells from when to when it is", () => {
    expect(rangeOf(run({}), 300n)).toEqual([100n, 300n]);
    expect(rangeOf(run({ stopped: "200" }), null)).toEqual([100n, 200n]);
    expect(rangeOf(run(null, ["5", "9"]), 300n)).toEqual([5n, 9n]);
    expect([rangeOf(run(null), 1n), rangeOf(run({}), null)]).toEqual([null, null]);
  });
});

describe("the run of a replay", () => {
  const named = (name: string, clock: Parameters<typeof run>[0]) => ({ ...run(clock), name });
  const within = (from: bigint, to: bigint, ...runs: Run[]) => runWithin(runs, from, to)?.name ?? null;
  it("is the one that began last, of those that went on in its interval", () => {
    const runs = [named("a", { started: "100", stopped: "200" }), named("c", { started: "400" }), named("b", { started: "300", stopped: "900" })];
    expect([within(150n, 160n, ...runs), within(150n, 350n, ...runs), within(150n, 450n, ...runs), within(950n, 960n, ...runs)]).toEqual(["a", "b", "c", "c"]);
    expect(within(0n, 50n, ...runs)).toBeNull();
  });
  it("began before the end of the interval and stopped after its beginning, not at them", () => {
    const one = named("a", { started: "100", stopped: "200" });
    expect([within(0n, 100n, one), within(0n, 101n, one), within(200n, 300n, one), within(199n, 300n, one)]).toEqual([null, "a", null, "a"]);
  });
  it("has a T-0 to count to", () => {
    expect(within(0n, 1000n, named("a", { t0: null }), named("b", null))).toBeNull();
    expect(within(0n, 1000n, named("later", { started: "500", t0: null }), named("a", {}))).toBe("a");
  });
});
