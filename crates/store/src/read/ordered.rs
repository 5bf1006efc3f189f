//! Frames of several streams in one order: `time`, stream, row.
//!
//! Exports, printed frames and playbacks all read through here, so that one interval has one order everywhere. Late
//! frames appear in their place, whatever row they were stored in.
//!
//! ```text
//!  blocks and open rows ─> OrderedStream: one stream, (time, row) ─> [OrderedFrames: the stream that is next]
//! ```
//! A stream is read only when no frame of another stream can come before its next one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use crate::model::batch::Batch;
use crate::model::frame_position::FramePosition;
use crate::model::refusal::ScanError;
use crate::model::stream::{ChannelIndex, StreamId};
use crate::read::ordered_stream::{CELL_BYTES, OrderedStream, ROW_BYTES, SLICE_ROWS_MIN};
use crate::read::view::View;

/// Number of batches or slices that one [`OrderedFrames::peek`] reads before it returns to its caller.
const READS_PER_PEEK: usize = 16;

/// Request for frames in order.
#[derive(Clone, Debug)]
pub struct OrderedScan {
    /// Streams, and the channels of each that are read.
    pub streams: Vec<(StreamId, Vec<ChannelIndex>)>,
    /// `time` from (inclusive) to (exclusive), nanoseconds since 1970 UTC.
    pub time: Range<i64>,
    /// Lower bound: only frames after this position, in the direction of reading.
    pub after: Option<FramePosition>,
    /// Whether to reverse the order.
    pub newest_first: bool,
    /// Whether to read a stream ahead by a block if its rows ascend in `time`. Otherwise it is read in slices of
    /// time, no further than requested.
    pub reads_ahead: bool,
    /// Max number of frames that will be taken; sizes the first reads.
    pub limit: usize,
    /// Memory for the slices of all streams, in bytes, in addition to one batch each.
    pub memory_bytes: usize,
    /// Max number of rows of a slice, if its memory allows.
    pub slice_rows: usize,
}

impl OrderedScan {
    /// Requests all frames of some streams, oldest first, in at most 128 MiB.
    pub fn all(streams: Vec<(StreamId, Vec<ChannelIndex>)>) -> OrderedScan {
        OrderedScan {
            streams,
            time: i64::MIN..i64::MAX,
            after: None,
            newest_first: false,
            reads_ahead: true,
            limit: usize::MAX,
            memory_bytes: 128 << 20,
            slice_rows: 1 << 16,
        }
    }

    /// Returns the memory, in bytes, that this many channels of this many streams may take regardless of
    /// `memory_bytes`.
    pub fn memory_min(channels: usize, streams: usize) -> usize {
        SLICE_ROWS_MIN * (channels * CELL_BYTES + streams * ROW_BYTES)
    }
}

/// Result of [`OrderedFrames::peek`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextFrame {
    /// Position of the next frame.
    At(FramePosition),
    /// No further frame is due.
    None,
    /// Not known yet: peek again.
    Unsure,
}

/// Frame in order.
#[derive(Clone, Copy, Debug)]
pub struct OrderedFrame<'a> {
    /// Index of its stream in [`OrderedScan::streams`].
    pub stream: usize,
    /// Position of the frame.
    pub position: FramePosition,
    /// Batch that holds it; columns in the order of the requested channels.
    pub batch: &'a Arc<Batch>,
    /// Row of the frame in the batch.
    pub row: usize,
}

/// Sort key of positions in the direction of reading.
type OrderKey = (i64, u32, u64);

/// Reader of frames of several streams in order.
pub struct OrderedFrames {
    view: View,
    streams: Vec<OrderedStream>,
    /// For each stream that is not at its end: the key of its next frame or, where that is not known, its lower
    /// bound.
    heads: BinaryHeap<Reverse<(OrderKey, usize)>>,
    newest_first: bool,
    troubles: Vec<(StreamId, ScanError)>,
}

impl OrderedFrames {
    /// Creates a reader; nothing is read before the first [`OrderedFrames::peek`].
    pub fn new(view: &View, scan: &OrderedScan) -> OrderedFrames {
        let streams = scan.streams.iter().map(|(stream, columns)| OrderedStream::new(view, scan, *stream, columns));
        let mut frames = OrderedFrames {
            view: view.clone(),
            streams: streams.collect(),
            heads: BinaryHeap::new(),
            newest_first: scan.newest_first,
            troubles: Vec::new(),
        };
        (0..frames.streams.len()).for_each(|at| frames.push(at));
        frames
    }

    fn key(&self, position: FramePosition) -> OrderKey {
        let FramePosition { time, stream, row } = position;
        if self.newest_first { (!time, !stream.0, !row) } else { (time, stream.0, row) }
    }

    fn push(&mut self, at: usize) {
        if let Some(position) = self.streams[at].head().or_else(|| self.streams[at].bound()) {
            self.heads.push(Reverse((self.key(position), at)));
        }
    }

    /// Looks for the next frame up to and including a `time` (down to it, newest first).
    ///
    /// # Errors
    /// [`ScanError::ViewTooOld`], or a request for elements that cannot be read. Other errors concern one block each:
    /// see [`OrderedFrames::take_troubles`].
    pub fn peek(&mut self, due: i64) -> Result<NextFrame, ScanError> {
        let due = if self.newest_first { !due } else { due };
        for _ in 0..READS_PER_PEEK {
            let Some(&Reverse((key, at))) = self.heads.peek().filter(|head| head.0.0.0 <= due) else {
                return Ok(NextFrame::None);
            };
            let stream = &mut self.streams[at];
            if let Some(position) = stream.head() {
                debug_assert_eq!(key, self.key(position));
                return Ok(NextFrame::At(position));
            }
            stream.read(&self.view, &mut self.troubles)?;
            self.heads.pop();
            self.push(at);
        }
        Ok(NextFrame::Unsure)
    }

    /// Returns the frame found by [`OrderedFrames::peek`].
    pub fn frame(&self) -> Option<OrderedFrame<'_>> {
        let Reverse((_, at)) = *self.heads.peek()?;
        let (position, batch, row) = self.streams[at].frame()?;
        Some(OrderedFrame { stream: at, position, batch, row })
    }

    /// Returns the number of frames, up to `most`, that come next, up to and including a `time`, in consecutive ascending
    /// rows of one batch: at least the one that [`OrderedFrames::peek`] found.
    pub fn run(&self, until: i64, most: usize) -> usize {
        let mut heads = self.heads.iter();
        let Some(Reverse((_, at))) = heads.next() else { return 0 };
        // Behind the first of the heap, one of these is the next.
        let other = heads.take(2).map(|Reverse(head)| head.0).min();
        let is_next = |position| other.is_none_or(|other| self.key(position) < other) && position.time <= until;
        match self.newest_first {
            true => most.min(1),
            false => self.streams[*at].run(is_next, most),
        }
    }

    /// Skips the frame found by [`OrderedFrames::peek`].
    pub fn advance(&mut self) {
        self.advance_by(1);
    }

    /// Skips as many frames, of a run found by [`OrderedFrames::run`].
    pub fn advance_by(&mut self, frames: usize) {
        let Some(Reverse((_, at))) = self.heads.pop() else { return };
        self.streams[at].advance(frames);
        self.push(at);
    }

    /// Takes the read errors since the last call: blocks that are damaged or have expired. Their frames are left out.
    pub fn take_troubles(&mut self) -> Vec<(StreamId, ScanError)> {
        std::mem::take(&mut self.troubles)
    }

    /// Returns the number of frames held in memory.
    pub fn held_frames(&self) -> usize {
        self.streams.iter().map(OrderedStream::held_frames).sum()
    }
}

/// Consecutive rows of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedRun {
    /// Index of the batch.
    pub batch: usize,
    /// Rows of the batch; with newest first, the last one is first in order.
    pub rows: Range<usize>,
}

/// Batches of a stream, and the order of their rows.
#[derive(Debug, Default)]
pub struct OrderedBatches {
    /// The batches.
    pub batches: Vec<Arc<Batch>>,
    /// Their rows, run by run.
    pub runs: Vec<OrderedRun>,
}

/// Reader of one stream in order, run by run, for callers that take whole columns. Reading may continue after an
/// error: it concerns one block, or every further call returns it too.
pub struct OrderedRuns {
    view: View,
    stream: OrderedStream,
}

impl OrderedRuns {
    /// Creates a reader of one stream; the streams of the scan are ignored.
    pub fn new(view: &View, scan: &OrderedScan, stream: StreamId, columns: &[ChannelIndex]) -> OrderedRuns {
        OrderedRuns { view: view.clone(), stream: OrderedStream::new(view, scan, stream, columns) }
    }

    fn read(&mut self) -> Result<OrderedBatches, ScanError> {
        let mut troubles = Vec::new();
        self.stream.read(&self.view, &mut troubles)?;
        match troubles.pop() {
            Some((_, error)) => Err(error),
            None => Ok(self.stream.take_runs()),
        }
    }
}

impl Iterator for OrderedRuns {
    type Item = Result<OrderedBatches, ScanError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.stream.bound().is_some() {
            match self.read() {
                Ok(found) if found.runs.is_empty() => {}
                found => return Some(found),
            }
        }
        None
    }
}
