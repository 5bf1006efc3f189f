// The channels of the server, loaded again when there are others.
import type { Channel } from "../connection/message";
import { sortChannels, Twins } from "./tree";

/** New channels come in crowds: time between two loads of the catalog. */
const PAUSE_MS = 500;

/** Requests of the catalog, as `api.ts` makes them. */
export interface CatalogRequests {
  catalogVersion(): Promise<string>;
  allChannels(): Promise<{ version: string; channels: Channel[] }>;
}

export class Catalog {
  channels = $state.raw<Channel[]>([]);
  /** What tells each from those of the same table and name: looked for anew when there are other channels. */
  readonly twins = $derived(new Twins(this.channels));
  /** Whether the channels were loaded once. */
  isKnown = $state(false);
  private version = "";
  private checking = false;
  private checkAgain = false;

  constructor(
    private readonly requests: CatalogRequests,
    private readonly refused: (e: unknown) => void,
  ) {}

  get isChecking(): boolean {
    return this.checking;
  }

  /** Loads the channels if they have changed: one request at a time, and one more for what came meanwhile. */
  async check(): Promise<void> {
    if (this.checking) {
      this.checkAgain = true;
      return;
    }
    this.checking = true;
    await this.load();
    this.checking = false;
    if (this.checkAgain) {
      this.checkAgain = false;
      setTimeout(() => void this.check(), PAUSE_MS);
    }
  }

  /** Loads the channels whatever their version: versions of another opening of the store may stand for other channels. */
  recheck(): void {
    this.version = "";
    void this.check();
  }

  private async load(): Promise<void> {
    try {
      if (this.version !== "" && (await this.requests.catalogVersion()) === this.version) return;
      const { version, channels } = await this.requests.allChannels();
      this.channels = sortChannels(channels);
      this.version = version;
      this.isKnown = true;
    } catch (e) {
      this.refused(e);
    }
  }
}
