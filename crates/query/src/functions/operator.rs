//! Operators of PostgreSQL that the planner does not have, as functions: `at time zone`, products of an interval and a
//! number, and `LIKE … ESCAPE`. `crate::sql::operator` writes the calls.

use std::sync::{Arc, LazyLock};

use chrono::offset::LocalResult;
use chrono::{DateTime, NaiveDateTime, Offset, TimeDelta, TimeZone};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{
    ArrayRef, AsArray, IntervalMonthDayNanoArray, StringArray, TimestampMicrosecondArray, TimestampMicrosecondBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};

use super::constant_of;
use super::time::{interval_as, timestamp_type, with_days};
use crate::error::{QueryError, sqlstate};
use crate::sql::operator::TIMES;

/// An operator as a function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) enum OperatorFunction {
    /// `timezone(zone, time)`: the local time of an instant as a `timestamp`, and the instant of a local time as a
    /// `timestamptz`. A local time that is skipped is taken by the displacement before, and one that occurs twice is the
    /// later one, as in PostgreSQL.
    TimeZone,
    /// `interval times(interval, number)`: months and days that are not whole become days (30 a month) and hours, as in
    /// PostgreSQL (`interval_mul`).
    Times,
    /// `interval length(interval)`: its nanoseconds, in which a month has 30 days and a day 24 hours, as PostgreSQL compares
    /// intervals (`interval_cmp_value`).
    Length,
    /// `round even(number)`: the nearest integer, and the even one of two, as `round(double precision)` of PostgreSQL.
    RoundEven,
    /// `like_escape(pattern, escape)`: the pattern with `\` in the place of another escape character.
    LikeEscape,
    /// `time of seconds(number)`: a Unix time in seconds as a `timestamptz`, rounded to microseconds.
    TimeOfSeconds,
    /// `interval format(interval, patterns)`: an interval as text, as by `to_char(interval, text)` of PostgreSQL.
    IntervalFormat,
}

fn out_of_range(seconds: f64) -> QueryError {
    QueryError::new(sqlstate::DATETIME_OVERFLOW, format!("timestamp out of range: \"{seconds}\""))
}

impl ScalarUDFImpl for OperatorFunction {
    fn name(&self) -> &str {
        match self {
            OperatorFunction::TimeZone => "timezone",
            OperatorFunction::Times => TIMES,
            OperatorFunction::Length => "interval length",
            OperatorFunction::RoundEven => "round even",
            OperatorFunction::LikeEscape => "like_escape",
            OperatorFunction::IntervalFormat => "interval format",
            OperatorFunction::TimeOfSeconds => "time of seconds",
        }
    }

    fn signature(&self) -> &Signature {
        static ANY: LazyLock<Signature> = LazyLock::new(|| Signature::user_defined(Volatility::Immutable));
        static NUMBERS: LazyLock<Signature> = LazyLock::new(|| {
            let kinds = vec![DataType::Interval(IntervalUnit::MonthDayNano), DataType::Float64];
            Signature::exact(kinds, Volatility::Immutable)
        });
        static TEXTS: LazyLock<Signature> =
            LazyLock::new(|| Signature::exact(vec![DataType::Utf8, DataType::Utf8], Volatility::Immutable));
        static ONE: LazyLock<Signature> = LazyLock::new(|| Signature::any(1, Volatility::Immutable));
        static TWO: LazyLock<Signature> = LazyLock::new(|| Signature::any(2, Volatility::Immutable));
        match self {
            OperatorFunction::TimeZone => &ANY,
            OperatorFunction::IntervalFormat => &TWO,
            OperatorFunction::Length | OperatorFunction::RoundEven | OperatorFunction::TimeOfSeconds => &ONE,
            OperatorFunction::Times => &NUMBERS,
            OperatorFunction::LikeEscape => &TEXTS,
        }
    }

    fn coerce_types(&self, kinds: &[DataType]) -> Result<Vec<DataType>> {
        let [_, time] = kinds else { return plan_err!("timezone takes a time zone and a time") };
        let time = match time {
            DataType::Timestamp(_, None) => DataType::Timestamp(TimeUnit::Microsecond, None),
            DataType::Timestamp(_, Some(_)) | DataType::Date32 | DataType::Date64 | DataType::Null => timestamp_type(),
            DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => timestamp_type(),
            other => return plan_err!("there is no time zone of a value of type {other}"),
        };
        Ok(vec![DataType::Utf8, time])
    }

    fn return_type(&self, kinds: &[DataType]) -> Result<DataType> {
        Ok(match self {
            OperatorFunction::TimeZone if matches!(kinds.get(1), Some(DataType::Timestamp(_, None))) => {
                timestamp_type()
            }
            OperatorFunction::TimeZone => DataType::Timestamp(TimeUnit::Microsecond, None),
            OperatorFunction::Times => DataType::Interval(IntervalUnit::MonthDayNano),
            OperatorFunction::Length => DataType::Int64,
            OperatorFunction::TimeOfSeconds => timestamp_type(),
            OperatorFunction::RoundEven => kinds.first().cloned().unwrap_or(DataType::Float64),
            OperatorFunction::LikeEscape | OperatorFunction::IntervalFormat => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let result: ArrayRef = match self {
            OperatorFunction::TimeZone => in_zones(arrays[0].as_string::<i32>(), &arrays[1])?,
            OperatorFunction::Times => {
                let intervals = arrays[0].as_primitive::<IntervalMonthDayNanoType>().iter();
                let pairs = intervals.zip(arrays[1].as_primitive::<Float64Type>().iter());
                let product = |(interval, factor): (Option<_>, Option<_>)| {
                    interval.zip(factor).map(|(interval, factor)| times(interval, factor)).transpose()
                };
                Arc::new(
                    pairs
                        .map(product)
                        .collect::<Result<IntervalMonthDayNanoArray, _>>()
                        .map_err(QueryError::into_datafusion)?,
                )
            }
            OperatorFunction::Length => lengths(&arrays[0])?,
            OperatorFunction::TimeOfSeconds => {
                let seconds = cast(&arrays[0], &DataType::Float64)?;
                let time = |seconds: f64| {
                    let us = (seconds * 1e6).round_ties_even();
                    let is_time = us >= i64::MIN as f64 && us < i64::MAX as f64;
                    if is_time { Ok(us as i64) } else { Err(out_of_range(seconds).into_datafusion()) }
                };
                let times = seconds.as_primitive::<Float64Type>().iter().map(|seconds| seconds.map(time).transpose());
                let times = times.collect::<Result<TimestampMicrosecondArray>>()?;
                Arc::new(times.with_data_type(timestamp_type()))
            }
            OperatorFunction::RoundEven => match arrays[0].data_type() {
                DataType::Float32 => {
                    Arc::new(arrays[0].as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::round_ties_even))
                }
                _ => Arc::new(arrays[0].as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even)),
            },
            OperatorFunction::IntervalFormat => {
                // The difference of two times has days.
                let has_days = matches!(arrays[0].data_type(), DataType::Duration(_));
                let intervals = cast(&arrays[0], &DataType::Interval(IntervalUnit::MonthDayNano))?;
                let patterns = cast(&arrays[1], &DataType::Utf8)?;
                let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>().iter();
                let pairs = intervals.zip(patterns.as_string::<i32>().iter());
                let written = |(interval, patterns): (Option<IntervalMonthDayNano>, Option<&str>)| {
                    let interval = interval.map(|interval| if has_days { with_days(interval) } else { interval });
                    interval.zip(patterns).map(|(interval, patterns)| interval_as(interval, patterns)).transpose()
                };
                Arc::new(pairs.map(written).collect::<Result<StringArray, _>>().map_err(QueryError::into_datafusion)?)
            }
            OperatorFunction::LikeEscape => {
                let pairs = arrays[0].as_string::<i32>().iter().zip(arrays[1].as_string::<i32>().iter());
                let written = |(pattern, escape): (Option<&str>, Option<&str>)| {
                    pattern.zip(escape).map(|(pattern, escape)| with_backslashes(pattern, escape)).transpose()
                };
                Arc::new(pairs.map(written).collect::<Result<StringArray, _>>().map_err(QueryError::into_datafusion)?)
            }
        };
        let result = ColumnarValue::Array(result);
        if is_constant { constant_of(result) } else { Ok(result) }
    }
}

fn in_zones(zones: &StringArray, times: &ArrayRef) -> Result<ArrayRef> {
    let is_instant = matches!(times.data_type(), DataType::Timestamp(_, Some(_)));
    let mut converted = TimestampMicrosecondBuilder::with_capacity(times.len());
    let mut zone: Option<(&str, Tz)> = None;
    for (name, time) in zones.iter().zip(times.as_primitive::<TimestampMicrosecondType>()) {
        let (Some(name), Some(time)) = (name, time) else {
            converted.append_null();
            continue;
        };
        let known = match zone {
            Some((last, known)) if last == name => known,
            _ => exact(name).map_err(QueryError::into_datafusion)?,
        };
        zone = Some((name, known));
        let there = if is_instant { local(time, known) } else { instant_of(time, known) };
        converted.append_value(
            there.ok_or_else(|| {
                QueryError::new(sqlstate::DATETIME_OVERFLOW, "timestamp out of range").into_datafusion()
            })?,
        );
    }
    let converted: TimestampMicrosecondArray = converted.finish();
    Ok(if is_instant { Arc::new(converted) } else { cast(&converted, &timestamp_type())? })
}

fn exact(name: &str) -> Result<Tz, QueryError> {
    // A displacement is positive to the west, as POSIX and PostgreSQL have it.
    let name = match name.trim_start().split_at_checked(1) {
        Some(("+", rest)) => &format!("-{rest}"),
        Some(("-", rest)) => &format!("+{rest}"),
        _ => name,
    };
    let exact = crate::sql::value::zone(name)?;
    exact
        .parse()
        .map_err(|_| QueryError::new(sqlstate::INVALID_PARAMETER, format!("time zone \"{name}\" not recognized")))
}

/// Returns the local time of an instant, both in microseconds.
fn local(time_us: i64, zone: Tz) -> Option<i64> {
    let utc = DateTime::from_timestamp_micros(time_us)?.naive_utc();
    time_us.checked_add(displacement_us(zone, utc))
}

/// Returns the instant of a local time, both in microseconds.
fn instant_of(time_us: i64, zone: Tz) -> Option<i64> {
    let local = DateTime::from_timestamp_micros(time_us)?.naive_utc();
    let seconds = match zone.offset_from_local_datetime(&local) {
        LocalResult::Single(offset) => offset.fix().local_minus_utc(),
        LocalResult::Ambiguous(a, b) => a.fix().local_minus_utc().min(b.fix().local_minus_utc()),
        // No displacement changes twice within a day.
        LocalResult::None => {
            let before = local.checked_sub_signed(TimeDelta::days(1))?;
            zone.offset_from_utc_datetime(&before).fix().local_minus_utc()
        }
    };
    time_us.checked_sub(i64::from(seconds) * 1_000_000)
}

fn displacement_us(zone: Tz, utc: NaiveDateTime) -> i64 {
    i64::from(zone.offset_from_utc_datetime(&utc).fix().local_minus_utc()) * 1_000_000
}

fn lengths(spans: &ArrayRef) -> Result<ArrayRef> {
    if matches!(spans.data_type(), DataType::Duration(_)) {
        return Ok(cast(&cast(spans, &DataType::Duration(TimeUnit::Nanosecond))?, &DataType::Int64)?);
    }
    const NS_A_DAY: i64 = 86_400_000_000_000;
    let spans = cast(spans, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let length = |span: IntervalMonthDayNano| {
        let days = i64::from(span.months) * 30 + i64::from(span.days);
        days.saturating_mul(NS_A_DAY).saturating_add(span.nanoseconds)
    };
    Ok(Arc::new(spans.as_primitive::<IntervalMonthDayNanoType>().unary::<_, Int64Type>(length)))
}

/// Multiplies an interval by a number.
///
/// # Errors
/// If the product is no interval.
fn times(interval: IntervalMonthDayNano, factor: f64) -> Result<IntervalMonthDayNano, QueryError> {
    const DAYS_A_MONTH: f64 = 30.0;
    const NS_A_DAY: f64 = 86_400e9;
    let out_of_range = || QueryError::new(sqlstate::DATETIME_OVERFLOW, "interval out of range");
    if !factor.is_finite() {
        return Err(out_of_range());
    }
    let months = f64::from(interval.months) * factor;
    let days = f64::from(interval.days) * factor;
    // Parts of a month and of a day, to a millionth of a second.
    let to_micro = |days: f64| (days * NS_A_DAY / 1e3).round() / (NS_A_DAY / 1e3);
    let month_days = to_micro(months.fract() * DAYS_A_MONTH);
    let rest = to_micro(days.fract() + month_days.fract());
    let days = days.trunc() + month_days.trunc() + rest.trunc();
    let ns = rest.fract() * NS_A_DAY;
    // Whole products of nanoseconds are exact.
    let product = if factor.fract() == 0.0 && factor.abs() < i64::MAX as f64 {
        i128::from(interval.nanoseconds) * i128::from(factor as i64)
    } else {
        (interval.nanoseconds as f64 * factor).round() as i128
    };
    let ns = product.checked_add(ns.round() as i128).and_then(|ns| i64::try_from(ns).ok());
    let fits = |number: f64| (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number).then_some(number as i32);
    match (fits(months.trunc()), fits(days), ns) {
        (Some(months), Some(days), Some(ns)) => Ok(IntervalMonthDayNano::new(months, days, ns)),
        _ => Err(out_of_range()),
    }
}

/// Returns a pattern of LIKE with `\` in the place of another escape character, of which an empty one is none.
///
/// # Errors
/// If the escape character is more than one.
pub(crate) fn with_backslashes(pattern: &str, escape: &str) -> Result<String, QueryError> {
    let mut characters = escape.chars();
    let escape = characters.next();
    if characters.next().is_some() {
        return Err(QueryError::new("22025", "invalid escape string")
            .with_hint("Escape string must be empty or one character."));
    }
    let mut written = String::with_capacity(pattern.len() + 8);
    let mut is_escaped = false;
    for c in pattern.chars() {
        if Some(c) == escape && !is_escaped {
            written.push('\\');
            is_escaped = true;
            continue;
        }
        if c == '\\' && !is_escaped {
            written.push('\\');
        }
        written.push(c);
        is_escaped = false;
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_times_at_changes_of_the_displacement_are_those_of_postgres() {
        let zone: Tz = "Europe/Berlin".parse().unwrap();
        let us = |text: &str| text.parse::<NaiveDateTime>().unwrap().and_utc().timestamp_micros();
        for (there, utc) in [
            ("2026-03-29T01:59:59.999999", "2026-03-29T00:59:59.999999"),
            // Skipped.
            ("2026-03-29T02:30:00", "2026-03-29T01:30:00"),
            ("2026-03-29T03:00:00", "2026-03-29T01:00:00"),
            // Twice.
            ("2026-10-25T02:30:00", "2026-10-25T01:30:00"),
            ("1900-01-01T00:00:00", "1899-12-31T23:00:00"),
        ] {
            assert_eq!(instant_of(us(there), zone), Some(us(utc)), "{there}");
        }
        assert_eq!(local(us("2026-10-25T00:30:00"), zone), Some(us("2026-10-25T02:30:00")));
        assert_eq!(local(us("2026-10-25T01:30:00"), zone), Some(us("2026-10-25T02:30:00")));
        assert_eq!(local(i64::MAX, zone), None);
    }

    #[test]
    fn products_of_intervals_are_those_of_postgres() {
        let of = |months, days, ns| IntervalMonthDayNano::new(months, days, ns);
        for (interval, factor, product) in [
            (of(0, 1, 0), 3.0, of(0, 3, 0)),
            (of(0, 1, 0), 2.5, of(0, 2, 43_200_000_000_000)),
            (of(1, 0, 0), 0.5, of(0, 15, 0)),
            (of(1, 1, 0), 1.5, of(1, 16, 43_200_000_000_000)),
            (of(0, 0, 1), 3.0, of(0, 0, 3)),
            (of(0, 0, 1_000_000_000), -0.1, of(0, 0, -100_000_000)),
            (of(0, 0, i64::MAX), 1.0, of(0, 0, i64::MAX)),
        ] {
            assert_eq!(times(interval, factor).unwrap(), product, "{interval:?} * {factor}");
        }
        assert!(times(of(0, 0, i64::MAX), 2.0).is_err());
        assert!(times(of(0, 1, 0), f64::NAN).is_err());
        assert!(times(of(i32::MAX, 0, 0), 1.5).is_err());
    }

    #[test]
    fn escape_characters_become_backslashes() {
        for (pattern, escape, written) in [
            ("a//b/%", "/", r"a\/b\%"),
            (r"a\b", "/", r"a\\b"),
            (r"a\%", "", r"a\\%"),
            (r"a\%", r"\", r"a\%"),
            (r"/\", "/", r"\\"),
        ] {
            assert_eq!(with_backslashes(pattern, escape).unwrap(), written, "{pattern}");
        }
        assert_eq!(with_backslashes("a", "//").unwrap_err().sqlstate, "22025");
    }
}
