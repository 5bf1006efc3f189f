// The operator's desk: the layout in use, what is selected in it, and where it is kept: on the server under a name, and
// in this browser until it is saved there.
import { type Aim, aimAt } from "./aim";
import * as api from "../state/api";
import { readDraft, writeDraft } from "./draft";
import { address, valueOf, withValue } from "../text/hash";
import { EMPTY, freeze, fromServer, type Layout, pick, thaw, withMoved, withoutPanel, withPanel } from "./layout";
import { live } from "../state/live.svelte";
import { living } from "../state/living";
import type { Channel } from "../connection/message";
import { hasStates } from "../connection/message";
import { CHANNELS_MAX, KIND_NAMES, MAX_PANELS, type Panel, panel, type PanelKind, shows } from "./panel";
import { matching } from "../text/pattern";
import { show, type Side } from "./split";
import { told } from "../text/told";

const UNDO_MAX = 30;
const STATE_PATIENCE_MS = 3000;
export class Desk {
  layout = $state.raw<Layout | null>(null);
  selectedId = $state<string | null>(null);
  /** Name that the layout has on the server; null: the operator's own, or what was prepared. */
  name = $state<string | null>(null);
  /** Whether it differs from what is saved or prepared. */
  changed = $state(false);
  saved = $state.raw<api.LayoutEntry[]>([]);
  /** What went wrong with layouts, in words. */
  problem = $state<string | null>(null);
  /** Name under which somebody else saved what was not read here; null: there is none. */
  conflict = $state<string | null>(null);
  /** A panel that is being dragged, and where to. */
  drag = $state.raw<{ id: string; aim: Aim | null } | null>(null);
  /** Shows the state at an instant; set by the page. */
  showStateAt: (at: bigint) => void = () => {};

  private tag: string | null = null;
  private base = "";
  private undoable: Layout[] = [];
  private loading: string | null = null;
  /** Name that the address had when it was looked at last. */
  private linked: string | null = null;
  /** Rises whenever another layout is taken. */
  private takes = 0;
  /** One after the other: each save names the tag that the one before it was given. */
  private saving: Promise<void> = Promise.resolve();
  private picking = false;
  /** Linked, and not to be had. */
  private unreadable: string | null = null;

  readonly selected = $derived(this.layout?.panels.find((p) => p.id === this.selectedId) ?? null);

  private ownKey(): string {
    return `strongback.layout.${live.view?.title ?? ""}`;
  }

  private draftKey(): string {
    return this.name === null ? this.ownKey() : `strongback.draft.${this.name}`;
  }

  /** The first layout: the linked one at once; without, when server and catalog have spoken, the operator's own, the prepared one, or what the page picks. */
  begin(): void {
    if (this.layout !== null || this.loading !== null) return;
    const linked = (this.linked = valueOf(location.hash, "layout"));
    if (linked !== null && linked !== this.unreadable) void this.open(linked);
    else if (live.ready) this.own();
  }

  /** The operator's own, the prepared one, or what the page picks. */
  private own(): void {
    this.take(null, null, null);
    // Older pages kept it under another name.
    for (const key of [this.ownKey(), `strongback.view.${live.view?.title ?? ""}`]) {
      const kept = localStorage.getItem(key);
      if (kept === null) continue;
      try {
        this.layout = thaw(kept);
        this.changed = true;
        return;
      } catch (e) {
        this.problem = `the arrangement that this browser kept cannot be read: ${told(e)}`;
        localStorage.removeItem(key);
      }
    }
    if (live.view) this.prepared(fromServer(live.view));
    else if (live.channels.length > 0) void this.picked();
  }

  private prepared(layout: Layout): void {
    // Where nothing is known yet the page picks when there is something.
    if (layout.panels.length > 0) this.layout = layout;
    this.base = freeze(layout);
  }

  /** What the page picks, once it is known which channels are live. */
  private async picked(): Promise<void> {
    if (this.picking) return;
    this.picking = true;
    const asked = api.stateAt(null, "").then(({ at, state }) => living(state, BigInt(at)), () => null);
    // A server that is slow to say does not keep the panels.
    const known = await Promise.race([asked, new Promise<null>((resolve) => setTimeout(resolve, STATE_PATIENCE_MS, null))]);
    this.picking = false;
    // A panel was added, or a layout opened, meanwhile.
    if (this.layout !== null || this.loading !== null) return;
    this.prepared(pick(live.channels, (c) => known === null || known.has(c.id)));
  }

  private take(name: string | null, layout: Layout | null, tag: string | null): void {
    this.name = name;
    this.tag = tag;
    this.layout = layout;
    this.selectedId = null;
    this.changed = false;
    this.conflict = null;
    this.undoable = [];
    this.takes++;
    this.base = layout ? freeze(layout) : "";
  }

  /** Opens a saved layout, with what was changed in it here and not saved. `fresh`: without. */
  async open(name: string, fresh = false): Promise<void> {
    this.loading = name;
    this.unreadable = this.problem = null;
    try {
      const { text, tag } = await api.layout(name);
      if (this.loading !== name) return;
      this.take(name, thaw(text), tag);
      this.link();
      const draft = localStorage.getItem(this.draftKey());
      if (fresh) localStorage.removeItem(this.draftKey());
      else if (draft !== null) this.resume(draft);
    } catch (e) {
      // Without a token it is asked for again when there is one.
      if (this.loading !== name || (this.layout === null && e instanceof api.ApiError && e.status === 401)) return;
      this.unreadable = name;
      if (this.layout === null && live.ready) this.own();
      this.problem = `layout ${name}: ${told(e)}`;
    } finally {
      if (this.loading === name) this.loading = null;
    }
  }

  /** Goes on with a draft; if the layout was saved by someone since, that is said and both are kept. */
  private resume(kept: string): void {
    try {
      const draft = readDraft(kept, this.base, this.tag);
      if (draft === null) {
        localStorage.removeItem(this.draftKey());
        return;
      }
      this.layout = draft.layout;
      this.changed = true;
      this.conflict = draft.conflict ? this.name : null;
      this.tag = draft.tag;
    } catch (e) {
      this.problem = `what was changed in layout ${this.name} and not saved cannot be read: ${told(e)}`;
      localStorage.removeItem(this.draftKey());
    }
  }

  /** Back to what is saved under the name, what was prepared, or what the page picks. */
  reset(): void {
    localStorage.removeItem(this.draftKey());
    localStorage.removeItem(`strongback.view.${live.view?.title ?? ""}`);
    if (this.name !== null) void this.open(this.name, true);
    else this.own();
  }

  /** Leaves the saved layout for the operator's own. */
  close(): void {
    this.loading = null;
    this.layout = null;
    this.problem = null;
    this.own();
    this.link();
  }

  /** Keeps the name of the layout in the address. */
  private link(): void {
    this.linked = this.name;
    const hash = withValue(location.hash, "layout", this.name);
    if (hash !== location.hash) history.pushState(null, "", address(hash));
  }

  /** The address changed: by a link or by going back. */
  follow(): void {
    const name = valueOf(location.hash, "layout");
    // Something else in the address changed: a layout that is being opened is opened all the same.
    if (name === this.linked) return;
    this.linked = name;
    if (name === this.name && this.loading === null) return;
    if (name === null) this.close();
    else void this.open(name);
  }

  async list(): Promise<void> {
    try {
      this.saved = await api.layouts();
    } catch (e) {
      this.problem = told(e);
    }
  }

  /** Saves under a name. What someone else saved there meanwhile is only written over if `over` says so. */
  save(name: string, over = false): Promise<void> {
    const next = () => this.saveNow(name, over);
    return (this.saving = this.saving.then(next, next));
  }

  private async saveNow(name: string, over: boolean): Promise<void> {
    const { layout, takes } = this;
    if (layout === null) return;
    const text = freeze(layout);
    const draft = this.draftKey();
    const kept = localStorage.getItem(draft);
    const known = name === this.name && !over ? this.tag : null;
    try {
      const tag = await api.saveLayout(name, text, over ? "any" : known);
      // Another layout is in use by now: this one is saved, and that is all.
      if (takes !== this.takes) {
        if (localStorage.getItem(draft) === kept) localStorage.removeItem(draft);
      } else {
        localStorage.removeItem(draft);
        this.settled(name, text, tag);
      }
    } catch (e) {
      if (takes === this.takes) this.conflict = e instanceof api.ApiError && e.status === 412 ? name : null;
      this.problem = told(e);
    }
    await this.list();
  }

  /** The layout in use is now what the server has under a name, but for what was changed since. */
  private settled(name: string, text: string, tag: string): void {
    const { layout, selectedId } = this;
    this.take(name, layout, tag);
    this.base = text;
    this.selectedId = selectedId;
    this.problem = null;
    if (layout !== null && freeze(layout) !== text) this.keep(layout);
    this.link();
  }

  async remove(name: string): Promise<void> {
    try {
      await api.deleteLayout(name);
      localStorage.removeItem(`strongback.draft.${name}`);
      if (name === this.name) this.close();
      this.problem = null;
    } catch (e) {
      this.problem = told(e);
    }
    await this.list();
  }

  /** Takes a changed layout, kept in this browser until it is saved. */
  change(next: Layout): void {
    if (this.layout !== null) this.undoable = [...this.undoable.slice(1 - UNDO_MAX), this.layout];
    this.keep(next);
  }

  private keep(next: Layout): void {
    this.layout = next;
    const text = freeze(next);
    this.changed = text !== this.base;
    try {
      localStorage.setItem(this.draftKey(), this.name === null ? text : writeDraft(this.tag, text));
    } catch (e) {
      // Full, or forbidden: the panels are changed all the same.
      this.problem = `this browser does not keep what is changed here: ${told(e)}`;
    }
  }

  /** While a divider is dragged: one step to undo, and nothing is kept before the end. */
  slide(next: Layout): void {
    this.layout = next;
  }

  undo(): void {
    const before = this.undoable.pop();
    if (before) this.keep(before);
  }

  edit(id: string, changes: Partial<Panel>): void {
    const { layout } = this;
    if ((changes.channels?.length ?? 0) > CHANNELS_MAX) this.problem = `a panel has at most ${CHANNELS_MAX} channels and patterns`;
    else if (layout) this.change({ ...layout, panels: layout.panels.map((p) => (p.id === id ? { ...p, ...changes } : p)) });
  }

  removePanel(id: string): void {
    if (this.layout) this.change(withoutPanel(this.layout, id));
  }

  add(kind: PanelKind, channels: string[] = [], beside: string | null = null, side?: Side): Panel | null {
    const layout = this.layout ?? EMPTY;
    if (layout.panels.length >= MAX_PANELS) {
      this.problem = `a layout has at most ${MAX_PANELS} panels`;
      return null;
    }
    const made = panel(kind, channels.length === 1 ? lastWord(channels[0]!) : KIND_NAMES[kind], channels);
    this.change(withPanel(layout, made, beside, side));
    this.selectedId = made.id;
    return made;
  }

  show(id: string): void {
    const { layout } = this;
    if (layout?.root) this.keep({ ...layout, root: show(layout.root, id) });
    this.selectedId = id;
  }

  move(id: string, aim: Aim): void {
    const { layout } = this;
    if (!layout) return;
    const next = withMoved(layout, id, aim.beside, aim.side);
    if (next.root !== layout.root) this.change(next);
  }

  /** What lies at a point of the area, given as shares of it. */
  aimAt(x: number, y: number, widthPx: number, heightPx: number): Aim | null {
    return aimAt(this.layout?.root ?? null, x, y, widthPx, heightPx);
  }

  /** A channel picked in the tree joins the selected panel, leaves it if it is there, or gets a panel of its own. */
  pickChannel(channel: Channel): void {
    const { selected } = this;
    if (!selected || !shows(selected.kind) || (selected.kind === "plot" && hasStates(channel.type))) {
      this.add(hasStates(channel.type) ? "states" : "plot", [channel.name]);
      return;
    }
    const names = this.namesOf(selected);
    const isThere = names.includes(channel.name);
    // Of a pattern that matches more than a panel can name the pattern stays.
    const listed = names.length + 1 > CHANNELS_MAX ? selected.channels : names;
    if (isThere && !listed.includes(channel.name)) {
      this.problem = `${channel.name} is on this panel by a pattern, with ${names.length - 1} others: its menu changes the patterns`;
      return;
    }
    this.edit(selected.id, { channels: isThere ? listed.filter((n) => n !== channel.name) : [...listed, channel.name] });
  }

  /** A panel's channels by full name: patterns as far as the page knows what they match. */
  namesOf(p: Panel): string[] {
    return [...new Set(p.channels.flatMap((pattern) => matching(pattern, live.channels).map((c) => c.name)))];
  }
}

const lastWord = (name: string) => name.replace(/\{.*$/, "").split(".").at(-1)!;

export const desk = new Desk();
