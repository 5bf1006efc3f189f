import { beforeEach, describe, expect, it } from "vitest";
import { Lately } from "./lately";
import type { Alarm, Event, Gap, Limit } from "../connection/message";

const S = 1_000_000_000n;
const NOW = 1_795_192_867n * S;
const event = (text: string, time: bigint, more: Partial<Event> = {}): Event => ({ time: String(time), text, level: "info", source: "test", ...more });
const gap = (id: number, from: bigint): Gap => ({ id, from_time: String(from), to_time: String(from) }) as Gap;
const alarm = (limit: string, more: Partial<Alarm> = {}): Alarm => ({
  limit, channel: "tank.p", state: "raised", level: "warning", worst: "warning", why: "high", value: 9, text: "9",
  bound: 8, raised: "1", changed: "1", acknowledged: null, shelved: null, ...more,
});
const step = (limit: string, after: Alarm | null) => ({ type: "alarm", limit, channel: "tank.p", step: "raised", time: "5", heard: true, alarm: after }) as const;

let ms: number;
let lately: Lately;
/** What the server answers; a function may refuse, or answer later. */
let answers: { events: () => Event[]; gaps: () => Gap[]; alarms: () => Alarm[] | Promise<Alarm[]>; limits: () => Limit[] };
const asked: [string, bigint][] = [];

beforeEach(() => {
  ms = 0;
  asked.length = 0;
  answers = { events: () => [], gaps: () => [], alarms: () => [], limits: () => [] };
  lately = new Lately({
    events: async (from) => { asked.push(["events", from]); return answers.events(); },
    gaps: async (from) => { asked.push(["gaps", from]); return answers.gaps(); },
    alarms: async () => answers.alarms(),
    limits: async () => answers.limits(),
  }, () => ms);
});
const busy = () => { throw new Error("busy"); };

describe("what the server tells of beside values", () => {
  it("is not known before it was answered: no alarm is not all well", async () => {
    expect([lately.alarmsKnown, lately.eventsFrom, lately.gapsFrom]).toEqual([false, null, null]);
    const loading = lately.begin(NOW);
    expect(lately.alarmsKnown).toBe(false);
    expect(await loading).toBeNull();
    expect([lately.alarmsKnown, lately.eventsFrom, lately.gapsFrom]).toEqual([true, NOW - 86_400n * S, NOW - 3600n * S]);
    expect(asked).toEqual([["events", NOW - 86_400n * S], ["gaps", NOW - 3600n * S]]);
  });
  it("is asked for again where it was refused, and what was answered stands", async () => {
    answers.alarms = busy;
    answers.events = () => [event("a", NOW)];
    expect(await lately.begin(NOW)).toEqual(new Error("busy"));
    expect([lately.alarmsKnown, lately.events.length, lately.gapsFrom]).toEqual([false, 1, NOW - 3600n * S]);
    expect([lately.isDue, (ms = 2000, lately.isDue)]).toEqual([false, true]);
    answers.alarms = () => [alarm("a")];
    await lately.load(NOW);
    expect([lately.alarmsKnown, lately.alarms.map((a) => a.limit), lately.isDue]).toEqual([true, ["a"], false]);
    // A connection that begins anew may have missed something.
    answers.alarms = busy;
    await lately.begin(NOW);
    expect([lately.alarmsKnown, lately.alarms.map((a) => a.limit)]).toEqual([false, ["a"]]);
  });
  it("is asked for again where something was lost on the way, also while it is asked for", async () => {
    await lately.begin(NOW);
    lately.lost();
    expect([lately.alarmsKnown, lately.isDue, (ms = 2000, lately.isDue)]).toEqual([false, false, true]);
    const loading = lately.load(NOW);
    lately.lost();
    await loading;
    expect([lately.alarmsKnown, (ms = 4000, lately.isDue)]).toEqual([false, true]);
    await lately.load(NOW);
    expect(lately.alarmsKnown).toBe(true);
  });
  it("says nothing of times of which nobody told, and asks for them with what was known before", async () => {
    await lately.begin(NOW);
    lately.event(event("long ago", NOW));
    const froms = () => [lately.eventsFrom, lately.gapsFrom];
    const since = [NOW - 86_400n * S, NOW - 3600n * S];
    expect(froms()).toEqual(since);
    // Five hours later something was lost.
    const later = NOW + 5n * 3600n * S;
    lately.lost();
    expect(froms()).toEqual([null, null]);
    ms = 2000;
    asked.length = 0;
    answers.gaps = busy;
    await lately.loadDue(later);
    expect(asked).toEqual([["events", since[0]], ["gaps", since[1]]]);
    expect(froms()).toEqual([since[0], null]);
    // A connection ended, and the clock was set back meanwhile.
    answers.gaps = () => [gap(1, NOW)];
    const earlier = NOW - 7200n * S;
    const loading = lately.begin(earlier);
    expect(froms()).toEqual([null, null]);
    await loading;
    expect([froms(), lately.gaps.length]).toEqual([[earlier - 86_400n * S, earlier - 3600n * S], 1]);
  });
  it("takes each answer as it comes, and asks again for one that does not", async () => {
    let patience = new AbortController();
    let shown = 0;
    const hung: (() => void)[] = [];
    lately = new Lately({
      events: async () => [],
      gaps: (_from, _limit, _of, signal) => new Promise((_, refuse) => {
        hung.push(() => refuse(new Error("too late")));
        signal.addEventListener("abort", () => refuse(new Error("no answer")));
      }),
      alarms: async () => [alarm("a")],
      limits: async () => [],
    }, () => ms, () => shown++, () => patience.signal);
    const loading = lately.begin(NOW);
    for (let turn = 0; turn < 9; turn++) await null;
    expect([lately.alarmsKnown, lately.alarms.length, lately.eventsFrom, lately.gapsFrom, shown]).toEqual([true, 1, NOW - 86_400n * S, null, 3]);
    // What was asked for is not asked for twice at once.
    expect((ms = 60_000, lately.isDue)).toBe(false);
    patience.abort();
    expect(await loading).toEqual(new Error("no answer"));
    expect([lately.isDue, (ms = 62_000, lately.isDue), hung.length]).toEqual([false, true, 1]);
    patience = new AbortController();
    void lately.loadDue(NOW);
    expect([lately.isDue, hung.length, lately.alarmsKnown]).toEqual([false, 2, true]);
  });
  it("keeps what is told while answers are on their way, and the newest answer", async () => {
    let answer: (alarms: Alarm[]) => void = () => {};
    answers.alarms = () => new Promise<Alarm[]>((resolve) => (answer = resolve));
    answers.events = () => [event("a", NOW)];
    const loading = lately.begin(NOW);
    lately.alarm(step("late", alarm("late")));
    lately.alarm(step("over", null));
    lately.event(event("b", NOW + 1n));
    lately.gap(gap(1, NOW));
    answer([alarm("over"), alarm("old")]);
    await loading;
    expect(lately.alarms.map((a) => a.limit).sort()).toEqual(["late", "old"]);
    expect([lately.events.map((e) => e.text), lately.gaps.length]).toEqual([["b", "a"], 1]);
    // Asked twice: the first answer, which comes last, is not taken.
    const first = lately.load(NOW);
    const late = answer;
    answers.alarms = () => [alarm("new")];
    await lately.load(NOW);
    late([alarm("old")]);
    await first;
    expect(lately.alarms.map((a) => a.limit)).toEqual(["new"]);
  });
  it("has events of one instant each once, in an order that stays", () => {
    for (const text of ["a", "b", "c"]) lately.event(event(text, NOW));
    lately.event(event("a", NOW, { level: "critical" }));
    lately.event(event("b", NOW));
    const order = () => lately.events.map((e) => `${e.text} ${e.level}`);
    expect(order()).toEqual(["a info", "b info", "c info", "a critical"]);
    lately.event(event("later", NOW + 1n));
    expect(order()).toEqual(["later info", "a info", "b info", "c info", "a critical"]);
  });
  it("says from when on it has all, however many there were", async () => {
    answers.events = () => Array.from({ length: 500 }, (_, i) => event(String(i), NOW + BigInt(i)));
    answers.gaps = () => Array.from({ length: 500 }, (_, i) => gap(i, NOW + BigInt(i)));
    await lately.begin(NOW);
    expect([lately.eventsFrom, lately.gapsFrom]).toEqual([NOW, NOW]);
    lately.event(event("new", NOW + 9999n));
    lately.gap(gap(500, NOW + 9999n));
    expect([lately.events.length, lately.eventsFrom, lately.gapsFrom]).toEqual([500, NOW + 1n, NOW + 1n]);
  });
  it("lets shelves end", async () => {
    answers.alarms = () => [alarm("a", { shelved: { by: "Ada", note: "", until: String(NOW) } })];
    await lately.begin(NOW);
    lately.pass(NOW - 1n);
    expect(lately.alarms[0]!.shelved).not.toBeNull();
    lately.pass(NOW);
    expect(lately.alarms[0]!.shelved).toBeNull();
  });
});
