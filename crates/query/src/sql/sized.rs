//! Rejects expressions that allocate memory according to a number in them, regardless of their input, if that number is
//! too large. Rows and batches are limited elsewhere; these expressions allocate at once.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::error::QueryError;
use crate::sql::extent::beyond;

/// Maximum size of a value of a fixed-size type, in bytes.
const FIXED_BYTES_MAX: usize = 65_536;
/// Overhead of a variable-size value, in bytes.
const OFFSET_BYTES: usize = 16;
/// Maximum centroids of an approximate percentile. With more, it has no advantage over an exact one.
const CENTROIDS_MAX: i64 = 10_000;
/// Functions whose second argument is a type name.
const CASTS: [&str; 2] = ["arrow_cast", "arrow_try_cast"];

/// Checks the expressions of a plan, before and after they are simplified.
///
/// # Errors
/// If a number in an expression is too large.
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
                // The function itself reports the error.
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
    let bytes = fixed_bytes(data_type);
    if bytes > FIXED_BYTES_MAX { Err(beyond("bytes of a fixed size", bytes, FIXED_BYTES_MAX)) } else { Ok(()) }
}

/// Returns the bytes that a value of a type takes even if it is null, because each of a fixed number of elements takes
/// its place.
pub(crate) fn fixed_bytes(data_type: &DataType) -> usize {
    match data_type {
        DataType::FixedSizeBinary(bytes) => usize::try_from(*bytes).unwrap_or(0),
        DataType::FixedSizeList(field, elements) => {
            let elements = usize::try_from(*elements).unwrap_or(0);
            elements.saturating_mul(fixed_bytes(field.data_type()).max(1))
        }
        // For lists of variable length, a null has no elements, but each existing element takes its full size.
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::Map(field, _) => fixed_bytes(field.data_type()).max(OFFSET_BYTES),
        DataType::Struct(fields) => {
            fields.iter().map(|field| fixed_bytes(field.data_type())).fold(0, usize::saturating_add)
        }
        DataType::Dictionary(_, values) => fixed_bytes(values),
        DataType::RunEndEncoded(_, values) => fixed_bytes(values.data_type()),
        DataType::Union(fields, _) => {
            fields.iter().map(|(_, field)| fixed_bytes(field.data_type())).fold(0, usize::saturating_add)
        }
        other => other.primitive_width().unwrap_or(OFFSET_BYTES),
    }
}

/// Checks the arguments of a percentile. The values come first; any later integer is the maximum number of centroids.
fn check_centroids(arguments: &[Expr]) -> Result<(), QueryError> {
    for argument in arguments.iter().skip(1) {
        let number = match argument {
            Expr::Literal(value, _) => value.cast_to(&DataType::Int64).ok(),
            // Evaluated when the plan is simplified, and checked again after that.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_size_counts_what_its_elements_take() {
        let check = |name: &str| check_type(&name.parse::<DataType>().unwrap()).is_ok();
        assert!(check("FixedSizeList(8192, Int64)") && !check("FixedSizeList(8193, Int64)"));
        assert!(check("FixedSizeBinary(65536)") && !check("List(FixedSizeBinary(65537))"));
        assert!(check("FixedSizeList(100, FixedSizeList(80, Int64))"));
        assert!(!check("FixedSizeList(65536, FixedSizeList(65536, FixedSizeList(65536, Int64)))"));
        assert!(!check("FixedSizeList(65537, Null)"));
        let name = "Struct(\"a\": FixedSizeList(5000, Int64), \"b\": FixedSizeList(5000, Int64))";
        assert!(!check(name));
    }
}
