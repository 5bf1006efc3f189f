//! View of the store that a step of a subscription reads, and the time that is `now()` in it.

use std::sync::Arc;

use datafusion::arrow::temporal_conversions::timestamp_us_to_datetime;
use datafusion::execution::session_state::SessionState;
use strongback_store::View;

use crate::running::clock::FixedNow;
use crate::table::PinnedPart;

/// What one step reads.
#[derive(Clone)]
pub(crate) struct StepView {
    pub(crate) view: View,
    pub(crate) part: PinnedPart,
    /// Value of `now()`, in microseconds since 1970 UTC; `None` for the start of the step.
    pub(crate) now_us: Option<i64>,
}

impl StepView {
    /// Sets what the planner of the step's statement reads, and what `now()` is until the guard is dropped. The view
    /// itself is pinned by the caller.
    pub(crate) fn pin(self, state: &mut SessionState) -> FixedNow {
        if let Some(now) = self.now_us.and_then(timestamp_us_to_datetime) {
            state.execution_props_mut().query_execution_start_time = Some(now.and_utc());
        }
        if self.part.rows.is_some() {
            // Several partitions would give rows in any order, and a client resumes within a step.
            state.config_mut().options_mut().execution.target_partitions = 1;
        }
        state.config_mut().set_extension(Arc::new(self.part));
        FixedNow::new(self.now_us)
    }
}
