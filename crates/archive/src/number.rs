//! Values as numbers of the types that other databases have.

use strongback_store::Value;

/// Returns the integer of an integer or a truth value.
pub(crate) fn integer(value: Value<'_>) -> Option<i128> {
    Some(match value {
        Value::Bool(value) => value.into(),
        Value::I8(value) => value.into(),
        Value::I16(value) => value.into(),
        Value::I32(value) => value.into(),
        Value::I64(value) => value.into(),
        Value::U8(value) => value.into(),
        Value::U16(value) => value.into(),
        Value::U32(value) => value.into(),
        Value::U64(value) => value.into(),
        Value::F32(_) | Value::F64(_) | Value::String(_) | Value::Blob(_) | Value::Array(_) => return None,
    })
}

/// Returns a number or a truth value as a float; large integers are rounded.
pub(crate) fn float(value: Value<'_>) -> Option<f64> {
    match value {
        Value::F32(value) => Some(value.into()),
        Value::F64(value) => Some(value),
        value => integer(value).map(|value| value as f64),
    }
}
