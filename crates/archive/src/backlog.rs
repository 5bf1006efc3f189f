//! What a follower has still to deliver, read from the store.

use std::collections::HashMap;
use std::ops::Range;

use strongback_store::{Batch, Chosen, Pattern, Scan, ScanError, Store, StreamId, TooCostly, View, matching_data};

use crate::delivery::{Delivery, StreamFrames, frame_bytes};
use crate::position::Positions;

/// Streams of a follower, and how much of them it takes at once.
pub(crate) struct Backlog {
    store: Store,
    patterns: Vec<Pattern>,
    /// Streams that match, as of a version of the catalog.
    followed: Vec<Chosen>,
    catalog_version: Option<u64>,
    /// Stream that is read first, so that each gets its turn.
    turn: usize,
    frames_max: usize,
    bytes_max: usize,
    /// Whether repeats of times are counted.
    counts_repeats: bool,
}

/// Rows that cannot be delivered, because they are no longer stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Stream of the rows.
    pub stream: StreamId,
    /// Rows from the first to the one after the last.
    pub rows: Range<u64>,
    /// Whether the rows are damaged. Otherwise they expired.
    pub is_damaged: bool,
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// Frames to deliver.
    pub(crate) delivery: Delivery,
    /// Rows that are passed over.
    pub(crate) skipped: Vec<Skipped>,
    /// Frames not delivered before this delivery, of all streams.
    pub(crate) behind_frames: u64,
    /// Whether the delivery is as large as it may be, so that more may wait.
    pub(crate) is_full: bool,
    /// Receive time of the oldest frame of the delivery.
    pub(crate) oldest: Option<i64>,
    /// Reason why some stream could not be read.
    pub(crate) trouble: Option<String>,
}

impl Backlog {
    pub(crate) fn new(
        store: Store,
        patterns: Vec<Pattern>,
        (frames_max, bytes_max): (usize, usize),
        counts_repeats: bool,
    ) -> Backlog {
        let (followed, catalog_version, turn) = (Vec::new(), None, 0);
        Backlog { store, patterns, followed, catalog_version, turn, frames_max, bytes_max, counts_repeats }
    }

    /// Returns the streams that match now.
    ///
    /// # Errors
    /// If comparing the patterns takes too long.
    pub(crate) fn streams(&mut self) -> Result<&[Chosen], TooCostly> {
        let version = self.store.catalog_version();
        if self.catalog_version != Some(version) {
            self.followed = matching_data(&self.store.catalog(), &self.patterns)?;
            self.catalog_version = Some(version);
        }
        Ok(&self.followed)
    }

    /// Returns the number of frames that are committed and not delivered, and whether they fill a delivery.
    ///
    /// # Errors
    /// If comparing the patterns takes too long.
    pub(crate) fn waiting(&mut self, positions: &Positions) -> Result<(u64, bool), TooCostly> {
        self.streams()?;
        let (mut frames, mut bytes) = (0, 0);
        for (stream, channels) in &self.followed {
            let next = positions.of(stream.id).next_row;
            let waiting = self.store.committed_row(stream.id).saturating_sub(next);
            frames += waiting;
            bytes += waiting.saturating_mul(frame_bytes(channels.len()) as u64);
        }
        Ok((frames, frames >= self.frames_max as u64 || bytes >= self.bytes_max as u64))
    }

    /// Reads frames that are committed and not delivered, except of some streams.
    ///
    /// # Errors
    /// If comparing the patterns takes too long.
    pub(crate) fn read(
        &mut self,
        positions: &Positions,
        is_suspended: &dyn Fn(StreamId) -> bool,
    ) -> Result<Read, TooCostly> {
        self.streams()?;
        let mut read = Read::default();
        let mut view = None;
        let (mut frames, mut bytes) = (self.frames_max, self.bytes_max);
        let (first, streams) = (self.turn, self.followed.len());
        for n in 0..streams {
            let at = (first + n) % streams;
            let (stream, channels) = &self.followed[at];
            let (next, end) = (positions.of(stream.id).next_row, self.store.committed_row(stream.id));
            read.behind_frames += end.saturating_sub(next);
            if next > end {
                let text = format!("{}: row {next} comes next, and only {end} are stored", stream.key);
                read.trouble =
                    Some(format!("{text}; if this is an older copy of the store, `strongback store adopt` it"));
            }
            if next >= end || frames == 0 || bytes == 0 || is_suspended(stream.id) {
                continue;
            }
            self.turn = at + 1;
            // Taken after the number of committed rows, so it has them.
            let view: &View = view.get_or_insert_with(|| self.store.view().with_excluded());
            let most = frames.min(bytes / frame_bytes(channels.len())).max(1);
            let mut scan = Scan::all(stream.id, channels.clone());
            (scan.rows, scan.batch_rows) = (next..end, most);
            let mut rows = next;
            let mut is_damaged = false;
            let mut skip =
                |rows: Range<u64>, is_damaged| read.skipped.push(Skipped { stream: stream.id, rows, is_damaged });
            let mut left = most;
            let mut failed = None;
            for batch in view.scan(scan) {
                match batch {
                    Ok(batch) => {
                        let Some((first, last)) = batch.rows.first().copied().zip(batch.rows.last().copied()) else {
                            continue;
                        };
                        if first > rows {
                            skip(rows..first, is_damaged);
                        }
                        (rows, is_damaged) = (last + 1, false);
                        let repeats = if self.counts_repeats { repeats(view, &batch) } else { Vec::new() };
                        let of = (stream.id, channels.as_slice());
                        let taken = add(&mut read.delivery, view, of, (batch, repeats), &mut read.oldest);
                        left = left.saturating_sub(taken.0);
                        (frames, bytes) = (frames.saturating_sub(taken.0), bytes.saturating_sub(taken.1));
                        if left == 0 || bytes == 0 {
                            break;
                        }
                    }
                    Err(ScanError::Damaged { .. }) => is_damaged = true,
                    Err(error) => {
                        failed = Some(format!("{}: {error}", stream.key));
                        break;
                    }
                }
            }
            match failed {
                Some(failed) => read.trouble = Some(failed),
                None if left > 0 && bytes > 0 && rows < end => skip(rows..end, is_damaged),
                None => {}
            }
        }
        read.is_full = frames == 0 || bytes == 0;
        if let Some(view) = view {
            read.delivery.catalog = view.catalog().clone();
        }
        Ok(read)
    }
}

/// Adds a batch, and returns its frames and their size in bytes.
fn add(
    delivery: &mut Delivery,
    view: &View,
    (stream, channels): (StreamId, &[strongback_store::ChannelIndex]),
    (batch, repeats): (Batch, Vec<u32>),
    oldest: &mut Option<i64>,
) -> (usize, usize) {
    let Some(stream) = view.catalog().stream(stream) else { return (0, 0) };
    let received = batch.receive_time.iter().copied().min();
    *oldest = (*oldest).into_iter().chain(received).min();
    let frames = StreamFrames { stream: stream.clone(), channels: channels.to_vec(), batch, repeats };
    let taken = (frames.batch.len(), frames.size_bytes());
    delivery.parts.push(frames);
    taken
}

/// Returns for each frame of a batch the number of earlier ones of its stream with the same time.
fn repeats(view: &View, batch: &Batch) -> Vec<u32> {
    let times: Vec<i64> = (0..batch.len()).map(|at| batch.time(at)).collect();
    let mut counts: HashMap<i64, u32> = times.iter().map(|time| (*time, 0)).collect();
    let mut scan = Scan::all(batch.stream, Vec::new());
    scan.rows = 0..batch.rows.first().copied().unwrap_or(0);
    scan.time = times.iter().min().copied().unwrap_or(0)..times.iter().max().map_or(0, |time| time.saturating_add(1));
    // Frames in time are in blocks that are passed over. Those that are damaged were never delivered.
    for earlier in view.scan(scan).filter_map(Result::ok) {
        for at in 0..earlier.len() {
            if let Some(count) = counts.get_mut(&earlier.time(at)) {
                *count += 1;
            }
        }
    }
    let count = |time: &i64| counts.get_mut(time).map_or(0, |count| std::mem::replace(count, *count + 1));
    times.iter().map(count).collect()
}
