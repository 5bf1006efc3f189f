// The connection to /api/live: opens, subscribes, reconnects with back-off. It knows nothing of screens.
import { decode } from "./binary";
import type { ServerMessage, Subscribe } from "./message";

/** The part of a browser's WebSocket that is used here. */
export type Socket = Pick<WebSocket, "onmessage" | "onclose" | "send" | "close">;

export interface StreamEnds {
  open(): Socket;
  /** Monotonic ms. */
  now(): number;
  /** Runs `run` after `ms`; answers how to call it off. */
  after(ms: number, run: () => void): () => void;
  /** 0 to 1, spreads reconnections of many pages. */
  random(): number;
  message(message: ServerMessage): void;
  closed(): void;
}

export const FIRST_RETRY_MS = 250;
export const LONGEST_RETRY_MS = 5000;
/** A connection on which nothing was heard for so long is given up (half-open after a cable was pulled). */
export const DEAF_LIMIT_MS = 8000;

export class Stream {
  private socket: Socket | null = null;
  private greeted = false;
  private retryMs = FIRST_RETRY_MS;
  private cancelRetry: (() => void) | null = null;
  private heardMs = 0;
  private nextId = 1;
  private subscriptions = new Map<number, Subscribe>();
  private ended = false;

  constructor(private readonly ends: StreamEnds) {}

  /** Opens the connection and keeps it open until `end`. */
  start(): void {
    if (this.socket || this.ended) return;
    this.cancelRetry?.();
    this.cancelRetry = null;
    this.greeted = false;
    this.heardMs = this.ends.now();
    let socket: Socket;
    try {
      socket = this.ends.open();
    } catch {
      // Refused at once, by the page's policy or an address that is none: like a connection that was lost.
      this.lost();
      return;
    }
    this.socket = socket;
    socket.onmessage = (event) => {
      if (socket !== this.socket) return;
      this.heardMs = this.ends.now();
      this.receive(event.data as string | ArrayBuffer);
    };
    socket.onclose = () => {
      if (socket === this.socket) this.lost();
    };
  }

  /** Closes for good. */
  end(): void {
    this.ended = true;
    this.cancelRetry?.();
    this.socket?.close();
    this.socket = null;
  }

  /** Tries at once instead of waiting for the back-off (the page became visible, the network came back). */
  hurry(): void {
    if (this.socket === null) this.start();
  }

  /** Runs now and then: gives up a connection that has been deaf for too long. */
  tick(): void {
    if (this.socket && this.ends.now() - this.heardMs > DEAF_LIMIT_MS) {
      const socket = this.socket;
      this.lost();
      socket.close();
    }
  }

  /** Subscribes now and after each reconnection; answers the subscription's id. */
  subscribe(what: Subscribe): number {
    const id = this.nextId++;
    this.subscriptions.set(id, what);
    if (this.greeted) this.sendSubscribe(id, what);
    return id;
  }

  unsubscribe(id: number): void {
    if (this.subscriptions.delete(id) && this.greeted) this.send({ type: "unsubscribe", id });
  }

  private receive(data: string | ArrayBuffer): void {
    let message: ServerMessage | null;
    try {
      message = typeof data === "string" ? (JSON.parse(data) as ServerMessage) : decode(data);
    } catch {
      // Not our protocol: nothing after it can be trusted. The close path reconnects with back-off.
      this.socket?.close();
      return;
    }
    if (message === null) return;
    if (message.type === "hello") {
      this.greeted = true;
      this.retryMs = FIRST_RETRY_MS;
      this.ends.message(message);
      for (const [id, what] of this.subscriptions) this.sendSubscribe(id, what);
      return;
    }
    this.ends.message(message);
  }

  private sendSubscribe(id: number, what: Subscribe): void {
    this.send({ type: "subscribe", id, ...what });
  }

  private send(message: object): void {
    this.socket?.send(JSON.stringify(message));
  }

  private lost(): void {
    this.socket = null;
    this.greeted = false;
    this.ends.closed();
    if (this.ended) return;
    const wait = this.retryMs * (0.75 + 0.5 * this.ends.random());
    this.retryMs = Math.min(LONGEST_RETRY_MS, this.retryMs * 2);
    this.cancelRetry = this.ends.after(wait, () => {
      this.cancelRetry = null;
      this.start();
    });
  }
}
