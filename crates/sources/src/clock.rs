//! Where sources read the time: a function, so that tests and replay own it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::time::TimeSpec;

/// The time now, nanoseconds since 1970 UTC.
pub type Now = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The system's wall clock.
pub fn wall_clock() -> Now {
    Arc::new(|| {
        let now = SystemTime::now();
        match now.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |n| -n),
        }
    })
}

/// Stamps before 2000-01-01, nanoseconds since 1970 UTC, are of a clock that runs since it was switched on and was never
/// set.
pub const NEVER_SET_BEFORE_NS: i64 = 946_684_800_000_000_000;
/// Neither was a clock that is a year and more ahead.
const NEVER_SET_AHEAD_NS: i64 = 366 * 86_400_000_000_000;

/// Whether a stamp is of a clock that was never set, going by when it was received. Where this machine's own clock is not
/// set, nothing can be said.
pub fn is_never_set(stamp: i64, receive_time: i64) -> bool {
    let is_off = stamp < NEVER_SET_BEFORE_NS || stamp.saturating_sub(receive_time) > NEVER_SET_AHEAD_NS;
    is_off && receive_time >= NEVER_SET_BEFORE_NS
}

/// A kernel's receive stamp in nanoseconds since 1970 UTC.
pub(crate) fn kernel_ns(stamp: TimeSpec) -> i64 {
    stamp.tv_sec().saturating_mul(1_000_000_000).saturating_add(stamp.tv_nsec())
}
