//! Services of a process with many clients: clocks, threads, connections, and limits on memory.

pub mod allowance;
pub mod budget;
pub mod clock;
pub mod connections;
pub mod exports;
pub mod latency;
pub mod logging;
pub mod memory;
pub mod readers;
pub mod viewers;
pub mod whole_file;
