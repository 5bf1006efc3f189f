import { describe, expect, it } from "vitest";
import { ServerClock } from "./clock";
import { Liveness } from "./liveness";

const T = 1_795_192_867_000_000_000n;
const ns = (ms: number) => T + BigInt(Math.round(ms * 1e6));

/** A page that was greeted at 0 ms and ticks each 100 ms; `beats` says when heartbeats are sent and heard. */
function run(l: Liveness, fromMs: number, toMs: number, beats: [sentMs: number, heardMs: number][]): void {
  for (let ms = fromMs; ms <= toMs; ms += 50) {
    for (const [sent, heard] of beats) if (heard === ms) l.heartbeat(ns(sent), ms);
    if (ms % 100 === 0) l.tick(ms);
  }
}
const every250 = (from: number, to: number): [number, number][] =>
  Array.from({ length: Math.floor((to - from) / 250) + 1 }, (_, i) => [from + i * 250, from + i * 250]);

function greeted(): Liveness {
  const l = new Liveness(0);
  l.hello(ns(0), 0);
  run(l, 0, 1000, every250(0, 1000));
  return l;
}

describe("liveness", () => {
  it("is connecting until a heartbeat, a greeting alone proves nothing", () => {
    const l = new Liveness(0);
    expect(l.mode).toBe("connecting");
    l.hello(ns(0), 0);
    expect(l.tick(100)).toBe("connecting");
    l.heartbeat(ns(150), 150);
    expect(l.mode).toBe("live");
  });

  it("goes silent when a second of heartbeats is missed, and recovers by itself", () => {
    const l = greeted();
    expect(l.mode).toBe("live");
    run(l, 1050, 2000, []);
    expect(l.mode).toBe("live");
    run(l, 2050, 2100, []);
    expect(l.mode).toBe("silent");
    run(l, 2150, 5000, [[4900, 4900]]);
    expect(l.mode).toBe("live");
  });

  it("does not trust heartbeats that were queued on the way", () => {
    const l = greeted();
    run(l, 1050, 4000, []);
    // What the server said at 1.25 to 2.75 s arrives at 4 s in one go.
    for (const sent of [1250, 1500, 1750, 2000, 2250, 2500, 2750]) l.heartbeat(ns(sent), 4000);
    l.tick(4050);
    expect(l.mode).toBe("silent");
    l.heartbeat(ns(4100), 4100);
    expect(l.tick(4150)).toBe("live");
  });

  it("is stalled after the page's own loop stood still, until an on-time heartbeat after it", () => {
    const l = greeted();
    // Nothing runs from 1 s to 4 s; then queued heartbeats are read before the tick, and after it.
    l.heartbeat(ns(1250), 4000);
    l.heartbeat(ns(3900), 4000);
    l.tick(4000);
    expect(l.mode).toBe("stalled");
    l.heartbeat(ns(1500), 4001);
    expect(l.tick(4100)).toBe("stalled");
    l.heartbeat(ns(4110), 4110);
    expect(l.tick(4200)).toBe("live");
  });

  it("is offline when the connection closes, whatever was heard before", () => {
    const l = greeted();
    l.closed();
    expect(l.mode).toBe("offline");
    expect(l.tick(1100)).toBe("offline");
    l.hello(ns(2000), 2000);
    expect(l.tick(1200)).toBe("offline");
    l.heartbeat(ns(2010), 1210);
    expect(l.tick(1300)).toBe("live");
  });

  it("stays connecting while no connection was ever made", () => {
    const l = new Liveness(0);
    l.closed();
    expect(l.tick(100)).toBe("connecting");
  });
});

describe("server clock", () => {
  it("knows nothing before the first word", () => expect(new ServerClock().now(5)).toBeNull());

  it("runs on between heartbeats and takes the least delayed for true", () => {
    const c = new ServerClock();
    expect(c.observe(ns(0), 40)).toBe(0);
    expect(c.observe(ns(250), 255)).toBe(0);
    expect(c.observe(ns(500), 800)).toBeCloseTo(295, 3);
    expect(c.now(1005)).toBe(ns(1000));
  });

  it("follows a server clock that was set back, within a minute", () => {
    const c = new ServerClock();
    c.observe(ns(0), 0);
    let late = 0;
    for (let ms = 250; ms <= 75_000; ms += 250) late = c.observe(ns(ms - 3000), ms);
    expect(late).toBe(0);
    expect(c.now(75_000)).toBe(ns(72_000));
  });
});
