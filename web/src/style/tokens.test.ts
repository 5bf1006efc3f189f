import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const css = readFileSync(new URL("./tokens.css", import.meta.url), "utf8");

function tokens(block: RegExp): Record<string, string> {
  const body = block.exec(css)![1]!;
  return Object.fromEntries([...body.matchAll(/--([\w-]+):\s*(#[0-9a-f]{6});/g)].map((m) => [m[1]!, m[2]!]));
}

/** Relative luminance and contrast as WCAG 2.2 defines them. */
function luminance(hex: string): number {
  const [r, g, b] = [1, 3, 5].map((i) => {
    const c = parseInt(hex.slice(i, i + 2), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
}
function contrast(a: string, b: string): number {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (high! + 0.05) / (low! + 0.05);
}

const dark = tokens(/:root \{([^}]*)\}/);
const light = { ...dark, ...tokens(/data-theme="light"\] \{([^}]*)\}/) };

describe("tokens", () => {
  it.each([["dark", dark], ["light", light]])("%s: every text colour is legible on every ground (AA)", (_, t) => {
    for (const text of ["text", "muted", "faint", "stale"])
      for (const ground of ["bg", "panel", "raised"])
        expect(contrast(t[text]!, t[ground]!), `${text} on ${ground}`).toBeGreaterThanOrEqual(4.5);
  });
  it("banners: dark text on their colours, in both themes (AA)", () => {
    for (const colour of ["watch", "warn", "crit"]) expect(contrast(dark["on-colour"]!, dark[colour]!)).toBeGreaterThanOrEqual(4.5);
  });
  it("series stand out from the dark ground and have similar weight", () => {
    const values = [1, 2, 3, 4, 5, 6].map((i) => contrast(dark[`c${i}`]!, dark.bg!));
    expect(Math.min(...values)).toBeGreaterThan(4.5);
    expect(Math.max(...values) / Math.min(...values)).toBeLessThan(1.8);
  });
  it("light changes neutrals only", () => {
    const changed = Object.keys(light).filter((k) => (light as Record<string, string>)[k] !== dark[k]);
    expect(changed.sort()).toEqual(["bg", "faint", "line", "line2", "muted", "panel", "raised", "stale", "text"]);
  });
});
