//! `samples` and `asof`: the frames of channels in the order of time.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Builder, Int64Array, StringBuilder, new_null_array};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use strongback_store::{ChannelIndex, Column, NextFrame, OrderedFrames, OrderedScan, SampleCursor, Stream, StreamId};

use crate::error::QueryError;
use crate::system::state::put_text;
use crate::system::tables::{int8, micros};
use crate::table::column::{arrow_type, changed, channel_array, timestamp_type};
use crate::telemetry::arguments::{Arguments, ChosenChannel, invalid, must_be_written};
use crate::telemetry::grid::held;
use crate::telemetry::number::number_of;
use crate::telemetry::scan::{Call, Open, Opening, Reader, Step, schema};

/// Bytes of texts after which a batch ends.
const TEXT_BYTES: usize = 4 << 20;

/// Channels by stream.
pub(crate) struct Grouped {
    streams: Vec<Arc<Stream>>,
    /// For each stream the channels that are read, with the place of each among those chosen.
    pub(crate) channels: Vec<Vec<(ChannelIndex, usize)>>,
}

impl Grouped {
    pub(crate) fn of(chosen: &[ChosenChannel]) -> Grouped {
        let mut places: Vec<usize> = (0..chosen.len()).collect();
        places.sort_by_key(|place| (chosen[*place].stream.id, chosen[*place].index));
        let mut grouped = Grouped { streams: Vec::new(), channels: Vec::new() };
        for place in places {
            let ChosenChannel { stream, index, .. } = &chosen[place];
            if grouped.streams.last().is_none_or(|last| last.id != stream.id) {
                grouped.streams.push(stream.clone());
                grouped.channels.push(Vec::new());
            }
            grouped.channels.last_mut().into_iter().for_each(|all| all.push((*index, place)));
        }
        grouped
    }

    /// Reads the frames of the streams in a span of time.
    pub(crate) fn frames(&self, opening: &Opening, span: &Range<i64>) -> OrderedFrames {
        let columns = |all: &Vec<(ChannelIndex, usize)>| all.iter().map(|(index, _)| *index).collect();
        let streams: Vec<(StreamId, Vec<ChannelIndex>)> =
            self.streams.iter().zip(&self.channels).map(|(stream, all)| (stream.id, columns(all))).collect();
        OrderedFrames::new(&opening.view, &OrderedScan { time: span.clone(), ..OrderedScan::all(streams) })
    }
}

/// Looks for the next frame. Returns `None` if it is not known yet.
pub(crate) fn next_of(frames: &mut OrderedFrames) -> Result<Option<NextFrame>, QueryError> {
    let next = frames.peek(i64::MAX)?;
    if let Some((_, error)) = frames.take_troubles().into_iter().next() {
        return Err(error.into());
    }
    Ok(Some(next).filter(|next| *next != NextFrame::Unsure))
}

/// Reads the arguments of `samples`.
pub(crate) fn samples(arguments: &Arguments<'_>) -> Call {
    let schema = schema([
        ("channel", DataType::Utf8),
        ("time", timestamp_type()),
        ("time_ns", DataType::Int64),
        ("value", DataType::Utf8),
        ("number", DataType::Float64),
    ]);
    let open = || -> Result<Box<Open>, QueryError> {
        let (channels, span) = (Arc::new(arguments.channels(0, false)?), arguments.span(1)?);
        Ok(Box::new(move |opening| {
            let grouped = Grouped::of(&channels);
            let frames = grouped.frames(&opening, &span);
            Ok(Box::new(SamplesReader { opening, channels: channels.clone(), grouped, frames }))
        }))
    };
    Call { open: open(), schema, ascending: &["time", "time_ns"] }
}

struct SamplesReader {
    opening: Opening,
    channels: Arc<Vec<ChosenChannel>>,
    grouped: Grouped,
    frames: OrderedFrames,
}

impl Reader for SamplesReader {
    fn step(&mut self) -> Result<Step, QueryError> {
        let (mut names, mut values, mut numbers) = (StringBuilder::new(), StringBuilder::new(), Float64Builder::new());
        let (mut times, mut value) = (Vec::new(), String::new());
        let wants_text = self.opening.wanted[3];
        while times.len() < self.opening.batch_rows && values.values_slice().len() < TEXT_BYTES {
            match next_of(&mut self.frames)? {
                Some(NextFrame::At(_)) => {}
                Some(_) if times.is_empty() => return Ok(Step::End),
                None if times.is_empty() => return Ok(Step::More),
                _ => break,
            }
            let Some(frame) = self.frames.frame() else { break };
            for (column, (_, place)) in frame.batch.columns.iter().zip(&self.grouped.channels[frame.stream]) {
                let Ok(cell) = column.cell(frame.row) else { continue };
                names.append_value(&self.channels[*place].name);
                times.push(frame.position.time);
                value.clear();
                if wants_text {
                    put_text(&mut value, cell);
                }
                values.append_value(&value);
                numbers.append_option(number_of(cell.as_f64()));
            }
            self.frames.advance();
        }
        Ok(Step::Rows(vec![
            Arc::new(names.finish()),
            micros(times.iter().copied().map(Some)),
            Arc::new(Int64Array::from(times)),
            Arc::new(values.finish()),
            Arc::new(numbers.finish()),
        ]))
    }
}

/// Reads the arguments of `asof`.
pub(crate) fn asof(arguments: &Arguments<'_>) -> Result<Call, QueryError> {
    let written = |error| must_be_written(error, "channels and others", "asof");
    let channels = arguments.channels(0, false).map_err(written)?;
    let mut others = arguments.channels(1, false).map_err(written)?;
    others.retain(|other| channels.iter().all(|channel| channel.name != other.name));
    if others.is_empty() {
        return Err(invalid("others of asof are the same channels as channels"));
    }
    let fixed = [("time".to_owned(), timestamp_type()), ("time_ns".to_owned(), DataType::Int64)];
    let of_channels = channels.iter().chain(&others).map(|c| (c.name.clone(), arrow_type(c.channel_type())));
    let schema = schema(fixed.into_iter().chain(of_channels));
    let open = || -> Result<Box<Open>, QueryError> {
        let (span, tolerance_ns) = (arguments.span(2)?, arguments.tolerance_ns(4)?);
        let of = schema.clone();
        let (channels, others) = (Arc::new(channels), Arc::new(others));
        Ok(Box::new(move |opening| {
            let grouped = Grouped::of(&channels);
            let frames = grouped.frames(&opening, &span);
            let mut cursors = Vec::with_capacity(others.len());
            for (at, other) in others.iter().enumerate() {
                cursors.push(match opening.wanted[2 + channels.len() + at] {
                    true => opening.cursor(other, span.start, span.end)?,
                    false => None,
                });
            }
            Ok(Box::new(AsofReader {
                opening,
                schema: of.clone(),
                channels: channels.clone(),
                others: others.clone(),
                grouped,
                frames,
                cursors,
                tolerance_ns,
            }))
        }))
    };
    Ok(Call { open: open(), schema: schema.clone(), ascending: &["time", "time_ns"] })
}

struct AsofReader {
    opening: Opening,
    schema: SchemaRef,
    channels: Arc<Vec<ChosenChannel>>,
    others: Arc<Vec<ChosenChannel>>,
    grouped: Grouped,
    frames: OrderedFrames,
    cursors: Vec<Option<SampleCursor>>,
    tolerance_ns: u64,
}

impl Reader for AsofReader {
    fn step(&mut self) -> Result<Step, QueryError> {
        self.opening.check()?;
        let all = self.channels.iter().chain(self.others.iter());
        let mut columns: Vec<Column> = all.map(|channel| Column::with_capacity(channel.channel_type(), 0)).collect();
        let mut times: Vec<i64> = Vec::new();
        let mut bytes = 0;
        while times.len() < self.opening.batch_rows && bytes < TEXT_BYTES {
            match next_of(&mut self.frames)? {
                Some(NextFrame::At(_)) => {}
                Some(_) if times.is_empty() => return Ok(Step::End),
                None if times.is_empty() => return Ok(Step::More),
                _ => break,
            }
            let Some(frame) = self.frames.frame() else { break };
            let read = || frame.batch.columns.iter().zip(&self.grouped.channels[frame.stream]);
            if read().any(|(column, _)| column.cell(frame.row).is_ok()) {
                let row = times.len();
                times.push(frame.position.time);
                for (column, (_, place)) in read() {
                    columns[*place].push(column.cell(frame.row).ok());
                }
                for (column, cursor) in columns[self.channels.len()..].iter_mut().zip(&mut self.cursors) {
                    let Some(cursor) = cursor else { continue };
                    let near = cursor.seek(frame.position.time)?;
                    column.push(held(&near, frame.position.time, self.tolerance_ns));
                }
                // Channels of other streams.
                for column in &mut columns {
                    if column.values.len() == row {
                        column.push(None);
                    }
                }
                bytes = columns.iter().map(|column| column.values.varying_bytes()).sum();
            }
            self.frames.advance();
        }
        let mut arrays: Vec<ArrayRef> =
            vec![micros(times.iter().copied().map(Some)), int8(times.iter().copied().map(Some))];
        for (column, channel) in columns.iter().zip(self.channels.iter().chain(self.others.iter())) {
            let kind = self.schema.field(arrays.len()).data_type();
            arrays.push(match self.opening.wanted[arrays.len()] {
                true => channel_array(column, channel.channel_type()).ok_or_else(|| changed(&channel.name))?,
                false => new_null_array(kind, times.len()),
            });
        }
        Ok(Step::Rows(arrays))
    }
}
