//! The forms that values take in JSON.

pub mod channel;
pub mod json;
