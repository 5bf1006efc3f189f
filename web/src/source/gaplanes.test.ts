import { describe, expect, it } from "vitest";
import { causes, causeClass, gapLanes, gapsOf } from "./gaplanes";
import type { Gap } from "../connection/message";

const S = 1_000_000_000n;
const BEGIN = 1_790_000_000n * S;
let next = 1;

/** A gap from `from` to `to` seconds after the line begins. */
function gap(stream: string, from: number, to: number, frames: number, more: Partial<Gap> = {}): Gap {
  const at = (s: number) => String(BEGIN + BigInt(Math.round(s * 1e9)));
  return {
    id: String(next++), stream: 1, stream_name: stream, source: "fti", from_time: at(from), to_time: at(to), from_sequence: "1", to_sequence: "2",
    count: String(frames), cause: "sequence", open: String(frames), words: `${frames} frames · lost before the receiver (sequence)`, ...more,
  };
}
const line = (gaps: Gap[], least = 0.01, lanes = 6) => gapLanes(gaps, BEGIN, BEGIN + 100n * S, least, lanes);

describe("gap lanes", () => {
  it("puts a gap where it was, as long as it was", () => {
    const [lane] = line([gap("fti.bay", 25, 50, 3)]);
    expect(lane!.name).toBe("fti.bay");
    expect(lane!.missing).toBe(3n);
    expect(lane!.marks.map((m) => [m.left, m.right, m.open, m.cause])).toEqual([[0.25, 0.5, true, "sequence"]]);
    expect(lane!.marks[0]!.fromNs).toBe(BEGIN + 25n * S);
    expect(lane!.marks[0]!.toNs).toBe(BEGIN + 50n * S);
  });
  it("keeps a gap of no length in sight, at the edges too, and never beyond them", () => {
    const marks = line([gap("a", 10, 10, 1), gap("a", 99.999, 99.999, 1), gap("a", -5, 1, 1), gap("a", 0, 200, 1)].slice(0, 3))[0]!.marks;
    expect(marks.length).toBe(3);
    for (const m of marks) {
      expect(m.right - m.left).toBeGreaterThanOrEqual(0.01 - 1e-12);
      expect(m.left).toBeGreaterThanOrEqual(0);
      expect(m.right).toBeLessThanOrEqual(1);
    }
    expect(line([gap("a", -9, -1, 1), gap("a", 100, 101, 1)])).toEqual([]);
    expect(line([gap("a", -50, 300, 1)])[0]!.marks.map((m) => [m.left, m.right])).toEqual([[0, 1]]);
  });
  it("never lays a mark on another: those that touch are one, and it says of all", () => {
    const many = Array.from({ length: 500 }, (_, i) => gap("a", 40 + i * 0.02, 40 + i * 0.02 + 0.001, 2));
    const lone = gap("a", 80, 80.1, 7, { cause: "kernel", open: "0", words: "7 frames · dropped by the kernel: the receive buffer was full" });
    const [lane] = line([lone, ...many]);
    expect(lane!.marks.length).toBe(2);
    expect(lane!.marks[0]!.gaps).toBe(500);
    expect(lane!.marks[0]!.words).toBe("500 gaps · sequence 1\u202f000 · 1\u202f000 missing");
    expect(lane!.marks[1]!.words).toBe("7 frames · dropped by the kernel: the receive buffer was full · all came late");
    expect(lane!.marks[1]!.open).toBe(false);
    for (let i = 1; i < lane!.marks.length; i++) expect(lane!.marks[i]!.left).toBeGreaterThan(lane!.marks[i - 1]!.right);
  });
  it("shows the gravest cause of a mark", () => {
    const [lane] = line([gap("a", 10, 10.1, 1, { cause: "restart", open: "0" }), gap("a", 10.1, 10.2, 4, { cause: "kernel" }), gap("a", 10.2, 10.3, 1)]);
    expect(lane!.marks.map((m) => m.cause)).toEqual(["kernel"]);
    expect(lane!.marks[0]!.words).toBe("3 gaps · restart 1, kernel 4, sequence 1 · 5 missing");
    expect(["sequence", "kernel", "silence", "torn", "not recorded", "restart", "refused", "some new cause"].map(causeClass)).toEqual([
      "sequence", "kernel", "silence", "store", "store", "harmless", "harmless", "store",
    ]);
  });
  it("has lanes in the order of names, so that none moves, and one for what has no room", () => {
    const gaps = [11, 2, 1, 10, 3].map((n) => gap(`bay${n}`, 10, 11, n));
    expect(line(gaps).map((l) => l.name)).toEqual(["bay1", "bay2", "bay3", "bay10", "bay11"]);
    const few = line([...gaps, gap("", 5, 6, 1, { stream: null })], 0.01, 3);
    expect(few.map((l) => [l.name, l.missing])).toEqual([["bay10", 10n], ["bay11", 11n], ["4 other streams", 7n]]);
    expect(line([gap("", 5, 6, 1, { stream: null })])[0]!.name).toBe("the whole source");
  });
  it("is of one source, and the later word of a gap counts", () => {
    const old = gap("a", 1, 2, 9);
    const now = { ...old, open: "4" };
    const other = gap("b", 1, 2, 9, { source: "avionics" });
    expect(gapsOf("fti", [[old, other], [now]])).toEqual([now]);
    expect(line([now])[0]!.marks[0]!.words).toContain("4 still missing");
  });
  it("adds up what each cause took, gravest first", () => {
    const gaps = [gap("a", 1, 2, 3), gap("b", 5, 6, 4), gap("b", 7, 8, 5, { cause: "torn" }), gap("b", 500, 501, 100)];
    expect(causes(gaps, BEGIN, BEGIN + 100n * S)).toEqual([{ cause: "torn", frames: 5n }, { cause: "sequence", frames: 7n }]);
  });
});
