//! Heartbeats: what the server says of itself by the clock, made once for all clients.

use axum::extract::ws::Utf8Bytes;
use bytes::Bytes;
use serde_json::json;

use super::binary;

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

/// What a playback is doing.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaybackState {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Begin of its interval of `time`, nanoseconds since 1970 UTC.
    pub from: i64,
    /// End of it, exclusive.
    pub to: i64,
    /// `time` up to which all was played.
    pub at: i64,
    /// Seconds of the record in one.
    pub speed: f64,
    /// Whether the clock stands.
    pub paused: bool,
    /// Whether it begins again at the end.
    pub looped: bool,
    /// Whether it is at the end, and stays there.
    pub ended: bool,
    /// Who watches.
    pub viewers: u32,
    /// Whether reading cannot keep up with the speed.
    pub behind: bool,
    /// How often it jumped.
    pub round: u64,
    /// The server's clock, nanoseconds since 1970 UTC.
    pub wall_ns: i64,
}

impl PlaybackState {
    /// As clients are told.
    pub fn json(&self) -> serde_json::Value {
        json!({
            "id": self.id,
            "name": self.name,
            "from": self.from.to_string(),
            "to": self.to.to_string(),
            "at": self.at.to_string(),
            "speed": self.speed,
            "paused": self.paused,
            "loop": self.looped,
            "ended": self.ended,
            "viewers": self.viewers,
            "behind": self.behind,
            "round": self.round,
            "wall_ns": self.wall_ns.to_string(),
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
    pub state: &'a PlaybackState,
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
