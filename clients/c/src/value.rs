//! Values as C has them.

use std::ffi::c_char;

use store::{CellState, ChannelType, Value};

/// `strongback_value`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct StrongbackValue {
    pub(crate) kind: u32,
    pub(crate) state: u32,
    pub(crate) held: Held,
}

/// Its union.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Held {
    pub(crate) boolean: bool,
    pub(crate) i64: i64,
    pub(crate) u64: u64,
    pub(crate) f64: f64,
    pub(crate) text: Text,
}

/// Text in it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    pub(crate) bytes: *const c_char,
    pub(crate) length: usize,
}

impl StrongbackValue {
    /// A value, or why there is none; text is pointed at.
    pub(crate) fn of(kind: ChannelType, cell: Result<Value<'_>, CellState>) -> StrongbackValue {
        let none = Held { text: Text { bytes: std::ptr::null(), length: 0 } };
        let (state, held) = match cell {
            Err(state) => (state, none),
            Ok(value) => {
                let held = match value {
                    Value::Bool(boolean) => Held { boolean },
                    Value::I8(v) => Held { i64: v.into() },
                    Value::I16(v) => Held { i64: v.into() },
                    Value::I32(v) => Held { i64: v.into() },
                    Value::I64(v) => Held { i64: v },
                    Value::U8(v) => Held { u64: v.into() },
                    Value::U16(v) => Held { u64: v.into() },
                    Value::U32(v) => Held { u64: v.into() },
                    Value::U64(v) => Held { u64: v },
                    // The header says that blobs and arrays are not given out.
                    Value::Blob(_) | Value::Array(_) => none,
                    Value::F32(v) => Held { f64: v.into() },
                    Value::F64(v) => Held { f64: v },
                    Value::String(text) => Held { text: Text { bytes: text.as_ptr().cast(), length: text.len() } },
                };
                (CellState::Value, held)
            }
        };
        StrongbackValue { kind: kind.code().into(), state: state as u32, held }
    }
}
