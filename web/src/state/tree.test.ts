import { describe, expect, it } from "vitest";
import type { Channel } from "../connection/message";
import { firstMatch, shortNames, sortChannels, treeRows, visible } from "./tree";

const channel = (id: number, table: string, name: string, tags: Record<string, string> = {}): Channel => ({
  id, name: `${table}.${name}`, table, channel: name, tags, stream: 0, type: "f64", unit: "bar", description: "", source: "s",
  expected_period_ns: null, interpolation: "linear",
});
const channels = sortChannels([
  channel(1, "plc", "p_10"), channel(2, "plc", "p_2"), channel(3, "avionics", "p_lox", { acu: "1" }), channel(4, "avionics", "t_lox"),
]);

describe("channel tree", () => {
  it("groups by table and orders numbers as numbers", () => {
    expect(treeRows(channels, "", new Set()).map((r) => (r.kind === "table" ? `${r.table} ${r.channels}` : r.label))).toEqual([
      "avionics 2", "t_lox", "p_lox", "plc 2", "p_2", "p_10",
    ]);
  });
  it("finds by any words, and opens what was closed", () => {
    const rows = treeRows(channels, "LOX bar", new Set(["avionics"]));
    expect(rows.map((r) => (r.kind === "table" ? r.table : r.label))).toEqual(["avionics", "t_lox", "p_lox"]);
    expect(treeRows(channels, "", new Set(["avionics"])).length).toBe(4);
    expect(treeRows(channels, "zzz", new Set())).toEqual([]);
  });
  it("knows the first channel that is found, below its table", () => {
    const rows = treeRows(channels, "plc", new Set());
    expect(rows[firstMatch(rows)]).toMatchObject({ kind: "channel", label: "p_2" });
    expect(firstMatch(treeRows(channels, "zzz", new Set()))).toBe(-1);
  });
  it("names channels by as much as tells those on the screen apart", () => {
    const one = channel(1, "plc.fast", "p");
    const other = channel(2, "acu1", "p");
    const [a, b] = [channel(3, "tank", "p", { n: "1" }), channel(4, "tank", "p", { n: "2" })];
    expect(shortNames([one, channel(5, "acu1", "t")])).toEqual(["p", "t"]);
    expect(shortNames([one, other])).toEqual(["fast.p", "acu1.p"]);
    expect(shortNames([one], [other, one])).toEqual(["fast.p"]);
    expect(shortNames([a, b])).toEqual(["n1.p", "n2.p"]);
    expect(shortNames([a, b, other])).toEqual(["tank.n1.p", "tank.n2.p", "acu1.p"]);
    expect(shortNames([channel(6, "a.x", "p"), channel(7, "b.x", "p")])).toEqual(["a.x.p", "b.x.p"]);
  });
  it("draws only what is in sight", () => {
    expect(visible(2400, 480, 24, 12_408)).toEqual({ from: 96, to: 124 });
    expect(visible(0, 480, 24, 3)).toEqual({ from: 0, to: 3 });
    expect(visible(9999, 480, 24, 3)).toEqual({ from: 3, to: 3 });
  });
});
