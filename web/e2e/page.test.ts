// What an operator relies on, in a real browser against the real server: values with their units, nothing stale
// that looks alive, no spike hidden, SQL, and the state at a time.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Browser, open } from "./browser.mjs";
import { type Server, shown, start, until } from "./server";

const CONFIG = `
[[channel]]
pattern = "pad.*"
unit = "kPa"
description = "written by the end-to-end test"

[[channel]]
pattern = "fast.*"
unit = "bar"
expected_period_ms = 1
`;

let server: Server;
let browser: Browser;
const sending = new Set<ReturnType<typeof setInterval>>();

const nowNs = () => BigInt(Date.now()) * 1_000_000n;
const page = () => browser.page;
const mode = () => page().getByTestId("mode").getAttribute("data-mode");
const banners = () => page().getByTestId("banner").evaluateAll((all) => all.map((b) => (b as HTMLElement).dataset.banner));

/** Writes `line` each `everyMs` until the answered function is called, which waits for the last write. */
function send(everyMs: number, line: () => string): () => Promise<void> {
  let last = Promise.resolve();
  const write = () => {
    last = last.then(() => server.write(line())).catch((e: unknown) => console.error(String(e)));
  };
  write();
  const timer = setInterval(write, everyMs);
  sending.add(timer);
  return async () => {
    clearInterval(timer);
    sending.delete(timer);
    await last;
  };
}

beforeAll(async () => {
  server = await start("serve", CONFIG);
  browser = await open();
});
afterAll(async () => {
  for (const timer of sending) clearInterval(timer);
  await browser?.close();
  await server?.stop();
});

describe("the page", () => {
  it("is live on an empty server and says that there is nothing yet", async () => {
    await page().goto(server.url);
    await shown("live", async () => (await mode()) === "live");
    expect(await banners()).toEqual([]);
  });

  it("shows a random value that another program writes, with its unit, and turns it stale within 2 s of the last", async () => {
    const value = Math.round(Math.random() * 99_999) / 1000;
    const stop = send(100, () => `pad,rack=1 p_random=${value} ${nowNs()}`);
    const tile = page().locator('[data-testid="tile"][data-channel="pad.p_random{rack=1}"]');
    await shown("a tile with the value", async () => (await tile.count()) > 0 && (await tile.getAttribute("data-value")) === String(value));
    expect(await tile.innerText()).toContain(String(value));
    expect(await tile.innerText()).toContain("kPa");
    expect(await tile.getAttribute("data-stale")).toBe("false");
    const row = page().locator('[data-channel="pad.p_random{rack=1}"].channel');
    await shown("the tree shows it as well", async () => (await row.innerText()).includes(String(value)));

    // How old the value was when it went stale is the page's own word, by the server's clock; a busy machine asks later.
    await tile.evaluate((e) => {
      new MutationObserver((_, observer) => {
        if (!e.textContent!.includes("STALE")) return;
        (window as unknown as { wentStale: string }).wentStale = e.textContent!;
        observer.disconnect();
      }).observe(e, { attributes: true, characterData: true, childList: true, subtree: true });
    });
    await stop();
    await shown("stale", async () => (await tile.innerText()).includes("STALE"));
    expect(await page().evaluate(() => (window as unknown as { wentStale: string }).wentStale)).toMatch(/STALE · (1\.9|2\.\d) s old/);
    expect(await tile.locator(".struck").evaluate((e) => getComputedStyle(e).textDecorationLine)).toBe("line-through");
    await shown("the tree says so as well", async () => (await row.getAttribute("data-stale")) === "true");
    // The screen itself is alive: only the value is old.
    expect(await mode()).toBe("live");

    const next = send(100, () => `pad,rack=1 p_random=${value + 1} ${nowNs()}`);
    await shown("fresh again", async () => (await tile.getAttribute("data-stale")) === "false");
    await next();
  });

  it("stands under a banner within 2 s when the server is stopped, every value stale, and recovers by itself", async () => {
    const tiles = page().getByTestId("tile");
    server.process.kill("SIGSTOP");
    try {
      // How long that takes is measured on the page: a busy machine asks later.
      const waited = await page().evaluate(() => new Promise<number>((resolve) => {
        const begin = performance.now();
        const look = () => document.querySelector('[data-testid="banner"][data-banner="silent"]') ? resolve(performance.now() - begin) : void setTimeout(look, 10);
        look();
      }));
      expect(waited).toBeLessThan(2000);
      expect(await page().getByTestId("banner").first().innerText()).toMatch(/NOT LIVE · no heartbeat from the server · last data 20\d\d-/);
      expect(await tiles.evaluateAll((all) => all.every((t) => (t as HTMLElement).dataset.stale === "true"))).toBe(true);
      expect(await page().getByTestId("panel").first().innerText()).toContain("NOT LIVE");
      const shown = await page().getByTestId("utc").innerText();
      await page().waitForTimeout(300);
      expect(await page().getByTestId("utc").innerText()).toBe(shown);
    } finally {
      server.process.kill("SIGCONT");
    }
    await shown("live again", async () => (await mode()) === "live");
    await shown("no banner", async () => (await banners()).length === 0);
  });

  it("stands under a banner after its own loop stalled, until the server has spoken again", async () => {
    await page().evaluate(() => {
      const element = document.querySelector('[data-testid="mode"]') as HTMLElement;
      const seen: string[] = ((window as unknown as { seen: string[] }).seen = []);
      new MutationObserver(() => seen.push(element.dataset.mode ?? "")).observe(element, { attributes: true });
      const end = performance.now() + 1600;
      while (performance.now() < end);
    });
    await shown("stalled", () => page().evaluate(() => (window as unknown as { seen: string[] }).seen.includes("stalled")));
    await shown("live again", async () => (await mode()) === "live");
  });

  it("is covered by its worker's banner while it hangs", async () => {
    const session = await page().context().newCDPSession(page());
    let frames = 0;
    session.on("Page.screencastFrame", (frame) => {
      frames++;
      session.send("Page.screencastFrameAck", { sessionId: frame.sessionId }).catch(() => {});
    });
    await session.send("Page.startScreencast", { format: "jpeg" });
    const hang = page().evaluate(() => {
      const end = performance.now() + 4000;
      while (performance.now() < end);
    });
    // A page that hangs paints nothing by itself: what still changes on the screen is the worker's.
    await until("the page paints no more", 3000, async () => {
      const before = frames;
      await new Promise((resolve) => setTimeout(resolve, 400));
      return frames === before;
    });
    const before = frames;
    await until("the banner is painted", 3000, () => frames > before);
    await hang;
    await session.detach();
    await shown("live again", async () => (await mode()) === "live");
  });

  it("shows a 1 ms spike of a 1 kHz channel in the plot's maximum, live and from history", async () => {
    let spikes = 0;
    let sentTo = nowNs();
    const stop = send(100, () => {
      const to = nowNs();
      const lines: string[] = [];
      for (; sentTo < to; sentTo += 1_000_000n) {
        const spike = spikes === 0 && lines.length === 50;
        if (spike) spikes++;
        lines.push(`fast p_purge=${spike ? 987.5 : 6 + Math.random() / 100} ${sentTo}`);
      }
      return lines.join("\n");
    });
    await page().getByTestId("search").fill("p_purge");
    const row = page().locator('[data-channel="fast.p_purge"].channel');
    await shown("the channel in the tree", async () => (await row.count()) > 0);
    await page().getByTitle("Add a plot").click();
    await row.click();
    const legend = page().locator('[data-testid="legend"][data-channel="fast.p_purge"]').last();
    await shown("the spike", async () => (await legend.count()) > 0 && Number(await legend.getAttribute("data-max")) === 987.5);
    expect(Number(await legend.getAttribute("data-min"))).toBeGreaterThan(5);
    await page().reload();
    await shown("the spike from history", async () => (await legend.count()) > 0 && Number(await legend.getAttribute("data-max")) === 987.5);
    await stop();
    expect(spikes).toBe(1);
  });

  it("keeps every panel where it is when alarms, trouble or events open over it", async () => {
    const size = page().viewportSize();
    try {
      for (const [width, height] of [[1280, 720], [1366, 768], [1024, 768], [1440, 900]] as const) {
        await page().setViewportSize({ width, height });
        const boxes = () => page().getByTestId("panel").evaluateAll(async (all) => {
          // What a new size or a key changes is arranged with the next frame.
          for (let frames = 0; frames < 2; frames++) await new Promise(requestAnimationFrame);
          return all.map((p) => {
            const { left, top, right, bottom } = p.getBoundingClientRect();
            return [left, top, right, bottom].map(Math.round);
          });
        });
        const before = await boxes();
        expect(before.length).toBeGreaterThan(0);
        expect(before.every(([, top, , bottom]) => bottom! > top! && bottom! <= height)).toBe(true);
        for (const key of ["a", "e"]) {
          await page().keyboard.press(key);
          expect(await boxes(), `${width} px, ${key}`).toEqual(before);
          await page().keyboard.press("Escape");
          expect(await boxes(), `${width} px, closed`).toEqual(before);
        }
      }
    } finally {
      if (size) await page().setViewportSize(size);
    }
  });

  it("keeps what says whether it is live, and the clock, in sight of narrow windows, and the channels behind their button", async () => {
    const size = page().viewportSize();
    const seen = (id: string) => page().getByTestId(id).evaluate((e) => {
      const { left, top, right, bottom, width } = e.getBoundingClientRect();
      return width > 0 && left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight;
    });
    try {
      for (const [width, height] of [[390, 844], [768, 1024], [900, 700], [1024, 768]] as const) {
        await page().setViewportSize({ width, height });
        for (const id of ["mode", "utc", "alarm-count", "troubles"]) expect(await seen(id), `${width} px, ${id}`).toBe(true);
        expect(await page().getByTitle("SQL (q)").isVisible(), `${width} px`).toBe(true);
        const left = page().getByTestId("left");
        expect(await left.isVisible(), `${width} px`).toBe(width > 900);
        if (width > 900) continue;
        await page().getByTestId("tree-button").click();
        expect(await left.isVisible()).toBe(true);
        await page().getByTestId("tree-button").click();
        expect(await left.isVisible()).toBe(false);
        await page().keyboard.press("/");
        await shown("the search has the focus", () => page().getByTestId("search").evaluate((e) => e === document.activeElement));
        // Out of the search, and then the channels go.
        await page().keyboard.press("Escape");
        await page().keyboard.press("Escape");
        await shown("the channels are away", async () => !(await left.isVisible()));
      }
    } finally {
      if (size) await page().setViewportSize(size);
    }
  });

  it("hides and shows a channel by its legend, and takes keys after a panel was added", async () => {
    const legend = page().locator('[data-testid="legend"][data-channel="fast.p_purge"]').last();
    for (const hidden of ["true", "false"]) {
      await legend.click();
      expect(await legend.getAttribute("data-hidden")).toBe(hidden);
    }
    const panels = await page().getByTestId("panel").count();
    await page().getByTestId("add-panel").selectOption("table");
    await page().keyboard.press("/");
    await page().keyboard.type("p_purge");
    const row = page().locator('[data-channel="fast.p_purge"].channel');
    await shown("the channel in the tree", async () => (await row.count()) > 0);
    await page().keyboard.press("ArrowDown");
    await page().keyboard.press("Enter");
    await shown("the channel in the table", async () => (await page().locator('[data-testid="value-row"][data-channel="fast.p_purge"]').count()) > 0);
    await page().getByTestId("search").fill("");
    await page().keyboard.press("Escape");
    await page().keyboard.press("Control+z");
    await page().keyboard.press("Control+z");
    expect(await page().getByTestId("panel").count()).toBe(panels);
  });

  it("answers SQL, and an error with its SQLSTATE", async () => {
    await page().keyboard.press("Escape");
    await page().getByTitle("SQL (q)").click();
    const box = page().getByTestId("sql-text");
    await box.fill("select max(p_purge) as top, count(*) as n from fast");
    await box.press("Control+Enter");
    await shown("the answer", async () => (await page().getByTestId("sql-table").count()) > 0);
    expect(await page().getByTestId("sql-table").innerText()).toMatch(/top[\s\S]*987\.5/);
    await box.fill("select * from no_such_table");
    await box.press("Control+Enter");
    await shown("the error", async () => (await page().getByTestId("sql-error").count()) > 0);
    expect(await page().getByTestId("sql-error").innerText()).toContain("42P01");
  });

  it("shows the state of everything at a time, marked as not live", async () => {
    const at = nowNs();
    await server.write(`pad,rack=1 p_random=11.5 ${at - 2_000_000_000n}\npad,rack=1 p_random=12.5 ${at - 500_000_000n}`);
    await page().getByTitle("State at a time (s)").click();
    const time = page().getByTestId("state-time");
    const row = page().locator('[data-testid="state-row"][data-channel="pad.p_random{rack=1}"]');
    for (const [ns, value] of [[at - 1_000_000_000n, "11.5"], [at, "12.5"]] as const) {
      await time.fill(ns.toString());
      await page().getByTestId("state-go").click();
      await shown(`${value} at ${ns}`, async () =>
        (await page().getByTestId("state-at").count()) > 0 && (await page().getByTestId("state-at").getAttribute("data-at")) === ns.toString() &&
        (await row.innerText()).includes(value));
    }
    expect(await row.innerText()).toMatch(/kPa[\s\S]*(fresh|stale)$/);
    expect(await page().getByTestId("state-at").innerText()).toContain("NOT LIVE");
    await page().keyboard.press("Escape");
  });

  it("adds an event, which every page then shows", async () => {
    await page().keyboard.press("Escape");
    if ((await page().getByTestId("tool").count()) > 0) await page().getByLabel("Close").click();
    await page().getByTestId("troubles").click();
    await page().getByTestId("event-text").fill("umbilical released");
    await page().getByTestId("event-text").press("Enter");
    await shown("the event", async () => (await page().getByTestId("event").allInnerTexts()).some((t) => t.includes("umbilical released")));
  });

  it("reconnects when the connection is cut, and asks again for what it shows", async () => {
    const stop = send(100, () => `pad,rack=1 p_random=33.25 ${nowNs()}`);
    const tile = page().locator('[data-testid="tile"][data-channel="pad.p_random{rack=1}"]');
    await shown("the value", async () => (await tile.getAttribute("data-value")) === "33.25");
    await page().context().setOffline(true);
    await shown("banner", async () => (await banners()).some((b) => b === "offline" || b === "silent"));
    await page().context().setOffline(false);
    await shown("live again", async () => (await mode()) === "live");
    await shown("fresh again", async () => (await tile.getAttribute("data-stale")) === "false");
    await stop();
  });

  it("never threw", () => expect(browser.problems).toEqual([]));
});
