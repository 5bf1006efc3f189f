//! Reads streams one after the other where rows are only filtered and projected, so that they come as they are stored,
//! each time in the same order.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;

use crate::table::scan::StoreScan;

/// Rule that gives the scan of such a plan one partition. It must run before rules that handle partitions.
#[derive(Debug)]
pub(crate) struct StoredOrder;

impl PhysicalOptimizerRule for StoredOrder {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if !keeps_order(&plan) {
            return Ok(plan);
        }
        plan.transform_up(|node| {
            Ok(match node.downcast_ref::<StoreScan>() {
                Some(scan) => Transformed::yes(Arc::new(scan.in_one()) as Arc<dyn ExecutionPlan>),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "stored_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Reports whether a plan only filters, limits and projects the rows of one scan.
fn keeps_order(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if plan.is::<StoreScan>() {
        return true;
    }
    let keeps = plan.is::<ProjectionExec>()
        || plan.is::<FilterExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<AnalyzeExec>();
    match plan.children().as_slice() {
        [input] => keeps && keeps_order(input),
        _ => false,
    }
}
