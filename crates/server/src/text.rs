//! Text for programs and people: the JSON forms of values, numbers of things, and names similar to another.

pub mod channel;
pub mod json;
pub mod nearest;
pub mod plural;
