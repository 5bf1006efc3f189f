//! What a scan asks for.

use std::ops::Range;

use crate::model::stream::{ChannelIndex, StreamId};

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
    /// Single elements of arrays: a column for each behind the others, for which whole arrays are not read.
    pub elements: Vec<ElementRange>,
    /// Newest batches first (rows ascend within each batch all the same).
    pub newest_first: bool,
    /// Most rows of a batch: for a reader that needs few. What a batch leaves of a block is read again for the next.
    pub batch_rows: usize,
}

impl Scan {
    /// All rows and times of a stream.
    pub fn all(stream: StreamId, columns: Vec<ChannelIndex>) -> Self {
        let (time, rows) = (i64::MIN..i64::MAX, 0..u64::MAX);
        Scan { stream, time, rows, columns, elements: Vec::new(), newest_first: false, batch_rows: usize::MAX }
    }
}

/// Elements of the arrays of a channel, each wanted as a column of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementRange {
    /// The channel.
    pub channel: ChannelIndex,
    /// Elements from (inclusive) to (exclusive), from 0. Where an array has fewer, the cell is absent.
    pub elements: Range<u32>,
}
