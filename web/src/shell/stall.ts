// The page's side of the stall watch: says "alive" to the worker, and gives it the banner to show when it does not.
import type { ToWorker } from "./stall.worker";
import { theme } from "../plot/theme";

/** The time of the last data in the banner is at most this old. */
const BANNER_MS = 1000;

/** Starts the watch on `canvas`; `alive` must be called several times a second with the words on the last data. */
export function watchStalls(canvas: HTMLCanvasElement): { alive: (words: string) => void; end: () => void } {
  if (!("transferControlToOffscreen" in canvas)) return { alive: () => {}, end: () => {} };
  const worker = new Worker(new URL("./stall.worker.ts", import.meta.url), { type: "module" });
  const tell = (message: ToWorker, moved: Transferable[] = []) => worker.postMessage(message, moved);
  const offscreen = canvas.transferControlToOffscreen();
  tell({ canvas: offscreen }, [offscreen]);
  const sheet = new OffscreenCanvas(1, 1);
  let drawnMs = -Infinity;
  let drawn = "";

  function picture(words: string): void {
    const width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
    const height = Math.max(1, Math.round(canvas.clientHeight * devicePixelRatio));
    const text = `NOT LIVE · this page stalled · ${words}`;
    const all = `${width} ${height} ${text}`;
    const ctx = sheet.getContext("2d");
    if (all === drawn || !ctx) return;
    drawn = all;
    sheet.width = width;
    sheet.height = height;
    const { crit, mono } = theme();
    ctx.fillStyle = crit;
    ctx.fillRect(0, 0, width, height);
    ctx.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--on-colour");
    ctx.font = `650 ${16 * devicePixelRatio}px ${mono}`;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.fillText(text, width / 2, height / 2);
    const banner = sheet.transferToImageBitmap();
    tell({ banner }, [banner]);
  }

  return {
    alive(words) {
      tell("alive");
      const ms = performance.now();
      if (ms - drawnMs < BANNER_MS) return;
      drawnMs = ms;
      picture(words);
    },
    end: () => worker.terminate(),
  };
}
