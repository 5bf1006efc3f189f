import { expect, test } from "vitest";
import { living } from "./living";
import type { StateRow } from "../connection/message";

test("channels are live whose newest value is not stale", () => {
  const S = 1_000_000_000n;
  const row = (id: number, receive: bigint | null, period: bigint | null = null): StateRow => ({
    channel: { id, expected_period_ns: period?.toString() ?? null } as StateRow["channel"], value: 1, time: receive?.toString() ?? null,
    receive_time: receive?.toString() ?? null, age_ns: null, period_ns: null, status: "fresh",
  });
  expect([...living([row(1, 99n * S), row(2, 50n * S), row(3, null), row(4, 50n * S, 30n * S)], 100n * S)]).toEqual([1, 4]);
});
