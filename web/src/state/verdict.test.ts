// What the page concludes from a source's counts; the account is written by the contract in docs/api.md.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { Gap, Source, SourceAccount } from "../connection/message";
import { reasons, some, verdict, type VerdictInput } from "./verdict";

const NOW = 1_790_000_000_000_000_000n;
const S = 1_000_000_000n;
const account = JSON.parse(readFileSync(new URL("../recorded/source.json", import.meta.url), "utf8")) as SourceAccount;

const card: Source = {
  name: "fti", kind: "inetx", address: "127.0.0.1:4440", streams: 2, received: "100", stored: "100", duplicate: "0", rejected: "0", lost: "0", filled: "0",
  late: "0", restarts: "0", rejected_by: {}, rate_hz: 50, expected_rate_hz: 50, points_per_s: 400, last_receive_time: String(NOW), status: "ok",
  kernel_drops: "0", unknown_streams: {},
};
const well: SourceAccount = {
  ...account, status: "ok", rejected: [], unknown_streams: {}, streams: account.streams.slice(0, 2).map((s) => ({ ...s, status: "ok", clock: null })),
};
const gap = (secondsAgo: bigint, open: number): Gap => ({
  id: "1", stream: 3, stream_name: "fti.bay{bay=1}", source: "fti", from_time: String(NOW - (secondsAgo + 1n) * S), to_time: String(NOW - secondsAgo * S),
  from_sequence: null, to_sequence: null, count: String(open), cause: "sequence", open: String(open), words: "",
});
const said = (input: Partial<VerdictInput>) =>
  reasons({ card, account: well, gaps: [], nowNs: NOW, ...input }).map((r) => `${r.severity}: ${r.words}`);

describe("verdict", () => {
  it("is well where nothing is wrong, and says how much is known of it", () => {
    expect(said({})).toEqual([]);
    expect(verdict([], well).words).toBe("well: 2 streams come as expected");
    const irregular = { ...well, streams: well.streams.map((s, i) => (i === 0 ? s : { ...s, expected: "none" as const })) };
    expect(verdict([], irregular).words).toBe("well: 1 of 2 streams come as expected, the others are irregular");
    expect(verdict([], { ...well, streams: irregular.streams.slice(1) }).words).toBe("comes; how often is not expected");
    expect(verdict([], null).words).toBe("well");
  });
  it.each<[string, Partial<VerdictInput>, string]>([
    ["silent", { card: { ...card, status: "silent", last_receive_time: String(NOW - 65n * S) }, account: { ...well, status: "silent" } }, "warning: silent for 1 min 05 s, since 14:12:15 UTC"],
    ["never", { card: { ...card, status: "silent", last_receive_time: null }, account: null }, "warning: silent: nothing ever came"],
    ["slow", { card: { ...card, status: "slow", rate_hz: 12 }, account: null }, "watch: slow: 12.0 Hz of 50.0 Hz come"],
    ["dropping", { card: { ...card, status: "dropping", kernel_drops: "5" }, account: null }, "critical: the kernel drops datagrams: the receive buffer is full"],
    ["disconnected", { card: { ...card, status: "disconnected" }, account: null }, "warning: the PLC does not answer; the events say why"],
    ["lost just now", { card: { ...card, lost: "7", filled: "2" }, gaps: [gap(10n, 5)] }, "warning: 5 frames missing since the server started, the last at 14:13:10 UTC"],
    ["lost long ago", { card: { ...card, lost: "1" }, gaps: [gap(4000n, 1)] }, "info: 1 frame missing since the server started, the last at 13:06:40 UTC"],
    ["all filled", { card: { ...card, lost: "7", filled: "7" }, gaps: [gap(10n, 0)] }, ""],
    ["kernel drops before", { card: { ...card, kernel_drops: "5" }, account: null }, "watch: 5 datagrams dropped by the kernel since the server started"],
    ["rejected", { card: { ...card, rejected: "3", rejected_by: { bad_time: "3" } } }, "info: rejected: bad time 3"],
    ["unknown", { account: { ...well, unknown_streams: { "0x0000dead": 1 } } }, "watch: 1 packet that no layout is configured for: stream 0x0000dead"],
    ["lost in the chassis", { card: { ...card, packets: { payload_errors: "0", chassis_lost: "3", timeouts: "0", bad_ptp: "0", never_set: "0", blocks: "0", block_errors: "0", unmapped_blocks: "0" } } }, "watch: 3 messages lost in the chassis, by its own word"],
    ["future", { card: { ...card, future: "2" } }, "watch: 2 frames with a time far ahead of their reception"],
  ])("says of a source that is %s why", (_, input, words) => expect(said(input)).toEqual(words === "" ? [] : [words]));
  it("says once that a source with one stream is silent", () => {
    const one = { ...well, status: "silent" as const, streams: [{ ...well.streams[0]!, status: "silent" as const }] };
    expect(said({ account: one, card: { ...card, status: "silent", last_receive_time: String(NOW - 5n * S) } })).toEqual(["warning: silent for 5.0 s, since 14:13:15 UTC"]);
  });
  it("names each trouble of a source with several, gravest first", () => {
    const list = said({ account, card: { ...card, status: "slow", rate_hz: 12, lost: "67", filled: "5", rejected: "43", rejected_by: { truncated: "2", unknown_stream: "41" } }, gaps: [gap(3n, 62)] });
    expect(list).toEqual([
      "warning: fti.status is silent for 12 s, since 14:13:07 UTC",
      "warning: 62 frames missing since the server started, the last at 14:13:17 UTC",
      "watch: slow: 12.0 Hz of 50.0 Hz come",
      "watch: fti.bay{bay=2} is slow for 42 s, since 14:12:38 UTC",
      "watch: nothing came of fti.spare since the server started",
      "watch: the clock of fti.vibration was never set: its times are not believed",
      "watch: the clock of fti.bay{bay=2} jumped and is learnt anew",
      "watch: rejected: truncated 2",
      "watch: 41 packets that no layout is configured for: stream 0x0000dead",
    ]);
  });
  it("tells of ten thousand silent streams in one line", () => {
    const streams = Array.from({ length: 10_000 }, (_, i) => ({ ...account.streams[0]!, name: `s${i}`, status: "silent" as const, clock: null }));
    expect(said({ account: { ...well, status: "silent", streams }, card: { ...card, status: "silent", last_receive_time: String(NOW - 5n * S) } })).toEqual([
      "warning: silent for 5.0 s, since 14:13:15 UTC", "warning: 10000 of 10000 streams are silent: s0, s1, s2 and 9997 more",
    ]);
    expect(some(["a"])).toBe("a");
  });
  it("is the gravest word, and what only was does not spoil it", () => {
    const list = reasons({ card: { ...card, lost: "1" }, account: well, gaps: [gap(4000n, 1)], nowNs: NOW });
    expect(verdict(list, well)).toEqual({ severity: "info", words: "well: 2 streams come as expected; before: 1 frame missing since the server started, the last at 13:06:40 UTC" });
    expect(verdict([{ severity: "watch", words: "slow" }, ...list], well).words).toBe("slow");
  });
});
