//! Counters of the limits.

use std::sync::atomic::AtomicU64;

/// Counters of the limits since start.
#[derive(Debug, Default)]
pub struct LimitCounters {
    /// Channels under limits, counted once per limit.
    pub channels: AtomicU64,
    /// Frames judged.
    pub judged: AtomicU64,
    /// Frames judged after their turn.
    pub late: AtomicU64,
    /// Frames not judged.
    pub unjudged: AtomicU64,
    /// Steps that could not be recorded.
    pub unrecorded: AtomicU64,
}
