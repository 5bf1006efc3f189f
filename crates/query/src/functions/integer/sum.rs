//! The aggregate `sum`, exact for integers, or an error if 64 bits cannot hold the result.
//!
//! Sums are kept in 128 bits, which no number of rows can overflow, and are checked only when the result is requested,
//! so an intermediate sum may exceed 64 bits. Other types are left to DataFusion.

use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, PrimitiveArray};
use datafusion::arrow::datatypes::{
    ArrowNativeType, ArrowPrimitiveType, DataType, Decimal128Type, Field, FieldRef, Int64Type, UInt64Type,
};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{HashMap, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF, SetMonotonicity, Signature,
};
use datafusion::physical_expr::NullState;

use super::out_of_range;
use crate::functions::passed;

const HINT: &str = "The sum of numeric goes further: sum(x::numeric).";
/// Type of a sum's state between partitions.
pub(super) const STATE: DataType = DataType::Decimal128(STATE_DIGITS, 0);
pub(super) const STATE_DIGITS: u8 = 38;

/// An integer type that is summed. Smaller types are widened first.
pub(super) trait Whole: ArrowNativeType + Into<i128> + TryFrom<i128> + Hash + Eq {
    type Kind: ArrowPrimitiveType<Native = Self> + Send;
}

impl Whole for i64 {
    type Kind = Int64Type;
}

impl Whole for u64 {
    type Kind = UInt64Type;
}

/// The SQL function `sum`.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ExactSum {
    inner: Sum,
}

/// Returns the accumulator for an integer type, also for windows, or `None` for other types.
fn accumulator(kind: &DataType, distinct: bool) -> Option<Box<dyn Accumulator>> {
    match (kind, distinct) {
        (DataType::Int64, false) => Some(Box::new(Total::<i64>::default())),
        (DataType::Int64, true) => Some(Box::new(Distinct::<i64>::default())),
        (DataType::UInt64, false) => Some(Box::new(Total::<u64>::default())),
        (DataType::UInt64, true) => Some(Box::new(Distinct::<u64>::default())),
        _ => None,
    }
}

impl AggregateUDFImpl for ExactSum {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match accumulator(args.return_field.data_type(), args.is_distinct) {
            Some(exact) => Ok(exact),
            None => self.inner.accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match accumulator(args.return_field.data_type(), args.is_distinct) {
            Some(exact) => Ok(exact),
            None => self.inner.create_sliding_accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match args.return_field.data_type() {
            DataType::Int64 | DataType::UInt64 if !args.is_distinct => {
                Ok(vec![Arc::new(Field::new(format_state_name(args.name, "sum"), STATE, true))])
            }
            _ => self.inner.state_fields(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match args.return_field.data_type() {
            DataType::Int64 => Ok(Box::new(GroupTotals::<i64>::default())),
            DataType::UInt64 => Ok(Box::new(GroupTotals::<u64>::default())),
            _ => self.inner.create_groups_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.set_monotonicity(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// Converts a sum to its SQL type.
fn narrow<N: Whole>(sum: i128) -> Result<N> {
    N::try_from(sum).map_err(|_| out_of_range(&N::Kind::DATA_TYPE, HINT))
}

/// Converts a sum to a value, which is NULL without a sum.
fn value<N: Whole>(sum: Option<i128>) -> Result<ScalarValue> {
    let sum = sum.map(narrow::<N>).transpose()?;
    ScalarValue::new_primitive::<N::Kind>(sum, &N::Kind::DATA_TYPE)
}

fn total_of<N: Whole>(numbers: &[N]) -> i128 {
    let mut sum = 0_i128;
    for number in numbers {
        let wide: i128 = (*number).into();
        sum += wide;
    }
    sum
}

/// Returns the sum of an array and the count of its numbers.
pub(super) fn total<N: Whole>(array: &PrimitiveArray<N::Kind>) -> (i128, usize) {
    let numbers: &[N] = array.values();
    let Some(nulls) = array.nulls() else { return (total_of(numbers), numbers.len()) };
    let mut sum = 0_i128;
    for (start, end) in nulls.valid_slices() {
        sum += total_of(&numbers[start..end]);
    }
    (sum, numbers.len() - nulls.null_count())
}

/// Accumulator for the sum of a group or window frame.
#[derive(Debug, Default)]
struct Total<N> {
    sum: i128,
    /// Count of numbers. Without any, the sum is NULL.
    count: usize,
    number: PhantomData<N>,
}

impl<N> Total<N> {
    fn sum(&self) -> Option<i128> {
        (self.count > 0).then_some(self.sum)
    }
}

impl<N: Whole> Accumulator for Total<N> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = total::<N>(values[0].as_primitive::<N::Kind>());
        self.sum += sum;
        self.count += count;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = total::<N>(values[0].as_primitive::<N::Kind>());
        self.sum -= sum;
        self.count -= count;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        value::<N>(self.sum())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Decimal128(self.sum(), STATE_DIGITS, 0)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for sum in states[0].as_primitive::<Decimal128Type>().iter().flatten() {
            self.sum += sum;
            self.count += 1;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// Accumulator for the sum of the distinct numbers of a group or window frame.
#[derive(Debug, Default)]
pub(super) struct Distinct<N> {
    /// Count of each number.
    counts: HashMap<N, u64>,
    sum: i128,
}

impl<N: Whole> Distinct<N> {
    /// Returns the sum of the numbers and their count.
    pub(super) fn total(&self) -> (i128, u64) {
        (self.sum, self.counts.len() as u64)
    }

    fn add(&mut self, numbers: &PrimitiveArray<N::Kind>) {
        for number in numbers.iter().flatten() {
            let count = self.counts.entry(number).or_insert(0);
            if *count == 0 {
                let wide: i128 = number.into();
                self.sum += wide;
            }
            *count += 1;
        }
    }

    fn remove(&mut self, numbers: &PrimitiveArray<N::Kind>) {
        for number in numbers.iter().flatten() {
            let Some(count) = self.counts.get_mut(&number) else { continue };
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&number);
                let wide: i128 = number.into();
                self.sum -= wide;
            }
        }
    }
}

impl<N: Whole> Accumulator for Distinct<N> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values[0].as_primitive::<N::Kind>());
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.remove(values[0].as_primitive::<N::Kind>());
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        value::<N>((!self.counts.is_empty()).then_some(self.sum))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let numbers = PrimitiveArray::<N::Kind>::from_iter_values(self.counts.keys().copied());
        Ok(vec![SingleRowListArrayBuilder::new(Arc::new(numbers)).build_list_scalar()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for numbers in states[0].as_list::<i32>().iter().flatten() {
            self.add(numbers.as_primitive::<N::Kind>());
        }
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.counts.capacity() * size_of::<(N, u64)>()
    }
}

/// Accumulator for the sums of many groups.
#[derive(Debug, Default)]
struct GroupTotals<N> {
    sums: Vec<i128>,
    /// Groups that have a number. Others are NULL.
    seen: NullState,
    number: PhantomData<N>,
}

impl<N: Whole> GroupsAccumulator for GroupTotals<N> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.sums.resize(total_num_groups, 0);
        let (sums, numbers) = (&mut self.sums, values[0].as_primitive::<N::Kind>());
        self.seen.accumulate(group_indices, numbers, opt_filter, total_num_groups, |group, number: N| {
            let wide: i128 = number.into();
            sums[group] += wide;
        });
        Ok(())
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.sums.resize(total_num_groups, 0);
        let (sums, states) = (&mut self.sums, values[0].as_primitive::<Decimal128Type>());
        self.seen.accumulate(group_indices, states, None, total_num_groups, |group, sum: i128| sums[group] += sum);
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        let nulls = self.seen.build(emit_to);
        let numbers = sums.into_iter().map(narrow::<N>).collect::<Result<Vec<N>>>()?;
        Ok(Arc::new(PrimitiveArray::<N::Kind>::new(numbers.into(), nulls)))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = emit_to.take_needed(&mut self.sums);
        let nulls = self.seen.build(emit_to);
        Ok(vec![Arc::new(Decimal128Array::new(sums.into(), nulls).with_data_type(STATE))])
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let numbers = values[0].as_primitive::<N::Kind>();
        let nulls = passed(numbers.nulls(), opt_filter);
        let sums: Vec<i128> = numbers.values().iter().map(|number| (*number).into()).collect();
        Ok(vec![Arc::new(Decimal128Array::new(sums.into(), nulls).with_data_type(STATE))])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.seen.size()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;

    use super::*;

    #[test]
    fn rows_that_become_states_at_once_are_summed_like_others() {
        let mut groups = GroupTotals::<i64>::default();
        let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(i64::MAX), None, Some(1), Some(2)]));
        let filter = BooleanArray::from(vec![Some(true), Some(true), None, Some(false)]);
        let states = groups.convert_to_state(std::slice::from_ref(&values), Some(&filter)).unwrap();
        groups.merge_batch(&states, &[0, 1, 2, 2], 3).unwrap();
        groups.update_batch(std::slice::from_ref(&values), &[0, 1, 0, 1], Some(&filter), 3).unwrap();
        let states = groups.state(EmitTo::First(1)).unwrap();
        assert_eq!(states[0].as_primitive::<Decimal128Type>().value(0), 2 * i128::from(i64::MAX));
        let rest = groups.evaluate(EmitTo::All).unwrap();
        assert_eq!((rest.len(), rest.null_count()), (2, 2));
        groups.merge_batch(&states, &[0], 1).unwrap();
        assert!(groups.evaluate(EmitTo::All).is_err());
    }

    #[test]
    fn distinct_numbers_leave_a_frame_with_the_last_of_them() {
        let numbers = |numbers: &[i64]| -> Vec<ArrayRef> { vec![Arc::new(Int64Array::from(numbers.to_vec()))] };
        let mut sum = Distinct::<i64>::default();
        sum.update_batch(&numbers(&[i64::MAX, i64::MAX, 1])).unwrap();
        assert!(sum.evaluate().is_err());
        sum.retract_batch(&numbers(&[i64::MAX, 1])).unwrap();
        assert_eq!(sum.evaluate().unwrap(), ScalarValue::Int64(Some(i64::MAX)));
        let state = sum.state().unwrap()[0].to_array().unwrap();
        let mut other = Distinct::<i64>::default();
        other.update_batch(&numbers(&[-1])).unwrap();
        other.merge_batch(&[state]).unwrap();
        assert_eq!(other.evaluate().unwrap(), ScalarValue::Int64(Some(i64::MAX - 1)));
        sum.retract_batch(&numbers(&[i64::MAX])).unwrap();
        assert_eq!(sum.evaluate().unwrap(), ScalarValue::Int64(None));
    }
}
