//! Text for programs and people: the JSON forms of values, and numbers of things.

pub mod channel;
pub mod json;
pub mod plural;
