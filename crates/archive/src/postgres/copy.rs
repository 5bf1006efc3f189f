//! Frames in the binary format of COPY.
//!
//! Format: PostgreSQL documentation, "COPY", section "Binary Format"; the representation of each type is the one that
//! its receive function takes.

use strongback_store::{ArrayRef, Batch, Value};

use super::column::PgType;
use crate::columns::Field;
use crate::delivery::StreamFrames;
use crate::number;

const HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// 2000-01-01 in microseconds since 1970.
const EPOCH_US: i64 = 946_684_800_000_000;

/// Begins a copy.
pub(super) fn begin() -> Vec<u8> {
    HEAD.to_vec()
}

/// Ends a copy.
pub(super) fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1_i16).to_be_bytes());
}

/// Adds frames as rows with these columns.
pub(super) fn rows(out: &mut Vec<u8>, frames: &StreamFrames, columns: &[(Field, PgType)]) {
    let batch = &frames.batch;
    for at in 0..batch.len() {
        out.extend_from_slice(&(columns.len() as i16).to_be_bytes());
        for (source, pg_type) in columns {
            field(out, |out| match source {
                Field::Nothing | Field::Stream | Field::Repeat => None,
                Field::Tag(tag) => frames.stream.key.tag(tag).map(|value| out.extend_from_slice(value.as_bytes())),
                Field::Time => time(out, Some(batch.time(at))),
                Field::TimeNs => int8(out, Some(batch.time(at))),
                Field::ReceiveTime => time(out, Some(batch.receive_time[at])),
                Field::ReceiveTimeNs => int8(out, Some(batch.receive_time[at])),
                Field::SourceTime => time(out, source_time(batch, at)),
                Field::SourceTimeNs => int8(out, source_time(batch, at)),
                Field::Sequence => int8(out, batch.sequence.as_ref().and_then(|sequence| sequence.get(at))),
                Field::Row => int8(out, Some(batch.rows[at] as i64)),
                Field::Channel(index) => batch.columns[*index].cell(at).ok().map(|value| cell(out, value, *pg_type)),
            });
        }
    }
}

fn source_time(batch: &Batch, at: usize) -> Option<i64> {
    batch.source_time.as_ref().and_then(|times| times.get(at))
}

/// Adds a field: its length and what `write` adds, or NULL if that is nothing.
fn field(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Option<()>) {
    let head = out.len();
    out.extend_from_slice(&(-1_i32).to_be_bytes());
    if write(out).is_some() {
        let length = (out.len() - head - 4) as i32;
        out[head..head + 4].copy_from_slice(&length.to_be_bytes());
    } else {
        out.truncate(head + 4);
    }
}

fn time(out: &mut Vec<u8>, time_ns: Option<i64>) -> Option<()> {
    int8(out, time_ns.map(|time_ns| time_ns.div_euclid(1_000) - EPOCH_US))
}

fn int8(out: &mut Vec<u8>, value: Option<i64>) -> Option<()> {
    value.map(|value| out.extend_from_slice(&value.to_be_bytes()))
}

fn cell(out: &mut Vec<u8>, value: Value<'_>, pg_type: PgType) {
    match value {
        Value::Array(array) => elements(out, array, pg_type),
        Value::String(text) => out.extend_from_slice(text.as_bytes()),
        Value::Blob(blob) => out.extend_from_slice(blob.to_string().as_bytes()),
        value => scalar(out, value, pg_type),
    }
}

/// Adds a value in a type that is at least as wide.
fn scalar(out: &mut Vec<u8>, value: Value<'_>, pg_type: PgType) {
    match (pg_type, value) {
        (PgType::Bool, Value::Bool(value)) => out.push(u8::from(value)),
        (PgType::Float4, Value::F32(value)) => out.extend_from_slice(&value.to_be_bytes()),
        (PgType::Float8, value) => out.extend_from_slice(&number::float(value).unwrap_or_default().to_be_bytes()),
        (PgType::Int2, value) => out.extend_from_slice(&(integer(value) as i16).to_be_bytes()),
        (PgType::Int4, value) => out.extend_from_slice(&(integer(value) as i32).to_be_bytes()),
        (PgType::Int8, value) => out.extend_from_slice(&(integer(value) as i64).to_be_bytes()),
        (PgType::Numeric, value) => numeric(out, integer(value)),
        (PgType::Bool | PgType::Float4 | PgType::Text | PgType::TimestampTz, _) => {}
    }
}

/// Returns the integer of a value whose column has integers.
fn integer(value: Value<'_>) -> i128 {
    number::integer(value).unwrap_or_default()
}

/// Adds an integer as `numeric`: digits of base 10,000, the most significant first.
fn numeric(out: &mut Vec<u8>, value: i128) {
    let (mut rest, mut digits) = (value.unsigned_abs(), [0_i16; 10]);
    let mut count = 0;
    while rest > 0 {
        digits[count] = (rest % 10_000) as i16;
        rest /= 10_000;
        count += 1;
    }
    let sign: u16 = if value < 0 { 0x4000 } else { 0 };
    out.extend_from_slice(&(count as i16).to_be_bytes());
    out.extend_from_slice(&(count.saturating_sub(1) as i16).to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&0_i16.to_be_bytes());
    digits[..count].iter().rev().for_each(|digit| out.extend_from_slice(&digit.to_be_bytes()));
}

/// Adds an array of one dimension, from index 1.
fn elements(out: &mut Vec<u8>, array: ArrayRef<'_>, pg_type: PgType) {
    let length = array.len();
    let dimensions = i32::from(length > 0);
    for number in [dimensions, 0, pg_type.oid() as i32] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    if length == 0 {
        return;
    }
    for number in [length as i32, 1] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    for value in array.iter() {
        field(out, |out| {
            scalar(out, value, pg_type);
            Some(())
        });
    }
}
