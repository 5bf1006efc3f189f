// How far back a list of gaps goes.
import type { Gap } from "./message";

/** A full list holds the newest `most`: of what lies before its oldest gap it says nothing. Null: it holds all. */
export function knownFrom(gaps: Gap[], most: number): bigint | null {
  if (gaps.length < most) return null;
  return gaps.map((gap) => BigInt(gap.from_time)).reduce((oldest, from) => (from < oldest ? from : oldest));
}
