import { describe, expect, it } from "vitest";
import { dividerAt, dividers, insert, move, neighbour, type Node, panelsOf, places, remove, resize, show, split, stack, stackOf, storeys } from "./split";

/** a | (b over c). */
const tree = (): Node => split("row", [stack("a"), split("column", [stack("b"), stack("c")])]);
const sizes = (node: Node): unknown => ("way" in node ? [node.sizes.map((s) => Number(s.toFixed(3))), ...node.children.map(sizes)] : node.tabs.join("/"));

describe("split", () => {
  it("places stacks as shares of the whole, with lines between them", () => {
    expect(places(tree()).map((p) => [p.stack.shown, p.x, p.y, p.width, p.height])).toEqual([
      ["a", 0, 0, 0.5, 1], ["b", 0.5, 0, 0.5, 0.5], ["c", 0.5, 0.5, 0.5, 0.5],
    ]);
    expect(dividers(tree()).map((d) => [d.way, d.x, d.y, d.path.join()])).toEqual([["row", 0.5, 0, ""], ["column", 0.5, 0.5, "1"]]);
    expect([storeys(null), storeys(tree()), storeys(split("column", [tree(), stack("d")]))]).toEqual([0, 2, 3]);
  });
  it("puts a panel at each side, and joins equal ways in one level", () => {
    expect(sizes(insert(tree(), "d", "c", "bottom"))).toEqual([[0.5, 0.5], "a", [[0.5, 0.25, 0.25], "b", "c", "d"]]);
    expect(sizes(insert(tree(), "d", "a", "left"))).toEqual([[0.25, 0.25, 0.5], "d", "a", [[0.5, 0.5], "b", "c"]]);
    expect(sizes(insert(tree(), "d", "b", "right"))).toEqual([[0.5, 0.5], "a", [[0.5, 0.5], [[0.5, 0.5], "b", "d"], "c"]]);
    expect(sizes(insert(tree(), "d", "b", "middle"))).toEqual([[0.5, 0.5], "a", [[0.5, 0.5], "b/d", "c"]]);
    expect(sizes(insert(tree(), "d", null, "bottom"))).toEqual([[0.667, 0.333], [[0.5, 0.5], "a", [[0.5, 0.5], "b", "c"]], "d"]);
    expect(insert(null, "a", null, "top")).toEqual(stack("a"));
  });
  it("takes panels out without leaving holes", () => {
    expect(sizes(remove(tree(), "a")!)).toEqual([[0.5, 0.5], "b", "c"]);
    expect(sizes(remove(tree(), "b")!)).toEqual([[0.5, 0.5], "a", "c"]);
    expect(remove(stack("a"), "a")).toBeNull();
    // The neighbour of a shown tab is shown next.
    expect(remove({ tabs: ["a", "b", "c"], shown: "b" }, "b")).toEqual({ tabs: ["a", "c"], shown: "c" });
    expect(remove({ tabs: ["a", "b"], shown: "a" }, "b")).toEqual({ tabs: ["a"], shown: "a" });
  });
  it("never loses or doubles a panel, whatever is moved where", () => {
    let seed = 7;
    const random = (n: number) => (seed = (seed * 16807) % 2147483647) % n;
    let root: Node = tree();
    const ids = ["a", "b", "c", "d", "e", "f"];
    for (const id of ids.slice(3)) root = insert(root, id, null, "right");
    for (let i = 0; i < 2000; i++) {
      const beside = random(8) === 0 ? null : ids[random(ids.length)]!;
      root = move(root, ids[random(ids.length)]!, beside, (["left", "right", "top", "bottom", "middle"] as const)[random(5)]!);
      if (random(3) === 0) root = show(root, ids[random(ids.length)]!)!;
      const all = places(root);
      expect(panelsOf(root).sort()).toEqual(ids);
      expect(all.reduce((sum, p) => sum + p.width * p.height, 0)).toBeCloseTo(1, 6);
      for (const p of all) expect(p.stack.tabs).toContain(p.stack.shown);
    }
  });
  it("gives a divider's share from one side to the other, and leaves both some", () => {
    expect(sizes(resize(tree(), [1], 0, 0.2))).toEqual([[0.5, 0.5], "a", [[0.7, 0.3], "b", "c"]]);
    expect(sizes(resize(tree(), [], 0, -9))).toEqual([[0.08, 0.92], "a", [[0.5, 0.5], "b", "c"]]);
    expect(resize(tree(), [0, 3], 0, 0.1)).toEqual(tree());
  });
  it("finds neighbours and the edge that the keyboard moves", () => {
    expect([neighbour(tree(), "a", "right"), neighbour(tree(), "b", "bottom"), neighbour(tree(), "c", "left"), neighbour(tree(), "a", "left")])
      .toEqual(["b", "c", "a", null]);
    expect(dividerAt(tree(), "b", "row")).toMatchObject({ path: [], index: 0 });
    expect(dividerAt(tree(), "c", "column")).toMatchObject({ path: [1], index: 0 });
    expect(dividerAt(tree(), "a", "column")).toBeNull();
    expect(stackOf(tree(), "zz")).toBeNull();
  });
});
