//! Progress of a subscription of the class `windows`: which windows closed, and which are to be corrected.
//!
//! The watermark is the largest `time` of the rows of the table, less the lateness. Times more than a day ahead of the
//! clock do not count. New rows are read for their times only.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use strongback_store::{Scan, Store, StreamId, View};
use tokio::time::Instant;

use crate::error::QueryError;
use crate::query::step::StepView;
use crate::running::clock::now_ns;
use crate::subscription::window::Windows;
use crate::system::function::LATEST_AHEAD_NS;
use crate::table::PinnedPart;
use crate::table::column::floor_micros;

/// Windows that are corrected, counted back from the newest one that was sent.
const CORRECTED_WINDOWS: i64 = 1_000;
/// Maximum runs for corrections in one step. Neighbouring windows share a run.
const CORRECTIONS_MAX: usize = 16;
/// Maximum rows whose times are read in one step. Further ones are read in the next.
const TIMES_MAX: u64 = 1 << 20;
/// Maximum rows of a batch whose times are read.
const BATCH_ROWS: usize = 4_096;

/// Windows that one run of the statement gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowRun {
    /// Start of the first window; `None` for all before `to_us`.
    pub(crate) from_us: Option<i64>,
    /// End of the last window.
    pub(crate) to_us: i64,
    /// Whether these windows were sent before.
    pub(crate) is_correction: bool,
}

/// Windows that were sent, and those that are due.
pub(crate) struct WindowsProgress {
    windows: Windows,
    lateness_us: i64,
    idle: Option<Duration>,
    is_begun: bool,
    /// Next row of each stream whose time was not read yet.
    seen: HashMap<StreamId, u64>,
    /// Largest time.
    newest_us: Option<i64>,
    /// Time at which rows were seen last.
    newest_at: Instant,
    /// End of the windows that were sent.
    closed_us: Option<i64>,
    /// Starts of windows that were sent and got more rows.
    late: BTreeSet<i64>,
    /// Number of rows that came too late for a correction.
    missed: u64,
    /// Runs of the current step.
    runs: VecDeque<WindowRun>,
    /// View that they read: the one whose rows were seen, or rows that came since would be corrected for nothing.
    view: Option<View>,
}

impl WindowsProgress {
    pub(crate) fn new(windows: Windows, lateness: Duration, idle: Option<Duration>) -> WindowsProgress {
        WindowsProgress {
            windows,
            lateness_us: i64::try_from(lateness.as_micros()).unwrap_or(i64::MAX),
            idle,
            is_begun: false,
            seen: HashMap::new(),
            newest_us: None,
            newest_at: Instant::now(),
            closed_us: None,
            late: BTreeSet::new(),
            missed: 0,
            runs: VecDeque::new(),
            view: None,
        }
    }

    /// Reports whether a step would read rows.
    pub(crate) fn has_changes(&self, store: &Store, streams: &[StreamId]) -> bool {
        let is_behind = |stream: &StreamId| store.committed_row(*stream) > self.seen.get(stream).copied().unwrap_or(0);
        !self.is_begun || !self.late.is_empty() || streams.iter().any(is_behind)
    }

    /// Returns when all windows are to be closed by the clock.
    pub(crate) fn idle_at(&self) -> Option<Instant> {
        let is_open = self.newest_us.is_some_and(|newest| self.closed_us.is_none_or(|closed| closed <= newest));
        self.idle.filter(|_| is_open).map(|idle| self.newest_at + idle)
    }

    /// Returns the number of rows that came too late for a correction.
    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }

    /// Reports whether the current step has more runs.
    pub(crate) fn has_runs(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Takes the next run of the current step, with the view that it reads.
    pub(crate) fn next_run(&mut self) -> Option<(WindowRun, View)> {
        let run = self.runs.pop_front()?;
        let view = if self.runs.is_empty() { self.view.take() } else { self.view.clone() };
        Some((run, view?))
    }

    /// Begins a step: reads the times of new rows, and finds the windows that are due.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn begin(&mut self, view: &View, streams: &[StreamId]) -> Result<(), QueryError> {
        let limit_ns = now_ns().saturating_add(LATEST_AHEAD_NS);
        let mut left = if self.is_begun { TIMES_MAX } else { u64::MAX };
        for stream in streams {
            let from = self.seen.get(stream).copied().unwrap_or(0);
            let to = view.next_row(*stream).min(from.saturating_add(left));
            if from >= to {
                continue;
            }
            left -= to - from;
            let newest_ns = if self.is_begun {
                self.read_times(view, *stream, from..to, limit_ns)?
            } else {
                newest_of(view, *stream, limit_ns)?
            };
            self.newest_us = self.newest_us.max(newest_ns.map(floor_micros));
            self.newest_at = Instant::now();
            self.seen.insert(*stream, to);
        }
        self.is_begun = true;
        self.close_windows();
        self.correct_windows();
        self.view = self.has_runs().then(|| view.clone());
        Ok(())
    }

    /// Reads the times of new rows. Returns the largest one below a limit.
    fn read_times(
        &mut self,
        view: &View,
        stream: StreamId,
        rows: Range<u64>,
        limit_ns: i64,
    ) -> Result<Option<i64>, QueryError> {
        let mut newest = None;
        for batch in view.scan(Scan { rows, batch_rows: BATCH_ROWS, ..Scan::all(stream, Vec::new()) }) {
            let batch = batch?;
            for time_ns in (0..batch.len()).map(|row| batch.time(row)) {
                if time_ns < limit_ns {
                    newest = newest.max(Some(time_ns));
                }
                self.note(floor_micros(time_ns));
            }
        }
        Ok(newest)
    }

    /// Notes a row whose window may have been sent.
    fn note(&mut self, time_us: i64) {
        let Some(closed) = self.closed_us.filter(|closed| time_us < *closed) else { return };
        let start = self.windows.start_of(time_us);
        if start >= self.windows.back(closed, CORRECTED_WINDOWS) {
            self.late.insert(start);
        } else {
            self.missed += 1;
        }
    }

    fn close_windows(&mut self) {
        let Some(newest) = self.newest_us else { return };
        let is_idle = self.idle_at().is_some_and(|at| at <= Instant::now());
        let to_us = if is_idle {
            self.windows.end_of(self.windows.start_of(newest))
        } else {
            self.windows.start_of(newest.saturating_sub(self.lateness_us))
        };
        if self.closed_us.is_none_or(|closed| closed < to_us) {
            self.runs.push_back(WindowRun { from_us: self.closed_us, to_us, is_correction: false });
            self.closed_us = Some(to_us);
        }
    }

    fn correct_windows(&mut self) {
        let mut corrections: Vec<WindowRun> = Vec::new();
        while let Some(start) = self.late.first().copied() {
            let end = self.windows.end_of(start);
            let is_full = corrections.len() == CORRECTIONS_MAX;
            match corrections.last_mut() {
                Some(run) if run.to_us == start => run.to_us = end,
                _ if is_full => break,
                _ => corrections.push(WindowRun { from_us: Some(start), to_us: end, is_correction: true }),
            }
            self.late.pop_first();
        }
        self.runs.extend(corrections);
    }
}

impl WindowRun {
    /// Returns what the run reads.
    pub(crate) fn view(&self, view: View, now_us: i64) -> StepView {
        let nanos = |micros: i64| micros.saturating_mul(1_000);
        let time = self.from_us.map_or(i64::MIN, nanos)..nanos(self.to_us);
        StepView { view, part: PinnedPart { time, rows: None }, now_us: Some(now_us) }
    }
}

/// Returns the largest time of a stream below a limit. If the newest rows are beyond it, those before them decide.
fn newest_of(view: &View, stream: StreamId, limit_ns: i64) -> Result<Option<i64>, QueryError> {
    let Some((_, newest)) = view.time_range(stream) else { return Ok(None) };
    if newest < limit_ns {
        return Ok(Some(newest));
    }
    let time = i64::MIN..limit_ns;
    let scan = Scan { time, newest_first: true, batch_rows: BATCH_ROWS, ..Scan::all(stream, Vec::new()) };
    let Some(batch) = view.scan(scan).next().transpose()? else { return Ok(None) };
    Ok((0..batch.len()).map(|row| batch.time(row)).max())
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;

    use super::*;

    fn progress(closed_us: i64) -> WindowsProgress {
        let windows = Windows::binned(&ScalarValue::from("10 microseconds"), None).unwrap();
        let mut progress = WindowsProgress::new(windows, Duration::from_micros(5), None);
        progress.closed_us = Some(closed_us);
        progress
    }

    #[test]
    fn windows_close_when_the_watermark_has_passed_their_ends() {
        let mut progress = progress(0);
        for (newest, closed) in [(9, 0), (14, 0), (15, 10), (24, 10), (46, 40)] {
            progress.newest_us = Some(newest);
            progress.close_windows();
            assert_eq!(progress.closed_us, Some(closed), "{newest}");
        }
        let run = |from, to_us| WindowRun { from_us: Some(from), to_us, is_correction: false };
        assert_eq!(progress.runs, [run(0, 10), run(10, 40)]);
    }

    #[test]
    fn late_rows_are_corrected_in_runs_and_those_too_late_are_counted() {
        let mut progress = progress(20_000);
        for time in [19_999, 19_985, 19_990, 20_000, 15_000, 10_000, 9_999, -5] {
            progress.note(time);
        }
        assert_eq!(progress.missed(), 2);
        progress.correct_windows();
        let run = |from, to_us| WindowRun { from_us: Some(from), to_us, is_correction: true };
        assert_eq!(progress.runs, [run(10_000, 10_010), run(15_000, 15_010), run(19_980, 20_000)]);
        progress.runs.clear();
        (0..40).for_each(|at| progress.note(11_000 + at * 20));
        let mut steps = Vec::new();
        while !progress.late.is_empty() {
            progress.correct_windows();
            steps.push(progress.runs.len());
            progress.runs.clear();
        }
        assert_eq!(steps, [16, 16, 8]);
    }
}
