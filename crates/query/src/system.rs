//! System rows that the server provides for SQL: `strongback.sources`, `strongback.gaps`, `strongback.events`,
//! `strongback.runs`, `strongback.marks`. Definitions of the server's own streams, whose tables exist before their first row.

pub(crate) mod as_text;
pub(crate) mod catalog;
pub(crate) mod counters;
pub(crate) mod function;
pub(crate) mod information_schema;
pub(crate) mod listed_functions;
pub(crate) mod marks;
pub(crate) mod pg_catalog;
pub(crate) mod rows_read;
pub(crate) mod session;
pub(crate) mod session_tables;
pub(crate) mod state;
pub(crate) mod tables;

use std::ops::Range;
use std::sync::Arc;

use strongback_store::{ChannelIndex, Stream, StreamId, StreamSpec};

pub use counters::SourceCounters;
pub use marks::{MarkRow, MarkedSpan, Quality};

/// A row of `strongback.sources`. Counters start at 0 when the server starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceRow {
    /// Name, as referred to by channels.
    pub name: String,
    /// Kind: `inetx`, `ilp`, `internal` or `import`.
    pub kind: String,
    /// Address it listens on.
    pub address: String,
    /// Status: `ok`, `silent`, `slow` or `dropping`.
    pub status: String,
    /// Number of its streams.
    pub streams: u64,
    /// Counters.
    pub counters: SourceCounters,
    /// Newest `receive_time`, in nanoseconds since 1970 UTC.
    pub last_receive_time_ns: Option<i64>,
}

/// A row of `strongback.gaps`: frames known to be lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GapRow {
    /// Id of the gap.
    pub id: u64,
    /// Stream; `None` if only a socket's counter is known.
    pub stream: Option<StreamId>,
    /// Name of the stream, `table{tag=value}`.
    pub stream_name: String,
    /// Name of the source.
    pub source: String,
    /// `time` of the last frame before the gap, in nanoseconds since 1970 UTC.
    pub from_time_ns: i64,
    /// `time` of the first frame after the gap, in nanoseconds since 1970 UTC.
    pub to_time_ns: i64,
    /// First missing sequence number.
    pub from_sequence: Option<i64>,
    /// Last missing sequence number.
    pub to_sequence: Option<i64>,
    /// Frames missing when the gap was found.
    pub count: u64,
    /// Frames still missing. Late frames fill a gap.
    pub open: u64,
    /// Cause, if known.
    pub cause: String,
    /// Description of the gap.
    pub words: String,
}

/// A row of `strongback.events`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventRow {
    /// Time, in nanoseconds since 1970 UTC.
    pub time_ns: i64,
    /// Level: `info`, `watch`, `warning` or `critical`.
    pub level: String,
    /// Source of the event, as stated.
    pub source: String,
    /// Text of the event.
    pub text: String,
    /// Actual origin, regardless of `source`.
    pub origin: EventOrigin,
}

/// Origin of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventOrigin {
    /// The server, from its own observation.
    #[default]
    Server,
    /// A client, via `POST /api/events`.
    Client,
}

impl EventOrigin {
    /// Returns the name used in tables: `server` or `client`.
    pub fn name(self) -> &'static str {
        match self {
            EventOrigin::Server => "server",
            EventOrigin::Client => "client",
        }
    }
}

/// A row of `strongback.runs`. Times are in nanoseconds since 1970 UTC.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunRow {
    /// Name, which is the tag `run` of its streams.
    pub name: String,
    /// State: `planned`, `counting`, `held` or `stopped`; `None` for a run without a clock.
    pub state: Option<String>,
    /// T-0 as set.
    pub t0_ns: Option<i64>,
    /// T-0 moved by the holds since.
    pub t0_now_ns: Option<i64>,
    /// Time from T-0 to now without holds, negative before T-0.
    pub t_ns: Option<i64>,
    /// Start time.
    pub started_ns: Option<i64>,
    /// End time.
    pub stopped_ns: Option<i64>,
    /// Patterns of its channels.
    pub channels: Vec<String>,
    /// Whether its streams are kept until it is released.
    pub protected: bool,
    /// Number of streams with its name as the tag `run`.
    pub streams: u64,
    /// Size of their segments in bytes.
    pub size_bytes: u64,
}

/// A row of `strongback.followers`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FollowerRow {
    /// Name.
    pub name: String,
    /// Kind of the target.
    pub target: String,
    /// Address of the target, without secrets.
    pub address: String,
    /// Patterns of its channels.
    pub channels: Vec<String>,
    /// State: `starting`, `following`, `retrying`, `paused` or `stopped`.
    pub state: String,
    /// Age of the oldest frame that is not delivered, in seconds since it was received.
    pub lag_s: f64,
    /// Frames delivered per second.
    pub frames_per_s: f64,
    /// Counters since its start, in the order of [`FollowerRow::COUNTERS`].
    pub counters: [u64; 10],
    /// Newest error.
    pub last_error: Option<String>,
    /// When it occurred, in nanoseconds since 1970 UTC.
    pub last_error_ns: Option<i64>,
}

impl FollowerRow {
    /// Names of the counters.
    pub const COUNTERS: [&str; 10] = [
        "streams",
        "delivered_frames",
        "behind_frames",
        "rejected_frames",
        "skipped_frames",
        "altered_values",
        "sent_bytes",
        "deliveries",
        "failed_attempts",
        "suspended_streams",
    ];
}

/// Rows that the server knows beyond the store. Called from query threads for each query of these tables, so
/// implementations must answer from memory without waiting.
pub trait SystemRows: Send + Sync + 'static {
    /// Returns all sources.
    fn sources(&self) -> Vec<SourceRow>;

    /// Returns the gaps that touch a time range (nanoseconds since 1970 UTC, end exclusive).
    fn gaps(&self, time: Range<i64>) -> Vec<GapRow>;

    /// Returns the `time` before which [`SystemRows::gaps`] is incomplete, in nanoseconds since 1970 UTC, or `i64::MAX`
    /// if it is incomplete at any time. Returns `None` if it is complete. May read from the store, so it is not for
    /// threads that must not block.
    fn gaps_known_from(&self) -> Option<i64> {
        None
    }

    /// Returns the events in a time range (nanoseconds since 1970 UTC, end exclusive).
    fn events(&self, time: Range<i64>) -> Vec<EventRow>;

    /// Returns the runs, both with a clock and imported.
    fn runs(&self) -> Vec<RunRow> {
        Vec::new()
    }

    /// Returns the followers.
    fn followers(&self) -> Vec<FollowerRow> {
        Vec::new()
    }

    /// Returns all marks, in the order in which they were made.
    fn marks(&self) -> Vec<Arc<MarkRow>> {
        Vec::new()
    }

    /// Returns the spans of a channel in a time range (nanoseconds since 1970 UTC, end exclusive) in which a mark
    /// counts, ascending, and cut to the range.
    fn marked_spans(&self, stream: &Stream, channel: ChannelIndex, time: &Range<i64>) -> Vec<MarkedSpan> {
        let _ = (stream, channel, time);
        Vec::new()
    }

    /// Returns definitions of the server's own streams. Their tables exist in SQL before there is a first row, with a
    /// column for each tag and channel.
    fn own_streams(&self) -> Vec<StreamSpec> {
        Vec::new()
    }

    /// Returns the period of a stream learnt from the arrival of its frames, in nanoseconds, or `None` if none was
    /// learnt.
    fn learnt_period_ns(&self, stream: StreamId) -> Option<i64> {
        let _ = stream;
        None
    }

    /// Returns the gaps of one stream that touch a time range and still have missing frames.
    fn open_gaps(&self, stream: StreamId, time: Range<i64>) -> Vec<GapRow> {
        self.gaps(time).into_iter().filter(|gap| gap.stream == Some(stream) && gap.open > 0).collect()
    }
}

/// System rows of a store without a server: no sources, gaps or events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSystemRows;

impl SystemRows for NoSystemRows {
    fn sources(&self) -> Vec<SourceRow> {
        Vec::new()
    }
    fn gaps(&self, _: Range<i64>) -> Vec<GapRow> {
        Vec::new()
    }
    fn events(&self, _: Range<i64>) -> Vec<EventRow> {
        Vec::new()
    }
}
