import { beforeEach, describe, expect, it } from "vitest";
import type { Channel, StateRow } from "../connection/message";
import { AGAIN_MS, PRIME_MS, Primer } from "./primer";
import { settle } from "../test/settle";

const channel = (id: number): Channel => ({
  id, name: `t.c${id}`, table: "t", channel: `c${id}`, tags: {}, stream: 3, type: "f64", unit: "", description: "",
  source: "s", expected_period_ns: null, interpolation: "linear",
});
const row = (value: number) => ({ value }) as StateRow;

let waits: { ms: number; run: () => void }[];
let asked: string[][];
let known: [StateRow[], bigint][];
let fresh: Set<number>;
let answer: () => StateRow[] | Promise<StateRow[]>;
let isWorth: boolean;
let primer: Primer;

beforeEach(() => {
  waits = [];
  asked = [];
  known = [];
  fresh = new Set();
  answer = () => [row(1)];
  isWorth = true;
  primer = new Primer({
    now: () => 5n,
    isAsked: (id) => !fresh.has(id),
    ask: async (_at, patterns) => { asked.push(patterns); return answer(); },
    know: (state, at) => known.push([state, at]),
    refused: () => isWorth,
    after: (ms, run) => waits.push({ ms, run }),
  });
});
const turn = async () => {
  waits.shift()!.run();
  await settle();
};

describe("values that no update brought", () => {
  it("are asked for together, those that came meanwhile left out", async () => {
    primer.want([channel(1), channel(2)]);
    primer.want([channel(3)]);
    fresh.add(2);
    expect(waits.map((w) => w.ms)).toEqual([PRIME_MS]);
    await turn();
    expect([asked, known]).toEqual([[["t.c1", "t.c3"]], [[[row(1)], 5n]]]);
    primer.want([channel(2)]);
    expect(waits).toEqual([]);
  });
  it("are asked for again where the server was busy, until they are known", async () => {
    answer = () => { throw new Error("busy"); };
    primer.want([channel(1)]);
    await turn();
    expect([known, waits.map((w) => w.ms)]).toEqual([[], [AGAIN_MS]]);
    await turn();
    answer = () => [row(1)];
    await turn();
    expect([asked.length, known.length, waits.length]).toEqual([3, 1, 0]);
    // What would be refused for ever is not.
    answer = () => { throw new Error("no such thing"); };
    isWorth = false;
    primer.want([channel(2)]);
    await turn();
    expect(waits).toEqual([]);
  });
  it("of one picture never come into another", async () => {
    let late: (state: StateRow[]) => void = () => {};
    answer = () => new Promise<StateRow[]>((resolve) => (late = resolve));
    primer.want([channel(1)]);
    await turn();
    primer.want([channel(2)]);
    primer.forget();
    late([row(1)]);
    await turn();
    expect([asked, known, waits]).toEqual([[["t.c1"]], [], []]);
    // Nor is a refusal of the one asked again in the other.
    let refuse: (e: Error) => void = () => {};
    answer = () => new Promise<StateRow[]>((_, reject) => (refuse = reject));
    primer.want([channel(3)]);
    await turn();
    primer.forget();
    refuse(new Error("busy"));
    await settle();
    expect(waits).toEqual([]);
  });
  it("are asked for in questions of a bounded size", async () => {
    primer.want(Array.from({ length: 450 }, (_, i) => channel(i)));
    await turn();
    expect(asked.map((a) => a.length)).toEqual([200, 200, 50]);
  });
});
