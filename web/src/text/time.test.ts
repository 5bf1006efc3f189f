import { describe, expect, it } from "vitest";
import { Countdown } from "./countdown";
import { age, fineClock, fromTo, longSpan, mark, notTime, parseTime, rfc3339, secondsBetween, tClock, utc, utcClock } from "./time";

const NOW = 1_795_192_867_482_123_456n; // 2026-11-20 16:41:07.482123456 UTC

describe("instants in words", () => {
  it("writes UTC to the millisecond, floored", () => {
    expect(utc(NOW)).toBe("2026-11-20 16:41:07.482");
    expect(utc(-1n)).toBe("1969-12-31 23:59:59.999");
    expect(utcClock(NOW, 2)).toBe("16:41:07.48");
  });
  it("keeps every nanosecond where it matters", () => {
    expect(rfc3339(NOW)).toBe("2026-11-20T16:41:07.482123456Z");
    expect(rfc3339(-1n)).toBe("1969-12-31T23:59:59.999999999Z");
    expect(secondsBetween(NOW, NOW + 1n)).toBe(1e-9);
  });
  it("does not break on times no calendar has", () => {
    expect(utc(9_223_372_036_854_775_807n)).toContain("2262");
    expect(utc(10n ** 30n)).toContain("ns");
  });
  it("counts to and from T-0", () => {
    expect(tClock(NOW, NOW + 10_200_000_000n)).toEqual({ clock: "T−00:00:10", tenth: "2" });
    expect(tClock(NOW, NOW - 3_723_900_000_000n)).toEqual({ clock: "T+01:02:03", tenth: "9" });
    expect(tClock(NOW, NOW)).toEqual({ clock: "T+00:00:00", tenth: "0" });
    expect(mark(NOW, new Countdown(NOW + 14_000_000_000n))).toBe("T−00:14");
    expect(mark(NOW, null)).toBe("16:41:07");
    // Of another day than the one that is shown, the clock alone would look like today's.
    expect([mark(NOW, null, "2026-11-20"), mark(NOW, null, "2026-11-21")]).toEqual(["16:41:07", "11-20 16:41"]);
  });
  it("counts as the clock did then, whatever was held since, and not where that is not known", () => {
    const held = new Countdown(NOW + 14_000_000_000n, [[NOW + 4_000_000_000n, NOW + 604_000_000_000n]]);
    expect([NOW, NOW + 300_000_000_000n, NOW + 605_000_000_000n].map((at) => mark(at, held))).toEqual(["T−00:14", "T−00:10", "T−00:09"]);
    expect(mark(NOW, new Countdown(NOW + 14_000_000_000n, [], null, NOW + 1n))).toBe("16:41:07");
  });
  it("floors ages so that none looks older or younger than its words", () => {
    expect(age(41_900_000n)).toBe("41 ms");
    expect(age(2_190_000_000n)).toBe("2.1 s");
    expect(age(21_000_000_000n)).toBe("21 s");
    expect(age(185_000_000_000n)).toBe("3 min 05 s");
    expect(age(7_800_000_000_000n)).toBe("2 h 10 min");
    expect(age(-5n)).toBe("0 ms");
  });
});

describe("times an operator types", () => {
  it.each([
    ["now", NOW], ["", NOW], ["now-30s", NOW - 30_000_000_000n], ["-5m", NOW - 300_000_000_000n],
    ["+ 1.5 s", NOW + 1_500_000_000n], ["-20ms", NOW - 20_000_000n],
    ["16:41:07.482123456", NOW], ["2026-11-20T16:41:07.482123456Z", NOW], ["2026-11-20 17:41:07.482123456+01:00", NOW],
    ["1795192867482123456", NOW],
  ])("%s", (text, expected) => expect(parseTime(text, NOW, null)).toBe(expected));
  it("reads T-times only where there is a T-0", () => {
    const run = new Countdown(NOW);
    expect(parseTime("T-10", NOW, run)).toBe(NOW - 10_000_000_000n);
    expect(parseTime("T+1:20", NOW, run)).toBe(NOW + 80_000_000_000n);
    expect(parseTime("T−01:00:00", NOW, run)).toBe(NOW - 3_600_000_000_000n);
    const held = new Countdown(NOW, [[NOW - 20_000_000_000n, NOW - 5_000_000_000n]]);
    expect(["T-30", "T-20", "T-10"].map((text) => parseTime(text, NOW, held)! - NOW)).toEqual([-30_000_000_000n, -20_000_000_000n, 5_000_000_000n]);
    expect(parseTime("T-10", NOW, null)).toBeNull();
  });
  it.each(["yesterday", "25:00:00", "12:61", "T", "1.5", "2026-13-45T00:00:00Z"])("refuses %s", (text) =>
    expect(parseTime(text, NOW, new Countdown(NOW))).toBeNull());
});

it("takes no day that the calendar does not have for another", () => {
  const read = (text: string) => parseTime(text, 0n, null);
  expect([read("2026-02-31 10:00"), read("2026-02-29 10:00"), read("2026-04-31T10:00Z")]).toEqual([null, null, null]);
  expect(read("2028-02-29T00:00:00Z")).toBe(1_835_395_200_000_000_000n);
});

it("says why a text is not a time", () => {
  expect(notTime("T-10", null)).toContain("strongback run start");
  expect(notTime("yesterday", null)).not.toContain("T-10");
  expect(notTime("yesterday", new Countdown(NOW))).toContain("T-10");
});

it("says from when to when, with every date that does not go without saying", () => {
  const hours = (n: bigint) => n * 3_600_000_000_000n;
  expect(fromTo(NOW, NOW + hours(1n), "2026-11-20")).toBe("2026-11-20 16:41:07 – 17:41:07");
  expect(fromTo(NOW, NOW + hours(48n), "2026-11-22")).toBe("2026-11-20 16:41:07 – 2026-11-22 16:41:07");
  expect(fromTo(NOW, NOW + 20_000n, "2026-11-20")).toBe("16:41:07.482123456 +20 µs");
  expect([fromTo(NOW, NOW + 20_000n, "2026-11-21"), fromTo(NOW, NOW + 20_000n, null)]).toEqual(Array(2).fill("2026-11-20 16:41:07.482123456 +20 µs"));
});

it("says spans of any size in three figures", () => {
  expect([10_000n, 1_500_000n, 20_000_000_000n, 600_000_000_000n, 9_000_000_000_000n, 30n * 86_400_000_000_000n, 7n].map(longSpan)).toEqual(
    ["10 µs", "1.5 ms", "20 s", "10 min", "2.5 h", "30 d", "7 ns"],
  );
});

it("tells instants apart as finely as a look can", () => {
  expect([600n * 1_000_000_000n, 60n * 1_000_000_000n, 1_000_000_000n, 10_000n].map((span) => fineClock(NOW, span))).toEqual(
    ["16:41:07.4", "16:41:07.48", "16:41:07.482", "16:41:07.48212345"],
  );
});
