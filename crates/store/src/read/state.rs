//! State at an instant: the newest cell of each channel at or before it.

use std::sync::Arc;

use crate::append::chunk::Chunk;
use crate::model::array::{ArrayRef, ElementType};
use crate::model::batch::Batch;
use crate::model::mutant::{self, Mutant};
use crate::model::refusal::ScanError;
use crate::model::stream::{ChannelIndex, StreamId};
use crate::model::value::{CellState, Value};
use crate::read::request::Scan;
use crate::read::shared::Shared;
use crate::read::stream_view::StreamView;
use crate::read::view::View;
use crate::segment::NewestBefore;
use crate::segment::directory::{BlockRef, Segment};

/// Cell of a state: the newest value at or before an instant.
#[derive(Clone, Debug, PartialEq)]
pub struct StateCell {
    /// The value, owned; `None` if the newest cell is `Unknown`.
    pub value: Option<OwnedValue>,
    /// `time` of its frame.
    pub time: i64,
    /// `receive_time` of its frame.
    pub receive_time: i64,
    /// `source_time` of its frame.
    pub source_time: Option<i64>,
    /// Row of its frame.
    pub row: u64,
}

impl StateCell {
    /// Returns whether it was received by a clock that was ahead of `now` and has been set back since.
    pub fn was_received_ahead_of(&self, now: i64) -> bool {
        self.receive_time.saturating_sub(now) > CLOCK_AHEAD_NS
    }
}

/// Value that owns its text or elements.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedValue {
    /// Any value except text and arrays.
    Plain(Value<'static>),
    /// Text.
    String(String),
    /// An array.
    Array {
        /// Type of the elements.
        element: ElementType,
        /// Elements, little-endian, one after the other.
        bytes: Vec<u8>,
    },
}

impl OwnedValue {
    /// Copies a value.
    pub fn of(value: Value<'_>) -> OwnedValue {
        match value {
            Value::String(text) => OwnedValue::String(text.to_owned()),
            Value::Array(array) => OwnedValue::Array { element: array.element(), bytes: array.bytes().to_vec() },
            Value::Blob(blob) => OwnedValue::Plain(Value::Blob(blob)),
            other => OwnedValue::Plain(Value::from_bits(other.channel_type(), other.bits())),
        }
    }

    /// Borrows the value.
    pub fn as_value(&self) -> Value<'_> {
        match self {
            OwnedValue::Plain(value) => *value,
            OwnedValue::String(text) => Value::String(text),
            OwnedValue::Array { element, bytes } => Value::Array(ArrayRef::stored(*element, bytes)),
        }
    }
}

/// Searches a stream's rows backwards.
pub(crate) fn state_at(
    view: &StreamView,
    time: i64,
    columns: &[ChannelIndex],
    shared: &Shared,
) -> Result<Vec<Option<StateCell>>, ScanError> {
    let mut found: Vec<Option<StateCell>> = vec![None; columns.len()];
    let layout = view.stream.layout.channels.len();
    if columns.iter().any(|c| c.0 as usize >= layout) {
        // Channels unknown to this view have no state; the others keep their places.
        let known: Vec<usize> = (0..columns.len()).filter(|&i| (columns[i].0 as usize) < layout).collect();
        let wanted: Vec<ChannelIndex> = known.iter().map(|&i| columns[i]).collect();
        for (i, cell) in known.into_iter().zip(state_at(view, time, &wanted, shared)?) {
            found[i] = cell;
        }
        return Ok(found);
    }
    for (chunk, len) in view.chunks().rev() {
        let Some((min, max)) = chunk.time_range() else { continue };
        if len == 0 || min > time {
            continue;
        }
        // Older chunks can only add cells that are missing, or newer ones where frames came out of order.
        let wanted: Vec<usize> =
            (0..columns.len()).filter(|&i| found[i].as_ref().is_none_or(|c| max > c.time)).collect();
        if !wanted.is_empty() {
            look_in_chunk(view, chunk, len, time, columns, &wanted, shared.max_future_ns, &mut found);
        }
    }
    look_in_segments(view, time, columns, shared, &mut found)?;
    Ok(found)
}

/// Tolerance in nanoseconds: a reception time further ahead of the clock means that the clock was set back since.
const CLOCK_AHEAD_NS: i64 = 1_000_000_000;

/// Max number of later rows searched for cells that replace those of a wrong clock.
const LATEST_ROWS_MAX: usize = 1 << 14;

impl View {
    /// Returns the newest cell of each channel as displayed at `now`, where a `time` after `until` is not trusted.
    /// This is the state at `until`, except for later frames received with a `time` after `until`: the clock of their
    /// source ran ahead and may have been corrected since, so the newest row counts until others come. Where the
    /// receiving clock itself was ahead for a while, frames received after it was set back are newer than those with
    /// a later time.
    ///
    /// # Errors
    /// As for [`View::state_at`].
    pub fn latest(
        &self,
        stream: StreamId,
        now: i64,
        until: i64,
        columns: &[ChannelIndex],
    ) -> Result<Vec<Option<StateCell>>, ScanError> {
        let mut found = self.state_at(stream, until, columns)?;
        self.look_ahead(stream, until, columns, &mut found)?;
        self.look_behind_a_leap(stream, now, columns, &mut found)?;
        Ok(found)
    }

    /// Replaces cells that were received and stamped by a clock ahead of `now` with those of later rows.
    fn look_behind_a_leap(
        &self,
        stream: StreamId,
        now: i64,
        columns: &[ChannelIndex],
        found: &mut [Option<StateCell>],
    ) -> Result<(), ScanError> {
        let is_ahead = |cell: &StateCell| cell.time == cell.receive_time && cell.was_received_ahead_of(now);
        let open: Vec<usize> = (0..columns.len()).filter(|&i| found[i].as_ref().is_some_and(is_ahead)).collect();
        let Some(first) = open.iter().filter_map(|&i| Some(found[i].as_ref()?.row + 1)).min() else { return Ok(()) };
        let known: Vec<ChannelIndex> = open.iter().map(|&i| columns[i]).collect();
        let scan = Scan { rows: first..u64::MAX, newest_first: true, ..Scan::all(stream, known) };
        self.take_newest(scan, open, i64::MAX, found)
    }

    /// Replaces cells with those of later rows whose time is after `until`.
    fn look_ahead(
        &self,
        stream: StreamId,
        until: i64,
        columns: &[ChannelIndex],
        found: &mut [Option<StateCell>],
    ) -> Result<(), ScanError> {
        let Some(view) = self.stream(stream) else { return Ok(()) };
        if self.time_range(stream).is_none_or(|(_, newest)| newest <= until) {
            return Ok(());
        }
        let layout = view.stream.layout.channels.len();
        let open: Vec<usize> = (0..columns.len()).filter(|&i| (columns[i].0 as usize) < layout).collect();
        let known: Vec<ChannelIndex> = open.iter().map(|&i| columns[i]).collect();
        let first = open.iter().map(|&i| found[i].as_ref().map_or(0, |cell| cell.row + 1)).min().unwrap_or(0);
        let time = until.saturating_add(1)..i64::MAX;
        let scan = Scan { time, rows: first..u64::MAX, newest_first: true, ..Scan::all(stream, known) };
        // A frame whose source time is far ahead of its reception is never the newest.
        self.take_newest(scan, open, self.shared().max_future_ns, found)
    }

    /// Replaces cells with the first of a scan in later rows. Skips rows whose time is more than `max_future_ns`
    /// ahead of their reception. `places` are the indices in `found` of the scan's columns.
    fn take_newest(
        &self,
        scan: Scan,
        places: Vec<usize>,
        max_future_ns: i64,
        found: &mut [Option<StateCell>],
    ) -> Result<(), ScanError> {
        let (mut open, mut looked) = (places.clone(), 0);
        for batch in self.scan(scan) {
            let batch = batch?;
            for row in (0..batch.len()).rev() {
                looked += 1;
                if open.is_empty() || looked > LATEST_ROWS_MAX {
                    return Ok(());
                }
                if batch.time(row).saturating_sub(batch.receive_time[row]) > max_future_ns {
                    continue;
                }
                for (column, &i) in batch.columns.iter().zip(&places) {
                    let value = match column.cell(row) {
                        Ok(value) => Some(OwnedValue::of(value)),
                        Err(CellState::Unknown) => None,
                        Err(_) => continue,
                    };
                    if !open.contains(&i) {
                        continue;
                    }
                    open.retain(|&other| other != i);
                    if found[i].as_ref().is_none_or(|cell| cell.row < batch.rows[row]) {
                        found[i] = Some(cell_of(&batch, row, value));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Searches blocks backwards, but only those that may hold missing cells.
///
/// A footer gives the newest earlier block of a stream that has no block in its segment, or tells that there is none,
/// so segments in between are skipped.
fn look_in_segments(
    view: &StreamView,
    time: i64,
    columns: &[ChannelIndex],
    shared: &Shared,
    found: &mut [Option<StateCell>],
) -> Result<(), ScanError> {
    if view.sealed.time.0 > time {
        return Ok(());
    }
    let sorted = view.sealed.sorted || mutant::is_active(Mutant::LateIsNewest);
    // Where rows ascend in time, the first cell found backwards in a block is the newest of all blocks.
    let mut settled = vec![false; columns.len()];
    // Skip a channel that never had a value, or none in rows this old.
    let valued_to = |i: usize| view.sealed.valued_to.get(columns[i].0 as usize).copied().unwrap_or(0);
    let wanted = |found: &[Option<StateCell>], settled: &[bool], first_row: u64, time_max: i64| -> Vec<usize> {
        let newer = |i: usize| found[i].as_ref().is_none_or(|c| time_max > c.time);
        (0..columns.len()).filter(|&i| !settled[i] && valued_to(i) > first_row && newer(i)).collect()
    };
    let look = |segment: &Arc<Segment>,
                block: &BlockRef,
                found: &mut [Option<StateCell>],
                settled: &mut [bool]|
     -> Result<(), ScanError> {
        let mut wanted = wanted(found, settled, block.first_row, block.time.1);
        let is_left_out = |channel| view.excluded_of(channel).is_some_and(|spans| spans.covers(block.time));
        wanted.retain(|&i| view.excluded.is_none() || !is_left_out(columns[i]));
        if block.time.0 > time || wanted.is_empty() {
            return Ok(());
        }
        let channels: Vec<ChannelIndex> = wanted.iter().map(|&i| columns[i]).collect();
        let batch = view.read(segment, block, &channels, shared)?;
        let rows = |found: &[Option<StateCell>]| wanted.iter().map(|&i| found[i].as_ref().map(|c| c.row)).collect();
        let before: Vec<Option<u64>> = rows(found);
        look_in_batch(&batch, time, &wanted, shared.max_future_ns, found);
        let after: Vec<Option<u64>> = rows(found);
        for (n, &i) in wanted.iter().enumerate() {
            settled[i] |= sorted && before[n] != after[n];
        }
        Ok(())
    };
    let Some(group) = view.segments.group(view.group) else { return Ok(()) };
    let stream = view.stream.id.0;
    // The newest block of all is known, unless the view is older than it.
    let newest = view.sealed.last.filter(|block| block.end_row() <= view.open.first_row);
    let mut next = newest.map_or(NewestBefore::Unknown, |block| NewestBefore::Block(view.sealed.newest_segment, block));
    let mut below = view.sealed.newest_segment.saturating_add(1);
    let mut done = None;
    // Upper bound of the times in the remaining blocks.
    let mut latest = view.sealed.time.1;
    loop {
        match next {
            NewestBefore::Nothing => return Ok(()),
            NewestBefore::Block(home, block) => {
                let found_in = |segment: &Arc<Segment>| -> Result<Option<BlockRef>, ScanError> {
                    if !segment.is_settled() {
                        return Ok(Some(block));
                    }
                    // In a compacted segment the row lies in another block.
                    let blocks = view.blocks(segment, shared)?;
                    Ok(blocks.into_iter().rev().find(|b| (b.first_row..b.end_row()).contains(&block.first_row)))
                };
                below = home + 1;
                let passed = match group.find(home).filter(|segment| !segment.is_lost()) {
                    // The segment is expired, or its file is missing; older ones are searched all the same.
                    None => true,
                    Some(segment) => match found_in(segment)? {
                        None => false,
                        Some(block) => {
                            look(segment, &block, found, &mut settled)?;
                            done = Some((segment.id, block.first_row));
                            true
                        }
                    },
                };
                // Only what was searched can be excluded.
                if sorted && passed {
                    latest = latest.min(block.time.0);
                }
            }
            NewestBefore::Unknown => {}
        }
        if wanted(found, &settled, 0, latest).is_empty() {
            return Ok(());
        }
        let Some(segment) = group.newest_below(below, time) else { return Ok(()) };
        below = segment.places.0;
        next = NewestBefore::Unknown;
        // Older segments may hold newer times only where frames came out of order, which their time ranges show.
        let time_max = segment.state.lock().time.1;
        if wanted(found, &settled, 0, latest.min(time_max)).is_empty() {
            // The segment's times exclude it; an earlier one may hold a later time of this stream.
            continue;
        }
        for block in view.blocks(segment, shared)?.iter().rev() {
            if done != Some((segment.id, block.first_row)) {
                look(segment, block, found, &mut settled)?;
            }
            if sorted {
                latest = latest.min(block.time.0);
            }
        }
        next = segment.before(stream, &shared.residents)?;
    }
}

fn cell_of(batch: &Batch, row: usize, value: Option<OwnedValue>) -> StateCell {
    StateCell {
        value,
        time: batch.time(row),
        receive_time: batch.receive_time[row],
        source_time: batch.source_time.as_ref().and_then(|times| times.get(row)),
        row: batch.rows[row],
    }
}

fn look_in_batch(batch: &Batch, time: i64, wanted: &[usize], max_future_ns: i64, found: &mut [Option<StateCell>]) {
    for (column, &i) in batch.columns.iter().zip(wanted) {
        for row in (0..batch.len()).rev() {
            let at = batch.time(row);
            if at > time
                || at.saturating_sub(batch.receive_time[row]) > max_future_ns
                || found[i].as_ref().is_some_and(|c| at <= c.time)
            {
                continue;
            }
            let value = match column.cell(row) {
                Ok(value) => Some(OwnedValue::of(value)),
                Err(CellState::Unknown) => None,
                Err(_) => continue,
            };
            found[i] = Some(cell_of(batch, row, value));
        }
    }
}

#[allow(clippy::too_many_arguments)]
fn look_in_chunk(
    view: &StreamView,
    chunk: &Chunk,
    len: usize,
    time: i64,
    columns: &[ChannelIndex],
    wanted: &[usize],
    max_future_ns: i64,
    found: &mut [Option<StateCell>],
) {
    let sorted = chunk.sorted();
    let end = if sorted && time < i64::MAX { chunk.lower_bound(time + 1, len) } else { len };
    let mut open: Vec<usize> = wanted.to_vec();
    for row in (0..end).rev() {
        if open.is_empty() {
            break;
        }
        let at = chunk.time(row);
        if at > time || at.saturating_sub(chunk.receive_time(row)) > max_future_ns {
            continue;
        }
        open.retain(|&i| {
            let channel = columns[i].0 as usize;
            let state = chunk.state(row, channel);
            if !matches!(state, CellState::Value | CellState::Unknown) || view.excludes(columns[i], at) {
                return true;
            }
            if found[i].as_ref().is_none_or(|c| at > c.time) {
                let kind = view.stream.layout.channels[channel].channel_type;
                let value = (state == CellState::Value).then(|| {
                    let value = chunk.value(row, channel);
                    OwnedValue::of(value.convert(kind).unwrap_or(value))
                });
                found[i] = Some(StateCell {
                    value,
                    time: at,
                    receive_time: chunk.receive_time(row),
                    source_time: chunk.source_time(row),
                    row: chunk.first_row + row as u64,
                });
            }
            // Where rows ascend in time, the first cell found backwards is the newest.
            !sorted
        });
    }
}
