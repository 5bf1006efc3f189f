//! Rounds of a playback.

/// Interval between two jumps of a playback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Number of jumps before it.
    pub number: u64,
    /// Time that the playback jumped to, nanoseconds since 1970 UTC.
    pub at: i64,
}
