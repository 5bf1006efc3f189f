//! Bulk writes: rows of record batches become frames of the store.
//!
//! A column of times, columns of tags, and columns of fields: the same as measurement, tags and fields of the line
//! protocol. The answer is sent once the rows are durable.

use std::collections::HashMap;

use arrow_flight::FlightData;
use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, DictionaryArray, PrimitiveArray, RecordBatch,
    StringArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use futures::future::BoxFuture;
use futures::{Stream as Messages, StreamExt};
use strongback_store::{
    Appended, ChannelIndex, ChannelSpec, ChannelType, CommitNumber, FrameBatch, FrameHead, Outcome, Refusal, Reject,
    StreamId, StreamKey, Value,
};
use tokio::sync::Semaphore;
use tonic::Status;

use super::batch::BatchReader;
use super::status::malformed;
use crate::error::{QueryError, sqlstate};
use crate::query::Query;
use crate::running::clock::now_ns;
use crate::running::memory::Share;
use crate::running::runtime::apart;
use crate::system::catalog::{DATABASE, PUBLIC};
use crate::table::StoreTable;
use crate::table::column::{ColumnSource, is_fixed};

/// Size of a batch of frames, in bytes, at which it is handed over.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes of a message that do not count as session memory.
const MESSAGE_BYTES_FREE: usize = 64 << 10;
/// Maximum columns of a record batch.
const COLUMNS_MAX: usize = 4_096;
/// Key in the metadata of a column of texts that says whether it is a `tag` or a `field`.
const ROLE: &str = "strongback.role";

/// Receives the rows that clients write in bulk.
pub trait BulkSink: Send + Sync {
    /// Starts a write into the store as it is open now.
    fn begin(&self) -> Box<dyn BulkWrite>;
}

/// A write in bulk.
pub trait BulkWrite: Send {
    /// Finds, creates or extends a stream.
    ///
    /// # Errors
    /// If the store refuses it.
    fn resolve(&mut self, key: StreamKey, channels: Vec<ChannelSpec>) -> Result<(StreamId, Vec<ChannelIndex>), Reject>;

    /// Accepts frames. Waits while the log of the store is full.
    ///
    /// # Errors
    /// If the store was reopened since the write began, so that streams have other numbers.
    fn accept(&mut self, frames: &FrameBatch) -> Result<Appended, Refusal>;

    /// Completes when a commit is durable.
    fn durable(&self, commit: CommitNumber) -> BoxFuture<'static, Result<(), Refusal>>;

    /// Counts a part of the write.
    fn count(&self, counted: &BulkCounts);
}

/// Counts of a part of a write.
#[derive(Clone, Debug, Default)]
pub struct BulkCounts {
    /// Bytes of record batches.
    pub bytes: u64,
    /// Rows stored.
    pub stored: u64,
    /// Rows that the store had already stored.
    pub duplicate: u64,
    /// Rows that made no frame, or that the store refused, with the reason and a message.
    pub rejected: Vec<(&'static str, u64, String)>,
}

/// Writes the record batches of a client, and returns the number of rows once they are durable.
///
/// # Errors
/// If the table, a column or a value is refused. The message says how many rows were stored before.
pub(super) async fn ingest(
    query: &Query,
    (sink, writers): (&dyn BulkSink, &Semaphore),
    command: CommandStatementIngest,
    mut data: impl Messages<Item = Result<FlightData, Status>> + Unpin,
) -> Result<i64, QueryError> {
    let table = table_of(query, command)?;
    let mut writer = Writer { table, write: sink.begin(), streams: HashMap::new(), done: Done::default() };
    let (mut reader, mut layout) = (BatchReader::default(), None);
    let mut share = Share::new(query.inner.sessions.clone(), MESSAGE_BYTES_FREE);
    let ended = async {
        while let Some(message) = data.next().await {
            let message = message.map_err(|error| malformed(error.message()))?;
            let bytes = message.data_header.len() + message.data_body.len();
            // The texts of tags and fields are there twice while they are converted. Dictionaries stay.
            if !share.try_resize(reader.held_bytes() + 2 * bytes) {
                let held = reader.held_bytes();
                let text = format!(
                    "no room for a message of {bytes} bytes beside {held} of dictionaries and those of other sessions"
                );
                return Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text));
            }
            let Some(batch) = reader.read(&message)? else { continue };
            drop(message);
            // Held for a batch only, because a client may send nothing for long.
            let _writer = writers.acquire().await;
            // Waits on this thread while the log of the store is full.
            apart(|| {
                let layout = match &layout {
                    Some(layout) => Ok(layout),
                    None => Layout::of(query, &writer.table, batch.schema_ref()).map(|found| &*layout.insert(found)),
                };
                writer.write(&batch, layout, bytes as u64)
            })?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
    .await;
    let Done { commit, accepted, rejected, first } = std::mem::take(&mut writer.done);
    if let Some(commit) = commit {
        writer.write.durable(commit).await.map_err(refused)?;
    }
    let rest = |error: QueryError| QueryError {
        message: format!("{} ({accepted} rows were stored before, {rejected} rejected)", error.message),
        ..error
    };
    ended.map_err(rest)?;
    match first {
        Some(error) => Err(rest(error)),
        None => Ok(i64::try_from(accepted).unwrap_or(i64::MAX)),
    }
}

/// Returns the table of a command, if it may be written.
fn table_of(query: &Query, command: CommandStatementIngest) -> Result<String, QueryError> {
    let not_supported = |text: &str| Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text));
    let CommandStatementIngest { table, schema, catalog, temporary, transaction_id, .. } = &command;
    if *temporary {
        return not_supported("temporary tables are not supported");
    }
    if transaction_id.as_ref().is_some_and(|id| !id.is_empty()) {
        return not_supported("transactions are not supported: rows are stored as they arrive");
    }
    let is_own = |name: &Option<String>, own: &str| name.as_deref().is_none_or(|name| name.is_empty() || name == own);
    if !is_own(catalog, DATABASE) || !is_own(schema, PUBLIC) {
        let text = format!("tables are written in the schema \"{PUBLIC}\" of the database \"{DATABASE}\"");
        return Err(QueryError::new(sqlstate::INVALID_CATALOG_NAME, text));
    }
    let (missing, existing) = command
        .table_definition_options
        .map_or_else(Default::default, |options| (options.if_not_exist(), options.if_exists()));
    match query.inner.database.tables().table(table) {
        None if missing == TableNotExistOption::Fail => {
            Err(QueryError::new(sqlstate::UNDEFINED_TABLE, format!("relation \"{table}\" does not exist"))
                .with_hint("To create it, write in mode create_append."))
        }
        Some(_) if existing == TableExistsOption::Fail => {
            Err(QueryError::new("42P07", format!("relation \"{table}\" already exists"))
                .with_hint("To add rows, write in mode append or create_append."))
        }
        Some(_) if existing == TableExistsOption::Replace => not_supported("stored rows are not replaced"),
        _ => Ok(command.table),
    }
}

fn refused(refusal: Refusal) -> QueryError {
    QueryError::new(sqlstate::CANNOT_CONNECT_NOW, format!("not written, try again: {refusal}"))
}

/// Role of each column.
struct Layout {
    /// Position of the column of times, and nanoseconds of its unit.
    time: (usize, i64),
    tags: Vec<(usize, String)>,
    fields: Vec<(usize, ChannelSpec)>,
}

impl Layout {
    fn of(query: &Query, name: &str, schema: &Schema) -> Result<Layout, QueryError> {
        if schema.fields().len() > COLUMNS_MAX {
            let text = format!("{} columns, at most {COLUMNS_MAX}", schema.fields().len());
            return Err(QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, text));
        }
        let table = query.inner.database.tables().table(name);
        let (mut time, mut tags, mut fields) = (None, Vec::new(), Vec::new());
        for (at, field) in schema.fields().iter().enumerate() {
            if schema.fields()[..at].iter().any(|before| before.name() == field.name()) {
                return Err(wrong(field, "there are two columns of this name".to_owned()));
            }
            match (field.name().as_str(), field.data_type()) {
                ("time", DataType::Timestamp(unit, _)) => {
                    // The exact time wins.
                    time.get_or_insert((at, unit_ns(*unit)));
                }
                ("time_ns", DataType::Int64) => time = Some((at, 1)),
                ("time", kind) => return Err(wrong(field, format!("{kind} is not a timestamp"))),
                ("time_ns", kind) => return Err(wrong(field, format!("{kind} is not int64"))),
                (fixed, _) if is_fixed(fixed) => {
                    return Err(wrong(field, "the server sets this column itself".to_owned()));
                }
                (name, _) if is_tag(field, table.as_deref())? => tags.push((at, name.to_owned())),
                (name, kind) => {
                    let kind = channel_type(kind)
                        .ok_or_else(|| wrong(field, format!("{kind} is not a type of fields: cast it")))?;
                    check_channel(field, kind, table.as_deref())?;
                    fields.push((at, ChannelSpec::new(name, kind)));
                }
            }
        }
        let Some(time) = time else {
            let text = "no column of times: \"time\" (a timestamp) or \"time_ns\" (int64, nanoseconds since 1970)";
            return Err(QueryError::new(sqlstate::UNDEFINED_COLUMN, text));
        };
        Ok(Layout { time, tags, fields })
    }
}

fn wrong(field: &Field, what: String) -> QueryError {
    QueryError::new(sqlstate::DATATYPE_MISMATCH, format!("column \"{}\": {what}", field.name()))
}

fn unit_ns(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// Returns the type of the channel for a column's values.
fn channel_type(kind: &DataType) -> Option<ChannelType> {
    Some(match kind {
        DataType::Boolean => ChannelType::Bool,
        DataType::Int8 => ChannelType::I8,
        DataType::Int16 => ChannelType::I16,
        DataType::Int32 => ChannelType::I32,
        DataType::Int64 => ChannelType::I64,
        DataType::UInt8 => ChannelType::U8,
        DataType::UInt16 => ChannelType::U16,
        DataType::UInt32 => ChannelType::U32,
        DataType::UInt64 => ChannelType::U64,
        DataType::Float32 => ChannelType::F32,
        DataType::Float64 => ChannelType::F64,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ChannelType::String,
        DataType::Dictionary(_, values) if is_text(values) => ChannelType::String,
        _ => return None,
    })
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Reports whether a column is one of tags: texts, unless they are declared a field or are one in the table.
fn is_tag(field: &Field, table: Option<&StoreTable>) -> Result<bool, QueryError> {
    let is_dictionary = matches!(field.data_type(), DataType::Dictionary(_, values) if is_text(values));
    if !is_dictionary && !is_text(field.data_type()) {
        return Ok(false);
    }
    match field.metadata().get(ROLE).map(String::as_str) {
        Some("tag") => return Ok(true),
        Some("field") => return Ok(false),
        Some(other) => return Err(wrong(field, format!("{ROLE} is {other:?}, not \"tag\" or \"field\""))),
        None => {}
    }
    Ok(!known(field.name(), table).is_some_and(|source| matches!(source, ColumnSource::Channel { .. })))
}

fn known<'a>(name: &str, table: Option<&'a StoreTable>) -> Option<&'a ColumnSource> {
    Some(&table?.columns.iter().find(|column| column.name == name)?.source)
}

/// Checks that a field has the type of its column in the table.
fn check_channel(field: &Field, kind: ChannelType, table: Option<&StoreTable>) -> Result<(), QueryError> {
    match known(field.name(), table) {
        Some(ColumnSource::Channel { channel_type, .. }) if channel_type.widen(kind).is_none() => {
            let (kind, of_column) = (field.data_type(), channel_type.name());
            Err(wrong(field, format!("{kind} does not fit the column, which is {of_column}: cast it")))
        }
        Some(ColumnSource::Tag(_)) => Err(wrong(field, "it is a tag in this table".to_owned())),
        _ => Ok(()),
    }
}

/// Outcome of a write so far.
#[derive(Default)]
struct Done {
    commit: Option<CommitNumber>,
    accepted: u64,
    rejected: u64,
    /// Error of the first row that the store rejected.
    first: Option<QueryError>,
}

struct Writer {
    table: String,
    write: Box<dyn BulkWrite>,
    /// Streams by the values of the tags.
    streams: HashMap<Vec<Option<String>>, (StreamId, Vec<ChannelIndex>)>,
    done: Done,
}

impl Writer {
    /// Hands the rows of a record batch over.
    fn write(
        &mut self,
        batch: &RecordBatch,
        layout: Result<&Layout, QueryError>,
        bytes: u64,
    ) -> Result<(), QueryError> {
        let mut counts = BulkCounts { bytes, ..BulkCounts::default() };
        let written = layout.and_then(|layout| self.rows(batch, layout, &mut counts));
        if let Err(error) = &written
            && counts.rejected.is_empty()
        {
            let rest = batch.num_rows() as u64 - counts.stored - counts.duplicate;
            counts.rejected.push((reason(error), rest, error.message.clone()));
        }
        self.done.accepted += counts.stored + counts.duplicate;
        self.done.rejected += counts.rejected.iter().map(|(_, rows, _)| rows).sum::<u64>();
        self.write.count(&counts);
        written
    }

    fn rows(&mut self, batch: &RecordBatch, layout: &Layout, counts: &mut BulkCounts) -> Result<(), QueryError> {
        let before = self.done.accepted + self.done.rejected;
        let times = times(batch.column(layout.time.0), layout.time.1, before)?;
        let tags = layout.tags.iter().map(|(at, name)| Tags::of(batch.column(*at), name, before));
        let tags = tags.collect::<Result<Vec<_>, _>>()?;
        let fields = layout.fields.iter().map(|(at, spec)| Ok((text_as_utf8(batch.column(*at))?, spec)));
        let fields = fields.collect::<Result<Vec<(ArrayRef, &ChannelSpec)>, QueryError>>()?;
        let cells: Vec<Cells<'_>> = fields.iter().filter_map(|(array, _)| Cells::of(array)).collect();
        let receive_time = now_ns();
        let mut frames = FrameBatch::new();
        // The sender is told what was refused.
        frames.set_answered(true);
        // Streams by the tags of this batch, and the one of the row before.
        let mut streams: HashMap<Vec<i32>, (StreamId, Vec<ChannelIndex>)> = HashMap::new();
        let (mut codes, mut current) = (vec![-1; tags.len()], None);
        for (row, time) in times.iter().enumerate() {
            let mut same = current.is_some();
            for (code, tags) in codes.iter_mut().zip(&tags) {
                let of_row = tags.code(row);
                same &= *code == of_row;
                *code = of_row;
            }
            if !same {
                current = Some(match streams.get(&codes) {
                    Some(known) => known.clone(),
                    None => {
                        let found = self.stream(layout, &tags, &codes)?;
                        streams.insert(codes.clone(), found.clone());
                        found
                    }
                });
            }
            let Some((stream, channels)) = &current else { continue };
            frames.begin(FrameHead { stream: *stream, receive_time, source_time: Some(*time), sequence: None });
            for (cells, channel) in cells.iter().zip(channels) {
                cells.push(&mut frames, *channel, row);
            }
            frames.end();
            if frames.size_bytes() >= BATCH_BYTES {
                self.hand_over(&mut frames, counts)?;
            }
        }
        self.hand_over(&mut frames, counts)
    }

    /// Returns the stream of a row's tags.
    fn stream(
        &mut self,
        layout: &Layout,
        tags: &[Tags],
        codes: &[i32],
    ) -> Result<(StreamId, Vec<ChannelIndex>), QueryError> {
        let values: Vec<Option<String>> = tags.iter().zip(codes).map(|(tags, code)| tags.value(*code)).collect();
        if let Some(known) = self.streams.get(&values) {
            return Ok(known.clone());
        }
        let named = layout.tags.iter().zip(&values);
        let named = named.filter_map(|((_, name), value)| Some((name.clone(), value.clone()?)));
        let key = StreamKey::new(self.table.clone(), named);
        let channels = layout.fields.iter().map(|(_, spec)| spec.clone()).collect();
        let found = self.write.resolve(key, channels).map_err(rejected)?;
        self.streams.insert(values, found.clone());
        Ok(found)
    }

    fn hand_over(&mut self, frames: &mut FrameBatch, counts: &mut BulkCounts) -> Result<(), QueryError> {
        if frames.is_empty() {
            return Ok(());
        }
        let before = self.done.accepted + self.done.rejected + counts.stored + counts.duplicate;
        let appended = self.write.accept(frames).map_err(refused)?;
        self.done.commit = self.done.commit.max(Some(appended.commit));
        let mut refusal = None;
        for (row, outcome) in appended.outcomes.into_iter().enumerate() {
            match outcome {
                Outcome::Stored { .. } | Outcome::Reduced { .. } => counts.stored += 1,
                Outcome::Duplicate => counts.duplicate += 1,
                Outcome::Rejected(reject) => {
                    let message = reject.to_string();
                    match counts.rejected.iter_mut().find(|(reason, ..)| *reason == reject.reason()) {
                        Some((_, rows, _)) => *rows += 1,
                        None => counts.rejected.push((reject.reason(), 1, message)),
                    }
                    if let Reject::Refused(reason) = &reject {
                        refusal.get_or_insert_with(|| reason.clone());
                    } else if self.done.first.is_none() {
                        self.done.first = Some(at_row(before + row as u64, rejected(reject)));
                    }
                }
            }
        }
        frames.clear();
        refusal.map_or(Ok(()), |refusal| Err(refused(refusal)))
    }
}

fn rejected(reject: Reject) -> QueryError {
    match reject {
        Reject::Refused(refusal) => refused(refusal),
        other => QueryError::new(sqlstate::DATA_EXCEPTION, other.to_string()),
    }
}

fn at_row(row: u64, error: QueryError) -> QueryError {
    QueryError { message: format!("row {}: {}", row + 1, error.message), ..error }
}

/// Returns the reason under which rows are counted that made no frames.
fn reason(error: &QueryError) -> &'static str {
    match error.sqlstate {
        sqlstate::NOT_NULL_VIOLATION | sqlstate::NUMERIC_OUT_OF_RANGE => "bad_timestamp",
        sqlstate::DATATYPE_MISMATCH | sqlstate::UNDEFINED_COLUMN => "bad_column",
        sqlstate::CANNOT_CONNECT_NOW => "no_stream",
        _ => "bad_value",
    }
}

/// Returns the times of a batch in nanoseconds since 1970. `before` is the number of rows before it.
fn times(column: &ArrayRef, unit_ns: i64, before: u64) -> Result<Vec<i64>, QueryError> {
    if let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) {
        let row = (0..column.len()).find(|row| nulls.is_null(*row)).unwrap_or_default();
        let text = "a row without a time: it must not be null".to_owned();
        return Err(at_row(before + row as u64, QueryError::new(sqlstate::NOT_NULL_VIOLATION, text)));
    }
    fn values<T: ArrowPrimitiveType<Native = i64>>(column: &ArrayRef) -> &[i64] {
        column.as_primitive::<T>().values()
    }
    let values = match column.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => values::<TimestampSecondType>(column),
        DataType::Timestamp(TimeUnit::Millisecond, _) => values::<TimestampMillisecondType>(column),
        DataType::Timestamp(TimeUnit::Microsecond, _) => values::<TimestampMicrosecondType>(column),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => values::<TimestampNanosecondType>(column),
        _ => values::<Int64Type>(column),
    };
    let nanos = |(row, value): (usize, &i64)| {
        value.checked_mul(unit_ns).ok_or_else(|| {
            let text = format!("the time {value} is out of range: 1677 to 2262");
            at_row(before + row as u64, QueryError::new(sqlstate::NUMERIC_OUT_OF_RANGE, text))
        })
    };
    values.iter().enumerate().map(nanos).collect()
}

/// Returns texts as plain strings, or as codes of such if they are in a dictionary, and other columns as they are. A text
/// of a dictionary may be that of every row, so that all of them together could have any size.
fn text_as_utf8(column: &ArrayRef) -> Result<ArrayRef, QueryError> {
    let kind = match column.data_type() {
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Dictionary(..) => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
        _ => return Ok(column.clone()),
    };
    cast(column, &kind).map_err(|error| malformed(&error.to_string()))
}

/// Values of a tag in a batch, by codes; -1 for none.
struct Tags(DictionaryArray<Int32Type>);

impl Tags {
    fn of(column: &ArrayRef, name: &str, before: u64) -> Result<Tags, QueryError> {
        let kind = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let tags = cast(&text_as_utf8(column)?, &kind).map_err(|error| malformed(&error.to_string()))?;
        let tags = Tags(tags.as_dictionary::<Int32Type>().clone());
        let empty = (0..column.len()).find(|row| tags.value(tags.code(*row)).is_some_and(|value| value.is_empty()));
        match empty.filter(|_| tags.texts().iter().flatten().any(str::is_empty)) {
            None => Ok(tags),
            Some(row) => {
                let text = format!("tag \"{name}\" is empty: use null for none");
                Err(at_row(before + row as u64, QueryError::new(sqlstate::DATA_EXCEPTION, text)))
            }
        }
    }

    fn texts(&self) -> &StringArray {
        self.0.values().as_string::<i32>()
    }

    fn code(&self, row: usize) -> i32 {
        if self.0.is_null(row) { -1 } else { self.0.keys().value(row) }
    }

    fn value(&self, code: i32) -> Option<String> {
        let at = usize::try_from(code).ok()?;
        self.texts().is_valid(at).then(|| self.texts().value(at).to_owned())
    }
}

/// Values of a field in a batch.
enum Cells<'a> {
    Bool(&'a BooleanArray),
    I8(&'a PrimitiveArray<Int8Type>),
    I16(&'a PrimitiveArray<Int16Type>),
    I32(&'a PrimitiveArray<Int32Type>),
    I64(&'a PrimitiveArray<Int64Type>),
    U8(&'a PrimitiveArray<UInt8Type>),
    U16(&'a PrimitiveArray<UInt16Type>),
    U32(&'a PrimitiveArray<UInt32Type>),
    U64(&'a PrimitiveArray<UInt64Type>),
    F32(&'a PrimitiveArray<Float32Type>),
    F64(&'a PrimitiveArray<Float64Type>),
    Text(&'a StringArray),
    Coded(&'a DictionaryArray<Int32Type>, &'a StringArray),
}

impl<'a> Cells<'a> {
    /// Returns the values of a column, or `None` if it is of no type of fields.
    fn of(column: &'a ArrayRef) -> Option<Cells<'a>> {
        Some(match column.data_type() {
            DataType::Boolean => Cells::Bool(column.as_boolean()),
            DataType::Int8 => Cells::I8(column.as_primitive()),
            DataType::Int16 => Cells::I16(column.as_primitive()),
            DataType::Int32 => Cells::I32(column.as_primitive()),
            DataType::Int64 => Cells::I64(column.as_primitive()),
            DataType::UInt8 => Cells::U8(column.as_primitive()),
            DataType::UInt16 => Cells::U16(column.as_primitive()),
            DataType::UInt32 => Cells::U32(column.as_primitive()),
            DataType::UInt64 => Cells::U64(column.as_primitive()),
            DataType::Float32 => Cells::F32(column.as_primitive()),
            DataType::Float64 => Cells::F64(column.as_primitive()),
            DataType::Utf8 => Cells::Text(column.as_string()),
            DataType::Dictionary(..) => {
                let coded = column.as_dictionary_opt::<Int32Type>()?;
                Cells::Coded(coded, coded.values().as_string_opt::<i32>()?)
            }
            _ => return None,
        })
    }

    /// Adds the value of a row to the open frame, if there is one.
    #[inline]
    fn push(&self, frames: &mut FrameBatch, channel: ChannelIndex, row: usize) {
        macro_rules! push {
            ($values:expr, $kind:ident) => {
                if $values.is_valid(row) {
                    frames.push(channel, Value::$kind($values.value(row)));
                }
            };
        }
        match self {
            Cells::Bool(values) => push!(values, Bool),
            Cells::I8(values) => push!(values, I8),
            Cells::I16(values) => push!(values, I16),
            Cells::I32(values) => push!(values, I32),
            Cells::I64(values) => push!(values, I64),
            Cells::U8(values) => push!(values, U8),
            Cells::U16(values) => push!(values, U16),
            Cells::U32(values) => push!(values, U32),
            Cells::U64(values) => push!(values, U64),
            Cells::F32(values) => push!(values, F32),
            Cells::F64(values) => push!(values, F64),
            Cells::Text(values) => push!(values, String),
            Cells::Coded(coded, texts) => {
                if let Some(at) = coded.key(row).filter(|at| texts.is_valid(*at)) {
                    frames.push(channel, Value::String(texts.value(at)));
                }
            }
        }
    }
}
