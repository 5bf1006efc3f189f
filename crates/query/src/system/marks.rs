//! Marks: statements on the quality of stored values, and what of them counts at an instant.

use std::sync::Arc;

/// Quality of values, as a mark states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quality {
    /// Not to be used: queries leave the values out by default.
    Bad,
    /// To be used with care.
    Uncertain,
    /// To be used: takes earlier marks back.
    Good,
}

impl Quality {
    /// All qualities.
    pub const ALL: [Quality; 3] = [Quality::Bad, Quality::Uncertain, Quality::Good];

    /// Returns the name used in tables: `bad`, `uncertain` or `good`.
    pub fn name(self) -> &'static str {
        match self {
            Quality::Bad => "bad",
            Quality::Uncertain => "uncertain",
            Quality::Good => "good",
        }
    }

    /// Returns the quality with a name.
    pub fn from_name(name: &str) -> Option<Quality> {
        Quality::ALL.into_iter().find(|quality| quality.name() == name)
    }
}

/// A row of `strongback.marks`. Times are in nanoseconds since 1970 UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkRow {
    /// Number of the mark. A mark with a higher number counts where two overlap.
    pub id: u64,
    /// Time at which it was made.
    pub time_ns: i64,
    /// Name of the stream, `table{tag=value}`.
    pub stream: String,
    /// Full name of the channel.
    pub channel: String,
    /// First `time` of the values that are marked.
    pub from_ns: i64,
    /// `time` after the last of them.
    pub to_ns: i64,
    /// Quality of the values.
    pub quality: Quality,
    /// Who made it.
    pub by: String,
    /// Why it was made.
    pub reason: String,
}

/// Span of time of a channel, and the mark that counts there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedSpan {
    /// First `time`, nanoseconds since 1970 UTC.
    pub from_ns: i64,
    /// `time` after the last, nanoseconds since 1970 UTC.
    pub to_ns: i64,
    /// The mark.
    pub mark: Arc<MarkRow>,
}
