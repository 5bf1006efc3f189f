//! Clock of the sources, as a function that tests and replay can replace.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::time::TimeSpec;

/// Function that returns the current time, in nanoseconds since 1970 UTC.
pub type Now = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Returns the system's wall clock.
pub fn wall_clock() -> Now {
    Arc::new(|| {
        let now = SystemTime::now();
        match now.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |n| -n),
        }
    })
}

/// Timestamps before 2000-01-01, in nanoseconds since 1970 UTC, come from a clock that was never set since power-on.
pub const NEVER_SET_BEFORE_NS: i64 = 946_684_800_000_000_000;
/// A clock a year or more ahead was not set either.
const NEVER_SET_AHEAD_NS: i64 = 366 * 86_400_000_000_000;

/// Reports whether a timestamp comes from a clock that was never set, judged by its receive time. Returns `false` if
/// this machine's own clock is not set.
pub fn is_never_set(stamp: i64, receive_time: i64) -> bool {
    let is_off = stamp < NEVER_SET_BEFORE_NS || stamp.saturating_sub(receive_time) > NEVER_SET_AHEAD_NS;
    is_off && receive_time >= NEVER_SET_BEFORE_NS
}

/// Converts a kernel receive timestamp to nanoseconds since 1970 UTC.
pub(crate) fn kernel_ns(stamp: TimeSpec) -> i64 {
    stamp.tv_sec().saturating_mul(1_000_000_000).saturating_add(stamp.tv_nsec())
}
