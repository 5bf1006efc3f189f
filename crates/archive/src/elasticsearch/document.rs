//! Frames as documents, behind lines that name the index and the document.

use strongback_store::text::put_time;
use strongback_store::{ArrayRef, Value};

use super::column::{FieldType, Fields};
use super::index::Place;
use crate::columns::{Dialect, Field};
use crate::delivery::StreamFrames;
use crate::json;
use crate::target::TargetError;

/// Writer of the documents of a stream.
pub(super) struct Writer<'a> {
    frames: &'a StreamFrames,
    /// Line before a document, up to the row.
    head: Vec<u8>,
    /// Fields that all documents have, after a comma each.
    tags: Vec<u8>,
    /// Key, content and type of the other fields.
    fields: Vec<(Vec<u8>, &'a Field, FieldType)>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(alias: &str, frames: &'a StreamFrames, places: &'a [Place], origin: u128) -> Writer<'a> {
        let stream = frames.id_there(origin);
        let mut head = b"{\"index\":{\"_index\":".to_vec();
        json::text(&mut head, alias);
        head.extend_from_slice(format!(",\"_id\":\"{stream}-").as_bytes());
        let (mut tags, mut fields) = (Vec::new(), Vec::new());
        for (name, field, field_type) in places {
            let mut key = vec![b','];
            json::text(&mut key, name);
            key.push(b':');
            let fixed = match field {
                Field::Stream => Some(stream.as_str()),
                Field::Tag(tag) => frames.stream.key.tag(tag),
                _ => {
                    fields.push((key, field, *field_type));
                    continue;
                }
            };
            if let Some(text) = fixed {
                tags.append(&mut key);
                json::text(&mut tags, text);
            }
        }
        Writer { frames, head, tags, fields }
    }

    /// Adds a frame, and returns the number of its values that are left out.
    ///
    /// # Errors
    /// Returns an error if its time is before 1970, which the server refuses.
    pub(super) fn write(&self, out: &mut Vec<u8>, at: usize) -> Result<u64, TargetError> {
        let batch = &self.frames.batch;
        let time = batch.time(at);
        if time < 0 {
            return Err(TargetError::Rejected("its time is before 1970".to_owned()));
        }
        out.extend_from_slice(&self.head);
        json::integer(out, batch.rows[at]);
        out.extend_from_slice(b"\"}}\n{\"strongback_row\":");
        json::integer(out, batch.rows[at]);
        out.extend_from_slice(&self.tags);
        let mut altered = 0;
        for (key, field, field_type) in &self.fields {
            let number = match field {
                Field::Time => {
                    // As a text: a number would be milliseconds.
                    let mut text = String::new();
                    put_time(&mut text, time);
                    out.extend_from_slice(key);
                    json::text(out, &text);
                    continue;
                }
                Field::TimeNs => Some(time),
                Field::ReceiveTimeNs => Some(batch.receive_time[at]),
                Field::SourceTimeNs => batch.source_time.as_ref().and_then(|times| times.get(at)),
                Field::Sequence => batch.sequence.as_ref().and_then(|sequence| sequence.get(at)),
                Field::Channel(index) => {
                    if let Ok(cell) = batch.columns[*index].cell(at) {
                        altered += value(out, key, cell, *field_type);
                    }
                    continue;
                }
                _ => continue,
            };
            if let Some(number) = number {
                out.extend_from_slice(key);
                json::integer(out, number);
            }
        }
        out.extend_from_slice(b"}\n");
        Ok(altered)
    }
}

/// Adds a value, unless the server would refuse it. Returns 1 if it is left out or altered.
fn value(out: &mut Vec<u8>, key: &[u8], cell: Value<'_>, field_type: FieldType) -> u64 {
    match cell {
        Value::Array(array) => {
            out.extend_from_slice(key);
            elements(out, array)
        }
        cell if is_refused(cell) || !is_of(cell, field_type) => 1,
        cell => {
            out.extend_from_slice(key);
            json::value(out, cell);
            0
        }
    }
}

fn elements(out: &mut Vec<u8>, array: ArrayRef<'_>) -> u64 {
    let mut is_altered = false;
    out.push(b'[');
    for (at, element) in array.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        match is_refused(element) {
            true => {
                is_altered = true;
                out.extend_from_slice(b"null");
            }
            false => json::value(out, element),
        }
    }
    out.push(b']');
    is_altered.into()
}

fn is_of(cell: Value<'_>, field_type: FieldType) -> bool {
    Fields::holds(field_type, Fields::of_channel(cell.channel_type()))
}

/// Returns whether a number is not in the range of the type of its field.
fn is_refused(cell: Value<'_>) -> bool {
    match cell {
        Value::F32(value) => !value.is_finite(),
        Value::F64(value) => !value.is_finite(),
        Value::U64(value) => i64::try_from(value).is_err(),
        _ => false,
    }
}
