//! Values as limits and derived channels see them.

use strongback_query::{Cell, Kind};
use strongback_store::Value;

/// Conversion from a stored value.
pub trait FromValue: Sized {
    /// Converts a value, or returns `None` if its type is not supported.
    fn from_value(value: Value<'_>) -> Option<Self>;
}

/// Value as limits see it.
#[derive(Clone, Debug, PartialEq)]
pub enum LimitValue {
    /// Number; booleans are 0 and 1. Integers beyond 2⁵³ are rounded to the nearest f64.
    Number(f64),
    /// Text, such as the name of a state.
    Text(Box<str>),
}

impl FromValue for LimitValue {
    /// Converts a value. Returns `None` for arrays, blobs and NaN, which no limit applies to.
    fn from_value(value: Value<'_>) -> Option<LimitValue> {
        match value {
            Value::String(text) => Some(LimitValue::Text(text.into())),
            Value::Array(_) | Value::Blob(_) => None,
            number => number.as_f64().filter(|number| !number.is_nan()).map(LimitValue::Number),
        }
    }
}

impl std::fmt::Display for LimitValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // Print an f32 with its own digits.
            LimitValue::Number(number) if f64::from(*number as f32) == *number => (*number as f32).fmt(f),
            LimitValue::Number(number) => number.fmt(f),
            LimitValue::Text(text) => f.write_str(text),
        }
    }
}

/// Value as expressions see it.
#[derive(Clone, Debug, PartialEq)]
pub struct InputValue(pub Cell);

impl InputValue {
    /// Converts the value to a kind, since a frame may hold a narrower number than its channel. Returns `None` if it
    /// does not fit.
    pub fn into_kind(self, kind: Kind) -> Option<Cell> {
        Some(match (self.0, kind) {
            (Cell::I64(value), Kind::F64) => Cell::F64(value as f64),
            (Cell::U64(value), Kind::F64) => Cell::F64(value as f64),
            (Cell::I64(value), Kind::U64) => Cell::U64(u64::try_from(value).ok()?),
            (Cell::U64(value), Kind::I64) => Cell::I64(i64::try_from(value).ok()?),
            (cell, kind) if kind_of_cell(&cell) == kind => cell,
            _ => return None,
        })
    }
}

fn kind_of_cell(cell: &Cell) -> Kind {
    match cell {
        Cell::Bool(_) => Kind::Bool,
        Cell::I64(_) => Kind::I64,
        Cell::U64(_) => Kind::U64,
        Cell::F64(_) => Kind::F64,
        Cell::Text(_) => Kind::Text,
    }
}

impl FromValue for InputValue {
    fn from_value(value: Value<'_>) -> Option<InputValue> {
        Some(InputValue(match value {
            Value::Bool(value) => Cell::Bool(value),
            Value::I8(value) => Cell::I64(value.into()),
            Value::I16(value) => Cell::I64(value.into()),
            Value::I32(value) => Cell::I64(value.into()),
            Value::I64(value) => Cell::I64(value),
            Value::U8(value) => Cell::I64(value.into()),
            Value::U16(value) => Cell::I64(value.into()),
            Value::U32(value) => Cell::I64(value.into()),
            Value::U64(value) => Cell::U64(value),
            Value::F32(value) => Cell::F64(value.into()),
            Value::F64(value) => Cell::F64(value),
            Value::String(text) => Cell::text(text),
            Value::Blob(_) | Value::Array(_) => return None,
        }))
    }
}
