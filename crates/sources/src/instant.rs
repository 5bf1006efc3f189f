//! Times as written by people and programs: nanoseconds, RFC 3339, `now-30s`.

use strongback_store::Date;
use strongback_store::text::put_time;

/// Parses a time: an integer of nanoseconds since 1970 UTC, RFC 3339, `now`, or `now` with an offset such as `now-30s`,
/// `now-1.5h`, `now+10ms`.
///
/// # Errors
/// If the text is not a time, with a message that names it and the valid forms.
pub fn parse(text: &str, now: i64) -> Result<i64, String> {
    if let Ok(ns) = text.parse::<i64>() {
        return Ok(ns);
    }
    let parsed = match text.strip_prefix("now") {
        Some("") => Some(now),
        Some(offset) => offset_ns(offset).map(|ns| now.saturating_add(ns)),
        None => rfc3339(text),
    };
    parsed.ok_or_else(|| {
        format!("{text:?} is not a time: give nanoseconds since 1970, RFC 3339 (2026-11-20T17:00:00Z) or now-30s")
    })
}

/// Parses a signed span such as `-30s` or `+1.5h`. Also accepts a `+` that a URL turned into a space.
fn offset_ns(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' | b' ' => (1.0, &text[1..]),
        _ => return None,
    };
    Some((sign * span_ns(rest)? as f64) as i64)
}

/// Parses a span such as `250ms`, `30s`, `5m`, `1.5h` or `7d`, in nanoseconds.
pub fn span_ns(text: &str) -> Option<i64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let unit = match &text[digits..] {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3_600e9,
        "d" => 86_400e9,
        _ => return None,
    };
    let ns = number * unit;
    (ns.is_finite() && ns < i64::MAX as f64).then_some(ns as i64)
}

/// Parses RFC 3339. Digits after the ninth of a fraction are ignored.
pub fn rfc3339(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = bytes.get(from..to)?;
        digits.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
    };
    let is = |at: usize, any: &[u8]| bytes.get(at).is_some_and(|b| any.contains(b));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let days = Date { year, month, day }.days()?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut at = 19;
    let mut nanos = 0;
    if is(at, b".") {
        let start = at + 1;
        at = start;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        let taken = at.min(start + 9);
        nanos = number(start, taken).filter(|_| at > start)? * 10i64.pow(9 - (taken - start) as u32);
    }
    let offset_minutes = match bytes.get(at)? {
        b'Z' | b'z' if bytes.len() == at + 1 => 0,
        // Also accept a `+` that a URL turned into a space.
        sign @ (b'+' | b'-' | b' ') if bytes.len() == at + 6 && is(at + 3, b":") => {
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            (hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let seconds = days * 86_400 + hour * 3_600 + (minute - offset_minutes) * 60 + second;
    // The first second of the range of i64 begins before the range.
    i64::try_from(i128::from(seconds) * 1_000_000_000 + i128::from(nanos)).ok()
}

/// Formats a time as RFC 3339 in UTC with nanoseconds.
pub fn format(ns: i64) -> String {
    let mut text = String::new();
    put_time(&mut text, ns);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_spelling() {
        let now = 1_000_000_000_000;
        assert_eq!(parse("-5", now), Ok(-5));
        assert_eq!(parse("now", now), Ok(now));
        assert_eq!(parse("now-30s", now), Ok(now - 30_000_000_000));
        assert_eq!(parse("now+1.5ms", now), Ok(now + 1_500_000));
        assert_eq!(parse("1970-01-01T00:00:01Z", now), Ok(1_000_000_000));
        assert_eq!(parse("1970-01-01T01:00:00.000000001+01:00", now), Ok(1));
        assert_eq!(parse("2024-02-29T12:34:56.789Z", now), Ok(1_709_210_096_789_000_000));
        for wrong in ["", "now-", "now-3", "now-3y", "2023-02-29T00:00:00Z", "2024-01-01", "2024-01-01T00:00:00", "é"]
        {
            assert!(parse(wrong, now).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for ns in [0, -1, 1_709_210_096_789_000_001, i64::MAX, i64::MIN, i64::MIN + 1_000_000_000] {
            assert_eq!(parse(&format(ns), 0), Ok(ns), "{}", format(ns));
        }
        assert_eq!(format(i64::MIN), "1677-09-21T00:12:43.145224192Z");
        assert_eq!(format(i64::MAX), "2262-04-11T23:47:16.854775807Z");
        for beyond in ["1677-09-21T00:12:43.145224191Z", "2262-04-11T23:47:16.854775808Z", "9999-12-31T23:59:59Z"] {
            assert!(parse(beyond, 0).is_err(), "{beyond}");
        }
    }
}
