//! JSON as the interface writes it: 64-bit integers as decimal strings, NaN and infinities as words.
//!
//! Live updates are written directly into a reused buffer; everything else goes through serde.

use std::io::Write as _;

use serde::{Serialize, Serializer};
use strongback_store::Value;
use strongback_store::text::not_finite;

/// A 64-bit integer written as a decimal string in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Big<T>(pub T);

impl<T: std::fmt::Display> Serialize for Big<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A channel's value. 64-bit integers are decimal strings, NaN and infinities are words, arrays are arrays of these,
/// and blobs are texts with their size and checksum.
#[derive(Clone, Copy, Debug)]
pub struct JsonCell<'a>(pub Value<'a>);

impl Serialize for JsonCell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Bool(v) => serializer.serialize_bool(v),
            Value::I8(v) => serializer.serialize_i8(v),
            Value::I16(v) => serializer.serialize_i16(v),
            Value::I32(v) => serializer.serialize_i32(v),
            Value::U8(v) => serializer.serialize_u8(v),
            Value::U16(v) => serializer.serialize_u16(v),
            Value::U32(v) => serializer.serialize_u32(v),
            Value::I64(v) => serializer.collect_str(&v),
            Value::U64(v) => serializer.collect_str(&v),
            Value::F32(v) if v.is_finite() => serializer.serialize_f32(v),
            Value::F32(v) => serializer.serialize_str(not_finite(v as f64)),
            Value::F64(v) if v.is_finite() => serializer.serialize_f64(v),
            Value::F64(v) => serializer.serialize_str(not_finite(v)),
            Value::String(v) => serializer.serialize_str(v),
            Value::Blob(blob) => serializer.collect_str(&blob),
            Value::Array(array) => serializer.collect_seq(array.iter().map(JsonCell)),
        }
    }
}

/// Appends a channel's value.
pub fn push_value(out: &mut Vec<u8>, value: Value<'_>) {
    push(out, &JsonCell(value));
}

/// Appends a float, or its word.
pub fn push_f64(out: &mut Vec<u8>, value: f64) {
    push_value(out, Value::F64(value));
}

/// Appends an integer as a decimal string.
pub fn push_big(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "\"{value}\"");
}

/// Appends an integer as a number.
pub fn push_number(out: &mut Vec<u8>, value: u64) {
    push(out, &value);
}

/// Appends anything serde can write.
pub fn push<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Writing to a Vec cannot fail, and no type here has a failing Serialize.
    let _ = serde_json::to_writer(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_four_bits_and_no_numbers_are_strings() {
        let text = |v| {
            let mut out = Vec::new();
            push_value(&mut out, v);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(Value::I64(i64::MIN)), "\"-9223372036854775808\"");
        assert_eq!(text(Value::U64(u64::MAX)), "\"18446744073709551615\"");
        assert_eq!(text(Value::U32(u32::MAX)), "4294967295");
        assert_eq!(text(Value::F32(0.1)), "0.1");
        assert_eq!(text(Value::F64(-0.0)), "-0.0");
        assert_eq!(text(Value::F64(f64::NAN)), "\"NaN\"");
        assert_eq!(text(Value::F32(f32::NEG_INFINITY)), "\"-Infinity\"");
        assert_eq!(text(Value::Bool(true)), "true");
        assert_eq!(text(Value::String("a\"b")), "\"a\\\"b\"");
    }
}
