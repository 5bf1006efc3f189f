//! Conditions that the planner must not take apart.
//!
//! Of two lists with which one value is compared, the planner makes their intersection, union or difference, as if
//! neither the value nor a member could be NULL: `x in (1, 2) and x in (3, 4)` becomes false, also where x is NULL, and
//! `x in (1, 2) and x not in (3, null)` becomes `x in (1, 2)`. All but the first list of a value, and all lists with NULL,
//! are therefore arguments of a function that returns them.
//!
//! `x is false` and the like are never NULL to the logical planner, and may be to the physical one, which then refuses a
//! plan in which one is used twice. They are arguments of that function, too, whose result may be NULL to both.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use super::map_named;

/// Rule that keeps conditions as they are written.
#[derive(Debug)]
pub(crate) struct ConditionsKept;

impl AnalyzerRule for ConditionsKept {
    fn name(&self) -> &str {
        "conditions_kept"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| map_named(node, kept)).data()
    }
}

fn kept(expr: Expr) -> Result<Transformed<Expr>> {
    let mut seen = HashSet::new();
    expr.transform_up(|expr| {
        let is_kept = match &expr {
            Expr::InList(list) => {
                let is_null = |member: &Expr| matches!(member, Expr::Literal(value, _) if value.is_null());
                !seen.insert(list.expr.clone()) || list.list.iter().any(is_null)
            }
            Expr::IsTrue(_) | Expr::IsFalse(_) | Expr::IsNotTrue(_) | Expr::IsNotFalse(_) => true,
            _ => false,
        };
        if !is_kept {
            return Ok(Transformed::no(expr));
        }
        let func = Arc::new(ScalarUDF::from(Kept { signature: Signature::any(1, Volatility::Immutable) }));
        Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args: vec![expr] })))
    })
}

/// Function that returns its argument.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Kept {
    signature: Signature,
}

impl ScalarUDFImpl for Kept {
    /// No statement can call a function of this name.
    fn name(&self) -> &str {
        "the condition"
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.first().map_or_else(String::new, |condition| condition.schema_name().to_string()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let condition = args.args.into_iter().next();
        condition.ok_or_else(|| DataFusionError::Internal(format!("{} has an argument", self.name())))
    }
}
