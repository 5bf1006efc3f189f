//! Functions of a session: bounds on their results, checked integers and casts of text, and floats with one NaN.

pub(crate) mod float;
pub(crate) mod growth;
pub(crate) mod integer;
pub(crate) mod kept;
pub(crate) mod large;
pub(crate) mod like;
pub(crate) mod operator;
pub(crate) mod part;
pub(crate) mod pattern;
mod round;
pub(crate) mod text;
pub(crate) mod time;
mod untyped;
pub(crate) mod zero;

use std::sync::Arc;

use datafusion::arrow::array::{Array, BooleanArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{ColumnarValue, Expr, LogicalPlan};

use crate::functions::large::LargeCalls;

/// Replaces the functions and the arithmetic of a session by those with bounds, exact integers and one NaN. Whoever
/// evaluates expressions of users calls it.
///
/// # Errors
/// If a function cannot be registered.
pub(crate) fn bound(state: &mut SessionState, large: &LargeCalls) -> Result<()> {
    state.register_function_rewrite(Arc::new(untyped::ReadConstants))?;
    growth::bound_functions(state, large)?;
    integer::check_integers(state)?;
    float::keep_one_nan(state)
}

/// Rewrites the expressions of a node, whose columns keep their names.
///
/// # Errors
/// If an expression cannot be rewritten.
pub(crate) fn map_named(
    node: LogicalPlan,
    mut rewrite: impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&node);
    node.map_expressions(|expr| {
        let (name, is_set) = (names.save(&expr), matches!(expr, Expr::GroupingSet(_)));
        let rewritten = rewrite(expr)?;
        Ok(if is_set { rewritten } else { rewritten.update_data(|expr| name.restore(expr)) })
    })
}

/// Returns the result of a call for one row as a constant.
fn constant_of(result: ColumnarValue) -> Result<ColumnarValue> {
    Ok(match result {
        ColumnarValue::Array(value) if value.len() == 1 => {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&value, 0)?)
        }
        other => other,
    })
}

/// Returns the nulls of values of which a filter passes some. The others count as NULL.
fn passed(nulls: Option<&NullBuffer>, filter: Option<&BooleanArray>) -> Option<NullBuffer> {
    let passed = filter.map(|filter| {
        NullBuffer::new(match filter.nulls() {
            Some(nulls) => filter.values() & nulls.inner(),
            None => filter.values().clone(),
        })
    });
    NullBuffer::union(nulls, passed.as_ref())
}
