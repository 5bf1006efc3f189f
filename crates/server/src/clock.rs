//! The one place of the server that reads the wall clock, and the clock beside it that nobody sets.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since 1970 UTC.
pub fn now_ns() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}

/// Time since the machine was started, also what it slept.
pub fn steady() -> Duration {
    let since = clock_gettime(ClockId::Boottime);
    Duration::new(since.tv_sec.try_into().unwrap_or(0), since.tv_nsec.try_into().unwrap_or(0))
}
