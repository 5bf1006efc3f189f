//! Values as JSON: integers as numbers with all their digits, not-a-number and infinities as texts.

use strongback_store::Value;
use strongback_store::text::not_finite;

/// Adds a value: arrays as arrays, blobs as their references.
pub(crate) fn value(out: &mut Vec<u8>, cell: Value<'_>) {
    match cell {
        Value::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        Value::I8(value) => integer(out, value),
        Value::I16(value) => integer(out, value),
        Value::I32(value) => integer(out, value),
        Value::I64(value) => integer(out, value),
        Value::U8(value) => integer(out, value),
        Value::U16(value) => integer(out, value),
        Value::U32(value) => integer(out, value),
        Value::U64(value) => integer(out, value),
        Value::F32(value) if value.is_finite() => any(out, &value),
        Value::F32(value) => any(out, not_finite(value.into())),
        Value::F64(value) if value.is_finite() => any(out, &value),
        Value::F64(value) => any(out, not_finite(value)),
        Value::String(value) => text(out, value),
        Value::Blob(blob) => text(out, &blob.to_string()),
        Value::Array(array) => {
            out.push(b'[');
            for (at, element) in array.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                value(out, element);
            }
            out.push(b']');
        }
    }
}

/// Adds an integer.
pub(crate) fn integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Adds a text in quotes.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    any(out, text);
}

fn any<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Writing into memory does not fail, and neither do numbers and texts.
    let _ = serde_json::to_writer(out, value);
}
