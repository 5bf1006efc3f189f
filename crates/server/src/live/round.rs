//! Rounds of a playback.

/// What lies between two jumps of a playback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// How often it jumped before.
    pub number: u64,
    /// Where it went, nanoseconds since 1970 UTC.
    pub at: i64,
}
