//! The wall clock, which senders stamp by and subscribers read.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970 UTC.
pub(crate) fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i64)
}
