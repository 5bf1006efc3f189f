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
    /// Converts the value to a kind, as [`Cell::into_kind`] does.
    pub fn into_kind(self, kind: Kind) -> Option<Cell> {
        self.0.into_kind(kind)
    }
}

impl FromValue for InputValue {
    fn from_value(value: Value<'_>) -> Option<InputValue> {
        Cell::of_value(value).map(InputValue)
    }
}
