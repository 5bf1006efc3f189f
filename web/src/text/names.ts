// Names in lists: the beginning that all of them share stands once, beside the list, and a name that still has no room
// is cut in its middle, so that its beginning and what tells it from the others stay in sight.

/** A name as a list shows it. */
export interface ListedName {
  /** The name without the beginning that the list shares. */
  text: string;
  /** The part that gives way first, at its end; empty where the name is short. */
  head: string;
  /** The part that stays. */
  tail: string;
}

export interface NameList {
  /** The beginning that all names share, with its dot; empty if there is none. */
  shared: string;
  names: ListedName[];
}

/** Characters at the end of a name that stay in sight, and those before them that are worth to be cut. */
export const TAIL_MIN = 10;
const HEAD_MIN = 4;
/** A difference among so many first characters needs no place in the tail: the head shows it. */
const BEGINNING = 7;

const segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });

/** Splits a text into characters as people see them: an accent stays on its letter. */
function characters(text: string): string[] {
  return /^[\x20-\x7e]*$/.test(text) ? text.split("") : [...segmenter.segment(text)].map((one) => one.segment);
}

/** Returns a name up to its last dot that has something behind it; dots in the tags of a name do not count. */
function stem(name: string): string {
  return /^[^{]*\.(?=[^{])/.exec(name)?.[0] ?? "";
}

/** Returns the beginning that all names share, up to a dot and with it; of one name alone nothing is left out. */
export function sharedPrefix(names: readonly string[]): string {
  if (names.length < 2) return "";
  let shared = stem(names[0]!);
  for (const name of names) {
    if (shared === "") break;
    const own = stem(name);
    while (!own.startsWith(shared)) shared = stem(shared);
  }
  return shared;
}

/** Returns how many characters two names have in common at their beginning. */
function common(one: readonly string[], other: readonly string[]): number {
  let n = 0;
  while (n < one.length && n < other.length && one[n] === other[n]) n++;
  return n;
}

/**
 * Splits a name where it may be cut: before its last characters, or before the first that tells it from the names
 * beside it if that comes earlier.
 */
export function split(name: string, beside: readonly string[] = []): ListedName {
  const all = characters(name);
  if (all.length < HEAD_MIN + TAIL_MIN) return { text: name, head: "", tail: name };
  const others = beside.filter((other) => other !== name);
  const differs = Math.max(0, ...others.map((other) => common(all, characters(other))));
  const at = differs < BEGINNING ? all.length - TAIL_MIN : Math.min(differs, all.length - TAIL_MIN);
  return { text: name, head: all.slice(0, at).join(""), tail: all.slice(at).join("") };
}

/**
 * Returns the names of one list as it shows them, in their order. `whole`: the same names with everything before them;
 * what all of these share is left out of a name that has it.
 */
export function listNames(names: readonly string[], whole: readonly string[] = names): NameList {
  const prefix = sharedPrefix(whole);
  const rests = names.map((name, i) => {
    const rest = whole[i]!.slice(prefix.length);
    return rest.length < name.length ? rest : name;
  });
  const isClear = new Set(rests).size === new Set(names).size;
  const texts = isClear ? rests : names;
  const shared = texts.some((text, i) => text !== names[i]) ? prefix : "";
  // Of all names, those that have most in common with one stand beside it in the order of characters.
  const order = [...new Set(texts)].sort();
  const places = new Map(order.map((text, i) => [text, i]));
  const beside = (i: number) => [order[i - 1], order[i + 1]].filter((text) => text !== undefined);
  return { shared, names: texts.map((text) => split(text, beside(places.get(text)!))) };
}

/** Returns as much of a name as fits into `room`, cut in its middle; `measure` answers how wide a text is. */
export function fitted({ text, head, tail }: ListedName, room: number, measure: (text: string) => number): string {
  if (measure(text) <= room) return text;
  const heads = characters(head);
  for (let n = heads.length - 1; n >= 1; n--) {
    const shown = `${heads.slice(0, n).join("")}…${tail}`;
    if (measure(shown) <= room) return shown;
  }
  const lead = head === "" ? "" : "…";
  const tails = characters(tail);
  for (let n = tails.length; n >= 1; n--) {
    const shown = `${lead}${tails.slice(0, n).join("")}${n < tails.length ? "…" : ""}`;
    if (measure(shown) <= room) return shown;
  }
  return "…";
}
