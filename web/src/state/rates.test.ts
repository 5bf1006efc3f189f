import { expect, test } from "vitest";
import { Rates } from "./rates";

const S = 1_000_000_000n;

test("frames a second are counted from the first update on, and are none after three seconds without any", () => {
  const rates = new Rates();
  for (let i = 0; i <= 5; i++) rates.count(1, 7, 10, (BigInt(i) * S) / 5n);
  expect([rates.hz(7, S), rates.hz(8, S), rates.hz(7, null), rates.hz(7, 4n * S), rates.hz(7, 5n * S)]).toEqual([50, null, null, 50, 0]);
  // Another subscription counts for itself; one that ended, or was restarted, from its next update on.
  rates.count(2, 7, 999, 2n * S);
  rates.drop(1);
  rates.count(1, 7, 999, 3n * S);
  rates.restart();
  rates.count(2, 7, 999, 3n * S);
  expect(rates.hz(7, 3n * S)).toBe(50);
  rates.clear();
  expect(rates.hz(7, 3n * S)).toBeNull();
});
