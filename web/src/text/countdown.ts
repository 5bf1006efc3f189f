// T± of a run at any instant: the time since T-0 without what was spent in holds by then, as the server counts it.

/** From when to when the clock stood, ns; a hold that goes on has no end. */
export type Hold = readonly [bigint, bigint | null];

export class Countdown {
  /**
   * `t0`: T-0 as it was set. `holds`: those since then, in the order of time. `stopped`: the clock stands from there on.
   * `since`: what was held before it is not known, and so no T± either.
   */
  constructor(
    private readonly t0: bigint, private readonly holds: readonly Hold[] = [],
    private readonly stopped: bigint | null = null, private readonly since: bigint | null = null,
  ) {}

  /** T± at an instant, ns; null where it is not known. */
  t(at: bigint): bigint | null {
    if (this.since !== null && at < this.since) return null;
    const end = this.stopped !== null && this.stopped < at ? this.stopped : at;
    let held = 0n;
    for (const [from, to] of this.holds) {
      const until = to === null || to > end ? end : to;
      if (until > from) held += until - from;
    }
    return end - this.t0 - held;
  }

  /** Whether the clock is held at an instant. */
  isHeld(at: bigint): boolean {
    if (this.stopped !== null && this.stopped <= at) return false;
    return this.holds.some(([from, to]) => from <= at && (to === null || at < to));
  }

  /** The first instant at which the clock shows `t`; null where that is not known, or does not come as the clock stands. */
  instant(t: bigint): bigint | null {
    let at = this.t0 + t;
    for (const [from, to] of this.holds) {
      if (at <= from) break;
      if (to === null) return null;
      at += to - from;
    }
    if (this.stopped !== null && at > this.stopped) return null;
    return this.since !== null && at < this.since ? null : at;
  }
}
