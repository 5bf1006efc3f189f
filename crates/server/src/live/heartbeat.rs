//! Heartbeats: what the server says of itself by the clock, made once for all clients.

use axum::extract::ws::Utf8Bytes;
use bytes::Bytes;
use serde_json::json;

use super::binary;
use crate::playback::State;

/// What a heartbeat says.
#[derive(Clone, Debug)]
pub struct Heartbeat<'a> {
    /// The server's clock, nanoseconds since 1970 UTC.
    pub time: i64,
    /// Epoch of the store.
    pub epoch: u32,
    /// Whether it records.
    pub store: &'a str,
    /// How long the newest commit took, in milliseconds.
    pub commit_ms: Option<f64>,
    /// Values that came a second.
    pub points_per_s: f64,
    /// Datagrams that the kernel dropped.
    pub ingest_dropped: u64,
    /// When the newest frame was received, nanoseconds since 1970 UTC.
    pub last_data: Option<i64>,
    /// The sources.
    pub sources: Vec<SourceBeat<'a>>,
}

/// A source within a heartbeat.
#[derive(Clone, Copy, Debug)]
pub struct SourceBeat<'a> {
    /// Its name.
    pub name: &'a str,
    /// How it is.
    pub status: &'a str,
    /// Frames a second.
    pub rate_hz: f64,
    /// Frames missing.
    pub lost: u64,
}

impl Heartbeat<'_> {
    /// As clients are told, in either form.
    pub fn beat(&self) -> Beat {
        Beat { text: self.json().to_string().into(), bytes: binary::heartbeat(self).into() }
    }

    fn json(&self) -> serde_json::Value {
        let source = |source: &SourceBeat<'_>| {
            let SourceBeat { name, status, rate_hz, lost } = *source;
            json!({ "name": name, "status": status, "rate_hz": rate_hz, "lost": lost.to_string() })
        };
        json!({
            "type": "heartbeat",
            "time": self.time.to_string(),
            "epoch": self.epoch,
            "store": self.store,
            "commit_ms": self.commit_ms,
            "points_per_s": self.points_per_s,
            "ingest_dropped": self.ingest_dropped,
            "last_data": self.last_data.map(|t| t.to_string()),
            "sources": self.sources.iter().map(source).collect::<Vec<_>>(),
        })
    }
}

/// The heartbeat of a playback.
#[derive(Clone, Debug)]
pub struct PlaybackBeat<'a> {
    /// Epoch of the store.
    pub epoch: u32,
    /// Whether it records.
    pub store: &'a str,
    /// What the playback is doing.
    pub state: &'a State,
}

impl PlaybackBeat<'_> {
    /// As viewers are told, in either form.
    pub fn beat(&self) -> Beat {
        let json = json!({
            "type": "heartbeat",
            "time": self.state.at.to_string(),
            "epoch": self.epoch,
            "store": self.store,
            "playback": self.state.json(),
        });
        Beat { text: json.to_string().into(), bytes: binary::playback(self).into() }
    }
}

/// A heartbeat as clients are told; empty before the first.
#[derive(Clone, Debug, Default)]
pub struct Beat {
    /// In JSON.
    pub text: Utf8Bytes,
    /// In binary.
    pub bytes: Bytes,
}

impl Beat {
    /// Returns the heartbeat for a client that lost `dropped` notices since its connection began.
    pub fn with_dropped(&self, dropped: u64) -> Beat {
        let text = self.text.strip_suffix('}').unwrap_or_default();
        let text = format!("{text},\"dropped\":{dropped}}}");
        Beat { text: text.into(), bytes: binary::with_dropped(&self.bytes, dropped).into() }
    }
}
