import { describe, expect, it } from "vitest";
import { valueOf, withValue } from "./hash";

describe("the address", () => {
  it("names a source, a layout and a playback, and keeps what else stands there", () => {
    const both = withValue(withValue("", "layout", "Launch é & co"), "source", "fti/1");
    expect(valueOf(both, "layout")).toBe("Launch é & co");
    expect(valueOf(both, "source")).toBe("fti/1");
    expect(withValue(both, "layout", null)).toBe("#source=fti%2F1");
    expect(withValue("#source=x", "source", null)).toBe("");
    expect(valueOf("#layout=", "layout")).toBeNull();
    expect(valueOf("", "playback")).toBeNull();
  });
});
