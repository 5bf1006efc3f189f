// The page's side of the stall watch: says "alive" to the worker, and gives it the canvas for its banner.
import { theme } from "./theme";
import type { ToWorker } from "./stall.worker";

/** Starts the watch on `canvas`; the answered function must be called several times a second with the words to show. */
export function watchStalls(canvas: HTMLCanvasElement): { alive: (words: string) => void; end: () => void } {
  if (!("transferControlToOffscreen" in canvas)) return { alive: () => {}, end: () => {} };
  const worker = new Worker(new URL("./stall.worker.ts", import.meta.url), { type: "module" });
  const tell = (message: ToWorker, moved: Transferable[] = []) => worker.postMessage(message, moved);
  const offscreen = canvas.transferControlToOffscreen();
  const t = theme();
  tell({ canvas: offscreen, font: t.mono, ground: t.crit, ink: "#0a0e13" }, [offscreen]);
  const size = () =>
    tell({
      width: Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio)),
      height: Math.max(1, Math.round(canvas.clientHeight * devicePixelRatio)),
      ratio: devicePixelRatio,
    });
  const observer = new ResizeObserver(size);
  observer.observe(canvas);
  size();
  return {
    alive: (words) => tell({ alive: words }),
    end: () => {
      observer.disconnect();
      worker.terminate();
    },
  };
}
