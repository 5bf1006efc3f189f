//! The wall clock, shared by senders, which stamp with it, and subscribers.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time, nanoseconds since 1970 UTC.
pub(crate) fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i64)
}
