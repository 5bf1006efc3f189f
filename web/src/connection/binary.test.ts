// Held against the same vectors as the server's writer.
import { describe, expect, it } from "vitest";
import { readFileSync } from "node:fs";
import { decode } from "./binary";

interface Vector {
  name: string;
  hex: string;
  message: unknown;
  /** With what a reader may pass over. */
  full?: unknown;
}

const file = new URL("../../../crates/server/tests/data/live.json", import.meta.url);
const vectors = JSON.parse(readFileSync(file, "utf8")) as Vector[];
const bytesOf = (hex: string) => Uint8Array.from(hex.match(/../g)!, (pair) => parseInt(pair, 16));
const buffer = (bytes: Uint8Array) => bytes.slice().buffer as ArrayBuffer;

describe("live messages in binary", () => {
  const expected = ({ message, full }: Vector) => full ?? message;

  it.each(vectors)("$name: says what JSON says", (vector) => {
    expect(decode(buffer(bytesOf(vector.hex)))).toEqual(expected(vector));
  });

  it("throws for what is cut short, and reads nothing from beyond its end", () => {
    for (const vector of vectors) {
      const { name } = vector;
      const bytes = bytesOf(vector.hex);
      for (let end = 0; end < bytes.length; end++) {
        let found: unknown;
        try {
          found = decode(buffer(bytes.subarray(0, end)));
        } catch {
          continue;
        }
        // What a later version adds at its end may be missing.
        expect(found, `${name}, ${end} bytes`).toEqual(expected(vector));
      }
    }
    expect(() => decode(new ArrayBuffer(0))).toThrow(RangeError);
  });

  it("ends with a message or an error for any bytes", () => {
    let seed = 7;
    const random = (below: number) => {
      seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
      return Math.floor((seed / 2 ** 32) * below);
    };
    for (const { hex } of vectors) {
      for (let round = 0; round < 200; round++) {
        const bytes = bytesOf(hex);
        for (let i = 0; i < 3; i++) bytes[random(bytes.length)] = [random(256), 0, 0xff, 0x7f][random(4)]!;
        try {
          decode(buffer(bytes));
        } catch (error) {
          // A RangeError, or the TypeError of a text that is no UTF-8.
          if (!(error instanceof RangeError || error instanceof TypeError)) throw error;
        }
      }
    }
  });
});
