//! Windows of time of a fixed length, as `date_bin` and `date_trunc` make them.

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;

use crate::sql::value::cast_time;
use crate::subscription::class::unnamed;
use crate::table::column::timestamp_type;

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;
/// A Monday, on which the weeks of `date_trunc` begin.
const MONDAY_US: i64 = 4 * DAY_US;

/// Windows of one length, side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    /// Length in microseconds, at least one.
    pub(crate) length_us: i64,
    /// Start of one of them.
    origin_us: i64,
}

impl Windows {
    /// Returns the windows of `date_bin`, or `None` if they have no fixed length.
    pub(crate) fn binned(stride: &ScalarValue, origin: Option<&ScalarValue>) -> Option<Windows> {
        let stride = stride.cast_to(&DataType::Interval(IntervalUnit::MonthDayNano)).ok()?;
        let ScalarValue::IntervalMonthDayNano(Some(stride)) = stride else { return None };
        let nanos = i64::from(stride.days).checked_mul(DAY_US)?.checked_mul(1_000)?.checked_add(stride.nanoseconds)?;
        let origin_us = match origin {
            None => 0,
            Some(origin) => match cast_time(origin, &timestamp_type()).ok()? {
                ScalarValue::TimestampMicrosecond(Some(origin), _) => origin,
                _ => return None,
            },
        };
        let is_fixed = stride.months == 0 && nanos > 0 && nanos % 1_000 == 0;
        is_fixed.then_some(Windows { length_us: nanos / 1_000, origin_us })
    }

    /// Returns the windows of `date_trunc`, or `None` if they have no fixed length.
    pub(crate) fn truncated(unit: &str) -> Option<Windows> {
        let (length_us, origin_us) = match unit.to_ascii_lowercase().as_str() {
            "microsecond" | "microseconds" => (1, 0),
            "millisecond" | "milliseconds" => (1_000, 0),
            "second" => (SECOND_US, 0),
            "minute" => (60 * SECOND_US, 0),
            "hour" => (3_600 * SECOND_US, 0),
            "day" => (DAY_US, 0),
            "week" => (7 * DAY_US, MONDAY_US),
            _ => return None,
        };
        Some(Windows { length_us, origin_us })
    }

    /// Returns the start of the window of a time.
    pub(crate) fn start_of(&self, time_us: i64) -> i64 {
        let into = (i128::from(time_us) - i128::from(self.origin_us)).rem_euclid(i128::from(self.length_us));
        i64::try_from(i128::from(time_us) - into).unwrap_or(i64::MIN)
    }

    /// Returns the start of a window that is some windows before one.
    pub(crate) fn back(&self, start_us: i64, windows: i64) -> i64 {
        start_us.saturating_sub(self.length_us.saturating_mul(windows))
    }

    /// Returns the end of a window.
    pub(crate) fn end_of(&self, start_us: i64) -> i64 {
        start_us.saturating_add(self.length_us)
    }
}

/// Returns the value of a constant.
pub(crate) fn constant(expr: &Expr) -> Option<ScalarValue> {
    match unnamed(expr) {
        Expr::Literal(value, _) => Some(value.clone()),
        Expr::Cast(cast) => constant(&cast.expr)?.cast_to(cast.field.data_type()).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_meet_at_their_ends_before_and_after_1970() {
        let quarter = Windows { length_us: 250, origin_us: 100 };
        for time in -1_000..1_000 {
            let start = quarter.start_of(time);
            assert!(start <= time && time < quarter.end_of(start) && (start - 100) % 250 == 0, "{time}: {start}");
        }
        // 2026-11-20 is a Friday.
        let friday = 1_795_132_800 * SECOND_US;
        assert_eq!(Windows::truncated("WEEK").unwrap().start_of(friday + 5), friday - 4 * DAY_US);
        assert_eq!(Windows::truncated("month"), None);
        assert_eq!(quarter.start_of(i64::MIN), i64::MIN);
        assert_eq!(quarter.end_of(i64::MAX - 3), i64::MAX);
    }

    #[test]
    fn strides_are_texts_or_intervals_of_a_fixed_length() {
        let text = |stride: &str| Windows::binned(&ScalarValue::from(stride), None).map(|windows| windows.length_us);
        assert_eq!((text("1 second"), text("2 days 1 ms")), (Some(SECOND_US), Some(2 * DAY_US + 1_000)));
        assert_eq!((text("1 month"), text("0 s"), text("-1 s"), text("soon")), (None, None, None, None));
        assert_eq!(text("10 nanoseconds"), None);
        let origin = ScalarValue::from("1970-01-01T00:00:00.5Z");
        let windows = Windows::binned(&ScalarValue::from("1 second"), Some(&origin)).unwrap();
        assert_eq!(windows.start_of(0), -500_000);
    }
}
