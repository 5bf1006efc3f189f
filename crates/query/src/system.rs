//! Rows that the server knows and SQL shows: `strongback.sources`, `strongback.gaps`, `strongback.events`,
//! `strongback.runs`.

pub(crate) mod catalog;
pub(crate) mod counters;
pub(crate) mod function;
pub(crate) mod pg_catalog;
pub(crate) mod state;
pub(crate) mod tables;

use std::ops::Range;

use strongback_store::StreamId;

pub use counters::SourceCounters;

/// One row of `strongback.sources`. Counters count since the start of the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceRow {
    /// Name, as channels refer to it.
    pub name: String,
    /// `inetx`, `ilp`, `internal`, `import`.
    pub kind: String,
    /// Where it listens.
    pub address: String,
    /// `ok`, `silent`, `slow`, `dropping`.
    pub status: String,
    /// Streams it feeds.
    pub streams: u64,
    /// What was counted of it.
    pub counters: SourceCounters,
    /// Newest `receive_time`, nanoseconds since 1970 UTC.
    pub last_receive_time_ns: Option<i64>,
}

/// One row of `strongback.gaps`: frames known lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GapRow {
    /// Number of the gap.
    pub id: u64,
    /// The stream; none where only a socket's counter tells.
    pub stream: Option<StreamId>,
    /// Name of the stream, `table{tag=value}`.
    pub stream_name: String,
    /// Name of the source.
    pub source: String,
    /// `time` of the last frame before it, nanoseconds since 1970 UTC.
    pub from_time_ns: i64,
    /// `time` of the first frame after it, nanoseconds since 1970 UTC.
    pub to_time_ns: i64,
    /// First missing sequence.
    pub from_sequence: Option<i64>,
    /// Last missing sequence.
    pub to_sequence: Option<i64>,
    /// Frames missing when it was found.
    pub count: u64,
    /// Frames still missing: late ones fill.
    pub open: u64,
    /// Why, where that is known.
    pub cause: String,
    /// The whole in words.
    pub words: String,
}

/// One row of `strongback.events`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventRow {
    /// When, nanoseconds since 1970 UTC.
    pub time_ns: i64,
    /// `info`, `watch`, `warning`, `critical`.
    pub level: String,
    /// Who said it.
    pub source: String,
    /// What happened.
    pub text: String,
    /// Who wrote it down, whatever `source` says.
    pub origin: EventOrigin,
}

/// Who wrote an event down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventOrigin {
    /// The server, of what it saw itself.
    #[default]
    Server,
    /// A client, by `POST /api/events`.
    Client,
}

impl EventOrigin {
    /// Its name in tables: `server` or `client`.
    pub fn name(self) -> &'static str {
        match self {
            EventOrigin::Server => "server",
            EventOrigin::Client => "client",
        }
    }
}

/// One row of `strongback.runs`. Times are nanoseconds since 1970 UTC.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunRow {
    /// Its name: the tag `run` of streams that belong to it.
    pub name: String,
    /// `planned`, `counting`, `held`, `stopped`; none: it has no clock.
    pub state: Option<String>,
    /// T-0 as it was set.
    pub t0_ns: Option<i64>,
    /// Time from T-0 to now without holds, negative before it.
    pub t_ns: Option<i64>,
    /// When it began.
    pub started_ns: Option<i64>,
    /// When it ended.
    pub stopped_ns: Option<i64>,
    /// Patterns of the channels that belong to it.
    pub channels: Vec<String>,
    /// Whether its streams are kept until it is released.
    pub protected: bool,
    /// Streams with its name as the tag `run`.
    pub streams: u64,
    /// Bytes of their segments.
    pub size_bytes: u64,
}

/// What the server knows beyond the store. Called for each query of these tables, from query threads: it must
/// answer from memory and not wait.
pub trait SystemRows: Send + Sync + 'static {
    /// All sources.
    fn sources(&self) -> Vec<SourceRow>;

    /// Gaps that touch a time range (nanoseconds since 1970 UTC, end exclusive).
    fn gaps(&self, time: Range<i64>) -> Vec<GapRow>;

    /// The `time` before which [`SystemRows::gaps`] leaves some out, in nanoseconds since 1970 UTC; `i64::MAX`: of any
    /// time. `None` where it has all. May read from the store: not for threads that must not block.
    fn gaps_known_from(&self) -> Option<i64> {
        None
    }

    /// Events of a time range (nanoseconds since 1970 UTC, end exclusive).
    fn events(&self, time: Range<i64>) -> Vec<EventRow>;

    /// Runs, those with a clock and those that were imported.
    fn runs(&self) -> Vec<RunRow> {
        Vec::new()
    }

    /// Period of a stream that was learnt from when its frames came, in nanoseconds; `None` where none was.
    fn learnt_period_ns(&self, stream: StreamId) -> Option<i64> {
        let _ = stream;
        None
    }

    /// Gaps of one stream with frames still missing that touch a time range.
    fn open_gaps(&self, stream: StreamId, time: Range<i64>) -> Vec<GapRow> {
        self.gaps(time).into_iter().filter(|gap| gap.stream == Some(stream) && gap.open > 0).collect()
    }
}

/// A store without a server: no sources, gaps or events.
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
