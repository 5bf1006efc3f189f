//! Batches: in-memory columns of frames of one stream. Scans return them and seals encode them.

use std::borrow::Cow;

use crate::model::array::{ArrayRef, ArrayType, ElementType};
use crate::model::blob_ref::BlobRef;
use crate::model::stream::StreamId;
use crate::model::value::{CellState, ChannelType, Value};

/// Values of one channel, one per row. Rows whose state is not [`CellState::Value`] hold any value.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnValues {
    /// Truth values.
    Bool(Vec<bool>),
    /// Signed, 8 bits.
    I8(Vec<i8>),
    /// Signed, 16 bits.
    I16(Vec<i16>),
    /// Signed, 32 bits.
    I32(Vec<i32>),
    /// Signed, 64 bits.
    I64(Vec<i64>),
    /// Unsigned, 8 bits.
    U8(Vec<u8>),
    /// Unsigned, 16 bits.
    U16(Vec<u16>),
    /// Unsigned, 32 bits.
    U32(Vec<u32>),
    /// Unsigned, 64 bits.
    U64(Vec<u64>),
    /// IEEE 754 binary32.
    F32(Vec<f32>),
    /// IEEE 754 binary64.
    F64(Vec<f64>),
    /// Text: row `i` is `bytes[offsets[i]..offsets[i + 1]]`; there is one more offset than rows.
    String {
        /// Start of each row in `bytes`, then the end of the last.
        offsets: Vec<u32>,
        /// UTF-8 text of all rows.
        bytes: Vec<u8>,
    },
    /// Arrays: row `i` is `bytes[offsets[i]..offsets[i + 1]]` with little-endian elements; there is one more offset
    /// than rows. Blob references ([`ArrayType::is_blob`]) are stored here too, 16 bytes a row.
    Array {
        /// Type of the arrays.
        kind: ArrayType,
        /// Start of each row in `bytes`, then the end of the last.
        offsets: Vec<u32>,
        /// Elements of all rows.
        bytes: Vec<u8>,
    },
}

impl ColumnValues {
    /// Returns a column of a type without rows.
    pub fn empty(channel_type: ChannelType) -> Self {
        match channel_type {
            ChannelType::Bool => ColumnValues::Bool(Vec::new()),
            ChannelType::I8 => ColumnValues::I8(Vec::new()),
            ChannelType::I16 => ColumnValues::I16(Vec::new()),
            ChannelType::I32 => ColumnValues::I32(Vec::new()),
            ChannelType::I64 => ColumnValues::I64(Vec::new()),
            ChannelType::U8 => ColumnValues::U8(Vec::new()),
            ChannelType::U16 => ColumnValues::U16(Vec::new()),
            ChannelType::U32 => ColumnValues::U32(Vec::new()),
            ChannelType::U64 => ColumnValues::U64(Vec::new()),
            ChannelType::F32 => ColumnValues::F32(Vec::new()),
            ChannelType::F64 => ColumnValues::F64(Vec::new()),
            ChannelType::String => ColumnValues::String { offsets: vec![0], bytes: Vec::new() },
            ChannelType::Blob => ColumnValues::Array { kind: ArrayType::BLOB, offsets: vec![0], bytes: Vec::new() },
            ChannelType::Array(kind) => ColumnValues::Array { kind, offsets: vec![0], bytes: Vec::new() },
        }
    }

    /// Returns a column of a type without rows, with capacity for `rows`.
    pub(crate) fn with_capacity(channel_type: ChannelType, rows: usize) -> Self {
        let mut values = Self::empty(channel_type);
        match &mut values {
            ColumnValues::Bool(v) => v.reserve_exact(rows),
            ColumnValues::I8(v) => v.reserve_exact(rows),
            ColumnValues::I16(v) => v.reserve_exact(rows),
            ColumnValues::I32(v) => v.reserve_exact(rows),
            ColumnValues::I64(v) => v.reserve_exact(rows),
            ColumnValues::U8(v) => v.reserve_exact(rows),
            ColumnValues::U16(v) => v.reserve_exact(rows),
            ColumnValues::U32(v) => v.reserve_exact(rows),
            ColumnValues::U64(v) => v.reserve_exact(rows),
            ColumnValues::F32(v) => v.reserve_exact(rows),
            ColumnValues::F64(v) => v.reserve_exact(rows),
            ColumnValues::String { offsets, .. } | ColumnValues::Array { offsets, .. } => offsets.reserve_exact(rows),
        }
        values
    }

    /// Adds placeholder values for rows without a value.
    pub(crate) fn push_filler(&mut self, rows: usize) {
        match self {
            ColumnValues::Bool(v) => v.resize(v.len() + rows, false),
            ColumnValues::I8(v) => v.resize(v.len() + rows, 0),
            ColumnValues::I16(v) => v.resize(v.len() + rows, 0),
            ColumnValues::I32(v) => v.resize(v.len() + rows, 0),
            ColumnValues::I64(v) => v.resize(v.len() + rows, 0),
            ColumnValues::U8(v) => v.resize(v.len() + rows, 0),
            ColumnValues::U16(v) => v.resize(v.len() + rows, 0),
            ColumnValues::U32(v) => v.resize(v.len() + rows, 0),
            ColumnValues::U64(v) => v.resize(v.len() + rows, 0),
            ColumnValues::F32(v) => v.resize(v.len() + rows, 0.0),
            ColumnValues::F64(v) => v.resize(v.len() + rows, 0.0),
            ColumnValues::String { offsets, bytes } | ColumnValues::Array { offsets, bytes, .. } => {
                offsets.resize(offsets.len() + rows, bytes.len() as u32)
            }
        }
    }

    /// Adds a value of the column's type or a narrower one; types only widen, so it fits.
    pub(crate) fn push(&mut self, value: Value<'_>) {
        match (value.convert(self.channel_type()), self) {
            (Some(Value::Bool(x)), ColumnValues::Bool(v)) => v.push(x),
            (Some(Value::I8(x)), ColumnValues::I8(v)) => v.push(x),
            (Some(Value::I16(x)), ColumnValues::I16(v)) => v.push(x),
            (Some(Value::I32(x)), ColumnValues::I32(v)) => v.push(x),
            (Some(Value::I64(x)), ColumnValues::I64(v)) => v.push(x),
            (Some(Value::U8(x)), ColumnValues::U8(v)) => v.push(x),
            (Some(Value::U16(x)), ColumnValues::U16(v)) => v.push(x),
            (Some(Value::U32(x)), ColumnValues::U32(v)) => v.push(x),
            (Some(Value::U64(x)), ColumnValues::U64(v)) => v.push(x),
            (Some(Value::F32(x)), ColumnValues::F32(v)) => v.push(x),
            (Some(Value::F64(x)), ColumnValues::F64(v)) => v.push(x),
            (Some(Value::String(x)), ColumnValues::String { offsets, bytes }) => {
                bytes.extend_from_slice(x.as_bytes());
                offsets.push(bytes.len() as u32);
            }
            (Some(Value::Array(x)), ColumnValues::Array { offsets, bytes, .. }) => {
                bytes.extend_from_slice(x.bytes());
                offsets.push(bytes.len() as u32);
            }
            (Some(Value::Blob(x)), ColumnValues::Array { offsets, bytes, .. }) => {
                bytes.extend_from_slice(&x.bytes());
                offsets.push(bytes.len() as u32);
            }
            (_, values) => values.push_filler(1),
        }
    }

    /// Returns the type of the values.
    pub fn channel_type(&self) -> ChannelType {
        match self {
            ColumnValues::Bool(_) => ChannelType::Bool,
            ColumnValues::I8(_) => ChannelType::I8,
            ColumnValues::I16(_) => ChannelType::I16,
            ColumnValues::I32(_) => ChannelType::I32,
            ColumnValues::I64(_) => ChannelType::I64,
            ColumnValues::U8(_) => ChannelType::U8,
            ColumnValues::U16(_) => ChannelType::U16,
            ColumnValues::U32(_) => ChannelType::U32,
            ColumnValues::U64(_) => ChannelType::U64,
            ColumnValues::F32(_) => ChannelType::F32,
            ColumnValues::F64(_) => ChannelType::F64,
            ColumnValues::String { .. } => ChannelType::String,
            ColumnValues::Array { kind, .. } if kind.is_blob() => ChannelType::Blob,
            ColumnValues::Array { kind, .. } => ChannelType::Array(*kind),
        }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        match self {
            ColumnValues::Bool(v) => v.len(),
            ColumnValues::I8(v) => v.len(),
            ColumnValues::I16(v) => v.len(),
            ColumnValues::I32(v) => v.len(),
            ColumnValues::I64(v) => v.len(),
            ColumnValues::U8(v) => v.len(),
            ColumnValues::U16(v) => v.len(),
            ColumnValues::U32(v) => v.len(),
            ColumnValues::U64(v) => v.len(),
            ColumnValues::F32(v) => v.len(),
            ColumnValues::F64(v) => v.len(),
            ColumnValues::String { offsets, .. } | ColumnValues::Array { offsets, .. } => offsets.len() - 1,
        }
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of all texts and arrays in bytes.
    pub fn varying_bytes(&self) -> usize {
        match self {
            ColumnValues::String { bytes, .. } | ColumnValues::Array { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }

    /// Returns the value of a row, whatever the state of its cell.
    pub fn value(&self, row: usize) -> Value<'_> {
        match self {
            ColumnValues::Bool(v) => Value::Bool(v[row]),
            ColumnValues::I8(v) => Value::I8(v[row]),
            ColumnValues::I16(v) => Value::I16(v[row]),
            ColumnValues::I32(v) => Value::I32(v[row]),
            ColumnValues::I64(v) => Value::I64(v[row]),
            ColumnValues::U8(v) => Value::U8(v[row]),
            ColumnValues::U16(v) => Value::U16(v[row]),
            ColumnValues::U32(v) => Value::U32(v[row]),
            ColumnValues::U64(v) => Value::U64(v[row]),
            ColumnValues::F32(v) => Value::F32(v[row]),
            ColumnValues::F64(v) => Value::F64(v[row]),
            ColumnValues::String { offsets, bytes } => {
                let text = &bytes[offsets[row] as usize..offsets[row + 1] as usize];
                Value::String(std::str::from_utf8(text).unwrap_or_default())
            }
            ColumnValues::Array { kind, offsets, bytes } => {
                let elements = &bytes[offsets[row] as usize..offsets[row + 1] as usize];
                if kind.is_blob() {
                    return Value::Blob(BlobRef::from_bytes(elements).unwrap_or_default());
                }
                Value::Array(ArrayRef::stored(kind.element(), elements))
            }
        }
    }

    /// Returns the elements of all arrays as one column, and the index in it at which each row begins. Returns `None`
    /// for columns of single values or blobs.
    pub fn elements(&self) -> Option<(Vec<u32>, ColumnValues)> {
        let ColumnValues::Array { kind, offsets, bytes } = self else { return None };
        if kind.is_blob() {
            return None;
        }
        let size = kind.element().size_bytes() as u32;
        Some((offsets.iter().map(|offset| offset / size).collect(), values_of(kind.element(), bytes)))
    }

    /// Returns the values of some rows, in the order given.
    pub fn pick(&self, rows: impl Iterator<Item = usize>) -> ColumnValues {
        macro_rules! picked {
            ($variant:ident, $values:expr) => {
                ColumnValues::$variant(rows.map(|row| $values[row]).collect())
            };
        }
        match self {
            ColumnValues::Bool(v) => picked!(Bool, v),
            ColumnValues::I8(v) => picked!(I8, v),
            ColumnValues::I16(v) => picked!(I16, v),
            ColumnValues::I32(v) => picked!(I32, v),
            ColumnValues::I64(v) => picked!(I64, v),
            ColumnValues::U8(v) => picked!(U8, v),
            ColumnValues::U16(v) => picked!(U16, v),
            ColumnValues::U32(v) => picked!(U32, v),
            ColumnValues::U64(v) => picked!(U64, v),
            ColumnValues::F32(v) => picked!(F32, v),
            ColumnValues::F64(v) => picked!(F64, v),
            ColumnValues::String { offsets, bytes } => {
                let (offsets, bytes) = pick_bytes(offsets, bytes, rows);
                ColumnValues::String { offsets, bytes }
            }
            ColumnValues::Array { kind, offsets, bytes } => {
                let (offsets, bytes) = pick_bytes(offsets, bytes, rows);
                ColumnValues::Array { kind: *kind, offsets, bytes }
            }
        }
    }
}

fn pick_bytes(offsets: &[u32], bytes: &[u8], rows: impl Iterator<Item = usize>) -> (Vec<u32>, Vec<u8>) {
    let (mut to, mut out) = (vec![0], Vec::new());
    for row in rows {
        out.extend_from_slice(&bytes[offsets[row] as usize..offsets[row + 1] as usize]);
        to.push(out.len() as u32);
    }
    (to, out)
}

/// One channel of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Values, one per row.
    pub values: ColumnValues,
    /// State of each row's cell; `None` if every cell is a value.
    pub states: Option<Vec<CellState>>,
}

impl Column {
    /// Returns a column of a type without rows, with capacity for `rows`.
    pub fn with_capacity(channel_type: ChannelType, rows: usize) -> Column {
        Column { values: ColumnValues::with_capacity(channel_type, rows), states: None }
    }

    /// Adds a row with a value of the column's type or a narrower one, or without a value.
    pub fn push(&mut self, value: Option<Value<'_>>) {
        let before = self.values.len();
        match value {
            Some(value) => {
                self.values.push(value);
                self.states.iter_mut().for_each(|states| states.push(CellState::Value));
            }
            None => {
                self.values.push_filler(1);
                self.states.get_or_insert_with(|| vec![CellState::Value; before]).push(CellState::Absent);
            }
        }
    }

    /// Returns the value of a row, or the state of its cell if it has none.
    pub fn cell(&self, row: usize) -> Result<Value<'_>, CellState> {
        match &self.states {
            Some(states) if states[row] != CellState::Value => Err(states[row]),
            _ => Ok(self.values.value(row)),
        }
    }
}

/// Column of nullable `i64` values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OptionalTimes {
    /// One value per row; arbitrary where it is not valid.
    pub values: Vec<i64>,
    /// Whether each row is valid; `None` if all are.
    pub valid: Option<Vec<bool>>,
}

impl OptionalTimes {
    /// Returns the value of a row, or `None` if it is not valid.
    pub fn get(&self, row: usize) -> Option<i64> {
        match &self.valid {
            Some(valid) if !valid[row] => None,
            _ => self.values.get(row).copied(),
        }
    }
}

/// Columns of frames of one stream. Rows ascend; they are consecutive unless a scan filtered them.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Stream that the frames belong to.
    pub stream: StreamId,
    /// Ordinal of each frame in its stream.
    pub rows: Vec<u64>,
    /// Time at which this node received each frame, in nanoseconds since 1970 UTC.
    pub receive_time: Vec<i64>,
    /// Sampling time of each frame according to its source; `None` if no frame of the batch has one.
    pub source_time: Option<OptionalTimes>,
    /// Unwrapped sequence of each frame (wraps × modulus + wire value); `None` if no frame has one.
    pub sequence: Option<OptionalTimes>,
    /// Session of each sequence; `None` if `sequence` is `None`.
    pub session: Option<Vec<u32>>,
    /// Whether `time` is `source_time` (where valid) instead of `receive_time`.
    pub source_clock: bool,
    /// Channels, in the order that the scan asked for.
    pub columns: Vec<Column>,
}

impl Batch {
    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the `time` of a frame, in nanoseconds since 1970 UTC.
    pub fn time(&self, row: usize) -> i64 {
        match &self.source_time {
            Some(times) if self.source_clock => times.get(row).unwrap_or(self.receive_time[row]),
            _ => self.receive_time[row],
        }
    }

    /// Returns the `time` of every frame, in nanoseconds since 1970 UTC, copied only if that is needed.
    pub fn time_values(&self) -> Cow<'_, [i64]> {
        match &self.source_time {
            Some(times) if self.source_clock && times.valid.is_none() => Cow::Borrowed(&times.values),
            Some(_) if self.source_clock => Cow::Owned((0..self.len()).map(|row| self.time(row)).collect()),
            _ => Cow::Borrowed(&self.receive_time),
        }
    }

    /// Returns the size of all texts and arrays in bytes.
    pub fn varying_bytes(&self) -> usize {
        self.columns.iter().map(|column| column.values.varying_bytes()).sum()
    }

    /// Returns the `time` of every frame.
    pub fn times(&self) -> Vec<i64> {
        self.time_values().into_owned()
    }
}

/// Decodes little-endian elements that are stored one after the other.
pub(crate) fn values_of(element: ElementType, bytes: &[u8]) -> ColumnValues {
    macro_rules! values {
        ($variant:ident, $native:ty) => {
            ColumnValues::$variant(
                bytes.as_chunks::<{ size_of::<$native>() }>().0.iter().map(|b| <$native>::from_le_bytes(*b)).collect(),
            )
        };
    }
    match element {
        ElementType::Bool => ColumnValues::Bool(bytes.iter().map(|byte| *byte != 0).collect()),
        ElementType::I8 => values!(I8, i8),
        ElementType::I16 => values!(I16, i16),
        ElementType::I32 => values!(I32, i32),
        ElementType::I64 => values!(I64, i64),
        ElementType::U8 => values!(U8, u8),
        ElementType::U16 => values!(U16, u16),
        ElementType::U32 => values!(U32, u32),
        ElementType::U64 => values!(U64, u64),
        ElementType::F32 => values!(F32, f32),
        ElementType::F64 => values!(F64, f64),
    }
}
