//! Computes totals only of the pieces of time that a limit leaves: `GROUP BY date_trunc('minute', time) ORDER BY 1 DESC
//! LIMIT 5` needs those of the five newest minutes.
//!
//! A stream's rows in one of the first pieces of all streams lie among its own first pieces, since fewer pieces with rows
//! come before. So each stream is totalled for as many of its own first pieces as the limit has rows.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

use crate::table::merge::TimeOrder;
use crate::table::totals::TotalsScan;

/// Rule that tells totals how many pieces are wanted.
#[derive(Debug)]
pub(crate) struct FirstPieces;

impl PhysicalOptimizerRule for FirstPieces {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|node| {
            let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(Transformed::no(node)) };
            let key = sort.expr().first();
            let order = if key.options.descending { TimeOrder::Descending } else { TimeOrder::Ascending };
            let (Some(pieces), Some(column)) = (sort.fetch(), key.expr.downcast_ref::<Column>()) else {
                return Ok(Transformed::no(node));
            };
            Ok(match limited(sort.input(), column.index(), (order, pieces))? {
                Some(input) => Transformed::yes(replaced(&node, input)?),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "first_pieces"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn replaced(node: &Arc<dyn ExecutionPlan>, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    node.clone().replace_children(vec![input], ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep))
}

/// Returns the input of an operator that passes all rows on as they are.
pub(super) fn passes_on(node: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    let passes = node.is::<RepartitionExec>() || node.is::<CoalescePartitionsExec>();
    node.children().into_iter().next().filter(|_| passes && node.fetch().is_none())
}

/// Limits the totals below an aggregation whose only key is this column to their first pieces. Returns `None` if there is
/// no such aggregation, or none of totals.
fn limited(
    node: &Arc<dyn ExecutionPlan>,
    column: usize,
    (order, pieces): (TimeOrder, usize),
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let below = if let Some(totals) = node.downcast_ref::<TotalsScan>() {
        return Ok(totals.first(order, pieces).map(|totals| Arc::new(totals) as Arc<dyn ExecutionPlan>));
    } else if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let from = projection.expr().get(column).and_then(|of| of.expr.downcast_ref::<Column>());
        from.map(|from| (projection.input(), from.index()))
    } else if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let is_final = matches!(aggregate.mode(), AggregateMode::Final | AggregateMode::FinalPartitioned);
        let is_key = column == 0 && aggregate.group_expr().expr().len() == 1;
        (is_final && is_key).then(|| (aggregate.input(), column))
    } else {
        passes_on(node).map(|input| (input, column))
    };
    let Some((input, column)) = below else { return Ok(None) };
    limited(input, column, (order, pieces))?.map(|input| replaced(node, input)).transpose()
}
