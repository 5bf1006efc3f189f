//! Marks: statements on the quality of stored values, their rows, and the values that queries leave out because of them.

pub mod cards;
pub mod log;
pub mod spans;
