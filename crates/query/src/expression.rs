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
