//! Named runs: their clocks (T-0 and holds), and the rows that record them.

pub mod cards;
pub mod clock;
pub mod log;
