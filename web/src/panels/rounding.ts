// How a panel writes the numbers of its channels, where decimals were chosen for it. Limits are judged by the server, on
// values as they are; here their bounds keep a rounded text on the side of the value.
import type { Channel, Limit } from "../connection/message";
import { boundsOf } from "../plot/limits";
import type { Rounding } from "../text/number";

/** Returns how a panel writes a channel; `null`: with as many decimals as mean something. */
export function roundingBy(decimals: () => number | null, limits: () => Limit[]): (channel: Channel) => Rounding | null {
  let known: { limits: Limit[]; bounds: WeakMap<Channel, number[]> } | null = null;
  return (channel) => {
    const [chosen, current] = [decimals(), limits()];
    if (chosen === null) return null;
    // Looked for when channels or limits change, not with every value.
    if (known?.limits !== current) known = { limits: current, bounds: new WeakMap() };
    let bounds = known.bounds.get(channel);
    if (!bounds) known.bounds.set(channel, (bounds = boundsOf(channel, current).map((bound) => bound.value)));
    return { decimals: chosen, bounds };
  };
}
