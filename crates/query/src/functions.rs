//! Scalar functions and integers with bounds on their results, and checked casts of text.

pub(crate) mod growth;
pub(crate) mod integer;
pub(crate) mod large;
pub(crate) mod like;
pub(crate) mod pattern;
pub(crate) mod text;

use datafusion::common::Result;
use datafusion::execution::session_state::SessionState;

use crate::functions::large::LargeCalls;

/// Replaces the functions and the integer arithmetic of a session by those with bounds. Whoever evaluates expressions
/// of users calls it.
///
/// # Errors
/// If a function cannot be registered.
pub(crate) fn bound(state: &mut SessionState, large: &LargeCalls) -> Result<()> {
    growth::bound_functions(state, large)?;
    integer::check_integers(state)
}
