//! Reduction of a channel to buckets of time for plots: no spike is hidden.

use std::ops::Range;

use crate::refusal::ScanError;
use crate::state::OwnedValue;
use crate::stream::{ChannelIndex, StreamId};
use crate::value::Value;
use crate::view::{Scan, View};

/// What stands for the values of one channel within a piece of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// Start of the piece, nanoseconds since 1970 UTC.
    pub time: i64,
    /// Values in it, NaNs among them.
    pub count: u64,
    /// First value in `time`; for equal times the lower row.
    pub first: OwnedValue,
    /// Last value in `time`; for equal times the higher row.
    pub last: OwnedValue,
    /// Smallest value, NaNs apart; none for text or if all are NaN.
    pub min: Option<Value<'static>>,
    /// Largest value, NaNs apart; none for text or if all are NaN.
    pub max: Option<Value<'static>>,
    /// Arithmetic mean of the finite values; none for text or if none is finite.
    pub mean: Option<f64>,
}

/// A bucket under way.
#[derive(Clone, Debug)]
struct Filling {
    bucket: Bucket,
    first_at: i64,
    last_at: (i64, u64),
    finite: u64,
    sum: f64,
    lost: f64,
}

/// Whether `a` is less than `b`, exactly, for values of one type; false for NaN and text.
fn less(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a < b,
        (Value::I8(a), Value::I8(b)) => a < b,
        (Value::I16(a), Value::I16(b)) => a < b,
        (Value::I32(a), Value::I32(b)) => a < b,
        (Value::I64(a), Value::I64(b)) => a < b,
        (Value::U8(a), Value::U8(b)) => a < b,
        (Value::U16(a), Value::U16(b)) => a < b,
        (Value::U32(a), Value::U32(b)) => a < b,
        (Value::U64(a), Value::U64(b)) => a < b,
        (Value::F32(a), Value::F32(b)) => a < b,
        (Value::F64(a), Value::F64(b)) => a < b,
        _ => false,
    }
}

fn is_nan(value: &Value<'_>) -> bool {
    match value {
        Value::F32(v) => v.is_nan(),
        Value::F64(v) => v.is_nan(),
        _ => false,
    }
}

impl Filling {
    fn new(start: i64, value: Value<'_>, time: i64, row: u64) -> Filling {
        let owned = OwnedValue::of(value);
        let mut this = Filling {
            bucket: Bucket {
                time: start,
                count: 0,
                first: owned.clone(),
                last: owned,
                min: None,
                max: None,
                mean: None,
            },
            first_at: time,
            last_at: (time, row),
            finite: 0,
            sum: 0.0,
            lost: 0.0,
        };
        this.add(value, time, row);
        this
    }

    fn add(&mut self, value: Value<'_>, time: i64, row: u64) {
        self.bucket.count += 1;
        if time < self.first_at {
            self.first_at = time;
            self.bucket.first = OwnedValue::of(value);
        }
        if (time, row) > self.last_at {
            self.last_at = (time, row);
            self.bucket.last = OwnedValue::of(value);
        }
        let Some(number) = value.as_f64() else { return };
        if number.is_finite() {
            // Neumaier's compensated sum.
            let sum = self.sum + number;
            self.lost +=
                if self.sum.abs() >= number.abs() { (self.sum - sum) + number } else { (number - sum) + self.sum };
            self.sum = sum;
            self.finite += 1;
        }
        if !is_nan(&value) {
            let plain = Value::from_bits(value.channel_type(), value.bits());
            if self.bucket.min.as_ref().is_none_or(|m| less(&plain, m)) {
                self.bucket.min = Some(plain);
            }
            if self.bucket.max.as_ref().is_none_or(|m| less(m, &plain)) {
                self.bucket.max = Some(plain);
            }
        }
    }

    fn finish(mut self) -> Bucket {
        if self.finite > 0 {
            self.bucket.mean = Some((self.sum + self.lost) / self.finite as f64);
        }
        self.bucket
    }
}

impl View {
    /// Reduces a channel over `time` to at most `buckets` pieces of equal length (empty ones are left out):
    /// minimum and maximum are exact. Fewer values than buckets come as they are, one each.
    ///
    /// # Errors
    /// As a scan.
    pub fn reduce(
        &self,
        stream: StreamId,
        column: ChannelIndex,
        time: Range<i64>,
        buckets: usize,
    ) -> Result<Vec<Bucket>, ScanError> {
        let buckets = buckets.clamp(1, 1 << 20);
        // The range that has data: "everything" is not 585 years in 1,000 pieces.
        let Some((min, max)) = self.time_range(stream) else { return Ok(Vec::new()) };
        let time = time.start.max(min)..time.end.min(max.saturating_add(1));
        if time.is_empty() {
            return Ok(Vec::new());
        }
        let span = time.end.abs_diff(time.start);
        let width = span.div_ceil(buckets as u64).max(1);
        let mut filling: Vec<Option<Filling>> = vec![None; buckets];
        // The first values, as they are: given up once they are more than the buckets.
        let mut plain: Option<Vec<Filling>> = Some(Vec::new());
        let scan = Scan { time: time.clone(), columns: vec![column], ..Scan::all(stream, Vec::new()) };
        for batch in self.scan(scan) {
            let batch = batch?;
            let Some(values) = batch.columns.first() else { return Ok(Vec::new()) };
            for i in 0..batch.len() {
                let Ok(value) = values.cell(i) else { continue };
                let (at, row) = (batch.time(i), batch.rows[i]);
                let index = (at.abs_diff(time.start) / width) as usize;
                match &mut filling[index] {
                    Some(bucket) => bucket.add(value, at, row),
                    empty => {
                        let start = time.start.wrapping_add_unsigned(index as u64 * width);
                        *empty = Some(Filling::new(start, value, at, row));
                    }
                }
                if let Some(list) = &mut plain {
                    list.push(Filling::new(at, value, at, row));
                    if list.len() > buckets {
                        plain = None;
                    }
                }
            }
        }
        if let Some(mut list) = plain {
            list.sort_by_key(|f| f.last_at);
            return Ok(list.into_iter().map(Filling::finish).collect());
        }
        Ok(filling.into_iter().flatten().map(Filling::finish).collect())
    }
}
