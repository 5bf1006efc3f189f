import { describe, expect, it } from "vitest";
import { roughly, Sights } from "./sight";

const S = 1_000_000_000n;
const NOW = 1_795_192_867n * S;
const MINUTE = 60n * S;
const newest = (apart: bigint) => ({ timeNs: NOW + apart, receiveNs: NOW });

describe("what a stream brings", () => {
  it("is in sight, before it or after it", () => {
    const sights = new Sights();
    const apart = (from: bigint, to: bigint) => {
      sights.clear();
      sights.received(3, [NOW + from, NOW + to], NOW);
      return sights.outsideNs(3, newest(0n), MINUTE);
    };
    expect([apart(0n, 0n), apart(-50n * S, -40n * S), apart(-90n * S, -50n * S), apart(0n, 900n * S)]).toEqual([0n, 0n, 0n, 0n]);
    expect([apart(-90n * S, -80n * S), apart(20n * S, 30n * S), apart(30n * S, 20n * S)]).toEqual([-80n * S, 20n * S, 20n * S]);
    // The same delay is outside of a shorter span alone.
    sights.received(4, [NOW - 80n * S, NOW - 80n * S], NOW);
    expect([sights.outsideNs(4, newest(0n), 2n * MINUTE), sights.outsideNs(4, newest(0n), MINUTE)]).toEqual([0n, -80n * S]);
    // What no update brought is judged by its own time.
    expect([sights.outsideNs(9, newest(0n), MINUTE), sights.outsideNs(9, newest(-3600n * S), MINUTE)]).toEqual([0n, -3600n * S]);
  });
  it("is outside only where nothing was in sight for a while", () => {
    const sights = new Sights();
    const said: bigint[] = [];
    for (let i = 0n; i < 100n; i++) {
      const at = NOW + (i * S) / 5n;
      // In turns an hour ahead and now, then ahead alone.
      sights.received(3, i % 2n === 0n || i >= 50n ? [at + 3600n * S, at + 3600n * S] : [at, at], at);
      said.push(sights.outsideNs(3, newest(0n), MINUTE));
    }
    expect(said.slice(1, 64).every((apart) => apart === 0n)).toBe(true);
    expect(said.slice(65).every((apart) => apart === 3600n * S)).toBe(true);
    // At once where something is in sight again.
    sights.received(3, [NOW + 20n * S, NOW + 20n * S], NOW + 20n * S);
    expect(sights.outsideNs(3, newest(0n), MINUTE)).toBe(0n);
  });
  it("is said in words that do not change all the time", () => {
    expect([-3n * S, 119n * S, 125n * S, 7199n * S, -3n * 3600n * S, 10n * 86_400n * S].map(roughly)).toEqual(["3 s", "119 s", "2 min", "120 min", "3 h", "10 d"]);
  });
});
