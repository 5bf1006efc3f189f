//! The Strongback server: sources, store, live, SQL and HTTP in one process.
//!
//! It knows nothing of protocols' bytes (crate `sources`), of the disk (crate `store`) or of query plans (crate
//! `query`): it joins them.
//!
//! ```text
//!  sources ─ Sink ─> ingest ─┬─> store ──> query (SQL, state) ──> http, PostgreSQL wire
//!                            └─> live ──> subscription windows ──> ws
//!                                [this crate: ingest, live, ws, http]
//! ```
//!
//! Read first: [`ingest::Ingest`] (append, fan-out, commit), [`live::Live`] (who gets which frames),
//! [`serve::Running`] (how a server starts and stops).
//!
//! Invariants:
//! - append and fan-out of a frame happen under one lock, so each subscription sees rows in order;
//! - nothing on that path waits for the disk, for a client or for a query;
//! - a slow client costs itself: its windows merge, it is told, nobody else notices;
//! - a line-protocol write over HTTP is answered when, and only when, it is durable;
//! - an unknown path is a 404 in JSON.

#![forbid(unsafe_code)]

pub mod allowance;
pub mod bench;
pub mod budget;
pub mod channel;
pub mod check;
pub mod cli;
pub mod client;
pub mod clock;
pub mod clocks;
pub mod config;
pub mod demo;
pub mod derived;
pub mod descriptors;
pub mod doctor;
pub mod expectation;
pub mod export;
pub mod exports;
pub mod history;
pub mod http;
pub mod import;
pub mod ingest;
pub mod json;
pub mod latency;
pub mod layouts;
pub mod ledger;
pub mod limits;
pub mod live;
pub mod logging;
pub mod memory;
pub mod opening;
pub mod outcome;
pub mod playback;
pub mod pulse;
pub mod reach;
pub mod readers;
pub mod reception;
pub mod recorder;
pub mod retention;
pub mod roster;
pub mod run_clock;
pub mod run_log;
pub mod runs;
pub mod serve;
pub mod server;
pub mod silences;
pub mod sql;
pub mod starts;
pub mod symbols;
pub mod viewers;
pub mod webhook;
pub mod ws;

pub use strongback_sources::instant;
