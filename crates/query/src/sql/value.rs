//! Constants that look valid and have no value: numbers beyond their type, and time zones that do not exist.
//!
//! Arrow reads `1e400` as infinity, takes displacements of up to a day, and does not look at the name of a time zone
//! before it converts text with it.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::time::Duration;

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::compute::kernels::cast_utils::string_to_datetime;
use datafusion::arrow::datatypes;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{CastKind, DataType, Expr, Statement, TypedString, Value, ValueWithSpan};

use crate::error::{QueryError, sqlstate};
use crate::sql::walk::{Step, Visitor, walk};

/// Maximum hours of a displacement from UTC.
const DISPLACEMENT_HOURS_MAX: u32 = 15;

/// Checks the numbers, times and names of time zones in a statement. The names get their exact spelling.
///
/// # Errors
/// If a number is out of range, or there is no such time zone.
pub(crate) fn check(statement: &mut Statement) -> Result<(), QueryError> {
    walk(statement, &mut Constants)
}

struct Constants;

impl Visitor for Constants {
    fn expr(&mut self, expr: &mut Expr) -> Step {
        let checked = match expr {
            Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) => {
                let digits = text.replace('_', "");
                // Text that is not a number is left to the planner.
                digits.parse().map_or(Ok(()), |number| check_float(text, number, "double precision"))
            }
            Expr::AtTimeZone { time_zone, .. } => match time_zone.as_mut() {
                Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(name), .. }) => {
                    zone(name).map(|exact| *name = exact)
                }
                _ => Ok(()),
            },
            Expr::TypedString(TypedString { data_type: DataType::Timestamp(..), value, .. }) => check_time(value),
            Expr::Cast {
                expr,
                data_type: DataType::Timestamp(..),
                kind: CastKind::Cast | CastKind::DoubleColon,
                ..
            } => match expr.as_mut() {
                Expr::Value(value) => check_time(value),
                _ => Ok(()),
            },
            _ => Ok(()),
        };
        match checked {
            Err(error) => ControlFlow::Break(error),
            Ok(()) => ControlFlow::Continue(()),
        }
    }
}

/// Checks a constant that is cast to a time, and replaces it by what Arrow is to read.
fn check_time(value: &mut ValueWithSpan) -> Result<(), QueryError> {
    if let Value::SingleQuotedString(text) = &mut value.value
        && let Cow::Owned(read) = time_text(text)?
    {
        *text = read;
    }
    Ok(())
}

/// Checks that a float read from text is the number that the text states, and not infinity or 0 in its place.
///
/// # Errors
/// If the number is out of the range of its type, whose SQL name is `kind`.
pub(crate) fn check_float(text: &str, number: f64, kind: &str) -> Result<(), QueryError> {
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let is_beyond = if number.is_infinite() {
        mantissa.bytes().any(|byte| byte.is_ascii_digit())
    } else {
        number == 0.0 && mantissa.bytes().any(|byte| (b'1'..=b'9').contains(&byte))
    };
    if is_beyond {
        let text = format!("\"{text}\" is out of range for type {kind}");
        return Err(QueryError::new(sqlstate::NUMERIC_OUT_OF_RANGE, text));
    }
    Ok(())
}

/// Returns the exact spelling of a time zone: a name, matched case-insensitively, or a displacement in minutes.
///
/// # Errors
/// If there is no such time zone.
pub(crate) fn zone(name: &str) -> Result<String, QueryError> {
    let unknown = || QueryError::new(sqlstate::INVALID_PARAMETER, format!("time zone \"{name}\" not recognized"));
    match Displacement::parse(name) {
        Some(Ok(displacement)) => return displacement.in_minutes().ok_or_else(unknown),
        Some(Err(OutOfRange)) => return Err(unknown()),
        None => {}
    }
    let spellings = [name.to_owned(), name.to_uppercase(), capitalised(name)];
    spellings.into_iter().find(|spelling| spelling.parse::<Tz>().is_ok()).ok_or_else(unknown)
}

/// Returns a name with a capital at the start of each of its words.
fn capitalised(name: &str) -> String {
    let mut is_start = true;
    let letter = |c: char| {
        let letter = if is_start { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
        is_start = !c.is_ascii_alphabetic();
        letter
    };
    name.chars().map(letter).collect()
}

/// Returns a time as text in a form that Arrow reads as PostgreSQL does. Text that is no time is returned unchanged.
///
/// # Errors
/// If its time zone does not exist, or its displacement is out of range.
pub(crate) fn time_text(text: &str) -> Result<Cow<'_, str>, QueryError> {
    let unchanged = Ok(Cow::Borrowed(text));
    match text.trim() {
        word if word.eq_ignore_ascii_case("epoch") => return Ok(Cow::Owned("1970-01-01 00:00:00".to_owned())),
        word if word.trim_start_matches('-').eq_ignore_ascii_case("infinity") => {
            let text = format!("the time \"{word}\" is not supported: every time has an end");
            return Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text));
        }
        _ => {}
    }
    let Some((b'T' | b't' | b' ', rest)) = text.as_bytes().get(10).zip(text.get(11..)) else { return unchanged };
    let zone_at = rest.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.'));
    let (clock, zone_text) = rest.split_at(zone_at.unwrap_or(rest.len()));
    if is_without_seconds(clock) {
        let complete = format!("{}{clock}:00{zone_text}", &text[..11]);
        return Ok(Cow::Owned(time_text(&complete)?.into_owned()));
    }
    // The date of a time zone is its midnight.
    if clock.is_empty() && Displacement::parse(zone_text).is_some() {
        return Ok(Cow::Owned(time_text(&format!("{} 00:00:00{zone_text}", &text[..10]))?.into_owned()));
    }
    let Some(at) = zone_at.filter(|at| *at > 0) else { return unchanged };
    let (local, written) = (&text[..11 + at], rest[at..].trim());
    if written.is_empty() || written.eq_ignore_ascii_case("z") {
        return unchanged;
    }
    match Displacement::parse(written) {
        Some(Err(OutOfRange)) => {
            let text = format!("time zone displacement out of range: \"{text}\"");
            Err(QueryError::new(sqlstate::INVALID_DISPLACEMENT, text))
        }
        Some(Ok(displacement)) => Ok(match displacement.in_minutes() {
            Some(minutes) if minutes == rest[at..] => Cow::Borrowed(text),
            Some(minutes) => Cow::Owned(format!("{local}{minutes}")),
            None => displacement.applied(local).map_or(Cow::Borrowed(text), Cow::Owned),
        }),
        None => {
            let exact = zone(written)?;
            Ok(if exact == written { Cow::Borrowed(text) } else { Cow::Owned(format!("{local} {exact}")) })
        }
    }
}

/// Reports whether a time of day is only hours and minutes.
fn is_without_seconds(clock: &str) -> bool {
    matches!(clock.as_bytes(), [a, b, b':', c, d] if [a, b, c, d].iter().all(|digit| digit.is_ascii_digit()))
}

/// Casts a constant to a time type. Text is checked as by [`time_text`].
///
/// # Errors
/// If the text is wrong as [`time_text`] says, or is no time.
pub(crate) fn cast_time(value: &ScalarValue, kind: &datatypes::DataType) -> Result<ScalarValue, DataFusionError> {
    match value.try_as_str().flatten() {
        Some(text) => ScalarValue::from(&*time_text(text).map_err(QueryError::into_datafusion)?).cast_to(kind),
        None => value.cast_to(kind),
    }
}

/// Displacement of local time from UTC.
struct Displacement {
    is_west: bool,
    hours: u32,
    minutes: u32,
    seconds: u32,
}

/// Error of a displacement beyond the hours, minutes and seconds that one can have.
struct OutOfRange;

impl Displacement {
    /// Parses `+2`, `-0230`, `+02:30` or `+02:30:15`. Returns `None` for text in another form.
    fn parse(text: &str) -> Option<Result<Displacement, OutOfRange>> {
        let is_west = text.starts_with('-');
        let digits = text.strip_prefix(['+', '-'])?;
        let parts: Vec<&str> = match digits.len() {
            _ if !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b':') => return None,
            _ if digits.contains(':') => digits.split(':').collect(),
            0..=2 => vec![digits],
            3 | 4 => vec![&digits[..digits.len() - 2], &digits[digits.len() - 2..]],
            5 | 6 => vec![
                &digits[..digits.len() - 4],
                &digits[digits.len() - 4..digits.len() - 2],
                &digits[digits.len() - 2..],
            ],
            _ => return None,
        };
        if parts.len() > 3 || parts.iter().any(|part| part.is_empty() || part.len() > 2) {
            return None;
        }
        let part = |at: usize| parts.get(at).map_or(Some(0), |part| part.parse::<u32>().ok());
        let (hours, minutes, seconds) = (part(0)?, part(1)?, part(2)?);
        if hours > DISPLACEMENT_HOURS_MAX || minutes > 59 || seconds > 59 {
            return Some(Err(OutOfRange));
        }
        Some(Ok(Displacement { is_west, hours, minutes, seconds }))
    }

    /// Returns it as `+02:30`, or `None` if it has seconds.
    fn in_minutes(&self) -> Option<String> {
        let sign = if self.is_west { '-' } else { '+' };
        (self.seconds == 0).then(|| format!("{sign}{:02}:{:02}", self.hours, self.minutes))
    }

    /// Returns a local time in UTC, or `None` if the text is no time.
    fn applied(&self, local: &str) -> Option<String> {
        let local = string_to_datetime(&"+00:00".parse::<Tz>().ok()?, local).ok()?;
        let by = Duration::from_secs(u64::from(self.hours * 3_600 + self.minutes * 60 + self.seconds));
        let utc = if self.is_west { local + by } else { local - by };
        Some(utc.to_rfc3339())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_beyond_their_type_are_told_from_infinity_and_zero() {
        for text in ["1e400", "-1e400", "17E309", "1e-400", "-0.001e-350"] {
            let error = check_float(text, text.parse().unwrap(), "double precision").unwrap_err();
            assert_eq!(error.sqlstate, "22003");
            assert_eq!(error.message, format!("\"{text}\" is out of range for type double precision"));
        }
        for text in ["inf", "-Infinity", "NaN", "0", "-0.0e400", "0e-7", "1e308", "1e-320", "17"] {
            assert_eq!(check_float(text, text.parse().unwrap(), "double precision"), Ok(()), "{text}");
        }
    }

    #[test]
    fn zones_exist_and_are_spelled_exactly() {
        for (written, exact) in [
            ("Europe/Berlin", "Europe/Berlin"),
            ("europe/berlin", "Europe/Berlin"),
            ("AMERICA/NEW_YORK", "America/New_York"),
            ("utc", "UTC"),
            ("CET", "CET"),
            ("+2", "+02:00"),
            ("-0230", "-02:30"),
            ("+15:59", "+15:59"),
        ] {
            assert_eq!(zone(written).as_deref(), Ok(exact));
        }
        for written in ["Nope", "Nowhere/City", "", "+25:00", "-16", "+02:60", "+", "2", "+02:30:15"] {
            assert_eq!(zone(written).unwrap_err().sqlstate, "22023", "{written}");
        }
    }

    #[test]
    fn times_have_a_displacement_in_range() {
        for (written, read) in [
            ("2026-01-01 00:00:00", "2026-01-01 00:00:00"),
            ("2026-01-01", "2026-01-01"),
            ("2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00.5Z"),
            ("2026-01-01 00:00:00+15:59", "2026-01-01 00:00:00+15:59"),
            ("2026-01-01 00:00:00 +2", "2026-01-01 00:00:00+02:00"),
            ("2026-01-01 00:00:00-1559", "2026-01-01 00:00:00-15:59"),
            ("2026-01-01 00:00:00+15:59:59", "2025-12-31T08:00:01+00:00"),
            ("2026-01-01 00:00:00.25-155959", "2026-01-01T15:59:59.250+00:00"),
            ("2026-01-01 00:00:00 Europe/Berlin", "2026-01-01 00:00:00 Europe/Berlin"),
            ("2026-01-01 00:00:00 europe/berlin", "2026-01-01 00:00:00 Europe/Berlin"),
            ("2026-01-01 -04", "2026-01-01 00:00:00-04:00"),
            ("2026-01-01 +5:30", "2026-01-01 00:00:00+05:30"),
            ("no time at all", "no time at all"),
            ("ünïcödé ünïcödé", "ünïcödé ünïcödé"),
        ] {
            assert_eq!(time_text(written).as_deref(), Ok(read));
        }
        for displacement in ["+16:00", "-16", "+25:00", "+2500", "+00:60", "-15:59:60", "+99"] {
            let error = time_text(&format!("2026-01-01 00:00:00{displacement}")).unwrap_err();
            assert_eq!(error.sqlstate, "22009", "{displacement}");
        }
        let error = time_text("2026-01-01 00:00:00 Nowhere/City").unwrap_err();
        assert_eq!(error, QueryError::new("22023", "time zone \"Nowhere/City\" not recognized"));
    }
}
