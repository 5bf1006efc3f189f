// Notices that a connection lost on the way here. They are told of twice: by updates bit by bit, by heartbeats in all.
export class Losses {
  private byUpdates = 0;
  private known = 0;

  /** An update says that so many more were lost; how many of them nothing told of before. */
  more(count: number): number {
    this.byUpdates += count;
    return this.inAll(this.byUpdates);
  }

  /** A heartbeat says that so many were lost in all; how many of them nothing told of before. */
  inAll(total: number): number {
    const fresh = Math.max(0, total - this.known);
    this.known += fresh;
    return fresh;
  }
}
