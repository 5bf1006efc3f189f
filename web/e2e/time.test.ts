// Looking at another time than now, in a real browser against the real server: the picture is stopped and goes on, a
// plot looks at the past while the rest is live, and every panel says so.
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Browser, open } from "./browser.mjs";
import { type Server, shown, start } from "./server";

let server: Server;
let browser: Browser;
let sending: ReturnType<typeof setInterval>;
let sent = 0;
/** The value of one millisecond, long before the span of the plot. */
const SPIKE = 512.25;
let spikeNs = 0n;

const page = () => browser.page;
const nowNs = () => BigInt(Date.now()) * 1_000_000n;
const panel = (kind: string) => page().locator(`[data-testid="panel"][data-kind="${kind}"]`);
const tile = () => page().locator('[data-testid="tile"][data-channel="tank.p{acu=1}"]');
const value = async () => Number(await tile().getAttribute("data-value"));
const words = () => page().getByTestId("panel").evaluateAll((all) => all.map((p) => (p.querySelector("[data-testid=not-live]") as HTMLElement | null)?.dataset.word ?? "LIVE"));
const shows = () => page().getByTestId("mode").getAttribute("data-shows");

beforeAll(async () => {
  server = await start("serve", null);
  browser = await open({ width: 1920, height: 1080 });
  // Ten minutes of the past, a value a second and one spike.
  const begin = nowNs() - 600_000_000_000n;
  spikeNs = begin + 120_001_000_000n;
  const past = Array.from({ length: 590 }, (_, i) => `tank,acu=1 p=${i % 10},valve="${i % 60 < 30 ? "OPEN" : "CLOSED"}" ${begin + BigInt(i) * 1_000_000_000n}`);
  await server.write([...past, `tank,acu=1 p=${SPIKE} ${spikeNs}`].join("\n"));
  sending = setInterval(() => void server.write(`tank,acu=1 p=${1000 + ++sent} ${nowNs()}`).catch((e: unknown) => console.error(String(e))), 100);
  await page().goto(server.url);
  await shown("a value", async () => (await tile().count()) > 0 && (await value()) > 1000);
});
afterAll(async () => {
  clearInterval(sending);
  await browser?.close();
  await server?.stop();
});

describe("a picture that is stopped", () => {
  it("stands, says PAUSED with its time on every panel, and goes on", async () => {
    await page().keyboard.press(" ");
    await shown("paused", async () => (await shows()) === "paused");
    const [then, clock, told] = [await value(), await page().getByTestId("utc").innerText(), sent];
    expect(new Set(await words())).toEqual(new Set(["PAUSED"]));
    expect(await page().getByTestId("not-live").first().innerText()).toMatch(/^PAUSED \d\d:\d\d:\d\d\.\d\d\d$/);
    await shown("new values at the server", async () => sent > told + 20);
    expect([await value(), await page().getByTestId("utc").innerText()]).toEqual([then, clock]);
    // Not old either: it shows an instant, and ages are those of the instant.
    expect(await tile().getAttribute("data-stale")).toBe("false");
    expect(await page().getByTestId("mode").innerText()).toContain("PAUSED");
    // No figure of now stands beside it, but the clock, which says so.
    expect(await page().getByTestId("rate").innerText()).toContain("–");
    expect(await page().getByTestId("present").innerText()).toMatch(/^now \d\d:\d\d:\d\d$/);

    // A panel that is opened meanwhile shows the same instant.
    await page().getByTestId("add-panel").selectOption("table");
    await panel("table").hover();
    await panel("table").getByTestId("panel-menu").click();
    await page().getByTestId("panel-add").fill("tank.*");
    await page().getByTestId("panel-add").press("Enter");
    await page().getByTestId("panel-add").press("Escape");
    const row = page().locator('[data-testid="value-row"][data-channel="tank.p{acu=1}"]');
    await shown("the value of the instant", async () => (await row.count()) > 0 && Number(await row.getAttribute("data-value")) === then);
    expect(await words()).not.toContain("LIVE");

    await server.write(`tank,acu=1 valve="MOVED" ${nowNs()}`);
    await page().keyboard.press("l");
    const valve = page().locator('[data-testid="value-row"][data-channel="tank.valve{acu=1}"]');
    await shown("what changed once meanwhile", async () => (await valve.count()) > 0 && (await valve.getAttribute("data-value")) === "MOVED");
    await shown("live, with new values", async () => (await shows()) === "live" && (await value()) > then + 10);
    expect(new Set(await words())).toEqual(new Set(["LIVE"]));
    await panel("table").focus();
    await page().keyboard.press("Delete");
  });

  it("can be stopped before anything was drawn", async () => {
    await page().reload();
    await page().waitForSelector("[data-testid=mode][data-mode=live]");
    await page().keyboard.press("Space");
    await shown("paused", async () => (await shows()) === "paused");
    await page().keyboard.press("Space");
    await shown("live", async () => (await shows()) === "live" && (await tile().count()) > 0 && (await value()) > 1000);
  });
});

describe("a plot that looks at the past", () => {
  const plot = () => panel("plot").getByTestId("plot");
  const edge = async (of: "from" | "to") => BigInt((await plot().getAttribute(`data-${of}`)) ?? 0);

  it("zooms and moves by wheel and hand to any span, while the rest is live", async () => {
    await shown("the plot", async () => (await plot().count()) > 0);
    const box = (await plot().boundingBox())!;
    await page().mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    await page().mouse.wheel(0, 100);
    await shown("history", async () => (await words()).filter((w) => w === "HISTORY").length === 1);
    expect((await words()).filter((w) => w === "LIVE").length).toBe((await words()).length - 1);
    const before = await value();
    await shown("new values beside it", async () => (await value()) > before);
    for (let i = 0; i < 12; i++) await page().mouse.wheel(0, 100);
    await shown("ten minutes and more", async () => (await edge("to")) - (await edge("from")) > 600_000_000_000n);
    // The spike of one millisecond is in the legend of ten minutes.
    const legend = panel("plot").locator('[data-testid="legend"][data-channel="tank.p{acu=1}"]');
    await shown("the spike", async () => Number(await legend.getAttribute("data-max")) > 1000 && Number(await legend.getAttribute("data-min")) === 0);
    const to = await edge("to");
    await page().mouse.down();
    await page().mouse.move(box.x + box.width / 2 + 100, box.y + box.height / 2, { steps: 5 });
    await page().mouse.up();
    await shown("earlier times", async () => (await edge("to")) < to - 60_000_000_000n);
    await shown("a past without the values of now", async () => Number(await legend.getAttribute("data-max")) === SPIKE);
    expect(await panel("plot").getByTestId("not-live").innerText()).toContain("HISTORY");
  });

  it("gives what is seen as a file, each bucket with its extremes", async () => {
    await panel("plot").hover();
    await panel("plot").getByTestId("panel-menu").click();
    const [download] = await Promise.all([page().waitForEvent("download"), page().getByTestId("csv").click()]);
    const lines = readFileSync(await download.path(), "utf8").split("\r\n");
    expect(lines[0]).toBe("time,channel,unit,count,first,last,min,max,mean");
    const spike = lines.find((l) => l.includes(String(SPIKE)))!.split(",");
    expect([spike[1], spike[7]]).toEqual(["tank.p{acu=1}", String(SPIKE)]);
    const second = new Date(Number(spikeNs / 1_000_000n)).toISOString().slice(0, 19);
    expect(spike[0]!.slice(0, 19)).toBe(second);
    await page().keyboard.press("Escape");
  });

  it("moves by keys, and comes back to LIVE by one", async () => {
    await panel("plot").focus();
    const from = await edge("from");
    await page().keyboard.press("ArrowLeft");
    await shown("earlier", async () => (await edge("from")) < from);
    await page().keyboard.press("+");
    await page().keyboard.press("l");
    await shown("live everywhere", async () => (await words()).every((w) => w === "LIVE"));
  });

  it("never threw", () => expect(browser.problems).toEqual([]));
});

describe("a run whose clock is held", () => {
  const clock = () => page().getByTestId("t-clock");
  const step = async (what: string) => {
    const answer = await fetch(`${server.url}/api/runs/attempt/${what}`, { method: "POST" });
    expect(answer.status, what).toBe(200);
  };

  it("leaves what happened before the hold at the T± it had then", async () => {
    await step("start?channels=tank.*");
    await step("t0?at=now%2B10m");
    await page().getByTestId("event-text").fill("before the hold");
    await page().getByTestId("event-text").press("Enter");
    const mark = page().getByTestId("event").filter({ hasText: "before the hold" }).locator("span").first();
    await shown("T± of the event", async () => (await mark.count()) > 0 && (await mark.innerText()).startsWith("T−"));
    const then = await mark.innerText();
    await step("hold");
    await shown("held", async () => (await clock().innerText()).includes("HOLD"));
    expect(await mark.innerText()).toBe(then);
    // So long that a T-0 which it moved is another second.
    const begin = performance.now();
    await shown("a hold of more than a second", () => Promise.resolve(performance.now() - begin > 1500));
    await step("resume");
    await shown("counting", async () => !(await clock().innerText()).includes("HOLD"));
    expect(await mark.innerText()).toBe(then);
    await step("stop");
  });

  it("never threw", () => expect(browser.problems).toEqual([]));
});
