// Measures what the page costs: `node e2e/load.mjs URL [seconds] [plots]` opens that many plots of the first
// channels, then prints the share of a core that the page's main thread used and how its heap grew.
import { open } from "./browser.mjs";

const [url, seconds = "30", plots = "8"] = process.argv.slice(2);
const browser = await open({ width: 1920, height: 1080 });
const { page } = browser;
try {
  await page.goto(url);
  await page.waitForFunction(() => document.querySelector('[data-testid="mode"]')?.dataset.mode === "live");
  const { channels } = await (await page.request.get(new URL("/api/channels?limit=2000", url).href)).json();
  const view = await (await page.request.get(new URL("/api/view", url).href)).json();
  const lines = channels.filter((c) => c.type.startsWith("f") && !c.table.startsWith("strongback."));
  const panels = Array.from({ length: Number(plots) }, (_, i) => ({
    kind: "plot", title: `plot ${i + 1}`, channels: lines.slice(i * 3, i * 3 + 3).map((c) => c.name), span_s: 60, width: 3, height: 1,
  }));
  await page.evaluate(
    ([key, text]) => localStorage.setItem(key, text),
    [`strongback.view.${view?.title ?? ""}`, JSON.stringify({ v: 1, title: "load", panels })],
  );
  await page.reload();
  await page.waitForTimeout(5000);
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const metrics = async () => {
    await session.send("HeapProfiler.collectGarbage");
    const { metrics: list } = await session.send("Performance.getMetrics");
    return Object.fromEntries(list.map((m) => [m.name, m.value]));
  };
  const before = await metrics();
  const begin = performance.now();
  await page.waitForTimeout(Number(seconds) * 1000);
  const after = await metrics();
  const elapsed = (performance.now() - begin) / 1000;
  const share = (name) => `${(((after[name] - before[name]) / elapsed) * 100).toFixed(1)} %`;
  console.log(JSON.stringify({
    plots: Number(plots), channels: lines.length, seconds: Math.round(elapsed), main_thread: share("TaskDuration"),
    script: share("ScriptDuration"), layout: share("LayoutDuration"), style: share("RecalcStyleDuration"),
    heap_mb: [before, after].map((m) => +(m.JSHeapUsedSize / 1e6).toFixed(2)), nodes: [before.Nodes, after.Nodes],
    live: await page.getByTestId("mode").getAttribute("data-mode"),
  }));
} finally {
  await browser.close();
}
