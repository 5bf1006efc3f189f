// The view of a source, in a real browser against the real server: packets made by hand, some lost, one twice, one cut
// short, one of a stream that nobody configured.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Browser, open } from "./browser.mjs";
import { packet, Sender } from "./inetx";
import { freePort } from "./port";
import { type Server, shown, start, until } from "./server";

const STREAM = 0xdd;
const config = (port: number) => `
[[source]]
name = "fti"
kind = "inetx"
listen = "127.0.0.1:${port}"
ptp_scale = "utc"

[[source.stream]]
id = 0xDD
table = "fti.bay"
tags = { bay = "1" }
period_ms = 20

[[source.stream.channel]]
name = "p_tank"
offset = 0
type = "u16"
unit = "bar"
`;

let server: Server;
let browser: Browser;
let sender: Sender;
let sequence = 0;
let pace: ReturnType<typeof setInterval> | null = null;

const page = () => browser.page;
const view = () => page().getByTestId("source-view");
const nowNs = () => BigInt(Date.now()) * 1_000_000n;
const made = new Map<number, Buffer>();
/** The packet of a sequence, always the same bytes: an old sequence with a newer time would be a restart of its source. */
function frame(at: number): Buffer {
  const bytes = made.get(at) ?? packet(STREAM, at, nowNs(), Buffer.from([0x01, 0x42]));
  made.set(at, bytes);
  return bytes;
}
const row = () => page().locator('[data-testid="stream"][data-stream="fti.bay{bay=1}"]');
const figure = (name: string) => view().locator(`.figures [data-figure="${name}"]`).innerText();

async function go(): Promise<void> {
  pace ??= setInterval(() => void sender.send(frame(sequence++)).catch((e: unknown) => console.error(String(e))), 20);
}
function halt(): void {
  if (pace) clearInterval(pace);
  pace = null;
}

beforeAll(async () => {
  const port = await freePort("udp");
  server = await start("serve", config(port));
  sender = await Sender.to(port);
  browser = await open();
});
afterAll(async () => {
  halt();
  sender?.close();
  await browser?.close();
  await server?.stop();
});

describe("the view of a source", () => {
  it("opens by a click in the list, and its address is a link to it", async () => {
    await page().goto(server.url);
    const entry = page().locator('[data-testid="source"][data-source="fti"]');
    await shown("the source in the list", async () => (await entry.count()) > 0);
    await entry.click();
    await shown("the view", async () => (await view().getAttribute("data-source")) === "fti");
    expect(new URL(page().url()).hash).toBe("#source=fti");
    await page().goBack();
    await shown("closed", async () => (await view().count()) === 0);
    await page().goForward();
    await shown("open again", async () => (await view().count()) === 1);
  });

  it("counts what is missing, what came twice and what was refused, each where it belongs", async () => {
    for (; sequence < 50; sequence++) {
      const bytes = frame(sequence);
      // Five are lost on the way.
      if (sequence < 20 || sequence >= 25) await sender.send(bytes);
    }
    await sender.send(frame(30));
    await sender.send(frame(sequence).subarray(0, 20));
    await sender.send(packet(0xdead, 1, nowNs(), Buffer.from("GRUMBLE")));
    await go();
    await shown("the stream", async () => (await row().count()) > 0);
    await shown("5 missing", async () => (await figure("missing")) === "5");
    await shown("1 duplicate", async () => (await figure("duplicate")) === "1");
    await shown("2 rejected", async () => (await figure("rejected")) === "2");
    expect(await row().locator('[data-figure="missing"]').innerText()).toBe("5");
    await row().click();
    const detail = page().getByTestId("stream-detail");
    expect(await detail.locator('[data-figure="lost"]').innerText()).toBe("5");
    expect(await detail.locator('[data-figure="duplicate"]').innerText()).toBe("1");
    expect(await detail.innerText()).toContain("50.0 Hz expected, given");
    const received = async () => Number((await detail.locator('[data-figure="received"]').innerText()).replace(/\D/g, ""));
    const before = await received();
    await shown("the count rises while one looks", async () => (await received()) > before);
    // Every frame that came is stored or came twice.
    await shown("the sum is right", async () => {
      const numbers = (await Promise.all(["received", "stored", "duplicate"].map((n) => detail.locator(`[data-figure="${n}"]`).innerText()))).map((t) => Number(t.replace(/\D/g, "")));
      return numbers[0] === numbers[1]! + numbers[2]! && numbers[2] === 1;
    });
  });

  it("marks the gap on the time line, in words, and goes to its time", async () => {
    const mark = page().getByTestId("gap-mark");
    await shown("one mark", async () => (await mark.count()) === 1);
    expect(await mark.getAttribute("data-cause")).toBe("sequence");
    expect(await mark.getAttribute("data-open")).toBe("true");
    await mark.focus();
    expect(await page().getByTestId("gap-lines").getByRole("status").innerText()).toMatch(/^\d\d:\d\d:\d\d\.\d{3} – .*5 frames, .*lost before the receiver/);
    await page().keyboard.press("Enter");
    await shown("the state at the gap", async () => (await page().getByTestId("state-at").count()) === 1);
    const { gaps } = (await (await fetch(`${server.url}/api/gaps`)).json()) as { gaps: { source: string; from_time: string }[] };
    expect(await page().getByTestId("state-at").getAttribute("data-at")).toBe(gaps.find((g) => g.source === "fti")!.from_time);
    // What comes late after all is no longer missing.
    await sender.send(frame(22));
    await shown("4 missing", async () => (await figure("missing")) === "4");
    expect(await figure("filled late")).toBe("1");
    await shown("the mark says so", async () => (await mark.getAttribute("aria-label"))!.includes("4 still missing"));
  });

  it("shows the newest refused bytes, who sent them and why", async () => {
    const cut = page().locator('[data-testid="rejected"][data-reason="truncated"]');
    await shown("the sample", async () => (await cut.count()) === 1);
    const words = await cut.innerText();
    expect(words).toContain(sender.address);
    expect(words).toMatch(/truncated: 20 bytes/);
    expect(words).toContain("0000  11 00 00 00  00 00 00 dd");
    expect(await cut.locator('[data-figure="count"]').innerText()).toBe("1");
    const unknown = page().locator('[data-testid="rejected"][data-reason="unknown_stream"]');
    expect(await unknown.innerText()).toContain("GRUMBLE".slice(0, 4));
    expect(await view().innerText()).toContain("0x0000dead");
  });

  it("says that the source is silent, since when, and that it came back", async () => {
    halt();
    const verdict = page().getByTestId("verdict");
    await shown("silent", async () => (await view().getAttribute("data-status")) === "silent");
    expect(await verdict.innerText()).toMatch(/^silent for [\d.]+ s, since \d\d:\d\d:\d\d UTC$/);
    await shown("the stream as well", async () => (await row().getAttribute("data-status")) === "silent");
    const age = page().getByTestId("source-age");
    const before = await age.innerText();
    await shown("its age grows", async () => (await age.innerText()) !== before);
    await go();
    await shown("back", async () => !["silent", "never"].includes((await row().getAttribute("data-status"))!));
  });

  it("is marked as old when the server says nothing, and recovers", async () => {
    server.process.kill("SIGSTOP");
    try {
      await shown("marked", async () => (await view().getAttribute("data-stale")) === "true");
      expect(await view().innerText()).toContain("NOT LIVE");
      expect(await page().getByTestId("source-rate").evaluate((e) => getComputedStyle(e).textDecorationLine)).toBe("line-through");
    } finally {
      server.process.kill("SIGCONT");
    }
    await shown("recovered", async () => (await view().getAttribute("data-stale")) === "false");
  });

  it("asks once a second while it is open, never twice at once, and not at all when it is closed", async () => {
    const open = new Map<string, number>();
    const path = "/api/sources/fti";
    let asked = 0;
    let most = 0;
    await page().route(`**${path}`, async (route) => {
      const now = (open.get(path) ?? 0) + 1;
      open.set(path, now);
      asked++;
      most = Math.max(most, now);
      // A slow server: each answer takes longer than a second.
      await new Promise((resolve) => setTimeout(resolve, 1500));
      open.set(path, open.get(path)! - 1);
      await route.continue().catch(() => {});
    });
    await until("three questions", 20_000, () => asked >= 3);
    expect(most).toBe(1);
    await page().keyboard.press("Escape");
    await page().keyboard.press("Escape");
    await shown("closed", async () => (await view().count()) === 0);
    expect(new URL(page().url()).hash).toBe("");
    await shown("the last answer", () => (open.get(path) ?? 0) === 0);
    const then = asked;
    await page().waitForTimeout(2500);
    expect(asked).toBe(then);
    await page().unroute(`**${path}`);
  });

  it("says in words what a server that is older than the page does not tell, and what is no source", async () => {
    await page().route("**/api/sources/fti", (route) => route.fulfill({ status: 404, json: { error: "no such path", code: "not_found" } }));
    await page().evaluate(() => (location.hash = "#source=fti"));
    const refusal = page().getByTestId("source-refusal");
    await shown("the words", async () => (await refusal.count()) === 1);
    expect(await refusal.innerText()).toContain("older than this page");
    // What such a server says of the source as a whole is shown.
    expect(await figure("missing")).toBe("4");
    await page().unroute("**/api/sources/fti");
    await shown("told again", async () => (await refusal.count()) === 0);
    await page().evaluate(() => (location.hash = "#source=nobody"));
    await shown("no such source", async () => (await refusal.count()) === 1 && (await refusal.getAttribute("data-kind")) === "no such source");
    await refusal.getByRole("button", { name: "fti" }).click();
    await shown("the other", async () => (await view().getAttribute("data-status")) !== null);
  });

  it("never threw", () => expect(browser.problems).toEqual([]));
});
