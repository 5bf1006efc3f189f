import { describe, expect, it } from "vitest";
import { Banners, HOLD_MS, type BannerInput } from "./banner";

const NOW = 1_795_192_867_482_000_000n;
const calm: BannerInput = { mode: "live", nowNs: NOW, lastDataNs: NOW - 2_000_000_000n, store: "recording" };
const ids = (b: Banners, input: Partial<BannerInput>, ms = 0) => b.list({ ...calm, ...input }, ms).map((x) => x.id);

describe("banners", () => {
  it("has none on a live, recording screen", () => expect(ids(new Banners(), {})).toEqual([]));
  it("tells why the screen is not live and when the last data came", () => {
    for (const mode of ["silent", "stalled", "offline"] as const) {
      const [banner] = new Banners().list({ ...calm, mode }, 0);
      expect(banner).toMatchObject({ id: mode, severity: "critical" });
      expect(banner!.text).toContain("NOT LIVE");
      expect(banner!.text).toContain("2026-11-20 16:41:05.482 UTC, 2.0 s ago");
    }
    expect(new Banners().list({ ...calm, mode: "offline", lastDataNs: null, nowNs: null }, 0)[0]!.text).toContain("no data");
  });
  it("says that a token is wanted, not that it connects", () => {
    const words = (needsToken: boolean) => new Banners().list({ ...calm, mode: "connecting", needsToken }, 0).map((b) => b.text);
    expect([words(false), words(true)]).toEqual([["Connecting to the server"], ["Nothing is shown before the server has its token"]]);
  });
  it("tells when frames are not recorded, in the store's words", () => {
    expect(new Banners().list({ ...calm, store: "disk full" }, 0)[0]!.text).toContain("NOT RECORDED · disk full");
    expect(ids(new Banners(), { store: "not recording" })).toEqual(["store"]);
    expect(ids(new Banners(), { store: null })).toEqual([]);
  });
  it("tells of rising ingest drops, not of old ones, and for ten seconds", () => {
    const b = new Banners();
    b.ingestDropped(500n, 0);
    expect(ids(b, {}, 0)).toEqual([]);
    b.ingestDropped(512n, 1000);
    b.ingestDropped(515n, 1250);
    expect(b.list(calm, 1300)[0]!.text).toContain("15 packets");
    expect(ids(b, {}, 1250 + HOLD_MS)).toEqual(["dropping"]);
    expect(ids(b, {}, 1251 + HOLD_MS)).toEqual([]);
    b.ingestDropped(2n, 60_000);
    expect(ids(b, {}, 60_000)).toEqual([]);
  });
  it("tells of conflation and lost windows of this page", () => {
    const b = new Banners();
    b.viewConflated(0, 0, 0);
    expect(ids(b, {}, 0)).toEqual([]);
    b.viewConflated(3, 1, 100);
    expect(b.list(calm, 200)[0]!.text).toMatch(/3 updates merged, min and max kept, 1 windows lost/);
    expect(ids(b, {}, 101 + HOLD_MS)).toEqual([]);
  });
  it("tells of lost events, gaps and alarms by their name, not as windows", () => {
    const b = new Banners();
    b.noticesLost(2, 100);
    b.noticesLost(3, 200);
    expect(b.list(calm, 300)[0]!.text).toMatch(/too late: 5 events, gaps or alarms lost, and asked for again ·/);
    b.viewConflated(1, 0, 300 + HOLD_MS);
    expect(b.list(calm, 300 + HOLD_MS)[0]!.text).not.toContain("alarms");
  });
  it("puts what makes the whole screen untrue first", () => {
    const b = new Banners();
    b.viewConflated(1, 0, 0);
    expect(ids(b, { mode: "silent", store: "disk full" }, 0)).toEqual(["silent", "store", "conflated"]);
  });
});
