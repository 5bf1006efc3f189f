//! Answers aggregations of a scan from the store's totals, and so from statistics of blocks, where that is possible:
//! `count`, `min`, `max`, `sum` and `avg` of columns, without groups, or by tags and pieces of `time`, of all rows or of
//! those where channels compare with constants.
//!
//! The totals stand in the place of the partial aggregation, with the same states, so that what follows merges them as
//! it would merge those. An aggregation in one step becomes the final step of two.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::filter::FilterExec;
use strongback_store::{ChannelType, EqualPieces};

use crate::table::column::{ColumnSource, FrameTime, TableColumn, UTC};
use crate::table::condition::{ColumnCondition, conditions};
use crate::table::scan::StoreScan;
use crate::table::totals::{Total, TotalsKey, WantedTotals};

/// Rule that replaces aggregations.
#[derive(Debug)]
pub(crate) struct Totalled;

impl PhysicalOptimizerRule for Totalled {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|node| {
            let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return Ok(Transformed::no(node)) };
            Ok(match totalled(aggregate)? {
                Some(totals) => Transformed::yes(totals),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "totalled"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What is aggregated: a scan, perhaps filtered.
struct Source<'p> {
    scan: &'p StoreScan,
    /// Columns that the aggregation sees.
    columns: Vec<TableColumn>,
    conditions: Vec<ColumnCondition>,
}

/// Returns what is aggregated, if it is no more than a scan and conditions that the store knows.
fn source(input: &Arc<dyn ExecutionPlan>) -> Option<Source<'_>> {
    if let Some(scan) = input.downcast_ref::<StoreScan>() {
        return Some(Source { scan, columns: scan.columns().to_vec(), conditions: Vec::new() });
    }
    let filter = input.downcast_ref::<FilterExec>().filter(|filter| filter.fetch().is_none())?;
    let mut source = source(filter.input())?;
    source.conditions.extend(conditions(filter.predicate(), &source.columns)?);
    if let Some(projection) = filter.projection() {
        source.columns = projection.iter().map(|at| source.columns.get(*at).cloned()).collect::<Option<_>>()?;
    }
    Some(source)
}

/// Returns an aggregation from totals, if it can be.
fn totalled(aggregate: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let is_plain = aggregate.filter_expr().iter().all(Option::is_none) && aggregate.limit_options().is_none();
    let groups = aggregate.group_expr();
    if !is_plain || groups.has_grouping_set() || aggregate.aggr_expr().is_empty() {
        return Ok(None);
    }
    let Some(Source { scan, columns, conditions }) = source(aggregate.input()) else { return Ok(None) };
    let mut wanted =
        WantedTotals { keys: Vec::new(), columns: Vec::new(), conditions, totals: Vec::new(), pieces: None };
    for (key, _) in groups.expr() {
        let Some(key) = key_of(key, &columns, &mut wanted.pieces) else { return Ok(None) };
        wanted.keys.push(key);
    }
    for of in aggregate.aggr_expr() {
        let Some(total) = total_of(of, &columns, &mut wanted.columns)? else { return Ok(None) };
        wanted.totals.push(total);
    }
    let states_of = |partial: &AggregateExec| scan.totals(wanted, (partial.schema(), partial.properties().clone()));
    match aggregate.mode() {
        AggregateMode::Partial => Ok(states_of(aggregate).map(|totals| Arc::new(totals) as Arc<dyn ExecutionPlan>)),
        AggregateMode::Single => {
            let (aggregates, schema) = (aggregate.aggr_expr().to_vec(), aggregate.input_schema());
            let filters = aggregate.filter_expr().to_vec();
            let partial = AggregateExec::try_new(
                AggregateMode::Partial,
                groups.clone(),
                aggregates.clone(),
                filters.clone(),
                aggregate.input().clone(),
                schema.clone(),
            )?;
            let Some(totals) = states_of(&partial) else { return Ok(None) };
            let (mode, groups) = (AggregateMode::Final, groups.as_final());
            let merged = AggregateExec::try_new(mode, groups, aggregates, filters, Arc::new(totals), schema)?;
            // What is above knows the columns by the names of before.
            Ok((merged.schema() == aggregate.schema()).then(|| Arc::new(merged) as Arc<dyn ExecutionPlan>))
        }
        _ => Ok(None),
    }
}

/// Returns the column of a scan that an expression is.
fn column_of<'c>(expr: &Arc<dyn PhysicalExpr>, columns: &'c [TableColumn]) -> Option<&'c TableColumn> {
    columns.get(expr.downcast_ref::<Column>()?.index())
}

/// Returns the key of totals that an expression of a group is.
fn key_of(
    expr: &Arc<dyn PhysicalExpr>,
    columns: &[TableColumn],
    pieces: &mut Option<EqualPieces>,
) -> Option<TotalsKey> {
    if let Some(column) = column_of(expr, columns) {
        return match &column.source {
            ColumnSource::Tag(tag) => Some(TotalsKey::Tag(tag.clone())),
            _ => None,
        };
    }
    let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
    let is_time = |expr: &Arc<dyn PhysicalExpr>| {
        // `date_bin` bins nanoseconds.
        let cast = expr.downcast_ref::<CastExpr>().filter(|cast| is_instant(cast.cast_type()));
        let time = column_of(cast.map_or(expr, CastExpr::expr), columns);
        time.is_some_and(|column| column.source == ColumnSource::Micros(FrameTime::Time))
    };
    let constant = |expr: &Arc<dyn PhysicalExpr>| expr.downcast_ref::<Literal>().map(|literal| literal.value().clone());
    let found = match (call.fun().name(), call.args()) {
        ("date_bin", [width, time]) if is_time(time) => {
            EqualPieces { origin: 0, width_ns: width_of(&constant(width)?)? }
        }
        ("date_bin", [width, time, origin]) if is_time(time) => {
            let origin = match constant(origin)? {
                ScalarValue::TimestampNanosecond(Some(ns), _) => ns,
                ScalarValue::TimestampMicrosecond(Some(us), _) => us.checked_mul(1_000)?,
                _ => return None,
            };
            // `time` is floored to microseconds, which does not move it across a start of a whole microsecond.
            EqualPieces { origin: Some(origin).filter(|ns| ns % 1_000 == 0)?, width_ns: width_of(&constant(width)?)? }
        }
        ("date_trunc", [unit, time]) if is_time(time) => {
            let unit = match constant(unit)? {
                ScalarValue::Utf8(Some(unit))
                | ScalarValue::Utf8View(Some(unit))
                | ScalarValue::LargeUtf8(Some(unit)) => unit,
                _ => return None,
            };
            let seconds: u64 = match unit.to_ascii_lowercase().as_str() {
                "second" => 1,
                "minute" => 60,
                "hour" => 3_600,
                "day" => 86_400,
                _ => return None,
            };
            EqualPieces { origin: 0, width_ns: seconds * 1_000_000_000 }
        }
        _ => return None,
    };
    if !is_instant(call.return_type()) || pieces.is_some_and(|pieces| pieces != found) {
        return None;
    }
    *pieces = Some(found);
    Some(TotalsKey::Piece)
}

/// Reports whether a type is one of instants that totals can have as keys.
fn is_instant(kind: &DataType) -> bool {
    matches!(kind, DataType::Timestamp(TimeUnit::Microsecond | TimeUnit::Nanosecond, Some(zone)) if zone.as_ref() == UTC)
}

/// Returns the nanoseconds of an interval that is always as long and a whole number of microseconds.
fn width_of(width: &ScalarValue) -> Option<u64> {
    let ns = match width {
        ScalarValue::IntervalMonthDayNano(Some(interval)) if interval.months == 0 => {
            i64::from(interval.days).checked_mul(86_400_000_000_000)?.checked_add(interval.nanoseconds)?
        }
        _ => return None,
    };
    u64::try_from(ns).ok().filter(|ns| *ns > 0 && ns % 1_000 == 0)
}

/// Returns the total that an aggregate is. `wanted` are the columns of channels so far.
fn total_of(
    of: &AggregateFunctionExpr,
    columns: &[TableColumn],
    wanted: &mut Vec<TableColumn>,
) -> Result<Option<Total>> {
    if of.is_distinct() || of.ignore_nulls() || !of.order_bys().is_empty() {
        return Ok(None);
    }
    let args = of.expressions();
    let [arg] = args.as_slice() else { return Ok(None) };
    let name = of.fun().name();
    if name == "count" && arg.downcast_ref::<Literal>().is_some_and(|literal| !literal.value().is_null()) {
        return Ok(Some(Total::Rows));
    }
    let (inner, cast) = match arg.downcast_ref::<CastExpr>() {
        Some(cast) => (cast.expr(), Some(cast.cast_type())),
        None => (arg, None),
    };
    let Some(column) = column_of(inner, columns) else { return Ok(None) };
    let ColumnSource::Channel { channel_type, .. } = column.source else { return Ok(None) };
    let index = wanted.iter().position(|known| known == column).unwrap_or(wanted.len());
    let states = of.state_fields()?;
    let states: Vec<&DataType> = states.iter().map(|field| field.data_type()).collect();
    let total = total(name, channel_type, cast, &states).map(|total| total(index));
    if total.is_some() && index == wanted.len() {
        wanted.push(column.clone());
    }
    Ok(total)
}

/// Returns how to make the total of a column of channels, whose states have these types.
fn total(
    name: &str,
    channel_type: ChannelType,
    cast: Option<&DataType>,
    states: &[&DataType],
) -> Option<fn(usize) -> Total> {
    use ChannelType::{F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    let is_integer = matches!(channel_type, I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64);
    let is_number = is_integer || matches!(channel_type, F32 | F64);
    let own = crate::table::column::arrow_type(channel_type);
    let of = cast.unwrap_or(&own);
    // A sum of integers is one of `bigint`, or of `numeric` for those that do not fit it.
    let sums_integers = is_integer && *of == if channel_type == U64 { own.clone() } else { DataType::Int64 };
    match (name, states) {
        ("count", [DataType::Int64]) if cast.is_none() => Some(Total::Values),
        ("min", [state]) if is_number && cast.is_none() && **state == own => Some(Total::Min),
        ("max", [state]) if is_number && cast.is_none() && **state == own => Some(Total::Max),
        ("sum", [DataType::Decimal128(_, 0)]) if sums_integers => Some(Total::IntegerSum),
        ("sum", [DataType::Float64]) if is_number && *of == DataType::Float64 => Some(Total::FloatSum),
        ("avg", [DataType::UInt64, DataType::Decimal128(_, 0)]) if sums_integers => Some(Total::IntegerMean),
        ("avg", [DataType::UInt64, DataType::Float64]) if is_number && *of == DataType::Float64 => {
            Some(Total::FloatMean)
        }
        _ => None,
    }
}
