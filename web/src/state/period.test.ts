import { describe, expect, it } from "vitest";
import { Periods } from "./period";
import { ageOf, DEFAULT_LIMIT_NS, staleLimitNs } from "./stale";

const T0 = 1_795_192_867_000_000_000n;
const s = (n: number) => BigInt(Math.round(n * 1000)) * 1_000_000n;

function after(...seconds: number[]): bigint | null {
  const periods = new Periods();
  for (const second of seconds) periods.received(7, T0 + s(second));
  return periods.get(7);
}

describe("the period of a stream", () => {
  it("is known once two distances agree", () => {
    expect(after()).toBe(null);
    expect(after(0)).toBe(null);
    expect(after(0, 10)).toBe(null);
    expect(after(0, 10, 20)).toBe(s(10));
    expect(after(0, 10.2, 20)).toBe(s(10.2));
  });
  it("is not a pause, and outlives one", () => {
    expect(after(0, 0.1, 10)).toBe(null);
    expect(after(0, 10, 20, 80)).toBe(s(10));
    expect(after(0, 10, 20, 20.1, 20.2)).toBe(s(0.1));
  });
  it("is the server's until updates say otherwise", () => {
    const periods = new Periods();
    periods.learnt(7, s(60));
    expect(periods.get(7)).toBe(s(60));
    periods.learnt(7, null);
    expect(periods.get(7)).toBe(s(60));
    for (const second of [0, 10, 20, 30]) periods.received(7, T0 + s(second));
    expect(periods.get(7)).toBe(s(10));
    expect(periods.get(8)).toBe(null);
  });
  it("gives a slow stream its time and takes none from a fast one", () => {
    for (const [seconds, age, stale] of [[10, 9.9, false], [10, 29, false], [10, 31, true], [0.1, 1.8, false], [0.1, 2.1, true]] as const) {
      expect(ageOf(T0, T0 + s(age), null, true, s(seconds)).stale).toBe(stale);
    }
    expect(staleLimitNs(null, s(0.1))).toBe(staleLimitNs(null));
    expect(staleLimitNs(s(0.1), s(60)) < DEFAULT_LIMIT_NS).toBe(true);
  });
});
