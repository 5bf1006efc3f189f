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
            let Some((order, pieces)) = first_of(sort) else { return Ok(Transformed::no(node)) };
            Ok(match limited(sort.input(), &mut |totals| totals.first(order, pieces))? {
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

/// Returns the order of the first key of a sort with a limit, and the limit, if the key is the one of the groups below.
fn first_of(sort: &SortExec) -> Option<(TimeOrder, usize)> {
    let pieces = sort.fetch()?;
    let key = sort.expr().first();
    let mut column = key.expr.downcast_ref::<Column>()?.index();
    let mut node = sort.input();
    loop {
        if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            column = projection.expr().get(column)?.expr.downcast_ref::<Column>()?.index();
            node = projection.input();
        } else if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
            let is_key = column == 0 && aggregate.group_expr().expr().len() == 1;
            let order = if key.options.descending { TimeOrder::Descending } else { TimeOrder::Ascending };
            return is_key.then_some((order, pieces));
        } else {
            node = passes_on(node)?;
        }
    }
}

/// Returns the input of an operator that passes all rows on as they are.
pub(super) fn passes_on(node: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    let passes = node.is::<RepartitionExec>() || node.is::<CoalescePartitionsExec>();
    node.children().into_iter().next().filter(|_| passes && node.fetch().is_none())
}

/// Replaces the totals below an aggregation, or returns `None` if there are none to be replaced.
fn limited(
    node: &Arc<dyn ExecutionPlan>,
    limit: &mut dyn FnMut(&TotalsScan) -> Option<TotalsScan>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(totals) = node.downcast_ref::<TotalsScan>() {
        return Ok(limit(totals).map(|totals| Arc::new(totals) as Arc<dyn ExecutionPlan>));
    }
    let input = if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        Some(projection.input())
    } else if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let is_final = matches!(aggregate.mode(), AggregateMode::Final | AggregateMode::FinalPartitioned);
        Some(aggregate.input()).filter(|_| is_final)
    } else {
        passes_on(node)
    };
    let Some(input) = input else { return Ok(None) };
    limited(input, limit)?.map(|input| replaced(node, input)).transpose()
}
