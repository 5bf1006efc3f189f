//! State of channels at an instant: the newest value of each, its age, and its status.

use std::sync::Arc;

use strongback_store::text::{put_list, put_plain};
use strongback_store::{ChannelIndex, Clock, OwnedValue, Pattern, StateCell, Stream, Value, View, matching};

use crate::error::QueryError;
use crate::system::SystemRows;
use crate::wire::encode::{f32_text, f64_text};

/// Age from which a value of a stream without a known period is stale, in nanoseconds.
pub const STALE_AFTER_NS: i64 = 2_000_000_000;
/// Number of expected periods after which a value is stale.
pub const STALE_AFTER_PERIODS: i64 = 3;
/// Age up to which no value is stale, in nanoseconds: many samples of a fast channel come in one packet.
const FRESH_NS: i64 = 100_000_000;

/// Trustworthiness of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// A value within three periods, given or learnt. Within 2 s if no period is known or the learnt limit is shorter.
    Fresh,
    /// An older value.
    Stale,
    /// A value after which frames are known to be missing, or one known to be unknown.
    Gap,
    /// No value yet.
    Never,
}

impl Status {
    /// Returns the name: `fresh`, `stale`, `gap` or `never`.
    pub fn name(self) -> &'static str {
        match self {
            Status::Fresh => "fresh",
            Status::Stale => "stale",
            Status::Gap => "gap",
            Status::Never => "never",
        }
    }
}

/// The state of one channel.
#[derive(Clone, Debug)]
pub struct StateRow {
    /// Stream.
    pub stream: Arc<Stream>,
    /// Index in the stream's layout.
    pub channel: ChannelIndex,
    /// Newest value; `None` if there was none yet or it is unknown.
    pub value: Option<OwnedValue>,
    /// `time` of that value's frame, in nanoseconds since 1970 UTC.
    pub time_ns: Option<i64>,
    /// `receive_time` of that value's frame, in nanoseconds since 1970 UTC.
    pub receive_time_ns: Option<i64>,
    /// Age in nanoseconds at the requested instant, from reception or from `time`: see [`age_of`].
    pub age_ns: Option<i64>,
    /// Period of its stream in nanoseconds, given or learnt.
    pub period_ns: Option<i64>,
    /// Trustworthiness.
    pub status: Status,
}

impl StateRow {
    /// Returns the channel's full name.
    pub fn name(&self) -> String {
        self.stream.key.channel_name(&self.stream.layout.channel(self.channel).name)
    }

    /// Returns the value as a number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match &self.value {
            Some(OwnedValue::Plain(value)) => value.as_f64(),
            _ => None,
        }
    }

    /// Returns the value as text, with numbers as PostgreSQL writes them.
    pub fn text(&self) -> Option<String> {
        let mut text = String::new();
        put_text(&mut text, self.value.as_ref()?.as_value());
        Some(text)
    }
}

/// Appends a value as text, with numbers as PostgreSQL writes them and arrays as `[1,2]`.
pub(crate) fn put_text(out: &mut String, value: Value<'_>) {
    match value {
        Value::F32(v) => out.push_str(&f32_text(v)),
        Value::F64(v) => out.push_str(&f64_text(v)),
        Value::Array(array) => put_list(out, array, put_text),
        value => put_plain(out, value),
    }
}

/// Returns the age of a value at an instant. At a past instant, ages follow the time line of that moment: for a stream
/// with the source's clock, data written long after its `time` is as old as it was then. For the current state, ages
/// count from reception, regardless of the source's clock.
fn age_of(stream: &Stream, cell: &StateCell, at_ns: i64, is_now: bool) -> i64 {
    let since = if counts_reception(stream, is_now) { cell.receive_time } else { cell.time };
    at_ns.saturating_sub(since).max(0)
}

/// Reports whether ages of a stream's values count from their reception.
fn counts_reception(stream: &Stream, is_now: bool) -> bool {
    is_now || stream.clock == Clock::Receive
}

/// Returns the age above which values of a stream are stale, and its period, given or learnt.
fn stale_after(stream: &Stream, system: &dyn SystemRows) -> (i64, Option<i64>) {
    let periods = |period: i64| period.saturating_mul(STALE_AFTER_PERIODS);
    if let Some(given) = stream.expected_period_ns.filter(|period| *period > 0) {
        return (periods(given).max(FRESH_NS), Some(given));
    }
    // A learnt period is an estimate: it may extend the limit for a slow stream, but not shorten it for a fast one.
    let learnt = system.learnt_period_ns(stream.id).filter(|period| *period > 0);
    (learnt.map_or(STALE_AFTER_NS, periods).max(STALE_AFTER_NS), learnt)
}

/// Returns the state of the selected channels, with values up to `until_ns` and ages from `at_ns`. The two differ only
/// for `latest`, which includes frames whose source clock runs ahead. Ends early once `has_left` says that no one waits.
pub(crate) fn state(
    view: &View,
    system: &dyn SystemRows,
    (until_ns, at_ns): (i64, i64),
    patterns: &[Pattern],
    has_left: &dyn Fn() -> bool,
) -> Result<Vec<StateRow>, QueryError> {
    let mut rows = Vec::new();
    for (stream, channels) in matching(view.catalog(), patterns)? {
        if has_left() {
            return Err(QueryError::cancelled());
        }
        let cells = match until_ns > at_ns {
            true => view.latest(stream.id, at_ns, until_ns, &channels)?,
            false => view.state_at(stream.id, until_ns, &channels)?,
        };
        let (stale_after_ns, period_ns) = stale_after(&stream, system);
        // Query gaps once per stream, from its oldest value on. Each value then checks its own span.
        let oldest = cells.iter().flatten().map(|c| c.time).min();
        let gaps = match oldest {
            Some(oldest) => system.open_gaps(stream.id, oldest..at_ns.saturating_add(1).max(oldest)),
            None => Vec::new(),
        };
        let newest_gap = gaps.iter().map(|gap| gap.from_time_ns).filter(|from| *from <= at_ns).max();
        for (channel, cell) in channels.into_iter().zip(cells) {
            rows.push(match cell {
                None => StateRow {
                    stream: stream.clone(),
                    channel,
                    value: None,
                    time_ns: None,
                    receive_time_ns: None,
                    age_ns: None,
                    period_ns,
                    status: Status::Never,
                },
                Some(cell) => {
                    let age_ns = age_of(&stream, &cell, at_ns, until_ns != at_ns);
                    let missing = newest_gap.is_some_and(|from| from >= cell.time);
                    // Received by a clock that ran ahead and was set back, so the actual age is unknown.
                    let is_ahead = counts_reception(&stream, until_ns != at_ns) && cell.was_received_ahead_of(at_ns);
                    let status = match (&cell.value, missing) {
                        (None, _) | (_, true) => Status::Gap,
                        _ if is_ahead || age_ns > stale_after_ns => Status::Stale,
                        _ => Status::Fresh,
                    };
                    StateRow {
                        stream: stream.clone(),
                        channel,
                        value: cell.value,
                        time_ns: Some(cell.time),
                        receive_time_ns: Some(cell.receive_time),
                        age_ns: Some(age_ns),
                        period_ns,
                        status,
                    }
                }
            });
        }
    }
    Ok(rows)
}
