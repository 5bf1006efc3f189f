// Which channels are live, of all there are: asked for once, where the page picks its first panels.
import type { StateRow } from "../connection/message";
import { ageOf } from "./stale";

const given = (ns: string | null) => (ns === null ? null : BigInt(ns));

/** The numbers of the channels whose newest values are not stale. */
export function living(state: StateRow[], at: bigint): Set<number> {
  const fresh = state.filter(({ channel, time, receive_time, period_ns }) =>
    !ageOf(given(receive_time ?? time), at, given(channel.expected_period_ns), true, given(period_ns)).stale);
  return new Set(fresh.map((row) => row.channel.id));
}
