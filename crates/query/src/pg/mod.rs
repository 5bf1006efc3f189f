//! PostgreSQL's wire: a session for each connection, reading only.
//!
//! `server` accepts and authenticates those that `doors` lets in, `connection` serves one client's messages, `result` turns
//! rows into messages, `auth` is the password. The bytes themselves are [`crate::wire`]'s.

pub(crate) mod auth;
mod client;
mod connection;
mod doors;
mod portal;
mod result;
mod server;
mod watched;
