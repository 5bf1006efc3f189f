import { describe, expect, it } from "vitest";
import { bytesOf, hexRows } from "./hexdump";

describe("hexdump", () => {
  it("rows are equally wide, with offsets and printable text", () => {
    const rows = hexRows("11000000000000dd4849207e7f", 8);
    expect(rows).toEqual([
      { offset: "0000", hex: "11 00 00 00  00 00 00 dd", text: "········" },
      { offset: "0008", hex: "48 49 20 7e  7f         ", text: "HI ~·" },
    ]);
    expect(new Set(rows.map((r) => r.hex.length)).size).toBe(1);
  });
  it("has every byte of 64, whatever the width", () => {
    const hex = Array.from({ length: 64 }, (_, i) => (i * 4).toString(16).padStart(2, "0")).join("");
    for (const width of [4, 8, 16]) {
      const rows = hexRows(hex, width);
      expect(rows.length).toBe(64 / width);
      expect(rows.map((r) => r.hex.replace(/\s/g, "")).join("")).toBe(hex);
    }
  });
  it("takes nothing for bytes that is none", () => {
    expect(bytesOf("")).toEqual([]);
    expect(hexRows("", 8)).toEqual([]);
    expect(bytesOf("0a0")).toEqual([10]);
    expect(bytesOf("0azz0b")).toEqual([10]);
    expect(bytesOf("+1-1")).toEqual([]);
  });
});
