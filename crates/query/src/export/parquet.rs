//! Exports to Parquet. Row groups are written as they fill, so that memory stays bounded.

use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::{Compression, Encoding};
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use ::parquet::schema::types::ColumnPath;
use datafusion::arrow::array::{
    ArrayRef, BooleanBuilder, DictionaryArray, Float32Builder, Float64Builder, Int8Builder, Int16Builder, Int32Builder,
    Int64Builder, ListArray, PrimitiveArray, RecordBatch, StringArray, StringBuilder, TimestampNanosecondBuilder,
    UInt8Builder, UInt16Builder, UInt32Builder, UInt64Builder,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef, TimeUnit};
use parking_lot::Mutex;
use strongback_store::text::FrameColumns;
use strongback_store::{Batch, ChannelType, Column, ColumnValues, Value};

use super::RowWriter;
use super::quality::Qualities;
use crate::error::{QueryError, sqlstate};
use crate::system::GapRow;
use crate::table::column::changed;

/// Columns before those of the channels.
const LEAD_COLUMNS: usize = 3;

/// Maximum cells in a batch handed to the writer.
const BATCH_CELLS: usize = 256 << 10;
/// Maximum cells in a row group.
const GROUP_CELLS: usize = 4 << 20;
/// Maximum bytes of text in a batch, and in a row group.
const BATCH_TEXT_BYTES: usize = 8 << 20;
const GROUP_TEXT_BYTES: usize = 64 << 20;

/// Buffer of the writer's output until it is sent.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writer of rows to a Parquet file.
pub(super) struct ParquetRows {
    writer: ArrowWriter<Sink>,
    sink: Sink,
    schema: SchemaRef,
    times: TimestampNanosecondBuilder,
    /// Names of streams, and for each row the index of its stream.
    names: Arc<StringArray>,
    streams: Vec<i32>,
    gaps: StringBuilder,
    columns: FrameColumns,
    channels: Vec<Builder>,
    qualities: Qualities,
    /// Columns of the qualities.
    quality_columns: Vec<StringBuilder>,
    /// Number of rows in the builders.
    rows: usize,
    /// Number of cells in the builders, counting array elements, and in the row group.
    cells: usize,
    group_cells: usize,
    /// Bytes of text in the builders, and in the row group.
    text_bytes: usize,
    group_text_bytes: usize,
}

fn failed(error: impl std::fmt::Display) -> QueryError {
    QueryError::new(sqlstate::INTERNAL_ERROR, format!("Parquet: {error}"))
}

impl ParquetRows {
    pub(super) fn new(columns: FrameColumns, qualities: Qualities) -> Result<Self, QueryError> {
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let mut fields = vec![
            Field::new("time", DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), false),
            Field::new("stream", dictionary, false),
            Field::new("gap", DataType::Utf8, true),
        ];
        let mut channels = Vec::with_capacity(columns.all.len());
        for column in &columns.all {
            let channel = column.channel();
            let builder = Builder::new(channel.channel_type);
            let metadata = HashMap::from([
                ("unit".to_owned(), channel.unit.clone()),
                ("description".to_owned(), channel.description.clone()),
            ]);
            fields.push(Field::new(&column.name, builder.data_type(), true).with_metadata(metadata));
            channels.push(builder);
        }
        fields.extend(qualities.channels().map(|c| Field::new(format!("{c}_quality"), DataType::Utf8, true)));
        let schema = Arc::new(Schema::new(fields));
        let about = KeyValue::new("strongback.channels".to_owned(), columns.describe());
        // Times hardly repeat, so a dictionary of them saves nothing.
        let time = ColumnPath::from("time");
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_column_dictionary_enabled(time.clone(), false)
            .set_column_encoding(time, Encoding::DELTA_BINARY_PACKED)
            .set_key_value_metadata(Some(vec![about]))
            .build();
        let sink = Sink::default();
        let writer = ArrowWriter::try_new(sink.clone(), schema.clone(), Some(properties)).map_err(failed)?;
        Ok(ParquetRows {
            writer,
            sink,
            schema,
            times: TimestampNanosecondBuilder::new().with_timezone("UTC"),
            // The last name is that of rows that concern all streams.
            names: Arc::new(columns.streams.iter().map(|of| Some(of.name.as_str())).chain([Some("")]).collect()),
            streams: Vec::new(),
            gaps: StringBuilder::new(),
            columns,
            channels,
            quality_columns: (0..qualities.len()).map(|_| StringBuilder::new()).collect(),
            qualities,
            rows: 0,
            cells: 0,
            group_cells: 0,
            text_bytes: 0,
            group_text_bytes: 0,
        })
    }

    fn write_batch(&mut self) -> Result<(), QueryError> {
        if self.rows == 0 {
            return Ok(());
        }
        let streams = PrimitiveArray::<Int32Type>::from(std::mem::take(&mut self.streams));
        let streams = DictionaryArray::try_new(streams, self.names.clone()).map_err(failed)?;
        let mut arrays: Vec<ArrayRef> =
            vec![Arc::new(self.times.finish()), Arc::new(streams), Arc::new(self.gaps.finish())];
        arrays.extend(self.channels.iter_mut().map(Builder::finish));
        arrays.extend(self.quality_columns.iter_mut().map(|column| -> ArrayRef { Arc::new(column.finish()) }));
        let batch = RecordBatch::try_new(self.schema.clone(), arrays).map_err(failed)?;
        self.writer.write(&batch).map_err(failed)?;
        self.group_cells += std::mem::take(&mut self.cells);
        self.group_text_bytes += std::mem::take(&mut self.text_bytes);
        self.rows = 0;
        if self.group_cells >= GROUP_CELLS || self.group_text_bytes >= GROUP_TEXT_BYTES {
            self.writer.flush().map_err(failed)?;
            (self.group_cells, self.group_text_bytes) = (0, 0);
        }
        Ok(())
    }

    /// Appends rows of a batch to the builders.
    fn append(&mut self, stream: usize, batch: &Batch, rows: Range<usize>) -> Result<(), QueryError> {
        let (count, first) = (rows.len(), self.columns.streams[stream].first);
        rows.clone().for_each(|row| self.times.append_value(batch.time(row)));
        self.streams.extend(std::iter::repeat_n(stream as i32, count));
        self.gaps.append_nulls(count);
        for (at, builder) in self.channels.iter_mut().enumerate() {
            let column = at.checked_sub(first).and_then(|at| batch.columns.get(at));
            let Some(column) = column else {
                builder.append_nulls(count);
                continue;
            };
            if !builder.append_rows(column, rows.clone()) {
                return Err(changed(self.schema.field(at + LEAD_COLUMNS).name()));
            }
            for row in rows.clone().filter(|_| column.values.varying_bytes() > 0) {
                match column.cell(row) {
                    Ok(Value::Array(array)) => self.cells += array.len(),
                    Ok(Value::String(text)) => self.text_bytes += text.len(),
                    _ => {}
                }
            }
        }
        for row in rows.filter(|_| self.qualities.len() > 0) {
            let qualities = self.qualities.of_row(stream, batch, row);
            let columns = self.quality_columns.iter_mut().zip(qualities);
            columns.for_each(|(column, quality)| column.append_option(quality));
        }
        self.count(count)
    }

    /// Counts rows that were appended, and writes a batch once it is full.
    fn count(&mut self, rows: usize) -> Result<(), QueryError> {
        self.rows += rows;
        self.cells += rows * (self.channels.len() + self.quality_columns.len());
        if self.cells >= BATCH_CELLS || self.text_bytes >= BATCH_TEXT_BYTES {
            self.write_batch()?;
        }
        Ok(())
    }
}

impl RowWriter for ParquetRows {
    fn frames(&mut self, stream: usize, batch: &Batch, rows: Range<usize>) -> Result<(), QueryError> {
        let width = self.channels.len() + self.quality_columns.len();
        // Texts and arrays are counted one by one.
        let has_any_length = batch.varying_bytes() > 0;
        let mut rest = rows;
        while !rest.is_empty() {
            let room = BATCH_CELLS.saturating_sub(self.cells) / width.max(1);
            let most = if has_any_length { 1 } else { room.max(1) };
            let part = rest.start..rest.end.min(rest.start.saturating_add(most));
            rest.start = part.end;
            self.append(stream, batch, part)?;
        }
        Ok(())
    }

    fn gap(&mut self, gap: &GapRow) -> Result<(), QueryError> {
        self.times.append_value(gap.from_time_ns);
        let known = self.columns.streams.iter().position(|of| gap.stream == Some(of.stream.id));
        self.streams.push(known.unwrap_or(self.columns.streams.len()) as i32);
        self.gaps.append_value(match gap.words.as_str() {
            "" => format!("{} frames missing", gap.open),
            words => words.to_owned(),
        });
        for builder in &mut self.channels {
            builder.append(None);
        }
        self.quality_columns.iter_mut().for_each(StringBuilder::append_null);
        self.count(1)
    }

    fn rows_max(&self) -> usize {
        usize::MAX
    }

    // Row groups are complete before they are written.
    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut *self.sink.0.lock())
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<u8>, QueryError> {
        self.write_batch()?;
        let sink = self.sink.clone();
        self.writer.close().map_err(failed)?;
        Ok(std::mem::take(&mut *sink.0.lock()))
    }
}

/// Builder of an array column.
struct ListOf {
    elements: Box<Builder>,
    lengths: Vec<usize>,
    valid: Vec<bool>,
}

impl ListOf {
    fn new(element: ChannelType) -> ListOf {
        ListOf { elements: Box::new(Builder::new(element)), lengths: Vec::new(), valid: Vec::new() }
    }

    fn field(&self) -> Arc<Field> {
        Arc::new(Field::new_list_field(self.elements.data_type(), true))
    }

    fn append(&mut self, cell: Option<Value<'_>>) -> bool {
        let length = match cell {
            None => 0,
            Some(Value::Array(array)) => {
                if !array.iter().all(|element| self.elements.append(Some(element))) {
                    return false;
                }
                array.len()
            }
            Some(_) => return false,
        };
        self.lengths.push(length);
        self.valid.push(cell.is_some());
        true
    }

    fn finish(&mut self) -> ArrayRef {
        let (field, elements) = (self.field(), self.elements.finish());
        let offsets = OffsetBuffer::from_lengths(self.lengths.drain(..));
        let nulls = NullBuffer::from(std::mem::take(&mut self.valid));
        Arc::new(ListArray::new(field, offsets, elements, Some(nulls)))
    }
}

macro_rules! builders {
    ($($variant:ident: $builder:ident, $data_type:expr;)*) => {
        /// Builder of a column of one channel type.
        enum Builder {
            $($variant($builder),)*
            String(StringBuilder),
            List(ListOf),
        }

        impl Builder {
            fn new(channel_type: ChannelType) -> Self {
                match channel_type {
                    $(ChannelType::$variant => Builder::$variant($builder::new()),)*
                    ChannelType::String | ChannelType::Blob => Builder::String(StringBuilder::new()),
                    ChannelType::Array(array) => Builder::List(ListOf::new(array.element().channel_type())),
                }
            }

            fn data_type(&self) -> DataType {
                match self {
                    $(Builder::$variant(_) => $data_type,)*
                    Builder::String(_) => DataType::Utf8,
                    Builder::List(list) => DataType::List(list.field()),
                }
            }

            /// Appends NULLs.
            fn append_nulls(&mut self, count: usize) {
                match self {
                    $(Builder::$variant(builder) => builder.append_nulls(count),)*
                    Builder::String(builder) => builder.append_nulls(count),
                    Builder::List(list) => (0..count).for_each(|_| _ = list.append(None)),
                }
            }

            /// Appends rows of a column. Returns `false` if a value does not fit the type.
            fn append_rows(&mut self, column: &Column, rows: Range<usize>) -> bool {
                match (self, &column.values, &column.states) {
                    $((Builder::$variant(builder), ColumnValues::$variant(values), None) => {
                        builder.append_slice(&values[rows]);
                        true
                    })*
                    (builder, ..) => rows.into_iter().all(|row| builder.append(column.cell(row).ok())),
                }
            }

            /// Appends a value or NULL. Returns `false` if the value does not fit the type.
            fn append(&mut self, cell: Option<Value<'_>>) -> bool {
                match self {
                    $(Builder::$variant(builder) => match cell.map(|v| v.convert(ChannelType::$variant)) {
                        None => builder.append_null(),
                        Some(Some(Value::$variant(value))) => builder.append_value(value),
                        Some(_) => return false,
                    },)*
                    Builder::String(builder) => match cell {
                        None => builder.append_null(),
                        Some(Value::String(text)) => builder.append_value(text),
                        Some(Value::Blob(blob)) => builder.append_value(blob.to_string()),
                        Some(_) => return false,
                    },
                    Builder::List(list) => return list.append(cell),
                }
                true
            }

            fn finish(&mut self) -> ArrayRef {
                match self {
                    $(Builder::$variant(builder) => Arc::new(builder.finish()),)*
                    Builder::String(builder) => Arc::new(builder.finish()),
                    Builder::List(list) => list.finish(),
                }
            }
        }
    };
}

builders! {
    Bool: BooleanBuilder, DataType::Boolean;
    I8: Int8Builder, DataType::Int8;
    I16: Int16Builder, DataType::Int16;
    I32: Int32Builder, DataType::Int32;
    I64: Int64Builder, DataType::Int64;
    U8: UInt8Builder, DataType::UInt8;
    U16: UInt16Builder, DataType::UInt16;
    U32: UInt32Builder, DataType::UInt32;
    U64: UInt64Builder, DataType::UInt64;
    F32: Float32Builder, DataType::Float32;
    F64: Float64Builder, DataType::Float64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongback_store::{
        ChannelIndex, ChannelSpec, Clock, FixedOptions, FrameBatch, FrameHead, MemoryRegion, Scan, Store, StoreOptions,
        StreamKey, StreamSpec,
    };

    const T0: i64 = 1_790_000_000_000_000_000;
    const TEXT_BYTES: usize = 32 << 10;

    #[test]
    fn long_texts_fill_a_batch_and_a_row_group_as_many_cells_do() {
        let region = MemoryRegion::new(64 << 20);
        let fixed = FixedOptions { log_bytes: Some(16 << 20), ..FixedOptions::new(64 << 20) };
        let store = Store::in_memory(&region, &fixed, StoreOptions::default(), T0).unwrap();
        let spec = StreamSpec {
            key: StreamKey::new("t", []),
            source: "test".into(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: vec![ChannelSpec::new("x", ChannelType::String)],
        };
        let stream = store.resolve(&spec, T0).unwrap().0;
        let mut frames = FrameBatch::new();
        frames.begin(FrameHead { stream: stream.id, receive_time: T0, source_time: None, sequence: None });
        frames.push(ChannelIndex(0), Value::String(&"x".repeat(TEXT_BYTES)));
        frames.end();
        store.append(&frames, T0);
        let batch = store.view().scan(Scan::all(stream.id, vec![ChannelIndex(0)])).next().unwrap().unwrap();
        let columns = FrameColumns::new(&[(stream.clone(), vec![ChannelIndex(0)])]);
        let mut rows = ParquetRows::new(columns.clone(), Qualities::default()).unwrap();
        let mut batches = 0;
        for row in 1..=GROUP_TEXT_BYTES / TEXT_BYTES {
            rows.frames(0, &batch, 0..1).unwrap();
            assert_eq!(rows.rows, row % (BATCH_TEXT_BYTES / TEXT_BYTES), "rows held after row {row}");
            batches += usize::from(rows.rows == 0);
        }
        assert_eq!((batches, rows.group_text_bytes), (GROUP_TEXT_BYTES / BATCH_TEXT_BYTES, 0));
    }
}
