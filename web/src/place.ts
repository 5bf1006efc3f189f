// Where on the page one is, beside the layout: the source whose view is open. The address names it, so that it can be
// linked and gone back to.
import { address, valueOf, withValue } from "./hash";

/** Opens a source's view, or closes it; the page follows as it follows a link. */
export function openSource(name: string | null): void {
  if (name === valueOf(location.hash, "source")) return;
  history.pushState(null, "", address(withValue(location.hash, "source", name)));
  dispatchEvent(new PopStateEvent("popstate"));
}
