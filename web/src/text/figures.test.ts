import { describe, expect, it } from "vitest";
import { limitWords, plain, ppm, share, signedSpan, spanWords } from "./figures";

describe("figures", () => {
  it.each([
    [0, "0 ns"], [1, "1 ns"], [340, "340 ns"], [999.4, "999 ns"], [999.6, "1.00 µs"], [1240, "1.24 µs"], [12_400, "12.4 µs"],
    [999_600, "1.00 ms"], [1_240_000, "1.24 ms"], [99_960_000, "100 ms"], [124e6, "124 ms"], [12e9, "12.0 s"], [7199e9, "7199 s"],
    [7200e9, "2.00 h"], [1.76e18, "20370 d"], [NaN, "–"],
  ])("a span of %f ns is %s", (ns, words) => expect(spanWords(ns)).toBe(words));
  it("has a sign where there is something to sign", () => {
    expect([signedSpan(-1_240_000), signedSpan(1_240_000), signedSpan(0), signedSpan(-0.2)]).toEqual(["−1.24 ms", "+1.24 ms", "0 ns", "0 ns"]);
    expect([ppm(3.214), ppm(-104.2), ppm(-0.001), ppm(0), ppm(NaN)]).toEqual(["+3.21 ppm", "−104 ppm", "0.00 ppm", "0.00 ppm", "– ppm"]);
  });
  it("never rounds something to nothing, nor less than all to all", () => {
    expect([share(0, 10), share(1, 1_000_000), share(999_999, 1_000_000), share(10, 10), share(1, 8), share(1, 300), share(0, 0)]).toEqual([
      "0 %", "<0.01 %", ">99.99 %", "100 %", "12.5 %", "0.33 %", "–",
    ]);
  });
  it("limits in the unit in which they are said", () => {
    expect([10_000, 500_000, 2e6, 110e6, 1e9, 60e9, 90e9, 15].map(limitWords)).toEqual([
      "10 µs", "500 µs", "2 ms", "110 ms", "1 s", "1 min", "90 s", "15 ns",
    ]);
    expect(plain("never_configured_at_all")).toBe("never configured at all");
  });
});
