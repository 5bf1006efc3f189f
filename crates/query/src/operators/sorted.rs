//! Delegates a sort by time to the scan below it, even through filters. A scan merges its streams by time, and stops
//! once a limit is reached.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};

use crate::operators::serial::Serial;
use crate::table::scan::StoreScan;

/// Replacement of DataFusion's own rule, which stops at a filter and keeps a limit above a projection.
#[derive(Debug)]
pub(crate) struct SortedScan;

impl PhysicalOptimizerRule for SortedScan {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|node| {
            // Where streams are declared to be in order, a merge of theirs stands in the place of a sort. It compares
            // microseconds and leaves ties in any order; the scan compares nanoseconds, then streams and rows.
            if let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() {
                let order = merge.expr().iter().cloned().collect();
                return Ok(match sorted(merge.input(), order, merge.fetch())? {
                    Some(sorted) => Transformed::yes(sorted),
                    None => Transformed::no(node),
                });
            }
            let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(Transformed::no(node)) };
            // What is above needs its partitions, such as a join.
            if sort.preserve_partitioning() && sort.input().output_partitioning().partition_count() > 1 {
                return Ok(Transformed::no(node));
            }
            let order: Vec<PhysicalSortExpr> = sort.expr().iter().cloned().collect();
            if let Some(sorted) = sorted(sort.input(), order.clone(), sort.fetch())? {
                return Ok(Transformed::yes(sorted));
            }
            // The first rows of a union are among the first rows of each of its inputs.
            if sort.fetch().is_none() || !sort.input().is::<Serial>() {
                return Ok(Transformed::no(node));
            }
            let mut inputs = Vec::new();
            for input in sort.input().children() {
                inputs.push(match sorted(input, order.clone(), sort.fetch())? {
                    Some(sorted) => sorted,
                    None => input.clone(),
                });
            }
            let options = || ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            let union = sort.input().clone().replace_children(inputs, options())?;
            Ok(Transformed::yes(node.clone().replace_children(vec![union], options())?))
        })
        .data()
    }

    fn name(&self) -> &str {
        "sorted_scan"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns the plan as one partition in the requested order, or its first rows, if its scan supports that.
fn sorted(
    plan: &Arc<dyn ExecutionPlan>,
    order: Vec<PhysicalSortExpr>,
    fetch: Option<usize>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = plan.downcast_ref::<StoreScan>() {
        return Ok(scan.merged(&order, fetch).map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>));
    }
    // A limit below the sort selected its rows before sorting, unless it is the merge's, handed down to each of its
    // inputs.
    let is_handed_down = plan.output_partitioning().partition_count() > 1 && plan.fetch() == fetch;
    if plan.fetch().is_some() && !is_handed_down {
        return Ok(None);
    }
    let children = plan.children();
    let [input] = children.as_slice() else { return Ok(None) };
    // A merge merges partitions that are sorted one by one.
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        let is_same = sort.preserve_partitioning() && sort.expr().iter().eq(&order);
        return if is_same { sorted(input, order, fetch) } else { Ok(None) };
    }
    if plan.downcast_ref::<RepartitionExec>().is_some() || plan.downcast_ref::<CoalescePartitionsExec>().is_some() {
        return sorted(input, order, fetch);
    }
    let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let projection = filter.projection().as_deref();
        let order = renamed(&order, |column| match projection {
            None => Some(column.clone()),
            Some(kept) => {
                let at = *kept.get(column.index())?;
                Some(Column::new(input.schema().field(at).name(), at))
            }
        });
        let Some(order) = order else { return Ok(None) };
        // The number of rows that pass is unknown, so the scan has no limit and is read as far as needed.
        let Some(input) = sorted(input, order, None)? else { return Ok(None) };
        let filtered = plan.clone().replace_children(vec![input], anew)?;
        return Ok(Some(match fetch {
            None => filtered,
            Some(_) => filtered.with_fetch(fetch).unwrap_or_else(|| Arc::new(GlobalLimitExec::new(filtered, 0, fetch))),
        }));
    }
    let order = if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        renamed(&order, |column| projection.expr().get(column.index())?.expr.downcast_ref::<Column>().cloned())
    } else if plan.downcast_ref::<CooperativeExec>().is_some() {
        Some(order)
    } else {
        None
    };
    let Some(order) = order else { return Ok(None) };
    let Some(input) = sorted(input, order, fetch)? else { return Ok(None) };
    plan.clone().replace_children(vec![input], anew).map(Some)
}

/// Translates an order to the columns of a plan's input, or returns `None` if it sorts by anything but columns.
fn renamed(order: &[PhysicalSortExpr], name: impl Fn(&Column) -> Option<Column>) -> Option<Vec<PhysicalSortExpr>> {
    let each = order.iter().map(|key| {
        let column = name(key.expr.downcast_ref::<Column>()?)?;
        Some(PhysicalSortExpr::new(Arc::new(column), key.options))
    });
    each.collect()
}
