//! Statistics of blocks joined for totals, in a channel's type: of one block, of a node of a pyramid, or of more.

use crate::codec::stats::{ColumnStatistics, Sum};
use crate::model::large_sum::LargeSum;
use crate::model::value::{ChannelType, Value};

/// Statistics of a block or of more.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub(crate) values: u64,
    pub(crate) nans: u64,
    pub(crate) range: Option<(Value<'static>, Value<'static>)>,
    pub(crate) sum: Option<Sum>,
}

impl Joined {
    /// Converts statistics, or returns `None` if the values themselves are needed: one that does not fit the type, or a
    /// sum that overflowed.
    pub(crate) fn of(found: &ColumnStatistics, kind: ChannelType) -> Option<Joined> {
        let (values, nans) = (found.values(), found.nans);
        if !kind.is_scalar() || kind == ChannelType::Bool {
            return Some(Joined { values, nans, range: None, sum: None });
        }
        let range = match found.min.zip(found.max) {
            Some((min, max)) => Some((min.value.convert(kind)?, max.value.convert(kind)?)),
            None => None,
        };
        let sum = match found.sum {
            // Of a channel that was widened since.
            Some(Sum::Integer(sum)) if kind.is_float() => Some(Sum::Float(sum as f64)),
            Some(Sum::Float(sum)) if !sum.is_finite() => return None,
            sum => sum,
        };
        Some(Joined { values, nans, range, sum })
    }

    /// Joins statistics of several blocks, or returns `None` if their sum overflows.
    pub(crate) fn of_all(all: impl Iterator<Item = Joined>) -> Option<Joined> {
        let mut joined = Joined { values: 0, nans: 0, range: None, sum: None };
        let (mut integers, mut floats, mut is_float) = (0i128, LargeSum::default(), false);
        for one in all {
            joined.values += one.values;
            joined.nans += one.nans;
            joined.range = match (joined.range, one.range) {
                (Some((a, b)), Some((min, max))) => {
                    Some((if min.is_less(&a) { min } else { a }, if b.is_less(&max) { max } else { b }))
                }
                (range, other) => range.or(other),
            };
            match one.sum {
                None => continue,
                Some(Sum::Integer(sum)) => integers = integers.checked_add(sum)?,
                Some(Sum::Float(sum)) => {
                    floats.add(sum);
                    is_float = true;
                }
            }
            joined.sum = Some(Sum::Integer(integers));
        }
        if is_float {
            joined.sum = Some(Sum::Float(floats.value() + integers as f64)).filter(|_| floats.value().is_finite());
            joined.sum.as_ref()?;
        }
        Some(joined)
    }
}
