import { describe, expect, it } from "vitest";
import { ageOf, CHECK_INTERVAL_NS, DEFAULT_LIMIT_NS, staleLimitNs } from "./stale";

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
});
