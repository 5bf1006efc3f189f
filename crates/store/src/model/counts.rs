//! What appends, recovery and the whole store report of themselves.

use crate::Reject;
use crate::model::clock::{ClockLeap, ClockTrust};
use crate::model::damage::Damage;

/// What became of one frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Stored at this row (final once committed).
    Stored {
        /// Ordinal in its stream.
        row: u64,
    },
    /// Nothing in it left its bound (see [`Reduction`](crate::Reduction)): it gets no row of its own, what is stored
    /// stands for it. As durable as a stored frame once its commit is.
    Reduced {
        /// Newest row of its stream.
        row: u64,
    },
    /// Seen before (sequence, or stream, time and all values): counted, not stored.
    Duplicate,
    /// Refused, counted by reason.
    Rejected(Reject),
}

/// Number of a commit: rises by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitNumber(pub u64);

/// What an append did.
#[derive(Clone, Debug)]
pub struct Appended {
    /// One for each frame, in order.
    pub outcomes: Vec<Outcome>,
    /// Once this commit is durable, every stored frame of this append is, and every one that a duplicate repeats: the next
    /// commit, or where nothing waits for one the newest.
    pub commit: CommitNumber,
}

/// Exact counts of one stream since the store was opened: received = stored + duplicate + reduced + rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that reached `append`.
    pub received: u64,
    /// Frames with a row.
    pub stored: u64,
    /// Frames seen before.
    pub duplicate: u64,
    /// Frames in which nothing left its band (lossy codecs).
    pub reduced: u64,
    /// Frames refused, and frames taken that a failing disk lost before they were durable.
    pub rejected: u64,
    /// Frames found missing, and those of `rejected` that nobody sends again.
    pub lost: u64,
    /// Missing frames that came late after all, also those that were found missing before the store was opened.
    pub filled: u64,
    /// Frames found missing before the store was opened and not there by then, as far as they are remembered.
    pub open_before: u64,
    /// Frames after a later one.
    pub late: u64,
    /// Source restarts seen.
    pub restarts: u64,
    /// Stored frames whose `time` is more than `max_future` ahead of their reception.
    pub future: u64,
    /// Values with a cell state `Value` in stored frames.
    pub points: u64,
}

impl Counts {
    /// Frames missing now that were counted as lost: those missing when the store was opened, and those lost since, without
    /// those that came after all.
    pub fn open(&self) -> u64 {
        (self.open_before + self.lost).saturating_sub(self.filled)
    }
}

/// Sizes and counters of the whole store.
#[derive(Clone, Debug, Default)]
pub struct StoreStats {
    /// Bytes of all files: log, checkpoints, segments, and what is allocated ahead.
    pub disk_bytes: u64,
    /// Sealed and open segments.
    pub segments: u64,
    /// Bytes of encoded blocks.
    pub block_bytes: u64,
    /// Points in encoded blocks.
    pub block_points: u64,
    /// Bytes of segments of blobs, without what is allocated ahead.
    pub blob_bytes: u64,
    /// Memory of open blocks.
    pub open_bytes: u64,
    /// Bytes of the log between tail and head.
    pub log_used_bytes: u64,
    /// Bytes of the log's ring.
    pub log_bytes: u64,
    /// Commits since opening.
    pub commits: u64,
    /// Bytes written since opening, log included.
    pub written_bytes: u64,
    /// Those of the log.
    pub log_written_bytes: u64,
    /// Blocks decoded for readers since opening; what statistics answer is not among them.
    pub blocks_decoded: u64,
    /// Segments since opening that another one stands for now, with larger blocks.
    pub settled_segments: u64,
    /// Bytes written for that, also in vain.
    pub settle_written_bytes: u64,
    /// Bytes of disk that it saved.
    pub settle_saved_bytes: u64,
    /// Segments that could not be rewritten because they, or what was made of them, do not read back: they are as they
    /// were.
    pub settle_failed: u64,
    /// Why the newest of them could not.
    pub settle_failure: Option<String>,
    /// Why what is sealed waits for the disk, if so: it is full, no descriptor is left, or it can be read only.
    pub held_up: Option<String>,
    /// Streams in the catalog.
    pub streams: u64,
    /// Channels in the catalog.
    pub channels: u64,
    /// What is made of the clock that the callers tell.
    pub clock: ClockTrust,
}

/// What recovery found at opening.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Epoch begun by this opening.
    pub epoch: u32,
    /// Frames taken back from the log.
    pub frames: u64,
    /// Whether the last shutdown was clean.
    pub clean: bool,
    /// When the newest commit that was found was made, nanoseconds since 1970 UTC; none in a new store.
    pub last_commit: Option<i64>,
    /// If the clock of the opening lies before what the store holds, or more than a year after all of it: from the
    /// newest instant stored to the clock. Nothing goes by age before the clock was confirmed.
    pub clock_leap: Option<ClockLeap>,
    /// Bytes of the log beyond the last whole commit.
    pub torn_bytes: u64,
    /// What was durable and is not as it was written.
    pub damaged: Vec<Damage>,
    /// Rows lost with it; each range of a stream is a row of `strongback.gaps`.
    pub lost_rows: u64,
}

/// A segment as `strongback.segments` shows it.
#[derive(Clone, Debug)]
pub struct SegmentInfo {
    /// Number, in the order in which they were made.
    pub id: u64,
    /// Whether it stands for older ones, with larger blocks.
    pub settled: bool,
    /// Whether it holds blobs, and no blocks.
    pub blobs: bool,
    /// Whether it is sealed.
    pub sealed: bool,
    /// Retention group.
    pub group: String,
    /// Bytes on disk.
    pub size_bytes: u64,
    /// Blocks in it; of blobs these.
    pub blocks: u64,
    /// Smallest and largest `time` in it.
    pub time: Option<(i64, i64)>,
    /// First and last instant at which its data was stored.
    pub stored: Option<(i64, i64)>,
}
