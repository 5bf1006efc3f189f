//! Values as limits and derived channels see them.

use strongback_query::{Cell, Kind};
use strongback_store::Value;

/// A value that is kept of a cell.
pub trait FromValue: Sized {
    /// Returns `None` if the cell's type is one that nobody looks at.
    fn from_value(value: Value<'_>) -> Option<Self>;
}

/// A value as limits see it.
#[derive(Clone, Debug, PartialEq)]
pub enum LimitValue {
    /// Numbers; truth values are 0 and 1. Integers beyond 2⁵³ are rounded to the nearest f64.
    Number(f64),
    /// Text, such as the name of a state.
    Text(Box<str>),
}

impl FromValue for LimitValue {
    /// Of a cell. None: arrays, blobs and NaN, which no limit is about.
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
            // An f32 with the digits that it has.
            LimitValue::Number(number) if f64::from(*number as f32) == *number => (*number as f32).fmt(f),
            LimitValue::Number(number) => number.fmt(f),
            LimitValue::Text(text) => f.write_str(text),
        }
    }
}

/// A value as expressions see it.
#[derive(Clone, Debug, PartialEq)]
pub struct InputValue(pub Cell);

impl InputValue {
    /// As one of a kind: a frame may hold a narrower number than its channel.
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
