// What of the page stands behind the `#` of its address, so that it can be linked and gone back to.

/** Name of the source that is shown, or null. */
export function sourceOf(hash: string): string | null {
  const name = new URLSearchParams(hash.replace(/^#/, "")).get("source");
  return name === null || name === "" ? null : name;
}

/** The hash with another source, or without one; what else stands there stays. */
export function withSource(hash: string, name: string | null): string {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  if (name === null) parts.delete("source");
  else parts.set("source", name);
  const text = parts.toString();
  return text === "" ? "" : `#${text}`;
}
