//! Counts, extremes and sums of consecutive cells of a column, several numbers at a time.

use std::ops::Range;

use crate::model::batch::{Column, ColumnValues};
use crate::model::large_sum::LargeSum;
use crate::model::value::{CellState, Value};

/// Numbers that are compared at a time.
const LANES: usize = 8;
/// Numbers that are searched at a time.
const SEARCHED: usize = 64;

/// What cells come to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fold {
    /// Number of values, including NaN.
    pub(crate) values: u64,
    pub(crate) nans: u64,
    pub(crate) infinities: u64,
    /// Smallest and largest value except NaN, the first of equals; `None` if there is none, or for truth values, texts and
    /// arrays.
    pub(crate) range: Option<(Value<'static>, Value<'static>)>,
    /// Sum of integers.
    pub(crate) integers: i128,
    /// Sum of the finite floats.
    pub(crate) floats: LargeSum,
}

impl Fold {
    /// Returns the number of values that are finite numbers.
    pub(crate) fn finite(&self) -> u64 {
        self.values - self.nans - self.infinities
    }

    /// Returns the sum of the finite values.
    pub(crate) fn sum(&self) -> LargeSum {
        let mut sum = self.floats;
        if self.integers != 0 {
            sum.add(self.integers as f64);
        }
        sum
    }
}

/// Reports whether a column has numbers.
pub(crate) fn has_numbers(values: &ColumnValues) -> bool {
    !matches!(values, ColumnValues::Bool(_) | ColumnValues::String { .. } | ColumnValues::Array { .. })
}

/// Folds the values among the cells of some rows, or of those among them that are to be kept.
pub(crate) fn fold_cells(column: &Column, rows: Range<usize>, keep: Option<&[bool]>) -> Fold {
    let (states, start) = (column.states.as_deref(), rows.start);
    if states.is_none() && keep.is_none() {
        return fold(&column.values, rows, true);
    }
    let is_value = |row: &usize| {
        keep.is_none_or(|keep| keep[row - start]) && states.is_none_or(|states| states[*row] == CellState::Value)
    };
    let kept = rows.filter(is_value);
    if !has_numbers(&column.values) {
        return Fold { values: kept.count() as u64, ..Fold::default() };
    }
    let kept = column.values.pick(kept);
    fold(&kept, 0..kept.len(), true)
}

/// Counts the values among the cells of some rows.
pub(crate) fn count_values(column: &Column, rows: Range<usize>) -> u64 {
    match &column.states {
        Some(states) => states[rows].iter().filter(|state| **state == CellState::Value).count() as u64,
        None => rows.len() as u64,
    }
}

/// Folds values without their extremes, if all are finite; otherwise with them.
pub(crate) fn fold_finite(values: &ColumnValues, rows: Range<usize>) -> Fold {
    let mut floats = LargeSum::default();
    match values {
        ColumnValues::F32(v) => floats.add_all(v[rows.clone()].iter().map(|value| f64::from(*value))),
        ColumnValues::F64(v) => floats.add_all(v[rows.clone()].iter().copied()),
        _ => return fold(values, rows, true),
    }
    // A number that is not finite makes the sum one that is not.
    if floats.value().is_finite() {
        return Fold { values: rows.len() as u64, floats, ..Fold::default() };
    }
    fold(values, rows, true)
}

/// Folds values, with their sums if `sums`.
pub(crate) fn fold(values: &ColumnValues, rows: Range<usize>, sums: bool) -> Fold {
    let count = rows.len() as u64;
    macro_rules! integers {
        ($variant:ident, $values:expr) => {{
            let values = &$values[rows];
            let range = values.iter().min().zip(values.iter().max());
            let range = range.map(|(min, max)| (Value::$variant(*min), Value::$variant(*max)));
            let integers = if sums { values.iter().map(|value| i128::from(*value)).sum() } else { 0 };
            Fold { values: count, range, integers, ..Fold::default() }
        }};
    }
    macro_rules! floats {
        ($variant:ident, $values:expr, $native:ident) => {{
            let values = &$values[rows];
            let (mut min, mut max) = ([$native::INFINITY; LANES], [$native::NEG_INFINITY; LANES]);
            let mut nans = [0u32; LANES];
            let mut look = |lane: usize, value: $native| {
                min[lane] = if value < min[lane] { value } else { min[lane] };
                max[lane] = if value > max[lane] { value } else { max[lane] };
                nans[lane] += u32::from(value.is_nan());
            };
            let (chunks, rest) = values.as_chunks::<LANES>();
            for chunk in chunks {
                (0..LANES).for_each(|lane| look(lane, chunk[lane]));
            }
            rest.iter().for_each(|value| look(0, *value));
            let min = min.into_iter().fold($native::INFINITY, |a, b| if b < a { b } else { a });
            let max = max.into_iter().fold($native::NEG_INFINITY, |a, b| if b > a { b } else { a });
            let nans: u64 = nans.into_iter().map(u64::from).sum();
            let is_infinite = nans < count && (min == $native::NEG_INFINITY || max == $native::INFINITY);
            let infinities = match is_infinite {
                true => values.iter().filter(|value| value.is_infinite()).count() as u64,
                false => 0,
            };
            let mut floats = LargeSum::default();
            if sums {
                let is_finite = nans + infinities == 0;
                let numbers = values.iter().filter(|value| is_finite || value.is_finite());
                floats.add_all(numbers.map(|value| f64::from(*value)));
            }
            // Of both zeros, which are equal, the first one counts.
            let first = |extreme: $native| match extreme == 0.0 {
                true => values.iter().copied().find(|value| *value == 0.0).unwrap_or(extreme),
                false => extreme,
            };
            let range = (nans < count).then(|| (Value::$variant(first(min)), Value::$variant(first(max))));
            Fold { values: count, nans, infinities, range, floats, ..Fold::default() }
        }};
    }
    match values {
        ColumnValues::I8(v) => integers!(I8, v),
        ColumnValues::I16(v) => integers!(I16, v),
        ColumnValues::I32(v) => integers!(I32, v),
        ColumnValues::I64(v) => integers!(I64, v),
        ColumnValues::U8(v) => integers!(U8, v),
        ColumnValues::U16(v) => integers!(U16, v),
        ColumnValues::U32(v) => integers!(U32, v),
        ColumnValues::U64(v) => integers!(U64, v),
        ColumnValues::F32(v) => floats!(F32, v, f32),
        ColumnValues::F64(v) => floats!(F64, v, f64),
        ColumnValues::Bool(_) | ColumnValues::String { .. } | ColumnValues::Array { .. } => {
            Fold { values: count, ..Fold::default() }
        }
    }
}

/// Returns the first of some rows that has a value, which is a number of the column's type.
pub(crate) fn first_row_with(values: &ColumnValues, rows: Range<usize>, value: Value<'_>) -> Option<usize> {
    fn position<T: Copy + PartialEq>(values: &[T], of: T) -> Option<usize> {
        let chunks = values.chunks(SEARCHED);
        let at = chunks.clone().position(|chunk| chunk.iter().fold(false, |found, value| found | (*value == of)))?;
        let from = at * SEARCHED;
        values[from..].iter().position(|value| *value == of).map(|at| from + at)
    }
    let start = rows.start;
    let found = match (values, value) {
        (ColumnValues::I8(v), Value::I8(of)) => position(&v[rows], of),
        (ColumnValues::I16(v), Value::I16(of)) => position(&v[rows], of),
        (ColumnValues::I32(v), Value::I32(of)) => position(&v[rows], of),
        (ColumnValues::I64(v), Value::I64(of)) => position(&v[rows], of),
        (ColumnValues::U8(v), Value::U8(of)) => position(&v[rows], of),
        (ColumnValues::U16(v), Value::U16(of)) => position(&v[rows], of),
        (ColumnValues::U32(v), Value::U32(of)) => position(&v[rows], of),
        (ColumnValues::U64(v), Value::U64(of)) => position(&v[rows], of),
        (ColumnValues::F32(v), Value::F32(of)) => position(&v[rows], of),
        (ColumnValues::F64(v), Value::F64(of)) => position(&v[rows], of),
        _ => None,
    };
    found.map(|at| start + at)
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    #[test]
    fn folds_are_those_of_a_loop() {
        let mut random = Rng::with_seed(3);
        for lap in 0..2_000 {
            let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e308, -1e308];
            let share = [0, 2, 50][lap % 3];
            let mut number = |_| match random.u32(0..100) < share {
                true => odd[random.usize(0..odd.len())],
                false => random.f64() * 8.0 - 4.0,
            };
            let values: Vec<f64> = (0..lap % 83).map(&mut number).collect();
            let column = ColumnValues::F64(values.clone());
            let rows = random.usize(0..=values.len())..values.len();
            let (found, values) = (fold(&column, rows.clone(), true), &values[rows]);
            let numbers = || values.iter().copied().filter(|value| !value.is_nan());
            let min = numbers().reduce(f64::min).map(|min| min + 0.0);
            let max = numbers().reduce(f64::max).map(|max| max + 0.0);
            let range = found.range.map(|(min, max)| (min.as_f64().unwrap() + 0.0, max.as_f64().unwrap() + 0.0));
            assert_eq!(range, min.zip(max), "{values:?}");
            let finite = || values.iter().filter(|value| value.is_finite());
            assert_eq!((found.values, found.finite()), (values.len() as u64, finite().count() as u64));
            let mut sum = LargeSum::default();
            finite().for_each(|value| sum.add(*value));
            let (found, sum) = (found.sum().value(), sum.value());
            let size: f64 = finite().map(|value| value.abs()).fold(0.0, f64::max);
            assert!(
                found == sum || (found - sum).abs() <= 4.0 * f64::EPSILON * size.max(sum.abs()),
                "{found}, not {sum}"
            );
        }
    }

    #[test]
    fn cells_without_values_are_left_out() {
        let states = vec![CellState::Value, CellState::Absent, CellState::Value, CellState::Unknown, CellState::Value];
        let column = Column { values: ColumnValues::I16(vec![5, -9, 7, 99, 2]), states: Some(states) };
        let all = fold_cells(&column, 0..5, None);
        assert_eq!((all.values, all.integers, all.range), (3, 14, Some((Value::I16(2), Value::I16(7)))));
        let kept = fold_cells(&column, 1..5, Some(&[true, false, true, true]));
        assert_eq!((kept.values, kept.integers), (1, 2));
        assert_eq!(first_row_with(&column.values, 1..5, Value::I16(7)), Some(2));
        assert_eq!(first_row_with(&column.values, 3..5, Value::I16(7)), None);
    }
}
