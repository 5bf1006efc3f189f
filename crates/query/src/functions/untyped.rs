//! Constants in quotes that PostgreSQL reads as the type beside them, where the planner takes them for texts: beside truth
//! values, in branches of CASE, and in arrays in which a value that is no text is looked up. A date beside an interval is
//! a time, intervals are compared by their lengths, and floats are rounded to the even one of two equally near integers.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{Between, BinaryExpr, Cast, Expr, ExprSchemable, Operator, ScalarUDF};

use crate::error::{QueryError, sqlstate};
use crate::functions::operator::OperatorFunction;

/// Rewrite that reads the constants. It must run before types are coerced.
#[derive(Debug)]
pub(super) struct ReadConstants;

impl FunctionRewrite for ReadConstants {
    fn name(&self) -> &str {
        "read_constants"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        match expr {
            // A date would drop the hours of an interval.
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) => {
                let of_time = |date: Box<Expr>| {
                    Box::new(Expr::Cast(Cast::new(date, DataType::Timestamp(TimeUnit::Microsecond, None))))
                };
                let (first, second) = (left.get_type(schema).ok(), right.get_type(schema).ok());
                let is = |kind: &Option<DataType>, wanted: fn(&DataType) -> bool| kind.as_ref().is_some_and(wanted);
                let (left, right, is_changed) = if is(&first, is_date) && is(&second, is_interval) {
                    (of_time(left), right, true)
                } else if is(&first, is_interval) && is(&second, is_date) {
                    (left, of_time(right), true)
                } else {
                    (left, right, false)
                };
                Ok(Transformed::new_transformed(Expr::BinaryExpr(BinaryExpr { left, op, right }), is_changed))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if compares(op) && is_span(&left, schema) && is_span(&right, schema) =>
            {
                let (left, right) = (Box::new(length(*left)), Box::new(length(*right)));
                Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
            }
            Expr::Between(Between { expr, negated, low, high })
                if [&expr, &low, &high].iter().all(|one| is_span(one, schema)) =>
            {
                let [expr, low, high] = [expr, low, high].map(|one| Box::new(length(*one)));
                Ok(Transformed::yes(Expr::Between(Between { expr, negated, low, high })))
            }
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
            Expr::Case(mut case) => {
                let branches = || case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
                let kinds = branches().filter(|then| text_of(then).is_none() && !is_null(then));
                let mut kinds = kinds.filter_map(|then| then.get_type(schema).ok());
                let Some(kind) = kinds.next().filter(|kind| !is_text(kind)) else {
                    return Ok(Transformed::no(Expr::Case(case)));
                };
                let mut is_read = false;
                let branches = case.when_then_expr.iter_mut().map(|(_, then)| then).chain(&mut case.else_expr);
                for then in branches.filter(|then| text_of(then).is_some()) {
                    let text = std::mem::take(then.as_mut());
                    **then = Expr::Cast(Cast::new(Box::new(text), kind.clone()));
                    is_read = true;
                }
                Ok(Transformed::new_transformed(Expr::Case(case), is_read))
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
            Expr::ScalarFunction(ScalarFunction { func, args })
                if func.name() == "to_timestamp"
                    && matches!(args.as_slice(), [number] if number.get_type(schema).is_ok_and(|kind| kind.is_floating())) =>
            {
                let func = Arc::new(ScalarUDF::from(OperatorFunction::TimeOfSeconds));
                Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
            }
            Expr::ScalarFunction(ScalarFunction { func, args })
                if func.name() == "to_char" && args.len() == 2 && is_span(&args[0], schema) =>
            {
                let func = Arc::new(ScalarUDF::from(OperatorFunction::IntervalFormat));
                Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
            }
            Expr::ScalarFunction(ScalarFunction { func, args })
                if func.name() == "round"
                    && matches!(args.as_slice(), [number] if number.get_type(schema).is_ok_and(|kind| kind.is_floating())) =>
            {
                let func = Arc::new(ScalarUDF::from(OperatorFunction::RoundEven));
                Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn is_date(kind: &DataType) -> bool {
    matches!(kind, DataType::Date32 | DataType::Date64)
}

fn is_interval(kind: &DataType) -> bool {
    matches!(kind, DataType::Interval(_))
}

fn is_span(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Interval(_) | DataType::Duration(_)))
}

/// Returns the length of an interval, by which intervals are compared.
fn length(span: Expr) -> Expr {
    let func = Arc::new(ScalarUDF::from(OperatorFunction::Length));
    Expr::ScalarFunction(ScalarFunction { func, args: vec![span] })
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
