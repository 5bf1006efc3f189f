//! The aggregate `avg`, computed from the exact sum of integers and rounded once.
//!
//! PostgreSQL returns a numeric. Here the result remains a double, the nearest one to the exact mean. Other types are
//! left to DataFusion.

use std::marker::PhantomData;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, UInt64Type};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::average::Avg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF, Signature, Volatility,
};
use datafusion::physical_expr::NullState;

use super::sum::{Distinct, STATE, STATE_DIGITS, Whole, total};
use crate::functions::passed;

/// The SQL function `avg`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ExactAvg {
    inner: Avg,
    signature: Signature,
}

impl Default for ExactAvg {
    fn default() -> Self {
        ExactAvg { inner: Avg::default(), signature: Signature::user_defined(Volatility::Immutable) }
    }
}

/// Returns the type of the values, of which there is one column.
fn input(fields: &[FieldRef]) -> Option<&DataType> {
    fields.first().map(|field| field.data_type())
}

/// Returns the accumulator for an integer type, also for windows, or `None` for other types.
fn accumulator(args: &AccumulatorArgs) -> Option<Box<dyn Accumulator>> {
    match (input(args.expr_fields)?, args.is_distinct) {
        (DataType::Int64, false) => Some(Box::new(Mean::<i64>::default())),
        (DataType::Int64, true) => Some(Box::new(DistinctMean::<i64>::default())),
        (DataType::UInt64, false) => Some(Box::new(Mean::<u64>::default())),
        (DataType::UInt64, true) => Some(Box::new(DistinctMean::<u64>::default())),
        _ => None,
    }
}

impl AggregateUDFImpl for ExactAvg {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(vec![match arg_types {
            [kind] if kind.is_signed_integer() => DataType::Int64,
            [kind] if kind.is_unsigned_integer() => DataType::UInt64,
            [kind] if kind.is_floating() || kind.is_null() => DataType::Float64,
            [kind] if kind.is_decimal() || matches!(kind, DataType::Duration(_)) => kind.clone(),
            [kind] => return plan_err!("no function matches avg({kind})"),
            _ => return plan_err!("no function matches: avg takes one argument"),
        }])
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match accumulator(&args) {
            Some(exact) => Ok(exact),
            None => self.inner.accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match accumulator(&args) {
            Some(exact) => Ok(exact),
            None => self.inner.create_sliding_accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match input(args.input_fields) {
            Some(kind @ (DataType::Int64 | DataType::UInt64)) if args.is_distinct => {
                let name = format_state_name(args.name, "avg distinct");
                Ok(vec![Arc::new(Field::new_list(name, Field::new_list_field(kind.clone(), true), false))])
            }
            Some(DataType::Int64 | DataType::UInt64) => Ok(vec![
                Arc::new(Field::new(format_state_name(args.name, "count"), DataType::UInt64, true)),
                Arc::new(Field::new(format_state_name(args.name, "sum"), STATE, true)),
            ]),
            _ => self.inner.state_fields(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match input(args.expr_fields) {
            Some(DataType::Int64) => Ok(Box::new(GroupMeans::<i64>::default())),
            Some(DataType::UInt64) => Ok(Box::new(GroupMeans::<u64>::default())),
            _ => self.inner.create_groups_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_expr()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// Returns the double that is nearest to a quotient, or `None` for a count of 0.
fn quotient(sum: i128, count: u64) -> Option<f64> {
    let (dividend, divisor) = (sum.unsigned_abs(), u128::from(count));
    if count == 0 || sum == 0 {
        return (count > 0).then_some(0.0);
    }
    // The dividend has 128 bits, the quotient therefore at least 64: a remainder only decides whether it is in the
    // middle of two doubles.
    let shift = dividend.leading_zeros();
    let dividend = dividend << shift;
    let bits = (dividend / divisor) | u128::from(!dividend.is_multiple_of(divisor));
    let size = bits as f64 * 2_f64.powi(-(shift as i32));
    Some(if sum < 0 { -size } else { size })
}

/// Accumulator for the mean of a group or window frame.
#[derive(Debug, Default)]
struct Mean<N> {
    sum: i128,
    count: u64,
    number: PhantomData<N>,
}

impl<N: Whole> Accumulator for Mean<N> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = total::<N>(values[0].as_primitive::<N::Kind>());
        self.sum += sum;
        self.count += count as u64;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = total::<N>(values[0].as_primitive::<N::Kind>());
        self.sum -= sum;
        self.count -= count as u64;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(quotient(self.sum, self.count)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = ScalarValue::Decimal128(Some(self.sum), STATE_DIGITS, 0);
        Ok(vec![ScalarValue::UInt64(Some(self.count)), sum])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.count += states[0].as_primitive::<UInt64Type>().iter().flatten().sum::<u64>();
        self.sum += states[1].as_primitive::<Decimal128Type>().iter().flatten().sum::<i128>();
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// Accumulator for the mean of the distinct numbers of a group or window frame.
#[derive(Debug, Default)]
struct DistinctMean<N>(Distinct<N>);

impl<N: Whole> Accumulator for DistinctMean<N> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let (sum, count) = self.0.total();
        Ok(ScalarValue::Float64(quotient(sum, count)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

/// Accumulator for the means of many groups.
#[derive(Debug, Default)]
struct GroupMeans<N> {
    sums: Vec<i128>,
    counts: Vec<u64>,
    /// Groups that have a number. Others are NULL.
    seen: NullState,
    number: PhantomData<N>,
}

impl<N: Whole> GroupsAccumulator for GroupMeans<N> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.sums.resize(total_num_groups, 0);
        self.counts.resize(total_num_groups, 0);
        let (sums, counts, numbers) = (&mut self.sums, &mut self.counts, values[0].as_primitive::<N::Kind>());
        self.seen.accumulate(group_indices, numbers, opt_filter, total_num_groups, |group, number: N| {
            let wide: i128 = number.into();
            sums[group] += wide;
            counts[group] += 1;
        });
        Ok(())
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.sums.resize(total_num_groups, 0);
        self.counts.resize(total_num_groups, 0);
        let (sums, counts) = (&mut self.sums, &mut self.counts);
        let (found, totals) = (values[0].as_primitive::<UInt64Type>(), values[1].as_primitive::<Decimal128Type>());
        self.seen.accumulate(group_indices, found, None, total_num_groups, |group, count: u64| counts[group] += count);
        self.seen.accumulate(group_indices, totals, None, total_num_groups, |group, sum: i128| sums[group] += sum);
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        let counts = emit_to.take_needed(&mut self.counts);
        // A group without numbers has a count of 0.
        self.seen.build(emit_to);
        let means = sums.into_iter().zip(counts).map(|(sum, count)| quotient(sum, count));
        Ok(Arc::new(means.collect::<Float64Array>()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = emit_to.take_needed(&mut self.sums);
        let counts = emit_to.take_needed(&mut self.counts);
        let nulls = self.seen.build(emit_to);
        let sums = Decimal128Array::new(sums.into(), nulls.clone()).with_data_type(STATE);
        Ok(vec![Arc::new(UInt64Array::new(counts.into(), nulls)), Arc::new(sums)])
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let numbers = values[0].as_primitive::<N::Kind>();
        let nulls = passed(numbers.nulls(), opt_filter);
        let sums: Vec<i128> = numbers.values().iter().map(|number| (*number).into()).collect();
        let counts = UInt64Array::new(vec![1; sums.len()].into(), nulls.clone());
        Ok(vec![Arc::new(counts), Arc::new(Decimal128Array::new(sums.into(), nulls).with_data_type(STATE))])
    }

    fn size(&self) -> usize {
        let each = size_of::<i128>() + size_of::<u64>();
        self.sums.capacity().max(self.counts.capacity()) * each + self.seen.size()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;

    use super::*;

    #[test]
    fn means_are_rounded_once() {
        for (sum, count, mean) in [
            (0, 0, None),
            (0, 3, Some(0.0)),
            (7, 2, Some(3.5)),
            (-7, 2, Some(-3.5)),
            (1, 3, Some(1.0 / 3.0)),
            (i128::from(i64::MAX) * 3, 3, Some(2_f64.powi(63))),
            // Halfway between two doubles, and just above.
            ((1 << 54) + 2, 2, Some(9_007_199_254_740_992.0)),
            ((1 << 55) + 5, 4, Some(9_007_199_254_740_994.0)),
            (i128::MAX, u64::MAX, Some(2_f64.powi(63))),
            (-i128::MAX, 1, Some(-2_f64.powi(127))),
            (1, u64::MAX, Some(2_f64.powi(-64))),
        ] {
            assert_eq!(quotient(sum, count), mean, "{sum} / {count}");
        }
        for sum in [-1_000_003_i128, -17, 1, 5, 999_999_999_999] {
            for count in [1_u64, 3, 7, 10, 1_000] {
                assert_eq!(quotient(sum, count), Some(sum as f64 / count as f64), "{sum} / {count}");
            }
        }
    }

    #[test]
    fn rows_that_become_states_at_once_are_counted_like_others() {
        let mut groups = GroupMeans::<i64>::default();
        let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(i64::MAX), None, Some(1), Some(2)]));
        let filter = BooleanArray::from(vec![Some(true), Some(true), None, Some(false)]);
        let states = groups.convert_to_state(std::slice::from_ref(&values), Some(&filter)).unwrap();
        groups.merge_batch(&states, &[0, 1, 2, 2], 3).unwrap();
        groups.update_batch(std::slice::from_ref(&values), &[0, 1, 0, 1], Some(&filter), 3).unwrap();
        let states = groups.state(EmitTo::First(1)).unwrap();
        assert_eq!(states[0].as_primitive::<UInt64Type>().value(0), 2);
        let rest = groups.evaluate(EmitTo::All).unwrap();
        assert_eq!((rest.len(), rest.null_count()), (2, 2));
        groups.merge_batch(&states, &[0], 1).unwrap();
        let means = groups.evaluate(EmitTo::All).unwrap();
        assert_eq!(means.as_primitive::<datafusion::arrow::datatypes::Float64Type>().value(0), i64::MAX as f64);
    }
}
