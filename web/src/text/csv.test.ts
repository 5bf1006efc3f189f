import { describe, expect, it } from "vitest";
import { seriesCsv } from "./csv";
import type { Channel } from "../connection/message";

describe("CSV of a plot", () => {
  it("has every bucket to the nanosecond, with all that it stands for", () => {
    const channel = { name: 'a.b{x=1,y=2}', unit: "m/s²" } as Channel;
    expect(seriesCsv([{ channel, gaps: [], buckets: [["1700000000123456789", 3, 1, 2, 0.5, "9007199254740993", null]] }])).toBe(
      'time,channel,unit,count,first,last,min,max,mean\r\n2023-11-14T22:13:20.123456789Z,"a.b{x=1,y=2}",m/s²,3,1,2,0.5,9007199254740993,\r\n',
    );
  });
});
