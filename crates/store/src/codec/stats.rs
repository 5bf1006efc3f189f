//! Statistics of a column, from which a scan can answer without decoding values.
//!
//! Layout for each channel of a block with at least 64 rows, one after the other. Numbers are varints unless noted:
//!
//! ```text
//! flags u8: 1 absent cells, 2 unchanged, 4 unknown, 8 NaNs, 16 infinities (each: its count follows, in
//!           this order), 32 an integral, 64 a minimum and maximum
//! if any cell is a value and the type is neither text nor arrays:
//!   first, last, [min, max]    value: floats as they are, integers zigzag or plain
//!   times                      first − time_min, time_max − last, [min − time_min, max − time_min]
//!   sum                        integers: zigzag of 128 bits; floats: f64
//!   [integral f64 (value · ns), span − known duration (ns)]
//! ```
//! NaN never enters minimum, maximum, sum or integral; infinities enter minimum and maximum only. The integral runs
//! between valid values by the channel's interpolation; NaN, an infinity, an unknown cell or a gap ends a piece. The
//! integral is left out if times decrease from row to row, or if the time of a row is too far ahead of its reception.

use crate::bytes::{Cursor, FormatError, malformed, put_signed, put_varint};
use crate::model::batch::{Column, ColumnValues};
use crate::model::stream::Interpolation;
use crate::model::value::{CellState, ChannelType, Value};

const HAS_ABSENT: u8 = 1;
const HAS_UNCHANGED: u8 = 2;
const HAS_UNKNOWN: u8 = 4;
const HAS_NANS: u8 = 8;
const HAS_INFINITIES: u8 = 16;
const HAS_INTEGRAL: u8 = 32;
const HAS_RANGE: u8 = 64;

/// Value with its `time`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Number or truth value; never text.
    pub value: Value<'static>,
    /// `time` of the value, in nanoseconds since 1970 UTC.
    pub time: i64,
}

/// Sum of the finite values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sum {
    /// Exact sum of integers and booleans.
    Integer(i128),
    /// Compensated sum of floats.
    Float(f64),
}

/// Integral of the value over time between the first and the last valid value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Integral {
    /// Value times nanoseconds.
    pub value_ns: f64,
    /// Nanoseconds over which the value is known. The time-weighted mean is `value_ns / known_ns`.
    pub known_ns: u64,
}

/// Statistics of one column of one block, or of several blocks joined.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnStatistics {
    /// Number of frames.
    pub rows: u64,
    /// Number of absent cells.
    pub absent: u64,
    /// Number of cells that a lossy codec left out.
    pub unchanged: u64,
    /// Number of unknown cells.
    pub unknowns: u64,
    /// Number of values that are NaN.
    pub nans: u64,
    /// Number of infinite values.
    pub infinities: u64,
    /// First value in row order.
    pub first: Option<Sample>,
    /// Last value in row order.
    pub last: Option<Sample>,
    /// Smallest value except NaN; the first one if several are equal.
    pub min: Option<Sample>,
    /// Largest value except NaN; the first one if several are equal.
    pub max: Option<Sample>,
    /// Sum of the finite values; `None` for texts or without values.
    pub sum: Option<Sum>,
    /// Integral; `None` for texts or if `time` decreases.
    pub integral: Option<Integral>,
}

impl ColumnStatistics {
    /// Returns the number of cells with a value.
    pub fn values(&self) -> u64 {
        self.rows.saturating_sub(self.absent).saturating_sub(self.unchanged).saturating_sub(self.unknowns)
    }

    /// Returns the number of cells without a value.
    pub fn nulls(&self) -> u64 {
        self.rows - self.values()
    }

    /// Returns the arithmetic mean of the finite values.
    pub fn mean(&self) -> Option<f64> {
        let count = self.values().checked_sub(self.nans + self.infinities).filter(|n| *n > 0)? as f64;
        Some(match self.sum? {
            Sum::Integer(sum) => sum as f64 / count,
            Sum::Float(sum) => sum / count,
        })
    }

    /// Returns the mean over the time for which the value is known.
    pub fn time_mean(&self) -> Option<f64> {
        let integral = self.integral.filter(|i| i.known_ns > 0)?;
        Some(integral.value_ns / integral.known_ns as f64)
    }

    /// Computes the statistics of a column.
    pub(crate) fn of(column: &Column, interpolation: Interpolation, times: &Times) -> Self {
        let states = column.states.as_deref();
        match &column.values {
            ColumnValues::Bool(v) => of_values(v, states, interpolation, times),
            ColumnValues::I8(v) => of_values(v, states, interpolation, times),
            ColumnValues::I16(v) => of_values(v, states, interpolation, times),
            ColumnValues::I32(v) => of_values(v, states, interpolation, times),
            ColumnValues::I64(v) => of_values(v, states, interpolation, times),
            ColumnValues::U8(v) => of_values(v, states, interpolation, times),
            ColumnValues::U16(v) => of_values(v, states, interpolation, times),
            ColumnValues::U32(v) => of_values(v, states, interpolation, times),
            ColumnValues::U64(v) => of_values(v, states, interpolation, times),
            ColumnValues::F32(v) => of_values(v, states, interpolation, times),
            ColumnValues::F64(v) => of_values(v, states, interpolation, times),
            ColumnValues::String { .. } | ColumnValues::Array { .. } => Self::counting(times.len(), states),
        }
    }

    /// Returns the statistics of a channel that is absent from every frame.
    pub(crate) fn of_absent(rows: usize) -> Self {
        ColumnStatistics { absent: rows as u64, ..Self::counting(rows, None) }
    }

    fn counting(rows: usize, states: Option<&[CellState]>) -> Self {
        let mut counts = [0u64; 4];
        states.unwrap_or_default().iter().for_each(|s| counts[*s as usize] += 1);
        ColumnStatistics {
            rows: rows as u64,
            absent: counts[CellState::Absent as usize],
            unchanged: counts[CellState::Unchanged as usize],
            unknowns: counts[CellState::Unknown as usize],
            nans: 0,
            infinities: 0,
            first: None,
            last: None,
            min: None,
            max: None,
            sum: None,
            integral: None,
        }
    }

    /// Adds later statistics, in row and time order. `gap` says whether frames are known to be missing between the two.
    pub fn join(&mut self, later: &ColumnStatistics, interpolation: Interpolation, gap: bool) {
        if let (Some(mine), Some(theirs)) = (&mut self.integral, later.integral) {
            mine.value_ns += theirs.value_ns;
            mine.known_ns += theirs.known_ns;
            // Unknown cells may be between the last and the first value, in which case that interval does not count.
            let unknown = self.unknowns > 0 || later.unknowns > 0;
            if let (Some(from), Some(to)) = (self.last, later.first)
                && !gap
                && !unknown
                && to.time >= from.time
            {
                let (a, b) = (from.value.as_f64().unwrap_or(f64::NAN), to.value.as_f64().unwrap_or(f64::NAN));
                if a.is_finite() && b.is_finite() {
                    let duration = to.time.abs_diff(from.time);
                    mine.value_ns += piece(a, b, duration, interpolation);
                    mine.known_ns += duration;
                }
            }
        } else if self.values() == 0 {
            self.integral = later.integral;
        } else if later.values() > 0 {
            self.integral = None;
        }
        self.rows += later.rows;
        self.absent += later.absent;
        self.unchanged += later.unchanged;
        self.unknowns += later.unknowns;
        self.nans += later.nans;
        self.infinities += later.infinities;
        self.first = self.first.or(later.first);
        self.last = later.last.or(self.last);
        self.min = extreme(self.min, later.min, |a, b| b < a);
        self.max = extreme(self.max, later.max, |a, b| b > a);
        self.sum = match (self.sum, later.sum) {
            (Some(Sum::Integer(a)), Some(Sum::Integer(b))) => Some(Sum::Integer(a.saturating_add(b))),
            (Some(Sum::Float(a)), Some(Sum::Float(b))) => Some(Sum::Float(a + b)),
            // The channel was widened from integer to float.
            (Some(Sum::Integer(a)), Some(Sum::Float(b))) | (Some(Sum::Float(b)), Some(Sum::Integer(a))) => {
                Some(Sum::Float(a as f64 + b))
            }
            (a, b) => a.or(b),
        };
    }

    /// Appends the encoded statistics. `times` are those of the block.
    pub(crate) fn put(&self, times: &Times, out: &mut Vec<u8>) {
        self.put_within((times.min, times.max), out);
    }

    /// Appends the encoded statistics of rows with a minimum and a maximum time.
    pub(crate) fn put_within(&self, (time_min, time_max): (i64, i64), out: &mut Vec<u8>) {
        let at = out.len();
        out.push(0);
        let mut flags = 0;
        for (count, flag) in [
            (self.absent, HAS_ABSENT),
            (self.unchanged, HAS_UNCHANGED),
            (self.unknowns, HAS_UNKNOWN),
            (self.nans, HAS_NANS),
            (self.infinities, HAS_INFINITIES),
        ] {
            if count > 0 {
                flags |= flag;
                put_varint(out, count);
            }
        }
        if let (Some(first), Some(last), Some(sum)) = (self.first, self.last, self.sum) {
            let offset = |s: Sample| s.time.abs_diff(time_min);
            put_value(first.value, out);
            put_value(last.value, out);
            let range = self.min.zip(self.max);
            if let Some((min, max)) = range {
                flags |= HAS_RANGE;
                put_value(min.value, out);
                put_value(max.value, out);
            }
            put_varint(out, offset(first));
            put_varint(out, time_max.abs_diff(last.time));
            if let Some((min, max)) = range {
                put_varint(out, offset(min));
                put_varint(out, offset(max));
            }
            match sum {
                Sum::Integer(sum) => put_u128(out, ((sum << 1) ^ (sum >> 127)) as u128),
                Sum::Float(sum) => out.extend_from_slice(&sum.to_le_bytes()),
            }
            if let Some(integral) = self.integral {
                flags |= HAS_INTEGRAL;
                out.extend_from_slice(&integral.value_ns.to_le_bytes());
                put_varint(out, time_max.abs_diff(time_min) - integral.known_ns);
            }
        }
        out[at] = flags;
    }

    /// Reads what [`ColumnStatistics::put`] appended for a column of `kind`.
    pub(crate) fn read(
        cursor: &mut Cursor<'_>,
        kind: ChannelType,
        rows: usize,
        time: (i64, i64),
    ) -> Result<Self, FormatError> {
        let flags = cursor.u8("statistics")?;
        if flags & 0x80 != 0 {
            return Err(FormatError::Unsupported { what: "statistics", found: flags.into() });
        }
        let mut count =
            |flag| if flags & flag == 0 { Ok(0) } else { cursor.count("statistics", rows).map(|n| n as u64) };
        let mut read = ColumnStatistics::counting(rows, None);
        read.absent = count(HAS_ABSENT)?;
        read.unchanged = count(HAS_UNCHANGED)?;
        read.unknowns = count(HAS_UNKNOWN)?;
        read.nans = count(HAS_NANS)?;
        read.infinities = count(HAS_INFINITIES)?;
        let counted = read.absent + read.unchanged + read.unknowns;
        if counted > rows as u64 || read.nans + read.infinities > rows as u64 - counted {
            return Err(malformed("statistics count more cells than rows"));
        }
        if !kind.is_scalar() || read.values() == 0 {
            return Ok(read);
        }
        let first = read_value(cursor, kind)?;
        let last = read_value(cursor, kind)?;
        let range = match flags & HAS_RANGE {
            0 => None,
            _ => Some((read_value(cursor, kind)?, read_value(cursor, kind)?)),
        };
        let span = time.1.abs_diff(time.0);
        let mut instant = |from_end: bool| {
            let offset = cursor.varint("time of a statistic")?;
            if offset > span {
                return Err(malformed("a statistic outside the block's time"));
            }
            Ok::<_, FormatError>(if from_end {
                time.1.wrapping_sub_unsigned(offset)
            } else {
                time.0.wrapping_add_unsigned(offset)
            })
        };
        read.first = Some(Sample { value: first, time: instant(false)? });
        read.last = Some(Sample { value: last, time: instant(true)? });
        if let Some((min, max)) = range {
            read.min = Some(Sample { value: min, time: instant(false)? });
            read.max = Some(Sample { value: max, time: instant(false)? });
        }
        read.sum = Some(if kind.is_float() {
            Sum::Float(cursor.f64("sum")?)
        } else {
            let zigzag = read_u128(cursor)?;
            Sum::Integer((zigzag >> 1) as i128 ^ -((zigzag & 1) as i128))
        });
        if flags & HAS_INTEGRAL != 0 {
            let value_ns = cursor.f64("integral")?;
            let unknown_ns = cursor.varint("duration of an integral")?;
            let known_ns = span.checked_sub(unknown_ns).ok_or(malformed("an integral longer than its block"))?;
            read.integral = Some(Integral { value_ns, known_ns });
        }
        Ok(read)
    }
}

/// Appends 128 bits as a varint of up to 19 bytes.
fn put_u128(out: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_u128(cursor: &mut Cursor<'_>) -> Result<u128, FormatError> {
    let mut value = 0u128;
    for index in 0..19 {
        let byte = cursor.u8("sum")?;
        if index == 18 && byte > 3 {
            break;
        }
        value |= u128::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(malformed("varint over 128 bits"))
}

fn put_value(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::F32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::F64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I8(v) => put_signed(out, v.into()),
        Value::I16(v) => put_signed(out, v.into()),
        Value::I32(v) => put_signed(out, v.into()),
        Value::I64(v) => put_signed(out, v),
        unsigned => put_varint(out, unsigned.bits()),
    }
}

fn read_value(cursor: &mut Cursor<'_>, kind: ChannelType) -> Result<Value<'static>, FormatError> {
    let what = "value of a statistic";
    let bits = match kind {
        ChannelType::F32 => cursor.u32(what)?.into(),
        ChannelType::F64 => cursor.u64(what)?,
        ChannelType::I8 | ChannelType::I16 | ChannelType::I32 | ChannelType::I64 => cursor.signed(what)? as u64,
        kind if !kind.is_scalar() => return Err(malformed("statistics of text")),
        _ => cursor.varint(what)?,
    };
    Ok(Value::from_bits(kind, bits))
}

/// Returns the smaller or larger of two samples, which may differ in type.
fn extreme(a: Option<Sample>, b: Option<Sample>, beats: impl Fn(ExactOrder, ExactOrder) -> bool) -> Option<Sample> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if beats(order(a.value), order(b.value)) { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// Number that compares exactly among integers and among floats.
#[derive(Clone, Copy)]
enum ExactOrder {
    Integer(i128),
    Float(f64),
}

impl PartialEq for ExactOrder {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(std::cmp::Ordering::Equal)
    }
}

impl PartialOrd for ExactOrder {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        match (self, other) {
            (ExactOrder::Integer(a), ExactOrder::Integer(b)) => a.partial_cmp(b),
            (ExactOrder::Float(a), ExactOrder::Float(b)) => a.partial_cmp(b),
            // Only integers of at most 32 bits are joined with floats, as layouts widen only those.
            (ExactOrder::Integer(a), ExactOrder::Float(b)) => (*a as f64).partial_cmp(b),
            (ExactOrder::Float(a), ExactOrder::Integer(b)) => a.partial_cmp(&(*b as f64)),
        }
    }
}

fn order(value: Value<'_>) -> ExactOrder {
    match value {
        Value::I64(v) => ExactOrder::Integer(v.into()),
        Value::U64(v) => ExactOrder::Integer(v.into()),
        Value::F32(v) => ExactOrder::Float(v.into()),
        Value::F64(v) => ExactOrder::Float(v),
        other => ExactOrder::Integer(other.as_f64().unwrap_or_default() as i128),
    }
}

fn piece(from: f64, to: f64, duration_ns: u64, interpolation: Interpolation) -> f64 {
    let duration = duration_ns as f64;
    match interpolation {
        Interpolation::Hold => from * duration,
        Interpolation::Linear => (from / 2.0 + to / 2.0) * duration,
    }
}

/// Times of a block, prepared once for all its columns.
#[derive(Debug, Default)]
pub(crate) struct Times {
    times: Vec<i64>,
    min: i64,
    max: i64,
    sorted: bool,
    /// Whether frames are missing before each row.
    gap_before: Vec<bool>,
    /// Nanoseconds for which each row's value holds, if every row has one.
    hold: Vec<f64>,
    linear: Vec<f64>,
    known_ns: u64,
}

impl Times {
    /// Prepares for the columns of a block. `gaps` are the rows before which frames are missing. Unless `sorted`, no
    /// column gets an integral.
    pub(crate) fn set(&mut self, times: &[i64], sorted: bool, gaps: &[u32]) {
        let rows = times.len();
        self.times.clear();
        self.times.extend_from_slice(times);
        self.min = times.iter().copied().min().unwrap_or_default();
        self.max = times.iter().copied().max().unwrap_or_default();
        self.sorted = sorted;
        self.gap_before.clear();
        self.gap_before.resize(rows, false);
        for gap in gaps {
            if let Some(slot) = self.gap_before.get_mut(*gap as usize) {
                *slot = true;
            }
        }
        for weights in [&mut self.hold, &mut self.linear] {
            weights.clear();
            weights.resize(rows, 0.0);
        }
        self.known_ns = 0;
        if !sorted {
            return;
        }
        for row in 1..rows {
            if self.gap_before[row] {
                continue;
            }
            let duration = times[row].abs_diff(times[row - 1]);
            self.known_ns += duration;
            self.hold[row - 1] = duration as f64;
            self.linear[row - 1] += duration as f64 / 2.0;
            self.linear[row] += duration as f64 / 2.0;
        }
    }

    fn len(&self) -> usize {
        self.times.len()
    }
}

/// Number type of which statistics can be computed.
trait StatNumber: Copy + PartialOrd {
    const FLOAT: bool;
    fn value(self) -> Value<'static>;
    fn float(self) -> f64;
    /// Returns the sum of values, none of which is infinite or NaN.
    fn sum(values: &[Self]) -> Sum;
}

macro_rules! number {
    (integer $type:ty, $variant:ident, $sum:ty) => {
        impl StatNumber for $type {
            const FLOAT: bool = false;
            fn value(self) -> Value<'static> {
                Value::$variant(self)
            }
            #[inline(always)]
            fn float(self) -> f64 {
                self as f64
            }
            fn sum(values: &[Self]) -> Sum {
                Sum::Integer(values.iter().map(|v| *v as $sum).sum::<$sum>() as i128)
            }
        }
    };
}
number!(integer i8, I8, i64);
number!(integer i16, I16, i64);
number!(integer i32, I32, i64);
number!(integer i64, I64, i128);
number!(integer u8, U8, i64);
number!(integer u16, U16, i64);
number!(integer u32, U32, i64);
number!(integer u64, U64, i128);

impl StatNumber for bool {
    const FLOAT: bool = false;
    fn value(self) -> Value<'static> {
        Value::Bool(self)
    }
    fn float(self) -> f64 {
        f64::from(u8::from(self))
    }
    fn sum(values: &[Self]) -> Sum {
        Sum::Integer(values.iter().filter(|v| **v).count() as i128)
    }
}

impl StatNumber for f32 {
    const FLOAT: bool = true;
    fn value(self) -> Value<'static> {
        Value::F32(self)
    }
    #[inline(always)]
    fn float(self) -> f64 {
        self as f64
    }
    fn sum(values: &[Self]) -> Sum {
        // f64 has 29 more bits of fraction than f32, so a block's worth of f32 needs no compensation.
        let (lanes, rest) = values.as_chunks::<8>();
        let mut sums = [0f64; 8];
        for lane in lanes {
            for (sum, v) in sums.iter_mut().zip(lane) {
                *sum += f64::from(*v);
            }
        }
        Sum::Float(sums.iter().sum::<f64>() + rest.iter().map(|v| f64::from(*v)).sum::<f64>())
    }
}

impl StatNumber for f64 {
    const FLOAT: bool = true;
    fn value(self) -> Value<'static> {
        Value::F64(self)
    }
    #[inline(always)]
    fn float(self) -> f64 {
        self
    }
    fn sum(values: &[Self]) -> Sum {
        let (lanes, rest) = values.as_chunks::<4>();
        let (mut sums, mut lost) = ([0f64; 4], [0f64; 4]);
        for lane in lanes {
            for ((sum, lost), v) in sums.iter_mut().zip(&mut lost).zip(lane) {
                (*sum, *lost) = add(*sum, *lost, *v);
            }
        }
        let (mut sum, mut error) = (0.0, lost.iter().sum::<f64>());
        for v in sums.iter().chain(rest) {
            (sum, error) = add(sum, error, *v);
        }
        Sum::Float(sum + error)
    }
}

/// Returns `sum + v`, and `lost` plus the rounding error (Knuth's two-sum).
#[inline(always)]
fn add(sum: f64, lost: f64, v: f64) -> (f64, f64) {
    let total = sum + v;
    let part = total - sum;
    (total, lost + ((sum - (total - part)) + (v - part)))
}

fn of_values<T: StatNumber>(
    values: &[T],
    states: Option<&[CellState]>,
    interpolation: Interpolation,
    times: &Times,
) -> ColumnStatistics {
    let mut statistics = ColumnStatistics::counting(times.len(), states);
    if statistics.nulls() > 0 {
        general(values, states.unwrap_or_default(), interpolation, times, &mut statistics);
        return statistics;
    }
    let sum = T::sum(values);
    // A finite sum contains neither NaN nor infinity. One that overflowed without either takes the slow path too.
    if matches!(sum, Sum::Float(s) if !s.is_finite()) {
        general(values, &[], interpolation, times, &mut statistics);
        return statistics;
    }
    let (min, max) = range(values);
    let sample = |row: usize| Some(Sample { value: values[row].value(), time: times.times[row] });
    statistics.first = sample(0);
    statistics.last = sample(values.len() - 1);
    statistics.min = values.iter().position(|v| *v == min).and_then(sample);
    statistics.max = values.iter().position(|v| *v == max).and_then(sample);
    statistics.sum = Some(sum);
    if times.sorted {
        let weights = match interpolation {
            Interpolation::Hold => &times.hold,
            Interpolation::Linear => &times.linear,
        };
        let value_ns = dot(values, weights);
        statistics.integral = Some(Integral { value_ns, known_ns: times.known_ns });
    }
    statistics
}

fn range<T: StatNumber>(values: &[T]) -> (T, T) {
    let (lanes, rest) = values.as_chunks::<8>();
    let (mut low, mut high) = ([values[0]; 8], [values[0]; 8]);
    for lane in lanes {
        for i in 0..8 {
            low[i] = if lane[i] < low[i] { lane[i] } else { low[i] };
            high[i] = if lane[i] > high[i] { lane[i] } else { high[i] };
        }
    }
    let mut bounds = (low[0], high[0]);
    for v in low.iter().chain(&high).chain(rest) {
        bounds.0 = if *v < bounds.0 { *v } else { bounds.0 };
        bounds.1 = if *v > bounds.1 { *v } else { bounds.1 };
    }
    bounds
}

fn dot<T: StatNumber>(values: &[T], weights: &[f64]) -> f64 {
    let (lanes, rest) = values.as_chunks::<8>();
    let (weight_lanes, weight_rest) = weights.as_chunks::<8>();
    let mut sums = [0f64; 8];
    for (lane, weights) in lanes.iter().zip(weight_lanes) {
        for i in 0..8 {
            sums[i] += lane[i].float() * weights[i];
        }
    }
    sums.iter().sum::<f64>() + rest.iter().zip(weight_rest).map(|(v, w)| v.float() * w).sum::<f64>()
}

/// Computes statistics row by row, for columns with nulls, NaNs or infinities.
fn general<T: StatNumber>(
    values: &[T],
    states: &[CellState],
    interpolation: Interpolation,
    times: &Times,
    statistics: &mut ColumnStatistics,
) {
    let mut finite = Vec::with_capacity(values.len());
    let mut integral = Integral { value_ns: 0.0, known_ns: 0 };
    // Last finite value that is connected to the next one, and its time.
    let mut from: Option<(f64, i64)> = None;
    let (mut min, mut max) = (None::<(T, i64)>, None::<(T, i64)>);
    for (row, value) in values.iter().enumerate() {
        if times.gap_before[row] {
            from = None;
        }
        match states.get(row).copied().unwrap_or(CellState::Value) {
            CellState::Value => {}
            CellState::Unknown => {
                from = None;
                continue;
            }
            CellState::Absent | CellState::Unchanged => continue,
        }
        let time = times.times[row];
        let sample = Some(Sample { value: value.value(), time });
        statistics.first = statistics.first.or(sample);
        statistics.last = sample;
        let float = value.float();
        if T::FLOAT && float.is_nan() {
            statistics.nans += 1;
            from = None;
            continue;
        }
        if min.is_none_or(|(m, _)| *value < m) {
            min = Some((*value, time));
        }
        if max.is_none_or(|(m, _)| *value > m) {
            max = Some((*value, time));
        }
        if T::FLOAT && float.is_infinite() {
            statistics.infinities += 1;
            from = None;
            continue;
        }
        finite.push(*value);
        if let Some((before, since)) = from
            && times.sorted
        {
            let duration = time.abs_diff(since);
            integral.value_ns += piece(before, float, duration, interpolation);
            integral.known_ns += duration;
        }
        from = Some((float, time));
    }
    let sample = |(value, time): (T, i64)| Sample { value: value.value(), time };
    statistics.min = min.map(sample);
    statistics.max = max.map(sample);
    if statistics.first.is_some() {
        statistics.sum = Some(T::sum(&finite));
        statistics.integral = times.sorted.then_some(integral);
    }
}

#[cfg(test)]
mod tests;
