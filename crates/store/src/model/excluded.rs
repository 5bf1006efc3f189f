//! Spans of time in which readers leave the values of channels out. Nothing stored is changed by them.
//!
//! A view takes the spans with it when it is made. A cell within a span is read as absent: its frame and the other
//! cells of the frame stay. Statistics of rows that overlap a span are not used, so that every reader returns what it
//! would return if the cells had never been stored.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::model::batch::{Batch, Column};
use crate::model::stream::{ChannelIndex, StreamId};
use crate::model::value::CellState;

/// Spans of time in which values of channels are left out.
#[derive(Debug, Default)]
pub struct Excluded {
    streams: HashMap<u32, Arc<ExcludedChannels>, foldhash::fast::RandomState>,
}

/// Channels of a stream of which values are left out, in the order of their indices.
#[derive(Debug, Default)]
pub(crate) struct ExcludedChannels(Vec<(u16, Arc<ExcludedSpans>)>);

/// Spans of a channel, from (inclusive) to (exclusive): ascending, without overlap.
#[derive(Debug, Default)]
pub(crate) struct ExcludedSpans(Vec<(i64, i64)>);

impl Excluded {
    /// Collects spans of `time`, from (inclusive) to (exclusive), in any order. Spans of a channel may overlap.
    pub fn new(spans: impl IntoIterator<Item = (StreamId, ChannelIndex, Range<i64>)>) -> Excluded {
        let mut all: Vec<(u32, u16, i64, i64)> = spans
            .into_iter()
            .filter(|(_, _, span)| !span.is_empty())
            .map(|(stream, channel, span)| (stream.0, channel.0, span.start, span.end))
            .collect();
        all.sort_unstable();
        let mut streams = HashMap::default();
        for of_stream in all.chunk_by(|a, b| a.0 == b.0) {
            let channels = of_stream.chunk_by(|a, b| a.1 == b.1).map(|of_channel| {
                let mut spans: Vec<(i64, i64)> = Vec::new();
                for &(_, _, from, to) in of_channel {
                    match spans.last_mut().filter(|last| from <= last.1) {
                        Some(last) => last.1 = last.1.max(to),
                        None => spans.push((from, to)),
                    }
                }
                (of_channel[0].1, Arc::new(ExcludedSpans(spans)))
            });
            streams.insert(of_stream[0].0, Arc::new(ExcludedChannels(channels.collect())));
        }
        Excluded { streams }
    }

    /// Returns whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Returns the channels of a stream of which values are left out.
    pub(crate) fn stream(&self, stream: StreamId) -> Option<Arc<ExcludedChannels>> {
        self.streams.get(&stream.0).cloned()
    }
}

impl ExcludedChannels {
    /// Returns the spans of a channel.
    pub(crate) fn of(&self, channel: ChannelIndex) -> Option<&Arc<ExcludedSpans>> {
        let at = self.0.binary_search_by_key(&channel.0, |(channel, _)| *channel).ok()?;
        Some(&self.0[at].1)
    }

    /// Makes the cells within the spans absent. `channels` are those of the batch's columns.
    pub(crate) fn leave_out(&self, batch: &mut Batch, channels: impl Iterator<Item = ChannelIndex>) {
        let mut columns = std::mem::take(&mut batch.columns);
        for (column, channel) in columns.iter_mut().zip(channels) {
            if let Some(spans) = self.of(channel) {
                spans.leave_out(column, batch);
            }
        }
        batch.columns = columns;
    }
}

impl ExcludedSpans {
    /// Returns the spans.
    pub(crate) fn spans(&self) -> Vec<Range<i64>> {
        self.0.iter().map(|(from, to)| *from..*to).collect()
    }

    /// Returns the first span that ends after a time.
    fn next(&self, time: i64) -> Option<(i64, i64)> {
        self.0.get(self.0.partition_point(|span| span.1 <= time)).copied()
    }

    /// Returns whether a time lies in a span.
    pub(crate) fn contains(&self, time: i64) -> bool {
        self.next(time).is_some_and(|span| span.0 <= time)
    }

    /// Returns whether any of the times from `first` to `last`, both inclusive, lies in a span, so that statistics over
    /// them do not count.
    pub(crate) fn overlaps(&self, (first, last): (i64, i64)) -> bool {
        self.next(first).is_some_and(|span| span.0 <= last)
    }

    /// Returns whether all times from `first` to `last`, both inclusive, lie in spans.
    pub(crate) fn covers(&self, (first, last): (i64, i64)) -> bool {
        self.next(first).is_some_and(|span| span.0 <= first && span.1 > last)
    }

    /// Makes the cells of a column of a batch absent that lie in spans.
    fn leave_out(&self, column: &mut Column, batch: &Batch) {
        // Rows that follow each other mostly lie in the same span, or between the same two.
        let mut known = (i64::MAX, i64::MIN, false);
        for row in 0..batch.len() {
            let time = batch.time(row);
            if time < known.0 || time >= known.1 {
                let before = self.0.partition_point(|span| span.1 <= time);
                let from = before.checked_sub(1).map_or(i64::MIN, |before| self.0[before].1);
                known = match self.0.get(before) {
                    Some(span) if span.0 <= time => (span.0, span.1, true),
                    Some(span) => (from, span.0, false),
                    None => (from, i64::MAX, false),
                };
            }
            if known.2 {
                column.states.get_or_insert_with(|| vec![CellState::Value; batch.len()])[row] = CellState::Absent;
            }
        }
    }
}
