//! Frames of a playback, in the store's order of `time`, stream and row.
//!
//! ```text
//!  blocks and open rows ─> OrderedFrames (store): one order ─> [Replay: gaps] ─> Deck ─> Fanout
//! ```
//! A stream is read only as far as the playback has advanced: nothing is read ahead of one that is quiet for hours.

use std::sync::Arc;

use strongback_store::{
    Batch, ChannelIndex, FramePosition, NextFrame, OrderedFrames, OrderedScan, ScanError, StreamId, View,
};

use crate::live::PlayedFrame;
use crate::live::tail::Arrived;

/// Approximate memory of all slices in use: most of [`super::PLAYBACK_BYTES`].
const BYTES: usize = super::PLAYBACK_BYTES / 8 * 7;
/// Maximum number of rows of a slice.
const SLICE_ROWS: usize = 4096;

/// Reader of several streams in one order.
pub struct Replay {
    frames: OrderedFrames,
    /// Streams, ordered by id, with the channels to read.
    streams: Vec<(StreamId, Vec<ChannelIndex>)>,
    /// Ends of the gaps still to be marked, by stream, nanoseconds since 1970 UTC, the last first.
    gaps: Vec<Vec<i64>>,
    after: FramePosition,
    /// `time` from which on frames are not wanted, or not complete.
    end: i64,
}

impl Replay {
    /// Creates a reader of streams, ordered by id, and their channels: frames after a position and before `end`
    /// (`time`, nanoseconds since 1970 UTC).
    pub fn new(view: &View, streams: Vec<(StreamId, Vec<ChannelIndex>)>, after: FramePosition, end: i64) -> Replay {
        let scan = OrderedScan {
            time: i64::MIN..end,
            after: Some(after),
            reads_ahead: false,
            memory_bytes: BYTES,
            slice_rows: SLICE_ROWS,
            ..OrderedScan::all(streams)
        };
        let frames = OrderedFrames::new(view, &scan);
        Replay { frames, gaps: vec![Vec::new(); scan.streams.len()], streams: scan.streams, after, end }
    }

    /// Adds gaps to mark: the stream, and the `time` before which frames are missing.
    pub fn note_gaps(&mut self, mut gaps: Vec<(StreamId, i64)>) {
        gaps.sort_unstable_by(|a, b| b.cmp(a));
        for (stream, to) in gaps {
            let Ok(at) = self.streams.binary_search_by_key(&stream, |(stream, _)| *stream) else { continue };
            // Gaps before the first frame to read were marked already.
            let is_within = stream == self.after.stream && self.after.row < u64::MAX;
            let read_to = self.after.last_time_of(stream);
            if to > read_to || (is_within && to == read_to) {
                self.gaps[at].push(to);
            }
        }
    }

    /// Returns the `time` from which on no frame is returned.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// Finds the next frame up to and including a `time`.
    ///
    /// # Errors
    /// Returns an error if the view is too old; another replay must continue then.
    pub fn peek(&mut self, due: i64) -> Result<NextFrame, ScanError> {
        self.frames.peek(due)
    }

    /// Passes the frame that [`Replay::peek`] found to `give`, and advances.
    pub fn take(&mut self, give: impl FnOnce(&Frame<'_>)) {
        let Some(found) = self.frames.frame() else { return };
        let (stream, channels) = &self.streams[found.stream];
        let gaps = &mut self.gaps[found.stream];
        let left = gaps.partition_point(|to| *to > found.position.time);
        let gap = left < gaps.len();
        gaps.truncate(left);
        let receive_time = found.batch.receive_time[found.row];
        let arrived = Arrived { time: found.position.time, receive_time, row: Some(found.position.row), gap };
        give(&Frame { stream: *stream, arrived, batch: found.batch, at: found.row, channels });
        self.frames.advance();
    }

    /// Takes the read errors since the last call; frames affected by them are left out.
    pub fn take_troubles(&mut self) -> Vec<(StreamId, ScanError)> {
        self.frames.take_troubles()
    }
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("streams", &self.streams.len()).field("end", &self.end).finish_non_exhaustive()
    }
}

/// Stored frame, in playing order.
#[derive(Debug)]
pub struct Frame<'a> {
    /// Stream of the frame.
    pub stream: StreamId,
    /// Times and row of the frame.
    pub arrived: Arrived,
    batch: &'a Arc<Batch>,
    at: usize,
    channels: &'a [ChannelIndex],
}

impl Frame<'_> {
    /// Returns its position.
    pub fn position(&self) -> FramePosition {
        FramePosition { time: self.arrived.time, stream: self.stream, row: self.arrived.row.unwrap_or_default() }
    }

    /// Returns the frame in the form that the fan-out takes.
    pub fn played(&self) -> PlayedFrame<'_> {
        PlayedFrame { arrived: self.arrived, batch: (self.batch, self.at), channels: self.channels }
    }
}

#[cfg(test)]
pub(super) mod tests;
