import { describe, expect, it } from "vitest";
import { NONE_HIDDEN, stillHidden, turned } from "./hidden";

describe("hidden channels of a plot", () => {
  it("are turned by their names, and what was there stays as it was", () => {
    const one = turned(NONE_HIDDEN, "t.a");
    const both = turned(one, "t.b");
    expect([NONE_HIDDEN.size, [...one], [...both], [...turned(both, "t.a")]]).toEqual([0, ["t.a"], ["t.a", "t.b"], ["t.b"]]);
  });
  it("are shown when they come back to the panel", () => {
    const hidden = turned(turned(NONE_HIDDEN, "t.a"), "t.b");
    expect([...stillHidden(hidden, ["t.b", "t.c"])]).toEqual(["t.b"]);
    expect(stillHidden(hidden, ["t.a", "t.b", "t.c"])).toBe(hidden);
  });
  it("stay while the panel subscribes again", () => {
    const hidden = turned(NONE_HIDDEN, "t.a");
    expect(stillHidden(hidden, [])).toBe(hidden);
  });
});
