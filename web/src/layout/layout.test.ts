import { describe, expect, it } from "vitest";
import { toCsv } from "../text/csv";
import { count } from "../text/number";
import { EMPTY, freeze, fromServer, type Layout, pick, thaw, withMoved, withoutPanel, withPanel } from "./layout";
import type { Channel, ChannelType } from "../connection/message";
import { panel, readPanel } from "./panel";
import { type Node, panelsOf, type Split } from "./split";
import { troubles } from "../state/trouble";


const channel = (id: number, type: ChannelType, unit: string): Channel => ({
  id, name: `t.c${id}`, table: "t", channel: `c${id}`, tags: {}, stream: 0, type, unit, description: "", source: "s",
  expected_period_ns: null, interpolation: "linear",
});

const words = (layout: Layout) => {
  const title = (id: string) => layout.panels.find((p) => p.id === id)!.title;
  const tree = (node: Node | null): string =>
    node === null ? "" : "way" in node ? `${node.way === "row" ? "(" : "["}${node.children.map(tree).join(" ")}${node.way === "row" ? ")" : "]"}`
      : node.tabs.map((t) => title(t) + (node.tabs.length > 1 && node.shown === t ? "*" : "")).join("/");
  return tree(layout.root);
};

describe("layout", () => {
  it("survives being kept, with everything of its panels", () => {
    const view = fromServer({ title: "launch", run: null, panels: [{ kind: "plot", title: "LOX", channels: ["a.*"], span_s: 30 }] });
    const made = panel("sql", "Q", [], { text: "select 1", axes: { "a.b": "right" }, ends: { left: { min: -1 }, right: { min: 0, max: 2.5 } }, scales: { right: "log" }, band: false, decimals: 0 });
    const layout = withPanel(withPanel(view, made), panel("gaps", "G"), made.id, "middle");
    const again = thaw(freeze(layout));
    expect(words(again)).toBe("(LOX Q/G*)");
    expect(again.panels[0]).toMatchObject({ kind: "plot", title: "LOX", channels: ["a.*"], span_s: 30 });
    expect(again.panels[1]).toMatchObject({ text: "select 1", axes: { "a.b": "right" }, ends: { left: { min: -1 }, right: { min: 0, max: 2.5 } }, scales: { right: "log" }, band: false, decimals: 0 });
    expect(freeze(withPanel(EMPTY, panel("plot", "P")))).not.toMatch(/scales|decimals/);
    expect(again.panels[0]!.id).not.toBe(view.panels[0]!.id);
    expect(freeze(again)).toBe(freeze(layout));
    expect(freeze(thaw(freeze(EMPTY)))).toBe(freeze(EMPTY));
  });
  it("takes only ends that leave an axis", () => {
    const ends = (value: unknown) => readPanel({ kind: "plot", ends: value }).ends;
    expect([ends({ left: { min: 3, max: 2 } }), ends({ left: { min: "1" } }), ends({ right: {} }), ends(7), ends(null)]).toEqual([{}, {}, {}, {}, {}]);
    expect(ends({ left: { min: 3, max: Infinity }, up: { min: 1 } })).toEqual({ left: { min: 3 } });
  });
  it("takes only scales that it knows", () => {
    const scales = (value: unknown) => readPanel({ kind: "plot", scales: value }).scales;
    expect([scales({ left: "log", right: "linear", up: "log" }), scales({ left: true }), scales("log"), scales(null), scales(undefined)]).toEqual([{ left: "log" }, {}, {}, {}, {}]);
  });
  it("takes only decimals that numbers can have", () => {
    const decimals = (value: unknown) => readPanel({ kind: "number", decimals: value }).decimals;
    expect([0, 12, 13, -1, 1.5, NaN, "2", null, undefined].map(decimals)).toEqual([0, 12, null, null, null, null, null, null, null]);
  });
  it("reads layouts of the first version, whose panels stood on a grid", () => {
    const old = { v: 1, title: "old", panels: [
      { kind: "plot", title: "A", channels: ["a"], span_s: 120, width: 8, height: 2 }, { kind: "now", title: "B", channels: [], width: 4, height: 1 },
      { kind: "states", title: "C", channels: ["c"], width: 12, height: 1 },
    ] };
    const layout = thaw(JSON.stringify(old));
    expect(words(layout)).toBe("[(A B) C]");
    expect(layout.panels[0]!.span_s).toBe(120);
    expect((layout.root as Split).sizes).toEqual([2 / 3, 1 / 3]);
    expect(thaw('{"version":1,"title":"","panels":[{"kind":"now","channels":[],"width":"x","height":-3,"span_s":"x"}]}').panels[0]!.span_s).toBe(60);
  });
  it("refuses what is none, with the reason, and keeps what a hand left out", () => {
    const cases: [string, RegExp][] = [
      ["", /no layout: /], ["[]", /no version/], ["null", /no object/], ['{"version":3,"panels":[]}', /version 3 of layouts is newer/],
      ['{"version":2}', /no panels/], ['{"version":2,"panels":[{"kind":"pie"}]}', /no kind of panel "pie"/],
      ['{"version":2,"panels":[7]}', /a panel is 7/], ['{"version":2,"panels":[{"id":"a","kind":"sql"}],"root":{"way":"up"}}', /neither tabs nor/],
      [`{"version":2,"panels":[],"root":${'{"way":"row","sizes":[1],"children":['.repeat(20)}null${"]}".repeat(20)}}`, /more than 12 deep/],
      [JSON.stringify({ version: 2, panels: Array.from({ length: 65 }, () => ({ kind: "sql" })) }), /at most 64 panels/],
    ];
    for (const [text, why] of cases) expect(() => thaw(text), text).toThrow(why);
    const odd = thaw('{"version":2,"title":"t","panels":[{"id":"a","kind":"sql","title":"A"},{"id":"b","kind":"gaps","title":"B"}],"root":{"tabs":["a","a","ghost"],"shown":"ghost"}}');
    expect(words(odd)).toBe("(A B)");
    // Two with one id, and two without any: each has a place.
    const twins = thaw(JSON.stringify({ version: 2, panels: [..."ABCD"].map((title, i) => ({ kind: "sql", title, ...(i < 2 ? { id: "a" } : {}) })), root: { tabs: ["a"], shown: "a" } }));
    expect(panelsOf(twins.root).sort()).toEqual(twins.panels.map((p) => p.id).sort());
    expect(thaw(freeze(twins)).panels.map((p) => p.title).sort()).toEqual(["A", "B", "C", "D"]);
  });
  it("picks lines by unit, states and values where the server prepared nothing", () => {
    const view = pick([channel(1, "f64", "bar"), channel(2, "f64", "bar"), channel(3, "f64", "V"), channel(4, "string", "")]);
    expect(view.panels.map((p) => [p.kind, p.channels])).toEqual([
      ["plot", ["t.c1", "t.c2"]], ["plot", ["t.c3"]], ["states", ["t.c4"]], ["now", ["t.c1", "t.c2", "t.c3"]],
    ]);
    expect(pick([])).toEqual(EMPTY);
  });
  it("picks channels that are live before those that are not", () => {
    const all = [1, 2, 3, 4, 5, 6, 7].map((id) => channel(id, "f64", id <= 5 ? "bar" : "V"));
    const picked = pick(all, (c) => c.id >= 5);
    expect(picked.panels.map((p) => p.channels)).toEqual([
      ["t.c6", "t.c7"], ["t.c5", "t.c1", "t.c2", "t.c3"], ["t.c5", "t.c6", "t.c7", "t.c1", "t.c2", "t.c3"],
    ]);
  });
  it("takes panels in and out where they are wanted", () => {
    const [a, b, c] = ["A", "B", "C"].map((t) => panel("sql", t));
    let layout = withPanel(EMPTY, a!);
    layout = withPanel(layout, b!);
    expect(words(layout)).toBe("(A B)");
    layout = withPanel(layout, c!, b!.id, "bottom");
    expect(words(layout)).toBe("(A [B C])");
    layout = withMoved(layout, c!.id, null, "top");
    expect(words(layout)).toBe("[C (A B)]");
    layout = withMoved(layout, a!.id, c!.id, "middle");
    expect(words(layout)).toBe("[C/A* B]");
    layout = withMoved(layout, a!.id, a!.id, "left");
    expect(words(layout)).toBe("[(A C) B]");
    layout = withoutPanel(layout, b!.id);
    expect(words(layout)).toBe("(A C)");
    expect(withoutPanel(withoutPanel(layout, a!.id), c!.id)).toEqual(EMPTY);
  });
});

describe("trouble", () => {
  it("lists banners, then sources by what they say, then stale channels", () => {
    const list = troubles(
      [{ id: "store", severity: "critical", text: "NOT RECORDED · disk full" }],
      [{ name: "fti", status: "ok", rate_hz: 50, lost: 3 }, { name: "range", status: "silent", rate_hz: 0, lost: 0 }],
      ["a", "b", "c", "d"], true,
    );
    expect(list.map((t) => [t.what, t.severity])).toEqual([
      ["NOT RECORDED", "critical"], ["source range silent", "warning"], ["4 watched channels stale", "watch"],
    ]);
    expect(list[2]!.detail).toBe("a, b, c and 1 more");
  });
  it("lists what sources lost a moment ago, also of those that are well", () => {
    const list = troubles(
      [], [{ name: "fti", status: "ok", rate_hz: 50, lost: 20_286 }, { name: "range", status: "silent", rate_hz: 0, lost: 1 }],
      ["a"], true, new Map([["fti", 20_286n], ["range", 1n]]),
    );
    expect(list.map((t) => [t.what, t.severity])).toEqual([
      ["source range silent", "warning"], [`source fti lost ${count(20_286)} frames in the last minute`, "watch"],
      ["source range lost 1 frame in the last minute", "watch"], ["1 watched channel stale", "watch"],
    ]);
  });
  it("says nothing of sources when nothing is heard", () => {
    const range = { name: "range", status: "silent" as const, rate_hz: 0, lost: 0 };
    expect(troubles([], [range], ["a"], false, new Map([["range", 5n]]))).toEqual([]);
  });
});

describe("CSV", () => {
  it("quotes what must be quoted and keeps 64 bits", () => {
    expect(toCsv({
      columns: [{ name: "a,b", type: "text" }, { name: "n", type: "int8" }],
      rows: [['say "x"\n', "9007199254740993"], [null, 1.5]], truncated: false, elapsed_ms: 0,
    })).toBe('"a,b",n\r\n"say ""x""\n",9007199254740993\r\n,1.5\r\n');
  });
});
