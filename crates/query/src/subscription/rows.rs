//! Progress of a subscription of the class `rows`: the next row of each stream.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use strongback_store::{Store, StreamId, View};

use crate::error::QueryError;
use crate::query::step::StepView;
use crate::subscription::position::{Position, STREAMS_MAX};
use crate::table::filter::ALL_TIMES;
use crate::table::{PinnedPart, RowRanges};

/// Rows that were sent, and those of the current step.
#[derive(Debug, Default)]
pub(crate) struct RowsProgress {
    /// Next row of each stream that has any.
    next: HashMap<StreamId, u64>,
    /// Rows of the current step, or none between two steps.
    step: Arc<RowRanges>,
    /// Whether the result so far was not sent yet.
    is_snapshot: bool,
    /// Rows of the first step and the number of rows of its result that the client has, if it continues within a step.
    resumed: Option<(RowRanges, u64)>,
    /// Rows of the current step that expired before it.
    expired: u64,
}

impl RowsProgress {
    /// Begins with the whole result.
    pub(crate) fn new() -> RowsProgress {
        RowsProgress { is_snapshot: true, ..RowsProgress::default() }
    }

    /// Continues at a position. Returns `None` if that is not possible exactly: the position is one of another store, or
    /// rows of its step expired.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn resume(position: &Position, store: &Store) -> Result<Option<RowsProgress>, QueryError> {
        let is_known = |(stream, _, to): &(StreamId, u64, u64)| *to <= store.committed_row(*stream);
        if position.origin != store.origin() || !position.rows.iter().all(is_known) {
            return Ok(None);
        }
        let next = position.rows.iter().map(|(stream, from, _)| (*stream, *from)).collect();
        let rows = position.rows.iter().filter(|(_, from, to)| from < to);
        let step: RowRanges = rows.map(|(stream, from, to)| (*stream, *from..*to)).collect();
        if !step.is_empty() && expired(&store.view(), &step)? > 0 {
            return Ok(None);
        }
        let resumed = (!step.is_empty()).then_some((step, position.skip));
        Ok(Some(RowsProgress { next, resumed, ..RowsProgress::default() }))
    }

    /// Reports whether a step would read rows.
    pub(crate) fn has_changes(&self, store: &Store, streams: &[StreamId]) -> bool {
        let is_behind = |stream: &StreamId| store.committed_row(*stream) > self.next_row(*stream);
        self.is_snapshot || self.resumed.is_some() || streams.iter().any(is_behind)
    }

    fn next_row(&self, stream: StreamId) -> u64 {
        self.next.get(&stream).copied().unwrap_or(0)
    }

    /// Begins a step. Returns what it reads, and the number of rows of its result that the client has, or `None` if
    /// there are no rows.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn begin(
        &mut self,
        store: &Store,
        streams: &[StreamId],
        now_us: i64,
    ) -> Result<Option<(StepView, u64)>, QueryError> {
        let resumed = self.resumed.take();
        let new = |stream: &StreamId| {
            let rows = self.next_row(*stream)..store.committed_row(*stream);
            (!rows.is_empty()).then_some((*stream, rows))
        };
        let (rows, skip) = match resumed {
            Some((rows, skip)) => (rows, skip),
            None => (streams.iter().filter_map(new).collect::<RowRanges>(), 0),
        };
        if rows.is_empty() && !self.is_snapshot {
            return Ok(None);
        }
        // Taken after the committed rows were read, so the view has all of them.
        let view = store.view();
        self.expired = if self.is_snapshot { 0 } else { expired(&view, &rows)? };
        self.step = Arc::new(rows);
        Ok(Some((self.view(view, now_us), skip)))
    }

    fn view(&self, view: View, now_us: i64) -> StepView {
        let part = PinnedPart { time: ALL_TIMES, rows: Some(self.step.clone()) };
        StepView { view, part, now_us: Some(now_us) }
    }

    /// Returns the current step over a newer view, or `None` if its result might be another one.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn again(&self, store: &Store, now_us: i64) -> Result<Option<StepView>, QueryError> {
        let view = store.view();
        let is_same = !self.is_snapshot && self.expired == 0 && expired(&view, &self.step)? == 0;
        Ok(is_same.then(|| self.view(view, now_us)))
    }

    /// Ends the current step.
    pub(crate) fn end(&mut self) {
        for (stream, rows) in self.step.iter() {
            self.next.insert(*stream, rows.end);
        }
        self.step = Arc::default();
        self.is_snapshot = false;
    }

    /// Returns the rows of the current step that expired before they were read.
    pub(crate) fn expired(&self) -> u64 {
        self.expired
    }

    /// Reports whether the current step is the whole result so far.
    pub(crate) fn is_snapshot(&self) -> bool {
        self.is_snapshot
    }

    /// Returns the position of a client that has `sent` rows of the current step's result, or `None` if it could not
    /// continue there exactly, or there are too many streams.
    pub(crate) fn position(&self, origin: u128, start_us: i64, sent: u64) -> Option<Position> {
        let is_over = self.step.is_empty();
        let are_many = self.next.len().max(self.step.len()) > STREAMS_MAX;
        if self.is_snapshot || are_many || !is_over && self.expired > 0 {
            return None;
        }
        let mut rows: Vec<_> = self.next.iter().map(|(stream, next)| (*stream, *next, *next)).collect();
        for (stream, Range { start, end }) in self.step.iter() {
            match rows.iter_mut().find(|(of, ..)| of == stream) {
                Some(row) => row.2 = *end,
                None => rows.push((*stream, *start, *end)),
            }
        }
        rows.sort_unstable();
        let skip = if is_over { 0 } else { sent };
        (rows.len() <= STREAMS_MAX).then_some(Position { origin, start_us, skip, rows })
    }
}

/// Returns how many of these rows are not stored any more.
fn expired(view: &View, rows: &RowRanges) -> Result<u64, QueryError> {
    let mut expired = 0;
    for (stream, rows) in rows {
        let stored = view.rows_stored(*stream, rows.clone())?;
        expired += (rows.end - rows.start).saturating_sub(stored);
    }
    Ok(expired)
}
