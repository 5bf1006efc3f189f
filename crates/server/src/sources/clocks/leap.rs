//! Events for leaps of this machine's clock.

use std::time::Duration;

use strongback_query::{EventOrigin, EventRow};
use strongback_sources::instant;
use strongback_store::ClockLeap;

use crate::sources::expectation::in_words;

/// Returns the event of a leap noticed at `now`. No data is dropped by age for `confirm_s` seconds after it.
pub fn event(leap: ClockLeap, confirm_s: u64, now: i64) -> EventRow {
    let by = in_words(Duration::from_nanos(leap.to.abs_diff(leap.from)));
    let direction = if leap.to >= leap.from { "ahead" } else { "back" };
    EventRow {
        time_ns: now,
        level: "warning".to_owned(),
        source: "strongback".to_owned(),
        origin: EventOrigin::Server,
        text: format!(
            "this machine's clock leapt {by} {direction}, from {} to {}: no data is dropped by its age before the clock \
             went on for {}",
            instant::format(leap.from),
            instant::format(leap.to),
            in_words(Duration::from_secs(confirm_s)),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leap_says_from_where_to_where() {
        let to = 1_790_000_000_000_000_000;
        let told = event(ClockLeap { from: to + 90_000_000_000, to }, 3_600, to);
        assert!(
            told.text.contains("back, from 2026-09-21T") && told.text.contains("no data is dropped"),
            "{}",
            told.text
        );
        for (from, to) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (0, to)] {
            assert_eq!(event(ClockLeap { from, to }, 0, to).level, "warning");
        }
    }
}
