//! Rows of a stream that have one `time`, as a sender makes them whose clock stands still.
//!
//! A frame whose `time` is not new is compared with the rows of that time ([`crate::append::recent`]), so each would
//! take longer than the one before. From some number on their hashes (64 bits) are kept instead.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::append::recent::{FRAMES_MAX, RecentRows, hash_row};
use crate::append::stream_slot::OpenRows;
use crate::model::row::{RowScratch, RowShape};

/// Rows of one `time` from which on their hashes are kept.
const ROWS_MIN: usize = if cfg!(test) { 2 } else { 64 };

/// Hashes of the rows of one `time` and shape.
#[derive(Debug)]
pub(crate) struct SameTime {
    time: i64,
    shape: Arc<RowShape>,
    hashes: HashSet<u64>,
}

impl SameTime {
    /// Collects the hashes of all rows that a frame of this `time` is compared with. Returns `None` if the newest rows
    /// are not of this time, or the shape of any is another one.
    pub(crate) fn collect(
        time: i64,
        shape: &Arc<RowShape>,
        open: &OpenRows,
        recent: Option<&RecentRows>,
    ) -> Option<SameTime> {
        let newest = open.chunks.last()?;
        let len = newest.len();
        if len < ROWS_MIN || newest.time(len - ROWS_MIN) != time || newest.time(len - 1) != time {
            return None;
        }
        let mut hashes = HashSet::new();
        let mut left = FRAMES_MAX;
        for chunk in open.chunks.iter().rev() {
            let len = chunk.len();
            if left < len {
                return Some(SameTime { time, shape: shape.clone(), hashes });
            }
            left -= len;
            if chunk.time_range().is_none_or(|(min, max)| time < min || time > max) {
                continue;
            }
            if !Arc::ptr_eq(&chunk.shape, shape) {
                return None;
            }
            for row in (0..len).filter(|row| chunk.time(*row) == time) {
                let words = chunk.row_words(row);
                hashes.insert(hash_row(shape, time, |w| words[w].load(Ordering::Relaxed), chunk.row_text(row)));
            }
        }
        for ((from, to), of, sealed) in recent.into_iter().flat_map(RecentRows::lists) {
            if (from..=to).contains(&time) {
                if !std::ptr::eq(of, &**shape) {
                    return None;
                }
                hashes.extend(sealed);
            }
        }
        Some(SameTime { time, shape: shape.clone(), hashes })
    }

    /// Returns the `time` of its rows.
    pub(crate) fn time(&self) -> i64 {
        self.time
    }

    /// Returns whether it knows the rows that a frame of this `time` and shape is compared with.
    pub(crate) fn is_of(&self, time: i64, shape: &Arc<RowShape>) -> bool {
        self.time == time && Arc::ptr_eq(&self.shape, shape) && self.hashes.len() < 2 * FRAMES_MAX
    }

    /// Adds a row. Returns whether it is new.
    pub(crate) fn add(&mut self, row: &RowScratch) -> bool {
        self.hashes.insert(hash_row(&self.shape, self.time, |w| row.words[w], &row.text))
    }
}
