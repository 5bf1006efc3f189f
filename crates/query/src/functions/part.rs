//! `extract` and `date_part` with the fields, fractions and week rules of PostgreSQL, as `double precision`.

use std::sync::{Arc, LazyLock};

use chrono::{DateTime, Datelike, NaiveDateTime, Timelike};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, DurationNanosecondType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampNanosecondType,
};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};

use super::constant_of;
use super::time::{timestamp_type, with_days};
use crate::error::{QueryError, sqlstate};

/// A function that returns one field of a time or of an interval.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) enum PartFunction {
    /// `date_part(field, of)`.
    DatePart,
    /// `extract(field from of)`, which `crate::sql::operator` writes as a call.
    Extract,
}

/// Field of a time or of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Century,
    Day,
    Decade,
    DayOfWeek,
    DayOfYear,
    Epoch,
    Hour,
    IsoDayOfWeek,
    IsoYear,
    Julian,
    Microseconds,
    Millennium,
    Milliseconds,
    Minute,
    Month,
    Quarter,
    Second,
    TimeZone,
    Week,
    Year,
}

/// Names of fields, as in PostgreSQL.
const PARTS: [(&str, Part); 52] = [
    ("century", Part::Century),
    ("centuries", Part::Century),
    ("c", Part::Century),
    ("cent", Part::Century),
    ("day", Part::Day),
    ("days", Part::Day),
    ("d", Part::Day),
    ("decade", Part::Decade),
    ("decades", Part::Decade),
    ("dec", Part::Decade),
    ("decs", Part::Decade),
    ("dow", Part::DayOfWeek),
    ("doy", Part::DayOfYear),
    ("epoch", Part::Epoch),
    ("hour", Part::Hour),
    ("hours", Part::Hour),
    ("h", Part::Hour),
    ("hr", Part::Hour),
    ("hrs", Part::Hour),
    ("isodow", Part::IsoDayOfWeek),
    ("isoyear", Part::IsoYear),
    ("julian", Part::Julian),
    ("microseconds", Part::Microseconds),
    ("microsecond", Part::Microseconds),
    ("us", Part::Microseconds),
    ("usec", Part::Microseconds),
    ("millennium", Part::Millennium),
    ("millennia", Part::Millennium),
    ("mil", Part::Millennium),
    ("mils", Part::Millennium),
    ("milliseconds", Part::Milliseconds),
    ("millisecond", Part::Milliseconds),
    ("ms", Part::Milliseconds),
    ("msec", Part::Milliseconds),
    ("minute", Part::Minute),
    ("minutes", Part::Minute),
    ("m", Part::Minute),
    ("min", Part::Minute),
    ("mins", Part::Minute),
    ("month", Part::Month),
    ("months", Part::Month),
    ("mon", Part::Month),
    ("quarter", Part::Quarter),
    ("second", Part::Second),
    ("seconds", Part::Second),
    ("s", Part::Second),
    ("sec", Part::Second),
    ("timezone", Part::TimeZone),
    ("week", Part::Week),
    ("weeks", Part::Week),
    ("year", Part::Year),
    ("years", Part::Year),
];

/// What a value is, in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Instant,
    Date,
    Time,
    Interval,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Instant => "timestamp with time zone",
            Kind::Date => "date",
            Kind::Time => "time without time zone",
            Kind::Interval => "interval",
        }
    }

    /// Reports whether its values have a field.
    fn has(self, part: Part) -> bool {
        use Part::{
            DayOfWeek, DayOfYear, Epoch, Hour, IsoDayOfWeek, IsoYear, Julian, Microseconds, Milliseconds, Minute,
            Second, TimeZone, Week,
        };
        let is_clock = matches!(part, Hour | Minute | Second | Milliseconds | Microseconds);
        match self {
            Kind::Instant => true,
            Kind::Date => !is_clock && part != TimeZone,
            Kind::Time => is_clock || part == Epoch,
            Kind::Interval => {
                !matches!(part, DayOfWeek | DayOfYear | IsoDayOfWeek | IsoYear | Julian | TimeZone | Week)
            }
        }
    }
}

/// Julian day of the day before the first one of the common era.
const JULIAN: f64 = 1_721_425.0;

impl Part {
    fn parse(name: &str, of: Kind) -> Result<Part, QueryError> {
        let lower = name.to_lowercase();
        let Some((_, part)) = PARTS.iter().find(|(known, _)| *known == lower) else {
            let text = format!("unit \"{name}\" not recognized for type {}", of.name());
            return Err(QueryError::new(sqlstate::INVALID_PARAMETER, text));
        };
        if !of.has(*part) {
            let text = format!("unit \"{name}\" not supported for type {}", of.name());
            return Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text));
        }
        Ok(*part)
    }

    /// Returns the field of seconds and nanoseconds within a minute.
    fn of_seconds(self, seconds: f64, nanoseconds: f64) -> f64 {
        match self {
            Part::Milliseconds => seconds * 1e3 + nanoseconds / 1e6,
            Part::Microseconds => seconds * 1e6 + nanoseconds / 1e3,
            _ => seconds + nanoseconds / 1e9,
        }
    }

    /// Returns the field of an instant in UTC.
    fn of_time(self, time: &NaiveDateTime) -> f64 {
        let year = time.year();
        // Years before 1 are those before Christ, of which there is no zeroth.
        let since =
            |years: i32| if year > 0 { (year - 1).div_euclid(years) + 1 } else { -((-year).div_euclid(years) + 1) };
        f64::from(match self {
            Part::Century => since(100),
            Part::Millennium => since(1_000),
            Part::Decade => year.div_euclid(10),
            Part::Year => {
                if year > 0 {
                    year
                } else {
                    year - 1
                }
            }
            Part::IsoYear => match time.iso_week().year() {
                year if year > 0 => year,
                year => year - 1,
            },
            Part::Quarter => time.month0() as i32 / 3 + 1,
            Part::Month => time.month() as i32,
            Part::Week => time.iso_week().week() as i32,
            Part::Day => time.day() as i32,
            Part::DayOfYear => time.ordinal() as i32,
            Part::DayOfWeek => time.weekday().num_days_from_sunday() as i32,
            Part::IsoDayOfWeek => time.weekday().number_from_monday() as i32,
            Part::Hour => time.hour() as i32,
            Part::Minute => time.minute() as i32,
            Part::TimeZone => 0,
            Part::Second | Part::Milliseconds | Part::Microseconds => {
                return self.of_seconds(f64::from(time.second()), f64::from(time.nanosecond()));
            }
            Part::Epoch => {
                let time = time.and_utc();
                return match time.timestamp_micros() {
                    micros if time.timestamp_subsec_nanos().is_multiple_of(1_000) => micros as f64 / 1e6,
                    _ => time.timestamp() as f64 + f64::from(time.timestamp_subsec_nanos()) / 1e9,
                };
            }
            Part::Julian => {
                let of_day = f64::from(time.num_seconds_from_midnight()) + f64::from(time.nanosecond()) / 1e9;
                return f64::from(time.num_days_from_ce()) + JULIAN + of_day / 86_400.0;
            }
        })
    }

    /// Returns the field of an interval.
    fn of_interval(self, of: IntervalMonthDayNano) -> f64 {
        let (years, months) = (of.months / 12, of.months % 12);
        let (seconds, nanoseconds) = (of.nanoseconds / 1_000_000_000, of.nanoseconds % 1_000_000_000);
        f64::from(match self {
            Part::Millennium => years / 1_000,
            Part::Century => years / 100,
            Part::Decade => years / 10,
            Part::Year => years,
            Part::Quarter => months / 3 + 1,
            Part::Month => months,
            Part::Day => of.days,
            Part::Hour => return (seconds / 3_600) as f64,
            Part::Minute => return (seconds / 60 % 60) as f64,
            Part::Epoch => {
                // A year has 365.25 days, and a month that is left has 30.
                let days = f64::from(years) * 365.25 + f64::from(months) * 30.0 + f64::from(of.days);
                return days * 86_400.0 + of.nanoseconds as f64 / 1e9;
            }
            _ => return self.of_seconds((seconds % 60) as f64, nanoseconds as f64),
        })
    }
}

/// Returns what values of a type are, and the type in which they are read.
fn read_as(kind: &DataType) -> Option<(Kind, DataType)> {
    Some(match kind {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            (Kind::Instant, DataType::Timestamp(TimeUnit::Nanosecond, None))
        }
        DataType::Timestamp(..) | DataType::Null | DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => {
            (Kind::Instant, DataType::Timestamp(TimeUnit::Microsecond, None))
        }
        DataType::Date32 | DataType::Date64 => (Kind::Date, DataType::Timestamp(TimeUnit::Microsecond, None)),
        DataType::Time32(_) | DataType::Time64(_) => (Kind::Time, DataType::Time64(TimeUnit::Nanosecond)),
        DataType::Interval(_) => (Kind::Interval, DataType::Interval(IntervalUnit::MonthDayNano)),
        DataType::Duration(_) => (Kind::Interval, DataType::Duration(TimeUnit::Nanosecond)),
        _ => return None,
    })
}

fn parts(part: Part, of: &ArrayRef, kind: &DataType) -> Result<ArrayRef> {
    let of = cast(of, kind)?;
    let of_time = |time: Option<DateTime<chrono::Utc>>| time.map(|time| part.of_time(&time.naive_utc()));
    let interval = |nanoseconds: i64| part.of_interval(IntervalMonthDayNano::new(0, 0, nanoseconds));
    let found: Float64Array = match kind {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            let times = of.as_primitive::<TimestampNanosecondType>().iter();
            times.map(|time| of_time(time.map(DateTime::from_timestamp_nanos))).collect()
        }
        DataType::Timestamp(..) => {
            let times = of.as_primitive::<TimestampMicrosecondType>().iter();
            times.map(|time| of_time(time.and_then(DateTime::from_timestamp_micros))).collect()
        }
        DataType::Time64(_) => {
            of.as_primitive::<Time64NanosecondType>().iter().map(|time| time.map(interval)).collect()
        }
        // The difference of two times has days.
        DataType::Duration(_) => {
            let of_days = |ns: i64| part.of_interval(with_days(IntervalMonthDayNano::new(0, 0, ns)));
            of.as_primitive::<DurationNanosecondType>().iter().map(|length| length.map(of_days)).collect()
        }
        _ => {
            let intervals = of.as_primitive::<IntervalMonthDayNanoType>().iter();
            intervals.map(|interval| interval.map(|interval| part.of_interval(interval))).collect()
        }
    };
    Ok(Arc::new(found))
}

impl ScalarUDFImpl for PartFunction {
    fn name(&self) -> &str {
        match self {
            PartFunction::DatePart => "date_part",
            PartFunction::Extract => "extract",
        }
    }

    /// With the alias of the planner's own function, in whose place it stands.
    fn aliases(&self) -> &[String] {
        static OTHER: LazyLock<Vec<String>> = LazyLock::new(|| vec!["datepart".to_owned()]);
        match self {
            PartFunction::DatePart => &OTHER,
            PartFunction::Extract => &[],
        }
    }

    fn signature(&self) -> &Signature {
        static ANY: LazyLock<Signature> = LazyLock::new(|| Signature::user_defined(Volatility::Immutable));
        &ANY
    }

    fn coerce_types(&self, kinds: &[DataType]) -> Result<Vec<DataType>> {
        let [_, of] = kinds else { return plan_err!("{} takes a field and a time", self.name()) };
        Ok(match of {
            DataType::Null | DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => {
                vec![DataType::Utf8, timestamp_type()]
            }
            kind if read_as(kind).is_some() => vec![DataType::Utf8, kind.clone()],
            other => return plan_err!("{} of a value of type {other} does not exist", self.name()),
        })
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let (names, of) = (arrays[0].as_string::<i32>(), &arrays[1]);
        let Some((kind, as_read)) = read_as(of.data_type()) else {
            return plan_err!("{} of a value of type {} does not exist", self.name(), of.data_type());
        };
        let part = |name: &str| Part::parse(name, kind).map_err(QueryError::into_datafusion);
        let first = (!names.is_empty() && names.is_valid(0)).then(|| names.value(0));
        let found: ArrayRef = match first {
            Some(first) if names.null_count() == 0 && names.iter().all(|name| name == Some(first)) => {
                parts(part(first)?, of, &as_read)?
            }
            _ => {
                let mut found = Vec::with_capacity(names.len());
                for (row, name) in names.iter().enumerate() {
                    let Some(name) = name else {
                        found.push(None);
                        continue;
                    };
                    let one = parts(part(name)?, &of.slice(row, 1), &as_read)?;
                    let one = one.as_primitive::<datafusion::arrow::datatypes::Float64Type>();
                    found.push(one.iter().next().flatten());
                }
                Arc::new(Float64Array::from(found))
            }
        };
        let found = ColumnarValue::Array(found);
        if is_constant { constant_of(found) } else { Ok(found) }
    }
}
