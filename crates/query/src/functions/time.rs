//! Times as PostgreSQL has them: `to_char`, `to_date` and `to_timestamp` know the patterns of PostgreSQL.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
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
        assert_eq!(format_of("YYYY Q").unwrap_err().sqlstate, sqlstate::FEATURE_NOT_SUPPORTED);
    }
}
