// Figures with their units as an engineer reads them: spans with a sign, drifts, shares.

const MINUS = "−";
const UNITS = [
  [1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"],
] as const;

/** Three figures: `1.24`, `12.4`, `124`. */
function three(size: number): string {
  return size >= 99.95 ? size.toFixed(0) : size >= 9.995 ? size.toFixed(1) : size.toFixed(2);
}

/** A span in three figures and the unit that fits: `1.24 ms`, `340 ns`, `12.0 s`; days beyond a thousand hours. */
export function spanWords(ns: number): string {
  if (!Number.isFinite(ns)) return "–";
  const size = Math.abs(ns);
  if (size >= 1e6 * 3600 * 1e6) return `${three(size / 86_400e9)} d`;
  if (size >= 7200e9) return `${three(size / 3600e9)} h`;
  for (const [factor, unit] of UNITS) {
    if (size >= factor * 0.9995) return `${unit === "ns" ? Math.round(size) : three(size / factor)} ${unit}`;
  }
  return "0 ns";
}

/** A span with its sign: `+1.24 ms`, `−340 ns`. */
export function signedSpan(ns: number): string {
  const words = spanWords(ns);
  return words === "0 ns" || words === "–" ? words : (ns < 0 ? MINUS : "+") + words;
}

/** A drift: `+3.21 ppm`, `−104 ppm`. */
export function ppm(value: number): string {
  if (!Number.isFinite(value)) return "– ppm";
  const text = three(Math.abs(value));
  const zero = Number(text) === 0;
  return `${zero ? "" : value < 0 ? MINUS : "+"}${text} ppm`;
}

/** A share of a whole: `12.3 %`; what is there is never `0 %`, and what is not all never `100 %`. */
export function share(part: number, whole: number): string {
  if (!(whole > 0)) return "–";
  const percent = (part / whole) * 100;
  if (part === 0) return "0 %";
  if (percent < 0.01) return "<0.01 %";
  if (part < whole && percent > 99.99) return ">99.99 %";
  if (percent < 1) return `${percent.toFixed(2)} %`;
  return `${percent === 100 ? "100" : percent.toFixed(1)} %`;
}

/** A limit as it is said: `2 ms`, `500 µs`, `1 s`, `1 min`. */
export function limitWords(ns: number): string {
  if (ns >= 60e9 && ns % 60e9 === 0) return `${ns / 60e9} min`;
  for (const [factor, unit] of UNITS) if (ns >= factor) return `${+(ns / factor).toFixed(3)} ${unit}`;
  return `${ns} ns`;
}

/** A reason's or cause's word as people read it: `bad_time` is `bad time`. */
export function plain(word: string): string {
  return word.replaceAll("_", " ");
}
