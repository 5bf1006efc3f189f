//! Reconstruction of lossy channels: the state of a channel at an instant.
//!
//! A pending frame is the newest state and exact. Before it, the last stored value holds (step, deadband), or lies on
//! the line to the next stored value (swinging door).

use crate::append::held::Held;
use crate::append::lane::{KEY_ROWS, point};
use crate::model::batch::Batch;
use crate::model::large_sum::on_way;
use crate::model::reduction::Reduction;
use crate::model::refusal::ScanError;
use crate::model::stream::{ChannelIndex, StreamId};
use crate::model::value::{CellState, ChannelType, Value};
use crate::read::request::Scan;
use crate::read::state::{OwnedValue, StateCell};
use crate::read::stream_view::StreamView;
use crate::read::view::View;

/// Max rows without a channel that are searched for its next stored value.
const ABSENT_ROWS_MAX: u64 = 1 << 20;

/// Interpolates linearly between two values at an instant, in their type, with whole numbers rounded. Returns `None`
/// if the values cannot be interpolated.
pub(crate) fn on_line(from: (i64, Value<'_>), to: (i64, Value<'_>), time: i64) -> Option<Value<'static>> {
    let (a, b) = (point(from.1)?, point(to.1)?);
    let share = time.abs_diff(from.0) as f64 / to.0.abs_diff(from.0) as f64;
    let value = on_way(a, b, share);
    Some(match from.1.channel_type() {
        ChannelType::F64 => Value::F64(value),
        ChannelType::F32 => Value::F32(value as f32),
        // A cast saturates at the limits of its type.
        ChannelType::I8 => Value::I8(value.round() as i8),
        ChannelType::I16 => Value::I16(value.round() as i16),
        ChannelType::I32 => Value::I32(value.round() as i32),
        ChannelType::I64 => Value::I64(value.round() as i64),
        ChannelType::U8 => Value::U8(value.round() as u8),
        ChannelType::U16 => Value::U16(value.round() as u16),
        ChannelType::U32 => Value::U32(value.round() as u32),
        ChannelType::U64 => Value::U64(value.round() as u64),
        ChannelType::Bool | ChannelType::String | ChannelType::Blob | ChannelType::Array(_) => return None,
    })
}

impl Held {
    /// Returns a cell with a value (or `Unknown`) as a state, in the channel's type.
    fn cell(&self, channel: usize, kind: ChannelType) -> Option<StateCell> {
        let value = match self.state(channel) {
            CellState::Value => {
                let value = self.value(channel)?;
                Some(OwnedValue::of(value.convert(kind).unwrap_or(value)))
            }
            CellState::Unknown => None,
            CellState::Absent | CellState::Unchanged => return None,
        };
        Some(StateCell {
            value,
            time: self.time(),
            receive_time: self.receive_time(),
            source_time: self.source_time(),
            row: self.row,
        })
    }
}

impl View {
    /// Converts the stored state of lossy channels at or before an instant to their state at that instant.
    pub(crate) fn reconstruct(
        &self,
        view: &StreamView,
        time: i64,
        columns: &[ChannelIndex],
        found: &mut [Option<StateCell>],
    ) -> Result<(), ScanError> {
        for (column, found) in columns.iter().zip(found) {
            let Some(channel) = view.stream.layout.channels.get(column.0 as usize) else { continue };
            if channel.reduction == Reduction::None {
                continue;
            }
            let held = view.held.as_ref().filter(|held| !view.excludes(*column, held.time()));
            let held = held.and_then(|held| held.cell(column.0 as usize, channel.channel_type));
            if let Some(held) = held.as_ref().filter(|held| held.time <= time) {
                *found = Some(held.clone());
                continue;
            }
            let Some(stored) = found else { continue };
            match channel.reduction {
                Reduction::SwingingDoor { .. } => {
                    let next = match self.next_stored(view.stream.id, *column, stored)? {
                        Some(next) => Some(next),
                        None => held,
                    };
                    if let Some(next) = next {
                        lay_between(stored, &next, time);
                    }
                }
                _ => self.confirm(view.stream.id, *column, stored, time)?,
            }
        }
        Ok(())
    }

    /// Visits the rows after a stored cell in which the channel may be unchanged or stored next. Rows without the channel
    /// do not count for the number of rows within which it is stored again.
    fn rows_after(
        &self,
        stream: StreamId,
        column: ChannelIndex,
        stored: &StateCell,
        mut take: impl FnMut(&Batch, usize) -> bool,
    ) -> Result<(), ScanError> {
        let (begin, near) = (stored.row + 1, stored.row.saturating_add(2 * KEY_ROWS));
        let end = self.next_row(stream).min(begin.saturating_add(ABSENT_ROWS_MAX));
        let mut offered = 0;
        for rows in [begin..near.min(end), near..end] {
            if rows.is_empty() || offered > 0 {
                return Ok(());
            }
            for batch in self.scan(Scan { time: stored.time..i64::MAX, rows, ..Scan::all(stream, vec![column]) }) {
                let batch = batch?;
                for row in 0..batch.len() {
                    if take(&batch, row) {
                        return Ok(());
                    }
                    offered += u64::from(!matches!(batch.columns[0].cell(row), Err(CellState::Absent)));
                }
                if offered >= 2 * KEY_ROWS {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Moves a stored value forward to the newest frame in which it is unchanged.
    fn confirm(
        &self,
        stream: StreamId,
        column: ChannelIndex,
        stored: &mut StateCell,
        time: i64,
    ) -> Result<(), ScanError> {
        let mut newest: Option<StateCell> = None;
        self.rows_after(stream, column, stored, |batch, row| {
            match batch.columns[0].cell(row) {
                Err(CellState::Unchanged) if batch.time(row) <= time => newest = Some(place(batch, row)),
                Err(_) => {}
                Ok(_) => return true,
            }
            false
        })?;
        if let Some(newest) = newest {
            *stored = StateCell { value: stored.value.take(), ..newest };
        }
        Ok(())
    }

    /// Returns the next stored cell of a channel.
    fn next_stored(
        &self,
        stream: StreamId,
        column: ChannelIndex,
        stored: &StateCell,
    ) -> Result<Option<StateCell>, ScanError> {
        let mut next = None;
        self.rows_after(stream, column, stored, |batch, row| {
            let value = match batch.columns[0].cell(row) {
                Ok(value) => Some(OwnedValue::of(value)),
                Err(CellState::Unknown) => None,
                Err(_) => return false,
            };
            next = Some(StateCell { value, ..place(batch, row) });
            true
        })?;
        Ok(next)
    }
}

/// Returns the times and row of a frame, without a value.
fn place(batch: &Batch, row: usize) -> StateCell {
    StateCell {
        value: None,
        time: batch.time(row),
        receive_time: batch.receive_time[row],
        source_time: batch.source_time.as_ref().and_then(|times| times.get(row)),
        row: batch.rows[row],
    }
}

/// Moves a stored state forward to an instant on the line to the next one.
fn lay_between(stored: &mut StateCell, next: &StateCell, time: i64) {
    let (Some(from), Some(to)) = (&stored.value, &next.value) else { return };
    if time <= stored.time || time >= next.time {
        return;
    }
    let Some(value) = on_line((stored.time, from.as_value()), (next.time, to.as_value()), time) else { return };
    let between = |a: i64, b: i64| {
        let share = time.abs_diff(stored.time) as f64 / next.time.abs_diff(stored.time) as f64;
        a.saturating_add((b.saturating_sub(a) as f64 * share) as i64)
    };
    stored.receive_time = between(stored.receive_time, next.receive_time);
    stored.source_time = stored.source_time.zip(next.source_time).map(|(a, b)| between(a, b));
    stored.value = Some(OwnedValue::Plain(value));
    stored.time = time;
}
