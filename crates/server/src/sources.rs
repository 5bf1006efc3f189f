//! The state of the server's sources: their counters, expected rates, clocks, gaps and events.

pub mod clocks;
pub mod expectation;
pub mod ledger;
pub mod outages;
pub mod report;
pub mod roster;
pub mod silences;
