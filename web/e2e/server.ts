// Starts the real server on a fresh store for one test file, and stops it.
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "./port";

const binary = process.env.STRONGBACK ?? new URL("../../target/strongback", import.meta.url).pathname;

export interface Server {
  url: string;
  process: ChildProcess;
  /** Sends line protocol with nanosecond times; fails unless the server took it. */
  write(lines: string): Promise<void>;
  stop(): Promise<void>;
}

/** Runs `command` (`serve` or `demo`) with `config` and waits until it answers. */
export async function start(command: "serve" | "demo", config: string | null): Promise<Server> {
  if (!existsSync(binary)) throw new Error(`${binary} is missing: run make build, or set STRONGBACK`);
  const folder = mkdtempSync(join(tmpdir(), "strongback-page-"));
  const [http, ilp, pg] = [await freePort("tcp"), await freePort("tcp"), await freePort("tcp")];
  const args = [command, "--data", join(folder, "data"), "--http", `127.0.0.1:${http}`, "--ilp", `127.0.0.1:${ilp}`, "--pg", `127.0.0.1:${pg}`, "--flight", "off"];
  if (config !== null) {
    const file = join(folder, "strongback.toml");
    writeFileSync(file, config);
    args.push("--config", file);
  }
  const child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  for (const end of [child.stdout, child.stderr]) end.on("data", (part: Buffer) => (said = (said + part.toString()).slice(-4000)));
  const url = `http://127.0.0.1:${http}`;
  await until("the server answers", 30_000, async () => {
    if (child.exitCode !== null) throw new Error(`the server ended with ${child.exitCode}: ${said}`);
    return fetch(`${url}/api/health`).then((r) => r.ok, () => false);
  });
  return {
    url,
    process: child,
    async write(lines) {
      const answer = await fetch(`${url}/api/v2/write?precision=ns`, { method: "POST", body: lines });
      if (answer.status !== 204) throw new Error(`write: ${answer.status} ${await answer.text()}`);
    },
    async stop() {
      if (child.exitCode === null) {
        const ended = new Promise((resolve) => child.once("exit", resolve));
        child.kill("SIGCONT");
        child.kill("SIGTERM");
        const patience = setTimeout(() => child.kill("SIGKILL"), 15_000);
        await ended;
        clearTimeout(patience);
      }
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Polls until `check` answers true; fails after `limitMs`. Answers how long it took, in ms. */
export async function until(what: string, limitMs: number, check: () => Promise<boolean> | boolean): Promise<number> {
  const begin = performance.now();
  for (;;) {
    if (await check()) return performance.now() - begin;
    if (performance.now() - begin > limitMs) throw new Error(`not within ${limitMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** How long anything may take on a busy machine, ms; what has a bound of its own is measured on the page. */
const PATIENCE_MS = 30_000;

/** Polls until `check` answers true, with patience. */
export const shown = (what: string, check: () => Promise<boolean> | boolean): Promise<number> => until(what, PATIENCE_MS, check);
