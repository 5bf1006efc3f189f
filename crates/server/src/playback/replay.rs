//! The frames of a playback, in the store's order of `time`, stream and row.
//!
//! ```text
//!  blocks and open rows ─> OrderedFrames (store): one order ─> [Replay: gaps] ─> Deck ─> Fanout
//! ```
//! A stream is read only as far as the playback has come: of one that is quiet for hours nothing is read in advance.

use std::sync::Arc;

use strongback_store::{
    Batch, ChannelIndex, FramePosition, NextFrame, OrderedFrames, OrderedScan, ScanError, StreamId, View,
};

use crate::live::PlayedFrame;
use crate::live::tail::Arrived;

/// Memory of all slices that are held, about: most of [`super::PLAYBACK_BYTES`].
const BYTES: usize = super::PLAYBACK_BYTES / 8 * 7;
/// Maximum number of rows of a slice.
const SLICE_ROWS: usize = 4096;

/// Reads streams in their order.
pub struct Replay {
    frames: OrderedFrames,
    /// Streams, in the order of their numbers, and the channels that are read.
    streams: Vec<(StreamId, Vec<ChannelIndex>)>,
    /// For each stream the ends of the gaps that are still to be marked, nanoseconds since 1970 UTC, the last first.
    gaps: Vec<Vec<i64>>,
    after: FramePosition,
    /// Frames of this `time` or later are not wanted, or not complete.
    end: i64,
}

impl Replay {
    /// Reads streams, in the order of their numbers, and their channels: frames that come after a position and before
    /// `end` (`time`, nanoseconds since 1970 UTC).
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

    /// Notes frames known missing: streams, and the `time` before which they are.
    pub fn note_gaps(&mut self, mut gaps: Vec<(StreamId, i64)>) {
        gaps.sort_unstable_by(|a, b| b.cmp(a));
        for (stream, to) in gaps {
            let Ok(at) = self.streams.binary_search_by_key(&stream, |(stream, _)| *stream) else { continue };
            // Before the first frame to be read: marked already.
            let is_within = stream == self.after.stream && self.after.row < u64::MAX;
            let read_to = self.after.last_time_of(stream);
            if to > read_to || (is_within && to == read_to) {
                self.gaps[at].push(to);
            }
        }
    }

    /// No frame of this `time` or later is returned.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// Looks for the next frame up to and including a `time`.
    ///
    /// # Errors
    /// The view is too old: another replay must continue.
    pub fn peek(&mut self, due: i64) -> Result<NextFrame, ScanError> {
        self.frames.peek(due)
    }

    /// Hands out the frame that [`Replay::peek`] found.
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

    /// Takes what could not be read since the last call; those frames are left out.
    pub fn take_troubles(&mut self) -> Vec<(StreamId, ScanError)> {
        self.frames.take_troubles()
    }
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("streams", &self.streams.len()).field("end", &self.end).finish_non_exhaustive()
    }
}

/// A stored frame, in its turn.
#[derive(Debug)]
pub struct Frame<'a> {
    /// Its stream.
    pub stream: StreamId,
    /// Its times and row.
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

    /// Returns it as the fan-out takes it.
    pub fn played(&self) -> PlayedFrame<'_> {
        PlayedFrame { arrived: self.arrived, batch: (self.batch, self.at), channels: self.channels }
    }
}

#[cfg(test)]
pub(super) mod tests;
