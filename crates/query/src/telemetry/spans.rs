//! `states` and `intervals`: spans of time in which a channel kept its value, or a condition holds.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, Float64Array, IntervalMonthDayNanoArray, StringArray};
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};
use strongback_store::{NextFrame, OrderedFrames, OwnedValue, Pattern, SampleCursor, SampleRuns, Value, View};

use crate::error::{QueryError, sqlstate};
use crate::expression::{Cell, Expression, Kind, Moment, Program};
use crate::system::state::put_text;
use crate::system::tables::{int8, micros, text};
use crate::table::column::timestamp_type;
use crate::telemetry::arguments::{Arguments, ChosenChannel, invalid, matching_channels, only};
use crate::telemetry::frames::{Grouped, next_of};
use crate::telemetry::number::number_of;
use crate::telemetry::scan::{Call, Open, Opening, Reader, Step, schema};

/// Moments of a condition that are evaluated together.
const MOMENTS: usize = 1_024;

/// Returns the columns of a span of time.
fn span_columns() -> [(&'static str, DataType); 6] {
    [
        ("from_time", timestamp_type()),
        ("from_time_ns", DataType::Int64),
        ("to_time", timestamp_type()),
        ("to_time_ns", DataType::Int64),
        ("duration", DataType::Interval(IntervalUnit::MonthDayNano)),
        ("duration_ns", DataType::Int64),
    ]
}

/// Makes the columns of spans.
fn span_arrays(spans: &[Range<i64>]) -> Vec<ArrayRef> {
    let length = |span: &Range<i64>| span.end.saturating_sub(span.start);
    let interval = spans.iter().map(|span| Some(IntervalMonthDayNano::new(0, 0, length(span))));
    vec![
        micros(spans.iter().map(|span| Some(span.start))),
        int8(spans.iter().map(|span| Some(span.start))),
        micros(spans.iter().map(|span| Some(span.end))),
        int8(spans.iter().map(|span| Some(span.end))),
        Arc::new(IntervalMonthDayNanoArray::from_iter(interval)),
        int8(spans.iter().map(|span| Some(length(span)))),
    ]
}

/// Reads the arguments of `states`.
pub(crate) fn states(arguments: &Arguments<'_>) -> Call {
    let value = [("value", DataType::Utf8), ("number", DataType::Float64), ("open", DataType::Boolean)];
    let schema = schema([("channel", DataType::Utf8)].into_iter().chain(span_columns()).chain(value));
    let open = || -> Result<Box<Open>, QueryError> {
        let channels = Arc::new(arguments.channels(0, false)?);
        let span = arguments.known_span(1, channels.iter().map(|channel| &channel.stream))?;
        let lasting_ns = arguments.lasting_ns(3)?;
        Ok(Box::new(move |opening| {
            let (channels, span) = (channels.clone(), span.clone());
            Ok(Box::new(StatesReader {
                opening,
                channels,
                span,
                lasting_ns,
                channel: 0,
                runs: None,
                last: None,
                state: None,
            }))
        }))
    };
    Call { open: open(), schema, ascending: &[] }
}

/// A span with the value of a channel.
struct State {
    span: Range<i64>,
    value: OwnedValue,
    open: bool,
}

struct StatesReader {
    opening: Opening,
    channels: Arc<Vec<ChosenChannel>>,
    span: Range<i64>,
    /// How long a value lasts after its sample.
    lasting_ns: u64,
    /// Channel being read.
    channel: usize,
    runs: Option<SampleRuns>,
    /// Newest sample.
    last: Option<(i64, Option<OwnedValue>)>,
    /// Span that may continue.
    state: Option<State>,
}

/// Reports whether two values count as equal.
fn is_equal(a: &OwnedValue, b: &OwnedValue) -> bool {
    match (a.as_value(), b.as_value()) {
        (Value::F64(a), Value::F64(b)) => a == b || a.is_nan() && b.is_nan(),
        (Value::F32(a), Value::F32(b)) => a == b || a.is_nan() && b.is_nan(),
        _ => a == b,
    }
}

impl StatesReader {
    /// Adds the span from the newest sample to the next one, if there is one, and replaces the newest.
    fn follow(&mut self, next: Option<(i64, Option<OwnedValue>)>, gap: bool, states: &mut Vec<State>) {
        let until = next.as_ref().map(|(time, _)| *time);
        let last = std::mem::replace(&mut self.last, next);
        let Some((time, Some(value))) = last else {
            states.extend(self.state.take());
            return;
        };
        let end = match until {
            _ if gap => time,
            Some(until) => until,
            None => i64::MAX,
        };
        // A value that is too old ends as before a gap, but counts until then.
        let lasts_to = time.saturating_add_unsigned(self.lasting_ns);
        let (is_over, is_open) = (end > lasts_to, until.is_none() && !gap && lasts_to >= self.span.end);
        let (start, end) = (time.max(self.span.start), end.min(lasts_to).min(self.span.end));
        // Of equal times the later sample counts. A sample just before a gap has a span without length.
        let is_instant = gap && until != Some(time) && time >= self.span.start && time < self.span.end;
        if start < end || start == end && is_instant {
            match &mut self.state {
                Some(before) if before.span.end == start && is_equal(&before.value, &value) => {
                    (before.span.end, before.open) = (end, is_open);
                }
                state => {
                    let next = State { span: start..end, value, open: is_open };
                    states.extend(state.replace(next));
                }
            }
        }
        if gap || is_over {
            states.extend(self.state.take());
        }
    }
}

impl Reader for StatesReader {
    fn step(&mut self) -> Result<Step, QueryError> {
        self.opening.check()?;
        let Some(channel) = self.channels.get(self.channel).cloned() else { return Ok(Step::End) };
        if self.span.is_empty() {
            return Ok(Step::End);
        }
        if self.runs.is_none() {
            let (id, index) = (channel.stream.id, channel.index);
            self.runs = self.opening.view.samples(id, index, self.span.start, self.span.end)?;
        }
        let mut states = Vec::new();
        let mut is_done = true;
        let run = match &mut self.runs {
            Some(runs) => runs.next_run()?,
            None => None,
        };
        if let Some(run) = run {
            is_done = false;
            for at in 0..run.len() {
                let time = run.time(at);
                self.follow(Some((time, run.value(at).map(OwnedValue::of))), run.has_gap(at), &mut states);
                if time >= self.span.end {
                    is_done = true;
                    break;
                }
            }
        } else {
            let gap = self.runs.as_ref().is_some_and(SampleRuns::ends_with_gap);
            self.follow(None, gap, &mut states);
        }
        if is_done {
            states.extend(self.state.take());
            (self.runs, self.last) = (None, None);
            self.channel += 1;
        }
        if states.is_empty() {
            return Ok(Step::More);
        }
        let values = states.iter().map(|state| {
            let mut value = String::new();
            put_text(&mut value, state.value.as_value());
            value
        });
        let mut columns = vec![text(states.iter().map(|_| &channel.name))];
        columns.extend(span_arrays(&states.iter().map(|state| state.span.clone()).collect::<Vec<_>>()));
        columns.push(Arc::new(StringArray::from_iter_values(values)));
        let number = |state: &State| number_of(state.value.as_value().as_f64());
        columns.push(Arc::new(Float64Array::from_iter(states.iter().map(number))));
        columns.push(Arc::new(BooleanArray::from_iter(states.iter().map(|state| Some(state.open)))));
        Ok(Step::Rows(columns))
    }
}

/// Reads the arguments of `intervals`.
pub(crate) fn intervals(arguments: &Arguments<'_>, view: &View) -> Call {
    let open_column = [("open", DataType::Boolean)];
    let schema = schema(span_columns().into_iter().chain(open_column));
    let open = || -> Result<Box<Open>, QueryError> {
        let condition = Condition::parse(arguments.text(0)?, view)?;
        let span = arguments.known_span(1, condition.channels.iter().map(|channel| &channel.stream))?;
        let lasting_ns = arguments.lasting_ns(3)?;
        Ok(Box::new(move |opening| {
            Ok(Box::new(IntervalsReader::new(opening, &condition, (span.clone(), lasting_ns))?))
        }))
    };
    Call { open: open(), schema, ascending: &["from_time", "from_time_ns"] }
}

/// A condition whose channels are known.
struct Condition {
    expression: Expression,
    /// Its channels.
    channels: Vec<ChosenChannel>,
    /// Their kinds in expressions.
    kinds: Vec<Kind>,
}

impl Condition {
    fn parse(text: &str, view: &View) -> Result<Condition, QueryError> {
        let wrong = |error: crate::expression::ExpressionError| invalid(format!("condition of intervals: {error}"));
        let expression = Expression::parse(text).map_err(wrong)?;
        let (mut channels, mut kinds) = (Vec::new(), Vec::new());
        for named in expression.channels() {
            let pattern = Pattern::parse(&named.name)?;
            let found = matching_channels(view, std::slice::from_ref(&pattern))?;
            if found.is_empty() {
                let message = format!("condition of intervals: there is no channel {}", named.name);
                return Err(QueryError::new(sqlstate::UNDEFINED_COLUMN, message));
            }
            let channel = only(found, &named.name).map_err(|count| {
                invalid(format!("condition of intervals: {count} channels match {}; add the tags", named.name))
            })?;
            let Some(kind) = Kind::of_channel(channel.channel_type()) else {
                let message = format!("condition of intervals: {} is an array or a blob", named.name);
                return Err(QueryError::new(sqlstate::DATATYPE_MISMATCH, message));
            };
            channels.push(channel);
            kinds.push(kind);
        }
        if channels.is_empty() {
            return Err(invalid("condition of intervals: it has no channel; write channels in double quotes"));
        }
        let condition = Condition { expression, channels, kinds };
        match condition.program()?.kind() {
            Kind::Bool => Ok(condition),
            _ => Err(invalid("condition of intervals: its value is not true or false")),
        }
    }

    fn program(&self) -> Result<Program, QueryError> {
        let program = self.expression.compile(&self.kinds);
        program.map_err(|error| invalid(format!("condition of intervals: {error}")))
    }
}

struct IntervalsReader {
    opening: Opening,
    program: Program,
    span: Range<i64>,
    /// How long values last after their samples.
    lasting_ns: u64,
    frames: OrderedFrames,
    /// Its channels by stream, as `frames` has them, and the kind of each in the expression.
    grouped: Grouped,
    kinds: Vec<Kind>,
    /// Cursor of each channel, for its gaps.
    cursors: Vec<Option<SampleCursor>>,
    /// Moments to be evaluated.
    moments: Vec<Moment>,
    /// Start of the span in which the condition holds, and the time at which the first of its values is too old.
    since: Option<i64>,
    lasts_to: i64,
    /// Newest time that was evaluated, with the result; judged once a later time follows.
    newest: Option<(i64, bool)>,
    found: VecDeque<(Range<i64>, bool)>,
    has_ended: bool,
}

impl IntervalsReader {
    fn new(
        opening: Opening,
        condition: &Condition,
        (span, lasting_ns): (Range<i64>, u64),
    ) -> Result<IntervalsReader, QueryError> {
        let mut program = condition.program()?;
        let mut cursors = Vec::new();
        for (place, (channel, kind)) in condition.channels.iter().zip(&condition.kinds).enumerate() {
            let mut cursor = opening.cursor(channel, span.start, span.end)?;
            // The value from before; frames at the start itself follow as moments.
            if let Some(before) = span.start.checked_sub(1)
                && let Some(mut cursor) = opening.cursor(channel, before, before)?
                && let Some((time, Some(value))) = cursor.seek(before)?.before
                && let Some(cell) = Cell::of_value(value).and_then(|cell| cell.into_kind(*kind))
            {
                program.begin(place, cell, time);
            }
            if let Some(cursor) = &mut cursor {
                cursor.seek(span.start)?;
            }
            cursors.push(cursor);
        }
        let grouped = Grouped::of(&condition.channels);
        let frames = grouped.frames(&opening, &span);
        let kinds = condition.kinds.clone();
        let moments = match span.is_empty() {
            true => Vec::new(),
            false => vec![Moment { time: span.start, is_trigger: true, cells: Vec::new() }],
        };
        let (since, newest, found, has_ended) = (None, None, VecDeque::new(), false);
        Ok(IntervalsReader {
            opening,
            program,
            span,
            lasting_ns,
            frames,
            grouped,
            kinds,
            cursors,
            moments,
            since,
            lasts_to: i64::MAX,
            newest,
            found,
            has_ended,
        })
    }

    /// Ends the span at the time at which a value in it is too old, if that is before `time`.
    fn end_by(&mut self, time: i64) {
        if self.lasts_to < time
            && let Some(since) = self.since.take()
        {
            self.found.push_back((since..self.lasts_to, false));
        }
    }

    /// Judges the newest time, of which all moments were evaluated.
    fn judge(&mut self) -> Result<(), QueryError> {
        let Some((time, holds)) = self.newest.take() else { return Ok(()) };
        self.end_by(time);
        let (mut is_known, mut goes_on, mut lasts_to) = (true, true, i64::MAX);
        for cursor in &mut self.cursors {
            let Some(cursor) = cursor else {
                is_known = false;
                continue;
            };
            let near = cursor.seek(time)?;
            let (since, value) = near.before.map_or((time, None), |(since, value)| (since, value));
            is_known &= value.is_some() && !(near.gap && since < time);
            goes_on &= !near.gap;
            lasts_to = lasts_to.min(since.saturating_add_unsigned(self.lasting_ns));
        }
        let holds = holds && is_known && time < lasts_to;
        self.lasts_to = lasts_to;
        match self.since {
            Some(since) if !holds => {
                self.found.push_back((since..time, false));
                self.since = None;
            }
            None if holds => self.since = Some(time),
            _ => {}
        }
        if let Some(since) = self.since.filter(|_| !goes_on) {
            self.found.push_back((since..time, false));
            self.since = None;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<(), QueryError> {
        let moments = std::mem::take(&mut self.moments);
        let mut results = Vec::with_capacity(moments.len());
        let troubles = self.program.evaluate(&moments, &mut results);
        if troubles.failed > 0 {
            let why = troubles.why.unwrap_or_default();
            let message = format!("condition of intervals cannot be evaluated at some frames: {why}");
            return Err(QueryError::new(sqlstate::DATA_EXCEPTION, message));
        }
        for (moment, result) in moments.iter().zip(results) {
            if self.newest.is_some_and(|(time, _)| time != moment.time) {
                self.judge()?;
            }
            self.newest = Some((moment.time, result == Some(Cell::Bool(true))));
        }
        Ok(())
    }
}

impl Reader for IntervalsReader {
    fn step(&mut self) -> Result<Step, QueryError> {
        self.opening.check()?;
        if self.has_ended {
            return Ok(Step::End);
        }
        let mut is_last = false;
        while self.moments.len() < MOMENTS {
            match next_of(&mut self.frames)? {
                Some(NextFrame::At(_)) => {}
                Some(_) => {
                    is_last = true;
                    break;
                }
                None => break,
            }
            let Some(frame) = self.frames.frame() else { break };
            let read = frame.batch.columns.iter().zip(&self.grouped.channels[frame.stream]);
            let cells = read.filter_map(|(column, (_, place))| {
                let value = column.cell(frame.row).ok()?;
                Some((*place, Cell::of_value(value)?.into_kind(self.kinds[*place])?))
            });
            self.moments.push(Moment { time: frame.position.time, is_trigger: true, cells: cells.collect() });
            self.frames.advance();
        }
        self.evaluate()?;
        if is_last {
            self.judge()?;
            self.end_by(self.span.end);
            self.has_ended = true;
            if let Some(since) = self.since.take() {
                // Whether anything is stored after the span, which would end it later.
                let mut open = true;
                for cursor in self.cursors.iter_mut().flatten() {
                    open &= cursor.seek(self.span.end.saturating_sub(1))?.after.is_none();
                }
                self.found.push_back((since..self.span.end, open));
            }
        }
        if self.found.is_empty() {
            return Ok(Step::More);
        }
        let found = std::mem::take(&mut self.found);
        let spans: Vec<Range<i64>> = found.iter().map(|(span, _)| span.clone()).collect();
        let mut columns = span_arrays(&spans);
        columns.push(Arc::new(BooleanArray::from_iter(found.iter().map(|(_, open)| Some(*open)))));
        Ok(Step::Rows(columns))
    }
}
