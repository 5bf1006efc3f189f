// Query results as CSV (RFC 4180), for the clipboard.
import type { SqlAnswer } from "./message";
import { exact } from "./number";

function cell(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

export function toCsv(answer: SqlAnswer): string {
  const lines = [answer.columns.map((c) => cell(c.name)).join(",")];
  for (const row of answer.rows) lines.push(row.map((value) => cell(exact(value))).join(","));
  return lines.join("\r\n") + "\r\n";
}
