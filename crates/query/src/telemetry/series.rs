//! `correlation` and `spectrum`: channels as evenly spaced series.

use std::f64::consts::TAU;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Float64Array, IntervalMonthDayNanoArray};
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};
use strongback_store::SampleCursor;

use crate::error::{QueryError, sqlstate};
use crate::system::tables::{int8, text};
use crate::telemetry::arguments::{Arguments, ChosenChannel};
use crate::telemetry::grid::{held, on_line};
use crate::telemetry::number::{Instants, finite, seconds};
use crate::telemetry::scan::{Call, Open, Opening, Reader, Step, schema};

/// Maximum instants of a series that is held in memory.
const SERIES_MAX: u64 = 4_000_000;
/// Maximum products of a correlation: about a minute.
const PRODUCTS_MAX: u64 = 50_000_000_000;
/// Products between two looks at the stop flag.
const PRODUCTS_PER_STEP: u64 = 10_000_000;
/// Instants that are read in one step.
const INSTANTS_PER_STEP: u64 = 4_096;
/// Values of a segment, by default and at most.
const SEGMENT: i64 = 1_024;
const SEGMENT_MAX: i64 = 1 << 20;

/// Values of a channel at the instants of a grid; NaN where there is none, or none that is finite.
struct Series {
    cursor: Option<SampleCursor>,
    is_on_line: bool,
    tolerance_ns: u64,
    instants: Instants,
    values: Vec<f64>,
}

impl Series {
    fn new(
        opening: &Opening,
        channel: &ChosenChannel,
        (is_on_line, tolerance_ns): (bool, u64),
        instants: &Instants,
    ) -> Result<Series, QueryError> {
        let cursor = opening.cursor(channel, instants.span.start, instants.span.end)?;
        Ok(Series { cursor, is_on_line, tolerance_ns, instants: instants.clone(), values: Vec::new() })
    }

    /// Reads on. Returns `false` if all is read.
    fn read(&mut self) -> Result<bool, QueryError> {
        let (from, count) = (self.values.len() as u64, self.instants.count());
        for at in from..count.min(from + INSTANTS_PER_STEP) {
            let time = self.instants.at(at);
            let value = match &mut self.cursor {
                None => None,
                Some(cursor) => {
                    let near = cursor.seek(time)?;
                    match self.is_on_line {
                        true => on_line(&near, time, self.tolerance_ns),
                        false => held(&near, time, self.tolerance_ns).and_then(|value| value.as_f64()),
                    }
                }
            };
            self.values.push(finite(value).unwrap_or(f64::NAN));
        }
        Ok((self.values.len() as u64) < count)
    }
}

/// Returns the instants of a series, unless there are too many.
fn instants(function: &str, span: Range<i64>, step_ns: u64) -> Result<Instants, QueryError> {
    let instants = Instants { span, step_ns };
    let count = instants.count();
    if count > SERIES_MAX {
        let message = format!("{function}: the grid has {count} instants, at most {SERIES_MAX} are held in memory");
        return Err(QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message).with_hint("Choose a longer step."));
    }
    Ok(instants)
}

/// Reads the arguments of `correlation`.
pub(crate) fn correlation(arguments: &Arguments<'_>) -> Call {
    let schema = schema([
        ("lag", DataType::Interval(IntervalUnit::MonthDayNano)),
        ("lag_ns", DataType::Int64),
        ("correlation", DataType::Float64),
        ("pairs", DataType::Int64),
    ]);
    let open = || -> Result<Box<Open>, QueryError> {
        let (channel, other) = (arguments.channel(0)?, arguments.channel(1)?);
        let (span, step_ns) = (arguments.span(2)?, arguments.step_ns(4)?);
        let lags = i64::try_from(arguments.tolerance_ns(5)? / step_ns).unwrap_or(i64::MAX);
        let (instants, rule) = (instants("correlation", span, step_ns)?, (false, arguments.tolerance_ns(6)?));
        let count = instants.count();
        let products = count.saturating_mul(lags as u64).saturating_mul(2);
        if products > PRODUCTS_MAX || lags as u64 > SERIES_MAX {
            let message = format!("correlation: {count} instants at {lags} displacements to both sides are too many");
            let error = QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message);
            return Err(error.with_hint("Choose a longer step, or a smaller lag_max."));
        }
        Ok(Box::new(move |opening| {
            let of = |channel: &ChosenChannel| Series::new(&opening, channel, rule, &instants);
            let series = [of(&channel)?, of(&other)?];
            Ok(Box::new(CorrelationReader { opening, series, lags, step_ns, next: -lags, is_centred: false }))
        }))
    };
    Call { open: open(), schema, ascending: &["lag_ns"] }
}

struct CorrelationReader {
    opening: Opening,
    series: [Series; 2],
    lags: i64,
    step_ns: u64,
    /// Next displacement, in steps.
    next: i64,
    /// Whether the mean was removed from both series, so that squares do not cancel.
    is_centred: bool,
}

/// Removes the mean of the numbers in a series.
fn centre(values: &mut [f64]) {
    let numbers = || values.iter().filter(|value| !value.is_nan());
    let count = numbers().count().max(1) as f64;
    let mean: f64 = numbers().map(|value| value / count).sum();
    values.iter_mut().for_each(|value| *value -= mean);
}

/// Returns Pearson's correlation of the pairs of numbers, with their number.
fn correlation_of(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> (Option<f64>, u64) {
    let pairs = pairs.filter(|(a, b)| !a.is_nan() && !b.is_nan());
    let (mut count, mut sum_a, mut sum_b) = (0u64, 0.0, 0.0);
    let (mut same_a, mut same_b) = (true, true);
    let mut first: Option<(f64, f64)> = None;
    for (a, b) in pairs.clone() {
        let (first_a, first_b) = *first.get_or_insert((a, b));
        (same_a, same_b) = (same_a && a == first_a, same_b && b == first_b);
        (count, sum_a, sum_b) = (count + 1, sum_a + a, sum_b + b);
    }
    if count < 2 || same_a || same_b {
        return (None, count);
    }
    let (mean_a, mean_b) = (sum_a / count as f64, sum_b / count as f64);
    let (mut aa, mut bb, mut ab) = (0.0, 0.0, 0.0);
    for (a, b) in pairs {
        let (a, b) = (a - mean_a, b - mean_b);
        (aa, bb, ab) = (aa + a * a, bb + b * b, ab + a * b);
    }
    let found = ab / (aa.sqrt() * bb.sqrt());
    (finite(Some(found)).map(|found| found.clamp(-1.0, 1.0)), count)
}

impl Reader for CorrelationReader {
    fn step(&mut self) -> Result<Step, QueryError> {
        self.opening.check()?;
        let [a, b] = &mut self.series;
        if a.read()? || b.read()? {
            return Ok(Step::More);
        }
        if !self.is_centred {
            centre(&mut a.values);
            centre(&mut b.values);
            self.is_centred = true;
        }
        let (a, b) = (&a.values, &b.values);
        if self.next > self.lags {
            return Ok(Step::End);
        }
        let at_a_time = (PRODUCTS_PER_STEP / (a.len() as u64).max(1)).clamp(1, self.opening.batch_rows as u64);
        let last = self.lags.min(self.next + at_a_time as i64 - 1);
        let lags: Vec<i64> = (self.next..=last).collect();
        let of_lag = |lag: &i64| {
            let shift = lag.unsigned_abs() as usize;
            let (a, b) = match *lag < 0 {
                true => (a.get(shift..).unwrap_or_default(), b.as_slice()),
                false => (a.as_slice(), b.get(shift..).unwrap_or_default()),
            };
            correlation_of(a.iter().copied().zip(b.iter().copied()))
        };
        let found: Vec<(Option<f64>, u64)> = lags.iter().map(of_lag).collect();
        self.next = last + 1;
        let lag_ns = |lag: &i64| lag.saturating_mul(self.step_ns as i64);
        let interval = lags.iter().map(|lag| Some(IntervalMonthDayNano::new(0, 0, lag_ns(lag))));
        Ok(Step::Rows(vec![
            Arc::new(IntervalMonthDayNanoArray::from_iter(interval)),
            int8(lags.iter().map(|lag| Some(lag_ns(lag)))),
            Arc::new(Float64Array::from_iter(found.iter().map(|(found, _)| *found))),
            int8(found.iter().map(|(_, pairs)| Some(*pairs as i64))),
        ]))
    }
}

/// Reads the arguments of `spectrum`.
pub(crate) fn spectrum(arguments: &Arguments<'_>) -> Call {
    let schema = schema([
        ("channel", DataType::Utf8),
        ("frequency", DataType::Float64),
        ("density", DataType::Float64),
        ("segments", DataType::Int64),
    ]);
    let open = || -> Result<Box<Open>, QueryError> {
        let (channels, span) = (Arc::new(arguments.channels(0, true)?), arguments.span(1)?);
        let instants = instants("spectrum", span, arguments.step_ns(3)?)?;
        let segment = if arguments.has(4) { arguments.integer(4, 2..=SEGMENT_MAX)? } else { SEGMENT } as usize;
        let tolerance_ns = arguments.tolerance_ns(5)?;
        Ok(Box::new(move |opening| {
            let fft = FftPlanner::new().plan_fft_forward(segment);
            let window: Vec<f64> =
                (0..segment).map(|at| 0.5 - 0.5 * (TAU * at as f64 / segment as f64).cos()).collect();
            let (channels, instants) = (channels.clone(), instants.clone());
            Ok(Box::new(SpectrumReader {
                opening,
                channels,
                instants,
                tolerance_ns,
                fft,
                window,
                channel: 0,
                under_way: None,
            }))
        }))
    };
    Call { open: open(), schema, ascending: &[] }
}

struct SpectrumReader {
    opening: Opening,
    channels: Arc<Vec<ChosenChannel>>,
    instants: Instants,
    tolerance_ns: u64,
    fft: Arc<dyn Fft<f64>>,
    window: Vec<f64>,
    /// Channel being read.
    channel: usize,
    under_way: Option<Spectrum>,
}

/// The spectrum of a channel so far.
struct Spectrum {
    series: Series,
    /// First value of the next segment.
    next: usize,
    power: Vec<f64>,
    segments: u64,
}

impl Spectrum {
    /// Adds the next segment. Returns `false` if there is none.
    fn add(&mut self, fft: &dyn Fft<f64>, window: &[f64]) -> bool {
        let length = window.len();
        let Some(values) = self.series.values.get(self.next..self.next + length) else { return false };
        self.next += length - length / 2;
        if values.iter().any(|value| value.is_nan()) {
            return true;
        }
        let mean: f64 = values.iter().map(|value| value / length as f64).sum();
        let mut buffer: Vec<Complex<f64>> =
            values.iter().zip(window).map(|(value, weight)| Complex::new((value - mean) * weight, 0.0)).collect();
        fft.process(&mut buffer);
        self.power.iter_mut().zip(&buffer).for_each(|(power, value)| *power += value.norm_sqr());
        self.segments += 1;
        true
    }
}

impl Reader for SpectrumReader {
    fn step(&mut self) -> Result<Step, QueryError> {
        self.opening.check()?;
        let Some(channel) = self.channels.get(self.channel) else { return Ok(Step::End) };
        let length = self.window.len();
        let mut spectrum = match self.under_way.take() {
            Some(spectrum) => spectrum,
            None => Spectrum {
                series: Series::new(&self.opening, channel, (true, self.tolerance_ns), &self.instants)?,
                next: 0,
                power: vec![0.0; length / 2 + 1],
                segments: 0,
            },
        };
        if spectrum.series.read()? || spectrum.add(self.fft.as_ref(), &self.window) {
            self.under_way = Some(spectrum);
            return Ok(Step::More);
        }
        let name = &channel.name;
        let step = seconds(self.instants.step_ns);
        let energy: f64 = self.window.iter().map(|weight| weight * weight).sum();
        let density = |(at, power): (usize, &f64)| {
            // All but the mean and the highest frequency of an even number stand for two.
            let is_single = at == 0 || 2 * at == length;
            power / spectrum.segments as f64 * step / energy * if is_single { 1.0 } else { 2.0 }
        };
        self.channel += 1;
        if spectrum.segments == 0 {
            return Ok(Step::More);
        }
        let bins = 0..spectrum.power.len();
        Ok(Step::Rows(vec![
            text(bins.clone().map(|_| name)),
            Arc::new(Float64Array::from_iter_values(bins.clone().map(|at| at as f64 / (length as f64 * step)))),
            Arc::new(Float64Array::from_iter_values(spectrum.power.iter().enumerate().map(density))),
            int8(bins.map(|_| Some(spectrum.segments as i64))),
        ]))
    }
}
