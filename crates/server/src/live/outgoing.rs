//! Messages on their way to a client.

use axum::extract::ws::Utf8Bytes;
use bytes::Bytes;

/// How a client is told of updates, histories and heartbeats; all else is JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON text: docs/api/live.md.
    Json,
    /// Bytes: docs/format/live.md.
    Binary,
}

/// A message on its way to a client.
#[derive(Clone, Debug)]
pub enum Outgoing {
    /// JSON.
    Text(Utf8Bytes),
    /// Of the binary form.
    Binary(Bytes),
}

impl Outgoing {
    /// A message in JSON, which is UTF-8.
    pub fn json(message: impl Into<Bytes>) -> Outgoing {
        let bytes: Bytes = message.into();
        match Utf8Bytes::try_from(bytes) {
            Ok(text) => Outgoing::Text(text),
            Err(error) => unreachable!("messages are written from UTF-8: {error}"),
        }
    }

    /// Its bytes.
    pub fn size_bytes(&self) -> usize {
        match self {
            Outgoing::Text(text) => text.len(),
            Outgoing::Binary(bytes) => bytes.len(),
        }
    }

    /// The message that something could not be done; `id` of the subscription, if it is about one.
    pub fn error(id: Option<i64>, message: &str) -> Outgoing {
        Outgoing::Text(serde_json::json!({ "type": "error", "id": id, "message": message }).to_string().into())
    }
}
