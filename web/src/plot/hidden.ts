// Channels of a plot that a click on the legend hides, by name. Nothing of it is saved.

export type Hidden = ReadonlySet<string>;

export const NONE_HIDDEN: Hidden = new Set();

/** One more is hidden, or shown again. */
export function turned(hidden: Hidden, name: string): Hidden {
  const next = new Set(hidden);
  if (!next.delete(name)) next.add(name);
  return next;
}

/** Without those that left the panel: one that comes back is shown. The same set where none left. */
export function stillHidden(hidden: Hidden, names: readonly string[]): Hidden {
  // A panel that asks again knows no channel for a moment.
  if (names.length === 0 || [...hidden].every((name) => names.includes(name))) return hidden;
  return new Set([...hidden].filter((name) => names.includes(name)));
}
