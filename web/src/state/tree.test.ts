import { describe, expect, it } from "vitest";
import type { Channel } from "../connection/message";
import { firstMatch, shortNames, sortChannels, stepped, treeRows, Twins, visible } from "./tree";

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
  it("steps from the search onto the first channel, and then from row to row", () => {
    const rows = treeRows(channels, "", new Set());
    const kind = (at: number) => rows[at]!.kind;
    expect([stepped(rows, -1, 1), kind(stepped(rows, -1, 1))]).toEqual([1, "channel"]);
    expect([stepped(rows, -1, -1), stepped(rows, -1, 15), stepped(rows, 1, 1), stepped(rows, 1, -1), stepped(rows, 5, 1)]).toEqual([1, 5, 2, 0, 5]);
    // Below tables that are closed; and onto the first of them where all are.
    expect(kind(stepped(treeRows(channels, "", new Set(["avionics"])), -1, 1))).toBe("channel");
    expect(stepped(treeRows(channels, "", new Set(["avionics", "plc"])), -1, 1)).toBe(0);
    expect(stepped([], -1, 1)).toBe(0);
  });
  it("has the server's own tables at its end, in a group that is closed until it is clicked or searched", () => {
    const all = sortChannels([
      channel(1, "strongback.clocks", "drift_ppm"), channel(2, "zeta", "p"), channel(3, "strongback.alarms", "p"), channel(4, "strongbacks", "p"),
    ]);
    const words = (query: string, ...turned: string[]) =>
      treeRows(all, query, new Set(turned)).map((r) => (r.kind === "table" ? `${r.inner ? "  " : ""}${r.table} ${r.channels}` : r.label));
    expect(words("")).toEqual(["strongbacks 1", "p", "zeta 1", "p", "strongback 2"]);
    expect(words("", "strongback.")).toEqual([
      "strongbacks 1", "p", "zeta 1", "p", "strongback 2", "  strongback.alarms 1", "p", "  strongback.clocks 1", "drift_ppm",
    ]);
    expect(words("", "strongback.", "strongback.alarms").slice(4)).toEqual([
      "strongback 2", "  strongback.alarms 1", "  strongback.clocks 1", "drift_ppm",
    ]);
    expect(words("drift")).toEqual(["strongback 1", "  strongback.clocks 1", "drift_ppm"]);
    expect(words("strongback p").filter((word) => !word.startsWith(" "))).toEqual(["strongbacks 1", "p", "strongback 2", "p", "drift_ppm"]);
    const rows = treeRows(all, "strongback", new Set());
    expect(rows[firstMatch(rows)]).toMatchObject({ channel: { table: "strongbacks" } });
  });
  it("names channels by what tells them from their twins in the catalog, also where those are on no screen", () => {
    const stand = (id: number, tags: Record<string, string>) => channel(id, "stand", "p_chamber", tags);
    const [a, b] = [stand(1, { rig: "A", site: "north" }), stand(2, { rig: "B", site: "north" })];
    const [alone, other] = [channel(3, "stand", "t", { rig: "A", site: "north" }), channel(4, "acu1", "p_chamber")];
    const known = new Twins([a, b, alone, other]);
    expect([known.has(a), known.has(alone), known.words(b), known.words(alone)]).toEqual([true, false, "B", ""]);
    expect(shortNames([a], [], known)).toEqual(["A.p_chamber"]);
    expect(shortNames([a, alone], [b], known)).toEqual(["A.p_chamber", "t"]);
    expect(shortNames([a, b], [], known)).toEqual(["A.p_chamber", "B.p_chamber"]);
    expect(shortNames([a, other], [], known)).toEqual(["stand.A.p_chamber", "acu1.p_chamber"]);
    // Without tags, beside one with.
    const bare = new Twins([a, stand(5, {})]);
    expect([shortNames([stand(5, {})], [], bare), shortNames([a], [], bare)]).toEqual([["stand.p_chamber"], ["A.north.p_chamber"]]);
    // The same word under another key.
    const keyed = new Twins([stand(6, { rig: "A" }), stand(7, { node: "A" })]);
    expect(shortNames([stand(6, { rig: "A" })], [], keyed)).toEqual(["rig=A.p_chamber"]);
  });
  it("looks for twins once, however many channels there are", () => {
    const many = Array.from({ length: 100_000 }, (_, i) => channel(i, "rack", i % 2 ? "t" : "p", { node: String(i >> 1) }));
    const known = new Twins(many);
    let looks = 0;
    // From then on a name asks for its own channel alone.
    const watched = new Proxy(many[7]!, { get: (of, key) => (looks++, Reflect.get(of, key)) });
    expect(shortNames([watched], [], known)).toEqual(["node3.t"]);
    expect(looks).toBeLessThan(30);
  });
  it("draws only what is in sight", () => {
    expect(visible(2400, 480, 24, 12_408)).toEqual({ from: 96, to: 124 });
    expect(visible(0, 480, 24, 3)).toEqual({ from: 0, to: 3 });
    expect(visible(9999, 480, 24, 3)).toEqual({ from: 3, to: 3 });
  });
});
