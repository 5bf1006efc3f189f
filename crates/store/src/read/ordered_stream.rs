//! One stream in the order of (`time`, row).
//!
//! A stream whose rows ascend in `time` is read straight through. One with late rows is read in slices of time, each
//! of them sorted, so that memory is bounded whatever order its rows were stored in.

use std::sync::Arc;

use crate::model::batch::Batch;
use crate::model::frame_position::FramePosition;
use crate::model::refusal::ScanError;
use crate::model::stream::{ChannelIndex, StreamId};
use crate::read::ordered::{OrderedBatches, OrderedRun, OrderedScan};
use crate::read::request::Scan;
use crate::read::scan::Scanner;
use crate::read::view::View;

/// Bytes of a row without its cells: its times and number, in its batch and in the sorted rows.
pub(crate) const ROW_BYTES: usize = 64;
/// Bytes of a cell of fixed size.
pub(crate) const CELL_BYTES: usize = 9;
/// Number of rows that a slice may always have, regardless of memory.
pub(crate) const SLICE_ROWS_MIN: usize = 16;
/// Span of the first slice, in nanoseconds.
const WIDTH: u64 = 1_000_000_000;
/// Max span of a slice, in nanoseconds. A few rows with wrong times may be centuries from the others, and each slice
/// reads all blocks that such rows are in.
const WIDTH_MAX: u64 = 1 << 62;

/// Row of a slice, or of the current batch.
#[derive(Clone, Copy, Debug)]
struct SliceRow {
    time: i64,
    row: u64,
    /// Index of its batch, and of its row in that batch.
    batch: u32,
    at: u32,
}

/// Source of rows.
enum Rows {
    /// One scan: rows ascend in `time` as they are stored.
    Through { scanner: Box<Scanner>, is_over: bool },
    /// One scan for each slice.
    Slices { width: u64, rows_max: usize, bytes_max: usize },
}

/// Reader of one stream in order.
pub(crate) struct OrderedStream {
    /// Scan of the data still to be read, beyond the rows below.
    scan: Scan,
    source: Rows,
    batches: Vec<Arc<Batch>>,
    /// Bytes of text and arrays in the batches.
    bytes: usize,
    rows: Vec<SliceRow>,
    next: usize,
}

impl OrderedStream {
    /// Creates a reader of one stream.
    pub(crate) fn new(view: &View, of: &OrderedScan, stream: StreamId, columns: &[ChannelIndex]) -> OrderedStream {
        let (first, last) = view.time_range(stream).unwrap_or((i64::MAX, i64::MIN));
        let time = of.time.start.max(first)..of.time.end.min(last.saturating_add(1));
        let newest_first = of.newest_first;
        let mut scan = Scan { time, newest_first, ..Scan::all(stream, columns.to_vec()) };
        let mut width = WIDTH;
        if let Some(after) = of.after {
            width = begin_after(&mut scan, after);
        }
        let source = if of.reads_ahead && width > 1 && view.time_sorted(stream) {
            let through = Scan { batch_rows: of.limit.max(1), ..scan.clone() };
            Rows::Through { scanner: Box::new(view.scan(through)), is_over: false }
        } else {
            let bytes_max = of.memory_bytes / of.streams.len().max(1);
            let most = of.slice_rows.max(SLICE_ROWS_MIN);
            let rows_max = (bytes_max / (ROW_BYTES + CELL_BYTES * columns.len())).clamp(SLICE_ROWS_MIN, most);
            scan.batch_rows = rows_max + 1;
            Rows::Slices { width, rows_max, bytes_max }
        };
        OrderedStream { scan, source, batches: Vec::new(), bytes: 0, rows: Vec::new(), next: 0 }
    }

    /// Returns the position of the next frame, if it has been read.
    pub(crate) fn head(&self) -> Option<FramePosition> {
        let row = self.rows.get(self.next)?;
        Some(FramePosition { time: row.time, stream: self.scan.stream, row: row.row })
    }

    /// Returns the lower bound of the positions of frames still to be read, or `None` at the end.
    pub(crate) fn bound(&self) -> Option<FramePosition> {
        let time = &self.scan.time;
        if time.start >= time.end || matches!(self.source, Rows::Through { is_over: true, .. }) {
            return None;
        }
        Some(match self.scan.newest_first {
            false => FramePosition { time: time.start, stream: StreamId(0), row: 0 },
            true => FramePosition { time: time.end - 1, stream: StreamId(u32::MAX), row: u64::MAX },
        })
    }

    /// Returns the next frame and its position, if it has been read.
    pub(crate) fn frame(&self) -> Option<(FramePosition, &Arc<Batch>, usize)> {
        let row = self.rows.get(self.next)?;
        Some((self.head()?, &self.batches[row.batch as usize], row.at as usize))
    }

    /// Returns how many of the next frames are consecutive ascending rows of one batch: the first, and those behind it as
    /// long as `is_next` holds for their positions.
    pub(crate) fn run(&self, is_next: impl Fn(FramePosition) -> bool, most: usize) -> usize {
        let rows = &self.rows[self.next..];
        let Some(first) = rows.first() else { return 0 };
        let follows = |(after, row): (usize, &SliceRow)| {
            let position = FramePosition { time: row.time, stream: self.scan.stream, row: row.row };
            let is_behind = row.batch == first.batch && row.at as usize == first.at as usize + after;
            after == 0 || is_behind && is_next(position)
        };
        rows.iter().take(most).enumerate().take_while(|&row| follows(row)).count()
    }

    /// Skips the next frames.
    pub(crate) fn advance(&mut self, frames: usize) {
        self.next += frames;
    }

    /// Takes the frames that were read: batches, and the order of their rows.
    pub(crate) fn take_runs(&mut self) -> OrderedBatches {
        let mut runs: Vec<OrderedRun> = Vec::new();
        for row in &self.rows[self.next..] {
            let (batch, at) = (row.batch as usize, row.at as usize);
            match runs.last_mut().filter(|run| run.batch == batch) {
                Some(run) if !self.scan.newest_first && run.rows.end == at => run.rows.end += 1,
                Some(run) if self.scan.newest_first && run.rows.start == at + 1 => run.rows.start -= 1,
                _ => runs.push(OrderedRun { batch, rows: at..at + 1 }),
            }
        }
        let batches = std::mem::take(&mut self.batches);
        self.clear();
        OrderedBatches { batches, runs }
    }

    /// Returns the number of frames held in memory.
    pub(crate) fn held_frames(&self) -> usize {
        self.rows.len()
    }

    /// Reads a batch or a slice, and drops the frames read before.
    ///
    /// # Errors
    /// When an error ends the scan. An error that concerns one block is added to `troubles` instead.
    pub(crate) fn read(&mut self, view: &View, troubles: &mut Vec<(StreamId, ScanError)>) -> Result<(), ScanError> {
        match &self.source {
            Rows::Through { .. } => self.read_batch(troubles),
            Rows::Slices { width, rows_max, bytes_max } => {
                let (width, rows_max, bytes_max) = (*width, *rows_max, *bytes_max);
                let width = self.read_slice(view, width, (rows_max, bytes_max), troubles)?;
                self.source = Rows::Slices { width, rows_max, bytes_max };
                Ok(())
            }
        }
    }

    fn clear(&mut self) {
        self.batches.clear();
        self.rows.clear();
        (self.next, self.bytes) = (0, 0);
    }

    fn read_batch(&mut self, troubles: &mut Vec<(StreamId, ScanError)>) -> Result<(), ScanError> {
        self.clear();
        let Rows::Through { scanner, is_over } = &mut self.source else { return Ok(()) };
        match scanner.next() {
            None => *is_over = true,
            Some(Err(error)) => note(self.scan.stream, error, troubles)?,
            Some(Ok(batch)) => {
                self.hold(batch, usize::MAX);
                if self.scan.newest_first {
                    self.rows.reverse();
                }
                // No later frame precedes the last of these.
                match self.rows.last() {
                    Some(last) if self.scan.newest_first => self.scan.time.end = last.time.saturating_add(1),
                    Some(last) => self.scan.time.start = last.time,
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Reads the next slice. Returns the span of the one after it.
    fn read_slice(
        &mut self,
        view: &View,
        mut width: u64,
        (rows_max, bytes_max): (usize, usize),
        troubles: &mut Vec<(StreamId, ScanError)>,
    ) -> Result<u64, ScanError> {
        loop {
            let whole = self.scan.time.clone();
            let slice = match self.scan.newest_first {
                false => whole.start..whole.start.saturating_add_unsigned(width).min(whole.end),
                true => whole.end.saturating_sub_unsigned(width).max(whole.start)..whole.end,
            };
            let noted = troubles.len();
            let scan = Scan { time: slice.clone(), ..self.scan.clone() };
            let is_complete = self.gather(view, scan, (rows_max, bytes_max), troubles)?;
            self.sort();
            let span = slice.end.abs_diff(slice.start);
            if !is_complete && span > 1 {
                // Part of it is read again, and reports its damage then.
                troubles.truncate(noted);
                width = span / 2;
                continue;
            }
            if !is_complete {
                // Too many frames of one instant: the others follow.
                match self.rows.last() {
                    Some(last) if self.scan.newest_first => self.scan.rows.end = last.row,
                    Some(last) => self.scan.rows.start = last.row + 1,
                    None => {}
                }
                return Ok(1);
            }
            match self.scan.newest_first {
                false => self.scan.time.start = slice.end,
                true => self.scan.time.end = slice.start,
            }
            self.scan.rows = 0..u64::MAX;
            if self.rows.len() * 4 < rows_max && self.bytes <= bytes_max / 4 {
                width = width.saturating_mul(if self.rows.is_empty() { 4 } else { 2 }).min(WIDTH_MAX);
            }
            return Ok(width);
        }
    }

    /// Keeps the rows of a scan. Returns `false` if there are more than may be kept.
    fn gather(
        &mut self,
        view: &View,
        scan: Scan,
        (rows_max, bytes_max): (usize, usize),
        troubles: &mut Vec<(StreamId, ScanError)>,
    ) -> Result<bool, ScanError> {
        self.clear();
        for batch in view.scan(scan) {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => {
                    note(self.scan.stream, error, troubles)?;
                    continue;
                }
            };
            let room = rows_max - self.rows.len();
            if room == 0 || self.bytes > bytes_max {
                return Ok(false);
            }
            let is_whole = batch.len() <= room;
            self.hold(batch, room);
            if !is_whole {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Keeps at most `most` rows of a batch: the first in order.
    fn hold(&mut self, batch: Batch, most: usize) {
        self.bytes += batch.varying_bytes();
        let (len, number) = (batch.len(), self.batches.len() as u32);
        let kept = match self.scan.newest_first {
            false => 0..len.min(most),
            true => len.saturating_sub(most)..len,
        };
        self.rows.extend(kept.map(|at| SliceRow {
            time: batch.time(at),
            row: batch.rows[at],
            batch: number,
            at: at as u32,
        }));
        self.batches.push(Arc::new(batch));
    }

    fn sort(&mut self) {
        self.rows.sort_unstable_by_key(|row| (row.time, row.row));
        if self.scan.newest_first {
            self.rows.reverse();
        }
    }
}

/// Restricts a scan to frames after a position. Returns the span of the first slice: 1 if it begins within an
/// instant.
fn begin_after(scan: &mut Scan, after: FramePosition) -> u64 {
    // The stream's frames of that instant are before the position, after it, or on both sides.
    let is_within = scan.stream == after.stream && scan.time.contains(&after.time);
    if scan.newest_first {
        let all_read = scan.stream > after.stream || (is_within && after.row == 0);
        scan.time.end = scan.time.end.min(if all_read { after.time } else { after.time.saturating_add(1) });
        if is_within && !all_read {
            scan.rows.end = after.row;
            return 1;
        }
    } else {
        let all_read = scan.stream < after.stream || (scan.stream == after.stream && after.row == u64::MAX);
        scan.time.start = scan.time.start.max(if all_read { after.time.saturating_add(1) } else { after.time });
        if is_within && !all_read {
            scan.rows.start = after.row + 1;
            return 1;
        }
    }
    WIDTH
}

/// Adds an error that concerns one block to `troubles`.
///
/// # Errors
/// When the error ends the scan.
fn note(stream: StreamId, error: ScanError, troubles: &mut Vec<(StreamId, ScanError)>) -> Result<(), ScanError> {
    match error {
        error @ (ScanError::ViewTooOld | ScanError::Elements { .. }) => Err(error),
        error => {
            troubles.push((stream, error));
            Ok(())
        }
    }
}
