import { expect, test } from "vitest";
import { barAt } from "./bars";
import type { Channel } from "../connection/message";
import { Track } from "../state/track";

test("the bar under the pointer is known, however narrow", () => {
  const channels = [{ id: 1, name: "tank.mode" }, { id: 2, name: "tank.valve" }] as unknown as Channel[];
  const track = new Track(60);
  track.push(0, 1, "RUN", "RUN", false, false);
  track.push(10, 11, "HOLD", "HOLD", false, false);
  const feed = { channels, tracks: new Map([[1, track]]) };
  const under = (y: number, at: number) => barAt(feed, 120, y, at)?.segment.state ?? null;
  expect([under(20, 0.5), under(20, 10.5)]).toEqual(["RUN", "HOLD"]);
  // After its end, below it where nothing is known, and outside of all rows.
  expect([under(20, 12), under(70, 0.5), under(2, 0.5), under(119, 0.5)]).toEqual([null, null, null, null]);
});
