//! Frames as lines of the line protocol, version 2.
//!
//! Format: QuestDB documentation, "ILP protocol version 2"; numbers of 64 bits are `==`, 16, and 8 bytes, arrays `==`,
//! 14, the type of the elements, the number of dimensions, their lengths, and the elements, all little-endian.

use strongback_store::{ArrayRef, Batch, Value};

use super::column::QuestdbType;
use super::table::Place;
use crate::columns::Field;
use crate::delivery::StreamFrames;
use crate::number;
use crate::target::TargetError;

/// Type of a number of 64 bits in binary.
const DOUBLE: u8 = 16;
/// Head of an array of such numbers with one dimension.
const DOUBLE_ARRAY: [u8; 3] = [14, 10, 1];
/// The largest integer up to which all are exact as numbers of 64 bits.
const EXACT_MAX: i128 = 1 << 53;

/// Returns the lines of frames, and the number of values that are NULL there or rounded.
///
/// # Errors
/// Returns an error if the time of a frame is before 1970, which the database refuses.
pub(super) fn write(
    table: &str,
    parts: &[&StreamFrames],
    plans: &[Vec<Place>],
    origin: u128,
) -> Result<(Vec<u8>, u64), TargetError> {
    let (mut out, mut altered) = (Vec::new(), 0);
    for (part, places) in parts.iter().zip(plans) {
        let (head, altered_tags) = head(table, part, places, origin);
        let fields: Vec<(Vec<u8>, &Field, QuestdbType)> = places
            .iter()
            .filter(|(_, field, _)| !matches!(field, Field::Tag(_) | Field::Stream | Field::Time))
            .map(|(name, field, column_type)| {
                let mut key = vec![b','];
                escape(&mut key, name);
                key.push(b'=');
                (key, field, *column_type)
            })
            .collect();
        for at in 0..part.batch.len() {
            let time = part.batch.time(at);
            if time < 0 {
                return Err(TargetError::Rejected("its time is before 1970".to_owned()));
            }
            out.extend_from_slice(&head);
            altered += altered_tags;
            let begin = out.len();
            for (key, field, column_type) in &fields {
                altered += add(&mut out, &part.batch, at, (key, field, *column_type));
            }
            // The first field follows a space, not a comma.
            out[begin] = b' ';
            out.push(b' ');
            decimal(&mut out, time);
            out.extend_from_slice(b"n\n");
        }
    }
    Ok((out, altered))
}

/// Returns the table and the tags of a stream's lines, and the number of tags that are altered: a zero byte is refused
/// there.
fn head(table: &str, part: &StreamFrames, places: &[Place], origin: u128) -> (Vec<u8>, u64) {
    let (mut head, mut altered) = (Vec::new(), 0);
    escape(&mut head, table);
    for (name, field, _) in places {
        let value = match field {
            Field::Stream => part.id_there(origin),
            Field::Tag(tag) => match part.stream.key.tag(tag) {
                Some(value) => value.to_owned(),
                None => continue,
            },
            _ => continue,
        };
        altered += u64::from(value.contains('\0'));
        head.push(b',');
        escape(&mut head, name);
        head.push(b'=');
        escape(&mut head, &value.replace('\0', "\u{fffd}"));
    }
    (head, altered)
}

/// Adds a field, unless it has no value. Returns 1 if its value is NULL there or rounded, else 0.
fn add(out: &mut Vec<u8>, batch: &Batch, at: usize, (key, field, column_type): (&[u8], &Field, QuestdbType)) -> u64 {
    let instant = |out: &mut Vec<u8>, time: Option<i64>| {
        if let Some(time) = time {
            out.extend_from_slice(key);
            decimal(out, time);
            out.push(b'n');
        }
        0
    };
    match field {
        Field::ReceiveTime => instant(out, Some(batch.receive_time[at])),
        Field::SourceTime => instant(out, batch.source_time.as_ref().and_then(|times| times.get(at))),
        Field::Sequence => match batch.sequence.as_ref().and_then(|sequence| sequence.get(at)) {
            Some(sequence) => integer(out, key, sequence.into()),
            None => 0,
        },
        Field::Row => integer(out, key, batch.rows[at].into()),
        Field::Channel(index) => match batch.columns[*index].cell(at) {
            Ok(value) => cell(out, key, value, column_type),
            Err(_) => 0,
        },
        _ => 0,
    }
}

fn cell(out: &mut Vec<u8>, key: &[u8], value: Value<'_>, column_type: QuestdbType) -> u64 {
    match (column_type, value) {
        (QuestdbType::DoubleArray, Value::Array(array)) => elements(out, key, array),
        (QuestdbType::Int | QuestdbType::Long, value) => match number::integer(value) {
            Some(value) => integer(out, key, value),
            None => 1,
        },
        (QuestdbType::Float | QuestdbType::Double, value) => match number::float(value) {
            // Not a number and infinities are NULL there.
            Some(value) if value.is_finite() => {
                out.extend_from_slice(key);
                out.extend_from_slice(&[b'=', DOUBLE]);
                out.extend_from_slice(&value.to_le_bytes());
                0
            }
            _ => 1,
        },
        (_, Value::String(text)) => quoted(out, key, text),
        (_, Value::Blob(blob)) => quoted(out, key, &blob.to_string()),
        _ => 1,
    }
}

/// Adds an integer. The least one of 64 bits is NULL there, and larger ones are not known.
fn integer(out: &mut Vec<u8>, key: &[u8], value: i128) -> u64 {
    match i64::try_from(value) {
        Ok(value) if value != i64::MIN => {
            out.extend_from_slice(key);
            decimal(out, value);
            out.push(b'i');
            0
        }
        _ => 1,
    }
}

fn elements(out: &mut Vec<u8>, key: &[u8], array: ArrayRef<'_>) -> u64 {
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(&DOUBLE_ARRAY);
    out.extend_from_slice(&(array.len() as u32).to_le_bytes());
    let mut is_altered = false;
    for value in array.iter() {
        let element = number::float(value).unwrap_or(f64::NAN);
        is_altered |= !element.is_finite() || number::integer(value).is_some_and(|exact| exact.abs() > EXACT_MAX);
        out.extend_from_slice(&element.to_le_bytes());
    }
    is_altered.into()
}

fn quoted(out: &mut Vec<u8>, key: &[u8], text: &str) -> u64 {
    out.extend_from_slice(key);
    out.push(b'"');
    for byte in text.bytes() {
        if matches!(byte, b'"' | b'\\' | b'\n' | b'\r') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
    0
}

/// Adds a name or the value of a tag.
fn escape(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        if matches!(byte, b' ' | b',' | b'=' | b'\\' | b'\n' | b'\r') {
            out.push(b'\\');
        }
        out.push(byte);
    }
}

fn decimal(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}
