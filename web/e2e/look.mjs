// Takes screenshots: `node e2e/look.mjs URL PREFIX [wait_ms]` writes PREFIX-1280.png and PREFIX-1920.png.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { chromiumFlags, chromiumPath } from "./browser.mjs";

const [url, prefix, wait = "4000", prepare] = process.argv.slice(2);
const profile = mkdtempSync(join(tmpdir(), "strongback-look-"));
const browser = await chromium.launchPersistentContext(profile, {
  executablePath: chromiumPath, args: chromiumFlags, headless: true, viewport: { width: 1920, height: 1080 },
});
const page = browser.pages()[0] ?? (await browser.newPage());
page.on("console", (m) => console.log(m.type(), m.text()));
page.on("pageerror", (e) => console.log("page error:", e.message, e.stack));
try {
  await page.goto(url);
  await page.waitForTimeout(Number(wait));
  if (prepare) {
    await page.evaluate(prepare);
    await page.waitForTimeout(1500);
  }
  for (const [width, height] of [[1920, 1080], [1280, 720]]) {
    await page.setViewportSize({ width, height });
    await page.waitForTimeout(1200);
    await page.screenshot({ path: `${prefix}-${width}.png` });
  }
} finally {
  await browser.close();
  rmSync(profile, { recursive: true, force: true });
}
