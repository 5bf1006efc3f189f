// Bytes as hexadecimal rows with their text beside.

export interface HexRow {
  /** Of the row's first byte, four hexadecimal digits. */
  offset: string;
  /** Pairs of digits, a wider gap in the middle; as wide in every row. */
  hex: string;
  /** Printable ASCII; a middle dot for each other byte. */
  text: string;
}

/** The bytes that pairs of digits say, up to the first that is none. */
export function bytesOf(hex: string): number[] {
  const bytes: number[] = [];
  for (let i = 0; i + 2 <= hex.length; i += 2) {
    const pair = hex.slice(i, i + 2);
    if (!/^[0-9a-f]{2}$/i.test(pair)) break;
    bytes.push(parseInt(pair, 16));
  }
  return bytes;
}

/** Rows of `perRow` bytes. */
export function hexRows(hex: string, perRow: number): HexRow[] {
  const bytes = bytesOf(hex);
  const rows: HexRow[] = [];
  const cells = (part: number[], from: number, to: number) =>
    Array.from({ length: to - from }, (_, i) => part[from + i]?.toString(16).padStart(2, "0") ?? "  ").join(" ");
  for (let at = 0; at < bytes.length; at += perRow) {
    const part = bytes.slice(at, at + perRow);
    const half = perRow / 2;
    rows.push({
      offset: at.toString(16).padStart(4, "0"),
      hex: `${cells(part, 0, half)}  ${cells(part, half, perRow)}`,
      text: part.map((b) => (b >= 0x20 && b < 0x7f ? String.fromCharCode(b) : "·")).join(""),
    });
  }
  return rows;
}
