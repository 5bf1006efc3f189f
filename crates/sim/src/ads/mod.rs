//! The pad's PLC as an ADS device: symbols, reads, writes, sums and notifications over TCP.
//!
//! ```text
//!  plant → program → image ─ every 1 ms ─→ snapshot ─┬→ requests ──────┐
//!                      ↑                             └→ notifications ─┴→ outbox → TCP
//!                      └── writes of clients
//! ```
//!
//! Invariants:
//! - a reply and a stamp of notifications hold values of one cycle;
//! - no cycle is skipped, however late it runs, and its time is 1 ms after the previous one;
//! - a client that does not read loses notifications, which are counted, and delays no other client;
//! - any bytes are answered with an ADS error code or end only that connection.

#[cfg(test)]
mod capture;
mod image;
mod notification;
mod outbox;
mod program;
mod report;
mod server;
mod service;
mod symbols;
mod task;
mod types;
pub(crate) mod wire;

pub use report::PlcReport;
pub use server::{CycleUnit, PlcOptions, PlcServer};
