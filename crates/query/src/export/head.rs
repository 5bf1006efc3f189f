//! One stream of an export, in the order of (`time`, row).
//!
//! A stream whose rows ascend in `time` is read through. One with late rows is read slice by slice of time, each of them
//! sorted, so that what is held of it is bounded in whatever order its rows came.

use std::sync::Arc;

use strongback_store::{Batch, ColumnValues, Scan, Scanner, Stream, View};

use crate::error::QueryError;

/// Cells that the slices of all streams hold, about.
const CELLS_MAX: usize = 1 << 22;
/// Bytes of texts and arrays that the slices of all streams hold, about: each beside its last batch.
const BYTES_MAX: usize = 128 << 20;
/// Fewest and most rows of a slice.
const ROWS_MIN: usize = 64;
const ROWS_MAX: usize = 1 << 16;
/// Longest first slice and longest slice, in nanoseconds.
const FIRST_WIDTH: u64 = 1_000_000_000;
const WIDTH_MAX: u64 = 1 << 52;

/// The place of an export in one stream.
pub(super) struct ExportHead {
    pub(super) stream: Arc<Stream>,
    /// Its first column.
    pub(super) first: usize,
    rows: HeadRows,
}

enum HeadRows {
    /// They ascend as they are stored.
    Ascending {
        scanner: Box<Scanner>,
        batch: Option<Batch>,
        row: usize,
    },
    Sliced(Slices),
}

impl ExportHead {
    /// Begins a scan of a stream, one of `streams`.
    pub(super) fn new(view: &View, stream: Arc<Stream>, first: usize, scan: Scan, streams: usize) -> ExportHead {
        let rows = match view.time_sorted(stream.id) {
            true => HeadRows::Ascending { scanner: Box::new(view.scan(scan)), batch: None, row: 0 },
            false => HeadRows::Sliced(Slices::new(view, scan, streams)),
        };
        ExportHead { stream, first, rows }
    }

    /// Returns the time of the next frame, or `None` at the end.
    pub(super) fn time(&mut self) -> Result<Option<i64>, QueryError> {
        match &mut self.rows {
            HeadRows::Ascending { scanner, batch, row } => loop {
                if let Some(batch) = batch.as_ref().filter(|batch| *row < batch.len()) {
                    return Ok(Some(batch.time(*row)));
                }
                let Some(next) = scanner.next().transpose()? else { return Ok(None) };
                (*batch, *row) = (Some(next), 0);
            },
            HeadRows::Sliced(slices) => slices.time(),
        }
    }

    /// Returns the batch of the next frame and its row in it, once [`ExportHead::time`] has said that there is one.
    pub(super) fn frame(&self) -> Option<(&Batch, usize)> {
        match &self.rows {
            HeadRows::Ascending { batch, row, .. } => batch.as_ref().map(|batch| (batch, *row)),
            HeadRows::Sliced(slices) => slices.frame(),
        }
    }

    /// Passes over the next frame.
    pub(super) fn advance(&mut self) {
        match &mut self.rows {
            HeadRows::Ascending { row, .. } => *row += 1,
            HeadRows::Sliced(slices) => slices.next += 1,
        }
    }
}

/// A row of a slice.
#[derive(Clone, Copy)]
struct SliceRow {
    time: i64,
    row: u64,
    /// The batch that has it, and where in it.
    batch: u32,
    at: u32,
}

/// Slices of time of a stream, one after the other.
struct Slices {
    view: View,
    /// What is asked for; its span of time begins where the next slice does.
    scan: Scan,
    batches: Vec<Batch>,
    rows: Vec<SliceRow>,
    next: usize,
    width: u64,
    max_rows: usize,
    /// Bytes of texts and arrays in the batches.
    bytes: usize,
    max_bytes: usize,
}

impl Slices {
    fn new(view: &View, mut scan: Scan, streams: usize) -> Slices {
        let (first, last) = view.time_range(scan.stream).unwrap_or((i64::MAX, i64::MIN));
        scan.time = scan.time.start.max(first)..scan.time.end.min(last.saturating_add(1));
        let max_rows = (CELLS_MAX / streams.max(1) / scan.columns.len().max(1)).clamp(ROWS_MIN, ROWS_MAX);
        let max_bytes = BYTES_MAX / streams.max(1);
        let (batches, rows) = (Vec::new(), Vec::new());
        let (next, width, bytes) = (0, FIRST_WIDTH, 0);
        Slices { view: view.clone(), scan, batches, rows, next, width, max_rows, bytes, max_bytes }
    }

    fn frame(&self) -> Option<(&Batch, usize)> {
        let row = self.rows.get(self.next)?;
        Some((&self.batches[row.batch as usize], row.at as usize))
    }

    fn time(&mut self) -> Result<Option<i64>, QueryError> {
        while self.next >= self.rows.len() {
            if self.scan.time.start >= self.scan.time.end {
                return Ok(None);
            }
            self.read()?;
        }
        Ok(Some(self.rows[self.next].time))
    }

    /// Reads the next slice.
    fn read(&mut self) -> Result<(), QueryError> {
        loop {
            let from = self.scan.time.start;
            let to = from.saturating_add_unsigned(self.width).min(self.scan.time.end);
            if self.gather(to)? {
                self.rows.sort_unstable_by_key(|row| (row.time, row.row));
                (self.scan.time.start, self.scan.rows.start) = (to, 0);
                if self.rows.len() * 4 < self.max_rows && self.bytes / 2 <= self.max_bytes / 8 {
                    let times = if self.rows.is_empty() { 4 } else { 2 };
                    self.width = self.width.saturating_mul(times).min(WIDTH_MAX);
                }
                return Ok(());
            }
            if to.abs_diff(from) <= 1 {
                // Too many of one instant: they are in the order of their rows already.
                self.scan.rows.start = self.rows.last().map_or(0, |row| row.row + 1);
                return Ok(());
            }
            self.width = (to.abs_diff(from) / 2).max(1);
        }
    }

    /// Gathers the rows before `to`. Returns false if there are more than may be held.
    fn gather(&mut self, to: i64) -> Result<bool, QueryError> {
        self.batches.clear();
        self.rows.clear();
        (self.next, self.bytes) = (0, 0);
        let scan = Scan { time: self.scan.time.start..to, ..self.scan.clone() };
        for batch in self.view.scan(scan) {
            let (batch, number) = (batch?, self.batches.len() as u32);
            if self.bytes > self.max_bytes {
                return Ok(false);
            }
            self.bytes += varying_bytes(&batch);
            let room = self.max_rows - self.rows.len();
            let rows = (0..batch.len()).zip(&batch.rows).take(room);
            let rows = rows.map(|(at, row)| SliceRow { time: batch.time(at), row: *row, batch: number, at: at as u32 });
            self.rows.extend(rows);
            let is_whole = batch.len() <= room;
            self.batches.push(batch);
            if !is_whole {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the bytes of the texts and arrays in a batch.
fn varying_bytes(batch: &Batch) -> usize {
    let of_column = |values: &ColumnValues| match values {
        ColumnValues::String { bytes, .. } | ColumnValues::Array { bytes, .. } => bytes.len(),
        _ => 0,
    };
    batch.columns.iter().map(|column| of_column(&column.values)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongback_store::{
        ChannelIndex, ChannelSpec, ChannelType, Clock, FixedOptions, FrameBatch, FrameHead, MemoryRegion, Outcome,
        Store, StoreOptions, StreamKey, StreamSpec, Value,
    };

    const T0: i64 = 1_790_000_000_000_000_000;
    const ROWS: usize = 2_000;
    const TEXT_BYTES: usize = 500;

    /// A store of one stream with texts, each row at the time that `time` says of it, and the stream.
    fn store(time: impl Fn(usize) -> i64) -> (Store, Arc<Stream>) {
        let region = MemoryRegion::new(64 << 20);
        let fixed = FixedOptions { log_bytes: Some(16 << 20), ..FixedOptions::new(64 << 20) };
        let store = Store::in_memory(&region, &fixed, StoreOptions::default(), T0).unwrap();
        let spec = StreamSpec {
            key: StreamKey::new("t", []),
            source: "test".into(),
            clock: Clock::Source,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: vec![ChannelSpec::new("x", ChannelType::String)],
        };
        let stream = store.resolve(&spec, T0).unwrap().0;
        let mut batch = FrameBatch::new();
        for row in 0..ROWS {
            let head = FrameHead {
                stream: stream.id,
                receive_time: T0 + row as i64,
                source_time: Some(time(row)),
                sequence: None,
            };
            batch.begin(head);
            batch.push(ChannelIndex(0), Value::String(&format!("{row:0>TEXT_BYTES$}")));
            batch.end();
        }
        let appended = store.append(&batch, T0);
        assert!(appended.outcomes.iter().all(|outcome| matches!(outcome, Outcome::Stored { .. })));
        (store, stream)
    }

    /// Reads all through slices of at most `max_bytes`. Returns the time and row of each, and the most bytes held.
    fn read(store: &Store, stream: &Stream, max_bytes: usize) -> (Vec<(i64, u64)>, usize) {
        let scan = Scan::all(stream.id, vec![ChannelIndex(0)]);
        let mut slices = Slices { max_bytes, ..Slices::new(&store.view(), scan, 1) };
        let (mut found, mut most) = (Vec::new(), 0_usize);
        while let Some(time) = slices.time().unwrap() {
            most = most.max(slices.batches.iter().map(varying_bytes).sum());
            let (batch, at) = slices.frame().unwrap();
            found.push((time, batch.rows[at]));
            slices.next += 1;
        }
        (found, most)
    }

    #[test]
    fn slices_of_long_texts_are_bounded_in_bytes() {
        let spread = |row: usize| T0 + (row * 977 % ROWS) as i64 * 1_000;
        let instants = |row: usize| T0 + (ROWS - row) as i64 / 700;
        for (store, stream) in [store(spread), store(instants)] {
            let (all, most) = read(&store, &stream, usize::MAX);
            assert!(all.len() == ROWS && all.is_sorted() && most > ROWS / 4 * TEXT_BYTES, "{} of {most}", all.len());
            let max_bytes = 20 * TEXT_BYTES;
            let (found, most) = read(&store, &stream, max_bytes);
            assert_eq!(found, all);
            // Beside the last batch: the largest of what is not sealed has 512 rows.
            assert!(most <= max_bytes + 512 * TEXT_BYTES, "{most} bytes");
        }
    }
}
