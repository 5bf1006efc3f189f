// Takes the pictures of docs/page.md from a demo that has gone on for three minutes: `node e2e/pictures.mjs URL FOLDER`.
// Saves two layouts on the server on the way.
import { open } from "./browser.mjs";

const [url, folder] = process.argv.slice(2);
const panel = (id, kind, title, channels = [], more = {}) => ({ id, kind, title, channels, span_s: 120, ...more });
const leaf = (...tabs) => ({ tabs, shown: tabs[0] });
const row = (sizes, ...children) => ({ way: "row", sizes, children });
const column = (sizes, ...children) => ({ way: "column", sizes, children });
const values = "avionics.sensor_values";

const layouts = {
  "Launch pad": {
    panels: [
      panel("a", "plot", "LOX tank", [`${values}.p_lox_tank{acu=1}`, `${values}.p_lox_ullage_sp{acu=1}`]),
      panel("b", "plot", "Engine bay", ["fti.bay.t_turbopump", "fti.bay.t_gg_wall", `${values}.bus_28v{acu=1}`]),
      panel("c", "states", "Valves and states", ["plc.lox.fill_valve", "plc.lox.vent_valve", "plc.lox.press_valve", "plc.gse.umbilical", "avionics.gnc.mode"]),
      panel("d", "number", "Tanks", [`${values}.p_lox_tank{acu=1}`, `${values}.p_fuel_tank{acu=1}`]),
      panel("e", "alarms", "Alarms"), panel("f", "events", "Event log"),
    ],
    root: column([0.58, 0.42], row([0.55, 0.45], leaf("a"), leaf("b")), row([0.4, 0.2, 0.2, 0.2], leaf("c"), leaf("d"), leaf("e"), leaf("f"))),
  },
  "Health": {
    panels: [
      panel("a", "table", "Guidance", ["avionics.gnc.*"]), panel("b", "sources", "Source health"), panel("c", "gaps", "Gaps"),
      panel("d", "sql", "SQL", [], { text: "select name, status, received, lost\nfrom strongback.sources" }),
      panel("e", "state", "State at a time", [], { text: "tank" }), panel("f", "runs", "Runs and time"), panel("g", "now", "Now", [`${values}.p_*{acu=1}`]),
    ],
    root: row([0.36, 0.34, 0.3], column([0.58, 0.42], leaf("a"), leaf("g")), column([0.3, 0.3, 0.4], leaf("b"), leaf("c"), leaf("e")), column([0.5, 0.5], leaf("d"), leaf("f"))),
  },
};

const browser = await open({ width: 1920, height: 1080 });
const { page, problems } = browser;
const rest = () => page.waitForTimeout(1500);
const size = async (width, height) => {
  await page.setViewportSize({ width, height });
  await rest();
};
const screens = async (name, sizes = [[1920, 1080], [1280, 720]]) => {
  for (const [width, height] of sizes) {
    await size(width, height);
    await page.screenshot({ path: `${folder}/${name}-${width}.png` });
  }
};
const layout = async (name) => {
  await size(1920, 1080);
  await page.goto(`${url}/#layout=${encodeURIComponent(name)}`);
  await page.reload();
  await page.locator("[data-testid=panel]").first().waitFor();
  await page.waitForTimeout(3000);
};
const kinds = async (...names) => {
  for (const [width, height] of [[1920, 1080], [1280, 720]]) {
    await size(width, height);
    for (const kind of names) await page.locator(`[data-testid="panel"][data-kind="${kind}"]`).first().screenshot({ path: `${folder}/${kind}-${width}.png` });
  }
};

try {
  for (const [name, { panels, root }] of Object.entries(layouts)) {
    await fetch(`${url}/api/layouts/${encodeURIComponent(name)}`, { method: "PUT", body: JSON.stringify({ version: 2, title: name, panels, root }) });
  }
  await layout("Health");
  await page.getByTestId("sql-run").click();
  await page.mouse.click(900, 20);
  await screens("health");
  await kinds("table", "sources", "gaps", "sql", "state", "runs", "now");
  await layout("Launch pad");
  await screens("pad", [[1920, 1080], [1280, 720], [2560, 1440]]);
  await kinds("plot", "states", "number", "alarms", "events");
  const plot = await page.getByTestId("plot").first().boundingBox();
  await page.mouse.move(plot.x + plot.width * 0.5, plot.y + 100);
  for (let i = 0; i < 3; i++) await page.mouse.wheel(0, 100);
  await screens("history");
  await page.keyboard.press("l");
  await page.getByTitle("Dark or light").click();
  await screens("light");
  await page.getByTitle("Dark or light").click();
  await page.keyboard.press("p");
  await page.getByTestId("replay-from").fill("now-2m");
  await page.getByTestId("replay-to").fill("now");
  await page.getByTestId("replay-start").click();
  await page.waitForTimeout(4000);
  await screens("replay");
  await page.keyboard.press("l");
  for (const problem of problems) console.log("page error:", problem);
} finally {
  await browser.close();
}
