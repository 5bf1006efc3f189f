//! Results and statistics of appends, recovery and the whole store.

use crate::Reject;
use crate::model::clock::{ClockLeap, ClockTrust};
use crate::model::damage::Damage;

/// Outcome of appending one frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The frame was stored at this row (final once committed).
    Stored {
        /// Ordinal in its stream.
        row: u64,
    },
    /// No value left its bound (see [`Reduction`](crate::Reduction)): the frame gets no row of its own and is
    /// represented by stored data. It is as durable as a stored frame once its commit is.
    Reduced {
        /// Newest row of its stream.
        row: u64,
    },
    /// The frame was seen before (same sequence, or same stream, time and values). It was counted, but not stored.
    Duplicate,
    /// The frame was refused, and counted by reason.
    Rejected(Reject),
}

/// Number of a commit; increases by one with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitNumber(pub u64);

/// Result of an append.
#[derive(Clone, Debug)]
pub struct Appended {
    /// One outcome for each frame, in order.
    pub outcomes: Vec<Outcome>,
    /// Commit that makes every stored frame of this append durable, and every frame that a duplicate repeats. This is
    /// the next commit, or the newest one if nothing waits for a commit.
    pub commit: CommitNumber,
}

/// Exact counts of one stream since the store was opened: received = stored + duplicate + reduced + rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that reached `append`.
    pub received: u64,
    /// Frames that got a row.
    pub stored: u64,
    /// Frames that were seen before.
    pub duplicate: u64,
    /// Frames in which no value left its bound (lossy codecs).
    pub reduced: u64,
    /// Frames refused, and accepted frames that a failing disk lost before they were durable.
    pub rejected: u64,
    /// Frames found missing, and those of `rejected` that will not be sent again.
    pub lost: u64,
    /// Missing frames that arrived late, including those found missing before the store was opened.
    pub filled: u64,
    /// Frames found missing before the store was opened and still missing then, as far as this is remembered.
    pub open_before: u64,
    /// Frames that arrived after a later one.
    pub late: u64,
    /// Restarts of the source.
    pub restarts: u64,
    /// Stored frames whose `time` is more than `max_future` ahead of their reception.
    pub future: u64,
    /// Values with a cell state `Value` in stored frames.
    pub points: u64,
}

impl Counts {
    /// Returns the number of lost frames that are still missing: those missing when the store was opened plus those
    /// lost since, minus those that arrived late.
    pub fn open(&self) -> u64 {
        (self.open_before + self.lost).saturating_sub(self.filled)
    }
}

/// Statistics of the whole store.
#[derive(Clone, Debug, Default)]
pub struct StoreStats {
    /// Bytes of all files: log, checkpoints and segments, including preallocated space.
    pub disk_bytes: u64,
    /// Number of sealed and open segments.
    pub segments: u64,
    /// Bytes of encoded blocks.
    pub block_bytes: u64,
    /// Points in encoded blocks.
    pub block_points: u64,
    /// Bytes of blob segments, without preallocated space.
    pub blob_bytes: u64,
    /// Bytes of memory used by open blocks.
    pub open_bytes: u64,
    /// Bytes of the log between tail and head.
    pub log_used_bytes: u64,
    /// Bytes of the log's ring.
    pub log_bytes: u64,
    /// Number of commits since opening.
    pub commits: u64,
    /// Bytes written since opening, including the log.
    pub written_bytes: u64,
    /// Bytes written to the log since opening.
    pub log_written_bytes: u64,
    /// Blocks decoded for readers since opening. Reads answered from statistics are not counted.
    pub blocks_decoded: u64,
    /// Segments that compaction has replaced with larger blocks since opening.
    pub settled_segments: u64,
    /// Bytes written by compaction, including failed attempts.
    pub settle_written_bytes: u64,
    /// Bytes of disk space saved by compaction.
    pub settle_saved_bytes: u64,
    /// Segments that could not be compacted because they, or their replacements, do not read back. They are unchanged.
    pub settle_failed: u64,
    /// Reason for the newest failure of compaction.
    pub settle_failure: Option<String>,
    /// Reason for which sealing waits for the disk, if it does: the disk is full or read-only, or no descriptor is
    /// left.
    pub held_up: Option<String>,
    /// Number of streams in the catalog.
    pub streams: u64,
    /// Number of channels in the catalog.
    pub channels: u64,
    /// Trust in the callers' clock.
    pub clock: ClockTrust,
}

/// Report of what recovery found at opening.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Epoch that this opening began.
    pub epoch: u32,
    /// Number of frames restored from the log.
    pub frames: u64,
    /// Whether the last shutdown was clean.
    pub clean: bool,
    /// Instant of the newest commit found, in nanoseconds since 1970 UTC; `None` in a new store.
    pub last_commit: Option<i64>,
    /// Leap of the clock at opening: set if it is before the newest stored instant, or more than a year after it.
    /// Nothing is dropped by age until the clock is confirmed.
    pub clock_leap: Option<ClockLeap>,
    /// Bytes of the log after the last complete commit.
    pub torn_bytes: u64,
    /// Durable data that is not as it was written.
    pub damaged: Vec<Damage>,
    /// Number of rows lost with it. Each range of a stream is a row of `strongback.gaps`.
    pub lost_rows: u64,
}

/// Segment, as shown in `strongback.segments`.
#[derive(Clone, Debug)]
pub struct SegmentInfo {
    /// Number, in order of creation.
    pub id: u64,
    /// Whether compaction made the segment as a replacement for older ones.
    pub settled: bool,
    /// Whether the segment holds blobs instead of blocks.
    pub blobs: bool,
    /// Whether the segment is sealed.
    pub sealed: bool,
    /// Name of the retention group.
    pub group: String,
    /// Bytes on disk.
    pub size_bytes: u64,
    /// Number of blocks, or of blobs.
    pub blocks: u64,
    /// Smallest and largest `time` of its frames.
    pub time: Option<(i64, i64)>,
    /// First and last instant at which its data was stored.
    pub stored: Option<(i64, i64)>,
}
