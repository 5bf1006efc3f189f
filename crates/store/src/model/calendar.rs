//! Days and dates of the proleptic Gregorian calendar, by eras of 400 years from 0000-03-01 (Howard Hinnant,
//! "chrono-compatible low-level date algorithms").

use std::fmt;

/// Days in an era of 400 years.
const ERA_DAYS: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;
const DAY_S: i64 = 86_400;

/// Date of the proleptic Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    /// Year; 0 is the year before year 1.
    pub year: i64,
    /// Month, 1 to 12.
    pub month: i64,
    /// Day of the month, from 1.
    pub day: i64,
}

impl Date {
    /// Returns the date that lies `days` after 1970-01-01.
    pub fn of_days(days: i64) -> Date {
        let days = days + EPOCH_DAYS;
        let (era, of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Date { year: era * 400 + year_of_era + i64::from(month <= 2), month, day }
    }

    /// Returns the number of days since 1970-01-01. Returns `None` if there is no such date, or if it is too far away.
    pub fn days(self) -> Option<i64> {
        if !(1..=12).contains(&self.month) || !(1..=31).contains(&self.day) {
            return None;
        }
        let year = self.year.checked_sub(i64::from(self.month <= 2))?;
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * ((self.month + 9) % 12) + 2) / 5 + self.day - 1;
        let of_era = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
        let days = era.checked_mul(ERA_DAYS)?.checked_add(of_era)?.checked_sub(EPOCH_DAYS)?;
        (Date::of_days(days) == self).then_some(days)
    }
}

impl fmt::Display for Date {
    /// Writes `2026-11-20`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// Date and time of day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CivilTime {
    /// The date.
    pub date: Date,
    /// Hour, 0 to 23.
    pub hour: i64,
    /// Minute, 0 to 59.
    pub minute: i64,
    /// Second, 0 to 59.
    pub second: i64,
    /// Nanoseconds within the second.
    pub nanosecond: i64,
}

impl CivilTime {
    /// Returns the date and time of an instant, nanoseconds since 1970 UTC.
    pub fn of(time_ns: i64) -> CivilTime {
        let (seconds, nanosecond) = (time_ns.div_euclid(1_000_000_000), time_ns.rem_euclid(1_000_000_000));
        let (days, of_day) = (seconds.div_euclid(DAY_S), seconds.rem_euclid(DAY_S));
        let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
        CivilTime { date: Date::of_days(days), hour, minute, second, nanosecond }
    }
}

impl fmt::Display for CivilTime {
    /// Writes RFC 3339 with a resolution of seconds, without a zone: `2026-11-20T17:09:43`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}T{:02}:{:02}:{:02}", self.date, self.hour, self.minute, self.second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates_and_dates_days() {
        for (days, text) in [
            (0, "1970-01-01"),
            (20_777, "2026-11-20"),
            (11_016, "2000-02-29"),
            (-1, "1969-12-31"),
            (47_540, "2100-02-28"),
        ] {
            let date = Date::of_days(days);
            assert_eq!((date.to_string().as_str(), date.days()), (text, Some(days)));
        }
        for days in (-800_000..800_000).step_by(7) {
            assert_eq!(Date::of_days(days).days(), Some(days));
        }
    }

    #[test]
    fn dates_that_are_none_have_no_day() {
        for (year, month, day) in
            [(2023, 2, 29), (2024, 0, 1), (2024, 13, 1), (2024, 4, 31), (2024, 1, 0), (i64::MAX, 1, 1)]
        {
            assert_eq!(Date { year, month, day }.days(), None, "{year}-{month}-{day}");
        }
    }

    #[test]
    fn instants_have_civil_times_at_both_ends() {
        assert_eq!(CivilTime::of(-1).to_string(), "1969-12-31T23:59:59");
        assert_eq!(CivilTime::of(i64::MIN).to_string(), "1677-09-21T00:12:43");
        let last = CivilTime::of(i64::MAX);
        assert_eq!((last.to_string().as_str(), last.nanosecond), ("2262-04-11T23:47:16", 854_775_807));
    }
}
