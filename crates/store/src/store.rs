//! The store's face: what sources, live, query and server call.
//! (Signatures agreed first; the engine lands behind them.)

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::*;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Bytes of the commit log's ring.
    pub log_bytes: u64,
    /// Most bytes on disk in directory mode; none: 80 % of the file system.
    pub max_bytes: Option<u64>,
    /// Oldest stored age kept; none: as long as `max_bytes` allows.
    pub max_age: Option<Duration>,
    /// Most streams; new ones beyond are rejected.
    pub max_streams: u32,
    /// Memory for open blocks before pressure seals them.
    pub open_bytes: usize,
    /// Times further ahead of the caller's clock are flagged and kept out of `latest`.
    pub max_future: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            log_bytes: 64 << 20,
            max_bytes: None,
            max_age: None,
            max_streams: 200_000,
            open_bytes: 64 << 20,
            max_future: Duration::from_secs(86_400),
        }
    }
}

/// Why a store cannot be opened. Each message names the path and what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{path}: in use by another process")]
    InUse {
        /// The folder.
        path: String,
    },
    /// Written by a newer version.
    #[error("{path}: format {found} is newer than this program reads ({known})")]
    Newer {
        /// The folder.
        path: String,
        /// Version or feature found.
        found: String,
        /// Version or features known.
        known: String,
    },
    /// Not a store, or damaged beyond recovery.
    #[error("{path}: {reason}")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong, at which offset.
        reason: String,
    },
    /// The disk refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The refusal.
        source: std::io::Error,
    },
}

/// Why a frame or a stream was refused. `reason()` is the metrics label.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Reject {
    /// More streams than `max_streams`.
    #[error(
        "stream {stream}: the store holds its most streams ({max_streams}); raise max_streams or use fewer tag values"
    )]
    TooManyStreams {
        /// The stream asked for.
        stream: String,
        /// The limit.
        max_streams: u32,
    },
    /// More channels than a layout can hold.
    #[error("stream {stream}: more than {max_channels} channels")]
    TooManyChannels {
        /// The stream.
        stream: String,
        /// The limit.
        max_channels: usize,
    },
    /// A name that cannot be: empty, too long, control characters, `strongback.`.
    #[error("name {name:?}: {why}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A frame over 1 MiB.
    #[error("stream {stream}: frame of {size_bytes} bytes, at most 1 MiB")]
    TooLarge {
        /// The stream.
        stream: String,
        /// Its size.
        size_bytes: usize,
    },
    /// A time outside 1677 to 2262.
    #[error("stream {stream}: time outside 1677 to 2262")]
    BadTime {
        /// The stream.
        stream: String,
    },
    /// A value whose type its channel cannot hold: the caller did not resolve it.
    #[error("stream {stream}, channel {channel}: {found} does not fit {expected}")]
    BadType {
        /// The stream.
        stream: String,
        /// The channel.
        channel: String,
        /// Type of the value.
        found: &'static str,
        /// Type of the channel.
        expected: &'static str,
    },
    /// The store takes nothing now: see [`Refusal`].
    #[error("not recorded: {0}")]
    Refused(Refusal),
}

impl Reject {
    /// The label in metrics: `too_many_streams`, `bad_type`, ….
    pub fn reason(&self) -> &'static str {
        match self {
            Reject::TooManyStreams { .. } => "too_many_streams",
            Reject::TooManyChannels { .. } => "too_many_channels",
            Reject::BadName { .. } => "bad_name",
            Reject::TooLarge { .. } => "too_large",
            Reject::BadTime { .. } => "bad_time",
            Reject::BadType { .. } => "bad_type",
            Reject::Refused(Refusal::DiskFull) => "disk_full",
            Reject::Refused(_) => "not_recorded",
        }
    }
}

/// Why the store as a whole takes nothing. Live goes on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// No segment or log space can be had; it resumes alone when there is space.
    #[error("disk full")]
    DiskFull,
    /// A write or sync failed: the owner must reopen the store through recovery.
    #[error("the disk failed: {0}")]
    Poisoned(String),
    /// The commit log is full of uncommitted frames: commit first (back-pressure).
    #[error("commit log full")]
    LogFull,
    /// It was closed.
    #[error("closed")]
    Closed,
}

/// What became of one frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Stored at this row (final once committed).
    Stored {
        /// Ordinal in its stream.
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
    /// Once this commit is durable, every stored frame of this append is.
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
    /// Frames refused.
    pub rejected: u64,
    /// Frames found missing.
    pub lost: u64,
    /// Missing frames that came late after all.
    pub filled: u64,
    /// Frames after a later one.
    pub late: u64,
    /// Source restarts seen.
    pub restarts: u64,
    /// Values with a cell state `Value` in stored frames.
    pub points: u64,
}

/// Sizes and counters of the whole store.
#[derive(Clone, Debug, Default)]
pub struct StoreStats {
    /// Bytes on disk, log and checkpoints included.
    pub disk_bytes: u64,
    /// Sealed and open segments.
    pub segments: u64,
    /// Bytes of encoded blocks.
    pub block_bytes: u64,
    /// Points in encoded blocks.
    pub block_points: u64,
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
    /// Streams in the catalog.
    pub streams: u64,
    /// Channels in the catalog.
    pub channels: u64,
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
    /// Bytes of the log beyond the last whole commit.
    pub torn_bytes: u64,
    /// Reads issued.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
}

/// All streams at one moment. Cheap to clone; replaced, never changed.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Rises with each change.
    pub version: u64,
    /// Streams by [`StreamId`].
    pub streams: Vec<Arc<Stream>>,
}

impl Catalog {
    /// The stream of an id.
    pub fn stream(&self, id: StreamId) -> Option<&Arc<Stream>> {
        self.streams.get(id.0 as usize)
    }
}

/// A segment as `strongback.segments` shows it.
#[derive(Clone, Debug)]
pub struct SegmentInfo {
    /// Number, rising.
    pub id: u64,
    /// Whether it is sealed.
    pub sealed: bool,
    /// Retention group.
    pub group: String,
    /// Bytes on disk.
    pub size_bytes: u64,
    /// Blocks in it.
    pub blocks: u64,
    /// Smallest and largest `time` in it.
    pub time: Option<(i64, i64)>,
    /// First and last instant at which its data was stored.
    pub stored: Option<(i64, i64)>,
}

/// What to scan.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The stream.
    pub stream: StreamId,
    /// `time` from (inclusive) to (exclusive), nanoseconds since 1970 UTC.
    pub time: Range<i64>,
    /// Rows from (inclusive) to (exclusive).
    pub rows: Range<u64>,
    /// Channels wanted; the batches' columns come in this order.
    pub columns: Vec<ChannelIndex>,
    /// Newest batches first (rows ascend within each batch all the same).
    pub newest_first: bool,
}

impl Scan {
    /// All rows and times of a stream.
    pub fn all(stream: StreamId, columns: Vec<ChannelIndex>) -> Self {
        Scan { stream, time: i64::MIN..i64::MAX, rows: 0..u64::MAX, columns, newest_first: false }
    }
}

/// Why a scan ended early.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// What it was to read was expired under it.
    #[error("data expired during the scan")]
    Expired,
    /// The view pinned open memory for longer than `max_view_s`.
    #[error("the query held its view for too long")]
    ViewTooOld,
    /// A block whose checksum does not fit.
    #[error("{file}, offset {offset}: {reason}")]
    Damaged {
        /// Segment file.
        file: String,
        /// Byte offset.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// The disk refused.
    #[error("{file}: {source}")]
    Io {
        /// Segment file.
        file: String,
        /// The refusal.
        source: std::io::Error,
    },
}

/// One cell of a state: the newest value at or before an instant.
#[derive(Clone, Debug, PartialEq)]
pub struct StateCell {
    /// The value, owned; none where the newest cell is `Unknown`.
    pub value: Option<OwnedValue>,
    /// `time` of its frame.
    pub time: i64,
    /// `receive_time` of its frame.
    pub receive_time: i64,
    /// `source_time` of its frame.
    pub source_time: Option<i64>,
    /// Row of its frame.
    pub row: u64,
}

/// A value that owns its text.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedValue {
    /// Everything but text.
    Plain(Value<'static>),
    /// Text.
    String(String),
}

/// The embedded store. Clones share it.
#[derive(Clone)]
pub struct Store {
    _private: (),
}

impl Store {
    /// Opens the store of a folder, or makes one. `now` is nanoseconds since 1970 UTC.
    pub fn open(_dir: &Path, _options: StoreOptions, _now: i64) -> Result<Store, OpenError> {
        unimplemented!("lands with the engine")
    }
    /// What opening found.
    pub fn recovery(&self) -> RecoveryReport {
        unimplemented!("lands with the engine")
    }
    /// Random id made with the store.
    pub fn origin(&self) -> u128 {
        unimplemented!("lands with the engine")
    }
    /// Number of this opening.
    pub fn epoch(&self) -> u32 {
        unimplemented!("lands with the engine")
    }
    /// The streams and channels now.
    pub fn catalog(&self) -> Arc<Catalog> {
        unimplemented!("lands with the engine")
    }
    /// Finds a stream, or makes it, or grows and widens its layout. Returns it, and for each channel of the
    /// spec the index to push its values under (a second column where types conflict). `strongback.` tables
    /// are the store's own.
    pub fn resolve(&self, _spec: &StreamSpec, _now: i64) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        unimplemented!("lands with the engine")
    }
    /// Appends frames: visible to views at once, durable with the next commit. Values are converted exactly
    /// to their channel's type. Never blocks on the disk.
    pub fn append(&self, _batch: &FrameBatch, _now: i64) -> Appended {
        unimplemented!("lands with the engine")
    }
    /// Counts a frame of a stream that was rejected before it could be appended.
    pub fn count_rejected(&self, _stream: StreamId, _frames: u64) {
        unimplemented!("lands with the engine")
    }
    /// Makes everything appended so far durable. Call it from one thread every `commit_interval_ms` and when
    /// someone waits.
    pub fn commit(&self, _now: i64) -> Result<CommitNumber, Refusal> {
        unimplemented!("lands with the engine")
    }
    /// Newest durable commit.
    pub fn committed(&self) -> CommitNumber {
        unimplemented!("lands with the engine")
    }
    /// Waits on a condition variable until a commit is durable, the store refuses, or the time is over
    /// (false). For threads; async callers use their own watch around `commit`.
    pub fn wait_committed(&self, _commit: CommitNumber, _timeout: Duration) -> Result<bool, Refusal> {
        unimplemented!("lands with the engine")
    }
    /// Next row of a stream that is not yet durable: rows below are final.
    pub fn committed_row(&self, _stream: StreamId) -> u64 {
        unimplemented!("lands with the engine")
    }
    /// Seals, checkpoints and expires in slices of about 1 ms; returns whether more is waiting. Call it from
    /// a second thread.
    pub fn maintain(&self, _now: i64) -> Result<bool, Refusal> {
        unimplemented!("lands with the engine")
    }
    /// Why it takes nothing now, if so.
    pub fn refusal(&self) -> Option<Refusal> {
        unimplemented!("lands with the engine")
    }
    /// Commits, seals, writes a clean checkpoint. Further appends are refused.
    pub fn close(&self, _now: i64) -> Result<(), Refusal> {
        unimplemented!("lands with the engine")
    }
    /// An immutable snapshot to read from.
    pub fn view(&self) -> View {
        unimplemented!("lands with the engine")
    }
    /// Counts of a stream.
    pub fn counts(&self, _stream: StreamId) -> Counts {
        unimplemented!("lands with the engine")
    }
    /// Sizes and counters.
    pub fn stats(&self) -> StoreStats {
        unimplemented!("lands with the engine")
    }
    /// Segments, oldest first.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        unimplemented!("lands with the engine")
    }
}

/// An immutable snapshot of the store.
#[derive(Clone)]
pub struct View {
    _private: (),
}

impl View {
    /// The catalog of this moment.
    pub fn catalog(&self) -> &Arc<Catalog> {
        unimplemented!("lands with the engine")
    }
    /// Next row of a stream in this view.
    pub fn next_row(&self, _stream: StreamId) -> u64 {
        unimplemented!("lands with the engine")
    }
    /// Smallest and largest `time` of a stream in this view, from block headers and open blocks.
    pub fn time_range(&self, _stream: StreamId) -> Option<(i64, i64)> {
        unimplemented!("lands with the engine")
    }
    /// Whether frames of the stream in this view ascend in `time`.
    pub fn time_sorted(&self, _stream: StreamId) -> bool {
        unimplemented!("lands with the engine")
    }
    /// Batches of a stream in row order (or newest first), filtered exactly by time and rows.
    pub fn scan(&self, _scan: Scan) -> Scanner {
        unimplemented!("lands with the engine")
    }
    /// The newest cell with a value (or `Unknown`) at or before `time` for each channel asked for; for equal
    /// times the higher row. Bounded work: last-value tables, then blocks backwards.
    pub fn state_at(
        &self,
        _stream: StreamId,
        _time: i64,
        _columns: &[ChannelIndex],
    ) -> Result<Vec<Option<StateCell>>, ScanError> {
        unimplemented!("lands with the engine")
    }
}

/// Iterator of a scan.
pub struct Scanner {
    _private: (),
}

impl Iterator for Scanner {
    type Item = Result<Batch, ScanError>;
    fn next(&mut self) -> Option<Self::Item> {
        unimplemented!("lands with the engine")
    }
}
