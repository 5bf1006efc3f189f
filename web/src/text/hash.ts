// What of the page stands behind the `#` of its address, so that it can be linked and gone back to.

export type HashKey = "source" | "layout" | "playback";

/** What is said of `key`, or null. */
export function valueOf(hash: string, key: HashKey): string | null {
  const value = new URLSearchParams(hash.replace(/^#/, "")).get(key);
  return value === null || value === "" ? null : value;
}

/** The hash with another value, or without one; what else stands there stays. */
export function withValue(hash: string, key: HashKey, value: string | null): string {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  if (value === null) parts.delete(key);
  else parts.set(key, value);
  const text = parts.toString();
  return text === "" ? "" : `#${text}`;
}

/** The address of this page with another hash. */
export function address(hash: string): string {
  return location.pathname + location.search + hash;
}
