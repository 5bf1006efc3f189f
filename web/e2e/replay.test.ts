// What operators do with the past, in real browsers against the real server: one replays ten minutes for all, another
// opens the link, no alarm is acknowledged that is not of now, nothing of the past sounds, and one key goes back to LIVE.
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

const S = 1_000_000_000n;
let server: Server;
let browser: Browser;
let viewer: Browser | null = null;
let sending: ReturnType<typeof setInterval>;
/** Beginning of the recorded minute; tests come minutes after it. */
const base = (BigInt(Date.now()) / 1000n - 600n) * S;
let now = 0;
/** While the events of the interval are refused, how often they were. */
let refused: number | null = 0;
/** Where the page jumped. */
const seeks: bigint[] = [];
/** Until the next event is asked for. */
let tell: () => void;
const asked = new Promise<void>((resolve) => (tell = resolve));

const page = () => browser.page;
type Page = Browser["page"];
const words = (of: Page = page()) => of.getByTestId("panel").evaluateAll((all) => all.map((p) => (p.querySelector("[data-testid=not-live]") as HTMLElement | null)?.dataset.word ?? "LIVE"));
const all = async (word: string, of: Page = page()) => { const said = await words(of); return said.length > 0 && said.every((w) => w === word); };
const tile = (of: Page = page()) => of.locator('[data-testid="tile"][data-channel="tank.p"]');
const value = async (of: Page = page()) => ((await tile(of).count()) > 0 ? Number(await tile(of).getAttribute("data-value")) : NaN);
const replay = (of: Page = page()) => of.getByTestId("replay");
const at = async (of: Page = page()) => BigInt((await replay(of).getAttribute("data-at")) ?? 0) - base;
const alarms = () => page().getByTestId("alarm");
const levels = () => alarms().locator(".level").allInnerTexts();
/** The value that was recorded: level by level over a minute. */
const recorded = (s: number) => (s < 20 ? 1 : s < 30 ? 7 : s < 40 ? 9.5 : 1) + s / 1000;

/** Clicks into the time bar at a second of the interval, which has a fiftieth of it as margin. */
async function jump(s: number): Promise<void> {
  const box = (await page().getByTestId("time-bar").boundingBox())!;
  await page().mouse.click(box.x + ((s / 60 + 0.02) / 1.04) * box.width, box.y + 20);
}

beforeAll(async () => {
  server = await start("serve", CONFIG);
  const lines = Array.from({ length: 600 }, (_, i) => `tank p=${recorded(i / 10)},valve="${i < 300 ? "OPEN" : "CLOSED"}" ${base + (BigInt(i) * S) / 10n}`);
  await server.write(lines.join("\n"));
  for (const [text, s] of [["valve check", 45n], ["engine start", 50n]] as const) {
    await fetch(`${server.url}/api/events`, { method: "POST", body: JSON.stringify({ text, time: (base + s * S).toString() }) });
  }
  sending = setInterval(() => void server.write(`tank p=${2 + ++now / 1e6} ${BigInt(Date.now()) * 1_000_000n}`).catch((e: unknown) => console.error(String(e))), 100);
  browser = await open({ width: 1920, height: 1080 });
  await page().addInitScript(() => {
    const heard = { tones: 0 };
    Object.assign(window, { heard });
    const make = AudioContext.prototype.createOscillator;
    AudioContext.prototype.createOscillator = function () {
      heard.tones++;
      return make.call(this);
    };
  });
  await page().goto(server.url);
  await shown("live values", async () => (await value()) > 2);
});
afterAll(async () => {
  clearInterval(sending);
  await viewer?.close();
  await browser?.close();
  await server?.stop();
});

describe("a replay", () => {
  it("begins by a key, shows what was, and says so on every panel", async () => {
    expect(await all("LIVE")).toBe(true);
    page().on("request", (request) => {
      if (!/\/api\/playbacks\/[^/]+$/.test(request.url()) || request.method() !== "POST") return;
      const what = request.postDataJSON() as { do: string; at: string };
      if (what.do === "seek") seeks.push(BigInt(what.at) - base);
    });
    // The events of the interval are refused at first, and come late, as from a busy server.
    const ofInterval = (url: URL) => url.pathname === "/api/events" && url.searchParams.get("to") === (base + 60n * S).toString();
    await page().route(ofInterval, async (route) => {
      if (refused !== null) {
        refused++;
        return route.fulfill({ status: 503, body: '{"error":"too busy"}' });
      }
      await asked;
      await route.continue();
    });
    await page().keyboard.press("p");
    await page().getByTestId("replay-from").fill(base.toString());
    await page().getByTestId("replay-to").fill((base + 60n * S).toString());
    await page().getByTestId("replay-start").click();
    await shown("REPLAY everywhere", async () => (await all("REPLAY")) && (await page().getByTestId("mode").getAttribute("data-shows")) === "replay");
    expect(await page().title()).toContain("REPLAY");
    await shown("a value of then, that moves on", async () => (await at()) > S && (await value()) > 1 && (await value()) < 1.02);
    // Ages are those of then.
    expect(await tile().getAttribute("data-stale")).toBe("false");
    const then = Number((base + (await at())) / 1_000_000n);
    const utc = (await page().getByTestId("utc").innerText()).replace(" UTC", "Z").replace(" ", "T");
    // Both move on between the two readings, and now is at least a minute later.
    expect(Math.abs(Date.parse(utc) - then)).toBeLessThan(30_000);
  });

  it("pauses, steps frame by frame, and jumps to where one clicks and from event to event", async () => {
    await page().keyboard.press(" ");
    await shown("paused", async () => (await replay().getAttribute("data-paused")) === "true");
    await jump(25);
    await shown("the value there", async () => Math.abs((await value()) - recorded(25)) < 0.01);
    const before = await at();
    await page().keyboard.press(".");
    await shown("one frame on", async () => (await at()) > before && (await at()) <= before + S / 10n);
    await shown("its value", async () => (await value()) > recorded(Number(before) / 1e9 - 0.11));
    // Back to an event that is not known is nowhere, and the reason stays.
    const asks = refused!;
    seeks.length = 0;
    await page().keyboard.press("b");
    await shown("the refusal", async () => refused! > asks && (await page().getByTestId("replay-problem").innerText()).includes("too busy"));
    refused = null;
    await page().keyboard.press("n");
    await page().keyboard.press("n");
    tell();
    await shown("the second event", async () => (await at()) === 50n * S);
    expect(seeks).toEqual([45n * S, 50n * S]);
    await shown("it in the list", async () => (await page().getByTestId("event").allInnerTexts()).some((t) => t.includes("engine start")));
    // A mark is set at the time that is shown.
    await page().keyboard.press("m");
    expect(await page().getByTestId("mark").getAttribute("data-at")).toBe((base + 50n * S).toString());
    await page().getByTestId("mark-text").fill("valve was late");
    await page().getByTestId("mark-text").press("Enter");
    await shown("the mark in the list", async () => (await page().getByTestId("event").allInnerTexts()).some((t) => t.includes("valve was late")));
    expect(await all("REPLAY")).toBe(true);
  });

  it("shows the alarms that stood then", async () => {
    await jump(10);
    await shown("none yet", async () => (await at()) < 12n * S && (await alarms().count()) === 0);
    await jump(25);
    await shown("a warning", async () => JSON.stringify((await levels()).map((l) => l.toLowerCase())) === '["warning"]');
    await jump(35);
    await shown("critical", async () => JSON.stringify((await levels()).map((l) => l.toLowerCase())) === '["critical"]' && (await alarms().getAttribute("data-state")) === "raised");
    // The bar tells what stands now.
    expect(await page().getByTestId("alarm-count").innerText()).toBe("1 alarm, 1 new now");
  });

  it("acknowledges nothing, says that there is something to know of now, and sounds nothing of the past", async () => {
    expect([await page().getByTestId("operator").count(), await page().getByTestId("acknowledge").count()]).toEqual([0, 0]);
    expect(await page().getByTestId("alarms-beyond").first().innerText()).toBe("1 new now cannot be acknowledged here: l goes back to LIVE");
    await page().keyboard.press("a");
    expect(((await (await fetch(`${server.url}/api/alarms`)).json()) as { alarms: { acknowledged: unknown }[] }).alarms.map((a) => a.acknowledged)).toEqual([null]);
    const said = { method: "POST", body: JSON.stringify({ limit: "pressure", channel: "tank.p", by: "Ada" }) };
    expect((await fetch(`${server.url}/api/alarms/acknowledge`, said)).ok).toBe(true);
    await shown("nobody has to know of it now", async () => (await page().getByTestId("alarm-count").innerText()) === "no alarm");
    await shown("nothing to go back for", async () => (await page().getByTestId("alarms-beyond").count()) === 0);
    // As it stood then it is still to be seen.
    expect((await levels()).map((l) => l.toLowerCase())).toEqual(["critical"]);
    const tones = await page().evaluate(() => (window as unknown as { heard: { tones: number } }).heard.tones);
    await jump(15);
    await page().getByTestId("replay-speed").selectOption("5");
    await page().getByTestId("replay-play").click();
    await shown("past the alarm", async () => (await at()) > 45n * S);
    expect(await page().evaluate(() => (window as unknown as { heard: { tones: number } }).heard.tones)).toBe(tones);
  });

  it("is shared by its link: others watch, and one takes over", async () => {
    viewer = await open({ width: 1280, height: 720 });
    await viewer.page.goto(page().url());
    await shown("REPLAY at the viewer", () => all("REPLAY", viewer!.page));
    expect(await replay(viewer.page).getAttribute("data-directs")).toBe("false");
    await shown("two viewers", async () => (await page().getByTestId("replay-viewers").innerText()).startsWith("2"));
    await page().keyboard.press(" ");
    await jump(5);
    await shown("the jump at the viewer", async () => (await at(viewer!.page)) < 7n * S && Math.abs((await value(viewer!.page)) - recorded(5)) < 0.1);
    await viewer.page.getByTestId("replay-take").click();
    await shown("the direction", async () => (await replay(viewer!.page).getAttribute("data-directs")) === "true");
    await jump(30);
    await shown("the old director told", async () => (await replay().getAttribute("data-directs")) === "false" && (await page().getByTestId("replay-problem").count()) === 1);
    await viewer.page.keyboard.press("l");
    await shown("LIVE at the viewer", async () => (await all("LIVE", viewer!.page)) && (await value(viewer!.page)) > 2);
    expect(viewer.page.url()).not.toContain("playback");
    expect(viewer.problems).toEqual([]);
  });

  it("goes back to LIVE by one key, with the values of now", async () => {
    await page().keyboard.press("Escape");
    await shown("LIVE everywhere", async () => (await all("LIVE")) && (await value()) > 2 && (await page().getByTestId("mode").getAttribute("data-shows")) === "live");
    expect(page().url()).not.toContain("playback");
    expect(await page().getByTestId("replay").count()).toBe(0);
    const before = await value();
    await shown("new values", async () => (await value()) > before);
  });

  it("begins from an interval that is dragged over the time bar", async () => {
    const box = (await page().getByTestId("time-bar").boundingBox())!;
    // The recorded minute was ten minutes ago in a bar of thirty.
    const x = (minutesAgo: number) => box.x + box.width * (1 - minutesAgo / 30);
    await page().mouse.move(x(12), box.y + 20);
    await page().mouse.down();
    await page().mouse.move(x(9), box.y + 20, { steps: 5 });
    await page().mouse.up();
    await page().getByTestId("chosen-replay").click();
    await shown("REPLAY", () => all("REPLAY"));
    await page().keyboard.press("l");
    await shown("LIVE", () => all("LIVE"));
  });

  it("that is none any more is told, and the page stays live", async () => {
    // From another page: a page that is open follows the link at once, and what a reload finds in the address is chance.
    await page().goto("about:blank");
    await page().goto(`${server.url}/#playback=nonesuch`);
    await shown("the reason", async () => (await page().getByTestId("replay-problem").count()) === 1);
    await shown("LIVE", () => all("LIVE"));
  });

  it("never threw", () => expect(browser.problems).toEqual([]));
});
