//! Rows of a stream that have one `time`, as a sender makes them whose clock stands still.
//!
//! A frame whose `time` is not new is compared with the rows of that time ([`crate::append::recent`]), so each would
//! take longer than the one before. From some number on their hashes (64 bits) are kept instead, within a bound over all
//! streams. Rows stored since a frame was last looked up are added at the next look, whatever path they came by.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::append::recent::{ComparedRows, FRAMES_MAX, hash_row, hash_stored};
use crate::append::stream_slot::OpenRows;
use crate::model::row::{RowScratch, RowShape};

/// Rows of one `time` from which on their hashes are kept.
pub(crate) const ROWS_MIN: usize = if cfg!(test) { 2 } else { 64 };

/// Max times whose hashes are kept, over all streams.
const TIMES_MAX: usize = if cfg!(test) { 4 } else { 1024 };

/// Max hashes kept over all streams, about 36 MB. One time can have more.
const HASHES_MAX: usize = if cfg!(test) { 600 } else { 2 << 20 };

/// Max hashes with which another time is taken in. What is left is room to grow for those that are known: otherwise,
/// more clocks than fit would push each other out, and each frame would cost collecting all hashes of a time.
const TAKEN_IN_MAX: usize = HASHES_MAX / 4 * 3;

/// Looks after which an unused time gives way to another.
const IDLE_LOOKS: u64 = if cfg!(test) { 300 } else { 1 << 18 };

/// Hashes of the rows of one stream, shape and `time`.
#[derive(Debug)]
struct SameTime {
    shape: Arc<RowShape>,
    hashes: HashSet<u64>,
    /// Row of the stream from which on rows are not looked at yet.
    next_row: u64,
    /// Number of the look at which it was last used.
    used: u64,
}

impl SameTime {
    /// Collects the hashes of all rows that a frame of this `time` is compared with. Returns `None` if the shape of any
    /// is another one.
    fn collect(time: i64, shape: &Arc<RowShape>, next_row: u64, rows: &ComparedRows<'_>) -> Option<SameTime> {
        let mut hashes = HashSet::new();
        for chunk in rows.chunks_of(time) {
            if !Arc::ptr_eq(&chunk.shape, shape) {
                return None;
            }
            hashes.extend(chunk.rows_of(time).map(|row| hash_stored(chunk, row)));
        }
        for (of, sealed) in rows.sealed_of(time) {
            if !std::ptr::eq(of, &**shape) {
                return None;
            }
            hashes.extend(sealed);
        }
        Some(SameTime { shape: shape.clone(), hashes, next_row, used: 0 })
    }

    /// Adds the rows of this `time` stored since. Returns whether it knows all rows of this `time` and shape.
    fn catch_up(&mut self, time: i64, shape: &Arc<RowShape>, open: &OpenRows) -> bool {
        let next_row = open.next_row();
        if !Arc::ptr_eq(&self.shape, shape) || !(open.first_row..=next_row).contains(&self.next_row) {
            return false;
        }
        for chunk in open.chunks.iter().rev().take_while(|chunk| chunk.end_row() > self.next_row) {
            let seen = self.next_row.saturating_sub(chunk.first_row) as usize;
            for row in (seen..chunk.len()).filter(|row| chunk.time(*row) == time) {
                if !Arc::ptr_eq(&chunk.shape, shape) {
                    return false;
                }
                self.hashes.insert(hash_stored(chunk, row));
            }
        }
        self.next_row = next_row;
        self.hashes.len() < 2 * FRAMES_MAX
    }
}

/// Hashes of the rows of times that have many, of all streams. Those not used for longest go first.
#[derive(Debug, Default)]
pub(crate) struct SameTimes {
    times: HashMap<(u32, i64), SameTime>,
    hashes: usize,
    looks: u64,
}

impl SameTimes {
    /// Returns whether a row of this stream and `time` is equal to one stored before, or `None` if that has to be found
    /// out by comparing.
    pub(crate) fn find(
        &mut self,
        (stream, time): (u32, i64),
        row: &RowScratch,
        shape: &Arc<RowShape>,
        open: &OpenRows,
    ) -> Option<bool> {
        self.looks += 1;
        let known = self.times.get_mut(&(stream, time))?;
        let before = known.hashes.len();
        let is_known = known.catch_up(time, shape, open);
        self.hashes += known.hashes.len() - before;
        if !is_known {
            self.forget((stream, time));
            return None;
        }
        known.used = self.looks;
        let is_stored = known.hashes.contains(&hash_row(shape, time, |w| row.words[w], &row.text));
        self.forget_excess();
        Some(is_stored)
    }

    /// Keeps the hashes of all rows of this stream and `time`, if all have this shape and there is room.
    pub(crate) fn keep(
        &mut self,
        (stream, time): (u32, i64),
        shape: &Arc<RowShape>,
        next_row: u64,
        rows: &ComparedRows<'_>,
    ) {
        if !self.has_room(rows.count_of(time)) {
            return;
        }
        let Some(mut known) = SameTime::collect(time, shape, next_row, rows) else { return };
        known.used = self.looks;
        self.hashes += known.hashes.len();
        self.times.insert((stream, time), known);
    }

    /// Returns whether another time with this number of hashes may be kept. Forgets idle times to make room.
    fn has_room(&mut self, hashes: usize) -> bool {
        loop {
            let is_free = self.hashes + hashes <= TAKEN_IN_MAX || self.times.is_empty();
            if is_free && self.times.len() < TIMES_MAX {
                return true;
            }
            let idle = self.oldest().filter(|(_, used)| self.looks - used > IDLE_LOOKS);
            let Some((idle, _)) = idle else { return false };
            self.forget(idle);
        }
    }

    /// Forgets what was not used for longest while there are too many hashes. The last used stays.
    fn forget_excess(&mut self) {
        while self.hashes > HASHES_MAX
            && self.times.len() > 1
            && let Some((oldest, _)) = self.oldest()
        {
            self.forget(oldest);
        }
    }

    /// Returns the key of what was not used for longest, and the number of the look at which it was.
    fn oldest(&self) -> Option<((u32, i64), u64)> {
        self.times.iter().map(|(key, known)| (*key, known.used)).min_by_key(|(_, used)| *used)
    }

    fn forget(&mut self, key: (u32, i64)) {
        self.hashes -= self.times.remove(&key).map_or(0, |known| known.hashes.len());
    }

    /// Returns the numbers of times and of hashes.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize) {
        debug_assert_eq!(self.hashes, self.times.values().map(|known| known.hashes.len()).sum::<usize>());
        (self.times.len(), self.hashes)
    }
}
