//! Columns of a grid whose channels are read in lockstep: each of them over a short span, one after the other, so that a
//! block is decoded once for all.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array};
use strongback_store::{Column, Reduction, SampleCursor, View, WeighedPieces, Weigher, Weight};

use crate::error::QueryError;
use crate::telemetry::grid::{GridColumn, GridRule, Method, held, integral, of_number, on_line, rows_within};
use crate::telemetry::number::{finite, number_of, seconds};
use crate::telemetry::threads::threads;

/// Instants between two looks at the stop flag.
const INSTANTS_PER_CHECK: usize = 256;
/// Rows of a stream in a step beyond which each instant is looked up by itself.
const ROWS_APART: u64 = 1 << 15;
/// Rows of a block, which is read for an instant that is looked up by itself.
const ROWS_OF_BLOCK: u64 = 1 << 10;
/// Values from which on instants are divided among threads.
const DIVIDED_VALUES_MIN: u64 = 1 << 17;
/// Cells that columns go through before the next one does; the store holds twice as many.
const CELLS: u64 = 1 << 18;
/// Columns of a batch besides its channels.
const OTHER_COLUMNS: u64 = 3;
/// Maximum channels in lockstep.
const CHANNELS_MAX: u64 = 64;

/// Columns with channels of one stream, over some instants.
pub(super) struct Lockstep<'a> {
    columns: &'a [(usize, GridColumn<'a>)],
    /// For each column, its cursor from the instants before.
    cursors: Vec<Option<SampleCursor>>,
    times: &'a [i64],
    view: View,
    /// Instants that a column goes through before the next one does.
    stride: usize,
}

/// What was read of a column, and its cursor.
pub(super) type ColumnRead = (ArrayRef, Option<SampleCursor>);

/// Divides columns and instants, of which each step has some rows. Parts of the same columns follow one another.
pub(super) fn divide<'a>(
    columns: &'a [(usize, GridColumn<'a>)],
    cursors: Vec<Option<SampleCursor>>,
    (times, rows): (&'a [i64], u64),
) -> Vec<Lockstep<'a>> {
    let Some((_, first)) = columns.first() else { return Vec::new() };
    let looks_up = match first.rule.method.is_over_time() {
        true => first.rule.tolerance_ns == u64::MAX && rows > ROWS_OF_BLOCK,
        false => rows > ROWS_APART,
    };
    let read = if looks_up { ROWS_OF_BLOCK } else { rows.max(1) };
    let together = (CELLS / read).saturating_sub(OTHER_COLUMNS).clamp(1, CHANNELS_MAX);
    let groups: Vec<_> = columns
        .chunk_by(|(_, a), (_, b)| a.channel.stream.id == b.channel.stream.id)
        .flat_map(|of_stream| of_stream.chunks(together as usize))
        .collect();
    let values = rows.saturating_mul(times.len() as u64).saturating_mul(columns.len() as u64);
    let parts = if values < DIVIDED_VALUES_MIN { 1 } else { threads().div_ceil(groups.len()) };
    let mut cursors = cursors.into_iter();
    let mut divided = Vec::new();
    for group in groups {
        let mut kept: Vec<_> = cursors.by_ref().take(group.len()).collect();
        for times in times.chunks(times.len().div_ceil(parts).max(1)) {
            let (view, stride) = match group {
                [(_, one)] => (one.opening.view.clone(), times.len()),
                _ => {
                    let channels = group.iter().map(|(_, column)| column.channel.index).collect();
                    let cells = read.saturating_mul(group.len() as u64 + OTHER_COLUMNS);
                    let view = first.opening.view.side_by_side(group[0].1.channel.stream.id, channels);
                    (view, (CELLS / cells).max(1) as usize)
                }
            };
            // The first part goes on where the instants before ended.
            let mut cursors = std::mem::take(&mut kept);
            cursors.resize_with(group.len(), || None);
            divided.push(Lockstep { columns: group, cursors, times, view, stride });
        }
    }
    divided
}

impl Lockstep<'_> {
    /// Reads all columns. Returns what was read of each, by its position.
    ///
    /// # Errors
    /// If the store cannot be read, or the statement was stopped.
    pub(super) fn read(self) -> Result<Vec<(usize, ColumnRead)>, QueryError> {
        let GridRule { method, step_ns, .. } = self.columns[0].1.rule;
        // A rate also needs the value at the end of the last step.
        let end = self.times.last().map(|last| last.saturating_add_unsigned(step_ns));
        let asked: Vec<i64> = self.times.iter().copied().chain(end.filter(|_| method == Method::Rate)).collect();
        let mut readers = Vec::with_capacity(self.columns.len());
        for ((_, column), cursor) in self.columns.iter().zip(self.cursors) {
            readers.push(ColumnReader::new(column, &self.view, cursor, self.times)?);
        }
        for times in asked.chunks(self.stride.max(1)) {
            for reader in &mut readers {
                reader.read(times)?;
            }
        }
        let positions = self.columns.iter().map(|(at, _)| *at);
        positions.zip(readers).map(|(at, reader)| Ok((at, reader.finish(self.times.len())?))).collect()
    }
}

/// Reader of a column, from instant to instant.
struct ColumnReader<'a> {
    column: &'a GridColumn<'a>,
    view: &'a View,
    /// Whether each instant is looked up by itself.
    is_apart: bool,
    /// Whether values lie on lines between those that were recorded.
    swings: bool,
    cursor: Option<SampleCursor>,
    weigher: Option<Weigher>,
    values: Column,
    numbers: Vec<Option<f64>>,
}

impl<'a> ColumnReader<'a> {
    fn new(
        column: &'a GridColumn<'a>,
        view: &'a View,
        cursor: Option<SampleCursor>,
        times: &[i64],
    ) -> Result<ColumnReader<'a>, QueryError> {
        let GridRule { method, step_ns, tolerance_ns } = column.rule;
        let channel = column.channel;
        let pieces = WeighedPieces { time: column.grid.span_of(times), width_ns: step_ns, tolerance_ns };
        let weigher = match method.is_over_time() {
            true => Some(view.weigher(channel.stream.id, channel.index, pieces)?),
            false => None,
        };
        Ok(ColumnReader {
            column,
            view,
            is_apart: rows_within(view, channel, step_ns) > ROWS_APART,
            swings: channel.is_linear() && matches!(channel.channel().reduction, Reduction::SwingingDoor { .. }),
            cursor,
            weigher,
            values: Column::with_capacity(channel.channel_type(), times.len()),
            numbers: Vec::with_capacity(times.len() + 1),
        })
    }

    /// Reads the next instants.
    fn read(&mut self, times: &[i64]) -> Result<(), QueryError> {
        self.column.opening.check()?;
        let method = self.column.rule.method;
        if let Some(weigher) = &mut self.weigher {
            let number = |weight: &Weight| match method {
                Method::TimeMean => weight.time_mean(),
                _ => integral(weight),
            };
            self.numbers.extend(weigher.next(times.len())?.iter().map(number));
            return Ok(());
        }
        let (channel, tolerance_ns) = (self.column.channel, self.column.rule.tolerance_ns);
        for (n, time) in times.iter().copied().enumerate() {
            if n % INSTANTS_PER_CHECK == INSTANTS_PER_CHECK - 1 {
                self.column.opening.check()?;
            }
            if self.is_apart || self.cursor.is_none() {
                let to = if self.is_apart { time } else { self.column.grid.instants.span.end };
                let runs = self.view.samples(channel.stream.id, channel.index, time, to)?;
                self.cursor = runs.map(SampleCursor::new).transpose()?;
            }
            let Some(cursor) = &mut self.cursor else { break };
            let near = cursor.seek(time)?;
            match method {
                Method::Previous if self.swings => {
                    self.values.push(held(&near, time, tolerance_ns).and_then(|value| {
                        let Some(number) = on_line(&near, time, u64::MAX) else { return Some(value) };
                        of_number(number, channel.channel_type()).or(Some(value))
                    }));
                }
                Method::Previous => self.values.push(held(&near, time, tolerance_ns)),
                Method::Linear => self.numbers.push(on_line(&near, time, tolerance_ns)),
                _ => self.numbers.push(held(&near, time, tolerance_ns).and_then(|v| v.as_f64())),
            }
        }
        Ok(())
    }

    /// Returns the values at `count` instants, and the cursor for those that follow.
    fn finish(mut self, count: usize) -> Result<ColumnRead, QueryError> {
        let numbers: Float64Array = match self.column.rule.method {
            Method::Previous => {
                (self.values.values.len()..count).for_each(|_| self.values.push(None));
                return Ok((self.column.typed(self.values)?, self.cursor));
            }
            Method::Rate => {
                // The last value of these instants is the first of the next ones: it is read once more there.
                self.cursor = None;
                self.numbers.resize(count + 1, None);
                let step = seconds(self.column.rule.step_ns);
                let change = |pair: &[Option<f64>]| Some((finite(pair[1])? - finite(pair[0])?) / step);
                self.numbers.windows(2).map(change).collect()
            }
            Method::Linear => {
                self.numbers.resize(count, None);
                self.numbers.into_iter().map(number_of).collect()
            }
            _ => {
                self.numbers.resize(count, None);
                Float64Array::from(self.numbers)
            }
        };
        Ok((Arc::new(numbers), self.cursor))
    }
}
