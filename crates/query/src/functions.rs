//! Functions of a session: bounds on their results, checked integers and casts of text, and floats with one NaN.

pub(crate) mod float;
pub(crate) mod growth;
pub(crate) mod integer;
pub(crate) mod large;
pub(crate) mod like;
pub(crate) mod pattern;
mod round;
pub(crate) mod text;
pub(crate) mod time;
pub(crate) mod zero;

use datafusion::arrow::array::{Array, BooleanArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::ColumnarValue;

use crate::functions::large::LargeCalls;

/// Replaces the functions and the arithmetic of a session by those with bounds, exact integers and one NaN. Whoever
/// evaluates expressions of users calls it.
///
/// # Errors
/// If a function cannot be registered.
pub(crate) fn bound(state: &mut SessionState, large: &LargeCalls) -> Result<()> {
    growth::bound_functions(state, large)?;
    integer::check_integers(state)?;
    float::keep_one_nan(state)
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
