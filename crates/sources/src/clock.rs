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

/// A kernel's receive stamp in nanoseconds since 1970 UTC.
pub(crate) fn kernel_ns(stamp: TimeSpec) -> i64 {
    stamp.tv_sec().saturating_mul(1_000_000_000).saturating_add(stamp.tv_nsec())
}
