//! Frames as lines of LOAD DATA.
//!
//! Format: MariaDB documentation, "LOAD DATA INFILE", with its default delimiters: fields end with tabs, lines with line
//! feeds, `\` escapes, and `\N` is NULL.

use strongback_store::text::put_time;
use strongback_store::{ArrayRef, Batch, Value};

use super::column::MariadbType;
use crate::columns::Field;
use crate::delivery::StreamFrames;
use crate::{json, number};

/// Adds frames as lines with these columns. Returns the number of values that are NULL there.
pub(super) fn lines(out: &mut Vec<u8>, frames: &StreamFrames, columns: &[(Field, MariadbType)]) -> u64 {
    let batch = &frames.batch;
    let mut altered = 0;
    for at in 0..batch.len() {
        for (place, (source, column_type)) in columns.iter().enumerate() {
            if place > 0 {
                out.push(b'\t');
            }
            let written = match source {
                Field::Nothing | Field::Stream | Field::Repeat => None,
                Field::Tag(tag) => frames.stream.key.tag(tag).map(|value| text(out, value.as_bytes())),
                Field::Time => time(out, Some(batch.time(at))),
                Field::TimeNs => integer(out, Some(batch.time(at))),
                Field::ReceiveTime => time(out, Some(batch.receive_time[at])),
                Field::ReceiveTimeNs => integer(out, Some(batch.receive_time[at])),
                Field::SourceTime => time(out, source_time(batch, at)),
                Field::SourceTimeNs => integer(out, source_time(batch, at)),
                Field::Sequence => integer(out, batch.sequence.as_ref().and_then(|sequence| sequence.get(at))),
                Field::Row => integer(out, Some(batch.rows[at] as i64)),
                Field::Channel(index) => match batch.columns[*index].cell(at) {
                    Ok(value) => {
                        let written = cell(out, value, *column_type);
                        altered += u64::from(written.is_none());
                        written
                    }
                    Err(_) => None,
                },
            };
            if written.is_none() {
                out.extend_from_slice(b"\\N");
            }
        }
        out.push(b'\n');
    }
    altered
}

fn source_time(batch: &Batch, at: usize) -> Option<i64> {
    batch.source_time.as_ref().and_then(|times| times.get(at))
}

/// Adds an instant in UTC, cut to microseconds.
fn time(out: &mut Vec<u8>, time_ns: Option<i64>) -> Option<()> {
    let mut text = String::new();
    put_time(&mut text, time_ns?);
    let (date, rest) = text.split_at_checked(10)?;
    out.extend_from_slice(date.as_bytes());
    out.push(b' ');
    out.extend_from_slice(rest.get(1..16)?.as_bytes());
    Some(())
}

fn integer(out: &mut Vec<u8>, value: Option<impl itoa::Integer>) -> Option<()> {
    value.map(|value| json::integer(out, value))
}

/// Adds a value, or nothing if there is no such value in a column of the type.
fn cell(out: &mut Vec<u8>, value: Value<'_>, column_type: MariadbType) -> Option<()> {
    match (column_type, value) {
        (_, Value::Array(array)) => {
            elements(out, array);
            Some(())
        }
        (_, Value::String(string)) => {
            text(out, string.as_bytes());
            Some(())
        }
        (_, Value::Blob(blob)) => {
            text(out, blob.to_string().as_bytes());
            Some(())
        }
        (MariadbType::Double, value) => {
            let value = number::float(value).filter(|value| value.is_finite())?;
            json::value(out, Value::F64(value));
            Some(())
        }
        (_, value) => integer(out, Some(number::integer(value)?)),
    }
}

fn elements(out: &mut Vec<u8>, array: ArrayRef<'_>) {
    let mut written = Vec::new();
    json::value(&mut written, Value::Array(array));
    text(out, &written);
}

fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\0' => out.extend_from_slice(b"\\0"),
            byte => out.push(*byte),
        }
    }
}
