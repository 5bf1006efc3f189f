import { expect, test } from "vitest";
import { acknowledgeable, asShown, countWords, heard, levelOf, ordered, stepped, timesOf, unknownOf, unshelved, words, wordsNow } from "./alarms";
import type { Alarm } from "../connection/message";

function alarm(limit: string, changes: Partial<Alarm> = {}): Alarm {
  return {
    limit, channel: "tank.p", state: "raised", level: "warning", worst: "warning", why: "high", value: 9, text: "9",
    bound: 8, raised: "1", changed: "1", acknowledged: null, shelved: null, ...changes,
  };
}

test("what nobody knows of comes first, the worst of it on top", () => {
  const list = [
    alarm("known", { state: "acknowledged", level: "critical" }),
    alarm("shelved", { shelved: { by: "Ada", note: "", until: "9" }, level: "critical" }),
    alarm("older"), alarm("newer", { changed: "2" }), alarm("critical", { level: "critical" }),
    alarm("gone", { state: "cleared", level: "normal", worst: "critical" }),
  ];
  expect(ordered(list).map((a) => a.limit)).toEqual(["critical", "newer", "older", "gone", "known", "shelved"]);
});

test("an alarm is acknowledged as what it is shown as, or not at all", () => {
  const shown = alarm("a");
  const known = { by: "Ada", note: "", time: "2" };
  const now = alarm("a", { level: "watch", changed: "3" });
  expect([asShown(shown, [alarm("b"), now]), acknowledgeable(shown, [alarm("b"), now])]).toEqual([now, now]);
  for (const other of [alarm("b"), alarm("a", { worst: "critical" }), alarm("a", { raised: "2" })]) {
    expect([asShown(shown, [other]), acknowledgeable(shown, [other])]).toEqual([null, null]);
  }
  // Somebody knows of it already, or knew when it was shown.
  expect(asShown(shown, [alarm("a", { acknowledged: known })])).not.toBeNull();
  expect(acknowledgeable(shown, [alarm("a", { acknowledged: known })])).toBeNull();
  expect(acknowledgeable(alarm("a", { acknowledged: known }), [now])).toBeNull();
  expect(unknownOf([shown, alarm("b", { acknowledged: known }), alarm("c", { shelved: { by: "Ada", note: "", until: "9" } })])).toEqual([shown]);
});

test("a step replaces its alarm, and one that is over goes", () => {
  const before = [alarm("a"), alarm("b")];
  const step = { type: "alarm", channel: "tank.p", time: "5", heard: true } as const;
  const worse = alarm("b", { level: "critical" });
  const after = stepped(before, { ...step, limit: "b", step: "worse", alarm: worse });
  expect(after).toEqual([worse, before[0]]);
  expect(stepped(after, { ...step, limit: "a", step: "acknowledged", alarm: null })).toEqual([worse]);
});

test("only what nobody knows of and nobody shelved is heard", () => {
  const shelved = { by: "Ada", note: "", until: "9" };
  expect(heard([])).toBeNull();
  expect(heard([alarm("a", { state: "acknowledged" }), alarm("b", { shelved }), alarm("c", { state: "cleared" })])).toBeNull();
  expect(heard([alarm("a", { level: "watch" }), alarm("b", { level: "critical" })])).toBe("critical");
});

test("a shelf ends by itself: what it held back is heard again, and what was over but for it goes", () => {
  const shelved = (until: string) => ({ by: "Ada", note: "", until });
  const known = { by: "Ada", note: "", time: "1" };
  const list = [
    alarm("a", { shelved: shelved("50") }), alarm("b", { shelved: shelved("51"), level: "critical" }),
    alarm("c", { shelved: shelved("50"), state: "cleared", level: "normal", acknowledged: known }),
    alarm("d", { shelved: shelved("50"), state: "cleared", level: "normal" }),
  ];
  expect(unshelved(list, 49n)).toBe(list);
  const after = unshelved(list, 50n);
  expect(after.map((a) => [a.limit, a.shelved !== null])).toEqual([["a", false], ["d", false], ["b", true]]);
  expect([heard(list), heard(after), heard(unshelved(after, 51n))]).toEqual([null, "warning", "critical"]);
});

test("words say the value and the bound", () => {
  expect(words(alarm("a"))).toBe("9 above 8");
  expect(words(alarm("a", { why: "low", text: "0.5", bound: 1 }))).toBe("0.5 below 1");
  expect(words(alarm("a", { why: "state", text: "FAULT", bound: null }))).toBe("is FAULT");
  expect(words(alarm("a", { why: "stale", bound: null }))).toBe("no new value; the last was 9");
  expect(words(alarm("a", { why: "slow", text: "42", bound: 90 }))).toBe("42 times a second, below 90");
  expect(words(alarm("a", { why: "fast", text: "142", bound: 110 }))).toBe("142 times a second, above 110");
  expect(words(alarm("a", { why: null, state: "cleared", bound: null }))).toBe("well again at 9");
});

test("a value has the worst level that stands for its channel", () => {
  const all = [alarm("a", { level: "watch" }), alarm("b", { level: "critical", state: "cleared" }), alarm("c", { level: "warning" }), alarm("d", { channel: "x", level: "critical" })];
  expect([levelOf(all, "tank.p"), levelOf(all, "none")]).toEqual(["warning", null]);
});

test("the value now stands beside the one that raised the alarm", () => {
  expect(wordsNow(alarm("a"), "9.5")).toBe("9 above 8, now 9.5");
  expect(wordsNow(alarm("a"), null)).toBe("9 above 8");
  expect(wordsNow(alarm("a", { why: "stale" }), "9.5")).toBe("no new value; the last was 9");
  expect(wordsNow(alarm("a", { why: null, level: "normal", state: "cleared", text: "7" }), "6")).toBe("well again at 7");
});

test("an alarm that came back says when it did, and when it was raised first", () => {
  expect(timesOf({ raised: "5", changed: "9" })).toEqual({ last: 9n, first: 5n });
  expect(timesOf({ raised: "5", changed: "5" })).toEqual({ last: 5n, first: null });
});

test("alarms are counted, and those that nobody acknowledged", () => {
  expect([countWords(1, 1), countWords(3, 0)]).toEqual(["1 alarm, 1 new", "3 alarms, 0 new"]);
});
