import { describe, expect, it } from "vitest";
import type { StreamWindow } from "./message";
import { Tail } from "./tail";

const window = (from: string | null, to: string | null, stream = 3): StreamWindow => ({
  stream, from_row: from, to_row: to, committed: null, recorded: from !== null, time: ["0", "0"], receive_time: "0",
  gap: false, channels: [],
});

describe("joining snapshot and tail", () => {
  it("joins where the snapshot ended, and window to window", () => {
    const t = new Tail();
    t.snapshot({ "3": "1200" });
    expect(t.follow(window("1200", "1205"), 7)).toBe("joined");
    expect(t.follow(window("1205", "1206"), 7)).toBe("joined");
    expect(t.follow(window("10", "11", 4), 7)).toBe("joined");
  });
  it("sees what was missed and what is repeated", () => {
    const t = new Tail();
    t.snapshot({ "3": "1200" });
    expect(t.follow(window("1201", "1205"), 7)).toBe("missed");
    expect(t.follow(window("1201", "1205"), 7)).toBe("repeated");
    expect(t.follow(window("1205", "1210"), 7)).toBe("joined");
  });
  it("compares rows beyond 2^53 exactly", () => {
    const t = new Tail();
    t.snapshot({ "3": "9007199254740993" });
    expect(t.follow(window("9007199254740994", "9007199254740995"), 7)).toBe("missed");
  });
  it("does not compare across epochs, and starts again where the server rewound to", () => {
    const t = new Tail();
    t.snapshot({ "3": "1200" });
    t.follow(window("1200", "1205"), 7);
    expect(t.follow(window("1100", "1105"), 8)).toBe("joined");
    t.rewound(3, "1100");
    expect(t.follow(window("1100", "1105"), 8)).toBe("joined");
  });
  it("accepts frames that were not recorded: they have no rows", () => {
    const t = new Tail();
    t.snapshot({ "3": "5" });
    expect(t.follow(window(null, null), 7)).toBe("joined");
    expect(t.follow(window("5", "6"), 7)).toBe("joined");
  });
});
