// Takes screenshots: `node e2e/look.mjs URL PREFIX [wait_ms] [script]` writes PREFIX-1920.png and PREFIX-1280.png.
import { open } from "./browser.mjs";

const [url, prefix, wait = "4000", script] = process.argv.slice(2);
const browser = await open({ width: 1920, height: 1080 });
const { page, problems } = browser;
page.on("console", (m) => console.log(m.type(), m.text()));
try {
  await page.goto(url);
  await page.waitForTimeout(Number(wait));
  for (const [width, height] of [[1920, 1080], [1280, 720]]) {
    await page.setViewportSize({ width, height });
    if (script) await page.evaluate(script);
    await page.waitForTimeout(1500);
    await page.screenshot({ path: `${prefix}-${width}.png` });
  }
  for (const problem of problems) console.log("page error:", problem);
} finally {
  await browser.close();
}
