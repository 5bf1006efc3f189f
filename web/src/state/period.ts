// The period of a stream that says none: what the server learnt, or what its updates show. It gives a slow stream its
// time before its values are stale; it never takes any from a fast one (stale.ts).

/** Distances between receptions that must agree. */
const AGREE = 2;
/** The longest of them over the shortest: a source that sends every ten seconds is not exact. */
const SPREAD = 1.5;

interface Seen {
  receiveNs: bigint;
  distances: bigint[];
  periodNs: bigint | null;
}

/** Periods by stream. */
export class Periods {
  private readonly seen = new Map<number, Seen>();

  /** A frame of a stream was received. */
  received(stream: number, receiveNs: bigint): void {
    const seen = this.of(stream, receiveNs);
    if (receiveNs <= seen.receiveNs) return;
    seen.distances.push(receiveNs - seen.receiveNs);
    if (seen.distances.length > AGREE) seen.distances.shift();
    seen.receiveNs = receiveNs;
    if (seen.distances.length < AGREE) return;
    const [least, most] = seen.distances.reduce(([a, b], d) => [d < a ? d : a, d > b ? d : b], [seen.distances[0]!, 0n]);
    // One pause is no period; what was known before it stands.
    if (Number(most) <= Number(least) * SPREAD) seen.periodNs = most;
  }

  /** The server says what it learnt. */
  learnt(stream: number, periodNs: bigint | null): void {
    if (periodNs !== null) this.of(stream, 0n).periodNs = periodNs;
  }

  /** The period of a stream; null where none is known. */
  get(stream: number): bigint | null {
    return this.seen.get(stream)?.periodNs ?? null;
  }

  private of(stream: number, receiveNs: bigint): Seen {
    let seen = this.seen.get(stream);
    if (!seen) this.seen.set(stream, (seen = { receiveNs, distances: [], periodNs: null }));
    return seen;
  }
}
