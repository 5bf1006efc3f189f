// What is wrong, in the order in which an operator must know it.
import type { Banner } from "./banner";
import type { SourceBrief } from "../connection/message";
import { count } from "../text/number";

export interface Trouble {
  key: string;
  severity: "critical" | "warning" | "watch";
  what: string;
  detail: string;
}

/** `lost`: frames that sources lost in the last minute. */
export function troubles(
  banners: Banner[], sources: SourceBrief[], staleWatched: string[], live: boolean, lost: ReadonlyMap<string, bigint> = new Map(),
): Trouble[] {
  const list: Trouble[] = banners.map((b) => {
    const [what, ...detail] = b.text.split(" · ");
    return { key: b.id, severity: b.severity, what: what ?? b.id, detail: detail.join(" · ") };
  });
  // What a silent server last said of its sources is no news.
  if (!live) return list;
  for (const source of sources) {
    if (source.status === "ok") continue;
    list.push({
      key: `source ${source.name}`,
      severity: ({ dropping: "critical", silent: "warning", disconnected: "warning", slow: "watch" } as const)[source.status],
      what: `source ${source.name} ${source.status}`,
      detail: {
        silent: "no frames",
        slow: "below its expected rate",
        dropping: "frames lost before decoding",
        disconnected: "the PLC does not answer; the events say why",
      }[source.status],
    });
  }
  for (const [name, frames] of lost) {
    list.push({
      key: `lost ${name}`,
      severity: "watch",
      what: `source ${name} lost ${count(frames)} ${frames === 1n ? "frame" : "frames"} in the last minute`,
      detail: "the gaps say when, and why",
    });
  }
  if (staleWatched.length > 0) {
    const more = staleWatched.length > 3 ? ` and ${staleWatched.length - 3} more` : "";
    list.push({
      key: "stale",
      severity: "watch",
      what: `${staleWatched.length} watched ${staleWatched.length === 1 ? "channel" : "channels"} stale`,
      detail: staleWatched.slice(0, 3).join(", ") + more,
    });
  }
  return list;
}
