//! Conditions that the planner must not take apart.
//!
//! Of two lists with which one value is compared, the planner makes their intersection, union or difference, as if
//! neither the value nor a member could be NULL: `x in (1, 2) and x in (3, 4)` becomes false, also where x is NULL, and
//! `x in (1, 2) and x not in (3, null)` becomes `x in (1, 2)`. All but the first list of a value, and all lists with NULL,
//! are therefore arguments of a function that returns them.
//!
//! `x # x` is 0 to the planner, and `x ~ '.*'` is `x is not null`, also where x is NULL. They are written in another way.
//!
//! `x is false` and the like are never NULL to the logical planner, and may be to the physical one, which then refuses a
//! plan in which one is used twice. They are arguments of that function, too, whose result may be NULL to both.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::Array as _;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
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
        if let Expr::BinaryExpr(binary) = &expr
            && (binary.op == Operator::BitwiseXor || is_regex(binary.op))
        {
            return Ok(Transformed::yes(with_nulls(expr)));
        }
        let is_kept = match &expr {
            Expr::InList(list) => {
                let is_null =
                    |member: &Expr| matches!(without_casts(member), Expr::Literal(value, _) if value.is_null());
                !seen.insert(without_casts(&list.expr).clone()) || list.list.iter().any(is_null)
            }
            // The planner makes a list of it.
            Expr::ScalarFunction(call) if call.name() == "array_has" => match call.args.as_slice() {
                [members, value] => {
                    let has_null = |members: &Expr| match without_casts(members) {
                        Expr::Literal(ScalarValue::List(list), _) => list.values().null_count() > 0,
                        _ => false,
                    };
                    !seen.insert(without_casts(value).clone()) || has_null(members)
                }
                _ => false,
            },
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

fn without_casts(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) => without_casts(&cast.expr),
        Expr::TryCast(cast) => without_casts(&cast.expr),
        other => other,
    }
}

fn without_casts_mut(expr: &mut Expr) -> &mut Expr {
    match expr {
        Expr::Cast(cast) => without_casts_mut(&mut cast.expr),
        Expr::TryCast(cast) => without_casts_mut(&mut cast.expr),
        other => other,
    }
}

/// Replaces an operation that the planner takes for a constant, or for a test on NULL, also where it is NULL.
fn with_nulls(expr: Expr) -> Expr {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::BitwiseXor, right }) if left == right => {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right })
        }
        Expr::BinaryExpr(BinaryExpr { left, op, mut right }) if is_regex(op) => {
            if let Expr::Literal(pattern, _) = without_casts_mut(&mut right)
                && pattern.try_as_str().flatten() == Some(".*")
                && let Ok(same) = ScalarValue::from(".*?").cast_to(&pattern.data_type())
            {
                *pattern = same;
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right })
        }
        other => other,
    }
}

fn is_regex(op: Operator) -> bool {
    matches!(op, Operator::RegexMatch | Operator::RegexIMatch | Operator::RegexNotMatch | Operator::RegexNotIMatch)
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
