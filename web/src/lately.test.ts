import { beforeEach, describe, expect, it } from "vitest";
import { Lately } from "./lately";
import type { Alarm, Event, Gap, Limit } from "./message";

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
