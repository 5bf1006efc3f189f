import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Alarm, Channel } from "../connection/message";
import * as api from "./api";

/** What the page asked for, in order. */
let asked: { path: string; init: RequestInit; headers: Headers }[] = [];
/** Answers to come; the last one is given to every further request. */
let answers: (() => Response | Promise<Response>)[] = [];
let kept: Map<string, string>;

const json = (body: unknown, status = 200, headers: Record<string, string> = {}) => () =>
  new Response(JSON.stringify(body), { status, headers });
const plain = (text: string, status: number, statusText = "") => () => new Response(text, { status, statusText });
const answer = (...next: typeof answers) => void (answers = next);
const last = () => asked.at(-1)!;
/** The path and the parameters of the newest request. */
const parts = (): [string, Record<string, string>] => {
  const url = new URL(last().path, "http://page/");
  return [url.pathname, Object.fromEntries(url.searchParams)];
};
const failure = (call: Promise<unknown>) => call.then(() => { throw new Error("it was answered"); }, (e: unknown) => e as api.ApiError);

beforeEach(() => {
  asked = [];
  kept = new Map();
  answer(json({}));
  vi.stubGlobal("sessionStorage", {
    getItem: (key: string) => kept.get(key) ?? null, setItem: (key: string, value: string) => void kept.set(key, value),
  });
  vi.stubGlobal("location", { href: "http://store.lan:8080/page/?x=1#layout=a" });
  vi.stubGlobal("fetch", async (path: string, init: RequestInit) => {
    asked.push({ path, init, headers: new Headers(init.headers) });
    return (answers.length > 1 ? answers.shift()! : answers[0]!)();
  });
});
afterEach(() => vi.unstubAllGlobals());

describe("addresses", () => {
  it("are relative to the page, with every parameter escaped", async () => {
    answer(json({ series: [{ channel: {}, buckets: [] }] }));
    expect(await api.history(["a.b{c=1}", "x&y"], 5n, 9_007_199_254_740_993n, 600)).toHaveLength(1);
    expect(last().path.startsWith("api/history?")).toBe(true);
    expect(parts()).toEqual(["/api/history", { channels: "a.b{c=1},x&y", from: "5", to: "9007199254740993", points: "600" }]);
  });
  it("leave out what is not asked for", async () => {
    answer(json({ at: "1", state: [] }));
    await api.stateAt(null, "");
    expect(last().path).toBe("api/state");
    await api.stateAt(7n, "a.*");
    expect(parts()).toEqual(["/api/state", { at: "7", channels: "a.*" }]);
    answer(json({ gaps: [] }));
    await api.gaps(3n, 10);
    expect(parts()).toEqual(["/api/gaps", { from: "3", limit: "10" }]);
  });
  it("name a source literally where the server expects a pattern", async () => {
    answer(json({ gaps: [] }));
    await api.gaps(3n, 10, "rig*[1]", undefined, 9n);
    expect(parts()[1]).toEqual({ from: "3", to: "9", limit: "10", source: "rig\\*[1]" });
  });
  it("keep a name in one part of the path", async () => {
    await api.source("a/b ?#");
    expect(last().path).toBe("api/sources/a%2Fb%20%3F%23");
    await api.deleteLayout("../view");
    expect([last().path, last().init.method]).toEqual(["api/layouts/..%2Fview", "DELETE"]);
    await api.playback("x/y");
    expect(last().path).toBe("api/playbacks/x%2Fy");
  });
  it("of live updates change the scheme, and drop what belongs to the page alone", () => {
    expect(api.liveUrl()).toBe("ws://store.lan:8080/page/api/live");
    vi.stubGlobal("location", { href: "https://store.lan/?q=1#source=a" });
    expect(api.liveUrl("p 1")).toBe("wss://store.lan/api/live?playback=p+1");
  });
});

describe("requests", () => {
  it("carry the token once there is one, and none before", async () => {
    await api.view();
    expect(last().headers.get("authorization")).toBeNull();
    api.setToken("s3cret&");
    expect(api.token()).toBe("s3cret&");
    await api.view();
    expect(last().headers.get("authorization")).toBe("Bearer s3cret&");
    expect(new URL(api.liveUrl()).searchParams.get("access_token")).toBe("s3cret&");
  });
  it("are never answered from a cache, and say that a body is JSON", async () => {
    await api.addEvent("hold", "watch", 5n);
    const { init, headers } = last();
    expect([init.cache, init.method, headers.get("content-type")]).toEqual(["no-store", "POST", "application/json"]);
    expect(JSON.parse(init.body as string)).toEqual({ text: "hold", level: "watch", time: "5" });
    await api.addEvent("hold", "info");
    expect(JSON.parse(last().init.body as string)).toEqual({ text: "hold", level: "info" });
    await api.view();
    expect([last().init.cache, last().headers.get("content-type")]).toEqual(["no-store", null]);
  });
  it("can be called off", async () => {
    const { signal } = new AbortController();
    answer(json({ sources: [] }));
    await api.sources(signal);
    expect(last().init.signal).toBe(signal);
  });
  it("act on one alarm, in one name", async () => {
    const alarm = { limit: "pressure", channel: "tank.p", text: "x" } as unknown as Alarm;
    await api.shelve(alarm, "anna", 30);
    expect(last().path).toBe("api/alarms/shelve");
    expect(JSON.parse(last().init.body as string)).toEqual({ limit: "pressure", channel: "tank.p", by: "anna", minutes: 30 });
    await api.acknowledge(alarm, "anna");
    expect([last().path, Object.keys(JSON.parse(last().init.body as string))]).toEqual(["api/alarms/acknowledge", ["limit", "channel", "by"]]);
    await api.unshelve(alarm, "anna");
    expect(last().path).toBe("api/alarms/unshelve");
  });
  it("direct a playback with its secret", async () => {
    await api.commandPlayback("p1", { do: "seek", at: "5", director: "d" });
    expect([last().path, JSON.parse(last().init.body as string)]).toEqual(["api/playbacks/p1", { do: "seek", at: "5", director: "d" }]);
    await api.takePlayback("p1");
    expect(JSON.parse(last().init.body as string)).toEqual({ do: "take" });
    await api.startPlayback({ run: "r" });
    expect([last().path, last().init.method, JSON.parse(last().init.body as string)]).toEqual(["api/playbacks", "POST", { run: "r" }]);
  });
});

describe("errors", () => {
  it("say status, words and code of the server", async () => {
    answer(json({ error: "no such channel", code: "not_found" }, 404));
    const e = await failure(api.view());
    expect(e).toBeInstanceOf(api.ApiError);
    expect([e.status, e.message, e.code, e.sqlstate]).toEqual([404, "no such channel", "not_found", null]);
    answer(json({ error: "division by zero", code: "sql", sqlstate: "22012" }, 400));
    expect((await failure(api.sql("select 1/0", 1))).sqlstate).toBe("22012");
  });
  it("of something before the server are its plain text, cut to what can be read", async () => {
    answer(plain("upstream is down", 502));
    const e = await failure(api.view());
    expect([e instanceof api.ApiError, e.status, e.message, e.code]).toEqual([true, 502, "upstream is down", null]);
    answer(plain("x".repeat(5000), 500));
    expect((await failure(api.view())).message).toHaveLength(300);
  });
  it("have words even where the answer has none", async () => {
    answer(plain("", 503, "Service Unavailable"));
    expect((await failure(api.view())).message).toBe("Service Unavailable");
    // HTTP/2 has no words beside the status.
    for (const body of ["", "null", "7", "[]", '{"code":"busy"}', '{"error":null}', '{"error":""}', '{"error":{"a":1}}']) {
      answer(plain(body, 503));
      const e = await failure(api.view());
      expect([e.status, e.message], body).toEqual([503, "the server answered with status 503"]);
    }
  });
  it("include an answer that should be JSON and is not", async () => {
    answer(plain("<html>log in</html>", 200));
    const e = await failure(api.sources());
    expect([e instanceof api.ApiError, e.status, e.message]).toEqual([true, 200, "<html>log in</html>"]);
  });
  it("of the network are passed on: no status stands for a server that was not reached", async () => {
    answer(() => Promise.reject(new TypeError("Failed to fetch")));
    const e = await failure(api.view());
    expect([e instanceof api.ApiError, e.message]).toEqual([false, "Failed to fetch"]);
    answer(() => new Response(new ReadableStream({ start: (c) => c.error(new TypeError("network error")) }), { status: 200 }));
    expect((await failure(api.view())).message).toBe("network error");
  });
  it("are none where a call answers nothing", async () => {
    answer(() => new Response(null, { status: 204 }));
    expect(await api.view()).toBeNull();
  });
});

describe("layouts", () => {
  it("come with the tag of their text, letter by letter", async () => {
    answer(() => new Response('{ "version": 2 }', { headers: { etag: '"t1"' } }));
    expect(await api.layout("Launch day")).toEqual({ text: '{ "version": 2 }', tag: '"t1"' });
    expect(last().path).toBe("api/layouts/Launch%20day");
  });
  it("are saved over the text that was read, over nothing, or over anything", async () => {
    answer(json({}, 200, { etag: '"t2"' }));
    const conditions = async (known: string | null) => {
      const tag = await api.saveLayout("a", "{}", known);
      return [tag, last().init.method, last().init.body, last().headers.get("if-match"), last().headers.get("if-none-match")];
    };
    expect(await conditions('"t1"')).toEqual(['"t2"', "PUT", "{}", '"t1"', null]);
    expect(await conditions(null)).toEqual(['"t2"', "PUT", "{}", null, "*"]);
    expect(await conditions("any")).toEqual(['"t2"', "PUT", "{}", null, null]);
  });
  it("of somebody else are a 412 that can be told from other failures", async () => {
    answer(json({ error: "changed meanwhile", code: "conflict" }, 412));
    expect((await failure(api.saveLayout("a", "{}", '"t1"'))).status).toBe(412);
  });
});

describe("channels", () => {
  const channel = (id: number) => ({ id, name: `t.c${id}` }) as Channel;
  const page = (version: string, total: number, ...ids: number[]) => json({ version, total, channels: ids.map(channel) });

  it("come page by page", async () => {
    answer(page("1", 5, 1, 2), page("1", 5, 3, 4), page("1", 5, 5));
    const { version, channels } = await api.allChannels();
    expect([version, channels.map((c) => c.id)]).toEqual(["1", [1, 2, 3, 4, 5]]);
    expect(asked.map(({ path }) => new URL(path, "http://page/").searchParams.get("offset"))).toEqual(["0", "2", "4"]);
  });
  it("end where the server has no more, whatever it counted", async () => {
    answer(page("1", 9, 1, 2), page("1", 9));
    expect((await api.allChannels()).channels).toHaveLength(2);
    answer(page("1", 0));
    expect(await api.allChannels()).toEqual({ version: "1", channels: [] });
  });
  it("that moved from page to page are there once, and the catalog is asked for again", async () => {
    // A channel was added before those of the first page: the second begins with one that is known.
    answer(page("1", 4, 1, 2), page("2", 5, 2, 3), page("2", 5, 4));
    const { version, channels } = await api.allChannels();
    expect(channels.map((c) => c.id)).toEqual([1, 2, 3, 4]);
    // The version of the first page: the next check finds another and loads what was missed.
    expect(version).toBe("1");
  });
  it("have a version that costs one channel to ask for", async () => {
    answer(page("7", 5, 1));
    expect(await api.catalogVersion()).toBe("7");
    expect(parts()).toEqual(["/api/channels", { limit: "1" }]);
  });
});

describe("steps of alarms", () => {
  it("are none where there never was an alarm, and an error where they cannot be read", async () => {
    answer(json({ error: "no table", code: "sql", sqlstate: "42P01" }, 400));
    expect(await api.alarmSteps(5n)).toEqual([]);
    answer(json({ error: "too busy", code: "unavailable" }, 503));
    expect((await failure(api.alarmSteps(5n))).status).toBe(503);
  });
  it("are the newest up to an instant, in the order of time", async () => {
    answer(json({ columns: [], rows: [], truncated: false, elapsed_ms: 0 }));
    await api.alarmSteps(9_007_199_254_740_993n);
    const { sql, limit } = JSON.parse(last().init.body as string) as { sql: string; limit: number };
    expect(limit).toBe(api.STEPS_MAX);
    expect(sql).toMatch(/"time_ns" <= 9007199254740993 order by "time" desc limit 20000$/);
  });
});
