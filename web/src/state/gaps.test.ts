import { describe, expect, it } from "vitest";
import { eventsKnownFrom, knownFrom } from "./gaps";
import type { Event, Gap } from "../connection/message";

const gap = (from: number): Gap => ({ from_time: String(from) }) as Gap;

describe("a list of gaps", () => {
  it("holds all as long as it is not full", () => expect(knownFrom([gap(5), gap(3)], 3)).toBeNull());
  it("says nothing of what lies before its oldest gap when it is full, whatever its order", () => {
    expect(knownFrom([gap(5), gap(3), gap(9)], 3)).toBe(3n);
    expect(knownFrom([gap(2), gap(4), gap(9)], 3)).toBe(2n);
  });
  it("is no other of events", () => {
    const events = [3, 5, 9].map((time) => ({ time: String(time) }) as Event);
    expect([eventsKnownFrom(events, 4), eventsKnownFrom(events, 3)]).toEqual([null, 3n]);
  });
});
