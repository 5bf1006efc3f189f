// Ports for servers under test.
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";

// Below what the system hands out by itself, so that no connection takes one before its server does.
const least = 10_000;
const handedOut = Number(readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8").split(/\s/)[0]);

/** A port of 127.0.0.1 that nobody has. */
export async function freePort(kind: "tcp" | "udp"): Promise<number> {
  for (let tries = 0; tries < 1_000; tries++) {
    const port = least + Math.floor(Math.random() * (Math.max(handedOut, 2 * least) - least));
    if (await (kind === "tcp" ? takesConnections(port) : takesDatagrams(port))) return port;
  }
  throw new Error("hardly a port is free");
}

async function takesConnections(port: number): Promise<boolean> {
  const probe = createServer();
  const bound = once(probe, "listening").then(() => true, () => false);
  probe.listen(port, "127.0.0.1");
  if (!(await bound)) return false;
  await new Promise((resolve) => probe.close(resolve));
  return true;
}

async function takesDatagrams(port: number): Promise<boolean> {
  const probe = createSocket("udp4");
  const bound = once(probe, "listening").then(() => true, () => false);
  probe.bind(port, "127.0.0.1");
  const free = await bound;
  await new Promise<void>((resolve) => probe.close(resolve));
  return free;
}
