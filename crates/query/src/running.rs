//! Execution of queries: threads, turns, memory and cancellation.

pub(crate) mod clock;
pub(crate) mod commits;
pub(crate) mod doors;
pub(crate) mod fair;
pub(crate) mod listener;
pub(crate) mod memory;
pub(crate) mod runtime;
pub(crate) mod size;
pub(crate) mod stopped;
pub(crate) mod subscribers;
pub(crate) mod turn;
pub(crate) mod watched;
