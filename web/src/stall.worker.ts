// Watches the page from outside its loop: a page that hangs cannot grey its own values, so this worker draws
// the banner over it, on a canvas of its own that the compositor shows whatever the page does.
import { STALL_LIMIT_MS } from "./liveness";

export type ToWorker =
  | { canvas: OffscreenCanvas; font: string; ground: string; ink: string }
  | { width: number; height: number; ratio: number }
  | { alive: string };

const CHECK_MS = 250;

let canvas: OffscreenCanvas | null = null;
let style = { font: "", ground: "", ink: "" };
let ratio = 1;
let lastMs = performance.now();
/** What the page last said of its data. */
let words = "";
let shown = false;

function draw(): void {
  const ctx = canvas?.getContext("2d");
  if (!canvas || !ctx) return;
  ctx.setTransform(1, 0, 0, 1, 0, 0);
  ctx.fillStyle = style.ground;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.fillStyle = style.ink;
  ctx.font = `650 ${13 * ratio}px ${style.font}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  const seconds = Math.floor((performance.now() - lastMs) / 1000);
  ctx.fillText(`NOT LIVE · this page stalled ${seconds} s ago · ${words}`, canvas.width / 2, canvas.height / 2);
}

function clear(): void {
  canvas?.getContext("2d")?.clearRect(0, 0, canvas.width, canvas.height);
}

onmessage = (event: MessageEvent<ToWorker>) => {
  const message = event.data;
  if ("alive" in message) {
    lastMs = performance.now();
    words = message.alive;
    if (shown) clear();
    shown = false;
  } else if ("canvas" in message) {
    canvas = message.canvas;
    style = message;
    clear();
  } else if (canvas) {
    canvas.width = message.width;
    canvas.height = message.height;
    ratio = message.ratio;
    if (shown) draw();
  }
};

setInterval(() => {
  if (performance.now() - lastMs <= STALL_LIMIT_MS) return;
  shown = true;
  draw();
}, CHECK_MS);
