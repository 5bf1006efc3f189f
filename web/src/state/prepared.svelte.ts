// What the server has prepared for every screen: a layout, and the run whose clock is shown.
import type { ServerView } from "../connection/message";
import type { Run } from "./api";
import { type ShownRun, shownRun } from "./runs";

/** Requests of the prepared view and of runs, as `api.ts` makes them. */
export interface PreparedRequests {
  view(): Promise<ServerView | null>;
  runs(): Promise<{ runs: Run[] }>;
}

export class Prepared {
  /** The layout; null where there is none. */
  view = $state.raw<ServerView | null>(null);
  run = $state.raw<ShownRun | null>(null);
  /** Whether the server was asked once. */
  isKnown = $state(false);
  /** What the server said of that run when its holds were asked for. */
  private words = "";
  private asking = false;
  private asked = 0;
  private taken = 0;

  constructor(
    private readonly requests: PreparedRequests,
    private readonly serverNow: () => bigint | null,
    private readonly refused: (e: unknown) => void,
  ) {}

  get isAsking(): boolean {
    return this.asking;
  }

  /** Asks the server. `isChanged`: the clock of the run may have changed, though the server says the same of it. */
  async check(isChanged = false): Promise<void> {
    this.asking = true;
    const asked = ++this.asked;
    try {
      const view = await this.requests.view();
      const said = view?.run ?? null;
      const words = JSON.stringify(said);
      const changed = isChanged || words !== this.words;
      const runs = changed && said?.state ? await this.requests.runs().then((answer) => answer.runs, () => null) : null;
      // An older answer may come after a newer one.
      if (asked < this.taken) return;
      this.taken = asked;
      // A run without a prepared layout: the panels are the page's to pick.
      this.view = view && view.panels.length > 0 ? view : null;
      if (changed) {
        this.run = said && shownRun(said, runs, this.serverNow());
        // Holds that could not be had are asked for with the next look.
        this.words = said?.state && runs === null ? "" : words;
      }
      this.isKnown = true;
    } catch (e) {
      this.refused(e);
    } finally {
      this.asking = false;
    }
  }
}
