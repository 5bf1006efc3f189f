// Asks again and again, never twice at once: the next question waits for the answer to the last.

export interface PollClock {
  /** Monotonic, ms. */
  now(): number;
  /** Runs later; the answered function calls it off. */
  after(ms: number, run: () => void): () => void;
}

/** The browser's own. */
export const pageClock: PollClock = {
  now: () => performance.now(),
  after(ms, run) {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
};

/** After an answer that took longer than its turn, at least this long is waited. */
const LEAST_PAUSE_MS = 100;

/**
 * Asks at once and then every `everyMs`, counted from when it last asked. `ask` handles its own failures; its
 * signal aborts when the answered function is called, after which nothing is asked any more.
 */
export function poll(everyMs: number, ask: (signal: AbortSignal) => Promise<void>, clock: PollClock = pageClock): () => void {
  const end = new AbortController();
  let callOff = () => {};
  const turn = async () => {
    const begin = clock.now();
    try {
      await ask(end.signal);
    } finally {
      if (!end.signal.aborted) {
        callOff = clock.after(Math.max(LEAST_PAUSE_MS, everyMs - (clock.now() - begin)), () => void turn());
      }
    }
  };
  void turn();
  return () => {
    end.abort();
    callOff();
  };
}
