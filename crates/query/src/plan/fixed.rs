//! Plans that are optimised to the same plan whenever they run.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};

use crate::table::StoreTable;

/// Reports whether optimisation of a plan depends on the plan alone: it reads tables of the store, has no parameters, and
/// calls only functions whose results depend on their arguments.
///
/// # Errors
/// Passes on errors of the traversal, and adds none.
pub(crate) fn is_fixed(plan: &LogicalPlan) -> Result<bool> {
    let mut fixed = true;
    plan.apply_with_subqueries(|node| {
        fixed &= match node {
            LogicalPlan::TableScan(scan) => {
                source_as_provider(&scan.source).is_ok_and(|table| table.downcast_ref::<StoreTable>().is_some())
            }
            // These show plans, which say when they were made.
            LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) => false,
            _ => true,
        };
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                fixed &= is_fixed_expression(expr);
                Ok(if fixed { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
            })
        })
    })?;
    Ok(fixed)
}

fn is_fixed_expression(expr: &Expr) -> bool {
    let volatility = match expr {
        Expr::Placeholder(_) | Expr::ScalarVariable(..) | Expr::OuterReferenceColumn(..) => return false,
        Expr::ScalarFunction(call) => call.func.signature().volatility,
        Expr::AggregateFunction(call) => call.func.signature().volatility,
        Expr::WindowFunction(call) => call.fun.signature().volatility,
        _ => Volatility::Immutable,
    };
    volatility == Volatility::Immutable
}
