//! Errors: refusals of a store, frame, stream or scan.

use crate::model::array::ArrayType;
use crate::model::limits::ARRAY_LENGTH_MAX;
use crate::model::stream::Stream;
use crate::model::trouble;
use crate::model::value::ChannelType;

/// Error when opening a store. Each message names the path and what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the store open.
    #[error("{path}: in use by another process")]
    InUse {
        /// The folder.
        path: String,
    },
    /// The store was written by a newer version.
    #[error("{path}: format {found} is newer than this program reads ({known})")]
    Newer {
        /// The folder.
        path: String,
        /// Version or feature found.
        found: String,
        /// Version or features known.
        known: String,
    },
    /// The store is a copy of another: two stores must not have the same origin.
    #[error(
        "{path}: a copy of the store with origin {origin:032x}; `strongback store adopt {path}` gives it its own origin"
    )]
    Copied {
        /// The folder.
        path: String,
        /// Origin of the store it was copied from.
        origin: u128,
    },
    /// The path is not a store, or the store is damaged beyond recovery.
    #[error("{path}: {reason}")]
    Damaged {
        /// The file.
        path: String,
        /// Description of the damage and its offset.
        reason: String,
    },
    /// The sizes or retention groups are invalid.
    #[error("{path}: {reason}")]
    Options {
        /// The folder.
        path: String,
        /// Description of what is wrong.
        reason: String,
    },
    /// The store being reopened is not there: it was removed, or another one is in its place.
    #[error("{path}: {reason}; no new store is created in its place")]
    Gone {
        /// The folder.
        path: String,
        /// Description of what is there instead.
        reason: String,
    },
    /// An I/O operation failed.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

impl OpenError {
    /// Returns whether opening may succeed later without repairing the store itself: once its folder is back, or once
    /// the system has descriptors or space.
    pub fn passes(&self) -> bool {
        match self {
            OpenError::Gone { .. } => true,
            OpenError::Io { source, .. } => trouble::passes(source),
            _ => false,
        }
    }
}

/// Returns a hint on how to repair a store that does not open.
pub(crate) fn repair_hint(path: &str) -> String {
    format!("`strongback store repair {path} --into NEW` makes a new store of what is left")
}

/// Reason for which a frame or a stream was refused. [`Reject::reason`] is the label in metrics.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Reject {
    /// The store already has `max_streams` streams.
    #[error(
        "stream {stream}: the store holds its most streams ({max_streams}); raise max_streams or use fewer tag values"
    )]
    TooManyStreams {
        /// Name of the new stream.
        stream: String,
        /// The limit.
        max_streams: u32,
    },
    /// The definition does not fit into segments, or into the checkpoints of a fixed-size store.
    #[error(
        "stream {stream}: its definition does not fit the {room_bytes} bytes that there are; use fewer or shorter names, \
         larger segments, or a store made for more streams and channels"
    )]
    CatalogFull {
        /// The stream.
        stream: String,
        /// Bytes available for one definition, or for all.
        room_bytes: u64,
    },
    /// The stream has more channels than a layout can hold.
    #[error("stream {stream}: more than {max_channels} channels")]
    TooManyChannels {
        /// The stream.
        stream: String,
        /// The limit.
        max_channels: usize,
    },
    /// The name is invalid: empty, too long, with control characters, or reserved for tables of the store
    /// (`strongback.`).
    #[error("name {name:?}: {why}")]
    BadName {
        /// The name.
        name: String,
        /// Description of what is wrong with it.
        why: &'static str,
    },
    /// The channel cannot have the requested reduction.
    #[error("stream {stream}, channel {channel}: {why}")]
    BadReduction {
        /// The stream.
        stream: String,
        /// The channel.
        channel: String,
        /// Description of what is wrong with it.
        why: String,
    },
    /// The frame is larger than 1 MiB, a quarter of the log or an eighth of a segment.
    #[error(
        "stream {stream}: frame of {size_bytes} bytes; at most 1 MiB, a quarter of the log and an eighth of a segment"
    )]
    TooLarge {
        /// The stream.
        stream: String,
        /// Size of the frame in bytes.
        size_bytes: usize,
    },
    /// The time is outside 1677 to 2262. The first and the last nanosecond of the range are refused too.
    #[error(
        "stream {stream}: time outside 1677 to 2262 (nanoseconds since 1970 that are above -2^63 and below 2^63 - 1)"
    )]
    BadTime {
        /// The stream.
        stream: String,
    },
    /// The value's type does not fit its channel: the caller did not resolve it.
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
    /// The length of the array does not fit its channel.
    #[error("stream {stream}, channel {channel}: an array of {found} elements does not fit {expected}")]
    BadLength {
        /// The stream.
        stream: String,
        /// The channel.
        channel: String,
        /// Number of elements of the array.
        found: usize,
        /// Array type that the channel takes.
        expected: Box<str>,
    },
    /// The fixed-length arrays make every frame of the stream too large to store.
    #[error(
        "stream {stream}: its arrays make every frame {size_bytes} bytes, and this store takes {max_bytes}: at most 1 MiB, \
         a quarter of the log and an eighth of a segment; use shorter arrays or a larger store"
    )]
    ArraysTooLarge {
        /// The stream.
        stream: String,
        /// Minimum size of a frame with all its arrays, in bytes.
        size_bytes: usize,
        /// Maximum size of a frame in bytes.
        max_bytes: usize,
    },
    /// The store currently accepts nothing: see [`Refusal`].
    #[error("not recorded: {0}")]
    Refused(Refusal),
}

impl Reject {
    /// Returns the label in metrics: `too_many_streams`, `bad_type`, ….
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

/// Cell whose value does not fit its channel.
pub(crate) struct Misfit {
    pub(crate) channel: usize,
    pub(crate) found: ChannelType,
    /// Number of elements, if the length of an array does not fit.
    pub(crate) elements: Option<usize>,
}

impl Misfit {
    /// Returns the reason for refusing the frame.
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

/// Reason for which the whole store accepts nothing. Live subscriptions continue.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// No space for segments or the log is available. The store resumes on its own once there is space.
    #[error("disk full")]
    DiskFull,
    /// The disk refuses all writes, for the reason given. The store resumes on its own once the disk accepts them.
    #[error("the disk cannot be written: {0}")]
    Unwritable(String),
    /// A write or sync failed. The owner must reopen the store through recovery.
    #[error("the disk failed: {0}")]
    Poisoned(String),
    /// The commit log is full of uncommitted frames. Commit first (back-pressure).
    #[error("commit log full")]
    LogFull,
    /// The store was closed.
    #[error("closed")]
    Closed,
}

/// Reason for which a scan ended early.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// Data to be read expired during the scan.
    #[error("data expired during the scan")]
    Expired,
    /// The view pinned memory of open blocks for longer than `max_view_s`.
    #[error("the query held its view for too long")]
    ViewTooOld,
    /// The requested array elements cannot be read.
    #[error("{why}")]
    Elements {
        /// Description of what is wrong with the request.
        why: String,
    },
    /// The segment that held the blob was deleted.
    #[error("the blob has expired: segment {segment} was deleted")]
    BlobExpired {
        /// Number of the segment.
        segment: u64,
    },
    /// The checksum of a block or a blob does not match.
    #[error("{file}, offset {offset}: {reason}")]
    Damaged {
        /// Name of the segment file.
        file: String,
        /// Offset in bytes.
        offset: u64,
        /// Description of the damage.
        reason: String,
    },
    /// An I/O operation failed.
    #[error("{file}: {source}")]
    Io {
        /// Name of the segment file.
        file: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
}
