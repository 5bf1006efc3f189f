//! Arrow Flight SQL: queries and the catalog over gRPC, with results as Arrow record batches.
//!
//! `server` accepts and authenticates the connections, `service` answers the calls of one client, `statement` has the
//! tickets and handles of statements, `result` sends the rows of a running statement, `catalog` answers calls about
//! tables and types, `batch` reads the record batches that clients send, and `ingest` hands their rows to the server.
//!
//! Invariants:
//! - The server keeps nothing between two calls: a handle or ticket holds its statement and its values.
//! - A statement holds at most a few messages that its client has not read, and they count as answer memory.
//! - A statement ends when its stream is dropped, cancelled or out of time.

pub(crate) mod auth;
mod batch;
mod catalog;
pub(crate) mod ingest;
mod result;
mod running;
pub(crate) mod server;
mod service;
mod statement;
mod status;
