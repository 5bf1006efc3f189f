// A stand-in for the server while working on the page: `node dev/pad.mjs [port] [channels]` speaks the live
// protocol and the REST calls with generated values, and misbehaves on request:
//   curl -X POST localhost:8080/dev/freeze?s=5    no word for 5 seconds, as after SIGSTOP
//   curl -X POST localhost:8080/dev/quiet?table=fti.bay&s=10   one table stops
//   curl -X POST localhost:8080/dev/store?state=disk%20full    any store state; `recording` mends it
//   curl -X POST localhost:8080/dev/older?on=1    no account of a source stream by stream, as from an older server
//   curl -X POST localhost:8080/dev/drop?n=5      ingest drops; /dev/conflate?n=3, /dev/lose, /dev/cut
// Its values are invented; nothing of it is built into the page.
import { readFileSync, existsSync } from "node:fs";
import { createServer } from "node:http";
import { join, normalize } from "node:path";
import { WebSocketServer } from "ws";

const port = Number(process.argv[2] ?? 8080);
const extra = Number(process.argv[3] ?? 0);
const bootMs = Date.now();
const nowNs = () => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e3)) * 1000n;
const bootNs = nowNs();
const t0Ns = bootNs + 180n * 1_000_000_000n;

/** A number that looks random but is a function of time and seed: history and live agree. */
function noise(seed, t) {
  const x = Math.sin(seed * 127.1 + t * 311.7) * 43758.5453;
  return x - Math.floor(x) + ((x * 7.31) % 1) / 2 - 0.75;
}

const layouts = [
  ["avionics.sensor_values", { acu: "1" }, 25, [
    ["p_lox", "bar", (t) => 3.5 + 0.7 / (1 + Math.exp(-(t - 30) / 9)) + 0.03 * noise(1, t) + (Math.abs(t % 47 - 20) < 0.02 ? 0.5 : 0)],
    ["p_lox_ullage_sp", "bar", () => 4.1], ["p_fuel", "bar", (t) => 3.02 + 0.01 * noise(2, t)],
    ["bus_28v", "V", (t) => 28.04 + 0.06 * noise(3, t)], ["acc_x", "m/s²", (t) => 9.807 + 0.02 * noise(4, t)],
  ]],
  ["fti.bay", {}, 50, [
    ["t_turbopump", "°C", (t) => -20 - t / 8 + 1.5 * Math.sin(t / 3) + 2 * noise(5, t)],
    ["t_gg_wall", "°C", (t) => 20 - t / 90 + 1.4 * noise(6, t)], ["t_injector", "°C", (t) => 34 + t / 40 + 1.3 * noise(7, t)],
    ["vib_z_rms", "g", (t) => 0.31 + 0.05 * noise(8, t)],
  ]],
  ["plc.valves", {}, 10, [
    ["lox_fill_valve", "", (t) => (t % 90 < 52 ? "OPEN" : "CLOSED"), "string"],
    ["lox_vent_valve", "", (t) => (t % 37 < 21 ? "CLOSED" : "OPEN"), "string"],
    ["gse_umbilical", "", () => "CONNECTED", "string"],
    ["gnc_mode", "", (t) => ["STANDBY", "PRE_TERMINAL", "TERMINAL_COUNT"][Math.floor(t / 40) % 3], "string"],
    ["fts_armed", "", (t) => t % 120 > 80, "bool"],
  ]],
  ["plc.fast", {}, 1000, [["p_purge_01", "bar", (t) => 6.002 + 0.004 * noise(9, t)], ["p_purge_02", "bar", (t) => 5.9 + 0.004 * noise(10, t)]]],
  ["range.weather", {}, 1, [["wind_speed", "m/s", (t) => 6.4 + noise(11, t)], ["wind_gust", "m/s", (t) => 9.1 + noise(12, t)]]],
];
for (let i = 0; i < Math.ceil(extra / 100); i++) {
  layouts.push([`bulk.group_${i}`, { rack: String(i % 7) }, 1, Array.from({ length: 100 }, (_, k) => [`v_${k}`, "mA", (t) => 4 + k / 10 + 0.1 * noise(k + i, t)])]);
}

const streams = [];
const channels = [];
for (const [table, tags, hz, fields] of layouts) {
  const stream = { id: streams.length, table, hz, channels: [], next: 0, quietUntil: 0, gaps: [] };
  streams.push(stream);
  const tagText = Object.entries(tags).map(([k, v]) => `${k}=${v}`).join(",");
  for (const [name, unit, f, type = "f64"] of fields) {
    const c = {
      id: channels.length, name: `${table}.${name}${tagText ? `{${tagText}}` : ""}`, table, channel: name, tags,
      stream: stream.id, type, unit, description: "", source: table.split(".")[0],
      expected_period_ns: String(Math.round(1e9 / hz)), interpolation: type === "f64" ? "linear" : "hold",
    };
    channels.push(c);
    stream.channels.push({ c, f });
  }
}

const rowAt = (s, ns) => Math.floor((Number(ns - bootNs) / 1e9) * s.hz);
const timeOf = (s, row) => bootNs + BigInt(Math.round((row / s.hz) * 1e9));
const lost = (s, row) => s.gaps.some((g) => row >= g.from && row < g.to);

/** count, first, last, min, max, mean of rows [from, to). */
function cells(s, ch, from, to) {
  let count = 0, first = null, last = null, min = Infinity, max = -Infinity, sum = 0;
  for (let r = from; r < to; r++) {
    if (lost(s, r)) continue;
    const v = ch.f(Number(timeOf(s, r) - bootNs) / 1e9);
    if (count++ === 0) first = v;
    last = v;
    if (typeof v === "string") continue;
    min = Math.min(min, Number(v)); max = Math.max(max, Number(v)); sum += Number(v);
  }
  const text = ch.c.type === "string";
  const bool = ch.c.type === "bool";
  return [count, first, last, text ? null : bool ? min > 0 : min, text ? null : bool ? max > 0 : max, text ? null : sum / count];
}

function series(ch, from, to, points) {
  const s = streams[ch.c.stream];
  const a = Math.max(rowAt(s, from), rowAt(s, bootNs - 60_000_000_000n)), b = Math.min(rowAt(s, to), s.next);
  const step = Math.max(1, Math.ceil((b - a) / points));
  const buckets = [];
  for (let r = a; r < b; r += step) {
    const [count, ...rest] = cells(s, ch, r, Math.min(b, r + step));
    if (count > 0) buckets.push([String(timeOf(s, r)), count, ...rest]);
  }
  return { buckets, gaps: s.gaps.map((g) => [String(timeOf(s, g.from)), String(timeOf(s, g.to))]) };
}

// The account of a source: the recorded one as of now for `fti`, hundreds of streams for `range`.
const account = JSON.parse(readFileSync(new URL("../src/recorded/source.json", import.meta.url), "utf8"));
const accountNs = 1_790_000_000_000_000_000n;
let older = false;
function accountOf(name) {
  const late = nowNs() - accountNs;
  const moved = JSON.parse(JSON.stringify(account), (key, v) => (/_time$|since$/.test(key) && v !== null ? String(BigInt(v) + (/since/.test(key) ? bootNs - accountNs : late)) : v));
  const rise = Math.round(Number(nowNs() - bootNs) / 4e7);
  for (const s of moved.streams) {
    if (s.status !== "ok" && s.status !== "slow") continue;
    s.received = String(Number(s.received) + rise);
    s.rate_hz = +(s.rate_hz + noise(s.stream, rise) / 20).toFixed(2);
  }
  if (name === "fti") return moved;
  const many = Array.from({ length: 412 }, (_, i) => ({ ...moved.streams[i % 97 === 5 ? 3 : i % 61 === 7 ? 1 : 0], stream: 100 + i, name: `${name}.node{unit=${i}}`, lost: i % 50 === 3 ? "4" : "0", filled: "0" }));
  return { ...moved, name, status: "ok", streams: many, rejected: [], unknown_streams: {} };
}

const globs = (p) => new RegExp(`^${p.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*/g, ".*").replace(/\?/g, ".")}$`);
const matching = (patterns) => patterns.flatMap((p) => channels.filter((c) => globs(p).test(c.name) || globs(p).test(c.name.replace(/\{.*/, ""))));

const events = [{ time: String(bootNs - 40_000_000_000n), text: "Internal power", level: "info", source: "page" }, { time: String(bootNs - 15_000_000_000n), text: "Hold released", level: "info", source: "page" }];
const gapRows = [];
let frozenUntil = 0, store = "recording", dropped = 0, conflated = 0;
const clients = new Set();
const broadcast = (m) => { for (const c of clients) c.socket.send(JSON.stringify(m)); };

const dist = new URL("../dist/", import.meta.url).pathname;
const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const http = createServer(async (request, response) => {
  const url = new URL(request.url, "http://x");
  const answer = (body, status = 200) => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  let body = "";
  for await (const part of request) body += part;
  const q = (name, otherwise = "") => url.searchParams.get(name) ?? otherwise;
  const instant = (text) => (text === "now" || text === "" ? nowNs() : BigInt(text));
  switch (url.pathname) {
    case "/api/health": return answer({ name: "strongback", status: "pass", version: "dev" });
    case "/api/channels": { const o = Number(q("offset", "0")); return answer({ version: "1", total: channels.length, channels: channels.slice(o, o + Number(q("limit", "1000"))) }); }
    case "/api/view": return answer({ title: "launch view", run: { name: "WDR-07", t0: String(t0Ns) }, panels: [
      { kind: "plot", title: "LOX tank", channels: ["avionics.sensor_values.p_lox*"], span_s: 60 }, { kind: "plot", title: "Engine bay", channels: ["fti.bay.t_*"], span_s: 60 },
      { kind: "states", title: "Valves and states", channels: ["plc.valves.*"], span_s: 60 }, { kind: "now", title: "Now", channels: ["avionics.sensor_values.*", "range.weather.wind_gust"], span_s: 60 }] });
    case "/api/events":
      if (request.method === "POST") { const e = { time: String(nowNs()), level: "info", source: "page", ...JSON.parse(body) }; events.unshift(e); broadcast({ type: "event", ...e }); return answer(e); }
      return answer({ events });
    case "/api/gaps": return answer({ gaps: gapRows });
    case "/api/alarms": return answer({ alarms: [] });
    case "/api/limits": return answer({ limits: [] });
    case "/api/sources": return answer({ sources: ["avionics", "fti", "plc", "range"].map((name) => ({ name, kind: "ilp", address: "127.0.0.1:9009", streams: 1, received: "68500", stored: "68499", duplicate: "0", rejected: "1", lost: "25", filled: "0", late: "0", restarts: "0", rejected_by: { truncated: "1" }, rate_hz: 25.02, expected_rate_hz: 25, points_per_s: 6000, last_receive_time: String(nowNs()), status: "ok", kernel_drops: "0", unknown_streams: {} })) });
    case "/api/history": return answer({ series: matching(q("channels").split(/,(?![^{]*})/)).map((c) => ({ channel: c, ...series(streams[c.stream].channels.find((x) => x.c === c), instant(q("from")), instant(q("to")), Number(q("points", "1000"))) })) });
    case "/api/state": { const at = instant(q("at")); return answer({ at: String(at), state: matching([q("channels") || "*"]).map((c) => { const s = streams[c.stream]; const r = Math.min(rowAt(s, at), s.next - 1); const time = timeOf(s, r); return { channel: c, value: s.channels.find((x) => x.c === c).f(Number(time - bootNs) / 1e9), time: String(time), receive_time: String(time), age_ns: String(at - time), status: "fresh" }; }) }); }
    case "/api/sql": { const { sql } = JSON.parse(body); if (!/^\s*select/i.test(sql)) return answer({ error: "only SELECT here", sqlstate: "42601" }, 400); return answer({ columns: [{ name: "name", type: "text" }, { name: "unit", type: "text" }, { name: "stream", type: "int4" }], rows: channels.slice(0, 500).map((c) => [c.name, c.unit, c.stream]), truncated: channels.length > 500, elapsed_ms: 1.2 }); }
    case "/api/doctor": if (older) break; return answer({ findings: [
      { cause: "lost", wrong: true, source: "fti", stream: "fti.bay{bay=1}", from: String(bootNs - 9_000_000_000n), to: String(bootNs - 7_000_000_000n), count: "62", text: "62 frames were lost before the receiver: their sequence numbers never came.", advice: "Look at the network between the source and this machine." },
      { cause: "duplicate", wrong: false, source: "fti", stream: "fti.bay{bay=1}", from: null, to: null, count: "12", text: "12 frames came twice and are stored once.", advice: "" }] });
    case "/dev/older": older = q("on") !== "0"; return answer({});
    case "/dev/freeze": frozenUntil = Date.now() + Number(q("s", "5")) * 1000; return answer({});
    case "/dev/quiet": for (const s of streams) if (s.table === q("table")) s.quietUntil = Date.now() + Number(q("s", "10")) * 1000; return answer({});
    case "/dev/store": store = q("state", "recording"); return answer({});
    case "/dev/drop": dropped += Number(q("n", "1")); return answer({});
    case "/dev/conflate": conflated += Number(q("n", "1")); return answer({});
    case "/dev/cut": for (const c of clients) c.socket.terminate(); return answer({});
    case "/dev/lose": { const s = streams[1]; const g = { from: s.next, to: s.next + 25 }; s.gaps.push(g); const row = { id: gapRows.length + 1, stream: s.id, stream_name: "fti.bay", source: "fti", from_time: String(timeOf(s, g.from)), to_time: String(timeOf(s, g.to)), from_sequence: String(g.from), to_sequence: String(g.to), count: 25, cause: "sequence", open: 25, words: "25 packets, 500 ms · lost before the receiver (sequence)" }; gapRows.unshift(row); broadcast({ type: "gap", ...row }); return answer(row); }
  }
  if (url.pathname.startsWith("/api/sources/") && !older) return answer(accountOf(decodeURIComponent(url.pathname.slice(13))));
  if (url.pathname.startsWith("/api")) return answer({ error: "no such path", code: "not_found" }, 404);
  const path = join(dist, normalize(url.pathname === "/" ? "/index.html" : url.pathname));
  if (!path.startsWith(dist) || !existsSync(path)) return answer({ error: "no such path", code: "not_found" }, 404);
  response.writeHead(200, { "content-type": types[path.slice(path.lastIndexOf("."))] ?? "application/octet-stream" }).end(readFileSync(path));
});

new WebSocketServer({ server: http, path: "/api/live" }).on("connection", (socket) => {
  const client = { socket, subscriptions: new Map() };
  clients.add(client);
  socket.on("close", () => clients.delete(client));
  const send = (m) => socket.send(JSON.stringify(m));
  send({ type: "hello", version: "dev", origin: "0", epoch: 7, time: String(nowNs()), heartbeat_ms: 250 });
  socket.on("message", (text) => {
    const m = JSON.parse(String(text));
    if (m.type === "unsubscribe") return client.subscriptions.delete(m.id);
    const found = [...new Set(matching(m.channels))];
    send({ type: "subscribed", id: m.id, channels: found, unmatched: m.channels.filter((p) => matching([p]).length === 0) });
    const rows = Object.fromEntries([...new Set(found.map((c) => c.stream))].map((s) => [s, streams[s].next]));
    if (m.history_s) {
      const to = nowNs();
      send({ type: "history", id: m.id, rows: Object.fromEntries(Object.entries(rows).map(([k, v]) => [k, String(v)])), series: found.map((c) => ({ channel: c.id, ...series(streams[c.stream].channels.find((x) => x.c === c), to - BigInt(m.history_s) * 1_000_000_000n, to, m.history_points ?? 600) })) });
    }
    client.subscriptions.set(m.id, { channels: found, rows });
  });
});

setInterval(() => {
  if (Date.now() < frozenUntil) return;
  const now = nowNs();
  for (const s of streams) if (Date.now() >= s.quietUntil) s.next = rowAt(s, now);
  for (const client of clients) {
    for (const [id, sub] of client.subscriptions) {
      const windows = [];
      for (const key of Object.keys(sub.rows)) {
        const s = streams[key], from = sub.rows[key], to = s.next;
        if (to <= from) continue;
        sub.rows[key] = to;
        const list = s.channels.filter((x) => sub.channels.includes(x.c)).map((x) => [x.c.id, ...cells(s, x, from, to)]).filter((x) => x[1] > 0);
        if (list.length === 0) continue;
        windows.push({ stream: s.id, from_row: String(from), to_row: String(to), committed: String(to), recorded: store === "recording", time: [String(timeOf(s, from)), String(timeOf(s, to - 1))], receive_time: String(now), gap: s.gaps.some((g) => g.to > from && g.from <= to), channels: list });
      }
      if (windows.length) client.socket.send(JSON.stringify({ type: "update", id, epoch: 7, time: String(now), streams: windows, conflated, dropped: 0 }));
    }
  }
  conflated = 0;
}, 200);
setInterval(() => {
  if (Date.now() < frozenUntil) return;
  const silent = (t) => streams.some((s) => s.table.startsWith(t) && Date.now() < s.quietUntil);
  broadcast({ type: "heartbeat", time: String(nowNs()), epoch: 7, store, commit_ms: 8 + Math.random() * 8, points_per_s: 68500 + Math.random() * 300, ingest_dropped: dropped, last_data: String(nowNs()), sources: [["avionics", 25], ["fti", 50], ["plc", 1010], ["range", 1]].map(([name, hz]) => ({ name, status: silent(name) ? "silent" : "ok", rate_hz: silent(name) ? 0 : hz + Math.random() / 10, lost: name === "fti" ? gapRows.length * 25 : 0 })) });
}, 250);
http.listen(port, "127.0.0.1", () => console.log(`pad on http://127.0.0.1:${port} since ${new Date(bootMs).toISOString()}`));
