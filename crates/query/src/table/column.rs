//! Columns of an SQL table: maps streams and layouts to SQL, and store batches to Arrow arrays.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, Float32Array, Float64Array, Int16Array, Int32Array,
    Int64Array, ListArray, StringArray, TimestampMicrosecondArray, new_null_array,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use strongback_store::{
    ArrayType, Batch, CellState, Channel, ChannelIndex, ChannelType, Column, ColumnValues, Stream, StreamId,
    StreamList, Value,
};

use crate::error::QueryError;
use crate::functions::float::Float;
pub(crate) use crate::functions::time::{UTC, timestamp_type};

/// One of a frame's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FrameTime {
    /// `time`, which is one of the other two, depending on the stream's clock.
    Time,
    /// Time of reception at this node.
    Receive,
    /// Sampling time stated by its source.
    Source,
}

/// Origin of a column's values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ColumnSource {
    /// A time, floored to microseconds.
    Micros(FrameTime),
    /// An exact time in nanoseconds.
    Nanos(FrameTime),
    /// Unwrapped sequence number.
    Sequence,
    /// A tag of the stream.
    Tag(String),
    /// Channels of one name, with the index in the layout of each stream that has it.
    Channel {
        /// Type that holds the values of all streams.
        channel_type: ChannelType,
        /// Indexes, sorted by stream.
        indices: Vec<(StreamId, ChannelIndex)>,
    },
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableColumn {
    /// Name.
    pub(crate) name: String,
    /// Origin of its values.
    pub(crate) source: ColumnSource,
}

impl TableColumn {
    /// Returns its Arrow type.
    pub(crate) fn data_type(&self) -> DataType {
        match &self.source {
            ColumnSource::Micros(_) => timestamp_type(),
            ColumnSource::Nanos(_) | ColumnSource::Sequence => DataType::Int64,
            ColumnSource::Tag(_) => tag_type(),
            ColumnSource::Channel { channel_type, .. } => arrow_type(*channel_type),
        }
    }

    /// Returns the channel of a stream in this column.
    pub(crate) fn channel(&self, stream: StreamId) -> Option<ChannelIndex> {
        match &self.source {
            ColumnSource::Channel { indices, .. } => {
                indices.binary_search_by_key(&stream, |(id, _)| *id).ok().map(|i| indices[i].1)
            }
            _ => None,
        }
    }

    /// Reports whether it can be NULL.
    pub(crate) fn nullable(&self) -> bool {
        !matches!(
            self.source,
            ColumnSource::Micros(FrameTime::Time | FrameTime::Receive)
                | ColumnSource::Nanos(FrameTime::Time | FrameTime::Receive)
        )
    }
}

/// Returns the type of tags.
fn tag_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// Returns the Arrow type of a channel type in SQL: one that PostgreSQL has and that holds every value.
pub(crate) fn arrow_type(channel_type: ChannelType) -> DataType {
    match channel_type {
        ChannelType::Bool => DataType::Boolean,
        ChannelType::I8 | ChannelType::I16 | ChannelType::U8 => DataType::Int16,
        ChannelType::I32 | ChannelType::U16 => DataType::Int32,
        ChannelType::I64 | ChannelType::U32 => DataType::Int64,
        ChannelType::U64 => DataType::Decimal128(20, 0),
        ChannelType::F32 => DataType::Float32,
        ChannelType::F64 => DataType::Float64,
        // The reference of a blob. Its bytes are not available in SQL.
        ChannelType::String | ChannelType::Blob => DataType::Utf8,
        ChannelType::Array(array) => DataType::List(list_field(array)),
    }
}

/// Returns the field of a list's elements.
fn list_field(array: ArrayType) -> Arc<Field> {
    Arc::new(Field::new_list_field(arrow_type(array.element().channel_type()), true))
}

/// Converts nanoseconds to microseconds, rounding down.
pub(crate) fn floor_micros(time_ns: i64) -> i64 {
    time_ns.div_euclid(1_000)
}

/// Returns the columns of a table over all its streams, in the order of their numbers: times and sequence, tags,
/// channels.
///
/// A name belongs to the tag or channel that had it first, so that no later stream changes what a column means. Channels
/// of one name share a column with a type that holds all of them exactly. If there is none, the later stream's channel
/// gets the column `name_<type>`, as in the store within a stream. A channel with the name of a tag becomes
/// `name_field`, a tag with the name of a channel `name_tag`.
pub(crate) fn table_columns(streams: &[Arc<Stream>]) -> Vec<TableColumn> {
    let mut naming = Naming::default();
    for stream in streams {
        stream.key.tags.iter().for_each(|(key, _)| naming.add_tag(key));
        for (index, channel) in stream.layout.channels.iter().enumerate() {
            naming.add_channel(stream.id, ChannelIndex(index as u16), channel);
        }
    }
    naming.columns()
}

/// Names that are taken, and the columns that have them.
#[derive(Default)]
struct Naming<'a> {
    /// Tags by key, with their names.
    tags: BTreeMap<&'a str, String>,
    /// Channels, with their own names if they are `name_field`.
    channels: Vec<(Option<&'a str>, TableColumn)>,
    /// Channels by the names of their columns; `None` for tags.
    taken: HashMap<String, Option<usize>>,
}

impl<'a> Naming<'a> {
    fn is_taken(&self, name: &str) -> bool {
        self.taken.contains_key(name) || is_fixed(name)
    }

    fn add_tag(&mut self, key: &'a str) {
        if self.tags.contains_key(key) {
            return;
        }
        // The store does not accept reserved names as tags. If there is one nevertheless, it stays accessible.
        let mut name = key.to_owned();
        for attempt in 1.. {
            if !self.is_taken(&name) {
                break;
            }
            name = if attempt == 1 { format!("{key}_tag") } else { format!("{key}_tag_{attempt}") };
        }
        self.taken.insert(name.clone(), None);
        self.tags.insert(key, name);
    }

    fn add_channel(&mut self, stream: StreamId, index: ChannelIndex, channel: &'a Channel) {
        let (mut name, mut attempt, mut field_of) = (channel.name.clone(), 0, None);
        loop {
            match self.taken.get(&name) {
                None if !self.is_taken(&name) => break,
                Some(Some(at)) => {
                    let (of, column) = &mut self.channels[*at];
                    if let ColumnSource::Channel { channel_type, indices } = &mut column.source
                        && *of == field_of
                        && indices.last().is_none_or(|(id, _)| *id != stream)
                        && let Some(wide) = channel_type.widen(channel.channel_type)
                    {
                        *channel_type = wide;
                        indices.push((stream, index));
                        return;
                    }
                    attempt += 1;
                    let suffix = channel.channel_type.suffix();
                    name = match attempt {
                        1 => format!("{}_{suffix}", channel.name),
                        n => format!("{}_{suffix}_{n}", channel.name),
                    };
                }
                _ => {
                    field_of = Some(channel.name.as_str());
                    name = format!("{name}_field");
                }
            }
        }
        self.taken.insert(name.clone(), Some(self.channels.len()));
        let source = ColumnSource::Channel { channel_type: channel.channel_type, indices: vec![(stream, index)] };
        self.channels.push((field_of, TableColumn { name, source }));
    }

    fn columns(self) -> Vec<TableColumn> {
        let fixed = FIXED_COLUMNS.map(|(name, source)| TableColumn { name: name.to_owned(), source });
        let tags =
            self.tags.into_iter().map(|(key, name)| TableColumn { name, source: ColumnSource::Tag(key.to_owned()) });
        let channels = self.channels.into_iter().map(|(_, column)| column);
        fixed.into_iter().chain(tags).chain(channels).collect()
    }
}

/// Columns of every table.
const FIXED_COLUMNS: [(&str, ColumnSource); 7] = [
    ("time", ColumnSource::Micros(FrameTime::Time)),
    ("time_ns", ColumnSource::Nanos(FrameTime::Time)),
    ("receive_time", ColumnSource::Micros(FrameTime::Receive)),
    ("receive_time_ns", ColumnSource::Nanos(FrameTime::Receive)),
    ("source_time", ColumnSource::Micros(FrameTime::Source)),
    ("source_time_ns", ColumnSource::Nanos(FrameTime::Source)),
    ("sequence", ColumnSource::Sequence),
];

/// Reports whether every table has a column of this name.
pub(crate) fn is_fixed(name: &str) -> bool {
    FIXED_COLUMNS.iter().any(|(fixed, _)| *fixed == name)
}

/// Returns the Arrow schema of columns.
pub(crate) fn table_schema(columns: &[TableColumn]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|c| Field::new(&c.name, c.data_type(), c.nullable())).collect::<Vec<_>>()))
}

/// Returns the values of a tag as an Arrow column with a row per stream, on which tag filters are evaluated.
pub(crate) fn tag_column(tag: &str, streams: &[Arc<Stream>]) -> ArrayRef {
    let values: DictionaryArray<Int32Type> = streams.iter().map(|s| s.key.tag(tag)).collect();
    Arc::new(values)
}

/// Returns the values of a tag as an Arrow column with rows of one stream.
pub(crate) fn repeated_tag(stream: &Stream, tag: &str, rows: usize) -> ArrayRef {
    match stream.key.tag(tag) {
        None => new_null_array(&tag_type(), rows),
        Some(value) => Arc::new(DictionaryArray::<Int32Type>::new(
            Int32Array::from(vec![0; rows]),
            Arc::new(StringArray::from(vec![value])),
        )),
    }
}

/// Builds the Arrow array of a column for a batch in which `columns[position]` is its channel.
///
/// # Errors
/// If the channel's type no longer fits the column, because the catalog changed after planning.
pub(crate) fn batch_array(
    column: &TableColumn,
    batch: &Batch,
    stream: &Stream,
    position: Option<usize>,
) -> Result<ArrayRef, QueryError> {
    let rows = batch.len();
    Ok(match &column.source {
        ColumnSource::Micros(which) => {
            let (values, nulls) = times(batch, *which);
            let micros: Vec<i64> = values.into_iter().map(floor_micros).collect();
            Arc::new(TimestampMicrosecondArray::new(ScalarBuffer::from(micros), nulls).with_timezone(UTC))
        }
        ColumnSource::Nanos(which) => {
            let (values, nulls) = times(batch, *which);
            Arc::new(Int64Array::new(ScalarBuffer::from(values), nulls))
        }
        ColumnSource::Sequence => match &batch.sequence {
            None => new_null_array(&DataType::Int64, rows),
            Some(sequence) => {
                Arc::new(Int64Array::new(ScalarBuffer::from(sequence.values.clone()), valid(sequence.valid.as_deref())))
            }
        },
        ColumnSource::Tag(tag) => repeated_tag(stream, tag, rows),
        ColumnSource::Channel { channel_type, .. } => match position {
            None => new_null_array(&arrow_type(*channel_type), rows),
            Some(position) => {
                channel_array(&batch.columns[position], *channel_type).ok_or_else(|| changed(&column.name))?
            }
        },
    })
}

/// Returns the error for a catalog change that the types of a planned query cannot represent.
pub(crate) fn changed(column: &str) -> QueryError {
    QueryError::new("40001", format!("column \"{column}\" changed its type while the query ran"))
        .with_hint("Run the query again.")
}

fn times(batch: &Batch, which: FrameTime) -> (Vec<i64>, Option<NullBuffer>) {
    match which {
        FrameTime::Time => (batch.times(), None),
        FrameTime::Receive => (batch.receive_time.clone(), None),
        FrameTime::Source => match &batch.source_time {
            None => (vec![0; batch.len()], Some(NullBuffer::new_null(batch.len()))),
            Some(times) => (times.values.clone(), valid(times.valid.as_deref())),
        },
    }
}

fn valid(valid: Option<&[bool]>) -> Option<NullBuffer> {
    valid.map(NullBuffer::from)
}

/// Converts a channel's column to Arrow, widened to a type, with the NaN of queries for any other. Returns `None` if the
/// type cannot hold it.
pub(crate) fn channel_array(column: &Column, to: ChannelType) -> Option<ArrayRef> {
    let nulls = column
        .states
        .as_ref()
        .map(|states| NullBuffer::from_iter(states.iter().map(|state| *state == CellState::Value)));
    let from = column.values.channel_type();
    if from.widen(to) != Some(to) {
        return None;
    }
    macro_rules! widened {
        ($values:expr) => {
            match arrow_type(to) {
                DataType::Int16 => array!(Int16Array, i16, $values),
                DataType::Int32 => array!(Int32Array, i32, $values),
                DataType::Int64 => array!(Int64Array, i64, $values),
                DataType::Float64 => array!(Float64Array, f64, $values),
                DataType::Decimal128(precision, scale) => {
                    let values: Vec<i128> = $values.iter().map(|v| *v as i128).collect();
                    Arc::new(
                        Decimal128Array::new(ScalarBuffer::from(values), nulls)
                            .with_precision_and_scale(precision, scale)
                            .ok()?,
                    )
                }
                _ => return None,
            }
        };
    }
    macro_rules! array {
        ($array:ident, $native:ty, $values:expr) => {
            Arc::new($array::new(ScalarBuffer::from($values.iter().map(|v| *v as $native).collect::<Vec<_>>()), nulls))
                as ArrayRef
        };
    }
    Some(match &column.values {
        ColumnValues::Bool(values) => Arc::new(BooleanArray::new(values.as_slice().into(), nulls)),
        ColumnValues::I8(values) => widened!(values),
        ColumnValues::I16(values) => widened!(values),
        ColumnValues::I32(values) => widened!(values),
        ColumnValues::I64(values) => widened!(values),
        ColumnValues::U8(values) => widened!(values),
        ColumnValues::U16(values) => widened!(values),
        ColumnValues::U32(values) => widened!(values),
        ColumnValues::U64(values) => widened!(values),
        ColumnValues::F32(values) if to == ChannelType::F32 => {
            let values: Vec<f32> = values.iter().map(|value| value.with_one_nan()).collect();
            Arc::new(Float32Array::new(ScalarBuffer::from(values), nulls))
        }
        ColumnValues::F32(values) => {
            let values: Vec<f64> = values.iter().map(|value| f64::from(*value).with_one_nan()).collect();
            Arc::new(Float64Array::new(ScalarBuffer::from(values), nulls))
        }
        ColumnValues::F64(values) => {
            let values: Vec<f64> = values.iter().map(|value| value.with_one_nan()).collect();
            Arc::new(Float64Array::new(ScalarBuffer::from(values), nulls))
        }
        ColumnValues::String { offsets, bytes } => {
            let offsets: Vec<i32> = offsets.iter().map(|o| i32::try_from(*o)).collect::<Result<_, _>>().ok()?;
            if offsets.first() != Some(&0) || offsets.windows(2).any(|pair| pair[0] > pair[1]) {
                return None;
            }
            let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
            Arc::new(StringArray::try_new(offsets, bytes.clone().into(), nulls).ok()?)
        }
        values @ ColumnValues::Array { kind, .. } if kind.is_blob() => {
            let text = |row: usize| match column.cell(row) {
                Ok(Value::Blob(blob)) => Some(blob.to_string()),
                _ => None,
            };
            Arc::new((0..values.len()).map(text).collect::<StringArray>())
        }
        values @ ColumnValues::Array { kind, .. } => {
            let (offsets, elements) = values.elements()?;
            let offsets: Vec<i32> = offsets.iter().map(|o| i32::try_from(*o)).collect::<Result<_, _>>().ok()?;
            let elements = channel_array(&Column { values: elements, states: None }, kind.element().channel_type())?;
            let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
            Arc::new(ListArray::try_new(list_field(*kind), offsets, elements, nulls).ok()?)
        }
    })
}

/// Returns the tables of a catalog: each name with its streams in the order of their ids.
pub(crate) fn tables(streams: &StreamList) -> BTreeMap<String, Vec<Arc<Stream>>> {
    let mut tables: BTreeMap<String, Vec<Arc<Stream>>> = BTreeMap::new();
    for stream in streams {
        match tables.get_mut(&stream.key.table) {
            Some(all) => all.push(stream.clone()),
            None => {
                tables.insert(stream.key.table.clone(), vec![stream.clone()]);
            }
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use strongback_store::{ChannelSpec, Clock, Store, StoreOptions, StreamKey, StreamSpec};

    use super::*;

    /// Tags and channels of a stream.
    #[derive(Debug)]
    struct Named {
        tags: Vec<&'static str>,
        channels: Vec<(&'static str, ChannelType)>,
    }

    /// Creates streams of one table, each with its tags and channels, and returns names with their origins after each.
    fn names(streams: &[Named]) -> Vec<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), StoreOptions { log_bytes: 8 << 20, ..StoreOptions::default() }, 0).unwrap();
        let mut all = Vec::new();
        let mut after = Vec::new();
        for (n, Named { tags, channels }) in streams.iter().enumerate() {
            let spec = StreamSpec {
                key: StreamKey::new("m", tags.iter().map(|tag| ((*tag).to_owned(), n.to_string()))),
                source: "test".into(),
                clock: Clock::Receive,
                expected_period_ns: None,
                sequence_modulus: None,
                channels: channels.iter().map(|(name, kind)| ChannelSpec::new(*name, *kind)).collect(),
            };
            all.push(store.resolve(&spec, 0).unwrap().0);
            let origin = |column: &TableColumn| match &column.source {
                ColumnSource::Tag(tag) => format!("{} tag {tag}", column.name),
                ColumnSource::Channel { indices, .. } => {
                    let of = |(id, index): &(StreamId, ChannelIndex)| {
                        let stream = all.iter().find(|stream| stream.id == *id).unwrap();
                        format!("{}.{}", id.0, stream.layout.channels[usize::from(index.0)].name)
                    };
                    format!("{} {}", column.name, indices.iter().map(of).collect::<Vec<_>>().join(" "))
                }
                _ => column.name.clone(),
            };
            after.push(table_columns(&all).iter().skip(FIXED_COLUMNS.len()).map(origin).collect());
        }
        let first = all[0].id.0;
        assert!(all.iter().enumerate().all(|(n, stream)| stream.id.0 == first + n as u32));
        after
    }

    #[test]
    fn a_name_belongs_to_what_had_it_first() {
        use ChannelType::{F64, I64, String};
        let of = |tags: &[&'static str], channels: &[(&'static str, ChannelType)]| Named {
            tags: tags.to_vec(),
            channels: channels.to_vec(),
        };
        let after = names(&[
            of(&[], &[("u", I64), ("u_field", I64)]),
            of(&["u"], &[("x", I64)]),
            of(&["x_tag", "x"], &[("u_field", F64), ("u", String)]),
            of(&["u"], &[("u_tag", F64)]),
        ]);
        let first =
            |n: usize| after[n].iter().map(|name| name.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(first(0), ["u", "u_field"]);
        assert_eq!(first(1), ["u_tag", "u", "u_field", "x"]);
        assert_eq!(first(2), ["u_tag", "x_tag", "x_tag_tag", "u", "u_field", "x", "u_field_f64", "u_string"]);
        assert_eq!(first(3).last().unwrap(), "u_tag_field");
    }

    #[test]
    fn what_a_name_means_stays_whatever_streams_come() {
        use ChannelType::{F64, I64, String};
        let mut random = fastrand::Rng::with_seed(7);
        let pool = ["u", "u_field", "u_tag", "u_string", "u_field_field", "u_i64", "u_f64", "v"];
        for _ in 0..300 {
            let mut streams: Vec<Named> = Vec::new();
            for n in 0..random.usize(1..6) {
                let mut names = pool;
                random.shuffle(&mut names);
                let (tags, channels) = (random.usize(usize::from(n > 0)..3), random.usize(1..4));
                let kind =
                    |name: &&'static str, random: &mut fastrand::Rng| (*name, [F64, I64, String][random.usize(..3)]);
                let channels = names[4..4 + channels].iter().map(|name| kind(name, &mut random)).collect();
                streams.push(Named { tags: names[..tags].to_vec(), channels });
            }
            let after = names(&streams);
            for (before, now) in after.iter().zip(&after[1..]) {
                for column in before {
                    let is_same = |other: &str| other == column || other.starts_with(&format!("{column} "));
                    assert!(now.iter().any(|other| is_same(other)), "{column} of {before:?} in {now:?} of {streams:?}");
                }
            }
            let last = after.last().unwrap();
            let mut names: Vec<&str> = last.iter().map(|name| name.split(' ').next().unwrap()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), last.len(), "{last:?}");
        }
    }
}
