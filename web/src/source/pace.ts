// How fast frames came over the last minutes: one rate a second, kept in the page.

/** So far back the page remembers. */
export const PACE_SPAN_S = 180;
/** Without a sample for this long the line is broken: nothing is known of what lies between. */
export const PACE_BREAK_S = 3.5;

/** Rates of one stream or source, oldest first. */
export class Pace {
  /** Seconds on the page's monotonic clock. */
  readonly at: number[] = [];
  readonly hz: number[] = [];

  /** Takes a rate; at most one each half second is kept. */
  add(atS: number, hz: number): void {
    const last = this.at.at(-1);
    if (last !== undefined && atS - last < 0.5) return;
    this.at.push(atS);
    this.hz.push(hz);
    let old = 0;
    while (old < this.at.length && this.at[old]! < atS - PACE_SPAN_S - PACE_BREAK_S) old++;
    if (old > 0) {
      this.at.splice(0, old);
      this.hz.splice(0, old);
    }
  }

  /** Rate at the top of a drawing: room above what is expected, and above all that came. */
  top(expected: number | null): number {
    let most = (expected ?? 0) * 1.25;
    for (const hz of this.hz) if (hz * 1.08 > most) most = hz * 1.08;
    return most > 0 ? most : 1;
  }

  /** The line as an SVG path in a box of `width` by `height`, whose right edge is `nowS`; empty without samples. */
  path(nowS: number, top: number, width: number, height: number): string {
    let path = "";
    let before = -Infinity;
    for (let i = 0; i < this.at.length; i++) {
      const at = this.at[i]!;
      const x = width - ((nowS - at) / PACE_SPAN_S) * width;
      if (x < 0) continue;
      const y = height - Math.min(1, this.hz[i]! / top) * height;
      path += `${at - before > PACE_BREAK_S ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
      before = at;
    }
    return path;
  }
}

/** Rates by key. What was not heard of for the whole span is forgotten. */
export class Paces {
  private readonly all = new Map<string, Pace>();

  add(key: string, atS: number, hz: number): void {
    let pace = this.all.get(key);
    if (!pace) this.all.set(key, (pace = new Pace()));
    pace.add(atS, hz);
  }

  of(key: string): Pace | null {
    return this.all.get(key) ?? null;
  }

  forget(nowS: number): void {
    for (const [key, pace] of this.all) if ((pace.at.at(-1) ?? -Infinity) < nowS - PACE_SPAN_S) this.all.delete(key);
  }
}
