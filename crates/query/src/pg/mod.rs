//! PostgreSQL's wire: a session for each connection, reading only.
//!
//! `server` accepts and authenticates, `connection` serves one client's messages, `result` turns rows into
//! messages, `stored` those of the store many at a time, `encode` values into bytes, `message` is the framing, `auth` the password.

pub(crate) mod auth;
mod connection;
pub(crate) mod encode;
mod message;
mod result;
mod server;
mod stored;
mod watched;

pub(crate) use connection::Formats;
pub(crate) use stored::Layout;
