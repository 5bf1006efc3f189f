// One channel's line in a plot: a ring of time buckets with first, last, min, max and mean, so that no spike
// is hidden however long the span. Times are seconds relative to the view's origin.

/** Buckets a ring holds; a span is drawn from at most `SLOTS` of them plus the newest. */
export const SLOTS = 1024;
const CAPACITY = 2048;

export interface Point {
  /** Start and end of the bucket, s from the view's origin. */
  t0: number;
  t1: number;
  count: number;
  first: number;
  last: number;
  min: number;
  max: number;
  mean: number;
  /** Frames are known missing inside or just before this bucket: the line breaks here. */
  broken: boolean;
}

export class Series {
  readonly t0 = new Float64Array(CAPACITY);
  readonly t1 = new Float64Array(CAPACITY);
  readonly count = new Float64Array(CAPACITY);
  readonly first = new Float64Array(CAPACITY);
  readonly last = new Float64Array(CAPACITY);
  readonly min = new Float64Array(CAPACITY);
  readonly max = new Float64Array(CAPACITY);
  readonly mean = new Float64Array(CAPACITY);
  readonly broken = new Uint8Array(CAPACITY);
  /** Entries in use. */
  length = 0;
  private head = 0;
  /** Time of the newest bucket's beginning as it was opened: merging keeps to this grid. */
  private openedAt = -Infinity;

  /** `spanS`: the longest span to be drawn; buckets closer than span/SLOTS are merged. */
  constructor(readonly spanS: number) {}

  /** Ring slot of the i-th oldest entry. */
  slot(i: number): number {
    return (this.head + i) % CAPACITY;
  }

  /** The newest entry's slot, or -1. */
  newest(): number {
    return this.length === 0 ? -1 : this.slot(this.length - 1);
  }

  clear(): void {
    this.length = 0;
    this.head = 0;
    this.openedAt = -Infinity;
  }

  /** Adds a bucket that is not older than the newest; an older one (late data) goes where its time is. */
  push(p: Point): void {
    if (!(p.count > 0)) return;
    const newest = this.newest();
    if (newest >= 0 && p.t0 < this.t0[newest]!) {
      this.widen(p);
      return;
    }
    // Where frames are missing all the time, too, there are at most two buckets in the width of one: the ring holds its span.
    const breaks = p.broken && newest >= 0 && this.broken[newest] === 0;
    if (newest >= 0 && !breaks && p.t1 - this.openedAt < this.spanS / SLOTS) {
      this.merge(newest, p);
      return;
    }
    if (this.length === CAPACITY) this.dropOldest();
    const k = this.slot(this.length++);
    this.openedAt = p.t0;
    this.set(k, p);
  }

  private merge(k: number, p: Point): void {
    this.add(k, p);
    this.t1[k] = Math.max(this.t1[k]!, p.t1);
    this.last[k] = p.last;
  }

  /** Adds count, mean and extremes to those of a bucket. */
  private add(k: number, p: Point): void {
    const total = this.count[k]! + p.count;
    // In parts: the difference of two values may be beyond all numbers.
    this.mean[k] = this.mean[k]! * (this.count[k]! / total) + p.mean * (p.count / total);
    this.count[k] = total;
    this.min[k] = Math.min(this.min[k]!, p.min);
    this.max[k] = Math.max(this.max[k]!, p.max);
  }

  private dropOldest(): void {
    this.head = (this.head + 1) % CAPACITY;
    this.length--;
  }

  /** Puts a bucket in the place of the i-th oldest, before what is there; a full ring loses its oldest for it. */
  private insert(i: number, p: Point): void {
    if (this.length === CAPACITY) {
      this.dropOldest();
      i--;
    }
    this.length++;
    const all = [this.t0, this.t1, this.count, this.first, this.last, this.min, this.max, this.mean, this.broken];
    for (let j = this.length - 1; j > i; j--) {
      const [to, from] = [this.slot(j), this.slot(j - 1)];
      for (const values of all) values[to] = values[from]!;
    }
    this.set(this.slot(i), p);
  }

  private set(k: number, p: Point): void {
    this.t0[k] = p.t0;
    this.t1[k] = Math.max(p.t0, p.t1);
    this.count[k] = p.count;
    this.first[k] = p.first;
    this.last[k] = p.last;
    this.min[k] = p.min;
    this.max[k] = p.max;
    this.mean[k] = p.mean;
    this.broken[k] = p.broken ? 1 : 0;
  }

  /** Late data: the bucket that holds its time takes its extremes, or it has one of its own; what is older than the ring is not shown. */
  private widen(p: Point): void {
    const i = this.indexAt(p.t0);
    if (i < 0) return;
    const k = this.slot(i);
    if (p.t0 >= this.t1[k]! && p.t0 > this.t0[k]! && p.t1 - this.t0[k]! >= this.spanS / SLOTS) {
      this.insert(i + 1, p);
      return;
    }
    this.add(k, p);
  }

  /** Forgets what ended before `t`, but keeps one entry before it: the line enters the plot from there. */
  expire(t: number): void {
    while (this.length > 1 && this.t1[this.slot(1)]! < t) this.dropOldest();
  }

  /** Index of the last entry that begins at or before `t`; -1 if none does. */
  indexAt(t: number): number {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.t0[this.slot(middle)]! <= t) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  /** Least and greatest value of all buckets that touch [from, to]; null if there is none. */
  extent(from: number, to: number): { min: number; max: number } | null {
    let min = Infinity;
    let max = -Infinity;
    for (let i = this.length - 1; i >= 0; i--) {
      const k = this.slot(i);
      if (this.t0[k]! > to) continue;
      if (this.t1[k]! < from) break;
      if (this.min[k]! < min) min = this.min[k]!;
      if (this.max[k]! > max) max = this.max[k]!;
    }
    return min <= max ? { min, max } : null;
  }

  /**
   * The least value above zero that is known of the buckets that touch [from, to]; Infinity if there is none. Of a
   * bucket that reaches down to zero only some values are known.
   */
  leastAboveZero(from: number, to: number): number {
    let least = Infinity;
    for (let i = this.length - 1; i >= 0; i--) {
      const k = this.slot(i);
      if (this.t0[k]! > to) continue;
      if (this.t1[k]! < from) break;
      if (this.min[k]! >= least) continue;
      if (this.min[k]! > 0) least = this.min[k]!;
      else for (const known of [this.first[k]!, this.last[k]!, this.mean[k]!, this.max[k]!]) if (known > 0 && known < least) least = known;
    }
    return least;
  }

  /**
   * Seconds without data after which the line is not drawn on: 3 expected periods as they reach the screen,
   * or, for a channel without a known period, five times its usual distance but at least 2 s.
   */
  silenceS(expectedPeriodS: number | null, displayPeriodS: number): number {
    const bucketS = this.spanS / SLOTS;
    if (expectedPeriodS !== null) return 3 * Math.max(expectedPeriodS, displayPeriodS, bucketS);
    if (this.length < 3) return Infinity;
    const spanS = this.t0[this.newest()]! - this.t0[this.slot(0)]!;
    return Math.max(2, (5 * spanS) / (this.length - 1));
  }
}
