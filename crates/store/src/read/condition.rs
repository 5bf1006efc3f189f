//! Conditions on values: of a cell, and of a whole block by its statistics.

use std::ops::{Bound, RangeBounds};

use crate::codec::stats::ColumnStatistics;
use crate::model::batch::{Column, ColumnValues};
use crate::model::stream::ChannelIndex;
use crate::model::value::{CellState, ChannelType, Value};

/// Condition on a channel of numbers: there is a value, and it lies between both bounds. NaN lies above every number.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The channel.
    pub channel: ChannelIndex,
    /// Lower bound, a number.
    pub low: Bound<Value<'static>>,
    /// Upper bound, a number.
    pub high: Bound<Value<'static>>,
}

/// Which cells of a block fulfil a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fulfilled {
    None,
    Some,
    All,
}

impl Fulfilled {
    /// Returns which rows fulfil this condition and another one.
    pub(crate) fn and(self, other: Fulfilled) -> Fulfilled {
        match (self, other) {
            (Fulfilled::None, _) | (_, Fulfilled::None) => Fulfilled::None,
            (Fulfilled::All, Fulfilled::All) => Fulfilled::All,
            _ => Fulfilled::Some,
        }
    }
}

impl Condition {
    /// Tells which of `rows` cells fulfil the condition, by their statistics: number of values and of NaN among them, and
    /// extremes of the others.
    pub(crate) fn of_statistics(
        &self,
        rows: u64,
        (values, nans): (u64, u64),
        range: Option<&(Value<'static>, Value<'static>)>,
    ) -> Fulfilled {
        let takes_nan = self.high == Bound::Unbounded;
        let (numbers_none, numbers_all) = match range {
            None => (values == nans, values == nans),
            Some((min, max)) => (self.is_below(max) || self.is_above(min), !self.is_below(min) && !self.is_above(max)),
        };
        if values == 0 || numbers_none && (nans == 0 || !takes_nan) {
            Fulfilled::None
        } else if values == rows && numbers_all && (nans == 0 || takes_nan) {
            Fulfilled::All
        } else {
            Fulfilled::Some
        }
    }

    /// Tells which of `rows` cells of a type fulfil the condition, by their statistics.
    pub(crate) fn of_column(&self, rows: u64, found: &ColumnStatistics, kind: ChannelType) -> Fulfilled {
        let range = match found.min.zip(found.max) {
            None => None,
            Some((min, max)) => match (min.value.convert(kind), max.value.convert(kind)) {
                (Some(min), Some(max)) => Some((min, max)),
                _ => return Fulfilled::Some,
            },
        };
        self.of_statistics(rows, (found.values(), found.nans), range.as_ref())
    }

    /// Reports whether a number lies below the lower bound.
    fn is_below(&self, value: &Value<'_>) -> bool {
        match &self.low {
            Bound::Unbounded => false,
            Bound::Included(low) => value.is_less(low),
            Bound::Excluded(low) => !low.is_less(value),
        }
    }

    /// Reports whether a number lies above the upper bound.
    fn is_above(&self, value: &Value<'_>) -> bool {
        match &self.high {
            Bound::Unbounded => false,
            Bound::Included(high) => high.is_less(value),
            Bound::Excluded(high) => !value.is_less(high),
        }
    }

    /// Clears `keep` for each row whose cell does not fulfil the condition.
    pub(crate) fn of_cells(&self, column: &Column, keep: &mut [bool]) {
        if let Some(states) = column.states.as_deref() {
            keep.iter_mut().zip(states).for_each(|(keep, state)| *keep &= *state == CellState::Value);
        }
        macro_rules! of {
            ($values:expr, $as:ty, $bound:expr, $nan:expr) => {{
                let of = $bound;
                let (low, high) = (of(&self.low), of(&self.high));
                let is_nan: fn(&$as) -> bool = $nan;
                let takes_nan = high == Bound::Unbounded;
                // The usual cases have loops of their own, which the compiler turns into vectors.
                match (low, high) {
                    (Bound::Unbounded, Bound::Unbounded) => {}
                    (Bound::Excluded(low), Bound::Unbounded) => {
                        each($values, keep, |v| <$as>::from(v) > low || is_nan(&<$as>::from(v)))
                    }
                    (Bound::Included(low), Bound::Unbounded) => {
                        each($values, keep, |v| <$as>::from(v) >= low || is_nan(&<$as>::from(v)))
                    }
                    (Bound::Unbounded, Bound::Excluded(high)) => each($values, keep, |v| <$as>::from(v) < high),
                    (Bound::Unbounded, Bound::Included(high)) => each($values, keep, |v| <$as>::from(v) <= high),
                    (low, high) => each($values, keep, |v| {
                        let v = <$as>::from(v);
                        (low, high).contains(&v) || takes_nan && is_nan(&v)
                    }),
                }
            }};
        }
        let integer =
            |bound: &Bound<Value<'static>>| bound.as_ref().map(|value| value.as_integer().unwrap_or_default());
        let float = |bound: &Bound<Value<'static>>| bound.as_ref().map(|value| value.as_f64().unwrap_or_default());
        match &column.values {
            ColumnValues::I8(v) => of!(v, i128, integer, |_| false),
            ColumnValues::I16(v) => of!(v, i128, integer, |_| false),
            ColumnValues::I32(v) => of!(v, i128, integer, |_| false),
            ColumnValues::I64(v) => of!(v, i128, integer, |_| false),
            ColumnValues::U8(v) => of!(v, i128, integer, |_| false),
            ColumnValues::U16(v) => of!(v, i128, integer, |_| false),
            ColumnValues::U32(v) => of!(v, i128, integer, |_| false),
            ColumnValues::U64(v) => of!(v, i128, integer, |_| false),
            ColumnValues::F32(v) => of!(v, f64, float, |v| v.is_nan()),
            ColumnValues::F64(v) => of!(v, f64, float, |v| v.is_nan()),
            ColumnValues::Bool(_) | ColumnValues::String { .. } | ColumnValues::Array { .. } => keep.fill(false),
        }
    }
}

#[inline(always)]
fn each<T: Copy>(values: &[T], keep: &mut [bool], holds: impl Fn(T) -> bool) {
    keep.iter_mut().zip(values).for_each(|(keep, value)| *keep &= holds(*value));
}
