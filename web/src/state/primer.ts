// Values of channels that come rarely are asked for, not waited for: those of panels that were opened together in one
// question, and again where it was refused.
import type { Channel, StateRow } from "../connection/message";
import { naming } from "../text/pattern";

/** Newest values that no update brought are asked for together, after this long. */
export const PRIME_MS = 300;
/** What was refused is asked for again so much later. */
export const AGAIN_MS = 2000;
const CHANNELS_MAX = 200;

export interface PrimerEnds {
  /** The instant that the screen shows. */
  now(): bigint | null;
  /** Whether the value of a channel is to be asked for. */
  isAsked(id: number): boolean;
  ask(at: bigint, patterns: string[]): Promise<StateRow[]>;
  /** Takes what was answered. */
  know(state: StateRow[], at: bigint): void;
  /** Answers whether it is worth to ask again. */
  refused(e: unknown): boolean;
  after(ms: number, run: () => void): void;
}

export class Primer {
  private readonly unknown = new Map<number, string>();
  private waiting = false;
  /** Rises when the screen shows something else. */
  private picture = 0;

  constructor(private readonly ends: PrimerEnds) {}

  /** Asks soon for what is not known of these. */
  want(channels: Channel[]): void {
    for (const c of channels) if (this.ends.isAsked(c.id)) this.unknown.set(c.id, naming(c));
    this.wait(PRIME_MS);
  }

  /** The screen shows something else: what is still asked for is not part of it. */
  forget(): void {
    this.picture++;
    this.unknown.clear();
  }

  private wait(ms: number): void {
    if (this.unknown.size === 0 || this.waiting) return;
    this.waiting = true;
    this.ends.after(ms, () => {
      this.waiting = false;
      void this.ask();
    });
  }

  private async ask(): Promise<void> {
    const [picture, at] = [this.picture, this.ends.now()];
    if (at === null) return this.wait(AGAIN_MS);
    const asked = [...this.unknown].filter(([id]) => this.ends.isAsked(id));
    this.unknown.clear();
    for (let i = 0; i < asked.length; i += CHANNELS_MAX) {
      try {
        const state = await this.ends.ask(at, asked.slice(i, i + CHANNELS_MAX).map(([, pattern]) => pattern));
        if (this.picture !== picture) return;
        this.ends.know(state, at);
      } catch (e) {
        if (this.picture !== picture || !this.ends.refused(e)) return;
        for (const [id, pattern] of asked.slice(i)) this.unknown.set(id, pattern);
        return this.wait(AGAIN_MS);
      }
    }
  }
}
