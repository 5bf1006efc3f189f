//! Frames of one table on their way into files: one file per day, sorted by stream and time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray, new_null_array};
use datafusion::arrow::compute::{cast, interleave};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use strongback_store::{Batch, ChannelIndex, Stream};

use crate::lake::book::{Book, BookColumn};
use crate::table::column::{ColumnSource, TableColumn, batch_array, channel_array, is_fixed};

/// Columns of frames that SQL tables do not have: the stream with the origin of its store, and the row in it.
pub(crate) const STREAM: &str = "strongback_stream";
pub(crate) const ROW: &str = "strongback_row";

/// Nanoseconds of a day.
const DAY_NS: i64 = 86_400_000_000_000;
/// Cells of a batch that is handed to the Parquet writer, and its maximum of rows.
const BATCH_CELLS: usize = 512 << 10;
const BATCH_ROWS: usize = 64 << 10;

/// Consecutive frames of a stream.
#[derive(Clone, Copy, Debug)]
pub struct LakeFrames<'a> {
    /// Stream.
    pub stream: &'a Arc<Stream>,
    /// Channels, in the order of the batch's columns.
    pub channels: &'a [ChannelIndex],
    /// Frames, at least one.
    pub batch: &'a Batch,
}

/// Frames of a stream, converted.
struct Part<'a> {
    frames: &'a LakeFrames<'a>,
    /// Columns by their positions in the book.
    arrays: BTreeMap<usize, ArrayRef>,
}

/// A row in the order of a file.
struct Entry {
    day: i64,
    /// Place of the stream in the order of their names.
    stream: u32,
    time: i64,
    part: u32,
    row: u32,
}

/// Frames of a table, converted and sorted.
pub(crate) struct TableFrames<'a> {
    parts: Vec<Part<'a>>,
    entries: Vec<Entry>,
    /// Positions in the book of the columns that any part has.
    columns: Vec<usize>,
}

/// Returns the day of a time, in days since 1970.
pub(crate) fn day_of(time_ns: i64) -> i64 {
    time_ns.div_euclid(DAY_NS)
}

/// Returns the name of a stream that no stream of another store has.
pub(crate) fn stream_name(origin: u128, stream: &Stream) -> String {
    format!("{:08x}-{}", origin as u32, stream.id.0)
}

impl<'a> TableFrames<'a> {
    /// Converts frames of a table with these columns in SQL, and notes in the book what it lacks.
    ///
    /// # Errors
    /// Returns an error in words if the book has no place for values.
    pub(crate) fn new(
        frames: &'a [LakeFrames<'a>],
        columns: &[TableColumn],
        origin: u128,
        book: &mut Book,
    ) -> Result<TableFrames<'a>, String> {
        let parts =
            frames.iter().map(|frames| Part::new(frames, columns, origin, book)).collect::<Result<Vec<_>, _>>()?;
        let mut names: Vec<(String, u32)> =
            frames.iter().map(|frames| (stream_name(origin, frames.stream), frames.stream.id.0)).collect();
        names.sort_unstable();
        names.dedup();
        let mut places: BTreeMap<u32, u32> = BTreeMap::new();
        places.extend(names.iter().enumerate().map(|(place, (_, id))| (*id, place as u32)));
        let mut entries = Vec::with_capacity(frames.iter().map(|frames| frames.batch.len()).sum());
        for (part, frames) in frames.iter().enumerate() {
            let stream = places.get(&frames.stream.id.0).copied().unwrap_or_default();
            for (row, time) in frames.batch.times().into_iter().enumerate() {
                entries.push(Entry { day: day_of(time), stream, time, part: part as u32, row: row as u32 });
            }
        }
        // Stable, so rows of one stream and time stay in their order; what is sorted already costs little.
        entries.sort_by_key(|entry| (entry.day, entry.stream, entry.time));
        let mut columns: Vec<usize> = parts.iter().flat_map(|part| part.arrays.keys().copied()).collect();
        columns.sort_unstable();
        columns.dedup();
        Ok(TableFrames { parts, entries, columns })
    }

    /// Returns the days, and the entries of each.
    pub(crate) fn days(&self) -> Vec<(i64, Range<usize>)> {
        let mut days: Vec<(i64, Range<usize>)> = Vec::new();
        for (at, entry) in self.entries.iter().enumerate() {
            match days.last_mut() {
                Some((day, entries)) if *day == entry.day => entries.end = at + 1,
                _ => days.push((entry.day, at..at + 1)),
            }
        }
        days
    }

    /// Returns the columns.
    pub(crate) fn columns<'b>(&'b self, book: &'b Book) -> impl Iterator<Item = &'b BookColumn> {
        self.columns.iter().map(|at| &book.columns()[*at])
    }

    /// Returns the first and the last time of entries.
    pub(crate) fn time_range(&self, entries: Range<usize>) -> (i64, i64) {
        let times = || self.entries[entries.clone()].iter().map(|entry| entry.time);
        (times().min().unwrap_or(0), times().max().unwrap_or(0))
    }

    /// Returns for each stream of entries: its id, first row, last row, and number of rows.
    pub(crate) fn streams(&self, entries: Range<usize>) -> Vec<(u32, u64, u64, u64)> {
        let mut streams: BTreeMap<u32, (u64, u64, u64)> = BTreeMap::new();
        for entry in &self.entries[entries] {
            let frames = self.parts[entry.part as usize].frames;
            let row = frames.batch.rows[entry.row as usize];
            let all = streams.entry(frames.stream.id.0).or_insert((row, row, 0));
            *all = (all.0.min(row), all.1.max(row), all.2 + 1);
        }
        streams.into_iter().map(|(stream, (first, last, rows))| (stream, first, last, rows)).collect()
    }

    /// Returns the batches of a file with these entries.
    pub(crate) fn batches(
        &self,
        entries: Range<usize>,
        book: &Book,
    ) -> impl Iterator<Item = Result<RecordBatch, String>> {
        let schema: SchemaRef = Arc::new(Schema::new(self.columns(book).map(BookColumn::field).collect::<Vec<_>>()));
        let rows = (BATCH_CELLS / self.columns.len().max(1)).clamp(64, BATCH_ROWS);
        entries.clone().step_by(rows).map(move |start| self.batch(start..entries.end.min(start + rows), schema.clone()))
    }

    fn batch(&self, entries: Range<usize>, schema: SchemaRef) -> Result<RecordBatch, String> {
        let entries = &self.entries[entries];
        let arrays = self.columns.iter().zip(schema.fields()).map(|(column, field)| {
            // The first array is a NULL, for parts without the column.
            let null = new_null_array(field.data_type(), 1);
            let mut sources: Vec<&dyn Array> = vec![&null];
            let mut known: Vec<Option<usize>> = vec![None; self.parts.len()];
            let rows: Vec<(usize, usize)> = entries
                .iter()
                .map(|entry| match self.parts[entry.part as usize].arrays.get(column) {
                    None => (0, 0),
                    Some(array) => {
                        let source = known[entry.part as usize].get_or_insert_with(|| {
                            sources.push(array);
                            sources.len() - 1
                        });
                        (*source, entry.row as usize)
                    }
                })
                .collect();
            interleave(&sources, &rows).map_err(|error| error.to_string())
        });
        let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(schema, arrays).map_err(|error| error.to_string())
    }
}

impl<'a> Part<'a> {
    fn new(
        frames: &'a LakeFrames<'a>,
        columns: &[TableColumn],
        origin: u128,
        book: &mut Book,
    ) -> Result<Part<'a>, String> {
        let LakeFrames { stream, channels, batch } = *frames;
        let mut arrays = BTreeMap::new();
        let mut place = |of: &str, array: ArrayRef, required: bool| {
            let at = book.place(of, array.data_type(), required);
            let at =
                at.ok_or_else(|| format!("column {of:?} has a type that is not in files: {}", array.data_type()))?;
            let data_type = book.columns()[at].data_type();
            let array = if *array.data_type() == data_type { Ok(array) } else { cast(&array, &data_type) };
            arrays.insert(at, array.map_err(|error| format!("column {of:?}: {error}"))?);
            Ok::<(), String>(())
        };
        let fixed = columns.iter().filter(|column| is_fixed(&column.name));
        for column in fixed {
            let array = batch_array(column, batch, stream, None).map_err(|error| error.to_string())?;
            place(&column.name, array, !column.nullable())?;
        }
        let name = stream_name(origin, stream);
        place(STREAM, Arc::new(StringArray::from(vec![name.as_str(); batch.len()])), true)?;
        let rows = batch.rows.iter().map(|row| *row as i64);
        place(ROW, Arc::new(Int64Array::from_iter_values(rows)), true)?;
        for column in columns {
            match &column.source {
                ColumnSource::Tag(tag) => {
                    if let Some(value) = stream.key.tag(tag) {
                        place(&column.name, Arc::new(StringArray::from(vec![value; batch.len()])), false)?;
                    }
                }
                ColumnSource::Channel { .. } => {
                    let index = column.channel(stream.id);
                    let Some(at) = index.and_then(|index| channels.iter().position(|other| *other == index)) else {
                        continue;
                    };
                    let values = &batch.columns[at];
                    let array = channel_array(values, values.values.channel_type());
                    let array = array.ok_or_else(|| format!("column {:?} cannot be converted", column.name))?;
                    place(&column.name, array, false)?;
                }
                _ => {}
            }
        }
        Ok(Part { frames, arrays })
    }
}
