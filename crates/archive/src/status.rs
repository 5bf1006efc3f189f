//! How a follower is doing.

use serde::Serialize;

/// What a follower is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It connects for the first time.
    #[default]
    Starting,
    /// It delivers what is committed.
    Following,
    /// It waits before the next attempt.
    Retrying,
    /// Somebody paused it.
    Paused,
    /// It ended.
    Stopped,
}

impl State {
    /// Returns the name that people see.
    pub fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Following => "following",
            State::Retrying => "retrying",
            State::Paused => "paused",
            State::Stopped => "stopped",
        }
    }
}

/// State and counters of a follower since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// What it is doing.
    pub state: State,
    /// Streams that match its patterns.
    pub streams: u64,
    /// Frames that are durable at the target.
    pub delivered_frames: u64,
    /// Frames delivered per second, over the last five seconds or so.
    pub frames_per_s: f64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Deliveries that succeeded.
    pub deliveries: u64,
    /// Attempts that failed.
    pub failed_attempts: u64,
    /// Frames that the target rejects.
    pub rejected_frames: u64,
    /// Frames that expired or were damaged before they were delivered.
    pub skipped_frames: u64,
    /// Values that the target cannot represent, and that are NULL there.
    pub altered_values: u64,
    /// Committed frames that are not delivered.
    pub behind_frames: u64,
    /// Receive time of the oldest frame that is not delivered, nanoseconds since 1970 UTC; `None` if all are.
    pub oldest_undelivered_ns: Option<i64>,
    /// Max time for which frames wait until a delivery is full, in seconds.
    pub gather_s: f64,
    /// Newest error, and when it occurred in nanoseconds since 1970 UTC.
    pub last_error: Option<(String, i64)>,
    /// Streams whose delivery fails while that of others goes on.
    pub suspended_streams: u64,
}
