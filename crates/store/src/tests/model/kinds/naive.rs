//! What is read back of a channel, by a walk through a list of all that is stored.
//!
//! Its arithmetic equals that of the store bit for bit where every product and sum on the way is exact: the values of
//! the list are multiples of 1/8, the spans are short, and spans of a channel on lines begin and end at values.

use std::ops::Range;

use crate::codec::stats::{Integral, Sample};
use crate::*;

/// A row of one channel.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) time: i64,
    pub(super) sequence: Option<i64>,
    pub(super) cell: Result<OwnedValue, CellState>,
}

/// A value, or that it is not known, in order of time.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) time: i64,
    value: Option<OwnedValue>,
    /// Whether frames are known missing before it.
    gap: bool,
}

/// All that is stored of a channel.
pub(super) struct List {
    pub(super) points: Vec<Stored>,
    linear: bool,
}

/// A value by its bits.
pub(super) fn bits(value: &OwnedValue) -> String {
    match value {
        OwnedValue::Plain(value) => format!("{:?} {:x}", value.channel_type(), value.bits()),
        other => format!("{other:?}"),
    }
}

fn number(value: &Option<OwnedValue>) -> Option<f64> {
    value.as_ref()?.as_value().as_f64().filter(|value| value.is_finite())
}

impl List {
    /// Of rows in their order.
    pub(super) fn new(rows: &[Cell], linear: bool) -> List {
        let mut order: Vec<&Cell> = rows.iter().collect();
        // Of equal times the later row comes later.
        order.sort_by_key(|cell| cell.time);
        let (mut points, mut highest, mut gap) = (Vec::new(), None::<i64>, false);
        for cell in order {
            if let Some(sequence) = cell.sequence {
                gap |= highest.is_some_and(|highest| sequence > highest + 1);
                highest = highest.max(Some(sequence));
            }
            let value = match &cell.cell {
                Ok(value) => Some(value.clone()),
                Err(CellState::Unknown) => None,
                Err(_) => continue,
            };
            points.push(Stored { time: cell.time, value, gap: std::mem::take(&mut gap) });
        }
        List { points, linear }
    }

    fn line(&self, from: &Stored, to: Option<&Stored>, time: i64) -> Option<OwnedValue> {
        let on_line = |to: &Stored| {
            let (a, b) = (number(&from.value)?, number(&to.value)?);
            if time <= from.time {
                return None;
            }
            let value = a + (b - a) * ((time - from.time) as f64 / (to.time - from.time) as f64);
            Some(OwnedValue::Plain(match from.value {
                Some(OwnedValue::Plain(Value::F32(_))) => Value::F32(value as f32),
                _ => Value::F64(value),
            }))
        };
        to.filter(|_| self.linear).and_then(on_line).or_else(|| from.value.clone())
    }

    /// What [`View::value_at`] says.
    pub(super) fn value_at(&self, time: i64) -> Option<Option<OwnedValue>> {
        let after = self.points.partition_point(|point| point.time <= time);
        let (from, to) = (self.points.get(after.checked_sub(1)?)?, self.points.get(after));
        if to.is_some_and(|to| to.gap) && from.time < time {
            return None;
        }
        Some(self.line(from, to, time))
    }

    /// What [`View::intervals`] says.
    pub(super) fn intervals(&self, span: &Range<i64>) -> Vec<Interval> {
        let mut out: Vec<Interval> = Vec::new();
        for (n, from) in self.points.iter().enumerate() {
            let to = self.points.get(n + 1);
            let gap = to.is_some_and(|to| to.gap);
            let end = if gap { from.time } else { to.map_or(i64::MAX, |to| to.time) };
            let (start, end) = (from.time.max(span.start), end.min(span.end));
            if start >= end && !(gap && start == end && span.contains(&from.time)) {
                continue;
            }
            let at = |time| if gap { from.value.clone() } else { self.line(from, to, time) };
            let (value, end_value) = (at(start), at(end));
            let same = |a: &Option<OwnedValue>| a.as_ref().map(bits) == value.as_ref().map(bits);
            match out.last_mut() {
                Some(last) if !self.linear && last.end == start && last.start < last.end && same(&last.value) => {
                    (last.end, last.open) = (end, to.is_none());
                }
                _ => out.push(Interval { start, end, value, end_value, open: to.is_none() }),
            }
        }
        out
    }

    /// What [`View::weigh`] says.
    pub(super) fn weigh(&self, span: &Range<i64>) -> Weight {
        let (mut value_ns, mut known_ns) = (0.0, 0u64);
        let inside = self.points.iter().filter(|point| span.contains(&point.time));
        let mut values: Vec<(i64, Value<'static>)> = Vec::new();
        let mut count = 0;
        let plain = |value: OwnedValue| match value {
            OwnedValue::Plain(value) => Some(value),
            _ => None,
        };
        for point in inside {
            count += u64::from(point.value.is_some());
            values.extend(point.value.clone().and_then(plain).map(|value| (point.time, value)));
        }
        for pair in self.points.windows(2) {
            let (from, to) = (&pair[0], &pair[1]);
            let (start, stop) = (from.time.max(span.start), to.time.min(span.end));
            if to.gap || start >= stop {
                continue;
            }
            if from.time < span.start {
                values.extend(self.line(from, Some(to), start).and_then(plain).map(|value| (span.start, value)));
            }
            let Some(a) = number(&from.value) else { continue };
            let mean = if self.linear {
                let Some(b) = number(&to.value) else { continue };
                a / 2.0 + b / 2.0
            } else {
                a
            };
            value_ns += mean * (stop - start) as f64;
            known_ns += (stop - start) as u64;
        }
        values.retain(|(_, value)| value.as_f64().is_some_and(|number| !number.is_nan()));
        values.sort_by_key(|(time, _)| *time);
        let sample = |wins: fn(f64, f64) -> bool| {
            let number = |at: &(i64, Value<'static>)| at.1.as_f64().unwrap_or(f64::NAN);
            let best = values.iter().reduce(|best, at| if wins(number(at), number(best)) { at } else { best });
            best.map(|(time, value)| Sample { value: *value, time: *time })
        };
        Weight {
            count,
            min: sample(|a, b| a < b),
            max: sample(|a, b| a > b),
            integral: Integral { value_ns, known_ns },
        }
    }
}

/// A bucket as a line of text: values by their bits.
pub(super) fn told(bucket: &Bucket) -> String {
    let plain = |value: &Option<Value<'static>>| value.map(|value| bits(&OwnedValue::Plain(value)));
    format!(
        "{} {}/{} {} {} {:?} {:?} {:?}",
        bucket.time,
        bucket.count,
        bucket.finite,
        bits(&bucket.first),
        bits(&bucket.last),
        plain(&bucket.min),
        plain(&bucket.max),
        bucket.mean.map(f64::to_bits)
    )
}

/// What [`View::reduce_to`] says of rows in their order, as lines of text.
pub(super) fn buckets(rows: &[Cell], grid: &Pieces) -> Vec<String> {
    let mut values: Vec<(usize, &Cell, &OwnedValue)> = Vec::new();
    for (row, cell) in rows.iter().enumerate().filter(|(_, cell)| grid.time.contains(&cell.time)) {
        if let Ok(value) = &cell.cell {
            values.push((row, cell, value));
        }
    }
    let plain = values.len() <= grid.plain_max;
    values.sort_by_key(|(row, cell, _)| (cell.time, *row));
    let mut by_bucket: std::collections::BTreeMap<i64, Vec<(i64, &OwnedValue)>> = std::collections::BTreeMap::new();
    let mut out = Vec::new();
    for (_, cell, value) in values {
        if plain {
            out.push(bucket(cell.time, &[(cell.time, value)]));
            continue;
        }
        let start = grid.time.start + (cell.time - grid.time.start) / grid.width_ns as i64 * grid.width_ns as i64;
        by_bucket.entry(start).or_default().push((cell.time, value));
    }
    out.extend(by_bucket.iter().map(|(start, values)| bucket(*start, values)));
    out
}

fn bucket(start: i64, values: &[(i64, &OwnedValue)]) -> String {
    let numbers: Vec<(f64, Value<'static>)> = values
        .iter()
        .filter_map(|(_, value)| match value {
            OwnedValue::Plain(value) => Some((value.as_f64()?, *value)),
            _ => None,
        })
        .collect();
    let finite: Vec<f64> = numbers.iter().map(|(number, _)| *number).filter(|number| number.is_finite()).collect();
    let best = |wins: fn(f64, f64) -> bool| {
        let numbers = numbers.iter().filter(|(number, _)| !number.is_nan());
        numbers.reduce(|best, at| if wins(at.0, best.0) { at } else { best }).map(|(_, value)| *value)
    };
    told(&Bucket {
        time: start,
        count: values.len() as u64,
        first: values[0].1.clone(),
        last: values[values.len() - 1].1.clone(),
        min: best(|a, b| a < b),
        max: best(|a, b| a > b),
        finite: finite.len() as u64,
        mean: (!finite.is_empty()).then(|| finite.iter().sum::<f64>() / finite.len() as f64),
    })
}
