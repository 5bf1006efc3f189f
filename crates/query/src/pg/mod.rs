//! The PostgreSQL protocol: a read-only session for each connection.
//!
//! `server` accepts and authenticates the connections admitted by `doors`, `connection` serves the messages of one
//! client, `result` turns rows into messages, and `auth` checks passwords. The encoding itself is in [`crate::wire`].

pub(crate) mod auth;
mod client;
mod connection;
mod copy;
mod doors;
mod portal;
mod result;
mod server;
mod watched;
