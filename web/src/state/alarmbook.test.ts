import { describe, expect, it } from "vitest";
import { alarmsAt, type AlarmStep, readStep } from "./alarmbook";

const step = (time: number, what: string, more: Partial<AlarmStep> = {}): AlarmStep => ({
  time: BigInt(time), channel: "tank.p", limit: "pressure", step: what, level: null, before: null, why: null, value: null, text: "",
  bound: null, by: "", note: "", until: null, ...more,
});
const level = (time: number, before: AlarmStep["before"], to: AlarmStep["level"]) =>
  step(time, "level", { before, level: to, why: to === "normal" ? null : "high", text: String(time) });
const at = (steps: AlarmStep[], ...times: number[]) => times.map((t) => alarmsAt(steps, BigInt(t)).map((a) => `${a.state} ${a.level} ${a.worst}${a.acknowledged ? ` ${a.acknowledged.by}` : ""}${a.shelved ? " shelved" : ""}`).join());

describe("alarms at an instant of the past", () => {
  it("are those that stood then, whatever came after", () => {
    const life = [level(10, "normal", "warning"), step(20, "acknowledged", { by: "Ada" }), level(30, "warning", "critical"), level(40, "critical", "normal"), step(50, "acknowledged", { by: "Bob" })];
    expect(at(life, 5, 10, 25, 35, 45, 50)).toEqual(
      ["", "raised warning warning", "acknowledged warning warning Ada", "raised critical critical", "cleared normal critical", ""],
    );
    expect(alarmsAt(life, 35n)[0]).toMatchObject({ raised: "10", changed: "30", text: "30", why: "high" });
  });
  it("are shelved until their time, and come back unknown", () => {
    const life = [level(10, "normal", "watch"), step(12, "shelved", { by: "Ada", until: 20n }), level(15, "watch", "normal"), level(16, "normal", "watch"), step(17, "unshelved", { by: "Ada" })];
    expect(at(life, 13, 15, 16, 18)).toEqual(["raised watch watch shelved", "cleared normal watch shelved", "raised watch watch shelved", "raised watch watch"]);
    expect(at(life.slice(0, 2), 19, 20)).toEqual(["raised watch watch shelved", "raised watch watch"]);
    // Acknowledged and well while shelved: over when the shelf is.
    expect(at([...life.slice(0, 3), step(18, "acknowledged", { by: "Ada" })], 19, 21)).toEqual(["cleared normal watch Ada shelved", ""]);
  });
  it("are read from rows of SQL to the nanosecond", () => {
    expect(readStep(["1700000000123456789", "a.b", "l", "raised", "warning", "normal", "high", 9.5, "9.5", 8, null, null, null])).toEqual(
      step(0, "raised", { time: 1_700_000_000_123_456_789n, channel: "a.b", limit: "l", level: "warning", before: "normal", why: "high", value: 9.5, text: "9.5", bound: 8 }),
    );
  });
});
