//! Why the store, a frame, a stream or a scan is refused.

use crate::model::array::ArrayType;
use crate::model::limits::ARRAY_LENGTH_MAX;
use crate::model::stream::Stream;
use crate::model::trouble;
use crate::model::value::ChannelType;

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
    /// A copy of another store: two stores must not call themselves by one origin.
    #[error(
        "{path}: a copy of the store with origin {origin:032x}; `strongback store adopt {path}` gives it its own origin"
    )]
    Copied {
        /// The folder.
        path: String,
        /// The origin it was copied from.
        origin: u128,
    },
    /// Not a store, or damaged beyond recovery.
    #[error("{path}: {reason}")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong, at which offset.
        reason: String,
    },
    /// Sizes or retention groups that cannot be meant.
    #[error("{path}: {reason}")]
    Options {
        /// The folder.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// The store that is opened again is not there: it was removed, or another is in its place.
    #[error("{path}: {reason}; no new store is created in its place")]
    Gone {
        /// The folder.
        path: String,
        /// What is there instead.
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

impl OpenError {
    /// Returns whether the same opening may succeed later, with nothing mended but what surrounds the store: its folder
    /// is back, or the system has descriptors or space.
    pub fn passes(&self) -> bool {
        match self {
            OpenError::Gone { .. } => true,
            OpenError::Io { source, .. } => trouble::passes(source),
            _ => false,
        }
    }
}

/// What to do about a store that does not open.
pub(crate) fn repair_hint(path: &str) -> String {
    format!("`strongback store repair {path} --into NEW` makes a new store of what is left")
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
    /// A definition that segments, or the checkpoints of a store of a fixed size, have no room for.
    #[error(
        "stream {stream}: its definition does not fit the {room_bytes} bytes that there are; use fewer or shorter names, \
         larger segments, or a store made for more streams and channels"
    )]
    CatalogFull {
        /// The stream.
        stream: String,
        /// Bytes for one definition, or for all.
        room_bytes: u64,
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
    /// A reduction that its channel cannot have.
    #[error("stream {stream}, channel {channel}: {why}")]
    BadReduction {
        /// The stream.
        stream: String,
        /// The channel.
        channel: String,
        /// What is wrong with it.
        why: String,
    },
    /// A frame over 1 MiB, a quarter of the log or an eighth of a segment.
    #[error(
        "stream {stream}: frame of {size_bytes} bytes; at most 1 MiB, a quarter of the log and an eighth of a segment"
    )]
    TooLarge {
        /// The stream.
        stream: String,
        /// Its size.
        size_bytes: usize,
    },
    /// A time outside 1677 to 2262: the first and the last nanosecond of the range are not taken either.
    #[error(
        "stream {stream}: time outside 1677 to 2262 (nanoseconds since 1970 that are above -2^63 and below 2^63 - 1)"
    )]
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
        found: Box<str>,
        /// Type of the channel.
        expected: Box<str>,
    },
    /// An array of a length that its channel does not take.
    #[error("stream {stream}, channel {channel}: an array of {found} elements does not fit {expected}")]
    BadLength {
        /// The stream.
        stream: String,
        /// The channel.
        channel: String,
        /// Elements of the array.
        found: usize,
        /// What the channel takes.
        expected: Box<str>,
    },
    /// Arrays of fixed length with which no frame of the stream can ever be stored.
    #[error(
        "stream {stream}: its arrays make every frame {size_bytes} bytes, and this store takes {max_bytes}: at most 1 MiB, \
         a quarter of the log and an eighth of a segment; use shorter arrays or a larger store"
    )]
    ArraysTooLarge {
        /// The stream.
        stream: String,
        /// Least bytes of a frame with all its arrays.
        size_bytes: usize,
        /// Most bytes of a frame.
        max_bytes: usize,
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
            Reject::CatalogFull { .. } => "catalog_full",
            Reject::TooManyChannels { .. } => "too_many_channels",
            Reject::BadName { .. } => "bad_name",
            Reject::BadReduction { .. } => "bad_reduction",
            Reject::TooLarge { .. } => "too_large",
            Reject::BadTime { .. } => "bad_time",
            Reject::BadType { .. } => "bad_type",
            Reject::BadLength { .. } => "bad_length",
            Reject::ArraysTooLarge { .. } => "arrays_too_large",
            Reject::Refused(Refusal::DiskFull) => "disk_full",
            Reject::Refused(_) => "not_recorded",
        }
    }
}

/// A cell whose value its channel cannot hold.
pub(crate) struct Misfit {
    pub(crate) channel: usize,
    pub(crate) found: ChannelType,
    /// Elements of an array whose length does not fit.
    pub(crate) elements: Option<usize>,
}

impl Misfit {
    /// Why the frame it is in is refused.
    #[cold]
    pub(crate) fn reject(self, definition: &Stream) -> Reject {
        let stream = definition.key.to_string();
        let found: Box<str> = self.found.name().into();
        let Some(known) = definition.layout.channels.get(self.channel) else {
            return Reject::BadType {
                stream,
                channel: format!("#{}", self.channel),
                found,
                expected: "no such channel".into(),
            };
        };
        let (channel, expected) = (known.name.clone(), known.channel_type.name());
        let fixed = known.channel_type.array().and_then(ArrayType::length);
        match (self.elements, fixed) {
            (Some(found), Some(_)) => Reject::BadLength { stream, channel, found, expected: expected.into() },
            (Some(found), None) => {
                let expected = format!("{expected} of at most {ARRAY_LENGTH_MAX}").into();
                Reject::BadLength { stream, channel, found, expected }
            }
            (None, _) => Reject::BadType { stream, channel, found, expected: expected.into() },
        }
    }
}

/// Why the store as a whole takes nothing. Live goes on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// No segment or log space can be had; it resumes alone when there is space.
    #[error("disk full")]
    DiskFull,
    /// The disk takes nothing that is written, and says why; it resumes alone when the disk does.
    #[error("the disk cannot be written: {0}")]
    Unwritable(String),
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

/// Why a scan ended early.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// What it was to read was expired under it.
    #[error("data expired during the scan")]
    Expired,
    /// The view pinned open memory for longer than `max_view_s`.
    #[error("the query held its view for too long")]
    ViewTooOld,
    /// Elements of arrays that cannot be read so.
    #[error("{why}")]
    Elements {
        /// What is wrong with what was asked for.
        why: String,
    },
    /// The segment of a blob is no more.
    #[error("the blob has expired: segment {segment} was deleted")]
    BlobExpired {
        /// Number of the segment.
        segment: u64,
    },
    /// A block, or a blob, whose checksum does not fit.
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
