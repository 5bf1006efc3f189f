import { describe, expect, it } from "vitest";
import type { Bucket, Channel } from "../connection/message";
import { DISPLAY_PERIOD_S, Feed } from "../state/feed";
import { readingAt } from "./reading";

const channel = (id: number, more: Partial<Channel> = {}): Channel => ({
  id, name: `t.c${id}`, table: "t", channel: `c${id}`, tags: {}, stream: 1, type: "f64", unit: "", description: "", source: "s",
  expected_period_ns: "1000000000", interpolation: "linear", ...more,
});
const bucket = (s: number, count: number, last: number, mean = last): Bucket => [String(BigInt(s * 1e9)), count, last, last, last, last, mean];

/** A feed from 0 with a bucket each second, filled from the server's statistics as in a look at the past. */
function feed(of: Channel, ...buckets: Bucket[]): Feed {
  const made = new Feed(0n, 60, false);
  made.past([of], [{ channel: of, buckets, gaps: [] }] as unknown as Parameters<Feed["past"]>[1]);
  return made;
}
const at = (from: Feed, t: number) => readingAt(from, t).values.get(1);

describe("a reading", () => {
  const plain = feed(channel(1), bucket(1, 1, 10), bucket(2, 1, 20), bucket(3, 1, 30));
  it("is the newest value by an instant, none before the first", () => {
    expect([0.9, 1, 1.9, 2, 3.5].map((t) => at(plain, t))).toEqual([undefined, 10, 10, 20, 30]);
    expect(readingAt(plain, 2.5).at).toBe(2.5);
  });
  it("is nothing in a silence", () => {
    // Three periods of a second, and as long as values take to the screen.
    expect(at(plain, 3 + 3 + DISPLAY_PERIOD_S - 0.01)).toBe(30);
    expect(at(plain, 3 + 3 + DISPLAY_PERIOD_S + 0.01)).toBeUndefined();
  });
  it("of a bucket is its mean, and of a value that holds its last as soon as the bucket is over", () => {
    const buckets = [bucket(1, 3, 8, 5), bucket(2, 1, 20)];
    expect([1, 1.05, 1.5].map((t) => at(feed(channel(1), ...buckets), t))).toEqual([5, 5, 5]);
    expect([1, 1.05, 1.5].map((t) => at(feed(channel(1, { interpolation: "hold" }), ...buckets), t))).toEqual([5, 5, 8]);
  });
  it("leaves out channels without lines and without values", () => {
    const of = [channel(1, { type: "string" }), channel(2), channel(3)];
    const made = new Feed(0n, 60, false);
    made.past(of, [{ channel: of[2], buckets: [bucket(1, 1, 7)], gaps: [] }] as unknown as Parameters<Feed["past"]>[1]);
    expect([...readingAt(made, 1.5).values]).toEqual([[3, 7]]);
  });
});
