// CSV (RFC 4180): query results, and what a plot shows.
import type { PastSeries, SqlAnswer, WireValue } from "../connection/message";
import { exact } from "./number";
import { rfc3339 } from "./time";

function cell(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

const line = (cells: WireValue[]) => cells.map((value) => cell(exact(value))).join(",");

export function toCsv(answer: SqlAnswer): string {
  const lines = [line(answer.columns.map((c) => c.name))];
  for (const row of answer.rows) lines.push(line(row));
  return lines.join("\r\n") + "\r\n";
}

/** A row for each bucket: its beginning to the nanosecond, and everything that it stands for. */
export function seriesCsv(series: PastSeries[]): string {
  const lines = ["time,channel,unit,count,first,last,min,max,mean"];
  for (const { channel, buckets } of series) {
    for (const [t0, ...cells] of buckets) lines.push(line([rfc3339(BigInt(t0)), channel.name, channel.unit, ...cells]));
  }
  return lines.join("\r\n") + "\r\n";
}

/** Hands a text to the browser as a file. */
export function save(name: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
