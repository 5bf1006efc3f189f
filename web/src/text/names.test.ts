import { describe, expect, it } from "vitest";
import { fitted, listNames, sharedPrefix, split } from "./names";

const texts = (...names: string[]) => listNames(names).names.map((one) => one.text);
/** A measure by which every character is one wide. */
const cut = (name: string, room: number, ...beside: string[]) =>
  fitted(split(name, beside), room, (text) => [...text].length);

describe("the beginning that names share", () => {
  it("is left out at a dot", () => {
    const names = ["sensor_values.acu1.p_lox_tank", "sensor_values.acu1.p_lox_line"];
    expect(sharedPrefix(names)).toBe("sensor_values.acu1.");
    expect(texts(...names)).toEqual(["p_lox_tank", "p_lox_line"]);
    expect(texts("a.b.x", "a.c.x")).toEqual(["b.x", "c.x"]);
    expect(texts("engine.p", "engines.p")).toEqual(["engine.p", "engines.p"]);
  });
  it("is none of a name alone, and of names without dots", () => {
    expect([sharedPrefix([]), sharedPrefix(["a.b.c"])]).toEqual(["", ""]);
    expect(sharedPrefix(["p_lox_tank", "p_lox_line"])).toBe("");
    expect(sharedPrefix(["a.b", "p"])).toBe("");
  });
  it("leaves something of a name that another begins with", () => {
    expect(texts("a.b", "a.b.c")).toEqual(["b", "b.c"]);
    expect(texts("a.b.c", "a.b")).toEqual(["b.c", "b"]);
    expect(texts("a.b.", "a.b.c")).toEqual(["b.", "b.c"]);
    expect(texts("a.", "a.b")).toEqual(["a.", "a.b"]);
    expect(texts(".", "..", "")).toEqual([".", "..", ""]);
  });
  it("ends before the tags", () => {
    expect(texts("stand.p{rig=A}", "stand.p{rig=B}")).toEqual(["p{rig=A}", "p{rig=B}"]);
    expect(texts("stand.p{v=1.5}", "stand.p{v=1.6}")).toEqual(["p{v=1.5}", "p{v=1.6}"]);
    expect(texts("stand.{v=1.5}", "stand.{v=1.6}")).toEqual(["stand.{v=1.5}", "stand.{v=1.6}"]);
  });
  it("is left out of equal names, too", () => {
    expect(texts("a.p", "a.p")).toEqual(["p", "p"]);
  });
  it("is left out of names that have it, where others are short already", () => {
    const whole = ["plant.acu1.p", "plant.acu1.t"];
    const texts = (...short: string[]) => {
      const { shared, names } = listNames(short, whole);
      return [shared, ...names.map((one) => one.text)];
    };
    expect(texts("plant.acu1.p", "acu1.t")).toEqual(["plant.acu1.", "p", "t"]);
    expect(texts("acu1.p", "t")).toEqual(["plant.acu1.", "p", "t"]);
    // Nothing was left out of these, and nothing is said.
    expect(texts("p", "t")).toEqual(["", "p", "t"]);
    expect(listNames(["b.p", "p.p"], ["a.p", "a.p"]).names.map((one) => one.text)).toEqual(["b.p", "p.p"]);
  });
  it("may be of any letters", () => {
    expect(texts("Prüfstand.größe.über", "Prüfstand.größe.unter")).toEqual(["über", "unter"]);
    expect(texts("試験.圧力", "試験.温度")).toEqual(["圧力", "温度"]);
  });
});

describe("a name that has no room", () => {
  it("is cut in its middle", () => {
    expect(cut("p_lox_tank_inlet_upper", 22)).toBe("p_lox_tank_inlet_upper");
    expect(cut("p_lox_tank_inlet_upper", 16)).toBe("p_lox…nlet_upper");
    expect(cut("p_lox_tank_inlet_upper", 12)).toBe("p…nlet_upper");
  });
  it("keeps its tags", () => {
    expect(cut("stand.pressure_of_chamber{rig=A}", 16)).toBe("stand…ber{rig=A}");
  });
  it("keeps what tells it from the names beside it", () => {
    const [one, two] = ["chamber_1_temperature_filtered", "chamber_2_temperature_filtered"];
    expect([cut(one, 16, two), cut(two, 16, one)]).toEqual(["…1_temperature_…", "…2_temperature_…"]);
    const both = listNames([one, two, "x"]).names;
    expect(both.slice(0, 2).map(({ head, tail }) => [head, tail])).toEqual([
      ["chamber_", "1_temperature_filtered"], ["chamber_", "2_temperature_filtered"],
    ]);
    // What differs at once is told by the beginning.
    expect(cut("n_temperature_of_the_chamber", 14, "s_temperature_of_the_chamber")).toBe("n_t…he_chamber");
  });
  it("of which another is the beginning keeps its end", () => {
    const [long, short] = listNames(["p_lox_tank_inlet_filtered", "p_lox_tank_inlet"]).names;
    expect(fitted(long!, 15, (text) => text.length)).toBe("p_lo…t_filtered");
    expect(fitted(short!, 15, (text) => text.length)).toBe("p_lo…tank_inlet");
  });
  it("is cut at its end where it is short", () => {
    expect([cut("p_lox_tank", 7), cut("p_lox_tank", 2), cut("p_lox_tank", 1)]).toEqual(["p_lox_…", "p…", "…"]);
  });
  it("is never cut within a character", () => {
    const name = "🚀🚀🚀🚀🚀🚀_e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301";
    const { head, tail } = split(name);
    expect([head, tail]).toEqual(["🚀🚀🚀🚀🚀🚀", "_" + "e\u0301".repeat(9)]);
    expect(fitted(split(name), 22, (text) => [...text].length)).toBe("🚀🚀…" + tail);
    expect(split("👩‍🚀".repeat(14)).tail).toBe("👩‍🚀".repeat(10));
  });
  it("and its parts are the name", () => {
    for (const name of ["", "p", "p_lox_tank", "p_lox_tank_inlet_upper{rig=A}", "🚀".repeat(20)]) {
      const { head, tail } = split(name, ["p_lox_tank_inlet_lower{rig=A}"]);
      expect(head + tail).toBe(name);
    }
  });
});
