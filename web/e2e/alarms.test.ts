// What an operator does with alarms, in a real browser against the real server: sees one, says that they know, sees it go.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Browser, open } from "./browser.mjs";
import { type Server, shown, start } from "./server";

const CONFIG = `
[[limit]]
name = "pressure"
channels = ["tank.p"]
warning = { high = 5 }
critical = { high = 9 }
`;

let server: Server;
let browser: Browser;
let now = BigInt(Date.now()) * 1_000_000n;

const page = () => browser.page;
const alarms = () => page().getByTestId("alarm");
const count = () => page().getByTestId("alarm-count").innerText();
const write = (p: number) => server.write(`tank p=${p} ${(now += 1_000_000n)}`);

beforeAll(async () => {
  server = await start("serve", CONFIG);
  browser = await open({ width: 1920, height: 1080 });
  await page().goto(server.url);
});
afterAll(async () => {
  await browser?.close();
  await server?.stop();
});

describe("alarms", () => {
  it("come at once, with value and bound, and count in the bar", async () => {
    await write(1);
    await shown("no alarm in the bar", async () => (await count()) === "no alarm");
    await write(6.5);
    await shown("one alarm", async () => (await alarms().count()) === 1);
    expect((await alarms().innerText()).replace(/\s+/g, " ")).toMatch(/WARNING .* tank\.p 6\.5 above 5(, now 6\.5)? pressure/i);
    expect(await page().getByTestId("troubles").innerText()).not.toBe("no trouble");
    expect(await count()).toBe("1 alarm, 1 new");
  });

  it("want a name before someone can know of them", async () => {
    // Where the list is a drawer, the key opens it.
    await page().setViewportSize({ width: 1280, height: 720 });
    await page().keyboard.press("a");
    await shown("the question for a name", async () => (await page().getByRole("alert").count()) === 1);
    expect(await page().getByTestId("operator").evaluate((box) => box === document.activeElement)).toBe(true);
    await page().setViewportSize({ width: 1920, height: 1080 });
    await page().getByTestId("operator").fill("Ada");
    await page().getByTestId("acknowledge").click();
    await shown("that Ada knows", async () => (await alarms().innerText()).includes("Ada knows"));
    expect(await count()).toBe("1 alarm, 0 new");
    expect(await page().getByTestId("acknowledge").count()).toBe(0);
  });

  it("want to be known again when they get worse, and are over when they cleared and someone knows", async () => {
    await write(9.5);
    await shown("critical", async () => /CRITICAL/i.test(await alarms().innerText()));
    expect(await count()).toBe("1 alarm, 1 new");
    await write(1);
    await shown("cleared, unknown", async () => (await alarms().getAttribute("data-state")) === "cleared");
    // The name is remembered; the key acknowledges. A server that is busy refuses some of what is asked at first.
    let refusals = 2;
    await page().route("**/api/gaps?*", (route) => refusals-- > 0 ? route.fulfill({ status: 503, json: { error: "busy", code: "unavailable" } }) : route.continue());
    await page().route("**/api/alarms", (route) => refusals-- > 0 ? route.fulfill({ status: 503, json: { error: "busy", code: "unavailable" } }) : route.continue());
    await page().reload();
    await shown("the alarm after a reload", async () => (await alarms().count()) === 1);
    await page().keyboard.press("a");
    await shown("no alarm", async () => (await alarms().count()) === 0);
    expect(await count()).toBe("no alarm");
    expect(browser.problems).toEqual([]);
  });

  it("are new again when their shelf ends, of which the server tells no step", async () => {
    await write(6.5);
    await shown("one alarm", async () => (await count()) === "1 alarm, 1 new");
    const shelf = { limit: "pressure", channel: "tank.p", by: "Ada", minutes: 0.05 };
    const answer = await fetch(`${server.url}/api/alarms/shelve`, { method: "POST", body: JSON.stringify(shelf) });
    expect(answer.status).toBe(200);
    await shown("shelved", async () => (await count()) === "1 alarm, 0 new");
    await shown("new again", async () => (await count()) === "1 alarm, 1 new");
    expect((await alarms().innerText()).includes("shelved")).toBe(false);
    expect(browser.problems).toEqual([]);
  });
});
