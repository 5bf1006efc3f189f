//! Values as text: plain, CSV or JSON.

use std::fmt::Write;
use std::ops::Range;

use crate::model::array::ArrayRef;
use crate::model::value::Value;

/// Magnitudes that are written without an exponent by every writer of shortest forms.
const PLAIN_F32: Range<f32> = 1e-4..1e6;
const PLAIN_F64: Range<f64> = 1e-4..1e15;

/// Appends a value: numbers in their shortest exact form, arrays as `[1,2]`, texts unchanged.
pub fn put_plain(out: &mut String, value: Value<'_>) {
    let mut integer = itoa::Buffer::new();
    match value {
        Value::Bool(v) => out.push_str(if v { "true" } else { "false" }),
        Value::I8(v) => out.push_str(integer.format(v)),
        Value::I16(v) => out.push_str(integer.format(v)),
        Value::I32(v) => out.push_str(integer.format(v)),
        Value::I64(v) => out.push_str(integer.format(v)),
        Value::U8(v) => out.push_str(integer.format(v)),
        Value::U16(v) => out.push_str(integer.format(v)),
        Value::U32(v) => out.push_str(integer.format(v)),
        Value::U64(v) => out.push_str(integer.format(v)),
        Value::F32(v) if PLAIN_F32.contains(&v.abs()) => {
            out.push_str(zmij::Buffer::new().format_finite(v));
        }
        Value::F64(v) if PLAIN_F64.contains(&v.abs()) => {
            out.push_str(zmij::Buffer::new().format_finite(v));
        }
        // Writing to a String cannot fail.
        Value::F32(v) if v.is_finite() => {
            let _ = write!(out, "{v:?}");
        }
        Value::F64(v) if v.is_finite() => {
            let _ = write!(out, "{v:?}");
        }
        Value::F32(v) => out.push_str(not_finite(v.into())),
        Value::F64(v) => out.push_str(not_finite(v)),
        Value::String(v) => out.push_str(v),
        Value::Blob(v) => {
            let _ = write!(out, "{v}");
        }
        Value::Array(array) => put_list(out, array, put_plain),
    }
}

/// Appends a value as a CSV field.
pub fn put_cell(out: &mut String, value: Value<'_>) {
    match value {
        // Without quotes, the cell would have no value.
        Value::String("") => out.push_str("\"\""),
        Value::String(text) => put_field(out, text),
        Value::Array(array) => {
            let mut list = String::new();
            put_list(&mut list, array, put_plain);
            put_field(out, &list);
        }
        Value::Blob(blob) => put_field(out, &blob.to_string()),
        value => put_plain(out, value),
    }
}

/// Appends a text as a CSV field, quoted if necessary.
pub fn put_field(out: &mut String, text: &str) {
    if !text.contains([',', '"', '\n', '\r']) {
        return out.push_str(text);
    }
    out.push('"');
    out.push_str(&text.replace('"', "\"\""));
    out.push('"');
}

/// Appends a value as JSON: 64-bit integers, `NaN`, `Infinity` and `-Infinity` are strings.
pub fn put_json(out: &mut String, value: Value<'_>) {
    match value {
        Value::String(text) => put_json_text(out, text),
        Value::Array(array) => put_list(out, array, put_json),
        Value::Blob(blob) => put_json_text(out, &blob.to_string()),
        Value::I64(_) | Value::U64(_) => put_quoted(out, value),
        Value::F32(v) if !v.is_finite() => put_quoted(out, value),
        Value::F64(v) if !v.is_finite() => put_quoted(out, value),
        value => put_plain(out, value),
    }
}

/// Appends a text as a JSON string (RFC 8259).
pub fn put_json_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn put_quoted(out: &mut String, value: Value<'_>) {
    out.push('"');
    put_plain(out, value);
    out.push('"');
}

/// Appends an array as `[1,2]`, in which `put` appends each element.
pub fn put_list(out: &mut String, array: ArrayRef<'_>, put: impl Fn(&mut String, Value<'_>)) {
    out.push('[');
    for (at, element) in array.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        put(out, element);
    }
    out.push(']');
}

/// Returns the word for a float that is not a JSON number.
pub fn not_finite(value: f64) -> &'static str {
    match value {
        v if v.is_nan() => "NaN",
        v if v > 0.0 => "Infinity",
        _ => "-Infinity",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_as_short_as_the_standard_library_writes_them() {
        let mut random = fastrand::Rng::with_seed(1);
        let text = |value| {
            let mut text = String::new();
            put_plain(&mut text, value);
            text
        };
        for lap in 0..200_000 {
            let float = match lap % 4 {
                0 => f64::from_bits(random.u64(..)),
                1 => random.i64(-1 << 52..1 << 52) as f64,
                2 => f64::from(random.i32(-99_999..99_999)) / 1_000.0,
                _ => 10f64.powi(random.i32(-6..18)),
            };
            if float.is_finite() {
                let (text, standard) = (text(Value::F64(float)), format!("{float:?}"));
                assert_eq!(text.parse::<f64>().map(f64::to_bits), Ok(float.to_bits()), "{text}");
                assert_eq!((text.len(), text.contains('e')), (standard.len(), standard.contains('e')), "{text}");
            }
            let float = if lap % 2 == 0 { f32::from_bits(random.u32(..)) } else { float as f32 };
            if float.is_finite() {
                let (text, standard) = (text(Value::F32(float)), format!("{float:?}"));
                assert_eq!(text.parse::<f32>().map(f32::to_bits), Ok(float.to_bits()), "{text}");
                assert_eq!((text.len(), text.contains('e')), (standard.len(), standard.contains('e')), "{text}");
            }
        }
    }

    #[test]
    fn values_have_their_shortest_exact_form() {
        let forms = |value| {
            let mut forms = [const { String::new() }; 3];
            put_plain(&mut forms[0], value);
            put_cell(&mut forms[1], value);
            put_json(&mut forms[2], value);
            forms
        };
        for (value, plain, cell, json) in [
            (Value::F64(1.0), "1.0", "1.0", "1.0"),
            (Value::F64(-0.0), "-0.0", "-0.0", "-0.0"),
            (Value::F64(1e300), "1e300", "1e300", "1e300"),
            (Value::F64(5e-324), "5e-324", "5e-324", "5e-324"),
            (Value::F32(0.1), "0.1", "0.1", "0.1"),
            (Value::F64(f64::NAN), "NaN", "NaN", "\"NaN\""),
            (Value::F32(f32::NEG_INFINITY), "-Infinity", "-Infinity", "\"-Infinity\""),
            (Value::U64(u64::MAX), "18446744073709551615", "18446744073709551615", "\"18446744073709551615\""),
            (Value::U32(7), "7", "7", "7"),
            (Value::Bool(true), "true", "true", "true"),
            (Value::String(""), "", "\"\"", "\"\""),
            (Value::String("a,\"b\"\u{1}\n"), "a,\"b\"\u{1}\n", "\"a,\"\"b\"\"\u{1}\n\"", "\"a,\\\"b\\\"\\u0001\\n\""),
        ] {
            assert_eq!(forms(value), [plain, cell, json], "{value:?}");
        }
    }
}
