// Channel patterns, read as the server reads them: a glob over `table.channel`, and in braces one over each
// listed tag, or its value in quotes. The page uses them to know which channels of its catalog a panel shows, and to
// ask for one name.
import type { Channel } from "../connection/message";

/** `*` any run of characters, `?` one, `\` takes the next as it is. */
function glob(text: string): RegExp {
  let source = "";
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    if (c === "*") source += "[^]*";
    else if (c === "?") source += "[^]";
    else source += (c === "\\" && i + 1 < text.length ? text[++i]! : c).replace(/[.+*?^${}()|[\]\\/]/g, "\\$&");
  }
  return new RegExp(`^${source}$`, "u");
}

/** The pattern that matches this name and no other. */
export function literally(name: string): string {
  return name.replace(/[\\*?,{}"]/g, "\\$&");
}

/** Where a sign stands that has no `\` before it and is not in the quotes of a tag or value; the end if nowhere. */
function signAt(text: string, sign: string): number {
  let [inQuotes, begins] = [false, true];
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    if (c === "\\") i++;
    else if (c === '"' && (inQuotes || begins)) inQuotes = !inQuotes;
    else if (c === sign && !inQuotes) return i;
    begins = c === "=" || (begins && c === " ");
  }
  return text.length;
}

/** The parts of a text between commas that are not in quotes. */
function parts(text: string): string[] {
  const end = signAt(text, ",");
  return end < text.length ? [text.slice(0, end), ...parts(text.slice(end + 1))] : [text];
}

/** What stands in quotes; null if it is not in quotes. */
function unquoted(text: string): string | null {
  const trimmed = text.trim();
  return /^"(?:[^"\\]|\\[^])*"$/.test(trimmed) ? trimmed.slice(1, -1).replace(/\\([^])/g, "$1") : null;
}

/** The pattern that matches a channel; without tags also those of the same name with tags. */
export function naming(channel: Channel): string {
  const tags = Object.entries(channel.tags).map(([tag, value]) => `${tag}=${literally(value)}`);
  return literally(`${channel.table}.${channel.channel}`) + (tags.length === 0 ? "" : `{${tags.join(",")}}`);
}

/** The channels that a pattern or full name stands for. */
export function matching(pattern: string, channels: Channel[]): Channel[] {
  const exact = channels.find((c) => c.name === pattern);
  if (exact) return [exact];
  const brace = pattern.endsWith("}") ? pattern.search(/(?<!\\)\{/) : -1;
  const name = glob(brace < 0 ? pattern : pattern.slice(0, brace));
  const tags = parts(brace < 0 ? "" : pattern.slice(brace + 1, -1)).filter((pair) => pair !== "").map((pair) => {
    const at = signAt(pair, "=");
    const [key, value] = [pair.slice(0, at), pair.slice(at + 1)];
    const word = unquoted(value);
    return { tag: unquoted(key) ?? key, value: at === pair.length ? /^/ : glob(word === null ? value : literally(word)) };
  });
  return channels.filter(
    (c) => name.test(`${c.table}.${c.channel}`) &&
      tags.every(({ tag, value }) => c.tags[tag] !== undefined && value.test(c.tags[tag]!)),
  );
}
