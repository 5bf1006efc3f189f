//! Frames as points of the line protocol.
//!
//! Format: InfluxDB documentation, "Line protocol reference".

use strongback_store::{Batch, Value};

use super::Place;
use super::column::InfluxdbType;
use crate::columns::Field;
use crate::delivery::StreamFrames;
use crate::{json, number};

/// Writer of the points of a stream.
pub(super) struct Writer<'a> {
    frames: &'a StreamFrames,
    /// Measurement and tags that all points have.
    head: Vec<u8>,
    /// Tags that are altered in each point.
    altered_tags: u64,
    /// Key and content of the fields.
    fields: Vec<(Vec<u8>, &'a Field, InfluxdbType)>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(measurement: &str, frames: &'a StreamFrames, places: &'a [Place], origin: u128) -> Writer<'a> {
        let (mut head, mut altered_tags, mut fields) = (Vec::new(), 0, Vec::new());
        escape(&mut head, measurement, b" ,");
        // Sorted, which the server would do otherwise.
        let mut tags: Vec<(&str, String)> = Vec::new();
        for (name, field, column_type) in places {
            match field {
                Field::Stream => tags.push((name, frames.id_there(origin))),
                Field::Tag(tag) => {
                    tags.extend(frames.stream.key.tag(tag).map(|value| (name.as_str(), value.to_owned())))
                }
                Field::Time | Field::Repeat => {}
                field => {
                    let mut key = vec![b','];
                    escape(&mut key, name, b" ,=");
                    key.push(b'=');
                    fields.push((key, field, *column_type));
                }
            }
        }
        tags.sort();
        for (name, value) in &tags {
            let plain = plain_tag(value);
            altered_tags += u64::from(plain != *value);
            head.push(b',');
            escape(&mut head, name, b" ,=");
            head.push(b'=');
            escape(&mut head, &plain, b" ,=");
        }
        Writer { frames, head, altered_tags, fields }
    }

    /// Adds a frame, and returns the number of its values that are left out or altered.
    pub(super) fn write(&self, out: &mut Vec<u8>, at: usize) -> u64 {
        let batch = &self.frames.batch;
        out.extend_from_slice(&self.head);
        // Another point of the stream with this time would be replaced.
        if let Some(repeat) = self.frames.repeats.get(at).filter(|repeat| **repeat > 0) {
            out.extend_from_slice(b",strongback_repeat=");
            json::integer(out, *repeat);
        }
        let begin = out.len();
        let mut altered = self.altered_tags;
        for (key, field, column_type) in &self.fields {
            altered += add(out, batch, at, (key, field, *column_type));
        }
        // The first field follows a space, not a comma.
        out[begin] = b' ';
        out.push(b' ');
        json::integer(out, batch.time(at));
        out.push(b'\n');
        altered
    }
}

/// Returns the value of a tag without what a tag cannot have: a line end, and a `\` at its end.
fn plain_tag(value: &str) -> String {
    let plain: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let kept = plain.trim_end_matches('\\').len();
    format!("{}{}", &plain[..kept], "/".repeat(plain.len() - kept))
}

/// Adds a field, unless it has no value. Returns 1 if its value is left out or altered, else 0.
fn add(out: &mut Vec<u8>, batch: &Batch, at: usize, (key, field, column_type): (&[u8], &Field, InfluxdbType)) -> u64 {
    let number = match field {
        Field::ReceiveTimeNs => Some(batch.receive_time[at]),
        Field::SourceTimeNs => batch.source_time.as_ref().and_then(|times| times.get(at)),
        Field::Sequence => batch.sequence.as_ref().and_then(|sequence| sequence.get(at)),
        Field::Row => Some(batch.rows[at] as i64),
        Field::Channel(index) => {
            return match batch.columns[*index].cell(at) {
                Ok(value) => cell(out, key, value, column_type),
                Err(_) => 0,
            };
        }
        _ => None,
    };
    number.map_or(0, |number| integer(out, key, number.into()))
}

fn cell(out: &mut Vec<u8>, key: &[u8], value: Value<'_>, column_type: InfluxdbType) -> u64 {
    match (column_type, value) {
        (InfluxdbType::Boolean, Value::Bool(value)) => {
            out.extend_from_slice(key);
            out.extend_from_slice(if value { b"true" } else { b"false" });
            0
        }
        (InfluxdbType::Integer, value) => match number::integer(value) {
            Some(value) => integer(out, key, value),
            None => 1,
        },
        (InfluxdbType::Float, value) => match number::float(value) {
            // Not a number and infinities do not exist there.
            Some(value) if value.is_finite() => {
                out.extend_from_slice(key);
                json::value(out, Value::F64(value));
                0
            }
            _ => 1,
        },
        (_, Value::String(text)) => quoted(out, key, text),
        (_, Value::Blob(blob)) => quoted(out, key, &blob.to_string()),
        (_, array @ Value::Array(_)) => {
            let mut text = Vec::new();
            json::value(&mut text, array);
            quoted(out, key, &String::from_utf8_lossy(&text))
        }
        _ => 1,
    }
}

fn integer(out: &mut Vec<u8>, key: &[u8], value: i128) -> u64 {
    let Ok(value) = i64::try_from(value) else { return 1 };
    out.extend_from_slice(key);
    json::integer(out, value);
    out.push(b'i');
    0
}

fn quoted(out: &mut Vec<u8>, key: &[u8], text: &str) -> u64 {
    out.extend_from_slice(key);
    out.push(b'"');
    escape(out, text, b"\"\\");
    out.push(b'"');
    0
}

fn escape(out: &mut Vec<u8>, text: &str, special: &[u8]) {
    for byte in text.bytes() {
        if special.contains(&byte) {
            out.push(b'\\');
        }
        out.push(byte);
    }
}
