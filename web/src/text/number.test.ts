import { describe, expect, it } from "vitest";
import { brief, toNumber } from "../connection/message";
import { count, Digits, exact, fixed, rate, rounded, short } from "./number";

describe("numbers in words", () => {
  it("keeps digits in their columns once decimals were seen", () => {
    const d = new Digits();
    expect(d.text(4.31, "f64")).toBe("4.31");
    expect(d.text(4.312744140625, "f32")).toBe("4.3127");
    expect(d.text(4.3, "f64")).toBe("4.3000");
    expect(d.text(-5, "f64")).toBe("−5.0000");
  });
  it("writes what JSON cannot hold as numbers", () => {
    const d = new Digits();
    expect(d.text("9007199254740993", "i64")).toBe("9007199254740993");
    expect(d.text("18446744073709551615", "u64")).toBe("18446744073709551615");
    expect(d.text("NaN", "f64")).toBe("NaN");
    expect(d.text("-Infinity", "f64")).toBe("−∞");
    expect(d.text(true, "bool")).toBe("true");
    expect(d.text("OPEN", "string")).toBe("OPEN");
    expect(d.text(null, "f64")).toBe("–");
  });
  it("makes up no digits of extremes beyond 2^53, and has one minus sign", () => {
    const d = new Digits();
    expect(d.text("-9223372036854775808", "i64")).toBe("−9223372036854775808");
    expect([d.write(2 ** 53 - 1, "i64"), d.write(18446744073709551615, "u64")]).toEqual(["9007199254740991", "1.845e+19"]);
    expect(d.write(-(2 ** 63), "i64")).toBe("−9.223e+18");
  });
  it("never calls a rare stream one of no frames", () => {
    expect([0, 1 / 3600, 1 / 60, 0.094, 0.095, 0.1].map(rate)).toEqual(["0.0 Hz", "<0.001 Hz", "0.017 Hz", "0.094 Hz", "0.1 Hz", "0.1 Hz"]);
  });
  it("has no negative zero and an exponent for the very small and large", () => {
    expect(fixed(-0.0001, 2)).toBe("0.00");
    expect(fixed(6.02e23, 2)).toBe("6.020e+23");
    expect(fixed(1e-9, 4)).toBe("1.000e−9");
  });
  it("shows small values that no larger one came with, and every digit of integers", () => {
    const vacuum = new Digits();
    expect([3e-5, 1.4e-4, 0].map((value) => vacuum.text(value, "f64"))).toEqual(["3.000e−5", "1.400e−4", "0"]);
    // About zero on its way through it.
    const wave = new Digits();
    expect([0.5123, 3e-5].map((value) => wave.text(value, "f64"))).toEqual(["0.5123", "0.0000"]);
    expect([2_147_483_649, -7, 1e9].map((value) => new Digits().text(value, "i64"))).toEqual(["2147483649", "−7", "1000000000"]);
  });
  it("shows what was pumped down, whatever it was before, and seconds since 1970 as they go by", () => {
    const pump = new Digits();
    pump.text(1013.25, "f64");
    const shown = Array.from({ length: 200 }, () => pump.text(4.2e-4, "f64"));
    expect([shown[0], shown.at(-1), pump.text(0.5, "f64"), pump.text(4.2e-4, "f64")]).toEqual(["0.0004", "4.200e−4", "0.5000", "0.0004"]);
    const clock = new Digits();
    expect([1_795_192_867, 1_795_192_868.5].map((value) => clock.text(value, "f64"))).toEqual(["1795192867", "1795192869"]);
    expect(fixed(-1e15, 0)).toBe("−1.000e+15");
  });
  it("learns from what is received alone, and once", () => {
    const pump = new Digits();
    pump.newest(1013.25, "f64", 0n);
    let shown = "";
    for (let at = 1n; at <= 101n; at++) {
      shown = pump.newest(4.2e-4, "f64", at);
      // The greatest of the hour stands beside it, and a cursor over the past.
      expect([pump.write(1013.25, "f64"), pump.write(995.5, "f64")]).toEqual(["1013.2500", "995.5000"]);
    }
    expect([shown, pump.write(4.2e-4, "f64"), pump.write(0.5, "f64"), pump.newest(4.2e-4, "f64", 101n)]).toEqual(["4.200e−4", "4.200e−4", "0.5000", "4.200e−4"]);
    // What stands is not received a hundred times.
    const still = new Digits();
    still.newest(1.5, "f64", 0n);
    expect(Array.from({ length: 200 }, () => still.newest(4.2e-4, "f64", 1n)).at(-1)).toBe("0.0004");
    // A cursor shows the digits of what is under it, and the value beside it stays as it is.
    const level = new Digits();
    level.newest(4, "f64", 0n);
    expect([level.write(4.5, "f64"), level.newest(4, "f64", 1n), level.write(true, "bool"), level.write(7, "u8"), level.write("OPEN", "string")])
      .toEqual(["4.5", "4", "true", "7", "OPEN"]);
    expect([new Digits().write(3e-5, "f64"), new Digits().write(0.25, "f64")]).toEqual(["3.000e−5", "0.25"]);
  });
  it("has the decimals that a panel chose, and no digits that mean nothing", () => {
    const write = (value: number, decimals: number) => rounded(value, { decimals, bounds: [] });
    expect([write(4.31274, 2), write(4, 3), write(-4.5, 0), write(-0.001, 1), write(1.2e-7, 2)]).toEqual(["4.31", "4.000", "−5", "0.0", "0.00"]);
    expect([write(0.1, 12), write(123456.789, 12), write(1e15 + 1, 2)]).toEqual(["0.100000000000", "123456.789000000", "1.000e+15"]);
    const d = new Digits();
    const chosen = { decimals: 1, bounds: [] };
    expect([d.write(3e-5, "f64", chosen), d.write(2.25, "f32", chosen), d.write(7.5, "u8", chosen)]).toEqual(["0.0", "2.3", "7.5"]);
    // A counter, a word and what is no number stay as they are.
    expect([d.write(7, "u8", chosen), d.write("9007199254740993", "i64", chosen), d.write("OPEN", "string", chosen), d.write(true, "bool", chosen), d.write("NaN", "f64", chosen), d.write(null, "f64", chosen)])
      .toEqual(["7", "9007199254740993", "OPEN", "true", "NaN", "–"]);
  });
  it("never rounds a value onto a bound or beyond it", () => {
    const write = (value: number, decimals: number, ...bounds: number[]) => rounded(value, { decimals, bounds });
    expect([write(4.3004, 1, 4.3), write(4.2996, 1, 4.3), write(4.3, 1, 4.3), write(4.36, 1, 4.3)]).toEqual(["4.3004", "4.2996", "4.3", "4.4"]);
    expect([write(4.34, 1, 4.33), write(0.6, 0, 0.8), write(-0.0004, 2, 0), write(1e-7, 2, 0)]).toEqual(["4.34", "0.6", "−0.0004", "0.0000001"]);
    // Closer than any decimals tell: all digits there are.
    expect([write(0.1 + 0.2, 1, 0.3), write(1e15 + 1, 0, 1e15), write(99.5, 0, 100)]).toEqual(["0.30000000000000004", "1000000000000001", "99.5"]);
    for (let i = 0; i < 2000; i++) {
      const value = (((i * 7919) % 2000) - 1000) / 137;
      for (const bound of [0, 2.5, -7.3, value]) {
        for (const decimals of [0, 1, 2]) {
          const text = Number(write(value, decimals, bound).replace("−", "-"));
          expect(Math.sign(text - bound), `${value} ${bound} ${decimals}`).toBe(Math.sign(value - bound));
        }
      }
    }
  });
  it("has every digit where that is asked for, the sign of a zero and the elements of an array too", () => {
    expect([0.1, -0, 0, 1e21, "NaN", "9007199254740993", true, null].map(exact)).toEqual(["0.1", "-0", "0", "1e+21", "NaN", "9007199254740993", "true", ""]);
    expect([[1.5, -0, "NaN", null], []].map(exact)).toEqual(["[1.5, -0, NaN, null]", "[]"]);
  });
  it("says of an array in a state what updates say of it", () => {
    const words = (value: Parameters<typeof brief>[0], type: Parameters<typeof brief>[1]) => new Digits().text(brief(value, type), type);
    expect([words([1, 2, 3], "f32[]"), words([7], "i64[1]"), words([], "f64[]")]).toEqual(["f32[3]", "i64[1]", "f64[0]"]);
    expect([words("f32[3]", "f32[]"), words("blob(48213 bytes, 9f3c01aa)", "blob"), words(5, "f64")]).toEqual(["f32[3]", "blob(48213 bytes, 9f3c01aa)", "5"]);
  });
  it("shortens rates and counts", () => {
    expect([short(68_500), short(999_700), short(2_100_000), short(12), short(0)]).toEqual(["68.5 k", "1.00 M", "2.10 M", "12", "0"]);
    expect([rate(25), rate(1000), rate(0.83), rate(1009)]).toEqual(["25.0 Hz", "1.00 kHz", "0.8 Hz", "1.01 kHz"]);
    expect(count("12408")).toBe("12\u202f408");
  });
  it("plots numbers, truths and decimal text, nothing else", () => {
    expect([toNumber(1.5), toNumber(true), toNumber("12"), toNumber("NaN"), toNumber("Infinity"), toNumber(null), toNumber("OPEN"), toNumber("")])
      .toEqual([1.5, 1, 12, null, null, null, null, null]);
  });
});
