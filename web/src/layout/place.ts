// Where on the page one is, beside the layout: the source whose view is open, the playback that is shown. The address
// names them, so that they can be linked and gone back to.
import * as api from "../state/api";
import { address, valueOf, withValue } from "../text/hash";
import { live } from "../state/live.svelte";
import { told } from "../text/told";

/** Opens a source's view, or closes it; the page follows as it follows a link. */
export function openSource(name: string | null): void {
  if (name === valueOf(location.hash, "source")) return;
  history.pushState(null, "", address(withValue(location.hash, "source", name)));
  dispatchEvent(new PopStateEvent("popstate"));
}

/** Keeps the playback that is shown in the address, so that it can be linked. */
function linkReplay(id: string | null): void {
  const hash = withValue(location.hash, "playback", id);
  if (hash !== location.hash) history.pushState(null, "", address(hash));
}

/** Begins a playback and directs it; answers what is wrong, or null. */
export async function startReplay(what: api.NewPlayback): Promise<string | null> {
  try {
    const { director, ...state } = await api.startPlayback(what);
    live.watchPlayback(state, director);
    linkReplay(state.id);
    return null;
  } catch (e) {
    live.replayOver = `no replay: ${told(e)}`;
    return live.replayOver;
  }
}

/** Watches a playback that somebody began. */
export async function joinReplay(id: string): Promise<void> {
  try {
    live.watchPlayback(await api.playback(id), null);
    linkReplay(id);
  } catch (e) {
    live.replayOver = `no replay: ${told(e)}`;
    linkReplay(null);
  }
}

/** Back to what is. The session goes on for those who watch it. */
export function leaveReplay(): void {
  live.resume();
  linkReplay(null);
}

/** Shows the playback that the address names, or none. */
export async function followReplay(): Promise<void> {
  const id = valueOf(location.hash, "playback");
  if (id === (live.replay?.state.id ?? null)) return;
  if (id === null) live.resume();
  else await joinReplay(id);
}
