//! Constants in quotes that PostgreSQL reads as the type beside them, where the planner takes them for texts: beside truth
//! values, and in arrays in which a value that is no text is looked up.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Operator};

use crate::error::{QueryError, sqlstate};

/// Rewrite that reads the constants. It must run before types are coerced.
#[derive(Debug)]
pub(super) struct ReadConstants;

impl FunctionRewrite for ReadConstants {
    fn name(&self) -> &str {
        "read_constants"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
                let (left, right) = match (text_of(&left), text_of(&right)) {
                    (Some(text), None) if is_truth(&right, schema) => (Box::new(truth(text)?), right),
                    (None, Some(text)) if is_truth(&left, schema) => {
                        let truth = Box::new(truth(text)?);
                        (left, truth)
                    }
                    _ => return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))),
                };
                Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
            }
            Expr::InList(InList { expr, list, negated })
                if list.iter().any(|one| text_of(one).is_some()) && is_truth(&expr, schema) =>
            {
                let read = |one: Expr| text_of(&one).map(truth).unwrap_or(Ok(one.clone()));
                let list = list.into_iter().map(read).collect::<Result<_>>()?;
                Ok(Transformed::yes(Expr::InList(InList { expr, list, negated })))
            }
            Expr::ScalarFunction(ScalarFunction { func, mut args }) if func.name() == "array_has" => {
                let mut is_read = false;
                if let [Expr::ScalarFunction(array), looked_up] = args.as_mut_slice()
                    && array.func.name() == "make_array"
                    && !array.args.is_empty()
                    && array.args.iter().all(|one| text_of(one).is_some() || is_null(one))
                    && let Ok(kind) = looked_up.get_type(schema)
                    && !is_text(&kind)
                {
                    for one in &mut array.args {
                        let text = std::mem::take(one);
                        *one = Expr::Cast(Cast::new(Box::new(text), kind.clone()));
                    }
                    is_read = true;
                }
                Ok(Transformed::new_transformed(Expr::ScalarFunction(ScalarFunction { func, args }), is_read))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if value.is_null())
}

fn is_truth(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Boolean))
}

fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, value) => is_text(value),
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 | DataType::Null => true,
        other => other.is_nested(),
    }
}

/// Reads a truth value (PostgreSQL, "Boolean Type"): any beginning of a word that is one of them only.
fn truth(text: &str) -> Result<Expr> {
    let word = text.trim().to_ascii_lowercase();
    let begins = |whole: &str| !word.is_empty() && whole.starts_with(&word);
    let value = match word.as_str() {
        "on" | "1" => true,
        "of" | "off" | "0" => false,
        _ if begins("true") || begins("yes") => true,
        _ if begins("false") || begins("no") => false,
        _ => {
            let text = format!("invalid input syntax for type boolean: \"{text}\"");
            return Err(QueryError::new(sqlstate::INVALID_TEXT, text).into_datafusion());
        }
    };
    Ok(Expr::Literal(ScalarValue::from(value), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truth_values_are_spelled_as_in_postgresql() {
        for (text, wanted) in [("t", true), (" TRUE ", true), ("ye", true), ("on", true), ("n", false), ("of", false)] {
            assert_eq!(truth(text).unwrap(), Expr::Literal(ScalarValue::from(wanted), None), "{text}");
        }
        for wrong in ["", "o", "2", "truer", "maybe"] {
            assert!(truth(wrong).is_err(), "{wrong}");
        }
    }
}
