import { describe, expect, it } from "vitest";
import { toCsv } from "./csv";
import type { Channel, ChannelType } from "./message";
import { troubles } from "./trouble";
import { freeze, fromServer, pick, thaw } from "./view";

const channel = (id: number, type: ChannelType, unit: string): Channel => ({
  id, name: `t.c${id}`, table: "t", channel: `c${id}`, tags: {}, stream: 0, type, unit, description: "", source: "s",
  expected_period_ns: null, interpolation: "linear",
});

describe("view", () => {
  it("survives being kept", () => {
    const view = fromServer({ title: "launch", run: null, panels: [{ kind: "plot", title: "LOX", channels: ["a.*"], span_s: 30 }] });
    const again = thaw(freeze(view))!;
    expect(again.panels[0]).toMatchObject({ kind: "plot", title: "LOX", channels: ["a.*"], span_s: 30 });
    expect(again.panels[0]!.id).not.toBe(view.panels[0]!.id);
  });
  it("refuses what is no view, and bounds what is odd", () => {
    for (const text of [null, "", "[]", "{", '{"v":2,"title":"","panels":[]}', '{"v":1,"title":"","panels":[{"kind":"pie","channels":[]}]}'])
      expect(thaw(text)).toBeNull();
    expect(thaw('{"v":1,"title":"","panels":[{"kind":"now","channels":[],"width":99,"height":-3,"span_s":"x"}]}')!.panels[0])
      .toMatchObject({ width: 12, height: 1, span_s: 60 });
  });
  it("picks lines by unit, states and values where the server prepared nothing", () => {
    const view = pick([channel(1, "f64", "bar"), channel(2, "f64", "bar"), channel(3, "f64", "V"), channel(4, "string", "")]);
    expect(view.panels.map((p) => [p.kind, p.channels])).toEqual([
      ["plot", ["t.c1", "t.c2"]], ["plot", ["t.c3"]], ["states", ["t.c4"]], ["now", ["t.c1", "t.c2", "t.c3"]],
    ]);
    expect(pick([]).panels).toEqual([]);
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
  it("says nothing of sources when nothing is heard", () => {
    expect(troubles([], [{ name: "range", status: "silent", rate_hz: 0, lost: 0 }], ["a"], false)).toEqual([]);
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
