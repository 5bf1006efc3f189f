import { beforeEach, describe, expect, it } from "vitest";
import type { ServerMessage } from "./message";
import { DEAF_LIMIT_MS, FIRST_RETRY_MS, LONGEST_RETRY_MS, type Socket, Stream } from "./stream";

class FakeSocket {
  onmessage: ((event: MessageEvent) => void) | null = null;
  onclose: ((event: CloseEvent) => void) | null = null;
  sent: { type: string; id?: number }[] = [];
  closed = false;
  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }
  close(): void {
    this.closed = true;
    this.onclose?.({} as CloseEvent);
  }
  say(message: object | string): void {
    this.onmessage?.({ data: typeof message === "string" ? message : JSON.stringify(message) } as MessageEvent);
  }
}

const HELLO = { type: "hello", version: "1", origin: "0", epoch: 7, time: "1", heartbeat_ms: 250 };

let sockets: FakeSocket[];
let waits: { ms: number; run: () => void; off: boolean }[];
let heard: ServerMessage[];
let closings: number;
let nowMs: number;
let stream: Stream;
let refused: boolean;

beforeEach(() => {
  sockets = [];
  refused = false;
  waits = [];
  heard = [];
  closings = 0;
  nowMs = 0;
  stream = new Stream({
    open: () => {
      if (refused) throw new DOMException("no such address", "SyntaxError");
      const socket = new FakeSocket();
      sockets.push(socket);
      return socket as unknown as Socket;
    },
    now: () => nowMs,
    after: (ms, run) => {
      const wait = { ms, run, off: false };
      waits.push(wait);
      return () => (wait.off = true);
    },
    random: () => 0.5,
    message: (m) => heard.push(m),
    closed: () => closings++,
  });
});

describe("live stream", () => {
  it("tries again where opening a connection throws", () => {
    refused = true;
    stream.start();
    expect([sockets.length, closings, waits.map((wait) => wait.ms)]).toEqual([0, 1, [FIRST_RETRY_MS]]);
    waits[0]!.run();
    refused = false;
    waits[1]!.run();
    sockets[0]!.say(HELLO);
    expect([closings, heard.length]).toEqual([2, 1]);
  });
  it("subscribes once greeted, and again after each reconnection", () => {
    const id = stream.subscribe({ channels: ["a.*"], max_rate_hz: 5, history_s: 60 });
    stream.start();
    expect(sockets[0]!.sent).toEqual([]);
    sockets[0]!.say(HELLO);
    expect(sockets[0]!.sent).toEqual([{ type: "subscribe", id, channels: ["a.*"], max_rate_hz: 5, history_s: 60 }]);
    sockets[0]!.close();
    waits[0]!.run();
    sockets[1]!.say(HELLO);
    expect(sockets[1]!.sent.map((m) => m.id)).toEqual([id]);
    stream.unsubscribe(id);
    expect(sockets[1]!.sent.at(-1)).toEqual({ type: "unsubscribe", id });
    sockets[1]!.close();
    waits[1]!.run();
    sockets[2]!.say(HELLO);
    expect(sockets[2]!.sent).toEqual([]);
  });

  it("backs off up to a bound, and starts over after a greeting", () => {
    stream.start();
    const seen: number[] = [];
    for (let i = 0; i < 7; i++) {
      sockets.at(-1)!.close();
      seen.push(waits.at(-1)!.ms);
      waits.at(-1)!.run();
    }
    expect(seen).toEqual([250, 500, 1000, 2000, 4000, LONGEST_RETRY_MS, LONGEST_RETRY_MS]);
    expect(closings).toBe(7);
    sockets.at(-1)!.say(HELLO);
    sockets.at(-1)!.close();
    expect(waits.at(-1)!.ms).toBe(FIRST_RETRY_MS);
  });

  it("gives up a connection on which nothing is heard, greeted or not", () => {
    stream.start();
    nowMs = DEAF_LIMIT_MS;
    stream.tick();
    expect(sockets[0]!.closed).toBe(false);
    nowMs = DEAF_LIMIT_MS + 1;
    stream.tick();
    expect(sockets[0]!.closed).toBe(true);
    expect(closings).toBe(1);
    expect(waits).toHaveLength(1);
  });

  it("ignores what an abandoned connection still says", () => {
    stream.start();
    nowMs = DEAF_LIMIT_MS + 1;
    stream.tick();
    sockets[0]!.say(HELLO);
    expect(heard).toEqual([]);
  });

  it("closes a connection that does not speak the protocol", () => {
    stream.start();
    sockets[0]!.say("<html>");
    expect(sockets[0]!.closed).toBe(true);
    expect(closings).toBe(1);
  });

  it("hears what comes in binary, passes over kinds that it does not know, and closes on damage", () => {
    stream.start();
    sockets[0]!.say(HELLO);
    const bytes = (...all: number[]) => ({ data: new Uint8Array(all).buffer }) as MessageEvent;
    const empty = [1, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
    sockets[0]!.onmessage!(bytes(...empty));
    sockets[0]!.onmessage!(bytes(99));
    expect(heard.slice(1)).toEqual([{ type: "update", id: 2, epoch: 7, time: "5", streams: [], conflated: 3, dropped: 4 }]);
    sockets[0]!.onmessage!(bytes(...empty.slice(0, 30)));
    expect(sockets[0]!.closed).toBe(true);
  });

  it("hurries instead of waiting, but never opens two", () => {
    stream.start();
    stream.hurry();
    expect(sockets).toHaveLength(1);
    sockets[0]!.close();
    stream.hurry();
    expect(sockets).toHaveLength(2);
    expect(waits[0]!.off).toBe(true);
  });

  it("ends for good", () => {
    stream.start();
    stream.end();
    expect(sockets[0]!.closed).toBe(true);
    expect(waits).toHaveLength(0);
    stream.hurry();
    expect(sockets).toHaveLength(1);
  });
});
