//! The samples of a channel in the order of time, run by run.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::append::chunk::lower_bound;
use crate::model::batch::{Batch, ColumnValues};
use crate::model::refusal::ScanError;
use crate::model::stream::{Channel, ChannelIndex, StreamId};
use crate::model::value::{CellState, Value};
use crate::read::fold::has_numbers;
use crate::read::intervals::Reading;
use crate::read::points::{Point, Points};
use crate::read::reconstruct::on_line;
use crate::read::state::OwnedValue;
use crate::read::view::View;

/// Consecutive samples of a channel, in the order of `time`; of equal times, in the order of rows.
pub struct SampleRun(Form);

/// Numbers in consecutive rows of a batch.
pub(crate) struct Numbers<'a> {
    /// `time` of all rows of the batch.
    pub(crate) times: Cow<'a, [i64]>,
    /// Values of all rows of the batch.
    pub(crate) values: &'a ColumnValues,
    pub(crate) rows: Range<usize>,
}

enum Form {
    /// Rows of a batch.
    Batch {
        batch: Arc<Batch>,
        /// Column of the channel.
        column: usize,
        /// First row, if all from there on are samples.
        first: usize,
        /// Rows that are samples, if not all are.
        kept: Option<Vec<u32>>,
        /// Samples before which frames are known missing.
        gaps: Vec<usize>,
    },
    /// Samples of several batches.
    Points(Vec<Point>),
}

impl SampleRun {
    /// Makes a run of rows of a batch, given the column of the channel.
    pub(crate) fn of_batch(
        (batch, column): (Arc<Batch>, usize),
        first: usize,
        kept: Option<Vec<u32>>,
        gaps: Vec<usize>,
    ) -> SampleRun {
        SampleRun(Form::Batch { batch, column, first, kept, gaps })
    }

    pub(crate) fn of_points(points: Vec<Point>) -> SampleRun {
        SampleRun(Form::Points(points))
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Batch { kept: Some(kept), .. } => kept.len(),
            Form::Batch { batch, first, .. } => batch.len().saturating_sub(*first),
            Form::Points(points) => points.len(),
        }
    }

    /// Returns whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn batch_row(first: usize, kept: &Option<Vec<u32>>, at: usize) -> usize {
        match kept {
            Some(kept) => kept[at] as usize,
            None => first + at,
        }
    }

    /// Returns the `time` of a sample, nanoseconds since 1970 UTC.
    pub fn time(&self, at: usize) -> i64 {
        match &self.0 {
            Form::Batch { batch, first, kept, .. } => batch.time(Self::batch_row(*first, kept, at)),
            Form::Points(points) => points[at].time,
        }
    }

    /// Returns the value of a sample; `None` if the value is unknown from here on.
    pub fn value(&self, at: usize) -> Option<Value<'_>> {
        match &self.0 {
            Form::Batch { batch, column, first, kept, .. } => {
                batch.columns.get(*column)?.cell(Self::batch_row(*first, kept, at)).ok()
            }
            Form::Points(points) => points[at].value.as_ref().map(|value| value.as_value()),
        }
    }

    /// Returns whether frames are known missing between a sample and the one before it.
    pub fn has_gap(&self, at: usize) -> bool {
        match &self.0 {
            Form::Batch { gaps, .. } => !gaps.is_empty() && gaps.binary_search(&at).is_ok(),
            Form::Points(points) => points[at].gap,
        }
    }

    /// Returns the point of a sample.
    pub(crate) fn point(&self, at: usize) -> Point {
        match &self.0 {
            Form::Batch { batch, first, kept, .. } => {
                let row = batch.rows[Self::batch_row(*first, kept, at)];
                let value = self.value(at).map(OwnedValue::of);
                Point { time: self.time(at), row, value, gap: self.has_gap(at) }
            }
            Form::Points(points) => points[at].clone(),
        }
    }

    /// Returns the numbers of the run with their times, if it is consecutive rows of a batch that all have one.
    pub(crate) fn numbers(&self) -> Option<Numbers<'_>> {
        let Form::Batch { batch, column, first, kept, .. } = &self.0 else { return None };
        let column = batch.columns.get(*column).filter(|column| has_numbers(&column.values))?;
        let rows = match kept {
            None => *first..batch.len(),
            Some(kept) => {
                let (first, last) = (*kept.first()? as usize, *kept.last()? as usize);
                Some(first..last + 1).filter(|rows| rows.len() == kept.len())?
            }
        };
        let is_value = |states: &[CellState]| states[rows.clone()].iter().all(|state| *state == CellState::Value);
        let all_are = column.states.as_deref().is_none_or(is_value);
        all_are.then(|| Numbers { times: batch.time_values(), values: &column.values, rows })
    }

    /// Returns the samples before which frames are known missing, if that is known for all at once.
    pub(crate) fn gaps(&self) -> &[usize] {
        match &self.0 {
            Form::Batch { gaps, .. } => gaps,
            Form::Points(_) => &[],
        }
    }

    /// Returns the first sample after `time`, of those from `start` on.
    fn first_after(&self, time: i64, start: usize) -> usize {
        // Doubles its steps, since the next instant of a grid is usually near.
        let (mut low, mut step) = (start, 1);
        while low + step <= self.len() && self.time(low + step - 1) <= time {
            low += step;
            step *= 2;
        }
        let width = step.min(self.len() - low);
        low + lower_bound(width, |at| self.time(low + at) <= time)
    }
}

/// Reader of the samples of a channel.
pub struct SampleRuns(Points);

impl View {
    /// Reads the samples of a channel from the last one at or before `from` on, or from its first. Those up to `to`
    /// are probably needed. Frames whose `time` lies more than `max_future` after their reception are left out.
    /// Returns `None` if there is no such channel.
    ///
    /// # Errors
    /// As for a scan.
    pub fn samples(
        &self,
        stream: StreamId,
        column: ChannelIndex,
        from: i64,
        to: i64,
    ) -> Result<Option<SampleRuns>, ScanError> {
        Ok(Points::new(self, stream, column, from..to)?.map(SampleRuns))
    }
}

impl SampleRuns {
    /// Returns the channel as it was when reading began.
    pub fn channel(&self) -> &Channel {
        self.0.channel()
    }

    /// Returns the next samples; runs are not empty.
    ///
    /// # Errors
    /// As for a scan.
    pub fn next_run(&mut self) -> Result<Option<SampleRun>, ScanError> {
        self.0.next_run()
    }

    /// Returns whether frames are known missing after the samples read so far. Tells about the last sample once
    /// [`SampleRuns::next_run`] has returned `None`.
    pub fn ends_with_gap(&self) -> bool {
        self.0.ends_with_gap()
    }
}

/// Sample of a channel: its `time`, and its value unless that is unknown.
pub type SampleRef<'a> = (i64, Option<Value<'a>>);

/// Samples on both sides of an instant.
#[derive(Clone, Copy, Debug)]
pub struct Neighbours<'a> {
    /// Newest sample at or before the instant; of equal times, the highest row.
    pub before: Option<SampleRef<'a>>,
    /// Next sample after the instant.
    pub after: Option<SampleRef<'a>>,
    /// Whether frames are known missing between the two, or after the last sample if there is none after the instant.
    pub gap: bool,
}

impl Neighbours<'_> {
    /// Returns the reading at an instant between both: the newest sample, held or on the line to the next one; `None`
    /// if nothing is stored up to then, or if frames are known missing.
    pub(crate) fn at(&self, time: i64, linear: bool) -> Option<Reading> {
        let (since, value) = self.before?;
        if self.gap && self.after.is_some() && since < time {
            return None;
        }
        let on = match (value, self.after) {
            (Some(a), Some((next, Some(b)))) if linear && time > since => on_line((since, a), (next, b), time),
            _ => None,
        };
        let value = on.map(OwnedValue::Plain).or_else(|| value.map(OwnedValue::of));
        Some(Reading { value, since })
    }
}

/// Reader of a channel at instants that ascend.
pub struct SampleCursor {
    runs: SampleRuns,
    run: Option<SampleRun>,
    /// First sample of the run after the latest instant.
    at: usize,
    /// Last sample of the run before.
    before: Option<(i64, Option<OwnedValue>)>,
}

impl SampleCursor {
    /// Creates a cursor over samples of which none was read yet.
    ///
    /// # Errors
    /// As for a scan.
    pub fn new(mut runs: SampleRuns) -> Result<SampleCursor, ScanError> {
        let run = runs.next_run()?;
        Ok(SampleCursor { runs, run, at: 0, before: None })
    }

    /// Returns the samples on both sides of an instant, which must not be before the one of the last call.
    ///
    /// # Errors
    /// As for a scan.
    pub fn seek(&mut self, time: i64) -> Result<Neighbours<'_>, ScanError> {
        while let Some(run) = &self.run {
            let last = run.len() - 1;
            if run.time(last) > time {
                self.at = run.first_after(time, self.at);
                break;
            }
            self.before = Some((run.time(last), run.value(last).map(OwnedValue::of)));
            self.run = self.runs.next_run()?;
            self.at = 0;
        }
        let earlier = || {
            let (time, value) = self.before.as_ref()?;
            Some((*time, value.as_ref().map(OwnedValue::as_value)))
        };
        Ok(match &self.run {
            None => Neighbours { before: earlier(), after: None, gap: self.runs.ends_with_gap() },
            Some(run) => {
                let sample = |at: usize| (run.time(at), run.value(at));
                let before = match self.at.checked_sub(1) {
                    Some(at) => Some(sample(at)),
                    None => earlier(),
                };
                Neighbours { before, after: Some(sample(self.at)), gap: run.has_gap(self.at) }
            }
        })
    }
}
