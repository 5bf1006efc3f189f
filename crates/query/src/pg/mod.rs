//! PostgreSQL's wire: a session for each connection, reading only.
//!
//! `server` accepts and authenticates those that `doors` lets in, `connection` serves one client's messages, `result` turns rows into
//! messages, `stored` those of the store many at a time, `encode` values into bytes, `message` is the framing, `auth` the password.

pub(crate) mod auth;
mod connection;
mod doors;
pub(crate) mod encode;
mod message;
mod portal;
mod result;
mod server;
mod stored;
mod watched;

pub(crate) use portal::Formats;
pub(crate) use stored::Layout;
