//! Takes limits out of sorts before the rules that move sorts. These drop the limit of a sort whose input is in order
//! already, and hand it down with the sort, even below windows that need all rows. As nodes of their own, limits are
//! pushed down later, as far as they may.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;

/// Rule that puts a limit above each sort that has one. It must run before rules that move sorts.
#[derive(Debug)]
pub(crate) struct LimitsApart;

impl PhysicalOptimizerRule for LimitsApart {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let Some(sort) = node.downcast_ref::<SortExec>().filter(|sort| !sort.preserve_partitioning()) else {
                return Ok(Transformed::no(node));
            };
            let (Some(fetch), Some(whole)) = (sort.fetch(), node.with_fetch(None)) else {
                return Ok(Transformed::no(node));
            };
            Ok(Transformed::yes(Arc::new(GlobalLimitExec::new(whole, 0, Some(fetch))) as Arc<dyn ExecutionPlan>))
        })
        .data()
    }

    fn name(&self) -> &str {
        "limits_apart"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
