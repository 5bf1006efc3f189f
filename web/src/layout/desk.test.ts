import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Channel, ChannelType, ServerView } from "../connection/message";
import { ApiError, type LayoutEntry } from "../state/api";
import { EMPTY, freeze, thaw, withPanel } from "./layout";
import { MAX_PANELS, panel } from "./panel";
import { resize } from "./split";
import { settle } from "../test/settle";

/** What the page knows of the server, as far as the desk asks for it. */
const live = vi.hoisted(() => ({
  view: null as ServerView | null, channels: [] as Channel[], ready: true,
}));
/** The server's layouts, with tags as it gives them; `before` runs before each answer, and may refuse. */
const server = vi.hoisted(() => ({
  texts: new Map<string, string>(), tags: new Map<string, number>(), tag: 0, puts: [] as (string | null)[],
  before: (async () => {}) as (call: string) => Promise<void>,
  state: [] as { channel: Channel; time: string }[],
}));

vi.mock("../state/live.svelte", () => ({ live }));
vi.mock("../state/living", () => ({ living: (state: { channel: Channel }[]) => new Set(state.map((row) => row.channel.id)) }));
vi.mock("../state/api", async (original) => {
  const { ApiError } = await original<typeof import("../state/api")>();
  const tagOf = (name: string) => (server.tags.has(name) ? `"${server.tags.get(name)}"` : null);
  return {
    ApiError,
    layout: async (name: string) => {
      await server.before(`get ${name}`);
      const text = server.texts.get(name);
      if (text === undefined) throw new ApiError(404, "no such layout", "not_found", null);
      return { text, tag: tagOf(name)! };
    },
    saveLayout: async (name: string, text: string, known: string | null) => {
      server.puts.push(known);
      await server.before(`put ${name}`);
      if (known !== "any" && known !== tagOf(name)) throw new ApiError(412, "changed meanwhile", "conflict", null);
      server.texts.set(name, text);
      server.tags.set(name, ++server.tag);
      return tagOf(name)!;
    },
    deleteLayout: async (name: string) => {
      await server.before(`delete ${name}`);
      server.texts.delete(name);
      server.tags.delete(name);
    },
    layouts: async (): Promise<LayoutEntry[]> => [...server.texts.keys()].map((name) => ({ name, title: "", error: null, etag: tagOf(name)!, changed: null })),
    stateAt: async () => {
      await server.before("state");
      return { at: "0", state: server.state };
    },
  };
});

const { Desk } = await import("./desk.svelte");
type Desk = InstanceType<typeof Desk>;

const channel = (id: number, type: ChannelType = "f64"): Channel => ({
  id, name: `t.c${id}`, table: "t", channel: `c${id}`, tags: {}, stream: 0, type, unit: "bar", description: "", source: "s",
  expected_period_ns: null, interpolation: "linear",
});
/** A layout's text with panels of these titles. */
const text = (...titles: string[]) => freeze(titles.reduce((layout, title) => withPanel(layout, panel("sql", title)), EMPTY));
const put = (name: string, ...titles: string[]) => {
  server.texts.set(name, text(...titles));
  server.tags.set(name, ++server.tag);
};
const titles = (desk: Desk) => desk.layout?.panels.map((p) => p.title).join(" ") ?? null;
/** Titles in the order of reading: a desk has its panels in the order in which they were added. */
const savedTitles = (name: string) => thaw(server.texts.get(name)!).panels.map((p) => p.title).join(" ");
const keys = () => [...kept.keys()].sort();

let kept: Map<string, string>;
let full: boolean;
let pushed: string[];
let hash: string;

/** A desk as a page has it that was just opened, in the same browser. */
async function open(): Promise<Desk> {
  const desk = new Desk();
  desk.begin();
  await settle();
  return desk;
}

beforeEach(() => {
  [live.view, live.channels, live.ready] = [{ title: "rig", run: null, panels: [{ kind: "plot", title: "P", channels: ["t.c1"] }] }, [], true];
  server.texts.clear();
  server.tags.clear();
  [server.puts, server.state, server.before] = [[], [], async () => {}];
  [kept, full, pushed, hash] = [new Map(), false, [], ""];
  vi.stubGlobal("localStorage", {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => {
      if (full) throw new Error("quota exceeded");
      kept.set(key, value);
    },
    removeItem: (key: string) => void kept.delete(key),
  });
  vi.stubGlobal("location", { get hash() { return hash; }, pathname: "/", search: "" });
  vi.stubGlobal("history", { pushState: (_: unknown, __: string, url: string) => {
    hash = new URL(url, "http://page").hash;
    pushed.push(url);
  } });
});
afterEach(() => vi.unstubAllGlobals());

describe("the first layout", () => {
  it("is the linked one, at once, before anything else is known", async () => {
    put("night", "N");
    hash = "#layout=night";
    live.ready = false;
    const desk = await open();
    expect([titles(desk), desk.name, desk.changed]).toEqual(["N", "night", false]);
  });
  it("is the operator's own before the prepared one, also under the name that older pages gave it", async () => {
    expect(titles(await open())).toBe("P");
    kept.set("strongback.view.rig", text("old"));
    expect(titles(await open())).toBe("old");
    kept.set("strongback.layout.rig", text("own"));
    const desk = await open();
    expect([titles(desk), desk.changed, desk.name]).toEqual(["own", true, null]);
  });
  it("is the prepared one where what the browser kept cannot be read, which is said", async () => {
    kept.set("strongback.layout.rig", "{");
    const desk = await open();
    expect([titles(desk), keys()]).toEqual(["P", []]);
    expect(desk.problem).toMatch(/cannot be read: no layout/);
  });
  it("is what the page picks where nothing was prepared, live channels first, and waits for channels", async () => {
    live.view = null;
    expect((await open()).layout).toBeNull();
    live.channels = [channel(1), channel(2)];
    server.state = [{ channel: channel(2), time: "0" }];
    const desk = await open();
    expect(desk.layout!.panels[0]!.channels).toEqual(["t.c2", "t.c1"]);
    expect(desk.changed).toBe(false);
    // A server that refuses to say what is live is no obstacle.
    server.before = async () => { throw new Error("busy"); };
    expect((await open()).layout!.panels[0]!.channels).toEqual(["t.c1", "t.c2"]);
  });
  it("is not picked over what was added meanwhile", async () => {
    live.view = null;
    live.channels = [channel(1)];
    let answer = () => {};
    server.before = () => new Promise((resolve) => (answer = resolve));
    const desk = await open();
    desk.add("sql");
    answer();
    await settle();
    expect(titles(desk)).toBe("SQL");
  });
  it("is the operator's own where the linked one is not to be had, with the reason", async () => {
    hash = "#layout=gone";
    const desk = await open();
    expect([titles(desk), desk.name, desk.problem]).toEqual(["P", null, "layout gone: no such layout"]);
    // The same where the catalog is known only later.
    live.ready = false;
    const late = await open();
    expect(titles(late)).toBeNull();
    live.ready = true;
    late.begin();
    expect(titles(late)).toBe("P");
  });
  it("is asked for again once there is a token", async () => {
    put("night", "N");
    hash = "#layout=night";
    server.before = async () => { throw new ApiError(401, "token", "unauthorized", null); };
    const desk = await open();
    expect([titles(desk), desk.problem]).toEqual([null, null]);
    server.before = async () => {};
    desk.begin();
    await settle();
    expect(titles(desk)).toBe("N");
  });
});

describe("panels", () => {
  it("are added, selected, changed, moved and removed", async () => {
    const desk = await open();
    const made = desk.add("plot", ["t.tank{n=1}"])!;
    expect([titles(desk), desk.selected?.id]).toEqual(["P tank", made.id]);
    expect([desk.add("gaps")!.title, desk.selected?.title]).toEqual(["Gaps", "Gaps"]);
    desk.edit(made.id, { title: "LOX", span_s: 30 });
    expect(desk.layout!.panels.find((p) => p.id === made.id)).toMatchObject({ title: "LOX", span_s: 30, kind: "plot" });
    const before = desk.layout;
    desk.move(made.id, { beside: made.id, side: "left" });
    expect(desk.layout).toBe(before);
    desk.move(made.id, { beside: null, side: "top" });
    expect(desk.layout!.root).toMatchObject({ way: "column" });
    desk.selectedId = made.id;
    desk.removePanel(made.id);
    expect([titles(desk), desk.selected]).toEqual(["P Gaps", null]);
  });
  it("are at most so many, and one more says so", async () => {
    const desk = await open();
    for (let i = 1; i < MAX_PANELS; i++) expect(desk.add("sql")).not.toBeNull();
    expect([desk.add("sql"), desk.layout!.panels.length, desk.problem]).toEqual([null, MAX_PANELS, `a layout has at most ${MAX_PANELS} panels`]);
  });
  it("take a channel that is picked, let go of it when it is picked again, or get one of their own for it", async () => {
    live.channels = [channel(1), channel(2), channel(3, "string"), channel(4)];
    const desk = await open();
    const [plot] = desk.layout!.panels;
    desk.selectedId = plot!.id;
    const channels = () => desk.layout!.panels.map((p) => [p.kind, ...p.channels].join(" "));
    desk.pickChannel(channel(2));
    expect(channels()).toEqual(["plot t.c1 t.c2"]);
    desk.pickChannel(channel(1));
    expect(channels()).toEqual(["plot t.c2"]);
    // States are no line of a plot.
    desk.pickChannel(channel(3, "string"));
    expect(channels()).toEqual(["plot t.c2", "states t.c3"]);
    // The new panel is selected; one that shows no channels is left as it is.
    desk.add("sql");
    desk.pickChannel(channel(4));
    expect(channels()).toEqual(["plot t.c2", "states t.c3", "sql", "plot t.c4"]);
  });
  it("write out a pattern when one of its channels is taken away", async () => {
    live.channels = [channel(1), channel(2), channel(4)];
    const desk = await open();
    const made = desk.add("plot", ["t.*"])!;
    expect(desk.namesOf(made)).toEqual(["t.c1", "t.c2", "t.c4"]);
    desk.pickChannel(channel(2));
    expect(desk.selected!.channels).toEqual(["t.c1", "t.c4"]);
  });
  it("keep a pattern that matches more channels than a panel can name", async () => {
    live.channels = [...Array.from({ length: 3000 }, (_, i) => channel(i)), { ...channel(5000), name: "u.c", table: "u" }];
    const desk = await open();
    desk.add("plot", ["t.*"]);
    desk.pickChannel(live.channels.at(-1)!);
    expect(desk.selected!.channels).toEqual(["t.*", "u.c"]);
    desk.pickChannel(channel(2));
    expect(desk.selected!.channels).toEqual(["t.*", "u.c"]);
    expect(desk.problem).toBe("t.c2 is on this panel by a pattern, with 3000 others: its menu changes the patterns");
    desk.pickChannel(live.channels.at(-1)!);
    expect(desk.selected!.channels).toEqual(["t.*"]);
    // What could not be read again is not kept.
    desk.edit(desk.selectedId!, { channels: live.channels.map((c) => c.name) });
    expect([desk.selected!.channels, desk.problem]).toEqual([["t.*"], "a panel has at most 200 channels and patterns"]);
    expect(() => thaw(freeze(desk.layout!))).not.toThrow();
  });
});

describe("undo", () => {
  it("takes back change by change, thirty of them at most", async () => {
    const desk = await open();
    for (let i = 0; i < 40; i++) desk.edit(desk.layout!.panels[0]!.id, { title: `T${i}` });
    for (let i = 0; i < 100; i++) desk.undo();
    expect(titles(desk)).toBe("T9");
  });
  it("brings back a removed panel where it was, and what is undone is kept", async () => {
    const desk = await open();
    desk.add("sql");
    const before = freeze(desk.layout!);
    desk.removePanel(desk.layout!.panels[0]!.id);
    desk.undo();
    expect([freeze(desk.layout!), kept.get("strongback.layout.rig")]).toEqual([before, before]);
    desk.undo();
    expect([titles(desk), desk.changed]).toEqual(["P", false]);
    desk.undo();
    expect(titles(desk)).toBe("P");
  });
  it("takes a dragged divider as one change, and a tab that is shown as none", async () => {
    const desk = await open();
    const made = desk.add("sql", [], desk.layout!.panels[0]!.id, "right")!;
    const before = desk.layout!;
    for (const by of [0.1, 0.2, 0.3]) desk.slide({ ...before, root: resize(before.root!, [], 0, by) });
    expect(kept.get("strongback.layout.rig")).toBe(freeze(before));
    desk.slide(before);
    desk.change({ ...before, root: resize(before.root!, [], 0, 0.3) });
    desk.show(made.id);
    desk.undo();
    expect(freeze(desk.layout!)).toBe(freeze(before));
  });
  it("ends at the layout that was opened", async () => {
    put("a", "A");
    const desk = await open();
    desk.add("sql");
    await desk.open("a");
    desk.undo();
    expect(titles(desk)).toBe("A");
  });
});

describe("what is changed", () => {
  it("is kept in the browser until it is saved, apart from other layouts", async () => {
    put("a", "A");
    hash = "#layout=a";
    const desk = await open();
    desk.add("sql");
    expect([desk.changed, keys()]).toEqual([true, ["strongback.draft.a"]]);
    const again = await open();
    expect([titles(again), again.changed, again.conflict]).toEqual(["A SQL", true, null]);
    again.undo();
    again.removePanel(again.layout!.panels[1]!.id);
    expect(again.changed).toBe(false);
    again.close();
    expect(titles(again)).toBe("P");
  });
  it("stays on the screen where the browser keeps nothing, which is said", async () => {
    const desk = await open();
    full = true;
    const made = desk.add("sql");
    expect([titles(desk), desk.selectedId, desk.changed]).toEqual(["P SQL", made!.id, true]);
    expect(desk.problem).toMatch(/does not keep .* quota exceeded/);
  });
  it("is let go of by a reset: back to what is saved, or what was prepared", async () => {
    put("a", "A");
    const desk = await open();
    desk.add("sql");
    desk.reset();
    expect([titles(desk), desk.changed, keys()]).toEqual(["P", false, []]);
    await desk.open("a");
    desk.add("sql");
    desk.reset();
    await settle();
    expect([titles(desk), desk.changed, keys()]).toEqual(["A", false, []]);
  });
  it("and cannot be read is said to be lost", async () => {
    put("a", "A");
    kept.set("strongback.draft.a", "{");
    const desk = await open();
    await desk.open("a");
    expect([titles(desk), keys()]).toEqual(["A", []]);
    expect(desk.problem).toMatch(/^what was changed in layout a and not saved cannot be read: /);
  });
});

describe("saving", () => {
  it("gives the layout its name, in the address too, and lets go of the draft", async () => {
    const desk = await open();
    const made = desk.add("sql")!;
    await desk.save("night");
    expect([desk.name, desk.changed, desk.problem, hash, keys()]).toEqual(["night", false, null, "#layout=night", []]);
    expect([savedTitles("night"), desk.selectedId, desk.saved.map((s) => s.name)]).toEqual(["P SQL", made.id, ["night"]]);
    desk.add("gaps");
    await desk.save("night");
    // First over nothing, then over the text that was saved here.
    expect(server.puts[0]).toBeNull();
    expect(server.puts[1]).toMatch(/^"\d+"$/);
    expect(savedTitles("night")).toBe("P Gaps SQL");
  });
  it("does not write over what someone else saved, until that is wanted", async () => {
    put("a", "A");
    const desk = await open();
    await desk.open("a");
    put("a", "theirs");
    desk.add("sql");
    await desk.save("a");
    expect([savedTitles("a"), desk.conflict, desk.problem, desk.changed, titles(desk)]).toEqual(["theirs", "a", "changed meanwhile", true, "A SQL"]);
    await desk.save("a", true);
    expect([savedTitles("a"), desk.conflict, desk.problem, desk.changed]).toEqual(["A SQL", null, null, false]);
  });
  it("takes theirs instead, and mine is gone", async () => {
    put("a", "A");
    const desk = await open();
    await desk.open("a");
    put("a", "theirs");
    desk.add("sql");
    await desk.save("a");
    await desk.open(desk.conflict!, true);
    expect([titles(desk), desk.conflict, desk.changed, keys()]).toEqual(["theirs", null, false, []]);
  });
  it("under the name of another layout is in conflict with that one, and keeps what is changed here", async () => {
    put("a", "A");
    put("b", "B");
    const desk = await open();
    await desk.open("a");
    desk.add("sql");
    await desk.save("b");
    expect([desk.conflict, desk.name, savedTitles("b")]).toEqual(["b", "a", "B"]);
    // Taking theirs opens the other, and the draft of this one stays.
    await desk.open(desk.conflict!, true);
    expect([desk.name, titles(desk), keys()]).toEqual(["b", "B", ["strongback.draft.a"]]);
    await desk.open("a");
    expect(titles(desk)).toBe("A SQL");
  });
  it("twice in a row is no conflict with oneself", async () => {
    put("a", "A");
    const desk = await open();
    await desk.open("a");
    desk.add("sql");
    await Promise.all([desk.save("a"), desk.save("a")]);
    expect([desk.conflict, desk.problem, savedTitles("a")]).toEqual([null, null, "A SQL"]);
  });
  it("goes on after one that failed", async () => {
    const desk = await open();
    server.before = async (call) => { if (call.startsWith("put")) throw new TypeError("Failed to fetch"); };
    await desk.save("a");
    expect([desk.problem, desk.conflict, desk.name]).toEqual(["Failed to fetch", null, null]);
    server.before = async () => {};
    await desk.save("a");
    expect([desk.problem, desk.name]).toEqual([null, "a"]);
  });
  it("keeps what is changed while the server saves", async () => {
    put("a", "A");
    const desk = await open();
    await desk.open("a");
    desk.add("sql");
    server.before = async (call) => { if (call === "put a") desk.add("gaps"); };
    await desk.save("a");
    expect([savedTitles("a"), titles(desk), desk.changed]).toEqual(["A SQL", "A SQL Gaps", true]);
    server.before = async () => {};
    // After a reload, too, and without a conflict.
    hash = "#layout=a";
    const again = await open();
    expect([titles(again), again.conflict]).toEqual(["A Gaps SQL", null]);
  });
  it("does not give its name to another layout that is opened meanwhile", async () => {
    put("a", "A");
    put("b", "B");
    const desk = await open();
    await desk.open("a");
    desk.add("sql");
    let answer = () => {};
    server.before = (call) => (call === "put a" ? new Promise((resolve) => (answer = resolve)) : Promise.resolve());
    const saving = desk.save("a");
    await settle();
    await desk.open("b");
    answer();
    await saving;
    expect([desk.name, titles(desk), desk.changed, savedTitles("a"), savedTitles("b"), keys()]).toEqual(["b", "B", false, "A SQL", "B", []]);
  });
  it("of no layout does nothing", async () => {
    live.ready = false;
    const desk = await open();
    await desk.save("a");
    expect(server.puts).toEqual([]);
  });
});

describe("opening", () => {
  it("goes on with what was changed and not saved, and says if someone saved since", async () => {
    put("a", "A");
    const desk = await open();
    await desk.open("a");
    desk.add("sql");
    put("a", "theirs");
    const again = await open();
    await again.open("a");
    expect([titles(again), again.changed, again.conflict]).toEqual(["A SQL", true, "a"]);
    // Saving would write over theirs: it is refused.
    await again.save("a");
    expect(savedTitles("a")).toBe("theirs");
  });
  it("of a draft that someone else saved word for word can be saved on", async () => {
    put("a", "A");
    const desk = await open();
    await desk.open("a");
    desk.add("sql");
    put("a", "A", "SQL");
    kept.set("strongback.draft.a", JSON.stringify({ tag: '"1"', text: server.texts.get("a") }));
    await desk.open("a");
    expect([desk.changed, desk.conflict]).toEqual([false, null]);
    desk.add("gaps");
    await desk.save("a");
    expect([desk.conflict, savedTitles("a")]).toEqual([null, "A Gaps SQL"]);
  });
  it("of one that cannot be read leaves the screen as it is", async () => {
    server.texts.set("odd", '{"version":3,"panels":[]}');
    const desk = await open();
    desk.add("sql");
    await desk.open("odd");
    expect([titles(desk), desk.name, desk.changed]).toEqual(["P SQL", null, true]);
    expect(desk.problem).toMatch(/^layout odd: version 3 of layouts is newer/);
  });
  it("of two in a row ends at the second, whichever answer comes first", async () => {
    put("slow", "S");
    put("fast", "F");
    const desk = await open();
    let answer = () => {};
    server.before = (call) => (call === "get slow" ? new Promise((resolve) => (answer = resolve)) : Promise.resolve());
    const slow = desk.open("slow");
    await desk.open("fast");
    answer();
    await slow;
    expect([titles(desk), desk.name, hash]).toEqual(["F", "fast", "#layout=fast"]);
  });
});

describe("the address", () => {
  it("is followed to a layout and back to the operator's own, and what else it says stays", async () => {
    put("a", "A");
    hash = "#source=fti";
    const desk = await open();
    await desk.open("a");
    expect(hash).toBe("#source=fti&layout=a");
    hash = "#source=fti";
    desk.follow();
    expect([titles(desk), desk.name]).toEqual(["P", null]);
    hash = "#layout=a";
    desk.follow();
    await settle();
    expect([titles(desk), desk.name]).toEqual(["A", "a"]);
    // Following writes no address of its own.
    expect(pushed).toHaveLength(1);
  });
  it("that is left while its layout is being opened opens nothing", async () => {
    put("a", "A");
    let answer = () => {};
    const desk = await open();
    server.before = () => new Promise((resolve) => (answer = resolve));
    hash = "#layout=a";
    desk.follow();
    hash = "";
    desk.follow();
    answer();
    await settle();
    expect([titles(desk), desk.name, hash]).toEqual(["P", null, ""]);
  });
  it("that says something else than before calls off no layout that is being opened", async () => {
    put("a", "A");
    let answer = () => {};
    const desk = await open();
    server.before = () => new Promise((resolve) => (answer = resolve));
    const opening = desk.open("a");
    hash = "#source=fti";
    desk.follow();
    answer();
    await opening;
    expect([titles(desk), hash]).toEqual(["A", "#source=fti&layout=a"]);
  });
  it("follows a layout that is deleted: the operator's own is shown, and no draft is left", async () => {
    put("a", "A");
    const desk = await open();
    await desk.open("a");
    desk.add("sql");
    await desk.remove("a");
    expect([titles(desk), desk.name, hash, keys(), desk.saved]).toEqual(["P", null, "", [], []]);
    // Another than the one in use goes without a change on the screen; what is refused is said.
    put("b", "B");
    await desk.remove("b");
    expect(titles(desk)).toBe("P");
    server.before = async () => { throw new Error("read only"); };
    await desk.remove("b");
    expect(desk.problem).toBe("read only");
  });
});
