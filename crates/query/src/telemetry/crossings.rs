//! `crossings`: the instants at which a channel crosses a level.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{BooleanArray, Float64Array};
use datafusion::arrow::datatypes::DataType;
use strongback_store::SampleRuns;

use crate::error::QueryError;
use crate::system::tables::{int8, micros, text};
use crate::table::column::timestamp_type;
use crate::telemetry::arguments::{Arguments, ChosenChannel};
use crate::telemetry::scan::{Call, Open, Opening, Reader, Step, schema};

/// NaNs before the start that are passed over to find the last sample.
const NANS_MAX: usize = 10_000;

/// Reads the arguments of `crossings`.
pub(crate) fn crossings(arguments: &Arguments<'_>) -> Call {
    let schema = schema([
        ("channel", DataType::Utf8),
        ("time", timestamp_type()),
        ("time_ns", DataType::Int64),
        ("rising", DataType::Boolean),
        ("before", DataType::Float64),
        ("after", DataType::Float64),
    ]);
    let open = || -> Result<Box<Open>, QueryError> {
        let (channels, level) = (Arc::new(arguments.channels(0, true)?), arguments.number(1)?);
        let (span, lasting_ns) = (arguments.span(2)?, arguments.lasting_ns(4)?);
        Ok(Box::new(move |opening| {
            let (channels, span) = (channels.clone(), span.clone());
            Ok(Box::new(CrossingsReader {
                opening,
                channels,
                level,
                span,
                lasting_ns,
                channel: 0,
                runs: None,
                last: None,
                newest: None,
                before: None,
                over_nan: false,
            }))
        }))
    };
    Call { open: open(), schema, ascending: &[] }
}

struct CrossingsReader {
    opening: Opening,
    channels: Arc<Vec<ChosenChannel>>,
    level: f64,
    span: Range<i64>,
    /// How far apart samples are between which the channel can cross.
    lasting_ns: u64,
    /// Channel being read.
    channel: usize,
    runs: Option<SampleRuns>,
    /// Sample that is not NaN, the newest or the one before; `None` if frames are missing since.
    last: Option<(i64, f64)>,
    /// Newest sample, not yet compared with that one: for a channel that holds its value, another of its time replaces
    /// it.
    newest: Option<(i64, f64)>,
    /// Time of the sample that was read last, also of one without a number.
    before: Option<i64>,
    /// Whether NaN lies between the two.
    over_nan: bool,
}

/// A crossing.
struct Crossing {
    time: i64,
    before: f64,
    after: f64,
}

impl CrossingsReader {
    /// Takes the crossing from the last sample to the newest, which becomes the last.
    fn take(&mut self, is_linear: bool) -> Option<Crossing> {
        let (to, after) = self.newest.take()?;
        let (from, before) = self.last.replace((to, after))?;
        let over_nan = std::mem::take(&mut self.over_nan);
        if (before >= self.level) == (after >= self.level) {
            return None;
        }
        // Half of each, so that no difference overflows.
        let share = (self.level / 2.0 - before / 2.0) / (after / 2.0 - before / 2.0);
        let has_line = is_linear && !over_nan && before.is_finite() && after.is_finite();
        let time = match has_line && share.is_finite() {
            true => from.saturating_add_unsigned((share * to.abs_diff(from) as f64).round() as u64).min(to),
            false => to,
        };
        self.span.contains(&time).then_some(Crossing { time, before, after })
    }
}

impl Reader for CrossingsReader {
    fn step(&mut self) -> Result<Step, QueryError> {
        self.opening.check()?;
        let Some(channel) = self.channels.get(self.channel).cloned() else { return Ok(Step::End) };
        if self.span.is_empty() {
            return Ok(Step::End);
        }
        if self.runs.is_none() {
            let (id, index) = (channel.stream.id, channel.index);
            // From the last sample before the start that is not NaN.
            let mut from = self.span.start.saturating_sub(1);
            for _ in 0..NANS_MAX {
                self.opening.check()?;
                let Some(mut cursor) = self.opening.cursor(&channel, from, from)? else { break };
                match cursor.seek(from)?.before {
                    Some((time, Some(value))) if value.as_f64().is_some_and(f64::is_nan) => {
                        from = time.saturating_sub(1)
                    }
                    _ => break,
                }
            }
            self.runs = self.opening.view.samples(id, index, from, self.span.end)?;
        }
        let run = match &mut self.runs {
            Some(runs) => runs.next_run()?,
            None => None,
        };
        let mut found = Vec::new();
        let mut is_done = run.is_none();
        if let Some(run) = &run {
            for at in 0..run.len() {
                let (time, value) = (run.time(at), run.value(at).and_then(|value| value.as_f64()));
                let is_same_time = self.newest.is_some_and(|(newest, _)| newest == time);
                let before = self.before.replace(time);
                let is_apart = run.has_gap(at) || before.is_some_and(|before| time.abs_diff(before) > self.lasting_ns);
                if channel.is_linear() || !is_same_time || is_apart || value.is_none() {
                    found.extend(self.take(channel.is_linear()));
                }
                if is_apart || value.is_none() {
                    (self.last, self.over_nan) = (None, false);
                }
                match value {
                    Some(value) if value.is_nan() => {
                        found.extend(self.take(channel.is_linear()));
                        self.over_nan = self.last.is_some();
                    }
                    Some(value) => self.newest = Some((time, value)),
                    None => {}
                }
                if time >= self.span.end {
                    is_done = true;
                    break;
                }
            }
        }
        if is_done {
            found.extend(self.take(channel.is_linear()));
        }
        let name = &channel.name;
        let names = text(found.iter().map(|_| name));
        if is_done {
            (self.runs, self.last, self.newest, self.over_nan) = (None, None, None, false);
            self.before = None;
            self.channel += 1;
        }
        if found.is_empty() {
            return Ok(Step::More);
        }
        Ok(Step::Rows(vec![
            names,
            micros(found.iter().map(|crossing| Some(crossing.time))),
            int8(found.iter().map(|crossing| Some(crossing.time))),
            Arc::new(BooleanArray::from_iter(found.iter().map(|crossing| Some(crossing.after >= self.level)))),
            Arc::new(Float64Array::from_iter_values(found.iter().map(|crossing| crossing.before))),
            Arc::new(Float64Array::from_iter_values(found.iter().map(|crossing| crossing.after))),
        ]))
    }
}
