//! Aggregates of floats whose results are numbers or the one NaN.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::{AggregateFunctionParams, WindowFunctionParams};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};

use super::extreme::{Extreme, Extremes};
use super::frame::FrameAccumulator;
use super::{array_with_one_nan, scalar_with_one_nan};

/// Aggregates that compute floats, besides `max` and `min`.
const AGGREGATES: [&str; 22] = [
    "sum",
    "avg",
    "median",
    "stddev",
    "stddev_pop",
    "var",
    "var_pop",
    "corr",
    "covar_samp",
    "covar_pop",
    "regr_slope",
    "regr_intercept",
    "regr_r2",
    "regr_avgx",
    "regr_avgy",
    "regr_sxx",
    "regr_syy",
    "regr_sxy",
    "percentile_cont",
    "approx_median",
    "approx_percentile_cont",
    "approx_percentile_cont_with_weight",
];

/// Wraps the aggregates of a session that compute floats.
///
/// # Errors
/// If an aggregate cannot be registered.
pub(super) fn wrap_aggregates(state: &mut SessionState) -> Result<()> {
    for name in AGGREGATES.into_iter().chain(["max", "min"]) {
        let inner = state.udaf(name)?;
        let extreme = Extreme::of(name);
        state.register_udaf(Arc::new(AggregateUDF::from(FloatAggregate { inner, extreme })))?;
    }
    Ok(())
}

/// An aggregate that computes floats.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FloatAggregate {
    inner: Arc<AggregateUDF>,
    /// Set for `max` and `min`, of which DataFusion's form for groups does not order NaN and infinities.
    extreme: Option<Extreme>,
}

fn is_float(args: &AccumulatorArgs) -> bool {
    matches!(args.return_field.data_type(), DataType::Float32 | DataType::Float64)
}

impl AggregateUDFImpl for FloatAggregate {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_display_name(params)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn return_field(&self, arg_fields: &[FieldRef]) -> Result<FieldRef> {
        self.inner.return_field(arg_fields)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let is_float = is_float(&args);
        let inner = self.inner.accumulator(args)?;
        Ok(if is_float { Box::new(OneNan(inner)) } else { inner })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match (args.return_field.data_type(), self.extreme) {
            (DataType::Float32, Some(extreme)) => Ok(Box::new(Extremes::<Float32Type>::new(extreme))),
            (DataType::Float64, Some(extreme)) => Ok(Box::new(Extremes::<Float64Type>::new(extreme))),
            (DataType::Float32 | DataType::Float64, None) => {
                Ok(Box::new(GroupsOneNan(self.inner.create_groups_accumulator(args)?)))
            }
            _ => self.inner.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if !is_float(&args) {
            return self.inner.create_sliding_accumulator(args);
        }
        let of_floats = args.expr_fields.iter().any(|field| field.data_type().is_floating());
        Ok(Box::new(OneNan(match self.extreme {
            None if of_floats => Box::new(FrameAccumulator::new(self.inner.clone(), &args)),
            _ => self.inner.create_sliding_accumulator(args)?,
        })))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_udf()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        self.inner.value_from_stats(args)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner.supports_within_group_clause()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// Accumulator of one group or window frame.
#[derive(Debug)]
struct OneNan(Box<dyn Accumulator>);

impl Accumulator for OneNan {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate().map(scalar_with_one_nan)
    }

    fn size(&self) -> usize {
        self.0.size() + size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }
}

/// Accumulator of many groups.
struct GroupsOneNan(Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for GroupsOneNan {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.0.update_batch(values, group_indices, opt_filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.0.evaluate(emit_to).map(array_with_one_nan)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.0.merge_batch(values, group_indices, total_num_groups)
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(values, opt_filter)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}
