//! Streams as readers find them: a table that only grows, read without a lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};

use crate::append::chunk::Chunk;
use crate::append::held::Held;
use crate::catalog::group::Group;
use crate::catalog::stream_list::{self, BUCKET, StreamList};
use crate::log::checkpoint::SealedRows;
use crate::model::stream::{Stream, StreamId};

/// Rows of a stream that are not in a segment: consecutive chunks, only the last of which grows.
#[derive(Debug, Default)]
pub(crate) struct OpenRows {
    /// Chunks, oldest first.
    pub(crate) chunks: Vec<Arc<Chunk>>,
    /// First row of the first chunk, or the next row if there is none.
    pub(crate) first_row: u64,
}

impl OpenRows {
    /// Makes empty rows; the next one will be `next_row`.
    pub(crate) fn empty(next_row: u64) -> OpenRows {
        OpenRows { chunks: Vec::new(), first_row: next_row }
    }

    /// Returns the next row to come.
    pub(crate) fn next_row(&self) -> u64 {
        self.chunks.last().map_or(self.first_row, |c| c.end_row())
    }
}

/// One stream.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    /// Current definition.
    pub(crate) stream: ArcSwap<Stream>,
    /// Rows in memory.
    pub(crate) open: ArcSwap<OpenRows>,
    /// Summary of its rows in segments.
    pub(crate) sealed: ArcSwap<SealedRows>,
    /// Newest frame without a row, of a stream with reductions; valid while no row has its number.
    pub(crate) held: ArcSwapOption<Held>,
    /// Row below which all rows are durable.
    pub(crate) committed_row: AtomicU64,
    /// Retention group, which never changes.
    pub(crate) group: Group,
}

impl StreamSlot {
    /// Returns the `time` of its last row, or if that is in a segment the newest one there; `None` without a row.
    pub(crate) fn last_time(&self) -> Option<i64> {
        let open = self.open.load();
        let last = open.chunks.iter().rev().find_map(|chunk| Some(chunk.time(chunk.len().checked_sub(1)?)));
        let sealed = self.sealed.load().time;
        last.or((sealed.0 <= sealed.1).then_some(sealed.1))
    }

    /// Returns the newest `time` of its rows.
    pub(crate) fn newest_time(&self) -> i64 {
        let open = self.open.load();
        let newest = open.chunks.iter().filter_map(|chunk| chunk.time_range()).map(|range| range.1).max();
        newest.unwrap_or(i64::MIN).max(self.sealed.load().time.1)
    }
}

/// Room for [`BUCKET`] streams.
#[derive(Default)]
struct SlotBucket {
    /// Slots, allocated with the first stream.
    slots: OnceLock<Box<[OnceLock<Arc<StreamSlot>>]>>,
    /// Counter that rises when a stream is added or gets another definition.
    changes: AtomicU64,
}

/// All streams by number.
pub(crate) struct SlotTable {
    buckets: Box<[SlotBucket]>,
    len: AtomicU32,
}

impl SlotTable {
    /// Makes a table with room for `most` streams.
    pub(crate) fn new(most: u32) -> SlotTable {
        let buckets = (0..(most as usize).div_ceil(BUCKET) + 1).map(|_| SlotBucket::default()).collect();
        SlotTable { buckets, len: AtomicU32::new(0) }
    }

    /// Returns the number of streams.
    pub(crate) fn len(&self) -> u32 {
        self.len.load(Ordering::Acquire)
    }

    /// Returns the stream with a number, if any.
    pub(crate) fn get(&self, id: StreamId) -> Option<&Arc<StreamSlot>> {
        let i = id.0 as usize;
        self.buckets.get(i / BUCKET)?.slots.get()?.get(i % BUCKET)?.get()
    }

    /// Returns whether there is room for one more stream.
    pub(crate) fn has_room(&self) -> bool {
        (self.len() as usize) < self.buckets.len() * BUCKET
    }

    /// Adds the next stream. Only the one writer may call it, after [`SlotTable::has_room`].
    pub(crate) fn push(&self, slot: Arc<StreamSlot>) {
        let i = self.len.load(Ordering::Relaxed) as usize;
        let bucket = &self.buckets[i / BUCKET];
        let slots = bucket.slots.get_or_init(|| (0..BUCKET).map(|_| OnceLock::new()).collect());
        let _ = slots[i % BUCKET].set(slot);
        self.len.store(i as u32 + 1, Ordering::Release);
        bucket.changes.fetch_add(1, Ordering::Release);
    }

    /// Replaces a stream's definition.
    pub(crate) fn redefine(&self, slot: &StreamSlot, stream: Arc<Stream>) {
        let bucket = stream.id.0 as usize / BUCKET;
        slot.stream.store(stream);
        self.buckets[bucket].changes.fetch_add(1, Ordering::Release);
    }

    /// Returns how often streams of a bucket were added or defined again. Streams read afterwards are at least as new.
    pub(crate) fn changes(&self, bucket: usize) -> u64 {
        self.buckets.get(bucket).map_or(0, |bucket| bucket.changes.load(Ordering::Acquire))
    }

    /// Iterates over the streams of a bucket, by number.
    pub(crate) fn bucket(&self, bucket: usize) -> impl Iterator<Item = &Arc<StreamSlot>> {
        let slots = self.buckets.get(bucket).and_then(|bucket| bucket.slots.get());
        slots.into_iter().flat_map(|slots| slots.iter().map_while(OnceLock::get))
    }

    /// Iterates over all streams, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<StreamSlot>> {
        (0..self.len()).filter_map(|i| self.get(StreamId(i)))
    }

    /// Makes the list of all streams, sharing chunks with an older list of the same table.
    pub(crate) fn list(&self, older: &StreamList) -> StreamList {
        let mut list = StreamList::default();
        let len = self.len() as usize;
        list.chunks.reserve_exact(len.div_ceil(BUCKET));
        for bucket in 0..len.div_ceil(BUCKET) {
            // Read before the streams: a change while they are read makes this chunk old, not wrong.
            let changes = self.changes(bucket);
            let same = older.chunks.get(bucket).filter(|chunk| chunk.changes == changes);
            let chunk = same.cloned().unwrap_or_else(|| {
                let streams = self.bucket(bucket).map(|slot| slot.stream.load_full()).collect();
                Arc::new(stream_list::StreamChunk { changes, streams })
            });
            list.len += chunk.streams.len();
            list.chunks.push(chunk);
        }
        list
    }
}
