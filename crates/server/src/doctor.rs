//! Why data is missing: the findings of `strongback doctor` and `/api/doctor`.
//!
//! Three steps: [`facts`] reads what is known (catalog, counts, gap rows, the frames around the instant), [`judge`]
//! turns that into findings and touches nothing else, [`command`] prints them. A finding names its cause, says from
//! when to when and how much where that is known, and what to do. The likeliest explanation comes first: what
//! explains another finding stands before it.

pub mod facts;

mod judgement;

use serde::Serialize;

use crate::sources::expectation::{RateOrigin, StreamStatus};
use crate::text::json::Big;

pub use judgement::judge;

/// What can be found. In the order in which they explain an absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// No channel has this name.
    NotConfigured,
    /// The store takes nothing now.
    NotRecording,
    /// The PLC does not answer.
    Disconnected,
    /// A symbol that the PLC does not have, or does not give.
    SymbolMissing,
    /// Packets that no layout is configured for.
    NoLayout,
    /// Datagrams, lines, messages or frames that were refused.
    Rejected,
    /// Frames are there, with a `time` far from when they came.
    ClockWrong,
    /// Older than what is kept.
    Expired,
    /// No server ran.
    ServerNotRunning,
    /// Frames known lost on the way.
    Lost,
    /// Frames lost in the kernel's buffer.
    Kernel,
    /// Frames that the store did not take, or lost when its disk failed.
    NotRecorded,
    /// Frames that were stored, in a damaged place.
    Damaged,
    /// Nothing ever came.
    NeverSeen,
    /// It stopped.
    Silent,
    /// Frames are there, without this channel.
    ChannelAbsent,
    /// Less comes than should.
    Slow,
    /// Left out on request.
    Reduced,
    /// Came twice, kept once.
    Duplicate,
    /// Neither sequence nor period: nobody can say.
    NotKnowable,
}

impl Cause {
    /// Whether something is wrong with it; else it is only good to know.
    pub fn is_wrong(self) -> bool {
        !matches!(self, Cause::Reduced | Cause::Duplicate | Cause::NotKnowable)
    }
}

/// Something that explains an absence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What.
    pub cause: Cause,
    /// Whether something is wrong.
    pub wrong: bool,
    /// Source it is about, if one.
    pub source: Option<String>,
    /// Stream it is about, if one.
    pub stream: Option<String>,
    /// Since when, nanoseconds since 1970 UTC.
    pub from: Option<Big<i64>>,
    /// Until when.
    pub to: Option<Big<i64>>,
    /// Frames, packets, lines.
    pub count: Option<Big<u64>>,
    /// In words.
    pub text: String,
    /// What to do.
    pub advice: String,
}

/// What the doctor says.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// When it was asked, nanoseconds since 1970 UTC.
    pub now: Big<i64>,
    /// The instant asked for; none: now.
    pub at: Option<Big<i64>>,
    /// Channels asked for; none: everything.
    pub channel: Option<String>,
    /// Streams looked at.
    pub streams: usize,
    /// Whether anything is wrong.
    pub wrong: bool,
    /// All in one sentence.
    pub verdict: String,
    /// The likeliest first.
    pub findings: Vec<Finding>,
}

/// A frame that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFacts {
    /// Its row.
    pub row: u64,
    /// Its `time`.
    pub time: i64,
    /// Its `receive_time`.
    pub receive_time: i64,
}

/// Rows of `strongback.gaps` of one stream and cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GapFacts {
    /// The cause, as in the table.
    pub cause: String,
    /// `time` before the first and after the last.
    pub time: (i64, i64),
    /// Frames still missing; of `refused` those refused.
    pub count: u64,
}

/// What a frame has of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InFrame {
    /// A value, or that it is unknown.
    #[default]
    There,
    /// That it is within the bound of its reduction.
    Unchanged,
    /// Nothing.
    Absent,
}

/// A channel that was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelFacts {
    /// Its full name.
    pub name: String,
    /// What the newest frame up to the instant has of it.
    pub in_frame: InFrame,
    /// `time` and row of its newest value up to the instant.
    pub value: Option<(i64, u64)>,
    /// Its reduction, in words.
    pub reduction: Option<String>,
}

/// What is known of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamFacts {
    /// `table{tag=value}`.
    pub name: String,
    /// Its source.
    pub source: String,
    /// Whether a source of this server feeds it.
    pub live: bool,
    /// Whether its frames are numbered.
    pub has_sequence: bool,
    /// Whether `time` is the source's.
    pub source_clock: bool,
    /// Where its rate comes from, and what that is.
    pub expected: RateOrigin,
    /// Frames a second that should come.
    pub expected_rate_hz: Option<f64>,
    /// Frames a second that come.
    pub rate_hz: f64,
    /// How it does.
    pub status: StreamStatus,
    /// Since when.
    pub since: i64,
    /// Frames that came twice, were left out by reductions, and were refused, since start.
    pub duplicate: u64,
    /// See `duplicate`.
    pub reduced: u64,
    /// Oldest and newest frame that is kept.
    pub oldest: Option<FrameFacts>,
    /// See `oldest`.
    pub newest: Option<FrameFacts>,
    /// Frames before and after the instant asked for.
    pub before: Option<FrameFacts>,
    /// See `before`.
    pub after: Option<FrameFacts>,
    /// What is known lost about the instant.
    pub gaps: Vec<GapFacts>,
    /// Those of its channels that were asked for.
    pub channels: Vec<ChannelFacts>,
}

/// What a source rejected for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedFacts {
    /// The reason.
    pub reason: String,
    /// How many since start.
    pub count: u64,
    /// When the newest came.
    pub last_time: i64,
    /// One of the newest: why, who sent it, its first bytes as text or in hexadecimal.
    pub text: String,
    /// See `text`.
    pub from: Option<String>,
    /// See `text`.
    pub bytes: String,
}

/// What is known of a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceFacts {
    /// Its name.
    pub name: String,
    /// `inetx`, `ads`, `ilp`.
    pub kind: String,
    /// Where it listens, or the PLC is.
    pub address: String,
    /// Whether a PLC answers; none of what is no PLC.
    pub connected: Option<bool>,
    /// The newest trouble it told of itself, where it is a PLC that does not answer.
    pub why: Option<String>,
    /// Symbols that give no values: stream, symbol, why.
    pub troubles: Vec<(String, String, String)>,
    /// Packets without a layout, by stream id.
    pub unknown: Vec<(String, u64)>,
    /// What was rejected.
    pub rejected: Vec<RejectedFacts>,
    /// Datagrams that the kernel dropped since start, and whether it does so now.
    pub kernel_drops: (u64, bool),
}

/// All that a judgement is made from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Nanoseconds since 1970 UTC.
    pub now: i64,
    /// The instant asked for; none: now.
    pub at: Option<i64>,
    /// Channels asked for; none: everything.
    pub channel: Option<String>,
    /// Names near to that, where nothing has it.
    pub nearest: Vec<String>,
    /// When the server started.
    pub started: i64,
    /// Why nothing is recorded now.
    pub refusal: Option<String>,
    /// Times without a server.
    pub outages: Vec<(i64, i64)>,
    /// Losses of no stream.
    pub gaps: Vec<GapFacts>,
    /// Sources of the streams; all of them where no stream was found, or everything was asked for.
    pub sources: Vec<SourceFacts>,
    /// Streams with channels that were asked for.
    pub streams: Vec<StreamFacts>,
    /// Streams that are not among these: they were too many.
    pub streams_left: usize,
}
