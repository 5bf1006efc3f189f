//! Expressions of derived channels: a scalar SQL expression over channels, with functions that look back.
//!
//! ```text
//! text ─> parse ─> Expression: channels, windowed functions, the scalar rest
//!                       └─ types of the channels ─> Program ─ moments in order ─> results
//! ```
//! Channels are written in double quotes. Windowed functions are extracted from the expression and evaluated frame by
//! frame in plain f64; the rest is evaluated by DataFusion on batches of frames. A program is independent of streams,
//! clocks and the store: the same moments in the same order give the same bits, however they are split into calls.

mod node;
mod parse;
mod program;
#[cfg(test)]
mod tests;
mod zero;

use std::fmt;

use strongback_store::{ChannelType, Value};

pub use parse::{Expression, Named};
pub use program::{Moment, Outcome, Program, Troubles};

/// Maximum size of an expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 4096;
/// Maximum tokens of an expression, which bounds its depth.
const TOKENS_MAX: usize = 512;
/// Maximum distinct channels of an expression.
pub const EXPRESSION_CHANNELS_MAX: usize = 64;
/// Maximum windowed functions of an expression.
const FUNCTIONS_MAX: usize = 16;
/// Maximum samples over all windows of an expression, shared equally.
pub const WINDOW_SAMPLES_MAX: usize = 32_768;
/// Maximum bytes of a text value. The rest is cut off.
const TEXT_BYTES_MAX: usize = 1024;

/// Type of a value in an expression. Smaller numeric types are widened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Boolean.
    Bool,
    /// Signed integer.
    I64,
    /// Unsigned integer.
    U64,
    /// Floating-point number.
    F64,
    /// Text.
    Text,
}

impl Kind {
    /// Returns the kind that values of a channel have in expressions, or `None` for arrays and blobs.
    pub fn of_channel(channel_type: ChannelType) -> Option<Kind> {
        Some(match channel_type {
            ChannelType::Bool => Kind::Bool,
            ChannelType::U64 => Kind::U64,
            ChannelType::F32 | ChannelType::F64 => Kind::F64,
            ChannelType::String => Kind::Text,
            ChannelType::Blob | ChannelType::Array(_) => return None,
            _ => Kind::I64,
        })
    }
}

/// A value of a channel, or a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Boolean.
    Bool(bool),
    /// Signed integer.
    I64(i64),
    /// Unsigned integer.
    U64(u64),
    /// Floating-point number.
    F64(f64),
    /// Text, limited to the first 1,024 bytes.
    Text(Box<str>),
}

impl Cell {
    /// Creates a text value, cut at the limit.
    pub fn text(text: &str) -> Cell {
        let mut end = text.len().min(TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Cell::Text(text[..end].into())
    }

    /// Converts a stored value, or returns `None` for arrays and blobs.
    pub fn of_value(value: Value<'_>) -> Option<Cell> {
        Some(match value {
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
        })
    }

    fn kind(&self) -> Kind {
        match self {
            Cell::Bool(_) => Kind::Bool,
            Cell::I64(_) => Kind::I64,
            Cell::U64(_) => Kind::U64,
            Cell::F64(_) => Kind::F64,
            Cell::Text(_) => Kind::Text,
        }
    }

    /// Converts the value to a kind, since a frame may hold a narrower number than its channel. Returns `None` if it
    /// does not fit.
    pub fn into_kind(self, kind: Kind) -> Option<Cell> {
        Some(match (self, kind) {
            (Cell::I64(value), Kind::F64) => Cell::F64(value as f64),
            (Cell::U64(value), Kind::F64) => Cell::F64(value as f64),
            (Cell::I64(value), Kind::U64) => Cell::U64(u64::try_from(value).ok()?),
            (Cell::U64(value), Kind::I64) => Cell::I64(i64::try_from(value).ok()?),
            (cell, kind) if cell.kind() == kind => cell,
            _ => return None,
        })
    }
}

/// Kind of error in an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Invalid SQL.
    Syntax,
    /// Excessive length, depth or resource use.
    Size,
    /// A malformed channel name.
    Channel,
    /// Wrong arguments of a function, or one that is not allowed here.
    Function,
    /// Incompatible types.
    Type,
}

/// Error in an expression of a derived channel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ExpressionError {
    /// Kind of error.
    pub fault: Fault,
    /// Message.
    pub message: String,
    /// Column in characters, from 1, if known.
    pub position: Option<usize>,
}

impl ExpressionError {
    fn new(fault: Fault, position: Option<usize>, message: impl Into<String>) -> Self {
        ExpressionError { fault, message: message.into(), position }
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(position) => write!(f, "column {position}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}
