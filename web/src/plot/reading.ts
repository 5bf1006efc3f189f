// What the channels of a plot were at an instant, for its legend and cursor.
import { DISPLAY_PERIOD_S, type Feed } from "../state/feed";

export interface CursorReading {
  /** s from the feed's origin. */
  at: number;
  values: Map<number, number>;
}

/** Reads each channel at an instant; those without a value there are left out. */
export function readingAt(feed: Feed, at: number): CursorReading {
  const values = new Map<number, number>();
  for (const channel of feed.channels) {
    const series = feed.series.get(channel.id);
    const i = series?.indexAt(at) ?? -1;
    if (!series || i < 0) continue;
    const k = series.slot(i);
    // Nothing is read out of a silence or from beyond the newest value.
    if (at - series.t1[k]! > feed.silenceS(channel) + DISPLAY_PERIOD_S) continue;
    const holds = channel.interpolation === "hold" && at >= series.t1[k]!;
    values.set(channel.id, series.count[k]! > 1 && !holds ? series.mean[k]! : series.last[k]!);
  }
  return { at, values };
}
