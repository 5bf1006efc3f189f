//! State at an instant: the newest cell of each channel at or before it.

use crate::chunk::Chunk;
use crate::refusal::ScanError;
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
    max_future_ns: i64,
) -> Result<Vec<Option<StateCell>>, ScanError> {
    let mut found: Vec<Option<StateCell>> = vec![None; columns.len()];
    for (chunk, len) in view.chunks().rev() {
        let Some((min, max)) = chunk.time_range() else { continue };
        if len == 0 || min > time {
            continue;
        }
        // Older chunks can only add what is missing, or newer in time where frames came out of order.
        let wanted: Vec<usize> =
            (0..columns.len()).filter(|&i| found[i].as_ref().is_none_or(|c| max > c.time)).collect();
        if !wanted.is_empty() {
            look_in_chunk(view, chunk, len, time, columns, &wanted, max_future_ns, &mut found);
        }
    }
    Ok(found)
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
