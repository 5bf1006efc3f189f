// The browser of the end-to-end tests: the system's Chromium with a fresh profile, quiet, no word to the internet.
import { readFileSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { chromium } from "playwright-core";

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const args = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
];
const dist = new URL("../dist/", import.meta.url).pathname;
const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2", ".txt": "text/plain" };

/**
 * Opens a browser; `close` ends it and removes its profile. With STRONGBACK_PAGE=dist the page's own files come
 * from `dist` instead of from the binary, so that a page can be tried on a server that was built with another.
 */
export async function open(viewport = { width: 1280, height: 720 }) {
  const profile = mkdtempSync(join(tmpdir(), "strongback-browser-"));
  const fromDist = process.env.STRONGBACK_PAGE === "dist";
  // Files that are put in have no address: Chromium would take them for the internet's and keep them from 127.0.0.1.
  const flags = fromDist ? [...args, "--disable-features=LocalNetworkAccessChecks"] : args;
  const context = await chromium.launchPersistentContext(profile, { executablePath, args: flags, headless: true, viewport });
  if (fromDist) {
    await context.route((url) => !/^\/(api|write|query|ping|health|metrics)/.test(url.pathname), (route) => {
      const { pathname } = new URL(route.request().url());
      const path = join(dist, pathname === "/" ? "index.html" : pathname);
      return existsSync(path)
        ? route.fulfill({ body: readFileSync(path), contentType: types[extname(path)] ?? "application/octet-stream" })
        : route.fulfill({ status: 404, body: "" });
    });
  }
  const page = context.pages()[0] ?? (await context.newPage());
  const problems = [];
  page.on("pageerror", (e) => problems.push(`${e.message}\n${e.stack}`));
  return {
    page,
    /** Uncaught errors of the page so far. */
    problems,
    async close() {
      await context.close();
      rmSync(profile, { recursive: true, force: true });
    },
  };
}
