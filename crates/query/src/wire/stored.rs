//! Encodes rows of a store batch as messages, many at a time if the length of every cell is known without its value:
//! binary numbers and times, tags, NULL for a channel that the stream does not have. Other rows are written cell by cell.

use bytes::BytesMut;
use strongback_store::{ChannelType, ColumnValues};

use super::encode::{EPOCH_2000_US, put_store};
use super::message::{RowForm, put_row};
use super::template::{Cells, ColumnPlaces, RowTemplate};
use crate::error::QueryError;
use crate::table::column::{ColumnSource, FrameTime, changed, floor_micros};
use crate::table::merge::{Run, StoredRows};

impl RowTemplate {
    /// Creates a template, or returns `None` if the length of any cell depends on its row.
    pub(crate) fn of(from: StoredRows<'_>, form: &RowForm) -> Option<RowTemplate> {
        RowTemplate::of_cells(form, from.columns.len(), |column, binary| from.cells(column, binary))
    }

    /// Appends rows of the batch for which the template was made.
    pub(crate) fn put(&self, out: &mut BytesMut, from: StoredRows<'_>, run: &Run) {
        self.put_columns(out, run, |column, cells| from.put_column(column, cells));
    }
}

impl<'a> StoredRows<'a> {
    fn cells(&self, column: usize, binary: bool) -> Cells<'a> {
        let number = |size| if binary { Cells::OfBytes(size) } else { Cells::Unknown };
        match &self.columns[column].source {
            ColumnSource::Micros(FrameTime::Source) | ColumnSource::Nanos(FrameTime::Source) => {
                match &self.batch.source_time {
                    None => Cells::Same(None),
                    Some(times) if times.valid.is_none() => number(8),
                    Some(_) => Cells::Unknown,
                }
            }
            ColumnSource::Micros(_) | ColumnSource::Nanos(_) => number(8),
            ColumnSource::Sequence => match &self.batch.sequence {
                None => Cells::Same(None),
                Some(sequence) if sequence.valid.is_none() => number(8),
                Some(_) => Cells::Unknown,
            },
            ColumnSource::Tag(tag) => Cells::Same(self.stream.key.tag(tag).map(str::as_bytes)),
            ColumnSource::Channel { channel_type, .. } => {
                let Some(position) = self.positions[column] else { return Cells::Same(None) };
                let cells = &self.batch.columns[position];
                if cells.states.is_some() || cells.values.channel_type() != *channel_type {
                    return Cells::Unknown;
                }
                match channel_type {
                    ChannelType::Bool => number(1),
                    ChannelType::I8 | ChannelType::I16 | ChannelType::U8 => number(2),
                    ChannelType::I32 | ChannelType::U16 | ChannelType::F32 => number(4),
                    ChannelType::I64 | ChannelType::U32 | ChannelType::F64 => number(8),
                    ChannelType::U64 | ChannelType::String | ChannelType::Blob | ChannelType::Array(_) => {
                        Cells::Unknown
                    }
                }
            }
        }
    }

    /// Writes the cells of a column for which [`StoredRows::cells`] returned a size.
    fn put_column(&self, column: usize, places: ColumnPlaces<'_>) {
        let batch = self.batch;
        let micros = |time_ns: i64| floor_micros(time_ns).saturating_sub(EPOCH_2000_US).to_be_bytes();
        match &self.columns[column].source {
            ColumnSource::Micros(which) => match self.times(*which) {
                Some(times) => places.put(|row| micros(times[row])),
                None => places.put(|row| micros(batch.time(row))),
            },
            ColumnSource::Nanos(which) => match self.times(*which) {
                Some(times) => places.put(|row| times[row].to_be_bytes()),
                None => places.put(|row| batch.time(row).to_be_bytes()),
            },
            ColumnSource::Sequence => {
                let Some(sequence) = &batch.sequence else { return };
                places.put(|row| sequence.values[row].to_be_bytes());
            }
            ColumnSource::Tag(_) => {}
            ColumnSource::Channel { .. } => {
                let Some(position) = self.positions[column] else { return };
                match &batch.columns[position].values {
                    ColumnValues::Bool(v) => places.put(|row| [u8::from(v[row])]),
                    ColumnValues::I8(v) => places.put(|row| i16::from(v[row]).to_be_bytes()),
                    ColumnValues::I16(v) => places.put(|row| v[row].to_be_bytes()),
                    ColumnValues::U8(v) => places.put(|row| i16::from(v[row]).to_be_bytes()),
                    ColumnValues::I32(v) => places.put(|row| v[row].to_be_bytes()),
                    ColumnValues::U16(v) => places.put(|row| i32::from(v[row]).to_be_bytes()),
                    ColumnValues::F32(v) => places.put(|row| v[row].to_be_bytes()),
                    ColumnValues::I64(v) => places.put(|row| v[row].to_be_bytes()),
                    ColumnValues::U32(v) => places.put(|row| i64::from(v[row]).to_be_bytes()),
                    ColumnValues::F64(v) => places.put(|row| v[row].to_be_bytes()),
                    ColumnValues::U64(_) | ColumnValues::String { .. } | ColumnValues::Array { .. } => {}
                }
            }
        }
    }

    /// Returns the times of all rows, if they are contiguous.
    fn times(&self, which: FrameTime) -> Option<&'a [i64]> {
        let source = self.batch.source_time.as_ref();
        match which {
            FrameTime::Receive => Some(&self.batch.receive_time),
            FrameTime::Source => Some(&source?.values),
            FrameTime::Time if !self.batch.source_clock => Some(&self.batch.receive_time),
            FrameTime::Time => match source {
                None => Some(&self.batch.receive_time),
                Some(times) if times.valid.is_none() => Some(&times.values),
                Some(_) => None,
            },
        }
    }

    /// Appends rows cell by cell.
    ///
    /// # Errors
    /// If the catalog changed so that a value no longer fits its column.
    pub(crate) fn put_rows(&self, out: &mut BytesMut, run: &Run, form: &RowForm) -> Result<(), QueryError> {
        for row in run.each() {
            let write = |out: &mut BytesMut| self.put_cells(out, row, |column| form.formats.binary(column));
            put_row(out, form.tag, self.columns.len(), write)?;
        }
        Ok(())
    }

    /// Appends the cells of a row, each with its length.
    ///
    /// # Errors
    /// Same as [`StoredRows::put_rows`].
    pub(crate) fn put_cells(
        &self,
        out: &mut BytesMut,
        row: usize,
        binary: impl Fn(usize) -> bool,
    ) -> Result<(), QueryError> {
        for (index, (column, position)) in self.columns.iter().zip(self.positions).enumerate() {
            if !put_store(out, column, self.batch, self.stream, *position, row, binary(index)) {
                return Err(changed(&column.name));
            }
        }
        Ok(())
    }
}
