// Measures what the page costs: `node e2e/load.mjs URL [seconds] [plots] [rounds]` saves a layout of that many plots on the
// server, opens it in a fresh browser at 5 updates a second each, and prints, one JSON object a line: how long until the
// first plot was drawn with a value and what was transferred for it; then for each round of so many seconds the share of a
// core that the page's main thread and its whole renderer used, its heap after a collection, and its nodes.
import { readFileSync, readdirSync } from "node:fs";
import { open } from "./browser.mjs";

const [url, seconds = "30", plots = "8", rounds = "1"] = process.argv.slice(2);
const { channels } = await (await fetch(new URL("/api/channels?limit=2000", url))).json();
const lines = channels.filter((c) => c.type.startsWith("f") && !c.table.startsWith("strongback."));
const panels = Array.from({ length: Number(plots) }, (_, i) => ({
  id: `p${i + 1}`, kind: "plot", title: `plot ${i + 1}`, channels: lines.slice(i * 3, i * 3 + 3).map((c) => c.name), span_s: 60,
}));
const row = (of) => ({ way: "row", sizes: of.map(() => 1 / of.length), children: of.map((p) => ({ tabs: [p.id], shown: p.id })) });
const half = Math.ceil(panels.length / 2);
const root = { way: "column", sizes: [0.5, 0.5], children: [row(panels.slice(0, half)), row(panels.slice(half))] };
const saved = await fetch(new URL("/api/layouts/load", url), {
  method: "PUT", headers: { "content-type": "application/json" }, body: JSON.stringify({ version: 2, title: "load", root, panels }),
});
if (!saved.ok) throw new Error(`the layout was not saved: ${saved.status} ${await saved.text()}`);

/** Processor time of this browser's renderers, in seconds: user and system time are the 14th and 15th field of a process. */
function rendererSeconds() {
  const processes = new Map();
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const fields = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /s, "").split(" ");
      const command = readFileSync(`/proc/${pid}/cmdline`, "utf8");
      processes.set(pid, { parent: fields[1], ticks: Number(fields[11]) + Number(fields[12]), renders: command.includes("--type=renderer") });
    } catch {
      // It ended meanwhile.
    }
  }
  const ours = (pid) => pid === String(process.pid) || (processes.has(pid) && ours(processes.get(pid).parent));
  return [...processes].filter(([pid, p]) => p.renders && ours(pid)).reduce((sum, [, p]) => sum + p.ticks, 0) / 100;
}

const browser = await open({ width: 1920, height: 1080 });
const { page, problems } = browser;
try {
  let bytes = 0;
  const session = await page.context().newCDPSession(page);
  await session.send("Network.enable");
  session.on("Network.loadingFinished", (e) => (bytes += e.encodedDataLength));
  const opened = performance.now();
  await page.goto(new URL("/#layout=load", url).href);
  await page.waitForFunction(() => {
    const legend = document.querySelector('[data-testid="plot"]') && document.querySelector('[data-testid="legend"][data-max]');
    return legend !== null && Number.isFinite(Number.parseFloat(legend.dataset.max));
  }, undefined, { polling: 10 });
  console.log(JSON.stringify({ first_plot_ms: Math.round(performance.now() - opened), transferred_kb: +(bytes / 1e3).toFixed(1) }));
  await page.waitForTimeout(5000);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const metrics = async () => {
    await session.send("HeapProfiler.collectGarbage");
    const { metrics: list } = await session.send("Performance.getMetrics");
    return { ...Object.fromEntries(list.map((m) => [m.name, m.value])), renderer: rendererSeconds() };
  };
  let before = await metrics();
  for (let round = 1; round <= Number(rounds); round++) {
    const begin = performance.now();
    await page.waitForTimeout(Number(seconds) * 1000);
    const elapsed = (performance.now() - begin) / 1000;
    const after = await metrics();
    const share = (name) => `${(((after[name] - before[name]) / elapsed) * 100).toFixed(1)} %`;
    console.log(JSON.stringify({
      round, plots: Number(plots), seconds: Math.round(elapsed), main_thread: share("TaskDuration"), script: share("ScriptDuration"),
      renderer: share("renderer"), heap_mb: +(after.JSHeapUsedSize / 1e6).toFixed(2), nodes: after.Nodes,
      listeners: after.JSEventListeners, mode: await page.getByTestId("mode").getAttribute("data-mode"), errors: problems.length,
    }));
    before = after;
  }
} finally {
  await browser.close();
}
