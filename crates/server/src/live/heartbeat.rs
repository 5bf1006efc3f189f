//! Heartbeats: periodic status messages, made once for all clients.

use axum::extract::ws::Utf8Bytes;
use bytes::Bytes;
use serde_json::json;

use super::binary;

/// Content of a heartbeat.
#[derive(Clone, Debug)]
pub struct Heartbeat<'a> {
    /// The server's clock, nanoseconds since 1970 UTC.
    pub time: i64,
    /// Epoch of the store.
    pub epoch: u32,
    /// State of recording.
    pub store: &'a str,
    /// Duration of the newest commit, in milliseconds.
    pub commit_ms: Option<f64>,
    /// Values received per second.
    pub points_per_s: f64,
    /// Datagrams dropped by the kernel.
    pub ingest_dropped: u64,
    /// Receive time of the newest frame, nanoseconds since 1970 UTC.
    pub last_data: Option<i64>,
    /// Sources of the server.
    pub sources: Vec<SourceBeat<'a>>,
}

/// Source within a heartbeat.
#[derive(Clone, Copy, Debug)]
pub struct SourceBeat<'a> {
    /// Name of the source.
    pub name: &'a str,
    /// Status of the source.
    pub status: &'a str,
    /// Frames per second.
    pub rate_hz: f64,
    /// Frames missing.
    pub lost: u64,
}

impl Heartbeat<'_> {
    /// Encodes the heartbeat in both forms.
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

/// State of a playback.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaybackState {
    /// Id of the playback.
    pub id: String,
    /// Name of the playback.
    pub name: String,
    /// Start of its interval of `time`, nanoseconds since 1970 UTC.
    pub from: i64,
    /// End of the interval, exclusive.
    pub to: i64,
    /// `time` up to which everything was played.
    pub at: i64,
    /// Speed: seconds of stored data per second.
    pub speed: f64,
    /// Whether it is paused.
    pub paused: bool,
    /// Whether it restarts at the end.
    pub looped: bool,
    /// Whether it is stopped at the end.
    pub ended: bool,
    /// Number of viewers.
    pub viewers: u32,
    /// Whether reading cannot keep up with the speed.
    pub behind: bool,
    /// Number of jumps so far.
    pub round: u64,
    /// The server's clock, nanoseconds since 1970 UTC.
    pub wall_ns: i64,
}

impl PlaybackState {
    /// Encodes the state as JSON.
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

/// Heartbeat of a playback.
#[derive(Clone, Debug)]
pub struct PlaybackBeat<'a> {
    /// Epoch of the store.
    pub epoch: u32,
    /// State of recording.
    pub store: &'a str,
    /// State of the playback.
    pub state: &'a PlaybackState,
}

impl PlaybackBeat<'_> {
    /// Encodes the heartbeat in both forms.
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

/// Encoded heartbeat; empty before the first.
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
