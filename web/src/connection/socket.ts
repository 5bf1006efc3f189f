// A Stream as a browser has it: over a WebSocket, by its clock and timers.
import { PROTOCOL } from "./binary";
import { Stream, type StreamEnds } from "./stream";

/** A connection to `url`, asked for again each time it is opened. */
export function overWebSocket(url: () => string, hear: Pick<StreamEnds, "message" | "closed">): Stream {
  return new Stream({
    open: () => {
      const socket = new WebSocket(url(), PROTOCOL);
      socket.binaryType = "arraybuffer";
      return socket;
    },
    now: () => performance.now(),
    after: (ms, run) => {
      const timer = setTimeout(run, ms);
      return () => clearTimeout(timer);
    },
    random: Math.random,
    ...hear,
  });
}
