//! The only place of the server that reads the wall clock, and the monotonic clock beside it.
//!
//! The age of received data is measured by the wall clock, because that clock stamps it; [`Leaps`] tells whether the
//! clock was set in between.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Returns the wall clock in nanoseconds since 1970 UTC.
pub fn now_ns() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}

/// Returns the time since the machine was started, including time asleep.
pub fn steady() -> Duration {
    let since = clock_gettime(ClockId::Boottime);
    Duration::new(since.tv_sec.try_into().unwrap_or(0), since.tv_nsec.try_into().unwrap_or(0))
}

/// Returns both clocks at one instant.
pub fn both() -> (i64, Duration) {
    let mut steady_before = steady();
    loop {
        let now = now_ns();
        let steady = steady();
        // Read again if the thread was suspended between the two readings.
        if steady.saturating_sub(steady_before) < TOGETHER {
            return (now, steady);
        }
        steady_before = steady;
    }
}

/// Max time between two readings that count as one instant.
const TOGETHER: Duration = Duration::from_millis(5);
/// Min difference between the clocks that is a leap, in nanoseconds: 0.2 s.
pub const LEAP_NS: i64 = 200_000_000;

/// A detector of leaps of the wall clock.
#[derive(Debug, Default)]
pub struct Leaps {
    looked: Option<(i64, Duration)>,
}

impl Leaps {
    /// Returns by how many nanoseconds the wall clock was set since the last call, negative for backwards, or `None`.
    pub fn look(&mut self, (now, steady): (i64, Duration)) -> Option<i64> {
        let (then, steady_then) = self.looked.replace((now, steady))?;
        let passed = i64::try_from(steady.saturating_sub(steady_then).as_nanos()).unwrap_or(i64::MAX);
        let leap = now.saturating_sub(then).saturating_sub(passed);
        (leap.saturating_abs() >= LEAP_NS).then_some(leap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leap_is_what_the_clocks_differ_by() {
        let mut leaps = Leaps::default();
        let s = 1_000_000_000;
        let mut look = |now_s: i64, steady_ms: u64| leaps.look((now_s * s, Duration::from_millis(steady_ms)));
        assert_eq!(look(100, 5_000), None);
        assert_eq!(look(101, 6_100), None);
        assert_eq!(look(7_301, 7_100), Some(7_199 * s));
        assert_eq!(look(102, 8_100), Some(-7_200 * s));
        assert_eq!(look(103, 9_100), None);
        assert_eq!(leaps.look((i64::MAX, Duration::ZERO)), Some(i64::MAX - 103 * s));
        assert_eq!(leaps.look((i64::MIN, Duration::MAX)), Some(i64::MIN));
        let (now, steady) = both();
        assert!(now > 0 && steady > Duration::ZERO);
    }
}
