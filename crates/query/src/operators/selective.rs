//! Tells scans which of their rows are wanted: those that a filter above keeps, or only the newest of each stream. If each
//! stream has tags of its own, such rows are the groups themselves.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use strongback_store::Stream;

use crate::operators::first_pieces::passes_on;
use crate::table::column::{ColumnSource, FrameTime, TableColumn};
use crate::table::condition::conditions_among;
use crate::table::merge::TimeOrder;
use crate::table::scan::StoreScan;

/// Rule that narrows scans to what is wanted of them. Filters and aggregations stay above.
#[derive(Debug)]
pub(crate) struct SelectiveScan;

impl PhysicalOptimizerRule for SelectiveScan {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|node| {
            if let Some(aggregate) = node.downcast_ref::<AggregateExec>()
                && let Some(rows) = single_rows(aggregate)?
            {
                return Ok(Transformed::yes(rows));
            }
            let input = if let Some(filter) = node.downcast_ref::<FilterExec>() {
                on_scan(filter.input(), |scan| {
                    let conditions = conditions_among(filter.predicate(), scan.columns());
                    (!conditions.is_empty()).then(|| scan.for_conditions(conditions))
                })
            } else if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
                on_scan(aggregate.input(), |scan| scan.edges(edge_of(aggregate, scan.columns())?))
            } else {
                None
            };
            let Some(input) = input else { return Ok(Transformed::no(node)) };
            let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            Ok(Transformed::yes(node.replace_children(vec![input], anew)?))
        })
        .data()
    }

    fn name(&self) -> &str {
        "selective_scan"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns the rows of streams in the place of an aggregation of them by tags, if it looks at one row of each, and no two
/// of them have the same tags.
fn single_rows(aggregate: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let partial = match aggregate.mode() {
        AggregateMode::Final | AggregateMode::FinalPartitioned => {
            let mut node = aggregate.input();
            while let Some(input) = passes_on(node) {
                node = input;
            }
            node.downcast_ref::<AggregateExec>().filter(|partial| *partial.mode() == AggregateMode::Partial)
        }
        AggregateMode::Single | AggregateMode::SinglePartitioned => Some(aggregate),
        _ => None,
    };
    let Some(partial) = partial.filter(|_| aggregate.limit_options().is_none()) else { return Ok(None) };
    let Some(scan) = partial.input().downcast_ref::<StoreScan>() else { return Ok(None) };
    let Some(rows) = edge_of(partial, scan.columns()).and_then(|edge| scan.edges(edge)) else { return Ok(None) };
    let keys: Vec<Arc<dyn PhysicalExpr>> = partial.group_expr().expr().iter().map(|(key, _)| key.clone()).collect();
    let tags: Vec<&str> = keys.iter().filter_map(|key| tag_of(key, scan.columns())).collect();
    let mut seen = HashSet::new();
    let own = |stream: &Arc<Stream>| tags.iter().map(|tag| stream.key.tag(tag).map(str::to_owned)).collect::<Vec<_>>();
    if !scan.streams().all(|stream| seen.insert(own(stream))) {
        return Ok(None);
    }
    let values = partial.aggr_expr().iter().filter_map(|of| of.expressions().into_iter().next());
    let schema = aggregate.schema();
    let named = keys.into_iter().chain(values).zip(schema.fields());
    let exprs = named.map(|(expr, field)| ProjectionExpr::new(expr, field.name().clone()));
    let projected = ProjectionExec::try_new(exprs.collect::<Vec<_>>(), Arc::new(rows.nullable()))?;
    Ok((projected.schema() == schema).then(|| Arc::new(projected) as Arc<dyn ExecutionPlan>))
}

/// Replaces the scan that a plan is, or returns `None` if it is none.
fn on_scan(
    plan: &Arc<dyn ExecutionPlan>,
    replacement: impl Fn(&StoreScan) -> Option<StoreScan>,
) -> Option<Arc<dyn ExecutionPlan>> {
    let scan = replacement(plan.downcast_ref::<StoreScan>()?)?;
    Some(Arc::new(scan))
}

/// Returns which row of each stream an aggregation by tags looks at: the first in this order by time, if that is all that
/// it looks at.
fn edge_of(aggregate: &AggregateExec, columns: &[TableColumn]) -> Option<TimeOrder> {
    let reads_rows =
        matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::Single | AggregateMode::SinglePartitioned);
    let is_plain = reads_rows && aggregate.filter_expr().iter().all(Option::is_none);
    if !is_plain || aggregate.group_expr().has_grouping_set() {
        return None;
    }
    let mut keys = aggregate.group_expr().expr().iter();
    keys.all(|(key, _)| is_tag(key, columns)).then_some(())?;
    let mut edges = aggregate.aggr_expr().iter().map(|of| edge_of_function(of, columns));
    let first = edges.next()??;
    edges.all(|edge| edge == Some(first)).then_some(first)
}

/// Returns the order by time whose first row `first_value` or `last_value` wants of a stream.
fn edge_of_function(of: &AggregateFunctionExpr, columns: &[TableColumn]) -> Option<TimeOrder> {
    if of.is_distinct() || of.ignore_nulls() {
        return None;
    }
    // All rows of a stream have the same tags. A further key decides between rows of one time.
    let mut keys = of.order_bys().iter().filter(|key| !is_tag(&key.expr, columns));
    let key = keys.next()?;
    if keys.next().is_some() {
        return None;
    }
    let source = &columns.get(key.expr.downcast_ref::<Column>()?.index())?.source;
    if !matches!(source, ColumnSource::Micros(FrameTime::Time) | ColumnSource::Nanos(FrameTime::Time)) {
        return None;
    }
    match (of.fun().name(), key.options.descending) {
        ("first_value", true) | ("last_value", false) => Some(TimeOrder::Descending),
        ("first_value", false) | ("last_value", true) => Some(TimeOrder::Ascending),
        _ => None,
    }
}

fn is_tag(expr: &Arc<dyn PhysicalExpr>, columns: &[TableColumn]) -> bool {
    tag_of(expr, columns).is_some()
}

/// Returns the name of the tag that an expression is.
fn tag_of<'c>(expr: &Arc<dyn PhysicalExpr>, columns: &'c [TableColumn]) -> Option<&'c str> {
    match &columns.get(expr.downcast_ref::<Column>()?.index())?.source {
        ColumnSource::Tag(tag) => Some(tag),
        _ => None,
    }
}
