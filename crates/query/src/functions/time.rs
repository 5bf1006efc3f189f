//! Times as PostgreSQL has them: `to_char`, `to_date` and `to_timestamp` know the patterns of PostgreSQL.

use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;

use crate::error::{QueryError, sqlstate};

/// Time zone of every time column.
pub(crate) const UTC: &str = "+00:00";

/// Returns the type of `timestamptz`.
pub(crate) fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
}

/// Patterns of PostgreSQL, longest first, and what stands for them in the formats of `chrono`.
const PATTERNS: [(&str, &str); 30] = [
    ("HH24", "%H"),
    ("HH12", "%I"),
    ("YYYY", "%Y"),
    ("IYYY", "%G"),
    ("MONTH", "%B"),
    ("Month", "%B"),
    ("month", "%B"),
    ("MON", "%b"),
    ("Mon", "%b"),
    ("mon", "%b"),
    ("DDD", "%j"),
    ("DAY", "%A"),
    ("Day", "%A"),
    ("day", "%A"),
    ("HH", "%I"),
    ("MI", "%M"),
    ("SS", "%S"),
    ("MS", "%3f"),
    ("US", "%6f"),
    ("YY", "%y"),
    ("MM", "%m"),
    ("DD", "%d"),
    ("DY", "%a"),
    ("Dy", "%a"),
    ("dy", "%a"),
    ("IW", "%V"),
    ("ID", "%u"),
    ("AM", "%p"),
    ("PM", "%p"),
    ("OF", "%:z"),
];

/// Functions whose second argument is a pattern.
const PATTERNED: [&str; 3] = ["to_char", "to_date", "to_timestamp"];

/// Reports whether an expression may be one that [`as_in_postgres`] changes or refuses.
pub(crate) fn is_of_postgres(expr: &Expr) -> bool {
    let is_it = |name: &str| name == "generate_series" || PATTERNED.contains(&name);
    matches!(expr, Expr::ScalarFunction(call) if is_it(call.func.name()))
}

/// Returns an expression as PostgreSQL means it, or `None` if it is already.
///
/// # Errors
/// If it means something else here and cannot be replaced.
pub(crate) fn as_in_postgres(expr: &Expr) -> Result<Option<Expr>> {
    match expr {
        Expr::ScalarFunction(call) if call.func.name() == "generate_series" => {
            let text = "generate_series makes rows, and is not supported in an expression";
            let error = QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text);
            Err(error.with_hint("Write FROM generate_series(…), or range(…) for a list.").into_datafusion())
        }
        Expr::ScalarFunction(call) if PATTERNED.contains(&call.func.name()) => {
            let [time, Expr::Literal(format, metadata)] = call.args.as_slice() else { return Ok(None) };
            let Some(Some(text)) = format.try_as_str() else { return Ok(None) };
            if text.contains('%') {
                return Ok(None);
            }
            let format = ScalarValue::from(format_of(text).map_err(QueryError::into_datafusion)?);
            let args = vec![time.clone(), Expr::Literal(format, metadata.clone())];
            Ok(Some(Expr::ScalarFunction(ScalarFunction { func: call.func.clone(), args })))
        }
        _ => Ok(None),
    }
}

/// Returns the format of `chrono` for patterns of PostgreSQL. Text in double quotes stays as it is.
fn format_of(patterns: &str) -> std::result::Result<String, QueryError> {
    let (mut format, mut rest) = (String::new(), patterns);
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let (quoted, behind) = rest[1..].split_once('"').unwrap_or((&rest[1..], ""));
            format.push_str(quoted);
            rest = behind;
        } else if let Some((pattern, of_chrono)) = PATTERNS.iter().find(|(pattern, _)| starts_with(rest, pattern)) {
            format.push_str(of_chrono);
            rest = &rest[pattern.len()..];
        } else if first.is_alphabetic() {
            let text = format!("the pattern \"{rest}\" of a time is not supported");
            let hint = "Write text in double quotes, or a format with %, such as '%H:%M:%S'.";
            return Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text).with_hint(hint));
        } else {
            format.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    Ok(format)
}

/// Nanoseconds of a day.
const DAY_NS: i64 = 86_400_000_000_000;

/// Returns an interval whose time of day is shorter than a day.
pub(crate) fn with_days(interval: IntervalMonthDayNano) -> IntervalMonthDayNano {
    let days = interval.days.saturating_add((interval.nanoseconds / DAY_NS) as i32);
    IntervalMonthDayNano::new(interval.months, days, interval.nanoseconds % DAY_NS)
}

/// Returns the length of an interval with which PostgreSQL compares it, in nanoseconds: a month has 30 days.
pub(crate) fn length_ns(interval: IntervalMonthDayNano) -> i64 {
    let days = i64::from(interval.months) * 30 + i64::from(interval.days);
    days.saturating_mul(DAY_NS).saturating_add(interval.nanoseconds)
}

/// Returns an interval by patterns of PostgreSQL, each part with its sign, as `to_char(interval, text)` does.
///
/// # Errors
/// If intervals have no such pattern.
pub(crate) fn interval_as(interval: IntervalMonthDayNano, patterns: &str) -> std::result::Result<String, QueryError> {
    let format = format_of(patterns)?;
    let (months, days, ns) = (i64::from(interval.months), i64::from(interval.days), interval.nanoseconds);
    let hours = ns / 3_600_000_000_000;
    let (mut written, mut rest) = (String::new(), format.as_str());
    while let Some(first) = rest.chars().next() {
        let code =
            ["%H", "%I", "%M", "%S", "%3f", "%6f", "%d", "%m", "%Y"].into_iter().find(|code| rest.starts_with(code));
        let (number, width) = match code {
            Some("%H") => (hours, 2),
            Some("%I") => (if hours % 12 == 0 { 12 } else { hours % 12 }, 2),
            Some("%M") => (ns / 60_000_000_000 % 60, 2),
            Some("%S") => (ns / 1_000_000_000 % 60, 2),
            Some("%3f") => (ns / 1_000_000 % 1_000, 3),
            Some("%6f") => (ns / 1_000 % 1_000_000, 6),
            Some("%d") => (days, 2),
            Some("%m") => (months % 12, 2),
            Some("%Y") => (months / 12, 4),
            _ if first == '%' => {
                let text = format!("the patterns \"{patterns}\" are not supported for an interval");
                let hint = "Intervals have YYYY, MM, DD, HH24, HH12, MI, SS, MS and US.";
                return Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text).with_hint(hint));
            }
            _ => {
                written.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            }
        };
        let sign = if number < 0 { "-" } else { "" };
        written.push_str(&format!("{sign}{:0width$}", number.unsigned_abs()));
        rest = &rest[code.map_or(1, str::len)..];
    }
    Ok(written)
}

/// Numbers have patterns in either case; words are written as the pattern is.
fn starts_with(text: &str, pattern: &str) -> bool {
    let is_word = matches!(pattern.to_ascii_uppercase().as_str(), "MONTH" | "MON" | "DAY" | "DY");
    text.get(..pattern.len())
        .is_some_and(|start| if is_word { start == pattern } else { start.eq_ignore_ascii_case(pattern) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_postgres_become_formats() {
        for (patterns, format) in [
            ("HH24:MI:SS", "%H:%M:%S"),
            ("yyyy-mm-dd hh24:mi:ss.us", "%Y-%m-%d %H:%M:%S.%6f"),
            ("Dy DD Mon YYYY, HH12 AM", "%a %d %b %Y, %I %p"),
            ("\"T\"HH24 \"100\"", "T%H 100"),
            ("", ""),
        ] {
            assert_eq!(format_of(patterns).unwrap(), format, "{patterns}");
        }
        let interval = IntervalMonthDayNano::new(14, 3, 27 * 3_600_000_000_000 + 59_980_000_000);
        for (patterns, written) in [
            ("HH24:MI:SS", "27:00:59"),
            ("HH12:MI:SS.MS", "03:00:59.980"),
            ("YYYY-MM-DD \"T\"US", "0001-02-03 T980000"),
        ] {
            assert_eq!(interval_as(interval, patterns).unwrap(), written, "{patterns}");
        }
        let negative = IntervalMonthDayNano::new(0, 0, -5_400_000_000_000);
        assert_eq!(interval_as(negative, "HH24:MI").unwrap(), "-01:-30");
        assert_eq!(interval_as(negative, "Day").unwrap_err().sqlstate, sqlstate::FEATURE_NOT_SUPPORTED);
        assert_eq!(format_of("YYYY Q").unwrap_err().sqlstate, sqlstate::FEATURE_NOT_SUPPORTED);
    }
}
