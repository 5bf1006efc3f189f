import { describe, expect, it } from "vitest";
import { choose, MAX_CHANNELS, pagesOf, shownWords } from "./choice";
import type { Channel } from "../connection/message";

const channel = (id: number, table = "t"): Channel => ({
  id, name: `${table}.c${id}`, table, channel: `c${id}`, tags: {}, stream: 0, type: "f64", unit: "", description: "", source: "s",
  expected_period_ns: null, interpolation: "linear",
});
/** Channels from `first` on, in no order. */
const crowd = (count: number, table = "t", first = 0) => Array.from({ length: count }, (_, i) => channel(first + ((i * 7919) % count), table));

describe("the channels of a panel", () => {
  it("are those of its patterns, asked for by these, as long as one panel draws them all", () => {
    const all = crowd(MAX_CHANNELS);
    expect(choose(["t.*", "t.c3", "none.*"], all, 0)).toEqual({ wanted: ["t.*", "t.c3", "none.*"], total: MAX_CHANNELS, from: 0, unmatched: ["none.*"] });
    // There are no more pages to turn.
    expect(choose(["t.*"], all, 5).wanted).toEqual(["t.*"]);
    expect(choose([], all, 0)).toEqual({ wanted: [], total: 0, from: 0, unmatched: [] });
  });
  it("are one page of thousands, by name: what nobody sees is not asked for", () => {
    const all = crowd(3000);
    const names = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => `t.c${from + i}`);
    expect(choose(["t.*"], all, 0)).toEqual({ wanted: names(0, 24), total: 3000, from: 0, unmatched: [] });
    expect(choose(["t.*"], all, 2).wanted).toEqual(names(48, 72));
    expect([choose(["t.*"], all, 125), choose(["t.*"], all, -1)]).toEqual([choose(["t.*"], all, 124), choose(["t.*"], all, 0)]);
    expect(choose(["t.*"], all, 124).wanted).toEqual(names(2976, 3000));
    expect([pagesOf(3000), pagesOf(3001), pagesOf(24), pagesOf(0)]).toEqual([125, 126, 1, 1]);
  });
  it("come in the order of the patterns, each once, also where a page has some of several", () => {
    const all = [...crowd(20, "a"), ...crowd(20, "b", 100), ...crowd(20, "c", 200)];
    const pages = [0, 1, 2].map((page) => choose(["b.*", "a.c7", "*"], all, page).wanted);
    expect(pages.map((page) => page.length)).toEqual([24, 24, 12]);
    expect(pages[0]!.slice(18, 24)).toEqual(["b.c118", "b.c119", "a.c7", "a.c0", "a.c1", "a.c2"]);
    expect(new Set(pages.flat()).size).toBe(60);
    expect(pages[2]!.at(-1)).toBe("c.c219");
  });
});

describe("what a panel says of them", () => {
  const of = (total: number, from = 0) => ({ wanted: [], total, from, unmatched: [] });
  it("is which of how many it shows, and nothing where these are all", () => {
    expect([shownWords(of(0), 0, 0), shownWords(of(24), 24, 0)]).toEqual([null, null]);
    expect(shownWords(of(3000), 24, 0)).toBe("Channels 1–24 of 3\u202f000");
    // Before they are there, and on the last page.
    expect(shownWords(of(30), 0, 0)).toBe("Channels 1–24 of 30");
    expect(shownWords(of(30, 24), 6, 0)).toBe("Channels 25–30 of 30");
  });
  it("includes those that the server knows of before the page's list has them", () => {
    expect(shownWords(of(10), 24, 76)).toBe("Channels 1–24 of 100");
  });
});
