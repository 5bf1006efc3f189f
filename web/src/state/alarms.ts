// The alarms: which there are, which come first, how one is said in words, and which may be heard.
import type { Alarm, AlarmLevel, ServerMessage } from "../connection/message";

type Step = Extract<ServerMessage, { type: "alarm" }>;

const RANK: Record<AlarmLevel, number> = { critical: 0, warning: 1, watch: 2, normal: 3 };

export const keyOf = (alarm: { limit: string; channel: string }) => `${alarm.limit}\n${alarm.channel}`;

/** The level that a screen shows: of a cleared alarm the worst it was, until someone knows of it. */
export const shownLevel = (alarm: Alarm): AlarmLevel => (alarm.state === "cleared" ? alarm.worst : alarm.level);

/** Worst first; what nobody knows of before what someone does, what lasts before what is over, shelved ones last. */
export function ordered(alarms: Alarm[]): Alarm[] {
  const rank = (a: Alarm) => [
    a.shelved === null ? 0 : 1, { raised: 0, cleared: 1, acknowledged: 2 }[a.state], RANK[shownLevel(a)],
  ];
  return [...alarms].sort((a, b) => {
    const [ra, rb] = [rank(a), rank(b)];
    for (let i = 0; i < ra.length; i++) if (ra[i] !== rb[i]) return ra[i]! - rb[i]!;
    const [ta, tb] = [BigInt(a.changed), BigInt(b.changed)];
    return ta === tb ? keyOf(a).localeCompare(keyOf(b)) : ta > tb ? -1 : 1;
  });
}

/** The list after a step that the server told of. */
export function stepped(alarms: Alarm[], step: Step): Alarm[] {
  const others = alarms.filter((a) => keyOf(a) !== keyOf(step));
  return ordered(step.alarm === null ? others : [...others, step.alarm]);
}

/**
 * The list at an instant: shelves whose time is over go, and with them what was over but for its shelf, as in the server's
 * own book, which tells of no step then. The same list if there is none.
 */
export function unshelved(alarms: Alarm[], now: bigint): Alarm[] {
  const ends = (a: Alarm) => a.shelved !== null && BigInt(a.shelved.until) <= now;
  if (!alarms.some(ends)) return alarms;
  const stays = (a: Alarm) => !ends(a) || a.level !== "normal" || a.acknowledged === null;
  return ordered(alarms.filter(stays).map((a) => (ends(a) ? { ...a, shelved: null } : a)));
}

/** The alarm that is shown, as it stands now. Null: it is over, became worse, or another was raised in its place. */
export function asShown(shown: Alarm, standing: readonly Alarm[]): Alarm | null {
  return standing.find((a) => keyOf(a) === keyOf(shown) && a.raised === shown.raised && a.worst === shown.worst) ?? null;
}

/** The same if it can be acknowledged: neither then nor now somebody knows of it. */
export function acknowledgeable(shown: Alarm, standing: readonly Alarm[]): Alarm | null {
  const now = shown.acknowledged === null ? asShown(shown, standing) : null;
  return now?.acknowledged === null ? now : null;
}

/** Alarms that nobody knows of and nobody shelved. */
export const unknownOf = (alarms: readonly Alarm[]): Alarm[] => alarms.filter((a) => a.acknowledged === null && a.shelved === null);

/** What is wrong, in words. */
export function words(alarm: Alarm): string {
  const bound = alarm.bound === null ? "" : String(alarm.bound);
  switch (alarm.why) {
    case "high": return `${alarm.text} above ${bound}`;
    case "low": return `${alarm.text} below ${bound}`;
    case "state": return `is ${alarm.text}`;
    case "stale": return `no new value; the last was ${alarm.text}`;
    case "slow": return `${alarm.text} times a second, below ${bound}`;
    case "fast": return `${alarm.text} times a second, above ${bound}`;
    case null: return `well again at ${alarm.text}`;
  }
}

/** What is wrong beside the value as it is now, where that is known: `text` is the value of when its level changed. */
export function wordsNow(alarm: Alarm, now: string | null): string {
  const isValue = alarm.why === "high" || alarm.why === "low" || alarm.why === "state";
  return isValue && now !== null ? `${words(alarm)}, now ${now}` : words(alarm);
}

/** When an alarm's level changed last, and when it was raised first if that was before. */
export function timesOf({ raised, changed }: Pick<Alarm, "raised" | "changed">): { last: bigint; first: bigint | null } {
  const [last, first] = [BigInt(changed), BigInt(raised)];
  return { last, first: first < last ? first : null };
}

/** How many alarms there are, and how many of them nobody has acknowledged. */
export function countWords(all: number, unknown: number): string {
  return `${all} ${all === 1 ? "alarm" : "alarms"}, ${unknown} new`;
}

/** The worst level of alarms that nobody knows of and nobody shelved; null if there is none. */
export function heard(alarms: Alarm[]): AlarmLevel | null {
  const open = alarms.filter((a) => a.state === "raised" && a.shelved === null);
  return open.reduce<AlarmLevel | null>((worst, a) => (worst === null || RANK[a.level] < RANK[worst] ? a.level : worst), null);
}

/** The worst level that stands for a channel now; null if there is none. */
export function levelOf(alarms: Alarm[], channel: string): AlarmLevel | null {
  return alarms.reduce<AlarmLevel | null>((worst, a) => {
    if (a.channel !== channel || a.state === "cleared" || a.level === "normal") return worst;
    return worst === null || RANK[a.level] < RANK[worst] ? a.level : worst;
  }, null);
}
