//! Exports as text: CSV and JSON lines.

use std::fmt::Write;

use strongback_store::Value;

use super::{CHUNK_BYTES, ExportColumns, ExportRow, RowWriter};
use crate::error::QueryError;
use crate::query::answer::put_text;
use crate::system::GapRow;
use crate::system::state::plain_text;
use crate::wire::encode::timestamp_text;

/// RFC 3339 with all nine digits of the fraction.
pub(super) fn put_time(out: &mut String, time_ns: i64) {
    // Whole seconds by the calendar of the wire's encoder, the fraction as it is.
    let seconds = time_ns.div_euclid(1_000_000_000);
    let date = timestamp_text(seconds * 1_000_000, false);
    let _ = write!(out, "{}.{:09}Z", date.replacen(' ', "T", 1), time_ns.rem_euclid(1_000_000_000));
}

fn gap_words(gap: &GapRow) -> String {
    match gap.words.as_str() {
        "" => format!("{} frames missing", gap.open),
        words => words.to_owned(),
    }
}

/// Comma-separated values.
pub(super) struct CsvWriter {
    out: String,
    columns: usize,
}

impl CsvWriter {
    pub(super) fn new(columns: &ExportColumns) -> Self {
        let mut out = String::from("time,time_ns,stream,gap");
        for column in &columns.all {
            out.push(',');
            match column.channel().unit.as_str() {
                "" => put_field(&mut out, &column.name),
                unit => put_field(&mut out, &format!("{} [{unit}]", column.name)),
            }
        }
        out.push('\n');
        CsvWriter { out, columns: columns.all.len() }
    }

    fn start(&mut self, time_ns: i64, stream: &str, gap: &str) {
        put_time(&mut self.out, time_ns);
        let _ = write!(self.out, ",{time_ns},");
        put_field(&mut self.out, stream);
        self.out.push(',');
        put_field(&mut self.out, gap);
    }

    fn blank(&mut self, columns: usize) {
        self.out.extend(std::iter::repeat_n(',', columns));
    }
}

impl RowWriter for CsvWriter {
    fn row(&mut self, _: &ExportColumns, row: ExportRow<'_>) -> Result<(), QueryError> {
        match row {
            ExportRow::Frame { stream, first, batch, row } => {
                self.start(batch.time(row), &stream.key.to_string(), "");
                self.blank(first);
                for column in &batch.columns {
                    self.out.push(',');
                    if let Ok(value) = column.cell(row) {
                        match value {
                            // Without quotes it is no value.
                            Value::String("") => self.out.push_str("\"\""),
                            Value::String(text) => put_field(&mut self.out, text),
                            array @ (Value::Array(_) | Value::Blob(_)) => put_field(&mut self.out, &plain_text(&array)),
                            other => self.out.push_str(&plain_text(&other)),
                        }
                    }
                }
                self.blank(self.columns - first - batch.columns.len());
            }
            ExportRow::Gap(gap) => {
                self.start(gap.from_time_ns, &gap.stream_name, &gap_words(gap));
                self.blank(self.columns);
            }
        }
        self.out.push('\n');
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.out.len() >= CHUNK_BYTES
    }

    fn take(&mut self) -> Vec<u8> {
        match self.is_full() {
            true => std::mem::take(&mut self.out).into_bytes(),
            false => Vec::new(),
        }
    }

    fn finish(self: Box<Self>) -> Result<Vec<u8>, QueryError> {
        Ok(self.out.into_bytes())
    }
}

fn put_field(out: &mut String, text: &str) {
    if !text.contains([',', '"', '\n', '\r']) {
        return out.push_str(text);
    }
    out.push('"');
    out.push_str(&text.replace('"', "\"\""));
    out.push('"');
}

/// JSON lines.
pub(super) struct JsonlWriter {
    out: String,
}

impl JsonlWriter {
    pub(super) fn new(columns: &ExportColumns) -> Self {
        JsonlWriter { out: columns.describe() + "\n" }
    }
}

impl RowWriter for JsonlWriter {
    fn row(&mut self, columns: &ExportColumns, row: ExportRow<'_>) -> Result<(), QueryError> {
        let out = &mut self.out;
        match row {
            ExportRow::Frame { stream, first, batch, row } => {
                let time_ns = batch.time(row);
                out.push_str("{\"type\":\"frame\",\"time\":\"");
                put_time(out, time_ns);
                let _ = write!(out, "\",\"time_ns\":\"{time_ns}\",\"stream\":");
                put_text(out, &stream.key.to_string());
                out.push_str(",\"values\":{");
                let mut separator = "";
                for (at, column) in batch.columns.iter().enumerate() {
                    if let Ok(value) = column.cell(row) {
                        out.push_str(separator);
                        separator = ",";
                        put_text(out, &columns.all[first + at].name);
                        out.push(':');
                        put_value(out, &value);
                    }
                }
                out.push_str("}}\n");
            }
            ExportRow::Gap(gap) => {
                out.push_str("{\"type\":\"gap\",\"stream\":");
                put_text(out, &gap.stream_name);
                let (from, to, count) = (gap.from_time_ns, gap.to_time_ns, gap.open);
                let _ = write!(out, ",\"from_time_ns\":\"{from}\",\"to_time_ns\":\"{to}\",\"count\":\"{count}\"");
                out.push_str(",\"cause\":");
                put_text(out, &gap.cause);
                out.push_str(",\"words\":");
                put_text(out, &gap_words(gap));
                out.push_str("}\n");
            }
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.out.len() >= CHUNK_BYTES
    }

    fn take(&mut self) -> Vec<u8> {
        match self.is_full() {
            true => std::mem::take(&mut self.out).into_bytes(),
            false => Vec::new(),
        }
    }

    fn finish(self: Box<Self>) -> Result<Vec<u8>, QueryError> {
        Ok(self.out.into_bytes())
    }
}

fn put_value(out: &mut String, value: &Value<'_>) {
    if let Value::Array(array) = value {
        out.push('[');
        for (at, element) in array.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            put_value(out, &element);
        }
        return out.push(']');
    }
    let finite = match value {
        Value::F32(v) => v.is_finite(),
        Value::F64(v) => v.is_finite(),
        Value::I64(_) | Value::U64(_) | Value::String(_) | Value::Blob(_) => false,
        _ => true,
    };
    match finite {
        true => out.push_str(&plain_text(value)),
        false => put_text(out, &plain_text(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_right_to_both_ends_of_their_range() {
        for (time_ns, want) in [
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
            (i64::MIN + 1, "1677-09-21T00:12:43.145224193Z"),
            (i64::MIN + 854_775_808, "1677-09-21T00:12:44.000000000Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (0, "1970-01-01T00:00:00.000000000Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
        ] {
            let mut out = String::new();
            put_time(&mut out, time_ns);
            assert_eq!(out, want);
        }
    }
}
