//! Views: immutable snapshots that are read concurrently with the writer.
//!
//! Taking a view costs an allocation. The state of a stream is fixed when that stream is first requested and stays
//! the same for the view and its clones. The open rows are taken first and the segments after them, so a row that is
//! sealed in between is in at least one of the two, and its number tells which one counts.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::ScanError;
use crate::catalog::Catalog;
use crate::model::clock::Mark;
use crate::model::excluded::Excluded;
use crate::model::stream::{ChannelIndex, StreamId};
use crate::read::decoded::DecodedBlocks;
use crate::read::request::Scan;
use crate::read::scan::Scanner;
use crate::read::shared::Shared;
use crate::read::state::{StateCell, state_at};
use crate::read::stream_view::StreamView;

/// Immutable snapshot of the store.
#[derive(Clone)]
pub struct View {
    inner: Arc<ViewInner>,
    /// Blocks that readers side by side share.
    decoded: Option<Arc<DecodedBlocks>>,
}

struct ViewInner {
    shared: Arc<Shared>,
    catalog: OnceLock<Arc<Catalog>>,
    taken: Mark,
    /// Values that are left out.
    excluded: Option<Arc<Excluded>>,
    streams: Mutex<HashMap<u32, Arc<StreamView>, foldhash::fast::RandomState>>,
}

impl View {
    /// Takes a view in which every stored value is seen.
    pub(crate) fn new(shared: Arc<Shared>) -> View {
        View::without(shared, None)
    }

    /// Takes a view without the values that are left out by default.
    pub(crate) fn of_default(shared: Arc<Shared>) -> View {
        let excluded = shared.excluded.load_full();
        View::without(shared, Some(excluded).filter(|excluded| !excluded.is_empty()))
    }

    fn without(shared: Arc<Shared>, excluded: Option<Arc<Excluded>>) -> View {
        let (taken, streams) = (shared.paces.mark(), Mutex::default());
        View {
            inner: Arc::new(ViewInner { shared, catalog: OnceLock::new(), taken, excluded, streams }),
            decoded: None,
        }
    }

    /// Returns this view with all stored values, also those that it leaves out.
    pub fn with_excluded(&self) -> View {
        if self.inner.excluded.is_none() {
            return self.clone();
        }
        let all = |view: &StreamView| Arc::new(StreamView { excluded: None, ..view.clone() });
        let streams = self.inner.streams.lock().iter().map(|(id, view)| (*id, all(view))).collect();
        let inner = ViewInner {
            shared: self.inner.shared.clone(),
            catalog: self.inner.catalog.clone(),
            taken: self.inner.taken,
            excluded: None,
            streams: Mutex::new(streams),
        };
        View { inner: Arc::new(inner), decoded: None }
    }

    /// Returns this view for readers of the samples or weights of these channels of a stream that go through the same
    /// span side by side. A block is then decoded for all of them at once. Of blocks, at most half a million cells are
    /// held, or one block.
    pub fn side_by_side(&self, stream: StreamId, channels: Vec<ChannelIndex>) -> View {
        let decoded = Some(Arc::new(DecodedBlocks::new(stream, channels)));
        View { inner: self.inner.clone(), decoded }
    }

    /// Returns the blocks that readers side by side share, if there are such.
    pub(crate) fn decoded(&self) -> Option<&DecodedBlocks> {
        self.decoded.as_deref()
    }

    /// Returns the catalog as of this view. A column of a batch may be wider than the catalog says if the channel was
    /// widened between the two.
    pub fn catalog(&self) -> &Arc<Catalog> {
        self.inner.catalog.get_or_init(|| self.inner.shared.catalog())
    }

    pub(crate) fn stream(&self, id: StreamId) -> Option<Arc<StreamView>> {
        let mut streams = self.inner.streams.lock();
        if let Some(have) = streams.get(&id.0) {
            return Some(have.clone());
        }
        let slot = self.inner.shared.slots.get(id)?;
        let view = loop {
            // Load before the open rows: if the frame gets its row in between, the row's number shows it.
            let held = slot.held.load_full();
            let open = slot.open.load_full();
            let last_len = open.chunks.last().map_or(0, |c| c.len());
            let next_row = open.chunks.last().map_or(open.first_row, |c| c.first_row + last_len as u64);
            let view = StreamView {
                stream: slot.stream.load_full(),
                group: slot.group,
                open,
                last_len,
                // Rows between, if any, were lost.
                held: held.filter(|held| held.row >= next_row),
                next_row,
                sealed: slot.sealed.load_full(),
                segments: self.inner.shared.segments.load_full(),
                excluded: self.inner.excluded.as_ref().and_then(|excluded| excluded.stream(id)),
            };
            // Rows sealed in between may already share a block with older ones, if they were compacted too.
            if slot.open.load().first_row == view.open.first_row {
                break Arc::new(view);
            }
        };
        streams.insert(id.0, view.clone());
        Some(view)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// Returns an error if the view has been held longer than it may pin open memory.
    pub(crate) fn check_age(&self) -> Result<(), ScanError> {
        let shared = &self.inner.shared;
        if shared.paces.since(&self.inner.taken) > shared.max_view_ns { Err(ScanError::ViewTooOld) } else { Ok(()) }
    }

    /// Returns the next row of a stream in this view.
    pub fn next_row(&self, stream: StreamId) -> u64 {
        self.stream(stream).map_or(0, |s| s.next_row)
    }

    /// Returns the smallest and largest `time` of a stream in this view, from block headers and open blocks. The
    /// range may include rows appended since.
    pub fn time_range(&self, stream: StreamId) -> Option<(i64, i64)> {
        let view = self.stream(stream)?;
        let ranges = view.chunks().filter(|(_, len)| *len > 0).filter_map(|(c, _)| c.time_range());
        let sealed = (view.sealed.time.0 <= view.sealed.time.1).then_some(view.sealed.time);
        ranges.chain(sealed).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Returns whether frames of the stream in this view ascend in `time`.
    pub fn time_sorted(&self, stream: StreamId) -> bool {
        let Some(view) = self.stream(stream) else { return true };
        if !view.sealed.sorted {
            return false;
        }
        let mut before = view.sealed.time.1;
        view.chunks().filter(|(_, len)| *len > 0).all(|(chunk, _)| {
            let Some((min, max)) = chunk.time_range() else { return true };
            let sorted = chunk.sorted() && min >= before;
            before = max;
            sorted
        })
    }

    /// Returns the spans of `time`, ascending, in which this view leaves out the values of a channel.
    pub fn left_out(&self, stream: StreamId, channel: ChannelIndex) -> Vec<Range<i64>> {
        let excluded = self.inner.excluded.as_ref().and_then(|excluded| excluded.stream(stream));
        excluded.and_then(|channels| Some(channels.of(channel)?.spans())).unwrap_or_default()
    }

    /// Scans the batches of a stream in row order (or newest first), filtered exactly by time and rows.
    pub fn scan(&self, scan: Scan) -> Scanner {
        Scanner::new(self.clone(), scan)
    }

    /// Returns the newest cell with a value (or `Unknown`) at or before `time` for each requested channel; for equal
    /// times the higher row. Work is bounded: last-value tables, then blocks backwards. Frames whose `time` lies more
    /// than `max_future` after their reception are left out.
    ///
    /// A lossy channel is reconstructed: held, or on the line of a swinging door (then `time` is the requested
    /// instant, and the other times lie on the line too). Its newest frame counts even if it got no row, and a frame
    /// in which it is unchanged makes its value as new as that frame.
    pub fn state_at(
        &self,
        stream: StreamId,
        time: i64,
        columns: &[ChannelIndex],
    ) -> Result<Vec<Option<StateCell>>, ScanError> {
        self.check_age()?;
        let Some(view) = self.stream(stream) else { return Ok(vec![None; columns.len()]) };
        let mut found = state_at(&view, time, columns, &self.inner.shared)?;
        self.reconstruct(&view, time, columns, &mut found)?;
        Ok(found)
    }
}
