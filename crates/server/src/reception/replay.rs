//! Stored frames, in the form in which the tap gives arriving ones.

use std::ops::Range;

use strongback_store::{Batch, ChannelIndex, Scan, ScanError, Scanner, StreamId, View};

use super::TappedFrame;
use super::value::FromValue;

/// Min and max frames per slice of time; slices grow and shrink to match.
const SLICE_FRAMES: Range<usize> = 2_000..50_000;
/// Max bytes of texts per slice.
const SLICE_TEXT_BYTES: usize = 64 << 20;
/// Span of the first slice, and of the longest, nanoseconds.
const SLICE_NS: Range<i64> = 1_000_000_000..86_400_000_000_000;

/// Returns the frame at a row of a batch whose columns are `channels`.
pub fn sighting<R: FromValue>(batch: &Batch, channels: &[ChannelIndex], row: usize) -> TappedFrame<R> {
    let columns = channels.iter().zip(&batch.columns);
    let reading = |(channel, column): (&ChannelIndex, &strongback_store::Column)| {
        Some((*channel, R::from_value(column.cell(row).ok()?)?))
    };
    TappedFrame {
        stream: batch.stream,
        row: Some(batch.rows[row]),
        time: batch.time(row),
        receive_time: batch.receive_time[row],
        readings: columns.filter_map(reading).collect(),
    }
}

/// Returns the frames of a batch that have readings; its columns are `channels`.
pub fn sightings<'b, R: FromValue + 'b>(
    batch: &'b Batch,
    channels: &'b [ChannelIndex],
) -> impl Iterator<Item = TappedFrame<R>> + 'b {
    (0..batch.len()).map(|row| sighting(batch, channels, row)).filter(|frame| !frame.readings.is_empty())
}

/// Iterator over the frames of one stream that have readings.
pub struct Frames {
    scanner: Scanner,
    channels: Vec<ChannelIndex>,
    batch: Option<Batch>,
    next: usize,
}

impl Frames {
    /// Creates an iterator over a scan, whose columns are the requested channels.
    pub fn new(view: &View, scan: Scan) -> Self {
        let channels = scan.columns.clone();
        Frames { scanner: view.scan(scan), channels, batch: None, next: 0 }
    }

    /// Returns the next frame, in the order of rows.
    ///
    /// # Errors
    /// Returns an error if the scan ends early.
    pub fn next_frame<R: FromValue>(&mut self) -> Result<Option<TappedFrame<R>>, ScanError> {
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

/// Part of a stream to read in the order of `time`.
#[derive(Clone, Debug)]
pub struct StreamRequest {
    /// Id of the stream.
    pub stream: StreamId,
    /// Channels to read.
    pub channels: Vec<ChannelIndex>,
    /// Rows to read, end exclusive.
    pub rows: Range<u64>,
    /// Whether to include frames without readings.
    pub every: bool,
}

/// Frames of several streams in one order: (time, stream, row). Slices of time bound the memory; a slice of a single
/// instant holds all frames of that instant.
#[derive(Clone, Debug)]
pub struct ByTime {
    wanted: Vec<StreamRequest>,
    next: i64,
    end: i64,
    span: i64,
    text_bytes_max: usize,
}

impl ByTime {
    /// Creates a reader of frames with `from ≤ time ≤ to`.
    pub fn new(view: &View, wanted: Vec<StreamRequest>, from: i64, to: i64) -> ByTime {
        // Do not search beyond the oldest and the newest frame.
        let times: Vec<(i64, i64)> = wanted.iter().filter_map(|of| view.time_range(of.stream)).collect();
        let first = times.iter().map(|time| time.0).min().unwrap_or(i64::MAX);
        let last = times.iter().map(|time| time.1).max().unwrap_or(i64::MIN);
        let (next, end, text_bytes_max) = (from.max(first), to.min(last), SLICE_TEXT_BYTES);
        ByTime { wanted, next, end, span: SLICE_NS.start, text_bytes_max }
    }

    /// Returns the `time` before which all frames were returned.
    pub fn at(&self) -> i64 {
        self.next
    }

    /// Returns whether all frames were returned.
    pub fn is_over(&self) -> bool {
        self.next > self.end
    }

    /// Returns the frames of the next slice, possibly none. `view` may be a newer one each time.
    ///
    /// # Errors
    /// Returns an error if a scan ends early; the next call retries the slice.
    pub fn slice<R: FromValue>(&mut self, view: &View) -> Result<Vec<TappedFrame<R>>, ScanError> {
        if self.is_over() {
            return Ok(Vec::new());
        }
        loop {
            let last = self.next.saturating_add(self.span - 1).min(self.end);
            let (mut frames, mut text_bytes) = (Vec::new(), 0);
            let is_large = |frames: &[TappedFrame<R>], text_bytes: usize| {
                (frames.len() > SLICE_FRAMES.end || text_bytes > self.text_bytes_max) && self.span > 1
            };
            let time = self.next..last.saturating_add(1);
            'slice: for of in &self.wanted {
                let scan =
                    Scan { time: time.clone(), rows: of.rows.clone(), ..Scan::all(of.stream, of.channels.clone()) };
                for batch in view.scan(scan) {
                    let batch = batch?;
                    text_bytes += batch.varying_bytes();
                    let all = (0..batch.len()).map(|row| sighting(&batch, &of.channels, row));
                    frames.extend(all.filter(|frame| of.every || !frame.readings.is_empty()));
                    if is_large(&frames, text_bytes) {
                        break 'slice;
                    }
                }
            }
            if is_large(&frames, text_bytes) {
                self.span = (self.span / 4).max(1);
                continue;
            }
            if frames.len() < SLICE_FRAMES.start && text_bytes <= self.text_bytes_max / 4 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use strongback_store::{
        ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Outcome, Store, StoreOptions, StreamKey, StreamSpec,
        Value,
    };

    const T0: i64 = 1_790_000_000_000_000_000;
    const ROWS: usize = 1_000;
    const TEXT_BYTES: usize = 500;

    /// Length of a text.
    struct Length(usize);

    impl FromValue for Length {
        fn from_value(value: Value<'_>) -> Option<Length> {
            let Value::String(text) = value else { return None };
            Some(Length(text.len()))
        }
    }

    #[test]
    fn a_slice_of_long_texts_is_bounded_in_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions { log_bytes: 4 << 20, segment_bytes: 1 << 20, ..StoreOptions::default() };
        let store = Store::open(dir.path(), options, T0).unwrap();
        let spec = StreamSpec {
            key: StreamKey::new("s", []),
            source: "test".to_owned(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: vec![ChannelSpec::new("v", ChannelType::String)],
        };
        let stream = store.resolve(&spec, T0).unwrap().0.id;
        let mut batch = FrameBatch::new();
        for row in 0..ROWS {
            let receive_time = T0 + row as i64 * 1_000;
            batch.begin(FrameHead { stream, receive_time, source_time: None, sequence: None });
            batch.push(ChannelIndex(0), Value::String(&format!("{row:0>TEXT_BYTES$}")));
            batch.end();
        }
        let appended = store.append(&batch, T0 + ROWS as i64 * 1_000);
        assert!(appended.outcomes.iter().all(|outcome| matches!(outcome, Outcome::Stored { .. })));
        let view = store.view();
        for (text_bytes_max, most) in [(SLICE_TEXT_BYTES, ROWS), (20 * TEXT_BYTES, 20), (1, 1)] {
            let wanted = StreamRequest { stream, channels: vec![ChannelIndex(0)], rows: 0..u64::MAX, every: false };
            let all = ByTime::new(&view, vec![wanted], i64::MIN, i64::MAX);
            let mut slices = ByTime { text_bytes_max, ..all };
            let mut rows = Vec::new();
            while !slices.is_over() {
                let slice = slices.slice::<Length>(&view).unwrap();
                let bytes: usize = slice.iter().flat_map(|frame| &frame.readings).map(|(_, of)| of.0).sum();
                assert!(bytes <= most * TEXT_BYTES, "{bytes} bytes, at most {text_bytes_max}");
                rows.extend(slice.iter().filter_map(|frame| frame.row));
            }
            assert!(rows.iter().copied().eq(0..ROWS as u64), "{} rows, at most {text_bytes_max} bytes", rows.len());
        }
    }
}
