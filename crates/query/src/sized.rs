//! Expressions that take memory by a number that stands in them, however little they are given: it is refused when it is
//! too large, before anything is made of it. Rows and batches are bounded elsewhere; these allocate at once.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::error::QueryError;
use crate::extent::beyond;

/// Most bytes of a value, or elements of a list, of a type that has a fixed number of them.
const FIXED_MAX: i32 = 65_536;
/// Most centroids of an approximate percentile: beyond, it is no better than an exact one.
const CENTROIDS_MAX: i64 = 10_000;
/// Functions whose second argument is the name of a type.
const CASTS: [&str; 2] = ["arrow_cast", "arrow_try_cast"];

/// Checks the expressions of a plan, before and after they are simplified.
///
/// # Errors
/// If a number in one is too large.
pub(crate) fn check(plan: &LogicalPlan) -> Result<(), QueryError> {
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                check_expression(expr).map_err(QueryError::into_datafusion)?;
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

fn check_expression(expr: &Expr) -> Result<(), QueryError> {
    match expr {
        Expr::Cast(cast) => check_type(cast.field.data_type()),
        Expr::TryCast(cast) => check_type(cast.field.data_type()),
        Expr::Literal(value, _) => check_type(&value.data_type()),
        Expr::ScalarFunction(call) if CASTS.contains(&call.name()) => match call.args.get(1) {
            Some(Expr::Literal(name, _)) => match name.try_as_str().flatten().map(str::parse::<DataType>) {
                Some(Ok(data_type)) => check_type(&data_type),
                // The function says what is wrong with it.
                _ => Ok(()),
            },
            _ => Ok(()),
        },
        Expr::AggregateFunction(call) if call.func.name().starts_with("approx_percentile") => {
            check_centroids(&call.params.args)
        }
        Expr::WindowFunction(call) if call.fun.name().starts_with("approx_percentile") => {
            check_centroids(&call.params.args)
        }
        _ => Ok(()),
    }
}

fn check_type(data_type: &DataType) -> Result<(), QueryError> {
    match data_type {
        DataType::FixedSizeBinary(bytes) if *bytes > FIXED_MAX => {
            Err(beyond("bytes of a fixed size", bytes, FIXED_MAX))
        }
        DataType::FixedSizeList(_, elements) if *elements > FIXED_MAX => {
            Err(beyond("elements of a fixed size", elements, FIXED_MAX))
        }
        DataType::FixedSizeList(field, _)
        | DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::Map(field, _) => check_type(field.data_type()),
        DataType::Struct(fields) => fields.iter().try_for_each(|field| check_type(field.data_type())),
        DataType::Dictionary(_, values) => check_type(values),
        _ => Ok(()),
    }
}

/// The values come first; what is left of the arguments, if it is a whole number, is how many centroids there may be.
fn check_centroids(arguments: &[Expr]) -> Result<(), QueryError> {
    for argument in arguments.iter().skip(1) {
        let number = match argument {
            Expr::Literal(value, _) => value.cast_to(&DataType::Int64).ok(),
            // Worked out when the plan is simplified, and looked at again.
            _ => None,
        };
        if let Some(ScalarValue::Int64(Some(number))) = number
            && number > CENTROIDS_MAX
        {
            return Err(beyond("centroids of a percentile", number, CENTROIDS_MAX));
        }
    }
    Ok(())
}
