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

/// One cell of a state: the newest value at or before an instant.
#[derive(Clone, Debug, PartialEq)]
pub struct StateCell {
    /// The value, owned; none where the newest cell is `Unknown`.
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
    /// Whether it was received by a clock that was ahead of `now`, and has been set back since.
    pub fn was_received_ahead_of(&self, now: i64) -> bool {
        self.receive_time.saturating_sub(now) > CLOCK_AHEAD_NS
    }
}

/// A value that owns its text or elements.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedValue {
    /// Everything but text and arrays.
    Plain(Value<'static>),
    /// Text.
    String(String),
    /// An array.
    Array {
        /// Type of its elements.
        element: ElementType,
        /// They, little-endian, one after the other.
        bytes: Vec<u8>,
    },
}

impl OwnedValue {
    /// A copy of a value.
    pub fn of(value: Value<'_>) -> OwnedValue {
        match value {
            Value::String(text) => OwnedValue::String(text.to_owned()),
            Value::Array(array) => OwnedValue::Array { element: array.element(), bytes: array.bytes().to_vec() },
            Value::Blob(blob) => OwnedValue::Plain(Value::Blob(blob)),
            other => OwnedValue::Plain(Value::from_bits(other.channel_type(), other.bits())),
        }
    }

    /// The value, borrowed.
    pub fn as_value(&self) -> Value<'_> {
        match self {
            OwnedValue::Plain(value) => *value,
            OwnedValue::String(text) => Value::String(text),
            OwnedValue::Array { element, bytes } => Value::Array(ArrayRef::stored(*element, bytes)),
        }
    }
}

/// Looks backwards through a stream's rows.
pub(crate) fn state_at(
    view: &StreamView,
    time: i64,
    columns: &[ChannelIndex],
    shared: &Shared,
) -> Result<Vec<Option<StateCell>>, ScanError> {
    let mut found: Vec<Option<StateCell>> = vec![None; columns.len()];
    let layout = view.stream.layout.channels.len();
    if columns.iter().any(|c| c.0 as usize >= layout) {
        // Channels that this view does not know have no state; the others keep their places.
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
        // Older chunks can only add what is missing, or newer in time where frames came out of order.
        let wanted: Vec<usize> =
            (0..columns.len()).filter(|&i| found[i].as_ref().is_none_or(|c| max > c.time)).collect();
        if !wanted.is_empty() {
            look_in_chunk(view, chunk, len, time, columns, &wanted, shared.max_future_ns, &mut found);
        }
    }
    look_in_segments(view, time, columns, shared, &mut found)?;
    Ok(found)
}

/// How far what was received may be ahead of the clock of now before that clock was set back meanwhile, in nanoseconds.
const CLOCK_AHEAD_NS: i64 = 1_000_000_000;

/// Rows that are looked at behind the clock of now.
const LATEST_ROWS_MAX: usize = 1 << 14;

impl View {
    /// The newest cell of each channel as somebody shows it at `now`, who takes no `time` after `until` for right: the state
    /// at `until`, but for frames that came later and have a time after it although they were received then. Their clock
    /// ran ahead and was set right since; the newest row counts, until others come. Where the clock of reception itself was
    /// ahead for a while, what came since it was set back is newer than what has a later time.
    ///
    /// # Errors
    /// As [`View::state_at`].
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

    /// Replaces cells that were received and stamped by a clock that was ahead of `now` by those that came after them.
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

    /// Replaces cells by those that came later with a time after `until`.
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
        // What its source says is far ahead of its reception is never the newest.
        self.take_newest(scan, open, self.shared().max_future_ns, found)
    }

    /// Replaces cells by the first of a scan that are in later rows; rows whose time is further ahead of their reception
    /// than this do not count. `places` says where in `found` each of the scan's columns stands.
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

/// Blocks backwards, only those that can hold what is missing.
///
/// A footer says where a stream that has no block in its segment has its newest one before, or that it has none:
/// segments between are not looked at.
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
    // Where rows ascend in time, the first found backwards in a block is the newest of all blocks.
    let mut settled = vec![false; columns.len()];
    // A channel that never had a value, or none in rows so old, is not looked for there.
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
        let wanted = wanted(found, settled, block.first_row, block.time.1);
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
    // No block to come has a later time.
    let mut latest = view.sealed.time.1;
    loop {
        match next {
            NewestBefore::Nothing => return Ok(()),
            NewestBefore::Block(home, block) => {
                let found_in = |segment: &Arc<Segment>| -> Result<Option<BlockRef>, ScanError> {
                    if !segment.is_settled() {
                        return Ok(Some(block));
                    }
                    // In one that settle made the row lies in another block.
                    let blocks = view.blocks(segment, shared)?;
                    Ok(blocks.into_iter().rev().find(|b| (b.first_row..b.end_row()).contains(&block.first_row)))
                };
                below = home + 1;
                let passed = match group.find(home).filter(|segment| !segment.is_lost()) {
                    // Expired, or its file is missing; what is older is looked at all the same.
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
                // Only what was looked at has nothing more to say.
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
        // Older segments may hold newer times only where frames came out of order: those whose times say so.
        let time_max = segment.state.lock().time.1;
        if wanted(found, &settled, 0, latest.min(time_max)).is_empty() {
            // Others fill it: an earlier one may hold a later time of this stream.
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
            if !matches!(state, CellState::Value | CellState::Unknown) {
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
            // Where rows ascend in time the first one found backwards is the newest.
            !sorted
        });
    }
}
