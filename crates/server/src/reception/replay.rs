//! Stored frames, in the form in which the tap gives arriving ones.

use std::ops::Range;

use strongback_store::{
    Batch, ChannelIndex, NextFrame, OrderedFrames, OrderedScan, Scan, ScanError, Scanner, StreamId, Value, View,
};

use super::TappedFrame;
use super::value::FromValue;

/// Frames of a slice, beyond which it ends with their instant.
const SLICE_FRAMES: usize = 20_000;
/// Bytes of texts of a slice, beyond which it ends with their instant.
const SLICE_TEXT_BYTES: usize = 64 << 20;

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

/// Frames of several streams in the order of [`OrderedFrames`], in slices that each use a new view, because no view may
/// be held for long. A slice ends between two instants, so that it is larger than its bounds if an instant is.
#[derive(Clone, Debug)]
pub struct ByTime {
    wanted: Vec<StreamRequest>,
    /// `time` of the next slice's first frame, or an earlier one.
    next: i64,
    end: i64,
    text_bytes: usize,
}

impl ByTime {
    /// Creates a reader of frames with `from ≤ time ≤ to`.
    pub fn new(view: &View, wanted: Vec<StreamRequest>, from: i64, to: i64) -> ByTime {
        // Frames that are stored meanwhile are not among the rows to read.
        let times: Vec<(i64, i64)> = wanted.iter().filter_map(|of| view.time_range(of.stream)).collect();
        let first = times.iter().map(|time| time.0).min().unwrap_or(i64::MAX);
        let last = times.iter().map(|time| time.1).max().unwrap_or(i64::MIN);
        ByTime { wanted, next: from.max(first), end: to.min(last), text_bytes: SLICE_TEXT_BYTES }
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
        let mut frames = Vec::new();
        if self.is_over() {
            return Ok(frames);
        }
        let scan = OrderedScan {
            time: self.next..self.end.saturating_add(1),
            limit: SLICE_FRAMES,
            slice_rows: SLICE_FRAMES,
            ..OrderedScan::all(self.wanted.iter().map(|of| (of.stream, of.channels.clone())).collect())
        };
        let (mut ordered, mut text_bytes, mut newest) = (OrderedFrames::new(view, &scan), 0, None);
        loop {
            let found = ordered.peek(i64::MAX)?;
            if let Some((_, error)) = ordered.take_troubles().pop() {
                return Err(error);
            }
            match (found, ordered.frame()) {
                (NextFrame::Unsure, _) => continue,
                (NextFrame::At(position), Some(frame)) => {
                    let is_full = frames.len() >= SLICE_FRAMES || text_bytes >= self.text_bytes;
                    if is_full && newest != Some(position.time) {
                        self.next = position.time;
                        return Ok(frames);
                    }
                    newest = Some(position.time);
                    let of = &self.wanted[frame.stream];
                    if of.rows.contains(&position.row) {
                        let sighting = sighting(frame.batch, &of.channels, frame.row);
                        if of.every || !sighting.readings.is_empty() {
                            text_bytes += text_bytes_of(frame.batch, frame.row);
                            frames.push(sighting);
                        }
                    }
                    ordered.advance();
                }
                _ => {
                    self.next = self.end.saturating_add(1);
                    if self.end == i64::MAX {
                        self.end = i64::MIN;
                    }
                    return Ok(frames);
                }
            }
        }
    }
}

/// Returns the bytes of the texts in a row.
fn text_bytes_of(batch: &Batch, row: usize) -> usize {
    let bytes = |column: &strongback_store::Column| match column.cell(row) {
        Ok(Value::String(text)) => text.len(),
        _ => 0,
    };
    batch.columns.iter().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongback_store::{
        ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Outcome, Store, StoreOptions, StreamKey, StreamSpec,
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

    /// Opens a store with streams of one text channel each.
    fn open(dir: &std::path::Path, tables: &[&str]) -> (Store, Vec<StreamId>) {
        let options = StoreOptions { log_bytes: 4 << 20, segment_bytes: 1 << 20, ..StoreOptions::default() };
        let store = Store::open(dir, options, T0).unwrap();
        let resolve = |table: &&str| {
            let spec = StreamSpec {
                key: StreamKey::new(*table, []),
                source: "test".to_owned(),
                clock: Clock::Receive,
                expected_period_ns: None,
                sequence_modulus: None,
                channels: vec![ChannelSpec::new("v", ChannelType::String)],
            };
            store.resolve(&spec, T0).unwrap().0.id
        };
        let streams = tables.iter().map(resolve).collect();
        (store, streams)
    }

    fn append(store: &Store, frames: impl Iterator<Item = (StreamId, i64, String)>) {
        let mut batch = FrameBatch::new();
        for (stream, receive_time, text) in frames {
            batch.begin(FrameHead { stream, receive_time, source_time: None, sequence: None });
            batch.push(ChannelIndex(0), Value::String(&text));
            batch.end();
        }
        let appended = store.append(&batch, T0 + ROWS as i64 * 1_000);
        assert!(appended.outcomes.iter().all(|outcome| matches!(outcome, Outcome::Stored { .. })));
    }

    fn wanted(streams: &[StreamId], rows: Range<u64>) -> Vec<StreamRequest> {
        let request = |id: &StreamId| StreamRequest {
            stream: *id,
            channels: vec![ChannelIndex(0)],
            rows: rows.clone(),
            every: false,
        };
        streams.iter().map(request).collect()
    }

    #[test]
    fn a_slice_of_long_texts_is_bounded_in_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let (store, streams) = open(dir.path(), &["s"]);
        append(&store, (0..ROWS).map(|row| (streams[0], T0 + row as i64 * 1_000, format!("{row:0>TEXT_BYTES$}"))));
        let view = store.view();
        for (text_bytes, most) in [(SLICE_TEXT_BYTES, ROWS), (20 * TEXT_BYTES, 20), (1, 1)] {
            let all = ByTime::new(&view, wanted(&streams, 0..u64::MAX), i64::MIN, i64::MAX);
            let mut slices = ByTime { text_bytes, ..all };
            let mut rows = Vec::new();
            while !slices.is_over() {
                let slice = slices.slice::<Length>(&view).unwrap();
                let bytes: usize = slice.iter().flat_map(|frame| &frame.readings).map(|(_, of)| of.0).sum();
                assert!(bytes <= most * TEXT_BYTES, "{bytes} bytes, at most {text_bytes}");
                rows.extend(slice.iter().filter_map(|frame| frame.row));
            }
            assert!(rows.iter().copied().eq(0..ROWS as u64), "{} rows, at most {text_bytes} bytes", rows.len());
        }
    }

    #[test]
    fn slices_hold_whole_instants_in_order_however_late_the_frames_came() {
        let dir = tempfile::tempdir().unwrap();
        let (store, streams) = open(dir.path(), &["s", "t", "u"]);
        let mut random = fastrand::Rng::with_seed(7);
        // About four frames an instant, and late by up to the whole length.
        let frames: Vec<_> = (0..ROWS)
            .map(|_| (streams[random.usize(0..3)], T0 + random.i64(0..ROWS as i64 / 4) * 1_000, "text".to_owned()))
            .collect();
        append(&store, frames.iter().cloned());
        let mut next = [0; 3];
        let mut all = Vec::new();
        for (stream, time, _) in &frames {
            let row = &mut next[streams.iter().position(|id| id == stream).unwrap()];
            all.push((*time, stream.0, *row));
            *row += 1;
        }
        let (from, to, rows) = (T0 + 10_000, T0 + 200_000, 50);
        all.retain(|(time, _, row)| (from..=to).contains(time) && *row < rows);
        all.sort_unstable();
        // Frames that come after the first slice, in its span and with later rows, are not among them.
        for text_bytes in [SLICE_TEXT_BYTES, 40, 1] {
            let slices = ByTime::new(&store.view(), wanted(&streams, 0..rows), from, to);
            let mut slices = ByTime { text_bytes, ..slices };
            let mut found: Vec<(i64, u32, u64)> = Vec::new();
            while !slices.is_over() {
                let slice = slices.slice::<Length>(&store.view()).unwrap();
                let keys: Vec<_> = slice.iter().map(|frame| (frame.time, frame.stream.0, frame.row.unwrap())).collect();
                if let (Some(last), Some(first)) = (found.last(), keys.first()) {
                    assert!(last.0 < first.0, "an instant is cut: {last:?} {first:?}");
                }
                assert!(keys.iter().all(|key| key.0 < slices.at() || slices.is_over()), "at {}: {keys:?}", slices.at());
                found.extend(keys);
                append(&store, std::iter::once((streams[0], to, "late".to_owned())));
            }
            assert_eq!(found, all, "{text_bytes}");
        }
    }
}
