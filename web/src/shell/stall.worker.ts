// Watches the page from outside its loop: a page that hangs cannot grey its own values, so this worker puts the
// banner over it, on a canvas of its own that the compositor shows whatever the page does. The banner comes
// from the page as a picture: a worker cannot write text while its page hangs (fonts are the page's).
import { STALL_LIMIT_MS } from "../state/liveness";

export type ToWorker = { canvas: OffscreenCanvas } | { banner: ImageBitmap } | "alive";

const CHECK_MS = 250;

let canvas: OffscreenCanvas | null = null;
let banner: ImageBitmap | null = null;
let lastMs = performance.now();
let shown = false;

function show(): void {
  const ctx = canvas?.getContext("2d");
  if (!canvas || !ctx || !banner) return;
  ctx.drawImage(banner, 0, 0, canvas.width, canvas.height);
  shown = true;
}

function hide(): void {
  canvas?.getContext("2d")?.clearRect(0, 0, canvas.width, canvas.height);
  shown = false;
}

onmessage = (event: MessageEvent<ToWorker>) => {
  const message = event.data;
  if (message === "alive") {
    lastMs = performance.now();
    if (shown) hide();
  } else if ("canvas" in message) {
    canvas = message.canvas;
    hide();
  } else {
    banner?.close();
    banner = message.banner;
    if (canvas && (canvas.width !== banner.width || canvas.height !== banner.height)) {
      canvas.width = banner.width;
      canvas.height = banner.height;
    }
  }
};

setInterval(() => {
  if (performance.now() - lastMs > STALL_LIMIT_MS) show();
}, CHECK_MS);
