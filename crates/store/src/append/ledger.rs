//! The ledger: the rows of `strongback.gaps`, which list what is known to be missing.

use std::sync::Arc;

use crate::catalog::group::GAPS_TABLE;
use crate::model::row::RowShape;
use crate::model::stream::{ChannelIndex, ChannelSpec, Clock, Stream, StreamKey, StreamSpec};
use crate::model::value::{ChannelType, Value};

/// Cause of a row of `strongback.gaps`. Its column `cause` has the words in quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GapCause {
    /// Frames lost before the receiver, as the sequence shows: "sequence".
    Sequence,
    /// Missing frames of an earlier row with the same `id` that arrived late: "filled".
    Filled,
    /// Restart of the source's sequence; nothing is known to be lost: "restart".
    Restart,
    /// Datagrams of a socket without sequences that the kernel dropped: "kernel".
    Kernel,
    /// End of the commit log that a power cut tore: "torn".
    Torn,
    /// Frames that the store refused, or lost when its disk failed: "not recorded".
    NotRecorded,
    /// Durable rows that lay in a damaged place of the disk: "damaged".
    Damaged,
    /// Silence of a stream without sequences whose period is given: "silence".
    Silence,
    /// Frames that the store refused and whose sender was notified and may send them again, so nothing is known to be
    /// lost: "refused".
    Refused,
}

impl GapCause {
    /// Returns the word in the column `cause`.
    pub fn name(self) -> &'static str {
        match self {
            GapCause::Sequence => "sequence",
            GapCause::Filled => "filled",
            GapCause::Restart => "restart",
            GapCause::Kernel => "kernel",
            GapCause::Torn => "torn",
            GapCause::NotRecorded => "not recorded",
            GapCause::Damaged => "damaged",
            GapCause::Refused => "refused",
            GapCause::Silence => "silence",
        }
    }
}

/// A row of `strongback.gaps`. The losses of a stream get one row a second.
#[derive(Clone, Debug, PartialEq)]
pub struct Gap {
    /// Id of the gap; a `filled` row has the id of the gap it fills.
    pub id: u64,
    /// Number of the stream, or `None` if the gap belongs to no stream.
    pub stream: Option<u32>,
    /// Reason for the row.
    pub cause: GapCause,
    /// Name of the source.
    pub source: String,
    /// Name of the stream, `table{tag=value}`.
    pub name: String,
    /// Session of the sequences.
    pub session: Option<u32>,
    /// First and last missing sequence.
    pub sequence: Option<(i64, i64)>,
    /// First and last row lost, where frames were stored before.
    pub rows: Option<(u64, u64)>,
    /// `time` of the frame before and of the one after, nanoseconds since 1970 UTC.
    pub time: (i64, i64),
    /// Number of frames.
    pub count: u64,
}

/// Columns of `strongback.gaps` that recovery reads.
const ID: usize = 0;
const STREAM: usize = 1;
const CAUSE: usize = 2;
const SESSION: usize = 5;
const FROM: usize = 6;
const TO: usize = 7;

/// Part of a row of `strongback.gaps` that recovery needs.
pub(crate) struct NamedGap {
    pub(crate) id: u64,
    pub(crate) stream: u32,
    pub(crate) session: u32,
    pub(crate) sequence: (i64, i64),
}

/// Returns the missing sequences that a row of `strongback.gaps` in the log names, or `None` if it names none.
pub(crate) fn named_gap(shape: &RowShape, words: &[u64], text: &[u8]) -> Option<NamedGap> {
    let get = |column| shape.value(words, text, column);
    let loss = matches!(get(CAUSE)?, Value::String(cause)
        if cause == GapCause::Sequence.name() || cause == GapCause::NotRecorded.name());
    match (loss, get(ID)?, get(STREAM)?, get(SESSION)?, get(FROM)?, get(TO)?) {
        (true, Value::U64(id), Value::U32(stream), Value::U32(session), Value::I64(from), Value::I64(to)) => {
            Some(NamedGap { id, stream, session, sequence: (from, to) })
        }
        _ => None,
    }
}

/// Columns of `strongback.gaps`, in order.
const COLUMNS: [(&str, ChannelType, &str, &str); 13] = [
    ("id", ChannelType::U64, "", "names the gap; a filled row has the id of the gap it fills"),
    ("stream", ChannelType::U32, "", "number of the stream; null where there is none"),
    (
        "cause",
        ChannelType::String,
        "",
        "sequence, filled, restart, kernel, torn, not recorded, damaged, refused, silence",
    ),
    ("source", ChannelType::String, "", "name of the source"),
    ("name", ChannelType::String, "", "name of the stream"),
    ("gap_session", ChannelType::U32, "", "session of the sequences"),
    ("from_sequence", ChannelType::I64, "", "first missing sequence"),
    ("to_sequence", ChannelType::I64, "", "last missing sequence"),
    ("from_time", ChannelType::I64, "ns", "time of the frame before"),
    ("to_time", ChannelType::I64, "ns", "time of the frame after"),
    ("count", ChannelType::U64, "", "frames"),
    ("from_row", ChannelType::U64, "", "first row lost, of frames that were stored"),
    ("to_row", ChannelType::U64, "", "last row lost, of frames that were stored"),
];

/// Returns the spec of `strongback.gaps`.
pub(crate) fn gaps_spec() -> StreamSpec {
    StreamSpec {
        key: StreamKey::new(GAPS_TABLE, []),
        source: "strongback".into(),
        clock: Clock::Receive,
        expected_period_ns: None,
        sequence_modulus: None,
        channels: COLUMNS
            .iter()
            .map(|&(name, channel_type, unit, description)| ChannelSpec {
                name: name.into(),
                channel_type,
                unit: unit.into(),
                description: description.into(),
                reduction: crate::Reduction::None,
            })
            .collect(),
    }
}

impl Gap {
    /// Adds its row to a batch, with at most `text_max` bytes of each of its names.
    pub(crate) fn push(&self, stream: &Arc<Stream>, now: i64, text_max: usize, batch: &mut crate::FrameBatch) {
        batch.begin(crate::FrameHead { stream: stream.id, receive_time: now, source_time: None, sequence: None });
        let mut put = |i: u16, value: Value<'_>| batch.push(ChannelIndex(i), value);
        put(0, Value::U64(self.id));
        if let Some(stream) = self.stream {
            put(1, Value::U32(stream));
        }
        put(2, Value::String(self.cause.name()));
        put(3, Value::String(beginning(&self.source, text_max)));
        put(4, Value::String(beginning(&self.name, text_max)));
        if let Some(session) = self.session {
            put(5, Value::U32(session));
        }
        if let Some((from, to)) = self.sequence {
            put(6, Value::I64(from));
            put(7, Value::I64(to));
        }
        put(8, Value::I64(self.time.0));
        put(9, Value::I64(self.time.1));
        put(10, Value::U64(self.count));
        if let Some((from, to)) = self.rows {
            put(11, Value::U64(from));
            put(12, Value::U64(to));
        }
        batch.end();
    }
}

/// Returns the beginning of a text: whole characters, at most `bytes` bytes.
fn beginning(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
