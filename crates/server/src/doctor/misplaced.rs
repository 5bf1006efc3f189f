//! Times in a wrong unit: seconds, milliseconds or microseconds that were taken for nanoseconds lie in the first weeks
//! of 1970.

use std::ops::Range;

/// Span of times that no source means, in nanoseconds since 1970 UTC: 50 days. Microseconds until 2100 lie in it.
pub(super) const SPAN: Range<i64> = 0..50 * 86_400_000_000_000;
/// Plausible times, in nanoseconds since 1970 UTC: 2000 to 2100.
const PLAUSIBLE: Range<i64> = 946_684_800_000_000_000..4_102_444_800_000_000_000;
/// Values of `precision`, with their nanoseconds.
const UNITS: [(&str, i64); 3] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];

/// Returns the unit in which `time` is plausible, as a value of `precision`, if nanoseconds are not.
pub(super) fn unit_of(time: i64) -> Option<&'static str> {
    let is_in = |(_, ns): &&(&str, i64)| time.checked_mul(*ns).is_some_and(|time| PLAUSIBLE.contains(&time));
    UNITS.iter().find(is_in).map(|(unit, _)| *unit).filter(|_| SPAN.contains(&time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_that_in_which_a_time_is_plausible() {
        for (unit, time) in [("s", 1_780_000_000), ("ms", 1_780_000_000_123), ("us", 1_780_000_000_123_456)] {
            assert_eq!(unit_of(time), Some(unit), "{time}");
        }
        for time in [0, 1_000, 1_780_000_000_123_456_789, -1_780_000_000, i64::MAX, i64::MIN] {
            assert_eq!(unit_of(time), None, "{time}");
        }
        // The last microsecond of 2099.
        assert_eq!(unit_of(4_102_444_799_999_999), Some("us"));
    }
}
