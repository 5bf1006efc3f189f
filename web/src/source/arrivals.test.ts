import { describe, expect, it } from "vitest";
import { arrivalLayout } from "./arrivals";
import type { InterArrival } from "../connection/message";

const MS = 1e6;
const edges = [1, 2, 5, 10, 15, 20, 25, 35, 45, 60, 80, 110, 200, 500, 1000].map((ms) => ms * MS);

/** The histogram of times as the server counts them: each edge belongs to the bucket below. */
function counted(times: number[], nominal: number | null): InterArrival {
  const counts = new Array<number>(edges.length + 1).fill(0);
  for (const t of times) counts[edges.filter((edge) => t > edge).length]!++;
  return {
    nominal_ns: nominal === null ? null : String(nominal), edges_ns: edges.map(String), counts: counts.map(String),
    over: [2, 5, 25, 45, 110].map((ms) => ({ limit_ns: String(ms * MS), count: String(times.filter((t) => t > ms * MS).length) })),
  };
}

describe("arrivals", () => {
  it("has every time in one bar, and one late among many in sight", () => {
    const times = [...new Array<number>(100_000).fill(20 * MS), 19 * MS, 21 * MS, 400 * MS];
    const layout = arrivalLayout(counted(times, 20 * MS))!;
    expect(layout.bars.reduce((sum, bar) => sum + bar.count, 0)).toBe(layout.total);
    expect(layout.total).toBe(times.length);
    const late = layout.bars.find((bar) => bar.count === 1 && bar.fromNs === 200 * MS)!;
    expect(late.words).toBe("200 ms to 500 ms");
    expect(late.height).toBeGreaterThanOrEqual(0.06);
    expect(late.late).toBe(true);
    const usual = layout.bars.find((bar) => bar.count === layout.most)!;
    expect([usual.height, usual.late, usual.words]).toEqual([1, false, "15 ms to 20 ms"]);
    expect(layout.bars.filter((bar) => bar.count === 0).every((bar) => bar.height === 0)).toBe(true);
    expect(layout.over.map((o) => o.count)).toEqual([100_003, 100_003, 1, 1, 1]);
  });
  it("marks the nominal period inside its own bar", () => {
    const layout = arrivalLayout(counted([20 * MS], 12 * MS))!;
    const at = layout.nominalAt! * layout.bars.length;
    const bar = layout.bars[Math.floor(at)]!;
    expect([bar.fromNs, bar.toNs]).toEqual([10 * MS, 15 * MS]);
    expect(at % 1).toBeCloseTo(Math.log(1.2) / Math.log(1.5), 6);
    // An edge belongs to the bar below it.
    const edge = arrivalLayout(counted([20 * MS], 20 * MS))!;
    expect(edge.nominalAt! * edge.bars.length).toBeCloseTo(edge.bars.findIndex((b) => b.toNs === 20 * MS) + 1, 6);
  });
  it("leaves out what is empty on both sides, but keeps where frames should be", () => {
    const layout = arrivalLayout(counted([300 * MS, 700 * MS], 20 * MS))!;
    expect(layout.bars[0]!.toNs).toBe(15 * MS);
    expect(layout.bars.at(-1)!.toNs).toBe(null);
    expect(arrivalLayout(counted([20 * MS], null))!.bars.length).toBeGreaterThanOrEqual(8);
    expect(arrivalLayout(counted([20 * MS], null))!.nominalAt).toBe(null);
  });
  it("stands for times outside all edges", () => {
    const layout = arrivalLayout(counted([0, 5000 * MS], 9000 * MS))!;
    expect([layout.bars[0]!.words, layout.bars.at(-1)!.words]).toEqual(["up to 1 ms", "over 1 s"]);
    expect(layout.nominalAt).toBeGreaterThan(0.9);
    expect(layout.edges.length).toBe(layout.bars.length - 1);
  });
  it("is nothing where nothing was counted or the answer is not one", () => {
    expect(arrivalLayout(counted([], 20 * MS))).toBe(null);
    expect(arrivalLayout({ ...counted([1], null), counts: ["1"] })).toBe(null);
  });
});
