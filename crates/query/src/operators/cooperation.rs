//! Makes joins stoppable. A join makes many batches from each batch it reads, so it gets a yield point of its own,
//! where DataFusion puts one only at the leaves.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;

/// Rule that wraps every join.
#[derive(Debug)]
pub(crate) struct Cooperation;

impl PhysicalOptimizerRule for Cooperation {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            Ok(match node.name() {
                "CrossJoinExec" | "NestedLoopJoinExec" | "HashJoinExec" | "SortMergeJoinExec" | "UnnestExec" => {
                    Transformed::yes(Arc::new(CooperativeExec::new(node)) as Arc<dyn ExecutionPlan>)
                }
                _ => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "cooperation"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
