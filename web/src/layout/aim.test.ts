import { describe, expect, it } from "vitest";
import { aimAt } from "./aim";
import { move, places, split, stack } from "./split";

/** a | (b over c, c a tab before d), on 1000 × 500 pixels. */
const root = split("row", [stack("a"), split("column", [stack("b"), stack("c", "d")])]);
const aim = (x: number, y: number) => {
  const found = aimAt(root, x, y, 1000, 500);
  return found && `${found.beside ?? "all"} ${found.side}`;
};

describe("where a dragged panel comes to lie", () => {
  it("is over a panel in its middle, and beside it near an edge", () => {
    expect([aim(0.25, 0.5), aim(0.05, 0.5), aim(0.45, 0.5), aim(0.25, 0.1), aim(0.25, 0.9)])
      .toEqual(["a middle", "a left", "a right", "a top", "a bottom"]);
    // In shares of the panel, not of the area: b is half as high as a.
    expect([aim(0.75, 0.1), aim(0.75, 0.25), aim(0.75, 0.4)]).toEqual(["b top", "b middle", "b bottom"]);
  });
  it("is beside the tab that is shown", () => {
    expect(aim(0.75, 0.75)).toBe("c middle");
  });
  it("is at the closest edge in a corner", () => {
    expect([aim(0.03, 0.1), aim(0.06, 0.05)]).toEqual(["a left", "a top"]);
  });
  it("is beside all panels within a few pixels of the outer edges, whatever the size", () => {
    expect([aim(0.013, 0.5), aim(0.987, 0.5), aim(0.5, 0.027), aim(0.5, 0.973)]).toEqual(["all left", "all right", "all top", "all bottom"]);
    expect([aim(0.015, 0.5), aim(0.25, 0.029)]).toEqual(["a left", "a top"]);
    expect(aimAt(root, 0.013, 0.5, 3000, 500)!.beside).toBe("a");
  });
  it("is nowhere outside, and where there are no panels", () => {
    expect([aim(-0.01, 0.5), aim(1.01, 0.5), aim(0.5, -0.01), aim(0.5, 1.01)]).toEqual([null, null, null, null]);
    expect(aimAt(null, 0.5, 0.5, 1000, 500)).toBeNull();
  });
  it("is under the pointer once the panel is dropped there", () => {
    for (let x = 0.02; x < 1; x += 0.037) {
      for (let y = 0.04; y < 1; y += 0.053) {
        const found = aimAt(root, x, y, 1000, 500)!;
        if (found.beside === "a" || found.beside === null) continue;
        const dropped = places(move(root, "a", found.beside, found.side)).find((p) => p.stack.shown === "a")!;
        // The place of a is free by then: all others are twice as wide, and begin at 0.
        const free = (x - 0.5) * 2;
        const hit = free >= dropped.x && free <= dropped.x + dropped.width && y >= dropped.y && y <= dropped.y + dropped.height;
        expect([x, y, hit]).toEqual([x, y, true]);
      }
    }
  });
});
