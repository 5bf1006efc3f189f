//! Keeps the sorts of subqueries, whose order PostgreSQL keeps for what is around them. The planner drops a sort that
//! nothing requires, even below an OFFSET, which then passes over other rows.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::output_requirements::OutputRequirementExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, Distribution, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};

/// Name of the rule after which this one must run: it notes what the whole statement requires. Another of the name takes
/// all these notes away once the sorts are settled.
pub(crate) const AFTER: &str = "OutputRequirements";

/// Rule that requires the order of each sort below the top.
#[derive(Debug)]
pub(crate) struct SortsKept;

impl PhysicalOptimizerRule for SortsKept {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = plan.transform_up(|node| {
            let (node, is_changed) = below_projections(node)?;
            Ok(if is_changed { Transformed::yes(node) } else { Transformed::no(node) })
        });
        plan.data()?
            .transform_down(|node| {
                // A limit is a reason of its own.
                let has_limit = node.downcast_ref::<GlobalLimitExec>().is_some_and(|limit| limit.fetch().is_some());
                if has_limit || node.is::<OutputRequirementExec>() {
                    return Ok(Transformed::no(node));
                }
                let orders: Vec<_> = node.children().into_iter().map(order_to_keep).collect();
                if orders.iter().all(Option::is_none) {
                    return Ok(Transformed::no(node));
                }
                let children = node.children().into_iter().zip(orders).map(|(child, order)| match order {
                    Some(order) => kept(child.clone(), order),
                    None => child.clone(),
                });
                let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
                Ok(Transformed::yes(node.clone().replace_children(children.collect(), anew)?))
            })
            .data()
    }

    fn name(&self) -> &str {
        "sorts_kept"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns a limit above projections as one below them, and whether there is one, where the order of its rows is known: columns of a sort may not
/// be among those of a projection.
///
/// # Errors
/// If an operator does not accept its new input.
fn below_projections(node: Arc<dyn ExecutionPlan>) -> Result<(Arc<dyn ExecutionPlan>, bool)> {
    let Some(limit) = node.downcast_ref::<GlobalLimitExec>() else { return Ok((node, false)) };
    let Some(projection) = limit.input().downcast_ref::<ProjectionExec>() else { return Ok((node, false)) };
    let below = GlobalLimitExec::new(projection.input().clone(), limit.skip(), limit.fetch());
    let (below, _) = below_projections(Arc::new(below))?;
    let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Ok((limit.input().clone().replace_children(vec![below], anew)?, true))
}

/// Returns the order of a sort, or of rows that an OFFSET without a LIMIT passes over in order. Other sorts are moved even
/// below that.
fn order_to_keep(node: &Arc<dyn ExecutionPlan>) -> Option<LexOrdering> {
    if let Some(sort) = node.downcast_ref::<SortExec>() {
        let is_whole = !sort.preserve_partitioning() && sort.fetch().is_none();
        return is_whole.then(|| sort.expr().clone());
    }
    let is_offset = node.downcast_ref::<GlobalLimitExec>().is_some_and(|limit| limit.fetch().is_none());
    node.output_ordering().filter(|_| is_offset).cloned()
}

fn kept(node: Arc<dyn ExecutionPlan>, order: LexOrdering) -> Arc<dyn ExecutionPlan> {
    Arc::new(OutputRequirementExec::new(node, Some(order.into()), Distribution::SinglePartition, None))
}
