//! The Strongback server: sources, store, live, SQL and HTTP in one process.
//!
//! The crate knows nothing of the bytes of protocols (crate `sources`), of the disk (crate `store`) or of query plans
//! (crate `query`); it connects them.
//!
//! ```text
//!  sources ─ Sink ─> ingest ─┬─> store ──> query (SQL, state) ──> http, PostgreSQL wire
//!                            └─> live ──> subscription windows ──> http (WebSocket, server-sent events)
//!                                [this crate: ingest, live, http]
//! ```
//!
//! Read first: `ingest::Ingest` (append, fan-out, commit), `live::Live` (who gets which frames),
//! [`commands::serve::Running`] (how a server starts and stops).
//!
//! Invariants:
//! - append and fan-out of a frame happen under one lock, so each subscription sees rows in order;
//! - nothing on that path waits for the disk, for a client or for a query;
//! - a slow client affects only itself: its updates are merged and counted, and nobody else notices;
//! - a line-protocol write over HTTP is answered when, and only when, it is durable;
//! - an unknown path is a 404 in JSON.
//!
//! ```no_run
//! use strongback_server::Config;
//! use strongback_server::commands::serve::Running;
//!
//! # async fn run() -> anyhow::Result<()> {
//! let config = Config::parse("data_dir = \"telemetry\"", "strongback.toml")?;
//! let running = Running::start(config).await?;
//! println!("open http://{}", running.http);
//! running.stop().await
//! # }
//! ```

#![forbid(unsafe_code)]
// Modules are private so that the compiler finds unused items; within them `pub` means public to the crate.
#![allow(unreachable_pub)]

// From the lowest to the highest: each imports only those above it in this list (`tests/walls/wings.rs`).
mod alarms;
mod archives;
pub mod cli;
pub mod commands;
mod config;
mod derived;
mod doctor;
mod http;
mod ingest;
mod live;
mod marks;
mod playback;
mod process;
mod reception;
mod runs;
mod server;
mod sources;
mod text;

pub use config::Config;
pub use ingest::opening::Opening;
pub use live::binary::read as binary;
pub use playback::PLAYBACK_BYTES;
pub use process::clock::now_ns;
pub use process::logging;
pub use server::Server;

use strongback_sources::instant;
