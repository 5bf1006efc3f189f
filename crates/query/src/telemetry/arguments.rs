//! Arguments of the functions for telemetry: constants of SQL as patterns, times, durations and numbers.

use std::collections::HashSet;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;
use strongback_store::{
    Channel, ChannelIndex, ChannelType, Interpolation, Pattern, Store, Stream, StreamKey, View, matching_data,
};

use crate::error::{NAMES_COMPARED_MAX, QueryError, nearest, sqlstate};
use crate::running::clock::statement_now_us;
use crate::sql::interval::interval_text;
use crate::sql::value::cast_time;
use crate::system::listed_functions::{name_of, names_of, required};
use crate::table::column::timestamp_type;

/// Maximum channels that one call reads.
const CHANNELS_MAX: usize = 1_000;
/// Nanoseconds of a day.
const DAY_NS: i128 = 86_400_000_000_000;

/// A channel that a call reads.
#[derive(Clone, Debug)]
pub(crate) struct ChosenChannel {
    pub(crate) stream: Arc<Stream>,
    pub(crate) index: ChannelIndex,
    /// Name with tags.
    pub(crate) name: String,
}

impl ChosenChannel {
    pub(crate) fn channel(&self) -> &Channel {
        self.stream.layout.channel(self.index)
    }

    pub(crate) fn channel_type(&self) -> ChannelType {
        self.channel().channel_type
    }

    /// Reports whether its values are numbers or truth values.
    pub(crate) fn is_number(&self) -> bool {
        !matches!(self.channel_type(), ChannelType::String | ChannelType::Blob | ChannelType::Array(_))
    }

    pub(crate) fn is_linear(&self) -> bool {
        self.channel().interpolation == Interpolation::Linear
    }

    /// Returns its name without the tag `run`.
    pub(crate) fn name_without_run(&self) -> String {
        let tags = self.stream.key.tags.iter().filter(|(key, _)| key != "run").cloned();
        StreamKey::new(&self.stream.key.table, tags).channel_name(&self.channel().name)
    }
}

/// Returns the error for an argument that a function cannot use.
pub(crate) fn invalid(message: impl Into<String>) -> QueryError {
    QueryError::new(sqlstate::INVALID_PARAMETER, message)
}

/// Replaces the error for an argument that decides on the columns and is NULL, as a parameter without a value is.
pub(crate) fn must_be_written(error: QueryError, names: &str, function: &str) -> QueryError {
    if error.sqlstate != sqlstate::NULL_NOT_ALLOWED {
        return error;
    }
    let message = format!("{names} of {function} decide on its columns, so they cannot be NULL or parameters");
    QueryError::new(sqlstate::INDETERMINATE_DATATYPE, message).with_hint("Write them into the statement.")
}

/// Arguments of one call.
pub(crate) struct Arguments<'a> {
    usage: &'static str,
    exprs: &'a [Expr],
    store: &'a Store,
}

impl<'a> Arguments<'a> {
    /// Checks the number of arguments. `usage` is the call with the names of its arguments, of which those after the
    /// first square bracket may be left out.
    ///
    /// # Errors
    /// If there are too few or too many.
    pub(crate) fn new(usage: &'static str, exprs: &'a [Expr], store: &'a Store) -> Result<Self, QueryError> {
        let (least, most) = (required(usage), names_of(usage).count());
        if (least..=most).contains(&exprs.len()) {
            return Ok(Arguments { usage, exprs, store });
        }
        let message = format!("wrong number of arguments: {}; the function is {usage}", exprs.len());
        Err(QueryError::new(sqlstate::UNDEFINED_FUNCTION, message))
    }

    /// Returns the name of an argument.
    fn name(&self, at: usize) -> &'static str {
        names_of(self.usage).nth(at).unwrap_or("argument")
    }

    fn function(&self) -> &'static str {
        name_of(self.usage)
    }

    fn wrong(&self, at: usize, expected: &str) -> QueryError {
        invalid(format!("{} of {} must be {expected}; the function is {}", self.name(at), self.function(), self.usage))
    }

    /// Returns an argument that is not NULL.
    fn value(&self, at: usize) -> Result<&'a ScalarValue, QueryError> {
        match self.exprs.get(at) {
            Some(Expr::Literal(value, _)) if value.is_null() => {
                let message = format!("{} of {} is NULL", self.name(at), self.function());
                Err(QueryError::new(sqlstate::NULL_NOT_ALLOWED, message))
            }
            Some(Expr::Literal(value, _)) => Ok(value),
            _ => Err(self.wrong(at, "a constant, a parameter, or a query in brackets")),
        }
    }

    /// Reports whether there is an argument. NULL leaves one out that may be left out.
    pub(crate) fn has(&self, at: usize) -> bool {
        at < self.exprs.len() && (at < required(self.usage) || !self.is_null(at))
    }

    /// Reports whether an argument is there and NULL, as a parameter is while a statement is only described.
    pub(crate) fn is_null(&self, at: usize) -> bool {
        matches!(self.exprs.get(at), Some(Expr::Literal(value, _)) if value.is_null())
    }

    /// Returns a text.
    pub(crate) fn text(&self, at: usize) -> Result<&'a str, QueryError> {
        self.value(at)?.try_as_str().flatten().ok_or_else(|| self.wrong(at, "a text"))
    }

    /// Returns a number.
    pub(crate) fn number(&self, at: usize) -> Result<f64, QueryError> {
        let value = self.value(at)?;
        let number = match value.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(Some(number))) if !matches!(value, ScalarValue::Boolean(_)) => Some(number),
            _ => None,
        };
        number.filter(|number| number.is_finite()).ok_or_else(|| self.wrong(at, "a finite number"))
    }

    /// Returns an integer within a range.
    pub(crate) fn integer(&self, at: usize, range: RangeInclusive<i64>) -> Result<i64, QueryError> {
        let number = match self.value(at)?.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(number)) => number.filter(|number| range.contains(number)),
            _ => None,
        };
        number.ok_or_else(|| self.wrong(at, &format!("an integer from {} to {}", range.start(), range.end())))
    }

    /// Returns a time in nanoseconds since 1970 UTC.
    pub(crate) fn time_ns(&self, at: usize) -> Result<i64, QueryError> {
        let value = self.value(at)?;
        let is_integer = value.data_type().is_integer();
        let cast = match value {
            ScalarValue::TimestampNanosecond(..) => Ok(value.clone()),
            _ if is_integer => value.cast_to(&DataType::Int64),
            _ if value.try_as_str().is_some() => cast_time(value, &DataType::Timestamp(TimeUnit::Nanosecond, None)),
            ScalarValue::TimestampSecond(..)
            | ScalarValue::TimestampMillisecond(..)
            | ScalarValue::TimestampMicrosecond(..)
            | ScalarValue::Date32(_)
            | ScalarValue::Date64(_) => cast_time(value, &timestamp_type()),
            _ => return Err(self.wrong(at, "a time")),
        };
        let out_of_range = || {
            let message = format!("{} of {}: the time {value} is out of range", self.name(at), self.function());
            QueryError::new(sqlstate::DATETIME_OVERFLOW, message)
        };
        match cast {
            Ok(ScalarValue::Int64(Some(ns)) | ScalarValue::TimestampNanosecond(Some(ns), _)) => Ok(ns),
            Ok(ScalarValue::TimestampMicrosecond(Some(us), _)) => us.checked_mul(1_000).ok_or_else(out_of_range),
            Ok(_) => Err(out_of_range()),
            Err(error) => Err(QueryError::from(error)),
        }
    }

    /// Returns a span of time in nanoseconds since 1970 UTC.
    ///
    /// # Errors
    /// Also if it ends before it begins.
    pub(crate) fn span(&self, at: usize) -> Result<Range<i64>, QueryError> {
        let (from, to) = (self.time_ns(at)?, self.time_ns(at + 1)?);
        if from > to {
            return Err(invalid(format!("from of {} is after to", self.function())));
        }
        Ok(from..to)
    }

    /// Returns a span of time like [`Arguments::span`] that ends now at the latest, or after the newest frame of these
    /// streams, since nothing is known of the time after that.
    ///
    /// # Errors
    /// As for a span.
    pub(crate) fn known_span<'s>(
        &self,
        at: usize,
        streams: impl Iterator<Item = &'s Arc<Stream>>,
    ) -> Result<Range<i64>, QueryError> {
        let (span, view) = (self.span(at)?, self.store.view());
        let newest = streams.filter_map(|stream| Some(view.time_range(stream.id)?.1.saturating_add(1))).max();
        let known = newest.unwrap_or(i64::MIN).max(statement_now_us().saturating_mul(1_000));
        Ok(span.start..span.end.min(known).max(span.start))
    }

    /// Returns a duration in nanoseconds, which may be negative.
    pub(crate) fn duration_ns(&self, at: usize) -> Result<i64, QueryError> {
        let value = self.value(at)?;
        let kind = DataType::Interval(IntervalUnit::MonthDayNano);
        let expected = "an interval such as '100 ms', or nanoseconds as an integer";
        let interval = match value {
            _ if value.data_type().is_integer() => match value.cast_to(&DataType::Int64) {
                Ok(ScalarValue::Int64(Some(ns))) => return Ok(ns),
                _ => return Err(self.wrong(at, expected)),
            },
            ScalarValue::IntervalYearMonth(_)
            | ScalarValue::IntervalDayTime(_)
            | ScalarValue::IntervalMonthDayNano(_) => value.cast_to(&kind),
            _ if value.try_as_str().is_some() => {
                let text = value.try_as_str().flatten().unwrap_or_default().trim();
                // Intervals of SQL know no nanoseconds.
                if let Some(Ok(ns)) = text.strip_suffix("ns").map(|number| number.trim().parse()) {
                    return Ok(ns);
                }
                ScalarValue::from(interval_text(text).as_ref()).cast_to(&kind)
            }
            _ => return Err(self.wrong(at, expected)),
        };
        let Ok(ScalarValue::IntervalMonthDayNano(Some(interval))) = interval else {
            return Err(self.wrong(at, expected));
        };
        if interval.months != 0 {
            let message =
                format!("{} of {} has months, whose length is not fixed; use days", self.name(at), self.function());
            return Err(invalid(message));
        }
        let ns = i128::from(interval.days) * DAY_NS + i128::from(interval.nanoseconds);
        i64::try_from(ns).map_err(|_| self.wrong(at, "an interval of less than 292 years"))
    }

    /// Returns a step in nanoseconds, which is at least 1.
    pub(crate) fn step_ns(&self, at: usize) -> Result<u64, QueryError> {
        let ns = self.duration_ns(at)?;
        u64::try_from(ns).ok().filter(|ns| *ns > 0).ok_or_else(|| self.wrong(at, "more than 0"))
    }

    /// Returns a duration in nanoseconds that is not negative, or the greatest one if the argument is left out.
    pub(crate) fn tolerance_ns(&self, at: usize) -> Result<u64, QueryError> {
        if !self.has(at) {
            return Ok(u64::MAX);
        }
        u64::try_from(self.duration_ns(at)?).map_err(|_| self.wrong(at, "at least 0"))
    }

    /// Returns how long a value lasts after its sample, in nanoseconds and more than 0, or the greatest duration if the
    /// argument is left out.
    pub(crate) fn lasting_ns(&self, at: usize) -> Result<u64, QueryError> {
        if self.has(at) { self.step_ns(at) } else { Ok(u64::MAX) }
    }

    /// Returns the channels that match any of some patterns with commas between them, sorted by name.
    ///
    /// # Errors
    /// Also if none matches, or too many.
    pub(crate) fn channels(&self, at: usize, numbers_only: bool) -> Result<Vec<ChosenChannel>, QueryError> {
        let parse = |text: &String| Ok(Pattern::parse(text.trim())?);
        let patterns: Vec<Pattern> =
            Pattern::split(self.text(at)?).iter().map(parse).collect::<Result<_, QueryError>>()?;
        let view = self.store.view();
        let mut chosen = matching_channels(&view, &patterns)?;
        for pattern in &patterns {
            let matches_any = match patterns.as_slice() {
                [_] => !chosen.is_empty(),
                _ => !matching_channels(&view, std::slice::from_ref(pattern))?.is_empty(),
            };
            if matches_any {
                continue;
            }
            let message = format!("no channel matches {}", pattern.as_str());
            let error = QueryError::new(sqlstate::UNDEFINED_COLUMN, message);
            let all = view.catalog().streams.iter().flat_map(|stream| {
                let channels = stream.layout.channels.iter();
                channels.map(|channel| stream.key.channel_name(&channel.name))
            });
            let names: Vec<String> = all.take(NAMES_COMPARED_MAX).collect();
            return Err(match nearest(pattern.as_str(), names.iter().map(String::as_str)) {
                Some(meant) => error.with_hint(format!("Did you mean {meant}?")),
                None => error,
            });
        }
        if numbers_only {
            chosen.retain(ChosenChannel::is_number);
            if chosen.is_empty() {
                let message = format!("no channel of numbers matches {}", self.text(at)?);
                return Err(QueryError::new(sqlstate::DATATYPE_MISMATCH, message));
            }
        }
        if chosen.len() > CHANNELS_MAX {
            let message = format!("{} channels match, at most {CHANNELS_MAX} are read by one call", chosen.len());
            let error = QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message);
            return Err(error.with_hint("Narrow the pattern."));
        }
        // Channels of one name can differ: only in quotes are they told apart.
        let mut names = HashSet::new();
        let twice: HashSet<String> =
            chosen.iter().filter(|c| !names.insert(c.name.clone())).map(|c| c.name.clone()).collect();
        for channel in chosen.iter_mut().filter(|channel| twice.contains(&channel.name)) {
            channel.name = channel.stream.key.quoted_channel_name(&channel.channel().name);
        }
        chosen.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(chosen)
    }

    /// Returns the only channel of numbers that matches a pattern.
    pub(crate) fn channel(&self, at: usize) -> Result<ChosenChannel, QueryError> {
        let text = self.text(at)?;
        only(self.channels(at, true)?, text).map_err(|count| {
            let (name, function) = (self.name(at), self.function());
            invalid(format!("{name} of {function}: {count} channels match {text}, and exactly one must"))
        })
    }
}

/// Returns the channels that match any of some patterns.
pub(crate) fn matching_channels(view: &View, patterns: &[Pattern]) -> Result<Vec<ChosenChannel>, QueryError> {
    let mut found = Vec::new();
    for (stream, channels) in matching_data(view.catalog(), patterns)? {
        for index in channels {
            let name = stream.key.channel_name(&stream.layout.channel(index).name);
            found.push(ChosenChannel { stream: stream.clone(), index, name });
        }
    }
    Ok(found)
}

/// Returns the only channel, or the one whose full name the pattern is.
///
/// # Errors
/// The number of channels.
pub(crate) fn only(mut found: Vec<ChosenChannel>, pattern: &str) -> Result<ChosenChannel, usize> {
    let count = found.len();
    if count > 1 {
        found.retain(|channel| channel.name == pattern);
    }
    match (found.len(), found.pop()) {
        (1, Some(channel)) => Ok(channel),
        _ => Err(count),
    }
}
