//! Views: immutable snapshots to read from beside the writer.
//!
//! Taking one costs an allocation. What it holds of a stream is fixed when that stream is first asked for
//! and stays so for the view and its clones: the open rows first, the segments after them, so that a row
//! that is being sealed in between is in one of the two for certain, and by its number in one only.

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::ScanError;
use crate::catalog::Catalog;
use crate::model::clock::Mark;
use crate::model::stream::{ChannelIndex, StreamId};
use crate::read::request::Scan;
use crate::read::scan::Scanner;
use crate::read::shared::Shared;
use crate::read::state::{StateCell, state_at};
use crate::read::stream_view::StreamView;

/// An immutable snapshot of the store.
#[derive(Clone)]
pub struct View {
    inner: Arc<ViewInner>,
}

struct ViewInner {
    shared: Arc<Shared>,
    catalog: OnceLock<Arc<Catalog>>,
    taken: Mark,
    streams: Mutex<HashMap<u32, Arc<StreamView>, foldhash::fast::RandomState>>,
}

impl View {
    pub(crate) fn new(shared: Arc<Shared>) -> View {
        let taken = shared.paces.mark();
        let inner = ViewInner { shared, catalog: OnceLock::new(), taken, streams: Mutex::new(HashMap::default()) };
        View { inner: Arc::new(inner) }
    }

    /// The catalog of this moment. A column of a batch may be wider than it says if the channel was
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
            // Before the open rows: if it gets its row in between, the row's number says so.
            let held = slot.held.load_full();
            let open = slot.open.load_full();
            let last_len = open.chunks.last().map_or(0, |c| c.len());
            let next_row = open.chunks.last().map_or(open.first_row, |c| c.first_row + last_len as u64);
            let view = StreamView {
                stream: slot.stream.load_full(),
                group: slot.group,
                open,
                last_len,
                held: held.filter(|held| held.row == next_row),
                next_row,
                sealed: slot.sealed.load_full(),
                segments: self.inner.shared.segments.load_full(),
            };
            // Rows that were sealed in between may stand in one block with older ones since, if they were settled too.
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

    /// Whether it has been held longer than a view may pin open memory.
    pub(crate) fn check_age(&self) -> Result<(), ScanError> {
        let shared = &self.inner.shared;
        if shared.paces.since(&self.inner.taken) > shared.max_view_ns { Err(ScanError::ViewTooOld) } else { Ok(()) }
    }

    /// Next row of a stream in this view.
    pub fn next_row(&self, stream: StreamId) -> u64 {
        self.stream(stream).map_or(0, |s| s.next_row)
    }

    /// Smallest and largest `time` of a stream in this view, from block headers and open blocks. It may
    /// enclose rows appended since.
    pub fn time_range(&self, stream: StreamId) -> Option<(i64, i64)> {
        let view = self.stream(stream)?;
        let ranges = view.chunks().filter(|(_, len)| *len > 0).filter_map(|(c, _)| c.time_range());
        let sealed = (view.sealed.time.0 <= view.sealed.time.1).then_some(view.sealed.time);
        ranges.chain(sealed).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Whether frames of the stream in this view ascend in `time`.
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

    /// Batches of a stream in row order (or newest first), filtered exactly by time and rows.
    pub fn scan(&self, scan: Scan) -> Scanner {
        Scanner::new(self.clone(), scan)
    }

    /// The newest cell with a value (or `Unknown`) at or before `time` for each channel asked for; for equal
    /// times the higher row. Bounded work: last-value tables, then blocks backwards. Frames whose `time` lies
    /// more than `max_future` after their reception are left out.
    ///
    /// A channel with a reduction is read back: held, or on the line of a swinging door (then `time` is the instant asked
    /// for, the other times lie on the line too); its newest frame counts even if it got no row, and a frame that says
    /// it is unchanged makes its value as new as that frame.
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
