import { describe, expect, it } from "vitest";
import type { Gap, SourceBrief } from "../connection/message";
import { LostFrames } from "./lostframes";

const S = 1_000_000_000n;
const NOW = 1_795_192_867n * S;
const at = (s: number) => NOW + BigInt(Math.round(s * 1000)) * 1_000_000n;
const brief = (lost: number | string, name = "fti"): SourceBrief => ({ name, status: "ok", rate_hz: 50, lost });
const gap = (toS: number, open: number, more: Partial<Gap> = {}): Gap =>
  ({ id: 1, source: "fti", from_time: String(at(toS - 1)), to_time: String(at(toS)), open, count: 9, cause: "sequence", ...more }) as Gap;
/** What is lost when each count came at its second. */
function told(counts: [number, number | string][], nowS: number, gaps: Gap[] = []): Record<string, bigint> {
  const lost = new LostFrames();
  for (const [s, count] of counts) lost.heard(at(s), [brief(count)]);
  return Object.fromEntries(lost.lastMinute(at(nowS), gaps));
}

describe("frames lost in the last minute", () => {
  it("are those that heartbeats count up, for one minute", () => {
    const counts: [number, number | string][] = [[0, 7], [0.25, 7], [0.5, "10"], [0.75, 10]];
    expect(told(counts, 0.75)).toEqual({ fti: 3n });
    expect(told([...counts, [59.9, 10]], 60)).toEqual({ fti: 3n });
    // Never what is older: also where heartbeats were missing meanwhile.
    expect(told([...counts, [60.5, 10]], 60.5)).toEqual({});
    expect(told([...counts, [300, 500]], 300)).toEqual({});
    expect(told(counts, 61)).toEqual({});
  });
  it("are none where a server that has lost before is heard of for the first time", () => {
    expect(told([[0, "20286"]], 0)).toEqual({});
    expect(told([], 0, [gap(-1, 5)])).toEqual({});
  });
  it("are not those that came late", () => {
    expect(told([[0, 10], [1, 15], [2, 10]], 2)).toEqual({});
    expect(told([[0, 10], [1, 5], [2, 10]], 2)).toEqual({ fti: 5n });
  });
  it("are told of by gaps where the page was opened later", () => {
    expect(told([[0, 10]], 0, [gap(-20, 5), gap(-59, 2), gap(-61, 100), gap(5, 100)])).toEqual({ fti: 7n });
    expect(told([[0, 10]], 0, [gap(-20, 5, { source: "range" }), gap(-20, 5, { cause: "silence" }), gap(-20, 0)])).toEqual({});
    // Counted once: both tell of the same.
    expect(told([[0, 10], [1, 15]], 1, [gap(0.5, 5)])).toEqual({ fti: 5n });
    expect(told([[0, 10], [30, 10], [60, 10]], 60, [gap(20, 5)])).toEqual({});
  });
  it("are counted anew after a restart, with another store, and after the clock went back", () => {
    expect(told([[0, 1000], [1, 0], [2, 4]], 2)).toEqual({ fti: 4n });
    expect(told([[100, 5], [0, 10], [1, 12]], 1)).toEqual({ fti: 2n });
    const lost = new LostFrames();
    lost.heard(at(0), [brief(1)]);
    lost.forget();
    lost.heard(at(1), [brief(100)]);
    expect(lost.lastMinute(at(1), []).size).toBe(0);
    expect(lost.lastMinute(null, []).size).toBe(0);
  });
  it("are those of sources that there still are", () => {
    const lost = new LostFrames();
    lost.heard(at(0), [brief(1), brief(1, "range")]);
    lost.heard(at(1), [brief(4), brief(2, "range")]);
    expect([...lost.lastMinute(at(1), [])]).toEqual([["fti", 3n], ["range", 1n]]);
    lost.heard(at(2), [brief(4)]);
    expect([...lost.lastMinute(at(2), [])]).toEqual([["fti", 3n]]);
  });
});
