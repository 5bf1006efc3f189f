import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { SourceAccount } from "../connection/message";
import { filters, frameAge, listed, missingOf, newestOf, streamClass } from "./streamlist";

const { streams } = JSON.parse(readFileSync(new URL("../recorded/source.json", import.meta.url), "utf8")) as SourceAccount;
const names = (list: typeof streams) => list.map((s) => s.name);

describe("stream list", () => {
  it("offers the filters that leave something", () => {
    expect(filters(streams)).toEqual([
      { filter: "all", streams: 6 }, { filter: "silent", streams: 1 }, { filter: "slow", streams: 1 }, { filter: "never", streams: 1 },
      { filter: "missing", streams: 1 }, { filter: "rejected", streams: 1 },
    ]);
    expect(filters([])).toEqual([{ filter: "all", streams: 0 }]);
  });
  it("lists by name, digits as numbers, whatever the server's order", () => {
    const many = [10, 9, 1].map((n) => ({ ...streams[0]!, name: `bay{n=${n}}` }));
    expect(names(listed(many, "all", []))).toEqual(["bay{n=1}", "bay{n=9}", "bay{n=10}"]);
    expect(names(listed(streams, "silent", []))).toEqual(["fti.status"]);
    expect(names(listed(streams, "all", ["bay", "=2"]))).toEqual(["fti.bay{bay=2}"]);
    expect(listed(streams, "slow", ["status"])).toEqual([]);
  });
  it("counts what came late as not missing, and never less than nothing", () => {
    expect(missingOf(streams[0]!)).toBe(62n);
    expect(missingOf({ ...streams[0]!, filled: "70" })).toBe(0n);
  });
  it("colours only what needs attention", () => {
    const never = streams.find((s) => s.status === "never")!;
    expect([streamClass(streams[0]!), streamClass(streams[1]!), streamClass(never), streamClass({ ...never, expected: "none" })]).toEqual(["", "watch", "watch", ""]);
  });
  it("finds the newest frame", () => {
    expect(newestOf([])).toBe(null);
    expect(newestOf([null, "9", null, "1000", "999", null])).toBe("1000");
  });
  it("tells the age of a frame", () => {
    const S = 1_000_000_000n;
    const last = String(100n * S);
    expect(frameAge(last, 100n * S + 20_000_000n, 100n * S + 900_000_000n)).toBe(20_000_000n);
    // The next look is overdue: nothing says that another frame has come.
    expect(frameAge(last, 100n * S + 20_000_000n, 102n * S)).toBe(2n * S);
    expect(frameAge(last, 103n * S, 104n * S)).toBe(4n * S);
    expect(frameAge(last, null, 104n * S)).toBe(4n * S);
    expect([frameAge(null, 1n, 2n), frameAge(last, 1n, null), frameAge(last, 99n * S, 99n * S)]).toEqual([null, null, 0n]);
  });
});
