import { describe, expect, it } from "vitest";
import { settle } from "../test/settle";
import { poll } from "./poll";

/** A clock that stands until it is told, and questions that are answered on request. */
function bench(everyMs = 1000) {
  let ms = 0;
  let timers: { at: number; run: () => void }[] = [];
  const asked: { at: number; answer: () => void; signal: AbortSignal }[] = [];
  const clock = {
    now: () => ms,
    after(wait: number, run: () => void) {
      const timer = { at: ms + wait, run };
      timers.push(timer);
      return () => void (timers = timers.filter((t) => t !== timer));
    },
  };
  const stop = poll(everyMs, (signal) => new Promise<void>((answer) => asked.push({ at: ms, answer, signal })), clock);
  return {
    asked, stop, timers: () => timers.length,
    async run(to: number) {
      for (;;) {
        await settle();
        const next = timers.filter((t) => t.at <= to).sort((a, b) => a.at - b.at)[0];
        if (!next) break;
        ms = next.at;
        timers = timers.filter((t) => t !== next);
        next.run();
      }
      ms = to;
    },
  };
}

describe("poll", () => {
  it("asks at once, then once a second from question to question", async () => {
    const b = bench();
    await b.run(200);
    b.asked[0]!.answer();
    await b.run(999);
    expect(b.asked.map((a) => a.at)).toEqual([0]);
    await b.run(1000);
    expect(b.asked.map((a) => a.at)).toEqual([0, 1000]);
  });
  it("never has two questions open: a slow answer delays the next, and leaves the server a pause", async () => {
    const b = bench();
    await b.run(7300);
    expect(b.asked.length).toBe(1);
    b.asked[0]!.answer();
    await b.run(9299);
    expect(b.asked.length).toBe(1);
    await b.run(9300);
    expect(b.asked.map((a) => a.at)).toEqual([0, 9300]);
    await b.run(10_200);
    b.asked[1]!.answer();
    await b.run(11_099);
    expect(b.asked.length).toBe(2);
    await b.run(11_100);
    expect(b.asked.length).toBe(3);
  });
  it("waits a little even where its turns are shorter than that", async () => {
    const b = bench(10);
    b.asked[0]!.answer();
    await b.run(99);
    expect(b.asked.length).toBe(1);
    await b.run(100);
    expect(b.asked.length).toBe(2);
  });
  it("ends: the open question is aborted, none follows", async () => {
    const b = bench();
    b.stop();
    expect(b.asked[0]!.signal.aborted).toBe(true);
    b.asked[0]!.answer();
    await b.run(10_000);
    expect([b.asked.length, b.timers()]).toEqual([1, 0]);
    const waiting = bench();
    waiting.asked[0]!.answer();
    await waiting.run(500);
    waiting.stop();
    await waiting.run(10_000);
    expect([waiting.asked.length, waiting.timers()]).toEqual([1, 0]);
  });
});
