// What operators do with layouts, in a real browser against the real server: build one, save it, send its link, meet
// someone else's change, and open one of an older page.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Browser, open } from "./browser.mjs";
import { type Server, shown, start } from "./server";

let server: Server;
let browser: Browser;

const page = () => browser.page;
const panels = () => page().getByTestId("panel");
const kinds = () => panels().evaluateAll((all) => all.map((p) => (p as HTMLElement).dataset.kind));
const name = () => page().getByTestId("layout-name");
const put = (layout: string, text: string) => fetch(`${server.url}/api/layouts/${encodeURIComponent(layout)}`, { method: "PUT", body: text });
const text = async (layout: string) => (await fetch(`${server.url}/api/layouts/${encodeURIComponent(layout)}`)).text();

/** Of an element that may not be there. */
const attribute = async (where: ReturnType<typeof name>, of: string) => ((await where.count()) > 0 ? where.first().getAttribute(of) : null);
const innerText = async (where: ReturnType<typeof name>) => (await where.allInnerTexts()).join("\n");

/** Where a panel is, px. */
const box = async (kind: string) => (await page().locator(`[data-testid="panel"][data-kind="${kind}"]`).boundingBox())!;
const add = async (kind: string) => {
  const before = await panels().count();
  await page().getByTestId("add-panel").selectOption(kind);
  await shown(`a panel of ${kind}`, async () => (await panels().count()) === before + 1);
};

beforeAll(async () => {
  server = await start("serve", null);
  browser = await open({ width: 1920, height: 1080 });
  const now = BigInt(Date.now()) * 1_000_000n;
  await server.write(`tank p=4.25,valve="OPEN" ${now}`);
  await page().goto(server.url);
  await shown("panels that the page picked", async () => (await panels().count()) > 0);
});
afterAll(async () => {
  await browser?.close();
  await server?.stop();
});

describe("layouts", () => {
  it("keep the ends of an axis that an operator sets, and say what is wrong with others", async () => {
    const plot = page().locator('[data-testid="panel"][data-kind="plot"]').first();
    await plot.hover();
    await plot.getByTestId("panel-menu").click();
    const end = (name: string) => page().getByTestId(name);
    await end("left-max").fill("2.5");
    await end("left-max").press("Tab");
    await end("left-min").fill("3");
    await end("left-min").press("Tab");
    await shown("why not", async () => (await innerText(page().getByTestId("menu").getByRole("alert"))).includes("the min below the max"));
    await end("left-min").fill("-1");
    await end("left-min").press("Tab");
    await shown("no complaint", async () => (await page().getByTestId("menu").getByRole("alert").count()) === 0);
    await end("left-min").press("Escape");
    await plot.getByTestId("panel-menu").click();
    expect([await end("left-min").inputValue(), await end("left-max").inputValue()]).toEqual(["-1", "2.5"]);
    for (const name of ["left-min", "left-max"]) {
      await end(name).fill("");
      await end(name).press("Tab");
    }
    await end("left-max").press("Escape");
  });

  it("keep a logarithmic axis and the decimals that an operator chooses", async () => {
    const plot = page().locator('[data-testid="panel"][data-kind="plot"]').first();
    const figure = plot.getByTestId("legend").locator(".figure");
    await plot.hover();
    await plot.getByTestId("panel-menu").click();
    await page().getByTestId("left-log").check();
    await page().getByTestId("left-min").fill("-1");
    await page().getByTestId("left-min").press("Tab");
    await shown("what a logarithmic axis does not have", async () => (await innerText(page().getByTestId("unplaced-ends"))).startsWith("min of the left axis"));
    await page().getByTestId("panel-decimals").selectOption("0");
    await shown("the value rounded", async () => (await innerText(figure)) === "4");
    await page().getByTestId("panel-title").press("Escape");
    await page().reload();
    await shown("still rounded", async () => (await innerText(figure)) === "4");
    await plot.hover();
    await plot.getByTestId("panel-menu").click();
    expect([await page().getByTestId("left-log").isChecked(), await page().getByTestId("right-log").isChecked()]).toEqual([true, false]);
    await page().getByTestId("left-log").uncheck();
    await page().getByTestId("left-min").fill("");
    await page().getByTestId("left-min").press("Tab");
    await page().getByTestId("panel-decimals").selectOption("");
    await shown("every digit again", async () => (await innerText(figure)) === "4.25");
    await page().getByTestId("panel-title").press("Escape");
  });

  it("have a panel of every kind, each with something to say", async () => {
    await page().setViewportSize({ width: 2560, height: 1440 });
    for (const kind of ["table", "number", "state", "alarms", "events", "sources", "gaps", "sql", "runs"]) await add(kind);
    expect(new Set(await kinds())).toEqual(
      new Set(["plot", "states", "now", "table", "number", "state", "alarms", "events", "sources", "gaps", "sql", "runs"]),
    );
    for (const kind of ["table", "number"]) {
      const panel = page().locator(`[data-testid="panel"][data-kind="${kind}"]`);
      await panel.hover();
      await panel.getByTestId("panel-menu").click();
      await page().getByTestId("panel-add").fill("tank.p");
      await page().getByTestId("panel-add").press("Enter");
      await page().getByTestId("panel-add").fill("none.*");
      await page().getByTestId("panel-add").press("Enter");
      await page().getByTestId("panel-add").press("Escape");
      await shown(`what the ${kind} cannot show`, async () => (await innerText(panel.getByTestId("panel-problem"))) === "no channel matches none.*");
    }
    await shown("the value in the table", async () => (await attribute(page().locator('[data-testid="value-row"][data-channel="tank.p"]'), "data-value")) === "4.25");
    await shown("the value as a number", async () => (await attribute(page().locator('[data-testid="number"][data-channel="tank.p"]'), "data-value")) === "4.25");
    await shown("the source", async () => (await page().getByTestId("source-row").count()) > 0);
    await shown("the state", async () => (await page().locator('[data-kind="state"] [data-testid="state-row"]').count()) > 0);
    const sql = page().locator('[data-testid="panel"][data-kind="sql"]');
    await sql.getByTestId("sql-text").fill("select 6 * 7 as answer");
    await sql.getByTestId("sql-text").press("Control+Enter");
    await shown("the answer", async () => (await innerText(sql.getByTestId("sql-table"))).includes("42"));
    expect(await page().getByTestId("time-utc").innerText()).toMatch(/^20\d\d-/);
    for (const kind of ["table", "number", "state", "alarms", "events", "sources", "gaps", "sql", "runs"]) {
      await page().locator(`[data-testid="panel"][data-kind="${kind}"]`).focus();
      await page().keyboard.press("Delete");
      await shown(`no panel of ${kind}`, async () => !(await kinds()).includes(kind));
    }
    await page().keyboard.press("Control+z");
    await shown("the panel back", async () => (await kinds()).includes("runs"));
    await page().setViewportSize({ width: 1920, height: 1080 });
  });

  it("mark an instant by a key, whenever its words come", async () => {
    await add("events");
    await page().keyboard.press("Escape");
    await page().locator('[data-testid="panel"][data-kind="events"]').focus();
    await page().keyboard.press("m");
    await shown("the question what happened", async () => (await page().getByTestId("mark").count()) === 1);
    const at = await page().getByTestId("mark").getAttribute("data-at");
    await page().getByTestId("mark-text").fill("smoke at the tower");
    await page().getByTestId("mark-text").press("Enter");
    await shown("the event in the log", async () => (await page().locator('[data-kind="events"] [data-testid="event"]').allInnerTexts()).some((t) => t.includes("smoke at the tower")));
    const { events } = (await (await fetch(`${server.url}/api/events`)).json()) as { events: { text: string; time: string }[] };
    expect(events.find((e) => e.text === "smoke at the tower")!.time).toBe(at);
  });

  it("are arranged by dragging headers and lines, and by keys", async () => {
    const [runs, events] = [await box("runs"), await box("events")];
    const area = (await page().getByTestId("area").boundingBox())!;
    // To the left edge of all panels.
    await page().mouse.move(events.x + 40, events.y + 16);
    await page().mouse.down();
    await page().mouse.move(area.x + 200, area.y + 300, { steps: 4 });
    await page().mouse.move(area.x + 4, area.y + 300, { steps: 4 });
    await page().mouse.up();
    await shown("the log at the left", async () => { const b = await box("events"); return Math.abs(b.x - area.x) < 3 && b.height > area.height - 5; });
    // The line to its right.
    const before = await box("events");
    await page().mouse.move(before.x + before.width, before.y + 200);
    await page().mouse.down();
    await page().mouse.move(before.x + before.width - 120, before.y + 200, { steps: 5 });
    await page().mouse.up();
    await shown("a narrower log", async () => Math.abs((await box("events")).width - (before.width - 120)) < 4);
    await page().locator('[data-testid="panel"][data-kind="events"]').focus();
    await page().keyboard.press("Shift+ArrowRight");
    await shown("a wider log", async () => (await box("events")).width > before.width - 110);
    // Over another: both are tabs of one place.
    const [from, to] = [await box("runs"), await box("plot")];
    expect(runs.width).toBeGreaterThan(50);
    await page().mouse.move(from.x + 40, from.y + 16);
    await page().mouse.down();
    await page().mouse.move(to.x + to.width / 2, to.y + to.height / 2, { steps: 8 });
    await page().mouse.up();
    await shown("two tabs", async () => (await page().getByTestId("tab").count()) === 2);
    expect(await page().getByTestId("tab").allInnerTexts()).toContain("Runs and time");
    await page().locator('[data-testid="panel"][data-kind="runs"]').focus();
    await page().keyboard.press("[");
    await shown("the plot in front", async () => (await kinds()).includes("plot") && !(await kinds()).includes("runs"));
  });

  it("are saved on the server and opened by their link, by someone else, as they were", async () => {
    expect(await name().getAttribute("data-changed")).toBe("true");
    await name().click();
    await page().getByTestId("layout-save-name").fill("Launch day");
    await page().getByTestId("layout-save").click();
    await shown("saved", async () => (await name().getAttribute("data-name")) === "Launch day" && (await name().getAttribute("data-changed")) === "false");
    expect(page().url()).toContain("#layout=Launch+day");
    const other = await open({ width: 1920, height: 1080 });
    try {
      await other.page.goto(page().url());
      await shown("the same panels", async () => JSON.stringify(await other.page.getByTestId("panel").evaluateAll((all) => all.map((p) => (p as HTMLElement).dataset.kind))) === JSON.stringify(await kinds()));
      const there = (await other.page.locator('[data-testid="panel"][data-kind="events"]').boundingBox())!;
      const here = await box("events");
      expect(Math.abs(there.width - here.width)).toBeLessThan(2);
      expect(other.problems).toEqual([]);
    } finally {
      await other.close();
    }
  });

  it("are not written over unseen", async () => {
    const theirs = JSON.parse(await text("Launch day")) as { panels: { title: string }[] };
    theirs.panels[0]!.title = "Theirs";
    expect((await put("Launch day", JSON.stringify(theirs))).status).toBe(200);
    await page().keyboard.press("Escape");
    await add("gaps");
    await name().click();
    await page().getByTestId("layout-save").click();
    await shown("the conflict", async () => (await innerText(page().getByTestId("layout-problem"))).includes("changed meanwhile"));
    expect(JSON.parse(await text("Launch day")).panels[0].title).toBe("Theirs");
    await page().getByTestId("take-theirs").click();
    await shown("theirs", async () => (await panels().evaluateAll((all) => all.map((p) => p.getAttribute("aria-label")))).includes("Theirs") && !(await kinds()).includes("gaps"));
    expect(await name().getAttribute("data-changed")).toBe("false");
  });

  it("of an older page are read, of a newer one and broken ones are refused in words", async () => {
    const old = { version: 1, title: "old", panels: [
      { kind: "plot", title: "A", channels: ["tank.p"], span_s: 120, width: 8, height: 2 }, { kind: "now", title: "B", channels: ["tank.p"], width: 4, height: 1 },
    ] };
    expect((await put("old", JSON.stringify(old))).status).toBe(201);
    expect((await put("odd", '{"version":2,"title":"","panels":[{"kind":"pie"}],"root":null}')).status).toBe(201);
    expect((await put("new", '{"version":3}')).status).toBe(422);
    await page().goto(`${server.url}/#layout=old`);
    await page().reload();
    await shown("the old layout", async () => JSON.stringify(await kinds()) === JSON.stringify(["plot", "now"]));
    const [plot, now] = [await box("plot"), await box("now")];
    expect(plot.width / now.width).toBeCloseTo(2, 1);
    for (const [layout, why] of [["odd", 'no kind of panel "pie"'], ["none", 'no layout "none"']] as const) {
      await page().goto(`${server.url}/#layout=${layout}`);
      await page().reload();
      await shown(why, async () => (await innerText(page().getByTestId("desk-problem"))).includes(why));
      // The page stands all the same.
      await shown("panels", async () => (await panels().count()) > 0);
    }
  });

  it("say in a panel which of many channels it shows, and show the others page by page", async () => {
    const now = BigInt(Date.now()) * 1_000_000n;
    await server.write(`many ${Array.from({ length: 60 }, (_, i) => `c${i}=${i}`).join(",")} ${now}`);
    await add("plot");
    const plot = page().locator('[data-testid="panel"][data-kind="plot"]').last();
    await plot.hover();
    await plot.getByTestId("panel-menu").click();
    await page().getByTestId("panel-add").fill("many.*");
    await page().getByTestId("panel-add").press("Enter");
    await page().getByTestId("panel-add").press("Escape");
    const names = () => plot.getByTestId("legend").evaluateAll((all) => all.map((e) => (e as HTMLElement).dataset.channel));
    await shown("the first page", async () => (await innerText(plot.getByTestId("panel-shown"))).includes("Channels 1–24 of 60") && (await names()).length === 24);
    expect((await names())[23]).toBe("many.c23");
    await plot.getByTestId("panel-next").click();
    await plot.getByTestId("panel-next").click();
    await shown("the last page", async () => (await innerText(plot.getByTestId("panel-shown"))).includes("Channels 49–60 of 60") && (await names())[11] === "many.c59");
    await plot.focus();
    await page().keyboard.press("Delete");
  });

  it("never threw", () => expect(browser.problems).toEqual([]));
});
