//! Physical plans that are used for more than one run: those of statements of which nothing but the store changes from
//! run to run. A plan is kept without its view of the store, and bound to that of each run.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use datafusion::prelude::SessionConfig;
use strongback_store::View;

use crate::table::scan::StoreScan;
use crate::table::totals::TotalsScan;

/// Maximum operators of a plan that is kept, and maximum operators above each other.
const OPERATORS_MAX: usize = 64;

/// Operators that can be run again once their state is reset.
const OPERATORS: [&str; 13] = [
    "AggregateExec",
    "CoalesceBatchesExec",
    "CoalescePartitionsExec",
    "CooperativeExec",
    "FilterExec",
    "GlobalLimitExec",
    "Guard",
    "LocalLimitExec",
    "ProjectionExec",
    "RepartitionExec",
    "SortExec",
    "SortPreservingMergeExec",
    "StoreScan",
];

/// Functions that do not look at the stop flag of their statement, which is that of the first run.
const FUNCTIONS: [&str; 9] =
    ["abs", "ceil", "date_bin", "date_part", "date_trunc", "extract", "floor", "round", "sqrt"];

/// Returns the replacement of a leaf, if it has one.
type Replace<'a> = dyn Fn(&Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> + 'a;

/// A physical plan without a view.
pub(crate) struct ReusedPlan {
    physical: Arc<dyn ExecutionPlan>,
    batch_rows: usize,
}

impl ReusedPlan {
    /// Returns the plan to keep of one that was made for a run, or `None` if it cannot be used again.
    ///
    /// # Errors
    /// If an operator refuses its own inputs.
    pub(crate) fn of(
        physical: &Arc<dyn ExecutionPlan>,
        logical: &LogicalPlan,
        config: &SessionConfig,
    ) -> Result<Option<ReusedPlan>> {
        let (mut operators, mut scans) = (0, 0);
        let can_be = can_be_used_again(physical, &mut operators, &mut scans)?;
        let mut tables = 0;
        logical.apply_with_subqueries(|node| {
            tables += usize::from(matches!(node, LogicalPlan::TableScan(_)));
            Ok(TreeNodeRecursion::Continue)
        })?;
        // Of a table without rows nothing is left that could tell when it has some.
        if !can_be || scans != tables {
            return Ok(None);
        }
        let leaf = |leaf: &Arc<dyn ExecutionPlan>| -> Option<Arc<dyn ExecutionPlan>> {
            match leaf.downcast_ref::<StoreScan>() {
                Some(scan) => Some(Arc::new(scan.unbound())),
                None => Some(Arc::new(leaf.downcast_ref::<TotalsScan>()?.unbound())),
            }
        };
        let batch_rows = config.batch_size();
        Ok(with_leaves(physical, &leaf)?.map(|physical| ReusedPlan { physical, batch_rows }))
    }

    /// Returns the plan for a run with a view, or `None` if it would be planned otherwise for that.
    ///
    /// # Errors
    /// If an operator refuses its own inputs.
    pub(crate) fn bound(&self, view: &View) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        with_leaves(&self.physical, &|leaf| match leaf.downcast_ref::<StoreScan>() {
            Some(scan) => Some(Arc::new(scan.bound(view)?)),
            None => Some(Arc::new(leaf.downcast_ref::<TotalsScan>()?.bound(view)?)),
        })
    }

    /// Returns the maximum rows of its batches.
    pub(crate) fn batch_rows(&self) -> usize {
        self.batch_rows
    }
}

/// Reports whether a plan can be used again, and counts its operators and scans.
fn can_be_used_again(plan: &Arc<dyn ExecutionPlan>, operators: &mut usize, scans: &mut usize) -> Result<bool> {
    *operators += 1;
    let is_totals = plan.is::<TotalsScan>();
    *scans += usize::from(is_totals || plan.is::<StoreScan>());
    if *operators > OPERATORS_MAX || !(is_totals || OPERATORS.contains(&plan.name())) {
        return Ok(false);
    }
    let mut can_be = true;
    plan.apply_expressions(&mut |expr| {
        expr.apply(|part| {
            let is_known = |call: &ScalarFunctionExpr| FUNCTIONS.contains(&call.fun().name());
            can_be &= part.downcast_ref::<ScalarFunctionExpr>().is_none_or(is_known);
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    for input in plan.children() {
        can_be = can_be && can_be_used_again(input, operators, scans)?;
    }
    Ok(can_be)
}

/// Returns a plan with other leaves and the state of all operators reset, or `None` if a leaf has no replacement.
fn with_leaves(plan: &Arc<dyn ExecutionPlan>, leaf: &Replace<'_>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let inputs = plan.children();
    if inputs.is_empty() {
        return Ok(leaf(plan));
    }
    let mut replaced = Vec::with_capacity(inputs.len());
    for input in inputs {
        let Some(input) = with_leaves(input, leaf)? else { return Ok(None) };
        replaced.push(input);
    }
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    plan.clone().replace_children(replaced, options)?.reset_state().map(Some)
}
