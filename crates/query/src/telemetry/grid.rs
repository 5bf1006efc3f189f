//! `resample` and `resample_runs`: channels on a grid of instants, one column each.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, Float64Array, Int64Array, new_null_array};
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::error::DataFusionError;
use strongback_store::{
    Bucket, ChannelIndex, ChannelType, Column, Computed, Neighbours, Pieces, Reduced, SampleCursor, Value, View, Weight,
};

use crate::error::{QueryError, sqlstate};
use crate::system::SystemRows;
use crate::system::tables::{int8, micros, text};
use crate::table::column::{arrow_type, changed, channel_array, timestamp_type};
use crate::telemetry::arguments::{Arguments, ChosenChannel, invalid, must_be_written};
use crate::telemetry::lockstep::{self, Lockstep};
use crate::telemetry::number::{Instants, finite, line};
use crate::telemetry::scan::{Call, Open, Opening, Reader, Step, schema};
use crate::telemetry::threads::{on_threads, threads};

/// Maximum instants of a grid.
const INSTANTS_MAX: u64 = 100_000_000;
/// Rows of a stream from which on pieces of time are divided among threads.
const DIVIDED_ROWS_MIN: u64 = 1 << 17;
/// Cells of a stream that are aggregated at a time, after which a statement can be stopped.
const CELLS_AT_A_TIME: u64 = 1 << 23;
/// Rows of a stream that are aggregated at a time.
const ROWS_AT_A_TIME: u64 = 1 << 21;

/// What the value of a channel is at an instant of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Previous,
    Linear,
    Rate,
    First,
    Last,
    Min,
    Max,
    Count,
    Mean,
    TimeMean,
    Integral,
}

/// All methods, by name.
const METHODS: [(&str, Method); 11] = [
    ("previous", Method::Previous),
    ("linear", Method::Linear),
    ("first", Method::First),
    ("last", Method::Last),
    ("min", Method::Min),
    ("max", Method::Max),
    ("count", Method::Count),
    ("mean", Method::Mean),
    ("time_mean", Method::TimeMean),
    ("integral", Method::Integral),
    ("rate", Method::Rate),
];

impl Method {
    fn parse(name: &str) -> Result<Method, QueryError> {
        let known = METHODS.iter().find(|(known, _)| *known == name);
        known.map(|(_, method)| *method).ok_or_else(|| {
            let names: Vec<&str> = METHODS.iter().map(|(name, _)| *name).collect();
            invalid(format!("there is no method {name:?}; the methods are {}", names.join(", ")))
        })
    }

    /// Reports whether it needs numbers.
    fn calculates(self) -> bool {
        !matches!(self, Method::Previous | Method::First | Method::Last | Method::Count)
    }

    /// Reports whether it looks at instants, not at pieces of time.
    fn is_at_instants(self) -> bool {
        matches!(self, Method::Previous | Method::Linear | Method::Rate)
    }

    /// Reports whether it weighs values by the time for which they hold.
    pub(super) fn is_over_time(self) -> bool {
        matches!(self, Method::TimeMean | Method::Integral)
    }

    /// Returns what is computed of the values of a piece of time.
    fn computed(self) -> Computed {
        Computed { extremes: matches!(self, Method::Min | Method::Max), means: self == Method::Mean }
    }

    /// Returns the type of its results.
    fn data_type(self, of: ChannelType) -> DataType {
        match self {
            Method::Previous | Method::First | Method::Last | Method::Min | Method::Max => arrow_type(of),
            Method::Count => DataType::Int64,
            Method::Linear | Method::Rate | Method::Mean | Method::TimeMean | Method::Integral => DataType::Float64,
        }
    }
}

/// Instants from `from` on, and what is wanted at each.
#[derive(Clone, Copy, Debug)]
pub(super) struct GridRule {
    pub(super) method: Method,
    pub(super) step_ns: u64,
    pub(super) tolerance_ns: u64,
}

/// Reads the arguments `step`, `method` and `tolerance`.
fn rule(arguments: &Arguments<'_>, at: usize) -> Result<GridRule, QueryError> {
    let method = Method::parse(arguments.text(at + 1)?)?;
    if arguments.has(at + 2) && !method.is_at_instants() && !method.is_over_time() {
        return Err(invalid("tolerance applies to the methods previous, linear, rate, time_mean and integral"));
    }
    let step_ns = arguments.step_ns(at)?;
    let tolerance_ns = match method.is_over_time() {
        true => arguments.lasting_ns(at + 2)?,
        false => arguments.tolerance_ns(at + 2)?,
    };
    Ok(GridRule { method, step_ns, tolerance_ns })
}

/// Returns the instants of a grid, unless there are too many.
fn instants(span: Range<i64>, step_ns: u64) -> Result<Instants, QueryError> {
    let instants = Instants { span, step_ns };
    let count = instants.count();
    if count > INSTANTS_MAX {
        let message = format!("the grid has {count} instants, at most {INSTANTS_MAX} are answered");
        return Err(QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message).with_hint("Choose a longer step."));
    }
    Ok(instants)
}

/// Replaces the error for an argument that must be written in the statement.
fn written(error: QueryError, function: &str) -> QueryError {
    must_be_written(error, "channels, runs and method", function)
}

/// Returns the channels and the method, which name and type the columns.
fn columns_of(
    arguments: &Arguments<'_>,
    function: &str,
    method_at: usize,
) -> Result<(Vec<ChosenChannel>, Method), QueryError> {
    let method = Method::parse(arguments.text(method_at).map_err(|error| written(error, function))?)?;
    let channels = arguments.channels(0, method.calculates()).map_err(|error| written(error, function))?;
    Ok((channels, method))
}

/// Reads the arguments of `resample`.
pub(crate) fn resample(arguments: &Arguments<'_>) -> Result<Call, QueryError> {
    let (channels, method) = columns_of(arguments, "resample", 4)?;
    let fixed = [("time".to_owned(), timestamp_type()), ("time_ns".to_owned(), DataType::Int64)];
    let of_channels = channels.iter().map(|c| (c.name.clone(), method.data_type(c.channel_type())));
    let schema = schema(fixed.into_iter().chain(of_channels));
    let open = || -> Result<Box<Open>, QueryError> {
        let (span, rule) = (arguments.span(1)?, rule(arguments, 3)?);
        let instants = instants(span, rule.step_ns)?;
        let of = schema.clone();
        Ok(Box::new(move |opening| {
            let of_run = RunGrid {
                run: String::new(),
                t0: 0,
                instants: instants.clone(),
                channels: channels.iter().cloned().map(Some).collect(),
            };
            Ok(Box::new(GridReader::new(opening, of.clone(), false, rule, vec![of_run])))
        }))
    };
    Ok(Call { open: open(), schema: schema.clone(), ascending: &["time", "time_ns"] })
}

/// Reads the arguments of `resample_runs`.
pub(crate) fn resample_runs(arguments: &Arguments<'_>, system: &Arc<dyn SystemRows>) -> Result<Call, QueryError> {
    let (channels, method) = columns_of(arguments, "resample_runs", 5)?;
    let wanted = arguments.text(1).map_err(|error| written(error, "resample_runs"))?;
    let known = system.runs();
    let mut runs: Vec<_> = known.iter().filter(|run| matches(wanted, &run.name)).collect();
    if wanted.contains('*') && runs.iter().any(|run| run.t0_now_ns.is_some()) {
        runs.retain(|run| run.t0_now_ns.is_some());
    }
    runs.sort_by_key(|run| (run.t0_now_ns, run.name.clone()));
    if runs.is_empty() {
        return Err(QueryError::new(sqlstate::UNDEFINED_OBJECT, format!("no run matches {wanted}")));
    }
    // A column holds one channel of each run.
    let mut columns: BTreeMap<String, Vec<&ChosenChannel>> = BTreeMap::new();
    for channel in &channels {
        let run = channel.stream.key.tag("run");
        if run.is_none_or(|run| runs.iter().any(|known| known.name == run)) {
            columns.entry(channel.name_without_run()).or_default().push(channel);
        }
    }
    if columns.is_empty() {
        let message = format!("no channel of these runs matches {}", arguments.text(0)?);
        return Err(QueryError::new(sqlstate::UNDEFINED_COLUMN, message));
    }
    let mut kinds = Vec::new();
    for (name, of) in &columns {
        let wide = of.iter().skip(1).try_fold(of[0].channel_type(), |wide, c| wide.widen(c.channel_type()));
        let Some(kind) = wide else {
            let message = format!("channels {name} of these runs have types that no column holds");
            return Err(QueryError::new(sqlstate::DATATYPE_MISMATCH, message));
        };
        kinds.push((name.clone(), method.data_type(kind)));
    }
    let fixed = [("run", DataType::Utf8), ("run_time_ns", DataType::Int64)];
    let times = [("time", timestamp_type()), ("time_ns", DataType::Int64)];
    let fixed = fixed.into_iter().chain(times).map(|(name, kind)| (name.to_owned(), kind));
    let schema = schema(fixed.chain(kinds));
    let open = || -> Result<Box<Open>, QueryError> {
        let (from, to) = (arguments.duration_ns(2)?, arguments.duration_ns(3)?);
        if from > to {
            return Err(invalid("from of resample_runs is after to"));
        }
        let rule = rule(arguments, 4)?;
        instants(from..to, rule.step_ns)?;
        let mut grids = Vec::new();
        for run in &runs {
            let Some(t0) = run.t0_now_ns else {
                return Err(invalid(format!("run {} has no T-0", run.name)));
            };
            let of_run = |all: &Vec<&ChosenChannel>| {
                let own = all.iter().find(|c| c.stream.key.tag("run") == Some(&run.name));
                own.or_else(|| all.iter().find(|c| c.stream.key.tag("run").is_none())).map(|c| (*c).clone())
            };
            grids.push(RunGrid {
                run: run.name.clone(),
                t0,
                instants: Instants { span: t0.saturating_add(from)..t0.saturating_add(to), step_ns: rule.step_ns },
                channels: columns.values().map(of_run).collect(),
            });
        }
        let of = schema.clone();
        Ok(Box::new(move |opening| Ok(Box::new(GridReader::new(opening, of.clone(), true, rule, grids.clone())))))
    };
    Ok(Call { open: open(), schema: schema.clone(), ascending: &[] })
}

/// Reports whether a name matches a pattern, in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(end)
}

/// The grid of a run, or the only one.
#[derive(Clone)]
pub(super) struct RunGrid {
    run: String,
    t0: i64,
    pub(super) instants: Instants,
    /// The channel of each column, if the run has it.
    channels: Vec<Option<ChosenChannel>>,
}

impl RunGrid {
    /// Returns the span from the first of some instants to the end of the piece of the last.
    pub(super) fn span_of(&self, times: &[i64]) -> Range<i64> {
        match (times.first(), times.last()) {
            (Some(first), Some(last)) => *first..self.instants.piece(*last).end,
            _ => 0..0,
        }
    }
}

struct GridReader {
    opening: Opening,
    schema: SchemaRef,
    has_runs: bool,
    rule: GridRule,
    grids: Vec<RunGrid>,
    /// Grid being read, and its next instant.
    grid: usize,
    next: u64,
    /// For each column, its cursor while a grid is read.
    cursors: Vec<Option<SampleCursor>>,
}

impl GridReader {
    fn new(opening: Opening, schema: SchemaRef, has_runs: bool, rule: GridRule, grids: Vec<RunGrid>) -> GridReader {
        GridReader { opening, schema, has_runs, rule, grids, grid: 0, next: 0, cursors: Vec::new() }
    }

    /// Returns the rows that a step holds on average, from some instants on, of the stream that has most.
    fn rows_per_step(&self, grid: &RunGrid, times: &[i64]) -> u64 {
        let span = grid.span_of(times);
        let of_channel = |channel: &ChosenChannel| rows_in(&self.opening.view, channel, &span);
        let rows = grid.channels.iter().flatten().map(of_channel).max().unwrap_or(0);
        rows.div_ceil(times.len().max(1) as u64)
    }
}

/// Returns the number of pieces of time to aggregate in one step, from the piece at `next` on: at least one, and at most
/// `most`. `wanted` is the number of channels that are aggregated.
pub(crate) fn pieces_at_a_time(
    view: &View,
    channels: &[&ChosenChannel],
    wanted: u64,
    (instants, next, most): (&Instants, u64, u64),
) -> u64 {
    let rows_max = ROWS_AT_A_TIME.min(CELLS_AT_A_TIME / wanted.max(1));
    let rows = |count: u64| {
        let span = instants.at(next)..instants.at(next + count);
        channels.iter().map(|channel| rows_in(view, channel, &span)).max().unwrap_or(0)
    };
    let mut count = most;
    while count > 1 && rows(count) > rows_max {
        count /= 2;
    }
    count.max(1)
}

/// Returns the rows of a channel's stream in a span of this length, as far as they are spread evenly.
pub(crate) fn rows_within(view: &View, channel: &ChosenChannel, length_ns: u64) -> u64 {
    let Some((first, last)) = view.time_range(channel.stream.id) else { return 0 };
    let share = length_ns as f64 / (last.abs_diff(first) as f64).max(1.0);
    (view.next_row(channel.stream.id) as f64 * share.min(1.0)) as u64
}

/// Returns the rows of a channel's stream in a span, as far as they are spread evenly.
pub(crate) fn rows_in(view: &View, channel: &ChosenChannel, span: &Range<i64>) -> u64 {
    let Some((first, last)) = view.time_range(channel.stream.id) else { return 0 };
    let (from, to) = (span.start.max(first), span.end.min(last.saturating_add(1)));
    if from < to { rows_within(view, channel, to.abs_diff(from)) } else { 0 }
}

impl Reader for GridReader {
    fn step(&mut self) -> Result<Step, QueryError> {
        let Some(grid) = self.grids.get(self.grid) else { return Ok(Step::End) };
        let total = grid.instants.count();
        if self.next >= total {
            (self.grid, self.next) = (self.grid + 1, 0);
            self.cursors.clear();
            return Ok(Step::More);
        }
        let mut rows = (total - self.next).min(self.opening.batch_rows as u64);
        if !self.rule.method.is_at_instants() {
            let channels = self.opening.wanted.iter().filter(|wanted| **wanted).count() as u64;
            let channels_of_grid: Vec<&ChosenChannel> = grid.channels.iter().flatten().collect();
            rows = pieces_at_a_time(&self.opening.view, &channels_of_grid, channels, (&grid.instants, self.next, rows));
        }
        let times: Vec<i64> = (self.next..self.next + rows).map(|at| grid.instants.at(at)).collect();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        if self.has_runs {
            columns.push(text(times.iter().map(|_| &grid.run)));
            columns.push(int8(times.iter().map(|time| Some(time.saturating_sub(grid.t0)))));
        }
        columns.push(micros(times.iter().copied().map(Some)));
        columns.push(Arc::new(Int64Array::from(times.clone())));
        if self.cursors.is_empty() {
            self.cursors.resize_with(grid.channels.len(), || None);
        }
        let fixed = columns.len();
        let column = |at: usize| {
            let channel = grid.channels[at].as_ref().filter(|_| self.opening.wanted[fixed + at])?;
            let kind = self.schema.field(fixed + at).data_type();
            Some(GridColumn { opening: &self.opening, channel, kind, rule: self.rule, grid })
        };
        let wanted: Vec<(usize, GridColumn<'_>)> =
            (0..grid.channels.len()).filter_map(|at| Some((at, column(at)?))).collect();
        let of_channels = grid.channels.iter().zip(fixed..);
        columns.extend(of_channels.map(|(_, at)| new_null_array(self.schema.field(at).data_type(), times.len())));
        match self.rule.method {
            method if method.is_at_instants() || method.is_over_time() => {
                let cursors = wanted.iter().map(|(at, _)| self.cursors[*at].take()).collect();
                let parts = lockstep::divide(&wanted, cursors, (&times, self.rows_per_step(grid, &times)));
                let mut arrays: Vec<Vec<ArrayRef>> = vec![Vec::new(); grid.channels.len()];
                for (at, (array, cursor)) in on_threads(parts, Lockstep::read)?.into_iter().flatten() {
                    arrays[at].push(array);
                    self.cursors[at] = cursor;
                }
                for (at, parts) in arrays.iter().enumerate().filter(|(_, parts)| !parts.is_empty()) {
                    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
                    columns[fixed + at] = concat(&parts).map_err(DataFusionError::from)?;
                }
            }
            _ => {
                // The channels of a stream are read together.
                for of_stream in wanted.chunk_by(|(_, a), (_, b)| a.channel.stream.id == b.channel.stream.id) {
                    let reduced = self.aggregated(grid, of_stream, &times)?;
                    for ((at, column), reduced) in of_stream.iter().zip(reduced) {
                        columns[fixed + at] = column.aggregates(reduced, &times)?;
                    }
                }
            }
        }
        self.next += rows;
        Ok(Step::Rows(columns))
    }
}

impl GridReader {
    /// Aggregates the samples of pieces of time, for columns whose channels are of one stream.
    fn aggregated(
        &self,
        grid: &RunGrid,
        columns: &[(usize, GridColumn<'_>)],
        times: &[i64],
    ) -> Result<Vec<Reduced>, QueryError> {
        self.opening.check()?;
        let Some((_, column)) = columns.first() else { return Ok(Vec::new()) };
        let channels: Vec<ChannelIndex> = columns.iter().map(|(_, column)| column.channel.index).collect();
        let is_long = self.rows_per_step(grid, times).saturating_mul(times.len() as u64) >= DIVIDED_ROWS_MIN;
        let parts = if is_long { threads() } else { 1 };
        let parts = times.chunks(times.len().div_ceil(parts).max(1));
        let reduced = on_threads(parts, |times| {
            let pieces = Pieces {
                time: grid.span_of(times),
                width_ns: self.rule.step_ns,
                plain_max: 0,
                computed: self.rule.method.computed(),
            };
            Ok(self.opening.view.reduce_columns(column.channel.stream.id, &channels, &pieces)?)
        })?;
        // Parts follow one another, with the buckets of each channel.
        let mut reduced = reduced.into_iter();
        let mut all = reduced.next().unwrap_or_default();
        for part in reduced {
            all.iter_mut().zip(part).for_each(|(all, part)| all.buckets.extend(part.buckets));
        }
        Ok(all)
    }
}

/// A column of some instants.
pub(super) struct GridColumn<'a> {
    pub(super) opening: &'a Opening,
    pub(super) channel: &'a ChosenChannel,
    kind: &'a DataType,
    pub(super) rule: GridRule,
    pub(super) grid: &'a RunGrid,
}

impl GridColumn<'_> {
    /// Converts values of the channel's type to the column's.
    pub(super) fn typed(&self, values: Column) -> Result<ArrayRef, QueryError> {
        let changed = || changed(&self.channel.name);
        let array = channel_array(&values, values.values.channel_type()).ok_or_else(changed)?;
        // Another run's channel can be wider.
        if array.data_type() == self.kind { Ok(array) } else { cast(&array, self.kind).map_err(|_| changed()) }
    }

    /// Returns the aggregates of pieces of time.
    fn aggregates(&self, reduced: Reduced, times: &[i64]) -> Result<ArrayRef, QueryError> {
        let mut found = reduced.buckets.into_iter().peekable();
        let buckets: Vec<Option<Bucket>> =
            times.iter().map(|time| found.next_if(|bucket| bucket.time == *time)).collect();
        let method = self.rule.method;
        Ok(match method {
            Method::Count => {
                Arc::new(Int64Array::from_iter_values(buckets.iter().map(|b| b.as_ref().map_or(0, |b| b.count as i64))))
            }
            Method::Mean => Arc::new(Float64Array::from_iter(buckets.iter().map(|b| b.as_ref().and_then(|b| b.mean)))),
            _ => {
                let mut values = Column::with_capacity(self.channel.channel_type(), times.len());
                for bucket in &buckets {
                    values.push(bucket.as_ref().and_then(|bucket| match method {
                        Method::First => Some(bucket.first.as_value()),
                        Method::Last => Some(bucket.last.as_value()),
                        Method::Min => bucket.min,
                        _ => bucket.max,
                    }));
                }
                self.typed(values)?
            }
        })
    }
}

/// Returns the integral over time in seconds, if the value is known at any time.
pub(crate) fn integral(weight: &Weight) -> Option<f64> {
    (weight.integral.known_ns > 0).then(|| weight.integral.value_ns / 1e9)
}

/// Returns the value at an instant: the newest sample, unless frames are missing since or it is too old.
pub(crate) fn held<'a>(near: &Neighbours<'a>, time: i64, tolerance_ns: u64) -> Option<Value<'a>> {
    let (since, value) = near.before?;
    let is_missing = near.gap && since < time;
    value.filter(|_| !is_missing && time.abs_diff(since) <= tolerance_ns)
}

/// Returns the value at an instant on the line between two samples.
pub(crate) fn on_line(near: &Neighbours<'_>, time: i64, tolerance_ns: u64) -> Option<f64> {
    let (since, value) = near.before?;
    let value = value?.as_f64()?;
    if since == time {
        return Some(value);
    }
    let (next, after) = near.after?;
    let after = after?.as_f64()?;
    let is_apart = near.gap || next.abs_diff(since) > tolerance_ns;
    let (value, after) = (finite(Some(value))?, finite(Some(after))?);
    (!is_apart).then(|| line((since, value), (next, after), time))
}

/// Returns a number in the type of a channel, rounded if it holds whole numbers.
pub(super) fn of_number(number: f64, kind: ChannelType) -> Option<Value<'static>> {
    match kind {
        ChannelType::F64 => Some(Value::F64(number)),
        ChannelType::F32 => Some(Value::F32(number as f32)),
        _ => Value::I64(number.round() as i64).convert(kind),
    }
}
