// Which alarms stood at an instant, from the steps of their lives: the rows of `strongback.alarms` in the order of
// their times. The same rules as the server's own book, so that a replayed list is the list that was seen.
import { keyOf, ordered } from "./alarms";
import type { Alarm, AlarmLevel, WireValue } from "../connection/message";

/** One row of `strongback.alarms`. */
export interface AlarmStep {
  time: bigint;
  channel: string;
  limit: string;
  step: string;
  level: AlarmLevel | null;
  before: AlarmLevel | null;
  why: Alarm["why"];
  value: WireValue;
  text: string;
  bound: WireValue;
  by: string;
  note: string;
  until: bigint | null;
}

/** The columns that steps are asked for by, in this order. */
export const STEP_COLUMNS =
  '"time_ns", "channel", "limit", "step", "level", "before", "why", "value", "text", "bound", "by", "note", "until"';

export function readStep(row: WireValue[]): AlarmStep {
  const word = (i: number) => (row[i] == null ? "" : String(row[i]));
  const level = (i: number) => (word(i) === "" ? null : (word(i) as AlarmLevel));
  return {
    time: BigInt(word(0)), channel: word(1), limit: word(2), step: word(3), level: level(4), before: level(5),
    why: word(6) === "" ? null : (word(6) as Alarm["why"]), value: row[7] ?? null, text: word(8), bound: row[9] ?? null,
    by: word(10), note: word(11), until: word(12) === "" ? null : BigInt(word(12)),
  };
}

const RANK: Record<AlarmLevel, number> = { normal: 0, watch: 1, warning: 2, critical: 3 };

/** Alarms that were not over at `at`; `steps` in the order of time. */
export function alarmsAt(steps: readonly AlarmStep[], at: bigint): Alarm[] {
  const book = new Map<string, Alarm>();
  const shelved = (alarm: Alarm, now: bigint) => alarm.shelved !== null && BigInt(alarm.shelved.until) > now;
  const tidy = (key: string, alarm: Alarm, now: bigint) => {
    if (alarm.level === "normal" && alarm.acknowledged !== null && !shelved(alarm, now)) book.delete(key);
    else alarm.state = alarm.level === "normal" ? "cleared" : alarm.acknowledged !== null ? "acknowledged" : "raised";
  };
  for (const step of steps) {
    if (step.time > at) break;
    const key = keyOf(step);
    const known = book.get(key);
    if (step.level !== null) {
      const time = step.time.toString();
      const alarm = known ?? {
        limit: step.limit, channel: step.channel, state: "raised", level: "normal", worst: "normal", why: null, value: null,
        text: "", bound: null, raised: time, changed: time, acknowledged: null, shelved: null,
      };
      book.set(key, alarm);
      const worse = RANK[step.level] > RANK[alarm.worst];
      // Whoever acknowledged a warning has not seen that it became critical, or came back.
      if (worse || step.before === "normal") alarm.acknowledged = null;
      if (worse) alarm.worst = step.level;
      Object.assign(alarm, { level: step.level, why: step.why, value: step.value, text: step.text, bound: step.bound, changed: time });
      tidy(key, alarm, step.time);
    } else if (known && step.step === "acknowledged") {
      known.acknowledged = { by: step.by, note: step.note, time: step.time.toString() };
      tidy(key, known, step.time);
    } else if (known && step.step === "shelved") {
      known.shelved = { by: step.by, note: step.note, until: (step.until ?? 0n).toString() };
    } else if (known && step.step === "unshelved") {
      known.shelved = null;
      tidy(key, known, step.time);
    }
  }
  for (const [key, alarm] of [...book]) {
    if (alarm.shelved === null || shelved(alarm, at)) continue;
    alarm.shelved = null;
    tidy(key, alarm, at);
  }
  return ordered([...book.values()]);
}
