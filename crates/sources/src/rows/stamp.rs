//! Timestamps in text files: RFC 3339, or a decimal number in a given unit.

use crate::instant;

/// Unit of a numeric time since 1970 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
}

impl TimeUnit {
    /// All units.
    pub const ALL: [TimeUnit; 4] = [TimeUnit::Ns, TimeUnit::Us, TimeUnit::Ms, TimeUnit::S];

    /// Returns the abbreviation: `ns`, `us`, `ms` or `s`.
    pub fn name(self) -> &'static str {
        match self {
            TimeUnit::Ns => "ns",
            TimeUnit::Us => "us",
            TimeUnit::Ms => "ms",
            TimeUnit::S => "s",
        }
    }

    /// Returns the number of decimal digits from this unit down to nanoseconds.
    fn digits(self) -> usize {
        match self {
            TimeUnit::Ns => 0,
            TimeUnit::Us => 3,
            TimeUnit::Ms => 6,
            TimeUnit::S => 9,
        }
    }
}

/// Returns `Some` if a column of this name holds the time, with the unit named in its suffix.
pub fn time_column(name: &str) -> Option<Option<TimeUnit>> {
    let name = name.trim().to_ascii_lowercase();
    let (stem, unit) = match name.rsplit_once('_') {
        Some((stem, suffix)) => match TimeUnit::ALL.into_iter().find(|unit| unit.name() == suffix) {
            Some(unit) => (stem, Some(unit)),
            None => (name.as_str(), None),
        },
        None => (name.as_str(), None),
    };
    matches!(stem, "time" | "timestamp" | "unix_time" | "epoch" | "datetime" | "ts").then_some(unit)
}

/// Parses a time in nanoseconds since 1970 UTC, exactly. Fractions of a nanosecond are rounded down.
///
/// # Errors
/// If the text is not a time, with a message that names it and the valid forms.
pub fn parse(text: &str, unit: Option<TimeUnit>) -> Result<i64, String> {
    let text = text.trim();
    let shown: String = text.chars().take(40).collect();
    if text.is_empty() {
        return Err("there is no time".to_owned());
    }
    match (instant::rfc3339(text), number(text, unit.unwrap_or(TimeUnit::Ns))) {
        (Some(ns), _) => Ok(ns),
        (None, Err(true)) => Err(format!("{shown:?} is outside 1677 to 2262")),
        (None, Err(false)) => Err(format!("{shown:?} is not a time: RFC 3339 (2026-11-20T17:00:00Z) or a number is")),
        (None, Ok(_)) if unit.is_none() => {
            Err(format!("{shown:?} is a number without a unit: name it, as in time_ns, or by --time-unit"))
        }
        (None, Ok(ns)) => Ok(ns),
    }
}

/// Parses a decimal number in a unit, in nanoseconds. The error is `true` if the number is too large.
fn number(text: &str, unit: TimeUnit) -> Result<i64, bool> {
    let (negative, digits) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return Err(false);
    }
    let kept = fraction.len().min(unit.digits());
    let mut magnitude: i128 = 0;
    let zeros = std::iter::repeat_n(b'0', unit.digits() - kept);
    for digit in whole.bytes().chain(fraction.bytes().take(kept)).chain(zeros) {
        magnitude = magnitude * 10 + i128::from(digit - b'0');
        if magnitude > i128::from(i64::MAX) + 1 {
            return Err(true);
        }
    }
    // Round down, also before 1970.
    let rest = fraction.bytes().skip(kept).any(|digit| digit != b'0');
    let ns = if negative { -magnitude - i128::from(rest) } else { magnitude };
    i64::try_from(ns).map_err(|_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_in_every_unit() {
        for (text, unit, want) in [
            ("1635188455.029900", TimeUnit::S, 1_635_188_455_029_900_000),
            ("1635188455.0299001239", TimeUnit::S, 1_635_188_455_029_900_123),
            ("1635188455", TimeUnit::S, 1_635_188_455_000_000_000),
            ("1635188455029.9", TimeUnit::Ms, 1_635_188_455_029_900_000),
            ("-0.0000000001", TimeUnit::S, -1),
            ("-1.5", TimeUnit::Us, -1_500),
            ("9223372036854775807", TimeUnit::Ns, i64::MAX),
            ("-9223372036854775808", TimeUnit::Ns, i64::MIN),
            ("+7.", TimeUnit::Ns, 7),
        ] {
            assert_eq!(parse(text, Some(unit)), Ok(want), "{text} {unit:?}");
        }
    }

    #[test]
    fn what_is_no_time_is_said() {
        for (text, unit, part) in [
            ("", None, "no time"),
            ("5", None, "without a unit"),
            ("noon", None, "is not a time"),
            ("noon", Some(TimeUnit::S), "is not a time"),
            ("1e9", Some(TimeUnit::S), "is not a time"),
            ("-", Some(TimeUnit::S), "is not a time"),
            ("é", Some(TimeUnit::S), "is not a time"),
            ("9223372036854775808", Some(TimeUnit::Ns), "outside 1677"),
            ("-9223372036854775808.1", Some(TimeUnit::Ns), "outside 1677"),
            ("99999999999999999999999999999999999999999999", Some(TimeUnit::S), "outside 1677"),
        ] {
            let error = parse(text, unit).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(parse("1970-01-01T00:00:00.000000001Z", None), Ok(1));
    }

    #[test]
    fn columns_of_time_name_their_unit() {
        for (name, want) in [
            ("time", Some(None)),
            ("Time_NS", Some(Some(TimeUnit::Ns))),
            ("unix_time_s", Some(Some(TimeUnit::S))),
            ("timestamp", Some(None)),
            ("ts_us", Some(Some(TimeUnit::Us))),
            ("time_of_day", None),
            ("uptime_s", None),
            ("rpm", None),
        ] {
            assert_eq!(time_column(name), want, "{name}");
        }
    }
}
