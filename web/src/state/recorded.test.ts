// What a server really said (recorded from `strongback serve` while 11 batches of 5 frames were written, row 33
// with a spike of 9.5), through the same modules as on the page.
import { describe, expect, it } from "vitest";
import { readFileSync } from "node:fs";
import { Feed } from "./feed";
import { Liveness } from "./liveness";
import type { ServerMessage } from "../connection/message";
import { Digits } from "../text/number";
import { type Socket, Stream } from "../connection/stream";

const messages = JSON.parse(readFileSync(new URL("../recorded/live.json", import.meta.url), "utf8")) as ServerMessage[];

/** Plays the recording through a connection; answers what a panel and the liveness of the screen made of it. */
function play(skip: (message: ServerMessage, i: number) => boolean = () => false) {
  const socket = { onmessage: null, onclose: null, send: () => {}, close: () => {} } as unknown as Socket;
  const liveness = new Liveness(0);
  let feed: Feed | null = null;
  let missed = 0;
  let ms = 0;
  const begin = BigInt((messages[0] as { time: string }).time);
  const events: string[] = [];
  const stream = new Stream({
    open: () => socket, now: () => ms, after: () => () => {}, random: () => 0, closed: () => {},
    message(m) {
      if (m.type === "hello") {
        liveness.hello(BigInt(m.time), ms);
        feed = new Feed(begin, 60, false, ["tank.*"]);
      } else if (m.type === "heartbeat") liveness.heartbeat(BigInt(m.time), ms);
      else if (m.type === "subscribed") feed!.subscribed(m.channels, m.unmatched);
      else if (m.type === "history") feed!.history(m);
      else if (m.type === "update") missed += feed!.update(m);
      else if (m.type === "event") events.push(m.text);
    },
  });
  stream.start();
  messages.forEach((m, i) => {
    if ("time" in m && m.type !== "event") ms = Math.max(ms, Number(BigInt(m.time) - begin) / 1e6);
    liveness.tick(ms);
    if (!skip(m, i)) socket.onmessage!.call(socket as WebSocket, { data: JSON.stringify(m) } as MessageEvent);
  });
  const named = (name: string) => feed!.channels.find((c) => c.channel === name)!;
  return { feed: feed!, liveness, missed, events, named };
}

describe("a recorded connection", () => {
  it("joins history and tail without a frame twice or missing", () => {
    const { feed, missed, named } = play();
    const series = feed.series.get(named("p").id)!;
    let frames = 0;
    for (let i = 0; i < series.length; i++) frames += series.count[series.slot(i)]!;
    expect([missed, frames]).toEqual([0, 55]);
  });
  it("keeps the spike of one frame, the unit, and integers beyond 2^53", () => {
    const { feed, named } = play();
    expect(feed.series.get(named("p").id)!.extent(-60, 60)!.max).toBe(9.5);
    expect(named("p").unit).toBe("bar");
    const update = messages.findLast((m) => m.type === "update")!;
    const cells = update.streams[0]!.channels.find(([id]) => id === named("cycles").id)!;
    expect(new Digits().text(cells[3], "i64")).toBe("9007199254741044");
  });
  it("has states by name", () => {
    const { feed, named } = play();
    expect(feed.tracks.get(named("mode").id)!.segments.map((s) => s.state)).toEqual(["FILL", "HOLD"]);
  });
  it("is live at its end, and was told of the event", () => {
    const { liveness, events } = play();
    expect(liveness.mode).toBe("live");
    expect(events).toEqual(["hold released"]);
  });
  it("notices when a recorded update is taken out, or played twice", () => {
    const third = messages.filter((m) => m.type === "update")[2];
    expect(play((m) => m === third).missed).toBe(1);
    const second = messages.indexOf(third!);
    messages.splice(second, 0, third!);
    const { feed, missed, named } = play();
    messages.splice(second, 1);
    const series = feed.series.get(named("p").id)!;
    let frames = 0;
    for (let i = 0; i < series.length; i++) frames += series.count[series.slot(i)]!;
    expect([missed, frames]).toEqual([0, 55]);
  });
});
