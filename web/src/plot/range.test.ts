import { describe, expect, it } from "vitest";
import { endPlaces, niceStep, powerOf, reach, ValueRange, withEnds } from "./range";

const range = (least: number, greatest: number, of = new ValueRange()) => {
  of.fit(least, greatest);
  return [of.min, of.max] as const;
};
/** Numbers between 0 and 1, the same in every run. */
function numbers(): () => number {
  let seed = 7;
  return () => (seed = (seed * 16_807) % 2_147_483_647) / 2_147_483_647;
}

describe("the range of a value axis", () => {
  it("contains all data, whatever came before, and ends on round numbers", () => {
    const random = numbers();
    const of = new ValueRange();
    for (let i = 0; i < 3000; i++) {
      const size = 10 ** Math.floor(20 * random() - 10);
      const [a, b] = [(random() - 0.5) * size, (random() - 0.5) * size].sort((x, y) => x - y) as [number, number];
      const [min, max] = range(a, b, of);
      expect(min <= a && b <= max && max > min, `${a} ${b}: ${min} ${max}`).toBe(true);
    }
    expect(range(3.5, 4.3)).toEqual([3.4000000000000004, 4.4]);
  });
  it("has a margin above and below, so that no line runs along an edge", () => {
    for (const [a, b] of [[0, 1], [-7, 93], [1e-9, 2e-9], [1000, 1001]] as const) {
      const [min, max] = range(a, b);
      expect([a - min, max - b].every((room) => room >= 0.08 * (b - a) * 0.999), `${a} ${b}`).toBe(true);
      // Nor is most of it empty.
      expect(max - min).toBeLessThan(2 * (b - a));
    }
  });
  it("grows at once, and shrinks only when the data fill little of it", () => {
    const of = new ValueRange();
    const wide = range(0, 100, of);
    expect(range(20, 80, of)).toEqual(wide);
    expect(range(40, 60, of)[1]).toBeLessThan(70);
    expect(range(40, 101, of)[1]).toBeGreaterThanOrEqual(101);
  });
  it("does not follow the noise of a value that hardly changes", () => {
    const random = numbers();
    for (const value of [4.1, 0.37, 1013, 100, -28.4]) {
      for (const noise of [5e-5, 2e-4]) {
        const of = new ValueRange();
        let [moves, before] = [0, ""];
        for (let i = 0; i < 1000; i++) {
          const [a, b] = [value * (1 - noise * random()), value * (1 + noise * random())];
          const now = range(Math.min(a, b), Math.max(a, b), of).join();
          if (now !== before) moves++;
          before = now;
        }
        expect([value, noise, moves <= 2]).toEqual([value, noise, true]);
      }
    }
  });
  it("follows a drift of such a value", () => {
    const of = new ValueRange();
    for (let i = 0; i <= 1000; i++) {
      const value = 100 + i / 100;
      const [min, max] = range(value - 0.001, value + 0.001, of);
      expect(min < value && value < max).toBe(true);
      expect(max - min).toBeLessThan(0.3);
    }
  });
  it("begins anew after it was cleared", () => {
    const of = new ValueRange();
    range(0, 1000, of);
    of.clear();
    expect(range(500, 900, of)[0]).toBeGreaterThan(400);
  });
  it("takes nothing from what is no interval", () => {
    const of = new ValueRange();
    const before = range(0, 1, of);
    for (const [a, b] of [[Infinity, -Infinity], [NaN, 3], [3, NaN], [2, 1]] as const) expect(range(a, b, of)).toEqual(before);
  });
});

describe("the range of a logarithmic axis", () => {
  it("contains the powers of ten of all data, with a margin, whatever came before", () => {
    const random = numbers();
    const of = new ValueRange("log");
    for (let i = 0; i < 3000; i++) {
      const [a, b] = [10 ** (600 * random() - 300), 10 ** (600 * random() - 300)].sort((x, y) => x - y) as [number, number];
      const [min, max] = range(a, b, of);
      expect(min < powerOf(a) && powerOf(b) < max, `${a} ${b}: ${min} ${max}`).toBe(true);
    }
    expect(range(0.01, 100, new ValueRange("log"))).toEqual([-2.5, 2.5]);
  });
  it("spans a factor of two around a constant, and stands still in its noise", () => {
    const of = new ValueRange("log");
    const [min, max] = range(5e-7, 5e-7, of);
    expect([max - min >= 0.3, max - min < 0.6, min < powerOf(5e-7), powerOf(5e-7) < max]).toEqual([true, true, true, true]);
    expect(range(4.9e-7, 5.1e-7, of)).toEqual([min, max]);
  });
  it("has a place for what is not above zero below every other", () => {
    const of = new ValueRange("log");
    expect([of.place(100), of.place(Number.MAX_VALUE) < 309]).toEqual([2, true]);
    for (const value of [0, -0, -1e300]) expect(of.place(value)).toBeLessThan(of.place(Number.MIN_VALUE));
    expect(new ValueRange().place(-4)).toBe(-4);
    // Nothing above zero: as if nothing were there.
    expect([range(Infinity, -1, of), of.isKnown]).toEqual([[0, 1], false]);
  });
  it("has its ends at their powers of ten, where they have one", () => {
    expect([endPlaces({ min: 0.1, max: 1000 }, "log"), endPlaces({ min: 0.1, max: 1000 }, "linear")]).toEqual([{ min: -1, max: 3 }, { min: 0.1, max: 1000 }]);
    expect([endPlaces({ min: 0, max: -4 }, "log"), endPlaces(undefined, "log")]).toEqual([{}, undefined]);
  });
});

describe("ends that were set", () => {
  it("stand, and the data decide the others", () => {
    const of = { min: 2, max: 6 };
    expect([withEnds(of, undefined), withEnds(of, { min: 1 }), withEnds(of, { max: 3.5 }), withEnds(of, { min: -1, max: 1 })])
      .toEqual([[2, 6], [1, 6], [2, 3.5], [-1, 1]]);
  });
  it("beyond all data leave an axis", () => {
    expect([withEnds({ min: 2, max: 6 }, { min: 9 }), withEnds({ min: 2, max: 6 }, { max: -1 })]).toEqual([[9, 13], [-5, -1]]);
  });
});

describe("steps", () => {
  it("are the least of 1, 2, 5 × 10ⁿ that makes few enough", () => {
    for (let span = 1e-12; span < 1e12; span *= 1.7) {
      for (const parts of [1, 3, 8]) {
        const step = niceStep(span, parts);
        expect(span / step, `${span} ${parts}`).toBeLessThanOrEqual(parts * (1 + 1e-6));
        expect(span / step, `${span} ${parts}`).toBeGreaterThan(parts / 2.6);
        expect(["1", "2", "5"]).toContain((step / 10 ** Math.floor(Math.log10(step) + 1e-9)).toFixed(3).replace(/\.000$/, ""));
      }
    }
  });
  it("are 1 where there is no span", () => {
    expect([niceStep(0, 4), niceStep(NaN, 4), niceStep(Infinity, 4), niceStep(-1, 4)]).toEqual([1, 1, 1, 1]);
    expect(niceStep(10, 0)).toBe(10);
  });
});

describe("reach", () => {
  it("leaves every usual value as it is, and keeps the largest within an axis", () => {
    expect([reach(5), reach(-1e300)]).toEqual([5, -1e300]);
    expect(Number.isFinite(reach(Number.MAX_VALUE) - reach(-Number.MAX_VALUE))).toBe(true);
  });
});
