//! State at an instant: the newest cell of each channel at or before it.

use crate::batch::Batch;
use crate::chunk::Chunk;
use crate::refusal::ScanError;
use crate::shared::Shared;
use crate::stream::ChannelIndex;
use crate::value::{CellState, Value};
use crate::view::StreamView;

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

/// A value that owns its text.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedValue {
    /// Everything but text.
    Plain(Value<'static>),
    /// Text.
    String(String),
}

impl OwnedValue {
    /// A copy of a value.
    pub fn of(value: Value<'_>) -> OwnedValue {
        match value {
            Value::String(text) => OwnedValue::String(text.to_owned()),
            other => OwnedValue::Plain(Value::from_bits(other.channel_type(), other.bits())),
        }
    }

    /// The value, borrowed.
    pub fn as_value(&self) -> Value<'_> {
        match self {
            OwnedValue::Plain(value) => *value,
            OwnedValue::String(text) => Value::String(text),
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

/// Blocks backwards, only those that can hold what is missing.
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
    // A channel that never had a value, or none in rows so old, is not looked for there.
    let valued_to = |i: usize| view.sealed.valued_to.get(columns[i].0 as usize).copied().unwrap_or(0);
    let open = |found: &[Option<StateCell>], first_row: u64, time_max: i64| -> Vec<usize> {
        (0..columns.len())
            .filter(|&i| valued_to(i) > first_row && found[i].as_ref().is_none_or(|c| time_max > c.time))
            .collect()
    };
    if open(found, 0, view.sealed.time.1).is_empty() {
        return Ok(());
    }
    for segment in view.segments(i64::MIN, time).iter().rev() {
        let newest = segment.state.lock().time.1;
        if open(found, 0, newest).is_empty() {
            // Older segments may hold newer times only where frames came out of order.
            if view.sealed.sorted {
                return Ok(());
            }
            continue;
        }
        for block in view.blocks(segment, shared)?.iter().rev() {
            if block.time.0 > time {
                continue;
            }
            let wanted = open(found, block.first_row, block.time.1);
            if wanted.is_empty() {
                continue;
            }
            let channels: Vec<ChannelIndex> = wanted.iter().map(|&i| columns[i]).collect();
            let batch = view.read(segment, block, &channels, shared)?;
            look_in_batch(&batch, time, &wanted, shared.max_future_ns, found);
        }
    }
    Ok(())
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
            found[i] = Some(StateCell {
                value,
                time: at,
                receive_time: batch.receive_time[row],
                source_time: batch.source_time.as_ref().and_then(|t| t.get(row)),
                row: batch.rows[row],
            });
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
