// Joins a snapshot and the live tail: checks, stream by stream, that rows follow each other without gap or repeat.
import type { StreamWindow } from "./message";

export type Joint =
  /** Follows the row before, or nothing is known to check against. */
  | "joined"
  /** Rows between the last and this window never reached the page. */
  | "missed"
  /** Rows already shown come again: the window must not be drawn twice. */
  | "repeated";

export class Tail {
  private next = new Map<number, bigint>();
  private epoch: number | null = null;

  /** The snapshot ends, per stream, before these rows. */
  snapshot(rows: Record<string, string>): void {
    for (const [stream, row] of Object.entries(rows)) this.next.set(Number(stream), BigInt(row));
  }

  /** Looks at a window as it arrives. Rows of a new epoch are not compared with those of an old one. */
  follow(window: StreamWindow, epoch: number): Joint {
    if (this.epoch !== null && epoch !== this.epoch) this.next.clear();
    this.epoch = epoch;
    if (window.from_row === null || window.to_row === null) return "joined";
    const from = BigInt(window.from_row);
    const to = BigInt(window.to_row);
    const expected = this.next.get(window.stream);
    if (expected !== undefined && to <= expected && to > from) return "repeated";
    this.next.set(window.stream, to);
    return expected !== undefined && from > expected ? "missed" : "joined";
  }

  /** The server took rows back (rows that were never committed): they will come again under a new epoch. */
  rewound(stream: number, row: string): void {
    this.next.set(stream, BigInt(row));
  }

  clear(): void {
    this.next.clear();
    this.epoch = null;
  }
}
