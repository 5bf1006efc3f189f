//! Frames of the record, as the tap gives those that come.

use std::ops::Range;

use strongback_store::{Batch, ChannelIndex, Scan, ScanError, Scanner, StreamId, View};

use super::{Reading, Sighting};

/// Frames that a slice of time should have, at least and at most: slices grow and shrink until they do.
const SLICE_FRAMES: Range<usize> = 2_000..50_000;
/// Span of the first slice, and of the longest.
const SLICE_NS: Range<i64> = 1_000_000_000..86_400_000_000_000;

/// The frame of a row of a batch whose columns are these channels.
pub fn sighting<R: Reading>(batch: &Batch, channels: &[ChannelIndex], row: usize) -> Sighting<R> {
    let columns = channels.iter().zip(&batch.columns);
    let reading = |(channel, column): (&ChannelIndex, &strongback_store::Column)| {
        Some((*channel, R::of(column.cell(row).ok()?)?))
    };
    Sighting {
        stream: batch.stream,
        row: Some(batch.rows[row]),
        time: batch.time(row),
        receive_time: batch.receive_time[row],
        readings: columns.filter_map(reading).collect(),
    }
}

/// The frames of a batch that have readings; `channels` are those of its columns.
pub fn sightings<'b, R: Reading + 'b>(
    batch: &'b Batch,
    channels: &'b [ChannelIndex],
) -> impl Iterator<Item = Sighting<R>> + 'b {
    (0..batch.len()).map(|row| sighting(batch, channels, row)).filter(|frame| !frame.readings.is_empty())
}

/// Frames of one stream that have readings, one after the other.
pub struct Frames {
    scanner: Scanner,
    channels: Vec<ChannelIndex>,
    batch: Option<Batch>,
    next: usize,
}

impl Frames {
    /// Those of a scan, whose columns are the channels asked for.
    pub fn new(view: &View, scan: Scan) -> Self {
        let channels = scan.columns.clone();
        Frames { scanner: view.scan(scan), channels, batch: None, next: 0 }
    }

    /// The next, in the order of rows.
    ///
    /// # Errors
    /// A scan that ends early.
    pub fn next_frame<R: Reading>(&mut self) -> Result<Option<Sighting<R>>, ScanError> {
        loop {
            let Some(batch) = self.batch.as_ref().filter(|batch| self.next < batch.len()) else {
                let Some(batch) = self.scanner.next() else { return Ok(None) };
                (self.batch, self.next) = (Some(batch?), 0);
                continue;
            };
            self.next += 1;
            let frame = sighting(batch, &self.channels, self.next - 1);
            if !frame.readings.is_empty() {
                return Ok(Some(frame));
            }
        }
    }
}

/// What is read of a stream in the order of `time`.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The stream.
    pub stream: StreamId,
    /// Channels of it.
    pub channels: Vec<ChannelIndex>,
    /// Rows of it, end exclusive.
    pub rows: Range<u64>,
    /// Whether frames without readings count.
    pub every: bool,
}

/// Frames of several streams in one order: (time, stream, row). Memory is bounded by slices of time; a slice of one
/// instant is as large as what came at that instant.
#[derive(Clone, Debug)]
pub struct ByTime {
    wanted: Vec<Wanted>,
    next: i64,
    end: i64,
    span: i64,
}

impl ByTime {
    /// Frames with `from ≤ time ≤ to`.
    pub fn new(view: &View, wanted: Vec<Wanted>, from: i64, to: i64) -> ByTime {
        // What lies beyond the newest frame need not be looked for.
        let times: Vec<(i64, i64)> = wanted.iter().filter_map(|of| view.time_range(of.stream)).collect();
        let first = times.iter().map(|time| time.0).min().unwrap_or(i64::MAX);
        let last = times.iter().map(|time| time.1).max().unwrap_or(i64::MIN);
        ByTime { wanted, next: from.max(first), end: to.min(last), span: SLICE_NS.start }
    }

    /// Up to where it has read: every frame with an earlier `time` was given.
    pub fn at(&self) -> i64 {
        self.next
    }

    /// Whether all was given.
    pub fn is_over(&self) -> bool {
        self.next > self.end
    }

    /// The frames of the next slice, which may be none. `view` may be a newer one each time.
    ///
    /// # Errors
    /// A scan that ends early; the slice is tried again at the next call.
    pub fn slice<R: Reading>(&mut self, view: &View) -> Result<Vec<Sighting<R>>, ScanError> {
        if self.is_over() {
            return Ok(Vec::new());
        }
        loop {
            let last = self.next.saturating_add(self.span - 1).min(self.end);
            let mut frames = Vec::new();
            let time = self.next..last.saturating_add(1);
            for of in &self.wanted {
                let scan =
                    Scan { time: time.clone(), rows: of.rows.clone(), ..Scan::all(of.stream, of.channels.clone()) };
                for batch in view.scan(scan) {
                    let batch = batch?;
                    let all = (0..batch.len()).map(|row| sighting(&batch, &of.channels, row));
                    frames.extend(all.filter(|frame| of.every || !frame.readings.is_empty()));
                    if frames.len() > SLICE_FRAMES.end && self.span > 1 {
                        break;
                    }
                }
            }
            if frames.len() > SLICE_FRAMES.end && self.span > 1 {
                self.span = (self.span / 4).max(1);
                continue;
            }
            if frames.len() < SLICE_FRAMES.start {
                self.span = (self.span * 2).min(SLICE_NS.end);
            }
            self.next = last.saturating_add(1);
            if last == i64::MAX {
                self.end = i64::MIN;
            }
            frames.sort_by_key(|frame| (frame.time, frame.stream.0, frame.row));
            return Ok(frames);
        }
    }
}
