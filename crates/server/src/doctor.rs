//! Why data is missing: the findings of `strongback doctor` and `/api/doctor`.
//!
//! There are three steps: [`facts`] reads what is known (catalog, counts, gap rows, the frames around the instant),
//! [`judge`] turns it into findings and touches nothing else, [`command`] prints them. A finding names its cause, its
//! time and amount where they are known, and what to do. The likeliest explanation comes first: a finding that explains
//! another precedes it.

pub mod facts;

mod judgement;
mod misplaced;

use serde::Serialize;
use strongback_archive::Status;

use crate::sources::expectation::{RateOrigin, StreamStatus};
use crate::text::json::Big;

pub use judgement::judge;

/// Cause of missing data, in the order in which causes explain an absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// No channel has this name.
    NotConfigured,
    /// The store accepts nothing now.
    NotRecording,
    /// The PLC does not answer.
    Disconnected,
    /// A symbol that the PLC lacks or does not give.
    SymbolMissing,
    /// Packets without a configured layout.
    NoLayout,
    /// Refused datagrams, lines, messages or frames.
    Rejected,
    /// Stored frames whose `time` is far from their reception.
    ClockWrong,
    /// Data older than what is kept.
    Expired,
    /// No server was running.
    ServerNotRunning,
    /// Frames known to be lost on the way.
    Lost,
    /// Frames lost in the kernel's buffer.
    Kernel,
    /// Frames that the store refused, or lost when its disk failed.
    NotRecorded,
    /// Stored frames in a damaged place.
    Damaged,
    /// Nothing ever received.
    NeverSeen,
    /// A stream that stopped.
    Silent,
    /// Stored frames without this channel.
    ChannelAbsent,
    /// A stream slower than expected.
    Slow,
    /// An archive that lacks frames, or has them late.
    Archive,
    /// Values left out by a configured reduction.
    Reduced,
    /// Values that people marked as bad.
    Marked,
    /// Frames received twice and stored once.
    Duplicate,
    /// A stream without sequence or period, whose losses cannot be known.
    NotKnowable,
}

impl Cause {
    /// Returns whether the cause means that something is wrong, rather than being information only.
    pub fn is_wrong(self) -> bool {
        !matches!(self, Cause::Reduced | Cause::Marked | Cause::Duplicate | Cause::NotKnowable)
    }
}

/// An explanation of missing data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Cause of the absence.
    pub cause: Cause,
    /// Whether something is wrong.
    pub wrong: bool,
    /// Source concerned, if any.
    pub source: Option<String>,
    /// Stream concerned, if any.
    pub stream: Option<String>,
    /// Begin, nanoseconds since 1970 UTC.
    pub from: Option<Big<i64>>,
    /// End, nanoseconds since 1970 UTC.
    pub to: Option<Big<i64>>,
    /// Number of frames, packets or lines.
    pub count: Option<Big<u64>>,
    /// Description in words.
    pub text: String,
    /// Advice on what to do.
    pub advice: String,
}

/// The doctor's report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Time of the request, nanoseconds since 1970 UTC.
    pub now: Big<i64>,
    /// Instant asked about; `None` means now.
    pub at: Option<Big<i64>>,
    /// Channels asked about; `None` means everything.
    pub channel: Option<String>,
    /// Number of streams examined.
    pub streams: usize,
    /// Whether anything is wrong.
    pub wrong: bool,
    /// Summary in one sentence.
    pub verdict: String,
    /// Findings, the likeliest first.
    pub findings: Vec<Finding>,
}

/// A stored frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFacts {
    /// Row of the frame.
    pub row: u64,
    /// `time` of the frame.
    pub time: i64,
    /// `receive_time` of the frame.
    pub receive_time: i64,
}

/// Gap rows of one stream and cause, summed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GapFacts {
    /// Cause, as in `strongback.gaps`.
    pub cause: String,
    /// `time` before the first missing frame and after the last.
    pub time: (i64, i64),
    /// Number of frames still missing; for `refused`, of frames refused.
    pub count: u64,
}

/// State of a channel in a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InFrame {
    /// A value, or one marked unknown.
    #[default]
    There,
    /// A value left out because it is within the bound of its reduction.
    Unchanged,
    /// No value.
    Absent,
}

/// A channel asked about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelFacts {
    /// Full name.
    pub name: String,
    /// State in the newest frame up to the instant.
    pub in_frame: InFrame,
    /// `time` and row of its newest value up to the instant.
    pub value: Option<(i64, u64)>,
    /// Reduction, in words.
    pub reduction: Option<String>,
    /// Mark that says that its value in that frame is bad, in words.
    pub bad: Option<String>,
}

/// Facts about a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamFacts {
    /// Name, as `table{tag=value}`.
    pub name: String,
    /// Source of the stream.
    pub source: String,
    /// Whether a source of this server feeds it.
    pub live: bool,
    /// Whether its frames are numbered.
    pub has_sequence: bool,
    /// Whether `time` is the source's clock.
    pub source_clock: bool,
    /// Origin of the expected rate.
    pub expected: RateOrigin,
    /// Expected rate, frames a second.
    pub expected_rate_hz: Option<f64>,
    /// Actual rate, frames a second.
    pub rate_hz: f64,
    /// Status of the stream.
    pub status: StreamStatus,
    /// Time at which the status began, nanoseconds since 1970 UTC.
    pub since: i64,
    /// Number of frames since start that were received twice.
    pub duplicate: u64,
    /// Number of frames since start that were left out by reductions.
    pub reduced: u64,
    /// Number of frames that were stored before the oldest one that is kept.
    pub deleted: u64,
    /// Oldest frame that is kept. Frames in [`misplaced::SPAN`] count only if there are no others.
    pub oldest: Option<FrameFacts>,
    /// Newest frame that is kept.
    pub newest: Option<FrameFacts>,
    /// Last frame up to the instant asked about. Frames in [`misplaced::SPAN`] do not count for later instants.
    pub before: Option<FrameFacts>,
    /// First frame after the instant asked about.
    pub after: Option<FrameFacts>,
    /// Known losses around the instant.
    pub gaps: Vec<GapFacts>,
    /// Channels of the stream that were asked about.
    pub channels: Vec<ChannelFacts>,
}

/// Data rejected by a source for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedFacts {
    /// The reason.
    pub reason: String,
    /// Number since start.
    pub count: u64,
    /// Time of the newest, nanoseconds since 1970 UTC.
    pub last_time: i64,
    /// Explanation of a recent sample.
    pub text: String,
    /// Sender of that sample.
    pub from: Option<String>,
    /// First bytes of that sample, as text or in hexadecimal.
    pub bytes: String,
}

/// Facts about a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceFacts {
    /// Name of the source.
    pub name: String,
    /// Kind: `inetx`, `ads` or `ilp`.
    pub kind: String,
    /// Address the source listens on, or that of the PLC.
    pub address: String,
    /// Whether a PLC answers; `None` for other sources.
    pub connected: Option<bool>,
    /// Newest trouble reported by a PLC that does not answer.
    pub why: Option<String>,
    /// Symbols without values: stream, symbol and reason.
    pub troubles: Vec<(String, String, String)>,
    /// Packets without a layout, by stream id.
    pub unknown: Vec<(String, u64)>,
    /// Rejected data by reason.
    pub rejected: Vec<RejectedFacts>,
    /// Datagrams dropped by the kernel since start, and whether it is dropping now.
    pub kernel_drops: (u64, bool),
}

/// Facts about an archive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArchiveFacts {
    /// Name of the archive.
    pub name: String,
    /// Address of its target.
    pub address: String,
    /// Age of the oldest frame that is not delivered, in seconds; 0 if all are.
    pub lag_s: f64,
    /// State and counters.
    pub status: Status,
}

/// All facts a judgement is based on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Time of the request, nanoseconds since 1970 UTC.
    pub now: i64,
    /// Instant asked about; `None` means now.
    pub at: Option<i64>,
    /// Channels asked about; `None` means everything.
    pub channel: Option<String>,
    /// Similar names, if no channel has this one.
    pub nearest: Vec<String>,
    /// Start of the server, nanoseconds since 1970 UTC.
    pub started: i64,
    /// Reason why nothing is recorded now.
    pub refusal: Option<String>,
    /// Times without a server, as begin and end.
    pub outages: Vec<(i64, i64)>,
    /// Losses that belong to no stream.
    pub gaps: Vec<GapFacts>,
    /// Sources of the streams; all sources if no stream was found or everything was asked for.
    pub sources: Vec<SourceFacts>,
    /// Streams with channels asked about.
    pub streams: Vec<StreamFacts>,
    /// Archives, if everything was asked for, and now.
    pub archives: Vec<ArchiveFacts>,
    /// Number of further streams that were not examined because there are too many.
    pub streams_left: usize,
}
