//! The request of a scan.

use std::ops::Range;

use crate::model::stream::{ChannelIndex, StreamId};
use crate::read::condition::Condition;

/// Request of a scan.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Stream to scan.
    pub stream: StreamId,
    /// `time` from (inclusive) to (exclusive), nanoseconds since 1970 UTC.
    pub time: Range<i64>,
    /// Rows from (inclusive) to (exclusive).
    pub rows: Range<u64>,
    /// Requested channels; the batches' columns are in this order.
    pub columns: Vec<ChannelIndex>,
    /// Single elements of arrays: each becomes a column behind the others, without reading whole arrays.
    pub elements: Vec<ElementRange>,
    /// Conditions that rows are wanted for. Blocks without any such row, as far as their statistics tell, are passed over;
    /// of others all rows are returned.
    pub conditions: Vec<Condition>,
    /// Whether to return the newest batches first (rows still ascend within each batch).
    pub newest_first: bool,
    /// Max number of rows in a batch, for a reader that needs few. The rest of a block is read again for the next
    /// batch.
    pub batch_rows: usize,
}

impl Scan {
    /// Requests all rows and times of a stream.
    pub fn all(stream: StreamId, columns: Vec<ChannelIndex>) -> Self {
        let (time, rows) = (i64::MIN..i64::MAX, 0..u64::MAX);
        let (elements, conditions) = (Vec::new(), Vec::new());
        Scan { stream, time, rows, columns, elements, conditions, newest_first: false, batch_rows: usize::MAX }
    }
}

/// Elements of the arrays of a channel, each requested as a column of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementRange {
    /// Channel of arrays.
    pub channel: ChannelIndex,
    /// Elements from (inclusive) to (exclusive), from 0. If an array has fewer, the cell is absent.
    pub elements: Range<u32>,
}
