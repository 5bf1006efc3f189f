// A draft: a saved layout as it was changed in this browser, and the tag of the text that it was changed from.
import { freeze, type Layout, thaw } from "./layout";

/** Writes a draft as the browser keeps it; `tag`: of the server's text that it began from. */
export function writeDraft(tag: string | null, text: string): string {
  return JSON.stringify({ tag, text });
}

export interface Draft {
  layout: Layout;
  /** Tag that saving must name: of the text that the draft began from. */
  tag: string | null;
  /** Someone saved another text since then. */
  conflict: boolean;
}

/**
 * Reads a draft of the layout whose text on the server is `base`, with `tag`. Returns `null` if it says the same as the
 * server; throws if it cannot be read.
 */
export function readDraft(kept: string, base: string, tag: string | null): Draft | null {
  const draft = JSON.parse(kept) as { tag: string | null; text: string };
  const layout = thaw(draft.text);
  if (freeze(layout) === base) return null;
  return { layout, tag: draft.tag, conflict: draft.tag !== tag };
}
