//! What the plan of a scan took from the view of the store for which it was made.

use std::ops::Range;
use std::sync::Arc;

use strongback_store::{Stream, View};

use crate::table::history::{History, Older};

/// Frames that are no longer in the store, and the name of their table.
pub(crate) type Watched = (Arc<dyn History>, Arc<str>);

/// Properties of a view that decide how a scan is planned. A plan can be used for another view with the same.
#[derive(Clone, Debug)]
pub(crate) struct Basis {
    /// Streams of the scan, and those that have no row in its span of time.
    streams: Arc<[Arc<Stream>]>,
    empty: Arc<[Arc<Stream>]>,
    time: Range<i64>,
    /// Whether it relies on the order of rows by time.
    is_sorted: bool,
    /// Where frames are that are no longer in the store.
    history: Option<Watched>,
    /// Bits of the numbers of rows and of nanoseconds, which decide about partitions and pieces.
    size: (u32, u32),
}

impl Basis {
    /// Returns what a scan of `streams` takes from a view, if those in `empty` are left out as they have no row in `time`.
    pub(crate) fn of(
        view: &View,
        streams: &[Arc<Stream>],
        empty: Vec<Arc<Stream>>,
        time: &Range<i64>,
        history: Option<Watched>,
    ) -> Basis {
        let is_sorted = streams.iter().all(|stream| view.time_sorted(stream.id));
        let size = size(view, streams);
        Basis { streams: streams.into(), empty: empty.into(), time: time.clone(), is_sorted, history, size }
    }

    /// Reports whether the rows of all streams ascend in time.
    pub(crate) fn is_sorted(&self) -> bool {
        self.is_sorted
    }

    /// Reports whether a scan is planned alike for another view.
    pub(crate) fn holds_in(&self, view: &View) -> bool {
        let has_rows = |stream: &Arc<Stream>| overlaps(view, stream, &self.time);
        size(view, &self.streams) == self.size
            && self.is_sorted == self.streams.iter().all(|stream| view.time_sorted(stream.id))
            && !self.empty.iter().any(has_rows)
            && !self.has_older(view)
    }

    /// Reports whether frames that the plan does not read may have left the store.
    fn has_older(&self, view: &View) -> bool {
        self.history.as_ref().is_some_and(|(history, table)| {
            let newest = |streams| history.newest(Older { table, streams, time: &self.time, view });
            // An error is that of the plan that is then made.
            let has = |streams| newest(streams).map_or(true, |newest| newest.is_some());
            [&self.streams, &self.empty].into_iter().any(|streams| has(streams))
        })
    }
}

/// Reports whether a stream may have rows in a span of time.
pub(crate) fn overlaps(view: &View, stream: &Stream, time: &Range<i64>) -> bool {
    view.time_range(stream.id).is_some_and(|(first, last)| first < time.end && last >= time.start)
}

fn size(view: &View, streams: &[Arc<Stream>]) -> (u32, u32) {
    let rows: u64 = streams.iter().map(|stream| view.next_row(stream.id)).fold(0, u64::saturating_add);
    let length = |stream: &Arc<Stream>| view.time_range(stream.id).map_or(0, |(first, last)| last.abs_diff(first));
    let longest = streams.iter().map(length).max().unwrap_or(0);
    let bits = |number: u64| u64::BITS - number.leading_zeros();
    (bits(rows), bits(longest))
}
