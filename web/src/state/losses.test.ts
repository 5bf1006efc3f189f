import { describe, expect, it } from "vitest";
import { Losses } from "./losses";

describe("what a connection lost", () => {
  it("counts once, whichever message says so first", () => {
    const losses = new Losses();
    expect(losses.inAll(0)).toBe(0);
    expect(losses.inAll(5)).toBe(5);
    // Every heartbeat says it again, and so does the next update.
    expect(losses.inAll(5)).toBe(0);
    expect(losses.more(5)).toBe(0);
    expect(losses.more(3)).toBe(3);
    expect(losses.inAll(8)).toBe(0);
    // Some of what an update says a heartbeat said before.
    expect(losses.inAll(10)).toBe(2);
    expect(losses.more(6)).toBe(4);
    expect(losses.more(0)).toBe(0);
    expect(losses.inAll(14)).toBe(0);
  });

  it("is told of by updates alone where heartbeats do not say", () => {
    const losses = new Losses();
    expect([losses.more(2), losses.inAll(0), losses.more(1), losses.inAll(0)]).toEqual([2, 0, 1, 0]);
  });
});
