import { describe, expect, it } from "vitest";
import { ageOf, CHECK_INTERVAL_NS, DEFAULT_LIMIT_NS, isCurrent, isNewer, outsideNs, staleLimitNs } from "./stale";

const NOW = 1_795_192_867_482_000_000n;
const ms = (n: number) => BigInt(n) * 1_000_000n;

describe("staleness of a value", () => {
  it("is three expected periods", () => {
    expect(ageOf(NOW - ms(2999), NOW, ms(1000), true).stale).toBe(false);
    expect(ageOf(NOW - ms(3001), NOW, ms(1000), true)).toEqual({ ageNs: ms(3001), stale: true });
  });
  it("is no less than a second: 1 kHz is shown five times a second", () => {
    expect(staleLimitNs(ms(1))).toBe(ms(1000));
    expect(staleLimitNs(ms(400))).toBe(ms(1200));
  });
  it("is seen within 2 s where the period is unknown", () => {
    expect(staleLimitNs(null) + CHECK_INTERVAL_NS).toBe(DEFAULT_LIMIT_NS);
    expect(ageOf(NOW - ms(1800), NOW, null, true).stale).toBe(false);
    expect(ageOf(NOW - ms(1950), NOW, null, true).stale).toBe(true);
    expect(staleLimitNs(0n)).toBe(staleLimitNs(null));
  });
  it("holds for every value of a screen that is not live, and for ages that cannot be known", () => {
    expect(ageOf(NOW, NOW, ms(40), false).stale).toBe(true);
    expect(ageOf(NOW, null, ms(40), true).stale).toBe(true);
    expect(ageOf(null, NOW, ms(40), true)).toEqual({ ageNs: null, stale: true });
  });
  it("takes a value from a clock that runs ahead for new, not for negative", () => {
    expect(ageOf(NOW + ms(5), NOW, ms(40), true)).toEqual({ ageNs: 0n, stale: false });
  });
  it("holds for a value from before the clock was set back: its age is not known", () => {
    expect(ageOf(NOW + ms(3_600_000), NOW, ms(40), true)).toEqual({ ageNs: null, stale: true });
  });
  it("lets go of a value for a newer one, and of one from before the clock was set back for any", () => {
    expect(isNewer(NOW, NOW - 1n, NOW)).toBe(true);
    expect(isNewer(NOW - 1n, NOW, NOW)).toBe(false);
    expect(isNewer(NOW, NOW, NOW)).toBe(false);
    expect(isNewer(NOW, NOW + ms(3_600_000), NOW + ms(1))).toBe(true);
  });
  it("is not all: the time of a fresh value may be none that a span up to now shows", () => {
    const apart = (of: number) => outsideNs(NOW + ms(of), NOW, ms(60_000));
    expect([0, 900, -59_000, -60_000].map(apart)).toEqual([0n, 0n, 0n, 0n]);
    expect([1100, -60_001, -3_600_000].map(apart)).toEqual([ms(1100), ms(-60_001), ms(-3_600_000)]);
  });
  it("is asked about where the value may have changed while nobody looked", () => {
    expect(isCurrent(NOW - ms(900), NOW)).toBe(true);
    expect(isCurrent(NOW - ms(1100), NOW)).toBe(false);
    expect(isCurrent(NOW + ms(3_600_000), NOW)).toBe(false);
  });
});
