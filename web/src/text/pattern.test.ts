import { describe, expect, it } from "vitest";
import type { Channel } from "../connection/message";
import { literally, matching, naming } from "./pattern";

const channel = (table: string, name: string, tags: Record<string, string>): Channel => {
  const list = Object.entries(tags).map(([k, v]) => `${k}=${v}`).join(",");
  return {
    id: 0, name: `${table}.${name}${list ? `{${list}}` : ""}`, table, channel: name, tags, stream: 0, type: "f64", unit: "",
    description: "", source: "", expected_period_ns: null, interpolation: "linear",
  };
};
const all = [
  channel("avionics.sensor_values", "p_lox", { acu: "1", site: "a" }), channel("avionics.sensor_values", "p_lox", { acu: "2" }),
  channel("fti.bay", "t_1", {}), channel("odd", "a*b{c}", {}),
];
const names = (pattern: string) => matching(pattern, all).map((c) => c.name);

describe("patterns", () => {
  it("name a channel with its tags, and none beside it", () => {
    expect(all.map((c) => names(naming(c)))).toEqual(all.map((c) => [c.name]));
    expect(naming(channel("t", "c", { a: "1,2", b: "x*" }))).toBe("t.c{a=1\\,2,b=x\\*}");
  });
  it.each([
    ["avionics.*", 2], ["*.p_lox{acu=1}", 1], ["*{acu=?}", 2], ["*{site=*}", 1], ["*{acu}", 2], ["*{acu=1,site=b}", 0],
    ["fti.bay.t_?", 1], ["fti.bay", 0], ["*", 4], ["fti.bay.t_1", 1], ["fti_bay.t_1", 0],
  ])("%s matches %i", (pattern, count) => expect(names(pattern)).toHaveLength(count));
  it("takes a full name as it is, however odd", () => {
    expect(names("odd.a*b{c}")).toEqual(["odd.a*b{c}"]);
    expect(names("odd.a\\*b\\{c}")).toEqual(["odd.a*b{c}"]);
    expect(names("avionics.sensor_values.p_lox{acu=2}")).toHaveLength(1);
  });
  it("takes a tag in quotes as it is", () => {
    const odd = [channel("p", "v", { site: "Berlin,Mitte" }), channel("p", "v", { site: "Berlin,*" }), channel("p", "v", { site: '"a}\\' })];
    const found = (pattern: string) => matching(pattern, odd).map((c) => c.tags.site);
    expect(found('p.*{site="Berlin,Mitte"}')).toEqual(["Berlin,Mitte"]);
    expect(found('*{"site"="Berlin,*"}')).toEqual(["Berlin,*"]);
    expect(found('*{site="\\"a}\\\\"}')).toEqual(['"a}\\']);
    expect(found("*{site=Berlin*}")).toHaveLength(2);
    expect(odd.map((c) => found(naming(c)))).toEqual(odd.map((c) => [c.tags.site]));
  });
  it("writes a name so that it stands for itself", () => {
    expect(literally("fti.bay-1 (north)")).toBe("fti.bay-1 (north)");
    expect(literally("a*b?c,d{e}\\f")).toBe("a\\*b\\?c\\,d\\{e\\}\\\\f");
    expect(names(literally("odd.a*b{c}"))).toEqual(["odd.a*b{c}"]);
  });
});
