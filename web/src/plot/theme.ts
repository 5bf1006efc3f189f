// The tokens as canvases need them, read once and again when the theme changes.

export interface Theme {
  text: string;
  muted: string;
  faint: string;
  line: string;
  line2: string;
  bg: string;
  stale: string;
  watch: string;
  warn: string;
  crit: string;
  replay: string;
  /** Colours of series 0 to 5. */
  series: string[];
  mono: string;
  ui: string;
}

let cached: Theme | null = null;
const listeners = new Set<() => void>();

export function theme(): Theme {
  if (cached) return cached;
  const style = getComputedStyle(document.documentElement);
  const token = (name: string) => style.getPropertyValue(name).trim();
  cached = {
    text: token("--text"), muted: token("--muted"), faint: token("--faint"), line: token("--line"),
    line2: token("--line2"), bg: token("--bg"), stale: token("--stale"), watch: token("--watch"),
    warn: token("--warn"), crit: token("--crit"), replay: token("--replay"),
    series: [1, 2, 3, 4, 5, 6].map((i) => token(`--c${i}`)),
    mono: token("--mono"), ui: token("--ui"),
  };
  return cached;
}

/** Sets and remembers the theme. */
export function setTheme(name: "dark" | "light"): void {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("strongback.theme", name);
  cached = null;
  for (const listener of listeners) listener();
}

export function currentTheme(): "dark" | "light" {
  return document.documentElement.dataset.theme === "light" ? "light" : "dark";
}

export function onTheme(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
