//! `histogram`: how many samples of a channel lie in each bin of values.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Float64Array, new_null_array};
use datafusion::arrow::datatypes::DataType;
use strongback_store::SampleRuns;

use crate::error::{QueryError, sqlstate};
use crate::system::tables::{int8, text};
use crate::telemetry::arguments::{Arguments, ChosenChannel, invalid};
use crate::telemetry::number::between;
use crate::telemetry::scan::{Call, Open, Opening, Reader, Step, schema};

/// Maximum bins of a channel.
const BINS_MAX: i64 = 100_000;

/// Reads the arguments of `histogram`.
pub(crate) fn histogram(arguments: &Arguments<'_>) -> Call {
    let schema = schema([
        ("channel", DataType::Utf8),
        ("bin", DataType::Int64),
        ("low", DataType::Float64),
        ("high", DataType::Float64),
        ("count", DataType::Int64),
    ]);
    let open = || -> Result<Box<Open>, QueryError> {
        let (channels, span) = (Arc::new(arguments.channels(0, true)?), arguments.span(1)?);
        let bins = arguments.integer(3, 1..=BINS_MAX)? as usize;
        let range = match (arguments.has(4), arguments.has(5)) {
            (false, false) => None,
            (true, false) | (false, true) => {
                let error = invalid("histogram takes both low and high, or neither");
                let is_null = arguments.is_null(4) || arguments.is_null(5);
                return Err(if is_null { QueryError { sqlstate: sqlstate::NULL_NOT_ALLOWED, ..error } } else { error });
            }
            (true, true) => Some((arguments.number(4)?, arguments.number(5)?)),
        };
        if range.is_some_and(|(low, high)| low >= high) {
            return Err(invalid("low of histogram must be less than high"));
        }
        Ok(Box::new(move |opening| {
            let (channels, span, stage) = (channels.clone(), span.clone(), Stage::Begin);
            Ok(Box::new(HistogramReader { opening, channels, span, bins, range, channel: 0, stage }))
        }))
    };
    Call { open: open(), schema, ascending: &[] }
}

/// Bins of equal width.
struct Bins {
    low: f64,
    high: f64,
    /// Whether `high` belongs to the last bin, and there are none outside.
    closed: bool,
    /// Samples below the first bin, in each bin, and above the last.
    counts: Vec<i64>,
}

impl Bins {
    fn new((low, high): (f64, f64), closed: bool, bins: usize) -> Bins {
        Bins { low, high, closed, counts: vec![0; bins + 2] }
    }

    fn len(&self) -> usize {
        self.counts.len() - 2
    }

    /// Returns the lower bound of a bin from 0.
    fn edge(&self, bin: usize) -> f64 {
        match bin {
            0 => self.low,
            bin if bin == self.len() => self.high,
            bin => between(self.low, self.high, bin as f64 / self.len() as f64),
        }
    }

    fn add(&mut self, value: f64) {
        let at = if value < self.low {
            0
        } else if value >= self.high && !(self.closed && value == self.high) {
            self.len() + 1
        } else {
            // Half of both, so that no difference overflows.
            let share = (value / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0);
            let mut bin = if share.is_finite() { (share * self.len() as f64) as usize } else { 0 }.min(self.len() - 1);
            while bin > 0 && value < self.edge(bin) {
                bin -= 1;
            }
            while bin + 1 < self.len() && value >= self.edge(bin + 1) {
                bin += 1;
            }
            bin + 1
        };
        self.counts[at] += 1;
    }
}

enum Stage {
    Begin,
    /// Searching for the smallest and the largest value.
    Range(SampleRuns, Option<(f64, f64)>),
    Count(SampleRuns, Bins),
}

struct HistogramReader {
    opening: Opening,
    channels: Arc<Vec<ChosenChannel>>,
    span: Range<i64>,
    bins: usize,
    range: Option<(f64, f64)>,
    /// Channel being read.
    channel: usize,
    stage: Stage,
}

impl HistogramReader {
    /// Calls `each` with the next samples. Returns `false` if there are no more.
    fn read(&self, runs: &mut SampleRuns, mut each: impl FnMut(f64)) -> Result<bool, QueryError> {
        let Some(run) = runs.next_run()? else { return Ok(false) };
        for at in 0..run.len() {
            let time = run.time(at);
            if time >= self.span.end {
                return Ok(false);
            }
            if let Some(value) = run.value(at).and_then(|value| value.as_f64()).filter(|_| time >= self.span.start)
                && !value.is_nan()
            {
                each(value);
            }
        }
        Ok(true)
    }
}

impl Reader for HistogramReader {
    fn step(&mut self) -> Result<Step, QueryError> {
        self.opening.check()?;
        let Some(channel) = self.channels.get(self.channel).cloned() else { return Ok(Step::End) };
        let samples = || self.opening.view.samples(channel.stream.id, channel.index, self.span.start, self.span.end);
        match std::mem::replace(&mut self.stage, Stage::Begin) {
            Stage::Begin => match (samples()?, self.range) {
                (None, _) => self.channel += 1,
                (Some(runs), None) => self.stage = Stage::Range(runs, None),
                (Some(runs), Some(range)) => self.stage = Stage::Count(runs, Bins::new(range, false, self.bins)),
            },
            Stage::Range(mut runs, mut range) => {
                let more = self.read(&mut runs, |value| {
                    if value.is_finite() {
                        let (low, high) = range.unwrap_or((value, value));
                        range = Some((low.min(value), high.max(value)));
                    }
                })?;
                match (more, range, samples()?) {
                    (true, range, _) => self.stage = Stage::Range(runs, range),
                    (false, Some(range), Some(runs)) => {
                        self.stage = Stage::Count(runs, Bins::new(range, true, self.bins));
                    }
                    // No samples, so no range.
                    (false, ..) => {
                        self.channel += 1;
                        let bins = || 1..=self.bins as i64;
                        return Ok(Step::Rows(vec![
                            text(bins().map(|_| &channel.name)),
                            int8(bins().map(Some)),
                            new_null_array(&DataType::Float64, self.bins),
                            new_null_array(&DataType::Float64, self.bins),
                            int8(bins().map(|_| Some(0))),
                        ]));
                    }
                }
            }
            Stage::Count(mut runs, mut bins) => {
                if self.read(&mut runs, |value| bins.add(value))? {
                    self.stage = Stage::Count(runs, bins);
                    return Ok(Step::More);
                }
                self.channel += 1;
                let shown: Vec<usize> =
                    if bins.closed { (1..=bins.len()).collect() } else { (0..=bins.len() + 1).collect() };
                let low = |at: &usize| (*at > 0).then(|| bins.edge(at - 1));
                let high = |at: &usize| (*at <= bins.len()).then(|| bins.edge(*at));
                return Ok(Step::Rows(vec![
                    text(shown.iter().map(|_| &channel.name)),
                    int8(shown.iter().map(|at| Some(*at as i64))),
                    Arc::new(Float64Array::from_iter(shown.iter().map(low))),
                    Arc::new(Float64Array::from_iter(shown.iter().map(high))),
                    int8(shown.iter().map(|at| Some(bins.counts[*at]))),
                ]));
            }
        }
        Ok(Step::More)
    }
}
