// Keeps a panel's feed subscribed while the panel is on the page, and anew when its channels or span change.
import { type Choice, choose, pagesOf } from "../state/choice";
import { Feed } from "../state/feed";
import { live } from "../state/live.svelte";
import type { Panel } from "../layout/panel";

/** Screens are updated this often. */
export const MAX_RATE_HZ = 5;
const HISTORY_POINTS = 600;

/** What fills a panel. */
export interface PanelFeed {
  /** Null until the server has spoken and its channels are known. */
  readonly feed: Feed | null;
  /** Which of the channels that match are in it. */
  readonly choice: Choice | null;
  /** Shows the next page of them, or the one before. */
  turn(by: 1 | -1): void;
}

/** Must be called while a component is set up. */
export function panelFeed(panel: () => Panel): PanelFeed {
  let feed = $state.raw<Feed | null>(null);
  /** The page that is shown of what these patterns match. */
  let turned = $state.raw({ patterns: "", page: 0 });
  const patterns = $derived(JSON.stringify(panel().channels));
  const page = $derived(turned.patterns === patterns ? turned.page : 0);
  const known = $derived(live.version !== "" && live.channelsKnown);
  const choice = $derived(known ? choose(JSON.parse(patterns) as string[], live.channels, page) : null);
  const what = $derived(choice && JSON.stringify([choice.wanted, panel().span_s, panel().kind]));
  $effect(() => {
    if (what === null) return;
    const [channels, spanS, kind] = JSON.parse(what) as [string[], number, Panel["kind"]];
    const made = new Feed(live.origin, spanS, kind === "states", channels);
    feed = made;
    if (channels.length === 0) return;
    return live.attach(
      { channels, max_rate_hz: MAX_RATE_HZ, history_s: spanS, history_points: HISTORY_POINTS },
      made,
    );
  });
  return {
    get feed() {
      return feed;
    },
    get choice() {
      return choice;
    },
    turn(by) {
      const pages = pagesOf(choice?.total ?? 0);
      turned = { patterns, page: (page + by + pages) % pages };
    },
  };
}

/** The feed's channels of which the newest value is stale. */
export function staleOf(feed: Feed): Set<number> {
  return new Set(feed.channels.filter((c) => live.age(c).stale).map((c) => c.id));
}
