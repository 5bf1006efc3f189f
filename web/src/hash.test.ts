import { describe, expect, it } from "vitest";
import { sourceOf, withSource } from "./hash";

describe("hash", () => {
  it.each(["fti", "a b", "a/b&c=d#e", "+5V", "Prüfstand"])("finds %s again", (name) => expect(sourceOf(withSource("", name))).toBe(name));
  it("reads what a person types", () => {
    expect(sourceOf("#source=fti")).toBe("fti");
    expect([sourceOf(""), sourceOf("#"), sourceOf("#source="), sourceOf("#other=1")]).toEqual([null, null, null, null]);
  });
  it("leaves the rest alone", () => {
    expect(withSource("#x=1&source=a", "b")).toBe("#x=1&source=b");
    expect(withSource("#x=1&source=a", null)).toBe("#x=1");
    expect(withSource("#source=a", null)).toBe("");
  });
});
