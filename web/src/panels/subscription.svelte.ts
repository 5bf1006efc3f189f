// Keeps a panel's feed subscribed while the panel is on the page, and anew when its channels or span change.
import { Feed } from "../state/feed";
import { live } from "../state/live.svelte";
import type { Panel } from "../layout/panel";

/** Screens are updated this often. */
export const MAX_RATE_HZ = 5;
const HISTORY_POINTS = 600;

/** Must be called while a component is set up; the answered object's `feed` is null until the server has spoken. */
export function panelFeed(panel: () => Panel): { readonly feed: Feed | null } {
  let feed = $state.raw<Feed | null>(null);
  const what = $derived(JSON.stringify([panel().channels, panel().span_s, panel().kind]));
  const known = $derived(live.version !== "");
  $effect(() => {
    if (!known) return;
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
  };
}

/** The feed's channels of which the newest value is stale. */
export function staleOf(feed: Feed): Set<number> {
  return new Set(feed.channels.filter((c) => live.age(c).stale).map((c) => c.id));
}
