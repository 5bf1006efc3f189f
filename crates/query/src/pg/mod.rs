//! The PostgreSQL protocol: a read-only session for each connection.
//!
//! `server` accepts and authenticates connections, and `auth` checks passwords. `connection` serves the messages of one
//! client, with those of the extended protocol in `extended`. `result` turns rows into messages, `copy` into those of
//! COPY. What statements keep between messages is in `portal`, `prepared`, `cursor`, `transaction` and `savepoint`. The
//! encoding itself is in [`crate::wire`].

pub(crate) mod auth;
mod client;
mod connection;
mod copy;
mod copy_data;
mod cursor;
mod extended;
mod portal;
mod prepared;
mod result;
mod savepoint;
mod server;
mod transaction;
mod watched;
