// When one value is too old to look alive. Ages are the server's receive time against the server's clock.

/** Without a known period, what is older than this is stale. */
export const DEFAULT_LIMIT_NS = 2_000_000_000n;
/** Ages are looked at this often; it is taken off the limit so that nothing looks fresh past it. */
export const CHECK_INTERVAL_NS = 100_000_000n;
/** How often the page asks for values. */
export const DISPLAY_PERIOD_NS = 200_000_000n;

/** What was received so far ahead of now was received before the server's clock was set back. */
const AHEAD_NS = 1_000_000_000n;
/** What was received no longer ago than this is as new as anything that could be asked for. */
const CURRENT_NS = 1_000_000_000n;

/** A screen updated five times a second calls nothing late before a second has passed: what is late but steady does not flicker. */
export const LEAST_LIMIT_NS = 1_000_000_000n;

/**
 * The age at which a channel's value goes stale: 3 expected periods, as they reach the screen. A period that was learnt
 * is an estimate: it makes the limit longer, never shorter.
 */
export function staleLimitNs(expectedPeriodNs: bigint | null, learntPeriodNs: bigint | null = null): bigint {
  if (expectedPeriodNs === null || expectedPeriodNs <= 0n) {
    const least = DEFAULT_LIMIT_NS - CHECK_INTERVAL_NS;
    const learnt = 3n * (learntPeriodNs ?? 0n);
    return learnt > least ? learnt : least;
  }
  const limit = 3n * expectedPeriodNs;
  return limit > LEAST_LIMIT_NS ? limit : LEAST_LIMIT_NS;
}

export interface Age {
  /** Null: the value was never received. */
  ageNs: bigint | null;
  stale: boolean;
}

/** Whether a value that was received then is newer than the one that is known, which a clock set back may have left ahead. */
export function isNewer(receiveNs: bigint, knownNs: bigint, nowNs: bigint): boolean {
  return receiveNs > knownNs || knownNs > nowNs + AHEAD_NS;
}

/** Whether a value that is known may stand: an older one may have changed while nobody looked. */
export function isCurrent(knownNs: bigint, nowNs: bigint): boolean {
  return knownNs <= nowNs + AHEAD_NS && nowNs - knownNs < CURRENT_NS;
}

/** How far the time of a value is from its reception where a span up to now does not show it: below 0 before, above 0 after; else 0. */
export function outsideNs(timeNs: bigint, receiveNs: bigint, spanNs: bigint): bigint {
  const apart = timeNs - receiveNs;
  return apart > AHEAD_NS || apart < -spanNs ? apart : 0n;
}

/**
 * The age of a value and whether it must be shown as stale. On a screen that is not live every value is
 * stale, whatever its age; so is one whose age cannot be known.
 */
export function ageOf(
  receiveNs: bigint | null,
  nowNs: bigint | null,
  expectedPeriodNs: bigint | null,
  screenLive: boolean,
  learntPeriodNs: bigint | null = null,
): Age {
  if (receiveNs === null) return { ageNs: null, stale: true };
  if (nowNs === null || receiveNs > nowNs + AHEAD_NS) return { ageNs: null, stale: true };
  const ageNs = nowNs > receiveNs ? nowNs - receiveNs : 0n;
  return { ageNs, stale: !screenLive || ageNs > staleLimitNs(expectedPeriodNs, learntPeriodNs) };
}
