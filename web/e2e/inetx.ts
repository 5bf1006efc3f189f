// iNET-X packets by hand, over UDP.
import { createSocket, type Socket } from "node:dgram";

/** A packet of a stream: control word, stream id, sequence, length, PTP seconds and nanoseconds, PIF, payload; big-endian. */
export function packet(stream: number, sequence: number, atNs: bigint, payload: Uint8Array): Buffer {
  const bytes = Buffer.alloc(28 + payload.length);
  [0x1100_0000, stream, sequence, bytes.length, Number(atNs / 1_000_000_000n), Number(atNs % 1_000_000_000n), 0].forEach((word, i) => bytes.writeUInt32BE(word, i * 4));
  bytes.set(payload, 28);
  return bytes;
}

/** Sends datagrams to a port of this machine. */
export class Sender {
  private constructor(private readonly socket: Socket, private readonly port: number) {}

  static async to(port: number): Promise<Sender> {
    const socket = createSocket("udp4");
    await new Promise<void>((resolve) => socket.bind(0, "127.0.0.1", resolve));
    return new Sender(socket, port);
  }

  /** As the receiver sees it. */
  get address(): string {
    return `127.0.0.1:${this.socket.address().port}`;
  }

  async send(bytes: Uint8Array): Promise<void> {
    await new Promise<void>((resolve, reject) => this.socket.send(bytes, this.port, "127.0.0.1", (e) => (e ? reject(e) : resolve())));
  }

  close(): void {
    this.socket.close();
  }
}
