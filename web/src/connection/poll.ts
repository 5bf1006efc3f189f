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

/** Between an answer and the next question lies as long as the answer took, within these: who asks much leaves time. */
const PAUSE_MS = { least: 100, most: 2000 };

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
        const took = clock.now() - begin;
        const pause = Math.min(PAUSE_MS.most, Math.max(PAUSE_MS.least, took));
        callOff = clock.after(Math.max(pause, everyMs - took), () => void turn());
      }
    }
  };
  void turn();
  return () => {
    end.abort();
    callOff();
  };
}
