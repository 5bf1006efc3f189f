// Runs: the interval each stands for, what its clock said at an instant, holds counted, and the one that a screen shows.
import type { Run } from "./api";
import { Countdown, type Hold } from "../text/countdown";
import type { ServerView } from "../connection/message";

/** From when to when a run is: its data's interval or its clock's; one that goes on ends now. */
export function rangeOf(run: Run, now: bigint | null): [bigint, bigint] | null {
  if (run.clock !== null) {
    const end = run.clock.stopped === null ? now : BigInt(run.clock.stopped);
    return end === null ? null : [BigInt(run.clock.started), end];
  }
  return run.time === null ? null : [BigInt(run.time[0]), BigInt(run.time[1])];
}

/** The run that a replay of an interval counts by: of those with a T-0 that went on in it, the one that began last. */
export function runWithin(runs: readonly Run[], from: bigint, to: bigint): Run | null {
  let found: Run | null = null;
  for (const run of runs) {
    const clock = run.clock;
    if (clock?.t0 == null || BigInt(clock.started) >= to) continue;
    if (clock.stopped !== null && BigInt(clock.stopped) <= from) continue;
    if (found === null || BigInt(clock.started) > BigInt(found.clock!.started)) found = run;
  }
  return found;
}

const ns = (text: string | null | undefined) => (text == null ? null : BigInt(text));

/** The clock of a run; null before there is a T-0. */
export function countdownOf({ clock }: Run): Countdown | null {
  if (clock === null || clock.t0 === null) return null;
  return new Countdown(BigInt(clock.t0), clock.holds.map(([from, to]): Hold => [BigInt(from), ns(to)]), ns(clock.stopped));
}

/** T± of a run at an instant, ns; null before there is a T-0. */
export function tAt(run: Run, at: bigint): bigint | null {
  return countdownOf(run)?.t(at) ?? null;
}

/**
 * What a run's clock was doing at an instant; null before it began, and of one without a clock. "begun": it had begun, and
 * when its T-0 was set is not told, so whether it counted then is not known.
 */
export function stateAt(run: Run, at: bigint): NonNullable<Run["clock"]>["state"] | "begun" | null {
  const clock = run.clock;
  if (clock === null || at < BigInt(clock.started)) return null;
  if (clock.stopped !== null && BigInt(clock.stopped) <= at) return "stopped";
  const countdown = countdownOf(run);
  if (countdown === null) return "planned";
  if (countdown.isHeld(at)) return "held";
  // Holds are those since T-0 was set last.
  return clock.holds.some(([from]) => BigInt(from) <= at) ? "counting" : "begun";
}

/** The run that a screen shows. */
export interface ShownRun {
  name: string;
  /** Null: it has no T-0. */
  countdown: Countdown | null;
  /** Channel with the countdown in seconds, for where there is none. */
  clock: string | null;
}

/**
 * The run of the server's view. `runs`: all of them, with their holds; null where they could not be had: then T± is
 * known from `now` on alone.
 */
export function shownRun(told: NonNullable<ServerView["run"]>, runs: Run[] | null, now: bigint | null): ShownRun {
  const [t0, heldT] = [ns(told.t0), ns(told.held_t)];
  let countdown: Countdown | null = null;
  const run = told.state == null ? undefined : runs?.find((one) => one.name === told.name && one.clock !== null);
  if (run) countdown = countdownOf(run);
  // As it is configured: nothing holds it.
  else if (told.state == null) countdown = t0 === null ? null : new Countdown(t0);
  else if (now !== null && heldT !== null) countdown = new Countdown(now - heldT, [[now, null]], null, now);
  else if (now !== null && t0 !== null) countdown = new Countdown(t0, [], null, now);
  return { name: told.name, countdown, clock: told.clock ?? null };
}
