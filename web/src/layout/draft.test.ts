import { describe, expect, it } from "vitest";
import { readDraft, writeDraft } from "./draft";
import { EMPTY, freeze, withPanel } from "./layout";
import { panel } from "./panel";

const saved = freeze(withPanel(EMPTY, panel("sql", "A")));
const changed = freeze(withPanel(withPanel(EMPTY, panel("sql", "A")), panel("gaps", "B")));

describe("a draft", () => {
  it("goes on from the text that it was changed from", () => {
    const draft = readDraft(writeDraft('"1"', changed), saved, '"1"')!;
    expect([freeze(draft.layout), draft.tag, draft.conflict]).toEqual([changed, '"1"', false]);
  });
  it("is in conflict where someone saved another text since, and keeps the tag that saving must name", () => {
    const draft = readDraft(writeDraft('"1"', changed), saved, '"2"')!;
    expect([draft.tag, draft.conflict]).toEqual(['"1"', true]);
    // It was saved under this name for the first time, by someone else.
    expect(readDraft(writeDraft(null, changed), saved, '"2"')!.conflict).toBe(true);
  });
  it("is none where it says what is saved, whoever saved it", () => {
    expect(readDraft(writeDraft('"1"', saved), saved, '"1"')).toBeNull();
    expect(readDraft(writeDraft('"1"', saved), saved, '"2"')).toBeNull();
  });
  it("that cannot be read says why", () => {
    expect(() => readDraft("{", saved, null)).toThrow();
    expect(() => readDraft(writeDraft(null, '{"version":9}'), saved, null)).toThrow(/version 9 of layouts is newer/);
    expect(() => readDraft("null", saved, null)).toThrow();
  });
});
