//! The wall clock.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

thread_local! {
    /// Value of `now()` in the statement that this thread plans, in microseconds; `None` for the current time.
    static STATEMENT_NOW_US: Cell<Option<i64>> = const { Cell::new(None) };
}

/// Fixed value of `now()` for what this thread plans, until it is dropped.
pub(crate) struct FixedNow(());

impl FixedNow {
    pub(crate) fn new(now_us: Option<i64>) -> FixedNow {
        STATEMENT_NOW_US.set(now_us);
        FixedNow(())
    }
}

impl Drop for FixedNow {
    fn drop(&mut self) {
        STATEMENT_NOW_US.set(None);
    }
}

/// Returns the value of `now()`, in microseconds since 1970 UTC. The planner evaluates it once for each statement.
pub(crate) fn statement_now_us() -> i64 {
    STATEMENT_NOW_US.get().unwrap_or_else(|| now_ns().div_euclid(1_000))
}

/// Returns the current time, in nanoseconds since 1970 UTC.
pub(crate) fn now_ns() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}
