//! The state of everything at an instant: each channel's newest value, its age, and whether to trust it.

use std::sync::Arc;

use strongback_store::{ChannelIndex, Clock, OwnedValue, Pattern, StateCell, Stream, Value, View, matching};

use crate::error::QueryError;
use crate::system::SystemRows;

/// Age beyond which a value of a stream without a fixed cycle is stale.
pub const STALE_AFTER_NS: i64 = 2_000_000_000;
/// Expected periods beyond which a value is stale.
pub const STALE_AFTER_PERIODS: i64 = 3;

/// How far a value can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Within three periods, given or learnt; within 2 s where nothing is known, or less was learnt.
    Fresh,
    /// Older than that.
    Stale,
    /// Frames after it are known to be missing, or it is known to be unknown.
    Gap,
    /// There was no value yet.
    Never,
}

impl Status {
    /// `fresh`, `stale`, `gap`, `never`.
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
    /// Its stream.
    pub stream: Arc<Stream>,
    /// Its index in the stream's layout.
    pub channel: ChannelIndex,
    /// Its newest value; none if there was none yet or it is unknown.
    pub value: Option<OwnedValue>,
    /// `time` of that value's frame, nanoseconds since 1970 UTC.
    pub time_ns: Option<i64>,
    /// `receive_time` of that value's frame, nanoseconds since 1970 UTC.
    pub receive_time_ns: Option<i64>,
    /// From its reception to the instant asked for, or from its `time`: see [`age_of`].
    pub age_ns: Option<i64>,
    /// Period of its stream, given or learnt, in nanoseconds.
    pub period_ns: Option<i64>,
    /// Whether to trust it.
    pub status: Status,
}

impl StateRow {
    /// The channel's full name.
    pub fn name(&self) -> String {
        self.stream.key.channel_name(&self.stream.layout.channel(self.channel).name)
    }

    /// The value as a number, where it is one.
    pub fn number(&self) -> Option<f64> {
        match &self.value {
            Some(OwnedValue::Plain(value)) => value.as_f64(),
            _ => None,
        }
    }

    /// The value as text: numbers in their shortest exact form.
    pub fn text(&self) -> Option<String> {
        Some(match self.value.as_ref()? {
            OwnedValue::String(text) => text.clone(),
            value => plain_text(&value.as_value()),
        })
    }
}

/// A value as text: numbers in their shortest exact form, arrays as `[1,2]`.
pub(crate) fn plain_text(value: &Value<'_>) -> String {
    match value {
        Value::Bool(v) => v.to_string(),
        Value::I8(v) => v.to_string(),
        Value::I16(v) => v.to_string(),
        Value::I32(v) => v.to_string(),
        Value::I64(v) => v.to_string(),
        Value::U8(v) => v.to_string(),
        Value::U16(v) => v.to_string(),
        Value::U32(v) => v.to_string(),
        Value::U64(v) => v.to_string(),
        Value::F32(v) => float_text(*v as f64, v.to_string()),
        Value::F64(v) => float_text(*v, v.to_string()),
        Value::String(v) => (*v).to_owned(),
        Value::Blob(blob) => blob.to_string(),
        Value::Array(array) => {
            let elements: Vec<String> = array.iter().map(|element| plain_text(&element)).collect();
            format!("[{}]", elements.join(","))
        }
    }
}

fn float_text(value: f64, finite: String) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity".to_owned() } else { "-Infinity".to_owned() }
    } else {
        finite
    }
}

/// Returns how old a value is at an instant. The state of a past instant has the ages of that time line: where `time` is
/// the source's, data that was written long after its `time` is as old as it was then. Now, it is the reception that
/// counts, whatever the source's clock says.
fn age_of(stream: &Stream, cell: &StateCell, at_ns: i64, is_now: bool) -> i64 {
    let since = if counts_reception(stream, is_now) { cell.receive_time } else { cell.time };
    at_ns.saturating_sub(since).max(0)
}

/// Returns whether ages of a stream's values count from their reception.
fn counts_reception(stream: &Stream, is_now: bool) -> bool {
    is_now || stream.clock == Clock::Receive
}

/// Returns the age from which on values of a stream are stale, and its period, given or learnt.
fn stale_after(stream: &Stream, system: &dyn SystemRows) -> (i64, Option<i64>) {
    let periods = |period: i64| period.saturating_mul(STALE_AFTER_PERIODS);
    if let Some(given) = stream.expected_period_ns.filter(|period| *period > 0) {
        return (periods(given), Some(given));
    }
    // What is learnt is an estimate: it gives a slow stream its time, and takes none from a fast one.
    let learnt = system.learnt_period_ns(stream.id).filter(|period| *period > 0);
    (learnt.map_or(STALE_AFTER_NS, periods).max(STALE_AFTER_NS), learnt)
}

/// The state of the chosen channels: values up to `until_ns`, ages from `at_ns`. The two differ only for
/// `latest`, which also takes frames whose source clock runs ahead.
pub(crate) fn state(
    view: &View,
    system: &dyn SystemRows,
    until_ns: i64,
    at_ns: i64,
    patterns: &[Pattern],
) -> Result<Vec<StateRow>, QueryError> {
    let mut rows = Vec::new();
    for (stream, channels) in matching(view.catalog(), patterns)? {
        let cells = match until_ns > at_ns {
            true => view.latest(stream.id, at_ns, until_ns, &channels)?,
            false => view.state_at(stream.id, until_ns, &channels)?,
        };
        let (stale_after_ns, period_ns) = stale_after(&stream, system);
        // Gaps are asked for once a stream, from its oldest value on; each value then looks at its own span.
        let oldest = cells.iter().flatten().map(|c| c.time).min();
        let gaps = match oldest {
            Some(oldest) => system.open_gaps(stream.id, oldest..at_ns.saturating_add(1).max(oldest)),
            None => Vec::new(),
        };
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
                    let missing = gaps.iter().any(|gap| gap.from_time_ns >= cell.time && gap.from_time_ns <= at_ns);
                    // Received by a clock that ran ahead and was set back: nobody knows how long ago.
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
