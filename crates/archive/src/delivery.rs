//! Frames on their way to a target.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use strongback_store::{Batch, Catalog, ChannelIndex, Column, OptionalTimes, Stream, StreamId};

/// Consecutive frames of one stream, as columns.
#[derive(Clone, Debug)]
pub struct StreamFrames {
    /// Stream of the frames, with a layout that has all their channels.
    pub stream: Arc<Stream>,
    /// Channels, in the order of the batch's columns.
    pub channels: Vec<ChannelIndex>,
    /// Frames, at least one. Rows are consecutive.
    pub batch: Batch,
    /// For each frame the number of earlier ones of its stream with the same `time`; empty unless the target asks for it.
    pub repeats: Vec<u32>,
}

impl StreamFrames {
    /// Returns the id of the stream.
    pub fn id(&self) -> StreamId {
        self.stream.id
    }

    /// Returns what tells the stream apart from those of other stores, by the origin of its own.
    pub(crate) fn id_there(&self, origin: u128) -> String {
        format!("{:08x}-{}", origin as u32, self.id().0)
    }

    /// Returns the rows from the first to the one after the last.
    pub fn rows(&self) -> Range<u64> {
        match (self.batch.rows.first(), self.batch.rows.last()) {
            (Some(first), Some(last)) => *first..last + 1,
            _ => 0..0,
        }
    }

    /// Returns the approximate size in memory, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.batch.len() * frame_bytes(self.channels.len()) + self.batch.varying_bytes()
    }

    fn split_at(self, frames: usize) -> (StreamFrames, StreamFrames) {
        let (all, batch) = (self.batch.len(), &self.batch);
        let part = |range: Range<usize>| {
            let (stream, channels) = (self.stream.clone(), self.channels.clone());
            let repeats = self.repeats.get(range.clone()).map(<[u32]>::to_vec).unwrap_or_default();
            StreamFrames { stream, channels, batch: slice(batch, range), repeats }
        };
        (part(0..frames), part(frames..all))
    }
}

/// Returns the approximate size of a frame in memory, in bytes, without texts and arrays.
pub(crate) fn frame_bytes(channels: usize) -> usize {
    48 + 9 * channels
}

/// Returns some frames of a batch.
fn slice(batch: &Batch, range: Range<usize>) -> Batch {
    let optional = |times: &OptionalTimes| OptionalTimes {
        values: times.values[range.clone()].to_vec(),
        valid: times.valid.as_ref().map(|valid| valid[range.clone()].to_vec()),
    };
    let column = |column: &Column| Column {
        values: column.values.pick(range.clone()),
        states: column.states.as_ref().map(|states| states[range.clone()].to_vec()),
    };
    Batch {
        stream: batch.stream,
        rows: batch.rows[range.clone()].to_vec(),
        receive_time: batch.receive_time[range.clone()].to_vec(),
        source_time: batch.source_time.as_ref().map(optional),
        sequence: batch.sequence.as_ref().map(optional),
        session: batch.session.as_ref().map(|session| session[range.clone()].to_vec()),
        source_clock: batch.source_clock,
        columns: batch.columns.iter().map(column).collect(),
    }
}

/// Frames that a target takes at once. Those of one stream are in the order of their rows.
#[derive(Clone, Debug, Default)]
pub struct Delivery {
    /// Frames by stream; a stream can come several times.
    pub parts: Vec<StreamFrames>,
    /// All streams of the store, as of when the frames were read.
    pub catalog: Arc<Catalog>,
}

impl Delivery {
    /// Returns the number of frames.
    pub fn frames(&self) -> usize {
        self.parts.iter().map(|part| part.batch.len()).sum()
    }

    /// Returns whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns the frames by the name that their table has at the target.
    pub(crate) fn by_table(&self, name: impl Fn(&str) -> String) -> BTreeMap<String, Vec<&StreamFrames>> {
        let mut tables: BTreeMap<String, Vec<&StreamFrames>> = BTreeMap::new();
        for part in &self.parts {
            tables.entry(name(&part.stream.key.table)).or_default().push(part);
        }
        tables
    }

    /// Returns the approximate size in memory, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.parts.iter().map(StreamFrames::size_bytes).sum()
    }

    /// Returns the first and the second half. Both have frames if there are at least two.
    pub(crate) fn halves(self) -> (Delivery, Delivery) {
        let mut left = self.frames() / 2;
        let empty = || Delivery { parts: Vec::new(), catalog: self.catalog.clone() };
        let (mut first, mut second) = (empty(), empty());
        for part in self.parts {
            let frames = part.batch.len();
            match left {
                0 => second.parts.push(part),
                _ if left >= frames => first.parts.push(part),
                _ => {
                    let (before, after) = part.split_at(left);
                    first.parts.push(before);
                    second.parts.push(after);
                }
            }
            left = left.saturating_sub(frames);
        }
        (first, second)
    }

    /// Returns the delivery without some streams.
    pub(crate) fn without(mut self, streams: &[StreamId]) -> Delivery {
        self.parts.retain(|part| !streams.contains(&part.id()));
        self
    }
}
