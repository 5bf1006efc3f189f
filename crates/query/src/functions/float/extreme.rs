//! The max and min of floats in many groups. NaN is larger than every number.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use datafusion::arrow::datatypes::{ArrowPrimitiveType, Float32Type, Float64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::NullState;

use super::{Float, array_with_one_nan};
use crate::functions::passed;

/// One of the two extremes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Extreme {
    Max,
    Min,
}

impl Extreme {
    /// Returns the extreme that an aggregate computes.
    pub(super) fn of(name: &str) -> Option<Extreme> {
        match name {
            "max" => Some(Extreme::Max),
            "min" => Some(Extreme::Min),
            _ => None,
        }
    }
}

/// A type of floats with the value that is below all others.
pub(super) trait Ordered: ArrowPrimitiveType<Native: Float + PartialOrd> + Send {
    const LOWEST: Self::Native;
}

impl Ordered for Float32Type {
    const LOWEST: f32 = f32::NEG_INFINITY;
}

impl Ordered for Float64Type {
    const LOWEST: f64 = f64::NEG_INFINITY;
}

/// Accumulator of many groups.
#[derive(Debug)]
pub(super) struct Extremes<T: Ordered> {
    extreme: Extreme,
    values: Vec<T::Native>,
    /// Groups that have a value. Others are NULL.
    seen: NullState,
}

impl<T: Ordered> Extremes<T> {
    /// Creates the accumulator, without groups.
    pub(super) fn new(extreme: Extreme) -> Extremes<T> {
        Extremes { extreme, values: Vec::new(), seen: NullState::new() }
    }
}

impl<T: Ordered> GroupsAccumulator for Extremes<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let (floats, of_groups) = (values[0].as_primitive::<T>(), &mut self.values);
        match self.extreme {
            Extreme::Max => {
                of_groups.resize(total_num_groups, T::LOWEST);
                self.seen.accumulate(group_indices, floats, opt_filter, total_num_groups, |group, value| {
                    if value > of_groups[group] || value.is_nan() {
                        of_groups[group] = value;
                    }
                });
            }
            Extreme::Min => {
                of_groups.resize(total_num_groups, T::Native::NAN);
                self.seen.accumulate(group_indices, floats, opt_filter, total_num_groups, |group, value| {
                    if value < of_groups[group] || of_groups[group].is_nan() {
                        of_groups[group] = value;
                    }
                });
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.update_batch(values, group_indices, None, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let values = emit_to.take_needed(&mut self.values);
        let nulls = self.seen.build(emit_to);
        Ok(array_with_one_nan(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls))))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let (_, floats, nulls) = values[0].as_primitive::<T>().clone().into_parts();
        Ok(vec![Arc::new(PrimitiveArray::<T>::new(floats, passed(nulls.as_ref(), opt_filter)))])
    }

    fn size(&self) -> usize {
        self.values.capacity() * size_of::<T::Native>() + self.seen.size()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Array, Float64Array};

    use super::*;

    fn floats(values: &[Option<f64>]) -> Vec<ArrayRef> {
        vec![Arc::new(Float64Array::from(values.to_vec()))]
    }

    fn values(array: &ArrayRef) -> Vec<Option<u64>> {
        array.as_primitive::<Float64Type>().iter().map(|value| value.map(f64::to_bits)).collect()
    }

    #[test]
    fn nan_is_larger_than_every_number_in_any_order() {
        let inf = f64::INFINITY;
        for (rows, max, min) in [
            (vec![f64::NAN, 1.0], f64::NAN, 1.0),
            (vec![1.0, f64::NAN], f64::NAN, 1.0),
            (vec![1.0, f64::NAN, 2.0], f64::NAN, 1.0),
            (vec![-f64::NAN, 2.0, -f64::NAN], f64::NAN, 2.0),
            (vec![f64::NAN, -f64::NAN], f64::NAN, f64::NAN),
            (vec![-inf, f64::NAN], f64::NAN, -inf),
            (vec![inf, f64::NAN], f64::NAN, inf),
            (vec![-inf], -inf, -inf),
            (vec![inf, inf], inf, inf),
            (vec![3.0, -inf, inf], inf, -inf),
            (vec![f64::MIN, f64::MAX], f64::MAX, f64::MIN),
        ] {
            for (extreme, expected) in [(Extreme::Max, max), (Extreme::Min, min)] {
                let mut groups = Extremes::<Float64Type>::new(extreme);
                let rows: Vec<Option<f64>> = [None].into_iter().chain(rows.iter().copied().map(Some)).collect();
                let groups_of: Vec<usize> = rows.iter().map(|row| usize::from(row.is_some())).collect();
                groups.update_batch(&floats(&rows), &groups_of, None, 2).unwrap();
                let state = groups.state(EmitTo::All).unwrap();
                groups.merge_batch(&state, &[0, 1], 2).unwrap();
                let result = groups.evaluate(EmitTo::All).unwrap();
                assert_eq!(values(&result), [None, Some(expected.to_bits())], "{extreme:?} of {rows:?}");
            }
        }
    }

    #[test]
    fn rows_that_become_states_at_once_are_compared_like_others() {
        let mut groups = Extremes::<Float64Type>::new(Extreme::Min);
        let rows = floats(&[Some(f64::NAN), None, Some(-1.0), Some(-2.0)]);
        let filter = BooleanArray::from(vec![Some(true), Some(true), Some(false), None]);
        let states = groups.convert_to_state(&rows, Some(&filter)).unwrap();
        assert_eq!(states[0].null_count(), 3);
        groups.merge_batch(&states, &[0, 1, 1, 0], 2).unwrap();
        assert_eq!(values(&groups.evaluate(EmitTo::All).unwrap()), [Some(f64::NAN.to_bits()), None]);
    }
}
