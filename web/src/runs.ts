// Runs: the interval each stands for, and what its clock said at an instant, holds counted.
import type { Run } from "./api";

/** From when to when a run is: its data's interval or its clock's; one that goes on ends now. */
export function rangeOf(run: Run, now: bigint | null): [bigint, bigint] | null {
  if (run.clock !== null) {
    const end = run.clock.stopped === null ? now : BigInt(run.clock.stopped);
    return end === null ? null : [BigInt(run.clock.started), end];
  }
  return run.time === null ? null : [BigInt(run.time[0]), BigInt(run.time[1])];
}

/** T± of a run at an instant, ns: the time since T-0 without what was spent in holds by then; null before there is a T-0. */
export function tAt(run: Run, at: bigint): bigint | null {
  const clock = run.clock;
  if (clock === null || clock.t0 === null) return null;
  const end = clock.stopped !== null && BigInt(clock.stopped) < at ? BigInt(clock.stopped) : at;
  let held = 0n;
  for (const [from, to] of clock.holds) {
    const begin = BigInt(from);
    const stop = to === null || BigInt(to) > end ? end : BigInt(to);
    if (stop > begin) held += stop - begin;
  }
  return end - BigInt(clock.t0) - held;
}
