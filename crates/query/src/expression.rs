//! Expressions of derived channels: a scalar expression of SQL over channels, and functions that look back.
//!
//! ```text
//! text ─> parse ─> Expression: channels, windowed functions, the scalar rest
//!                       └─ types of the channels ─> Program ─ moments in order ─> results
//! ```
//! Channels stand in double quotes. Windowed functions are taken out of the expression and are evaluated frame by frame
//! in plain f64; all else is DataFusion's, on batches of frames. A program knows nothing of streams, clocks or the store:
//! the same moments in the same order give the same bits, however they are cut into calls.

mod node;
mod parse;
mod program;
#[cfg(test)]
mod tests;
mod zero;

use std::fmt;

pub use parse::{Expression, Named};
pub use program::{Moment, Outcome, Program, Troubles};

/// Longest expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 4096;
/// Most words and signs of one: bounds how deep it can be.
const TOKENS_MAX: usize = 512;
/// Most different channels of one.
pub const EXPRESSION_CHANNELS_MAX: usize = 64;
/// Most windowed functions of one.
const FUNCTIONS_MAX: usize = 16;
/// Samples that the windows of one expression hold together; each has an equal share.
pub const WINDOW_SAMPLES_MAX: usize = 32_768;
/// Longest text of a channel that is looked at, in bytes; the rest is cut off.
const TEXT_BYTES_MAX: usize = 1024;

/// Type of a value in an expression: smaller numbers become the one that holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Truth value.
    Bool,
    /// Whole number.
    I64,
    /// Whole number from 0 on.
    U64,
    /// Number.
    F64,
    /// Text.
    Text,
}

/// A value of a channel, or a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Truth value.
    Bool(bool),
    /// Whole number.
    I64(i64),
    /// Whole number from 0 on.
    U64(u64),
    /// Number.
    F64(f64),
    /// Text; of a channel its first 1,024 bytes.
    Text(Box<str>),
}

impl Cell {
    /// A text, cut at the bound.
    pub fn text(text: &str) -> Cell {
        let mut end = text.len().min(TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Cell::Text(text[..end].into())
    }
}

/// What is wrong with an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is no expression of SQL.
    Syntax,
    /// It is too long, too deep, or asks for too much.
    Size,
    /// A channel is not written as one.
    Channel,
    /// A function has wrong arguments, or may not be used here.
    Function,
    /// Types do not go together.
    Type,
}

/// Why a text is no expression of a derived channel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ExpressionError {
    /// What is wrong.
    pub fault: Fault,
    /// A sentence about it.
    pub message: String,
    /// Where, as the column of a character, from 1, if that is known.
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
