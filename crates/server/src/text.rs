//! The JSON forms of values.

pub mod channel;
pub mod json;
