//! Messages to a client.

use axum::extract::ws::Utf8Bytes;
use bytes::Bytes;

/// Encoding of updates, histories and heartbeats; all other messages are JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON text, described in docs/api/live.md.
    Json,
    /// Bytes, described in docs/format/live.md.
    Binary,
}

/// Message to a client.
#[derive(Clone, Debug)]
pub enum Outgoing {
    /// JSON text.
    Text(Utf8Bytes),
    /// Message in the binary form.
    Binary(Bytes),
}

impl Outgoing {
    /// Creates a message from JSON, which must be UTF-8.
    pub fn json(message: impl Into<Bytes>) -> Outgoing {
        let bytes: Bytes = message.into();
        match Utf8Bytes::try_from(bytes) {
            Ok(text) => Outgoing::Text(text),
            Err(error) => unreachable!("messages are written from UTF-8: {error}"),
        }
    }

    /// Returns the size in bytes.
    pub fn size_bytes(&self) -> usize {
        match self {
            Outgoing::Text(text) => text.len(),
            Outgoing::Binary(bytes) => bytes.len(),
        }
    }

    /// Creates an error message; `id` is that of the subscription, if it concerns one.
    pub fn error(id: Option<i64>, message: &str) -> Outgoing {
        Outgoing::Text(serde_json::json!({ "type": "error", "id": id, "message": message }).to_string().into())
    }
}
