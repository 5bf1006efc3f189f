//! Encodes values for the PostgreSQL protocol as text and binary, from Arrow arrays and directly from the store.

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::error::DataFusionError;
use pgwire::api::Type;
use pgwire::api::results::{DataRowEncoder, FieldFormat, FieldInfo};
use std::fmt::Write as _;
use std::sync::Arc;
use strongback_store::{Batch, ChannelType, Date, ElementType, Stream, Value};

use crate::error::{QueryError, sqlstate};
use crate::table::column::{ColumnSource, FrameTime, TableColumn, floor_micros};

/// Microseconds from 1970 to 2000, PostgreSQL's epoch.
pub(crate) const EPOCH_2000_US: i64 = 946_684_800_000_000;
/// Microseconds of a day.
const DAY_US: i64 = 86_400_000_000;
/// Days from 1970 to 2000.
pub(crate) const EPOCH_2000_DAYS: i32 = 10_957;

/// Returns the wire type of a result column.
pub(crate) fn wire_type(field: &Arc<Field>) -> Result<Type, QueryError> {
    match field.data_type() {
        DataType::Null => Ok(Type::TEXT),
        DataType::Timestamp(_, None) => Ok(Type::TIMESTAMP),
        DataType::Timestamp(_, Some(_)) => Ok(Type::TIMESTAMPTZ),
        DataType::Interval(_) | DataType::Duration(_) => Ok(Type::INTERVAL),
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..) => {
            Ok(Type::NUMERIC)
        }
        DataType::List(element) if is_dictionary(element) => wire_type(&plain_list(field, element)),
        DataType::List(element) => match array_of(&wire_type(element)?) {
            Some(kind) => Ok(kind),
            None => arrow_pg::datatypes::field_into_pg_type(field)
                .map_err(|e| QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, e.to_string())),
        },
        _ => arrow_pg::datatypes::field_into_pg_type(field)
            .map_err(|e| QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, e.to_string())),
    }
}

fn is_dictionary(element: &Field) -> bool {
    matches!(element.data_type(), DataType::Dictionary(..))
}

/// Returns the same list type with plain elements in place of dictionary keys.
fn plain_list(list: &Field, element: &Field) -> Arc<Field> {
    let plain = match element.data_type() {
        DataType::Dictionary(_, values) => element.clone().with_data_type(values.as_ref().clone()),
        _ => element.clone(),
    };
    Arc::new(list.clone().with_data_type(DataType::List(Arc::new(plain))))
}

/// Types of elements, and of arrays of them.
const ARRAYS: [(Type, Type); 14] = [
    (Type::BOOL, Type::BOOL_ARRAY),
    (Type::INT2, Type::INT2_ARRAY),
    (Type::INT4, Type::INT4_ARRAY),
    (Type::INT8, Type::INT8_ARRAY),
    (Type::OID, Type::OID_ARRAY),
    (Type::NUMERIC, Type::NUMERIC_ARRAY),
    (Type::FLOAT4, Type::FLOAT4_ARRAY),
    (Type::FLOAT8, Type::FLOAT8_ARRAY),
    (Type::TEXT, Type::TEXT_ARRAY),
    (Type::VARCHAR, Type::VARCHAR_ARRAY),
    (Type::NAME, Type::NAME_ARRAY),
    (Type::DATE, Type::DATE_ARRAY),
    (Type::TIMESTAMP, Type::TIMESTAMP_ARRAY),
    (Type::TIMESTAMPTZ, Type::TIMESTAMPTZ_ARRAY),
];

/// Returns the array type of an element type, if it is known.
pub(crate) fn array_of(element: &Type) -> Option<Type> {
    ARRAYS.iter().find(|(known, _)| known == element).map(|(_, array)| array.clone())
}

/// Returns the element type of an array type, if it is known.
pub(crate) fn elements_of_type(array: &Type) -> Option<Type> {
    ARRAYS.iter().find(|(_, known)| known == array).map(|(element, _)| element.clone())
}

/// Returns the wire type of an array channel's elements.
fn element_of(kind: ElementType) -> Type {
    match kind {
        ElementType::Bool => Type::BOOL,
        ElementType::I8 | ElementType::I16 | ElementType::U8 => Type::INT2,
        ElementType::I32 | ElementType::U16 => Type::INT4,
        ElementType::I64 | ElementType::U32 => Type::INT8,
        ElementType::U64 => Type::NUMERIC,
        ElementType::F32 => Type::FLOAT4,
        ElementType::F64 => Type::FLOAT8,
    }
}

/// Maximum size of an encoded list, in bytes.
const LIST_BYTES_MAX: usize = 64 << 20;

/// Writes a one-dimensional array, in which `put` writes each element as a separate value.
fn put_list(
    out: &mut BytesMut,
    (element, len): (&Type, usize),
    binary: bool,
    mut put: impl FnMut(&mut BytesMut, usize) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    let begin = out.len();
    let check = |out: &BytesMut| match out.len() - begin {
        bytes if bytes > LIST_BYTES_MAX => {
            let text = format!("a list of more than {LIST_BYTES_MAX} bytes on the wire");
            Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text))
        }
        _ => Ok(()),
    };
    out.put_i32(0);
    if binary {
        // Dimensions, whether any element is null, type; then length and first index. An empty array has no dimension.
        for field in [i32::from(len > 0), 0, element.oid() as i32] {
            out.put_i32(field);
        }
        if len > 0 {
            out.put_i32(len as i32);
            out.put_i32(1);
        }
        for index in 0..len {
            let at = out.len();
            check(out)?;
            put(out, index)?;
            if out[at..at + 4] == (-1i32).to_be_bytes() {
                out[begin + 8..begin + 12].copy_from_slice(&1i32.to_be_bytes());
            }
        }
    } else {
        let mut one = BytesMut::new();
        out.put_u8(b'{');
        for index in 0..len {
            if index > 0 {
                out.put_u8(b',');
            }
            one.clear();
            check(out)?;
            put(&mut one, index)?;
            match one.get(4..) {
                Some(text) if one[..4] != (-1i32).to_be_bytes() => put_element(out, text),
                _ => out.put_slice(b"NULL"),
            }
        }
        out.put_u8(b'}');
    }
    let written = (out.len() - begin - 4) as i32;
    out[begin..begin + 4].copy_from_slice(&written.to_be_bytes());
    Ok(())
}

/// Writes the text of an element, in quotes where it could be read as something else (PostgreSQL, `array_out`).
fn put_element(out: &mut BytesMut, text: &[u8]) {
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | b'{' | b'}' | b',' | b' ' | b'\t'..=b'\r');
    if !text.is_empty() && !text.eq_ignore_ascii_case(b"null") && !text.iter().any(is_special) {
        return out.put_slice(text);
    }
    out.put_u8(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.put_u8(b'\\');
        }
        out.put_u8(*byte);
    }
    out.put_u8(b'"');
}

/// Returns `pg_type.typlen` of a type: its size in bytes, or −1 if that varies.
pub(crate) fn type_len(kind: &Type) -> i16 {
    match *kind {
        Type::BOOL | Type::CHAR => 1,
        Type::INT2 => 2,
        Type::INT4 | Type::FLOAT4 | Type::OID | Type::DATE | Type::REGCLASS | Type::REGPROC | Type::REGTYPE => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::TIME => 8,
        Type::INTERVAL => 16,
        Type::NAME => 64,
        _ => -1,
    }
}

/// Writes NULL.
pub(crate) fn put_null(out: &mut BytesMut) {
    out.put_i32(-1);
}

/// Writes a value's length and bytes.
fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_i32(bytes.len() as i32);
    out.put_slice(bytes);
}

/// Writes the output of `write`, preceded by its length.
fn put_sized(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let at = out.len();
    out.put_i32(0);
    write(out);
    let size = (out.len() - at - 4) as i32;
    out[at..at + 4].copy_from_slice(&size.to_be_bytes());
}

pub(crate) fn put_bool(out: &mut BytesMut, value: bool, binary: bool) {
    match binary {
        true => put_bytes(out, &[value as u8]),
        false => put_bytes(out, if value { b"t" } else { b"f" }),
    }
}

macro_rules! put_integer {
    ($name:ident, $native:ty) => {
        pub(crate) fn $name(out: &mut BytesMut, value: $native, binary: bool) {
            match binary {
                true => put_bytes(out, &value.to_be_bytes()),
                false => put_bytes(out, itoa::Buffer::new().format(value).as_bytes()),
            }
        }
    };
}
put_integer!(put_i16, i16);
put_integer!(put_i32, i32);
put_integer!(put_i64, i64);

pub(crate) fn put_f32(out: &mut BytesMut, value: f32, binary: bool) {
    match binary {
        true => put_bytes(out, &value.to_be_bytes()),
        // In this range, the shortest text has no exponent, here as in PostgreSQL.
        false if (1e-4..1e6).contains(&value.abs()) => put_plain(out, zmij::Buffer::new().format_finite(value)),
        false => put_sized(out, |out| {
            float_text(out, value.is_nan(), value.is_infinite(), value < 0.0, 6, format_args!("{value:e}"))
        }),
    }
}

pub(crate) fn put_f64(out: &mut BytesMut, value: f64, binary: bool) {
    match binary {
        true => put_bytes(out, &value.to_be_bytes()),
        false if (1e-4..1e15).contains(&value.abs()) => put_plain(out, zmij::Buffer::new().format_finite(value)),
        false => put_sized(out, |out| {
            float_text(out, value.is_nan(), value.is_infinite(), value < 0.0, 15, format_args!("{value:e}"))
        }),
    }
}

/// Returns a number as text.
pub(crate) fn f32_text(value: f32) -> String {
    sized_text(|out| put_f32(out, value, false))
}

/// Returns a number as text.
pub(crate) fn f64_text(value: f64) -> String {
    sized_text(|out| put_f64(out, value, false))
}

/// Returns the text of a value that is written after its size.
fn sized_text(write: impl FnOnce(&mut BytesMut)) -> String {
    let mut out = BytesMut::new();
    write(&mut out);
    String::from_utf8_lossy(out.get(4..).unwrap_or_default()).into_owned()
}

/// Writes a number without an exponent. PostgreSQL writes `1`, not `1.0`.
fn put_plain(out: &mut BytesMut, text: &str) {
    put_bytes(out, text.strip_suffix(".0").unwrap_or(text).as_bytes());
}

/// Writes the shortest text that parses to the same bits, in PostgreSQL's form: plain between 10⁻⁴ and 10^`plain`,
/// otherwise with an exponent of at least two digits.
fn float_text(out: &mut BytesMut, nan: bool, infinite: bool, negative: bool, plain: i32, e: std::fmt::Arguments<'_>) {
    if nan {
        return out.put_slice(b"NaN");
    }
    if infinite {
        return out.put_slice(if negative { b"-Infinity" } else { b"Infinity" });
    }
    let mut text = Text::<40>::default();
    if text.write_fmt(e).is_err() {
        return;
    }
    let text = text.as_str();
    let (sign, text) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let Some((mantissa, exponent)) = text.split_once('e') else { return };
    let Ok(exponent) = exponent.parse::<i32>() else { return };
    let (head, tail) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    out.put_slice(sign.as_bytes());
    if !(-4..plain).contains(&exponent) {
        out.put_slice(mantissa.as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "e{sign}{:02}", exponent.abs());
    } else if exponent < 0 {
        out.put_slice(b"0.");
        out.put_bytes(b'0', (-exponent - 1) as usize);
        out.put_slice(head.as_bytes());
        out.put_slice(tail.as_bytes());
    } else {
        let whole = exponent as usize;
        out.put_slice(head.as_bytes());
        if tail.len() <= whole {
            out.put_slice(tail.as_bytes());
            out.put_bytes(b'0', whole - tail.len());
        } else {
            out.put_slice(&tail.as_bytes()[..whole]);
            out.put_u8(b'.');
            out.put_slice(&tail.as_bytes()[whole..]);
        }
    }
}

/// A short text on the stack.
struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Text { bytes: [0; N], len: 0 }
    }
}

impl<const N: usize> Text<N> {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl<const N: usize> std::fmt::Write for Text<N> {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + s.len()).ok_or(std::fmt::Error)?;
        room.copy_from_slice(s.as_bytes());
        self.len += s.len();
        Ok(())
    }
}

/// Writes a timestamp, in microseconds since 1970.
pub(crate) fn put_timestamp(out: &mut BytesMut, time_us: i64, zoned: bool, binary: bool) {
    match binary {
        true => put_bytes(out, &time_us.saturating_sub(EPOCH_2000_US).to_be_bytes()),
        false => put_sized(out, |out| write_timestamp(out, time_us, zoned)),
    }
}

/// Formats a timestamp, such as `2026-11-20 17:09:43.123456+00`.
pub(crate) fn timestamp_text(time_us: i64, zoned: bool) -> String {
    let mut out = BytesMut::new();
    write_timestamp(&mut out, time_us, zoned);
    String::from_utf8_lossy(&out).into_owned()
}

fn write_timestamp(out: &mut BytesMut, time_us: i64, zoned: bool) {
    let days = time_us.div_euclid(86_400_000_000);
    let of_day_us = time_us.rem_euclid(86_400_000_000);
    let before_christ = write_date(out, days);
    out.put_u8(b' ');
    write_time(out, of_day_us);
    if zoned {
        out.put_slice(b"+00");
    }
    if before_christ {
        out.put_slice(b" BC");
    }
}

/// Writes a time such as `17:09:43.123456`, without trailing zeros in the fraction.
fn write_time(out: &mut BytesMut, of_day_us: i64) {
    let (seconds, fraction) = (of_day_us / 1_000_000, of_day_us % 1_000_000);
    put_two(out, seconds / 3_600);
    out.put_u8(b':');
    put_two(out, seconds / 60 % 60);
    out.put_u8(b':');
    put_two(out, seconds % 60);
    if fraction != 0 {
        out.put_u8(b'.');
        let mut digits = [0u8; 6];
        let mut rest = fraction;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let end = digits.iter().rposition(|d| *d != b'0').map_or(0, |at| at + 1);
        out.put_slice(&digits[..end]);
    }
}

fn put_two(out: &mut BytesMut, value: i64) {
    if value >= 100 {
        let _ = write!(out, "{value}");
        return;
    }
    out.put_u8(b'0' + (value / 10) as u8);
    out.put_u8(b'0' + (value % 10) as u8);
}

/// Writes a date such as `2026-11-20`, for a day since 1970 in the proleptic Gregorian calendar. Returns whether it is
/// BC.
fn write_date(out: &mut BytesMut, days: i64) -> bool {
    let Date { year, month, day } = Date::of_days(days);
    let shown = if year > 0 { year } else { 1 - year };
    if shown < 10_000 {
        put_two(out, shown / 100);
        put_two(out, shown % 100);
    } else {
        let _ = write!(out, "{shown}");
    }
    out.put_u8(b'-');
    put_two(out, month);
    out.put_u8(b'-');
    put_two(out, day);
    year <= 0
}

/// Writes a decimal: `value` · 10^−`scale`.
pub(crate) fn put_numeric(out: &mut BytesMut, value: i128, scale: i8, binary: bool) {
    if !binary {
        return put_sized(out, |out| {
            if scale <= 0 {
                let _ = write!(out, "{value}");
                if value != 0 {
                    out.put_bytes(b'0', usize::from(scale.unsigned_abs()));
                }
                return;
            }
            let unit = 10u128.pow(u32::from(scale.unsigned_abs()));
            let magnitude = value.unsigned_abs();
            let sign = if value < 0 { "-" } else { "" };
            let width = usize::from(scale.unsigned_abs());
            let _ = write!(out, "{sign}{}.{:0width$}", magnitude / unit, magnitude % unit);
        });
    }
    // Base-10,000 digits, aligned to the decimal point: the lowest digit includes the padding.
    let (value, places) = match scale {
        0.. => (value, scale as u32),
        _ => (value.saturating_mul(10i128.saturating_pow(u32::from(scale.unsigned_abs()))), 0),
    };
    let padding = 10u128.pow((4 - places % 4) % 4);
    let mut digits: Vec<i16> = Vec::with_capacity(12);
    let mut magnitude = value.unsigned_abs();
    while magnitude > 0 {
        let take = if digits.is_empty() { 10_000 / padding } else { 10_000 };
        let low = magnitude % take;
        magnitude /= take;
        digits.push(if digits.is_empty() { (low * padding) as i16 } else { low as i16 });
    }
    let weight = digits.len() as i32 - places.div_ceil(4) as i32 - 1;
    digits.reverse();
    while digits.last() == Some(&0) {
        digits.pop();
    }
    put_sized(out, |out| {
        out.put_i16(digits.len() as i16);
        out.put_i16(if digits.is_empty() { 0 } else { weight as i16 });
        out.put_u16(if value < 0 { 0x4000 } else { 0 });
        out.put_u16(places as u16);
        for digit in digits {
            out.put_i16(digit);
        }
    });
}

fn put_interval(out: &mut BytesMut, months: i32, days: i32, micros: i64, binary: bool) {
    if binary {
        return put_sized(out, |out| {
            out.put_i64(micros);
            out.put_i32(days);
            out.put_i32(months);
        });
    }
    put_sized(out, |out| {
        let mut separator = "";
        // After a negative part a positive one has its sign.
        let mut sign = "";
        for (count, unit) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
            if count != 0 {
                let plural = if count == 1 { "" } else { "s" };
                let plus = if count > 0 { sign } else { "" };
                let _ = write!(out, "{separator}{plus}{count} {unit}{plural}");
                separator = " ";
                sign = if count < 0 { "+" } else { "" };
            }
        }
        if micros != 0 || separator.is_empty() {
            out.put_slice(separator.as_bytes());
            out.put_slice(if micros < 0 { b"-" } else { sign.as_bytes() });
            write_time(out, i64::try_from(micros.unsigned_abs()).unwrap_or(i64::MAX));
        }
    });
}

/// Returns a duration in microseconds, rounded towards zero.
fn duration_us(array: &ArrayRef, unit: TimeUnit, row: usize) -> i64 {
    match unit {
        TimeUnit::Second => array.as_primitive::<DurationSecondType>().value(row).saturating_mul(1_000_000),
        TimeUnit::Millisecond => array.as_primitive::<DurationMillisecondType>().value(row).saturating_mul(1_000),
        TimeUnit::Microsecond => array.as_primitive::<DurationMicrosecondType>().value(row),
        TimeUnit::Nanosecond => array.as_primitive::<DurationNanosecondType>().value(row) / 1_000,
    }
}

/// Writes a cell of an Arrow array.
///
/// # Errors
/// If the type has no wire format.
pub(crate) fn put_arrow(
    out: &mut BytesMut,
    array: &ArrayRef,
    row: usize,
    field: &Field,
    kind: &Type,
    binary: bool,
) -> Result<(), QueryError> {
    if array.is_null(row) {
        put_null(out);
        return Ok(());
    }
    let plain = field.metadata().is_empty();
    match array.data_type() {
        DataType::Null => put_null(out),
        DataType::Boolean => put_bool(out, array.as_boolean().value(row), binary),
        DataType::Int8 => put_i16(out, array.as_primitive::<Int8Type>().value(row).into(), binary),
        DataType::Int16 if plain => put_i16(out, array.as_primitive::<Int16Type>().value(row), binary),
        DataType::Int32 if plain => put_i32(out, array.as_primitive::<Int32Type>().value(row), binary),
        DataType::Int64 if plain => put_i64(out, array.as_primitive::<Int64Type>().value(row), binary),
        DataType::UInt8 => put_i16(out, array.as_primitive::<UInt8Type>().value(row).into(), binary),
        DataType::UInt16 => put_i32(out, array.as_primitive::<UInt16Type>().value(row).into(), binary),
        DataType::UInt32 => put_i64(out, array.as_primitive::<UInt32Type>().value(row).into(), binary),
        DataType::UInt64 => put_numeric(out, array.as_primitive::<UInt64Type>().value(row).into(), 0, binary),
        DataType::Float32 => put_f32(out, array.as_primitive::<Float32Type>().value(row), binary),
        // Announced before a parameter came that is wider.
        DataType::Float64 if *kind == Type::FLOAT4 => {
            put_f32(out, array.as_primitive::<Float64Type>().value(row) as f32, binary)
        }
        DataType::Float64 => put_f64(out, array.as_primitive::<Float64Type>().value(row), binary),
        DataType::Decimal128(_, scale) => {
            put_numeric(out, array.as_primitive::<Decimal128Type>().value(row), *scale, binary);
        }
        DataType::Utf8 if plain => put_bytes(out, array.as_string::<i32>().value(row).as_bytes()),
        DataType::LargeUtf8 if plain => put_bytes(out, array.as_string::<i64>().value(row).as_bytes()),
        DataType::Utf8View if plain => put_bytes(out, array.as_string_view().value(row).as_bytes()),
        DataType::Date32 => {
            let days = array.as_primitive::<Date32Type>().value(row);
            match binary {
                true => put_bytes(out, &days.saturating_sub(EPOCH_2000_DAYS).to_be_bytes()),
                false => put_sized(out, |out| {
                    if write_date(out, days.into()) {
                        out.put_slice(b" BC");
                    }
                }),
            }
        }
        DataType::Timestamp(unit, zone) => {
            let time_us = match unit {
                TimeUnit::Second => array.as_primitive::<TimestampSecondType>().value(row).saturating_mul(1_000_000),
                TimeUnit::Millisecond => {
                    array.as_primitive::<TimestampMillisecondType>().value(row).saturating_mul(1_000)
                }
                TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().value(row),
                TimeUnit::Nanosecond => floor_micros(array.as_primitive::<TimestampNanosecondType>().value(row)),
            };
            put_timestamp(out, time_us, zone.is_some(), binary);
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
            put_interval(out, value.months, value.days, value.nanoseconds / 1_000, binary);
        }
        DataType::Duration(unit) => {
            // The difference of two times, which has days and no months.
            let length = duration_us(array, *unit, row);
            put_interval(out, 0, (length / DAY_US) as i32, length % DAY_US, binary);
        }
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            let key = match array.as_dictionary_opt::<Int32Type>() {
                Some(tags) => usize::try_from(tags.keys().value(row)).unwrap_or(0),
                None => dictionary.normalized_keys()[row],
            };
            let values = dictionary.values().clone();
            put_arrow(out, &values, key, &Field::new("", values.data_type().clone(), true), kind, binary)?;
        }
        DataType::List(element) if is_dictionary(element) => {
            // Dictionary elements, such as those of aggregated tags.
            let field = plain_list(field, element);
            let list = cast(&array.slice(row, 1), field.data_type()).map_err(DataFusionError::from)?;
            put_arrow(out, &list, 0, &field, kind, binary)?;
        }
        DataType::List(element) if array_of(&wire_type(element)?).is_some() => {
            let list = array.as_list::<i32>();
            let (values, of) = (list.value(row), wire_type(element)?);
            put_list(out, (&of, values.len()), binary, |out, index| {
                put_arrow(out, &values, index, element, &of, binary)
            })?;
        }
        _ => {
            let format = if binary { FieldFormat::Binary } else { FieldFormat::Text };
            let info = FieldInfo::new(field.name().clone(), None, None, kind.clone(), format);
            let mut encoder = DataRowEncoder::new(Arc::new(vec![info.clone()]));
            arrow_pg::encoder::encode_value(&mut encoder, array, row, field, &info)
                .map_err(|e| QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, e.to_string()))?;
            out.put_slice(&encoder.take_row().data);
        }
    }
    Ok(())
}

/// Writes a cell directly from the store. `position` is the column's channel in the batch, if its stream has it.
/// Returns `false` if the channel's type no longer fits the column.
pub(crate) fn put_store(
    out: &mut BytesMut,
    column: &TableColumn,
    batch: &Batch,
    stream: &Stream,
    position: Option<usize>,
    row: usize,
    binary: bool,
) -> bool {
    let time = |which: FrameTime| match which {
        FrameTime::Time => Some(batch.time(row)),
        FrameTime::Receive => Some(batch.receive_time[row]),
        FrameTime::Source => batch.source_time.as_ref().and_then(|t| t.get(row)),
    };
    match &column.source {
        ColumnSource::Micros(which) => match time(*which) {
            Some(time_ns) => put_timestamp(out, floor_micros(time_ns), true, binary),
            None => put_null(out),
        },
        ColumnSource::Nanos(which) => match time(*which) {
            Some(time_ns) => put_i64(out, time_ns, binary),
            None => put_null(out),
        },
        ColumnSource::Sequence => match batch.sequence.as_ref().and_then(|s| s.get(row)) {
            Some(sequence) => put_i64(out, sequence, binary),
            None => put_null(out),
        },
        ColumnSource::Tag(tag) => match stream.key.tag(tag) {
            Some(value) => put_bytes(out, value.as_bytes()),
            None => put_null(out),
        },
        ColumnSource::Channel { channel_type, .. } => {
            let cell = position.map(|at| batch.columns[at].cell(row));
            match cell {
                Some(Ok(value)) => return put_value(out, value, *channel_type, binary),
                _ => put_null(out),
            }
        }
    }
    true
}

fn put_value(out: &mut BytesMut, value: Value<'_>, to: ChannelType, binary: bool) -> bool {
    let value = if value.channel_type() == to {
        value
    } else {
        match value.convert(to) {
            Some(value) => value,
            None => return false,
        }
    };
    match value {
        Value::Bool(v) => put_bool(out, v, binary),
        Value::I8(v) => put_i16(out, v.into(), binary),
        Value::I16(v) => put_i16(out, v, binary),
        Value::U8(v) => put_i16(out, v.into(), binary),
        Value::I32(v) => put_i32(out, v, binary),
        Value::U16(v) => put_i32(out, v.into(), binary),
        Value::I64(v) => put_i64(out, v, binary),
        Value::U32(v) => put_i64(out, v.into(), binary),
        Value::U64(v) => put_numeric(out, v.into(), 0, binary),
        Value::F32(v) => put_f32(out, v, binary),
        Value::F64(v) => put_f64(out, v, binary),
        Value::String(v) => put_bytes(out, v.as_bytes()),
        Value::Blob(blob) => put_bytes(out, blob.to_string().as_bytes()),
        Value::Array(array) => {
            let of = element_of(array.element());
            let to = array.element().channel_type();
            let put = |out: &mut BytesMut, index: usize| match array.get(index) {
                Some(value) if put_value(out, value, to, binary) => Ok(()),
                _ => Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, "an element of another type")),
            };
            return put_list(out, (&of, array.len()), binary, put).is_ok();
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(put: impl FnOnce(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        put(&mut out);
        assert_eq!(i32::from_be_bytes(out[..4].try_into().unwrap()) as usize, out.len() - 4);
        String::from_utf8(out[4..].to_vec()).unwrap()
    }

    #[test]
    fn floats_are_spelled_as_postgresql_spells_them() {
        for (value, want) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (100.0, "100"),
            (123456789012345.0, "123456789012345"),
            (1e15, "1e+15"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-1.25e-300, "-1.25e-300"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            let got = text(|out| put_f64(out, value, false));
            assert_eq!(got, want);
            assert_eq!(got.parse::<f64>().unwrap().to_bits(), value.to_bits());
        }
        // Matches the standard library's digits in PostgreSQL's form, except for ties between two shortest texts.
        let mut bits = 88_172_645_463_325_252u64;
        for _ in 0..20_000 {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            let few_digits = (bits >> 40) as f64 / 10f64.powi((bits % 12) as i32);
            for value in [f64::from_bits(bits), few_digits, (bits >> 11) as f64 * 1e-9] {
                let long = text(|out| {
                    put_sized(out, |out| {
                        let e = format_args!("{value:e}");
                        float_text(out, value.is_nan(), value.is_infinite(), value < 0.0, 15, e)
                    })
                });
                let short = text(|out| put_f64(out, value, false));
                assert_eq!((short.len(), short.find('.')), (long.len(), long.find('.')), "{short} {long}");
                let read: f64 = short.parse().unwrap();
                assert!(read.to_bits() == value.to_bits() || read.is_nan() && value.is_nan(), "{short} {long}");
                let value = value as f32;
                let long = text(|out| {
                    put_sized(out, |out| {
                        let e = format_args!("{value:e}");
                        float_text(out, value.is_nan(), value.is_infinite(), value < 0.0, 6, e)
                    })
                });
                let short = text(|out| put_f32(out, value, false));
                assert_eq!((short.len(), short.find('.')), (long.len(), long.find('.')), "{short} {long}");
                let read: f32 = short.parse().unwrap();
                assert!(read.to_bits() == value.to_bits() || read.is_nan() && value.is_nan(), "{short} {long}");
            }
        }
        assert_eq!(text(|out| put_f32(out, 123456789.0, false)), "1.2345679e+08");
        assert_eq!(text(|out| put_f32(out, 0.1, false)), "0.1");
    }

    #[test]
    fn times_are_spelled_with_what_they_have() {
        for (time_us, want) in [
            (0, "1970-01-01 00:00:00+00"),
            (-1, "1969-12-31 23:59:59.999999+00"),
            (1_709_210_096_123_000, "2024-02-29 12:34:56.123+00"),
            (EPOCH_2000_US, "2000-01-01 00:00:00+00"),
            (-9_223_372_036_854_775, "1677-09-21 00:12:43.145225+00"),
            (9_223_372_036_854_775, "2262-04-11 23:47:16.854775+00"),
        ] {
            assert_eq!(timestamp_text(time_us, true), want);
        }
    }

    #[test]
    fn numerics_have_base_10000_digits_on_the_wire() {
        let words = |value: i128, scale: i8| {
            let mut out = BytesMut::new();
            put_numeric(&mut out, value, scale, true);
            out[4..].chunks(2).map(|b| i16::from_be_bytes([b[0], b[1]])).collect::<Vec<_>>()
        };
        assert_eq!(words(0, 0), [0, 0, 0, 0]);
        assert_eq!(words(u64::MAX.into(), 0), [5, 4, 0, 0, 1844, 6744, 737, 955, 1615]);
        assert_eq!(words(-12345, 2), [2, 0, 0x4000, 2, 123, 4500]);
        assert_eq!(words(10_000, 0), [1, 1, 0, 0, 1]);
        assert_eq!(words(5, 3), [1, -1, 0, 3, 50]);
        assert_eq!(text(|out| put_numeric(out, -5, 3, false)), "-0.005");
        assert_eq!(text(|out| put_numeric(out, u64::MAX.into(), 0, false)), "18446744073709551615");
    }
}
