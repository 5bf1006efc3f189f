//! Column codecs: lossless encoding of the values of one channel.
//!
//! ```text
//!  Batch ─> [codec] ─> block ─> segment
//! ```
//! The codec of a column is chosen here, by what fits and what is smallest, and noted in the block's directory.
//! [`CodecMemory`] carries what was learned about a channel from block to block.

pub mod stats;

pub(crate) mod float;
pub(crate) mod integer;
pub(crate) mod joined;
pub(crate) mod learn;
pub(crate) mod pack;
pub(crate) mod pcodec;
pub(crate) mod quantised;
pub(crate) mod text;
pub(crate) mod tiles;

use crate::bytes::{Cursor, FormatError, malformed};
use crate::codec::float::Float;
use crate::codec::quantised::ValueGrid;
use crate::model::batch::ColumnValues;
use crate::model::value::{ChannelType, Value};

/// Encoding of a column's values. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// No values.
    None = 0,
    /// Little-endian values, or texts one after the other.
    Plain = 1,
    /// One value for all rows.
    Constant = 2,
    /// Integers by differences, frame of reference, divisor and run lengths.
    Integer = 3,
    /// Floats by quantised frame of reference.
    Quantised = 4,
    /// The `pco` library's standalone format.
    Pco = 5,
    /// Distinct texts, and indices to them.
    Dictionary = 6,
    /// Times equal to the other time column, which take no bytes.
    SameTime = 7,
    /// Differences from the other time column.
    TimeDifference = 8,
    /// Arrays by element, in tiles that are encoded as separate columns.
    Tiles = 9,
}

impl Codec {
    /// Returns the codec of a format code, or `None` if this version does not know it.
    pub fn from_code(code: u8) -> Option<Codec> {
        use Codec::*;
        [None, Plain, Constant, Integer, Quantised, Pco, Dictionary, SameTime, TimeDifference, Tiles]
            .get(code as usize)
            .copied()
    }

    /// Returns the lower-case name shown by `store inspect`.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Plain => "plain",
            Codec::Constant => "constant",
            Codec::Integer => "integer",
            Codec::Quantised => "quantised",
            Codec::Pco => "pco",
            Codec::Dictionary => "dictionary",
            Codec::SameTime => "same-time",
            Codec::TimeDifference => "time-difference",
            Codec::Tiles => "tiles",
        }
    }
}

/// Trade-off between encoding time and size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// During ingest, where nanoseconds a value count.
    #[default]
    Seal,
    /// During compaction in the background, where bytes count.
    Settle,
}

/// Knowledge about the channels of one stream: 32 bytes each. An empty one is always valid, but must be learned again.
#[derive(Clone, Debug, Default)]
pub struct CodecMemory {
    channels: Vec<ChannelMemory>,
}

impl CodecMemory {
    /// Returns an empty memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the allocated size in bytes.
    pub fn size_bytes(&self) -> usize {
        self.channels.capacity() * size_of::<ChannelMemory>()
    }

    pub(crate) fn channel(&mut self, index: usize) -> &mut ChannelMemory {
        if self.channels.len() <= index {
            self.channels.resize(index + 1, ChannelMemory::default());
        }
        &mut self.channels[index]
    }
}

/// Knowledge about one channel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChannelMemory {
    grid: Option<ValueGrid>,
    /// Blocks to skip before learning is tried again, and the number of failures in a row.
    learn_rest: u8,
    learn_failures: u8,
    /// Blocks to skip before `pco` is tried again, and how many times in a row it did not pay.
    pco_rest: u8,
    pco_failures: u8,
}

/// Sets the number of blocks to skip after the n-th failure in a row: 1, 2, 4, … 128.
fn back_off(rest: &mut u8, failures: &mut u8) {
    *rest = 1 << (*failures).min(7);
    *failures = failures.saturating_add(1);
}

/// Buffers reused between columns.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    quantised: quantised::QuantisedScratch,
    integers: Vec<i64>,
    other: Vec<u8>,
}

/// Result of encoding a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub(crate) codec: Codec,
    /// Bytes of parameters at the start of the output.
    pub(crate) parameter_bytes: usize,
}

impl Encoded {
    fn new(codec: Codec) -> Self {
        Encoded { codec, parameter_bytes: 0 }
    }
}

/// Appends the values of a column, all of which must be valid. Arrays are encoded by [`tiles::encode`].
pub(crate) fn encode(
    values: &ColumnValues,
    memory: &mut ChannelMemory,
    effort: Effort,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Encoded {
    if values.is_empty() {
        return Encoded::new(Codec::None);
    }
    macro_rules! integers {
        ($values:expr) => {{
            scratch.integers.clear();
            scratch.integers.extend($values.iter().map(|v| *v as i64));
            encode_integers($values, effort, scratch, out)
        }};
    }
    match values {
        ColumnValues::Bool(v) => {
            scratch.integers.clear();
            scratch.integers.extend(v.iter().map(|v| i64::from(*v)));
            integer::encode(&scratch.integers, out);
            Encoded::new(Codec::Integer)
        }
        ColumnValues::I8(v) => {
            scratch.integers.clear();
            scratch.integers.extend(v.iter().map(|v| i64::from(*v)));
            integer::encode(&scratch.integers, out);
            Encoded::new(Codec::Integer)
        }
        ColumnValues::U8(v) => {
            scratch.integers.clear();
            scratch.integers.extend(v.iter().map(|v| i64::from(*v)));
            integer::encode(&scratch.integers, out);
            Encoded::new(Codec::Integer)
        }
        ColumnValues::I16(v) => integers!(v),
        ColumnValues::I32(v) => integers!(v),
        ColumnValues::I64(v) => integers!(v),
        ColumnValues::U16(v) => integers!(v),
        ColumnValues::U32(v) => integers!(v),
        ColumnValues::U64(v) => integers!(v),
        ColumnValues::F32(v) => encode_floats(v, memory, effort, scratch, out),
        ColumnValues::F64(v) => encode_floats(v, memory, effort, scratch, out),
        ColumnValues::String { offsets, bytes } => {
            let texts = offsets.windows(2).map(|w| &bytes[w[0] as usize..w[1] as usize]);
            if text::encode_dictionary(texts.clone(), values.len(), out) {
                Encoded::new(Codec::Dictionary)
            } else {
                text::encode_plain(texts, out);
                Encoded::new(Codec::Plain)
            }
        }
        ColumnValues::Array { .. } => unreachable!("arrays are encoded in tiles"),
    }
}

/// Encodes integers; `scratch.integers` must hold the same values.
fn encode_integers<T: pcodec::PcoNumber>(
    values: &[T],
    effort: Effort,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Encoded {
    let start = out.len();
    integer::encode(&scratch.integers, out);
    let packed_len = out.len() - start;
    if effort == Effort::Settle && packed_len > values.len() / 4 && pcodec::encode(values, 8, &mut scratch.other) {
        // Slower to decode, so use it only if it saves more than an eighth.
        if scratch.other.len() + packed_len / 8 < packed_len {
            out.truncate(start);
            out.extend_from_slice(&scratch.other);
            return Encoded::new(Codec::Pco);
        }
    }
    Encoded::new(Codec::Integer)
}

fn encode_floats<F: Float>(
    values: &[F],
    memory: &mut ChannelMemory,
    effort: Effort,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Encoded {
    let start = out.len();
    if values.iter().all(|v| v.pattern() == values[0].pattern()) {
        values[0].put(out);
        return Encoded::new(Codec::Constant);
    }
    let plain_len = values.len() * F::SIZE;
    let (mut best, mut fits) = (None::<Encoded>, false);
    if let Some(grid) = memory.grid
        && let Some(fit) = quantised::encode(values, grid, &mut scratch.quantised, out)
    {
        let encoded = Encoded { codec: Codec::Quantised, parameter_bytes: fit.parameter_bytes };
        best = Some(encoded);
        fits = fit.corrected * 16 <= values.len() && out.len() - start <= plain_len * 5 / 8;
        if fits && effort == Effort::Seal {
            return encoded;
        }
    }
    if memory.learn_rest > 0 && effort == Effort::Seal {
        memory.learn_rest -= 1;
    } else if !fits {
        relearn(values, memory, start, &mut best, scratch, out);
    }
    let quantised_len = best.map(|_| out.len() - start);
    if quantised_len.is_some_and(|len| len <= plain_len * 5 / 8) && effort == Effort::Seal {
        return best.unwrap_or(Encoded::new(Codec::Quantised));
    }
    if memory.pco_rest > 0 && effort == Effort::Seal {
        memory.pco_rest -= 1;
    } else if pcodec::encode(values, if effort == Effort::Seal { 4 } else { 8 }, &mut scratch.other) {
        let rival = quantised_len.unwrap_or(plain_len);
        if scratch.other.len() + rival / 16 < rival {
            memory.pco_failures = 0;
            out.truncate(start);
            out.extend_from_slice(&scratch.other);
            return Encoded::new(Codec::Pco);
        }
        back_off(&mut memory.pco_rest, &mut memory.pco_failures);
    }
    match best {
        Some(encoded) if quantised_len.is_some_and(|len| len < plain_len) => encoded,
        _ => {
            out.truncate(start);
            values.iter().for_each(|v| v.put(out));
            Encoded::new(Codec::Plain)
        }
    }
}

/// Learns the grid again and keeps its encoding if that is smaller than what `out` holds from `start`.
fn relearn<F: Float>(
    values: &[F],
    memory: &mut ChannelMemory,
    start: usize,
    best: &mut Option<Encoded>,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) {
    let before = best.map(|_| out.len());
    let learned = learn::learn(values).filter(|grid| memory.grid != Some(*grid));
    let end = out.len();
    let Some(fit) = learned.and_then(|grid| {
        let fit = quantised::encode(values, grid, &mut scratch.quantised, out)?;
        let len = out.len() - end;
        if before.is_some_and(|b| b - start <= len) {
            out.truncate(end);
            return None;
        }
        memory.grid = Some(grid);
        Some(fit)
    }) else {
        back_off(&mut memory.learn_rest, &mut memory.learn_failures);
        return;
    };
    out.drain(start..end);
    *best = Some(Encoded { codec: Codec::Quantised, parameter_bytes: fit.parameter_bytes });
    if fit.corrected * 16 <= values.len() {
        memory.learn_failures = 0;
    } else {
        back_off(&mut memory.learn_rest, &mut memory.learn_failures);
    }
}

/// Reads `count` values of a type.
///
/// # Errors
/// If the bytes are not what `codec` writes for this many values.
pub(crate) fn decode(
    kind: ChannelType,
    codec: Codec,
    parameters: &[u8],
    bytes: &[u8],
    count: usize,
) -> Result<ColumnValues, FormatError> {
    let mut cursor = Cursor::new(bytes);
    if count == 0 {
        return if bytes.is_empty() { Ok(ColumnValues::empty(kind)) } else { Err(malformed("values of no row")) };
    }
    if !parameters.is_empty() && codec != Codec::Quantised {
        return Err(malformed("parameters of a codec that has none"));
    }
    macro_rules! integers {
        ($variant:ident, $type:ty) => {{
            let mut out = vec![0 as $type; count];
            match codec {
                Codec::Integer => integer::decode(&mut cursor, &mut out, |v| v as $type)?,
                Codec::Pco => pcodec::decode(&mut cursor, &mut out)?,
                Codec::Plain => plain_decode(&mut cursor, &mut out, <$type>::from_le_bytes)?,
                _ => return Err(mismatch(codec)),
            }
            ColumnValues::$variant(out)
        }};
    }
    let values = match kind {
        ChannelType::Bool => {
            let mut out = vec![false; count];
            match codec {
                Codec::Integer => integer::decode(&mut cursor, &mut out, |v| v != 0)?,
                _ => return Err(mismatch(codec)),
            }
            ColumnValues::Bool(out)
        }
        ChannelType::I8 | ChannelType::U8 if codec == Codec::Pco => return Err(mismatch(codec)),
        ChannelType::I8 => {
            let mut out = vec![0i8; count];
            integer_only(codec)?;
            integer::decode(&mut cursor, &mut out, |v| v as i8)?;
            ColumnValues::I8(out)
        }
        ChannelType::U8 => {
            let mut out = vec![0u8; count];
            integer_only(codec)?;
            integer::decode(&mut cursor, &mut out, |v| v as u8)?;
            ColumnValues::U8(out)
        }
        ChannelType::I16 => integers!(I16, i16),
        ChannelType::I32 => integers!(I32, i32),
        ChannelType::I64 => integers!(I64, i64),
        ChannelType::U16 => integers!(U16, u16),
        ChannelType::U32 => integers!(U32, u32),
        ChannelType::U64 => integers!(U64, u64),
        ChannelType::F32 => {
            let mut out = vec![0f32; count];
            decode_floats(codec, parameters, &mut cursor, &mut out)?;
            ColumnValues::F32(out)
        }
        ChannelType::F64 => {
            let mut out = vec![0f64; count];
            decode_floats(codec, parameters, &mut cursor, &mut out)?;
            ColumnValues::F64(out)
        }
        ChannelType::String => {
            let (offsets, bytes) = match codec {
                Codec::Plain => text::decode_plain(&mut cursor, count)?,
                Codec::Dictionary => text::decode_dictionary(&mut cursor, count)?,
                _ => return Err(mismatch(codec)),
            };
            ColumnValues::String { offsets, bytes }
        }
        ChannelType::Blob | ChannelType::Array(_) => return Err(mismatch(codec)),
    };
    if cursor.remaining() > 0 {
        return Err(malformed("bytes left behind a column"));
    }
    Ok(values)
}

fn decode_floats<F: Float>(
    codec: Codec,
    parameters: &[u8],
    cursor: &mut Cursor<'_>,
    out: &mut [F],
) -> Result<(), FormatError> {
    match codec {
        Codec::Plain => {
            for slot in out {
                *slot = F::get(cursor)?;
            }
            Ok(())
        }
        Codec::Constant => {
            out.fill(F::get(cursor)?);
            Ok(())
        }
        Codec::Quantised => quantised::decode(parameters, cursor, out),
        Codec::Pco => pcodec::decode(cursor, out),
        _ => Err(mismatch(codec)),
    }
}

fn plain_decode<T, const N: usize>(
    cursor: &mut Cursor<'_>,
    out: &mut [T],
    get: impl Fn([u8; N]) -> T,
) -> Result<(), FormatError> {
    let bytes = cursor.take(out.len() * N, "plain values")?;
    for (slot, value) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *slot = get(*value);
    }
    Ok(())
}

fn integer_only(codec: Codec) -> Result<(), FormatError> {
    if codec == Codec::Integer { Ok(()) } else { Err(mismatch(codec)) }
}

fn mismatch(codec: Codec) -> FormatError {
    FormatError::Unsupported { what: "codec for this type: code", found: codec as u64 }
}

/// Converts values to a wider type (see [`ChannelType::widen`]).
///
/// # Errors
/// If the wider type does not hold the values.
pub(crate) fn widen(values: ColumnValues, to: ChannelType) -> Result<ColumnValues, FormatError> {
    let from = values.channel_type();
    if from == to {
        return Ok(values);
    }
    if from.widen(to) != Some(to) {
        return Err(malformed("the stored type does not widen to the layout's"));
    }
    if let (ColumnValues::Array { offsets, bytes, .. }, ChannelType::Array(kind)) = (&values, to) {
        let (offsets, bytes) = (offsets.clone(), bytes.clone());
        return Ok(ColumnValues::Array { kind, offsets, bytes });
    }
    macro_rules! convert {
        ($($variant:ident)*) => {
            match to {
                $(ChannelType::$variant => ColumnValues::$variant(
                    (0..values.len())
                        .map(|row| match values.value(row).convert(to) {
                            Some(Value::$variant(v)) => v,
                            _ => Default::default(),
                        })
                        .collect(),
                ),)*
                ChannelType::String | ChannelType::Blob | ChannelType::Array(_) => {
                    return Err(malformed("numbers widen to numbers only"));
                }
            }
        };
    }
    Ok(convert!(Bool I8 I16 I32 I64 U8 U16 U32 U64 F32 F64))
}
