//! One stream of a playback, in the order of (`time`, row), read slice by slice of time so that what is held of it is
//! bounded whatever the order its rows came in.

use std::sync::Arc;

use strongback_store::{Batch, ChannelIndex, Scan, ScanError, StreamId, View};

use crate::live::PlayedFrame;
use crate::live::place::Place;
use crate::live::tail::Arrived;
use crate::reception::replay::varying_bytes;

/// Bytes of all slices that are held, about: the most of [`super::PLAYBACK_BYTES`].
const BYTES: usize = super::PLAYBACK_BYTES / 8 * 7;
/// Bytes of a row without its cells: its times and number, in its batch and in the order of rows.
const ROW_BYTES: usize = 64;
/// Bytes of a cell of fixed size.
const CELL_BYTES: usize = 9;
/// Most rows of a slice, where its bytes allow.
const ROWS_MAX: usize = 4096;
/// Fewest rows of a slice. The bytes that these take beyond [`BYTES`] are charged to the viewers: [`channel_bytes`].
const ROWS_MIN: usize = 16;
/// The first slice of a stream, in nanoseconds.
const WIDTH: u64 = 1_000_000_000;
/// The longest.
const WIDTH_MAX: u64 = 1 << 52;

/// Returns the bytes that a playback may hold for a number of channels and of streams, whatever else it shows.
pub fn channel_bytes(channels: usize, streams: usize) -> usize {
    ROWS_MIN * (channels * CELL_BYTES + streams * ROW_BYTES)
}

/// What cannot be read; the rest is.
#[derive(Debug)]
pub struct Trouble {
    /// The stream.
    pub stream: StreamId,
    /// Why.
    pub error: ScanError,
}

/// A row of a slice.
#[derive(Clone, Copy, Debug)]
struct SliceRow {
    time: i64,
    row: u64,
    /// The batch that has it, and where in it.
    batch: u32,
    at: u32,
}

/// Reads one stream.
#[derive(Debug)]
pub struct Track {
    /// The stream.
    pub stream: StreamId,
    /// Its channels that are wanted.
    channels: Vec<ChannelIndex>,
    batches: Vec<Arc<Batch>>,
    rows: Vec<SliceRow>,
    next: usize,
    /// Rows of an earlier `time` are read.
    known_to: i64,
    /// Of a slice of one nanosecond that has too many: rows before are read.
    known_row: u64,
    width: u64,
    rows_max: usize,
    /// Most bytes of texts and arrays in a slice, beside its last batch.
    bytes_max: usize,
    /// Ends of the gaps that are not told, nanoseconds since 1970 UTC, the last first.
    gaps: Vec<i64>,
}

impl Track {
    /// A stream from behind a place on, one of so many.
    pub fn new(stream: StreamId, channels: Vec<ChannelIndex>, place: Place, streams: usize) -> Track {
        let bytes_max = BYTES / streams.max(1);
        let rows_max = (bytes_max / (ROW_BYTES + CELL_BYTES * channels.len())).clamp(ROWS_MIN, ROWS_MAX);
        // Within frames of one stream and time it goes on at a row; else those are one.
        let is_within = stream == place.stream && place.row < u64::MAX && place > Place::START;
        let (known_to, known_row, width) = match is_within {
            true => (place.time, place.row + 1, 1),
            false => (place.last_time_of(stream).saturating_add(1), 0, WIDTH),
        };
        let (batches, rows, gaps) = (Vec::new(), Vec::new(), Vec::new());
        Track { stream, channels, batches, rows, next: 0, known_to, known_row, width, rows_max, bytes_max, gaps }
    }

    /// Notes that frames are missing before a `time`; such times come in any order before the first frame is read.
    pub fn note_gap(&mut self, to: i64) {
        if to >= self.known_to {
            let at = self.gaps.partition_point(|known| *known > to);
            self.gaps.insert(at, to);
        }
    }

    /// Where its next frame stands, if it is known.
    pub fn head(&self) -> Option<Place> {
        self.rows.get(self.next).map(|row| Place { time: row.time, stream: self.stream, row: row.row })
    }

    /// From which `time` on it must be read, if no frame is known.
    pub fn known_to(&self) -> i64 {
        self.known_to
    }

    /// Hands out the next frame, if it is known.
    pub fn take(&mut self) -> Option<Frame<'_>> {
        let row = *self.rows.get(self.next)?;
        self.next += 1;
        let batch = &self.batches[row.batch as usize];
        let mut gap = false;
        while self.gaps.last().is_some_and(|to| *to <= row.time) {
            self.gaps.pop();
            gap = true;
        }
        let receive_time = batch.receive_time[row.at as usize];
        let arrived = Arrived { time: row.time, receive_time, row: Some(row.row), gap };
        Some(Frame { stream: self.stream, arrived, batch, at: row.at as usize, channels: &self.channels })
    }

    /// Reads the next slice, of frames before `end`. Frames handed out before are forgotten.
    ///
    /// # Errors
    /// The view is too old.
    pub fn read(&mut self, view: &View, end: i64, troubles: &mut Vec<Trouble>) -> Result<(), ScanError> {
        loop {
            self.batches.clear();
            self.rows.clear();
            self.next = 0;
            let stop = self.known_to.saturating_add_unsigned(self.width).min(end);
            let noted = troubles.len();
            let is_full = self.scan(view, stop, troubles)?;
            if is_full && self.width > 1 {
                // Read again, with what is damaged in it.
                troubles.truncate(noted);
                let span = stop.abs_diff(self.known_to);
                self.width = (span / 2).max(1);
                continue;
            }
            if is_full {
                self.known_row = self.rows.last().map_or(0, |row| row.row + 1);
                return Ok(());
            }
            (self.known_to, self.known_row) = (stop, 0);
            self.rows.sort_unstable_by_key(|row| (row.time, row.row));
            if self.rows.len() * 4 < self.rows_max {
                self.width = self.width.saturating_mul(if self.rows.is_empty() { 4 } else { 2 }).min(WIDTH_MAX);
            }
            return Ok(());
        }
    }

    /// Gathers rows before `stop`; whether there are too many.
    fn scan(&mut self, view: &View, stop: i64, troubles: &mut Vec<Trouble>) -> Result<bool, ScanError> {
        let all = Scan { batch_rows: self.rows_max + 1, ..Scan::all(self.stream, self.channels.clone()) };
        let mut bytes = 0;
        let scan = Scan { time: self.known_to..stop, rows: self.known_row..u64::MAX, ..all };
        for batch in view.scan(scan) {
            let batch = match batch {
                Ok(batch) => Arc::new(batch),
                Err(ScanError::ViewTooOld) => return Err(ScanError::ViewTooOld),
                Err(error) => {
                    troubles.push(Trouble { stream: self.stream, error });
                    continue;
                }
            };
            if bytes > self.bytes_max {
                return Ok(true);
            }
            bytes += varying_bytes(&batch);
            let number = self.batches.len() as u32;
            for (at, row) in (0..batch.len()).zip(&batch.rows) {
                if self.rows.len() >= self.rows_max {
                    self.batches.push(batch);
                    return Ok(true);
                }
                self.rows.push(SliceRow { time: batch.time(at), row: *row, batch: number, at: at as u32 });
            }
            self.batches.push(batch);
        }
        Ok(false)
    }
}

/// A frame of the record, in its turn.
#[derive(Debug)]
pub struct Frame<'a> {
    /// Its stream.
    pub stream: StreamId,
    /// Its times and row.
    pub arrived: Arrived,
    batch: &'a Arc<Batch>,
    at: usize,
    channels: &'a [ChannelIndex],
}

impl Frame<'_> {
    /// Where it stands.
    pub fn place(&self) -> Place {
        Place { time: self.arrived.time, stream: self.stream, row: self.arrived.row.unwrap_or_default() }
    }

    /// As the fan-out takes it.
    pub fn played(&self) -> PlayedFrame<'_> {
        PlayedFrame { arrived: self.arrived, batch: (self.batch, self.at), channels: self.channels }
    }
}
