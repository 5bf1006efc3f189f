//! Limits on the memory and file handles held for sealed segments; the least recently used are dropped first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::index::Blocks;
use super::last_row::{LastRow, LastRowKey};
use super::neighbours::Neighbours;
use super::whole_stream::WholeStream;
use super::{BlockRef, Segment, SegmentIndex};
use crate::block::mixed::MixedParts;
use crate::codec::joined::Joined;
use crate::disk::DiskFile;
use crate::segment::LastBlocks;

/// Max number of index entries in memory, of 64 bytes each.
const INDEX_ENTRIES_MAX: usize = 400_000;
/// Max number of open files of sealed segments: far below the 1,024 that a process may have by default.
const FILES_MAX: usize = 256;

/// Stream, channel, code of the channel's type, and first row of neighbouring blocks.
pub(crate) type GroupKey = (u32, u16, u8, u64);

/// Sealed segments with an index in memory or an open file.
#[derive(Default)]
pub(crate) struct Residents {
    clock: AtomicU64,
    kept: Mutex<ResidentSegment>,
    /// Whether the file of a segment was found missing since the last call of `take_vanished`.
    vanished: AtomicBool,
    /// Whether the store is closed: another process may own its files and remove them.
    closed: AtomicBool,
    /// Buffers for blocks read in parts, with stale contents.
    buffers: Mutex<Vec<Vec<u8>>>,
    /// Neighbours of streams read from long indices.
    pub(super) stretches: Neighbours<u64, Vec<(u32, BlockRef)>>,
    /// Blocks of streams read from long indices.
    pub(super) blocks: Neighbours<u32, Blocks>,
    /// Statistics of neighbouring blocks in segments without pyramids.
    pub(crate) groups: Neighbours<GroupKey, Joined>,
    /// What a sealed segment holds of a stream.
    pub(crate) wholes: Neighbours<u32, WholeStream>,
    /// Newest rows of blocks, by stream, first row and requested channels.
    pub(crate) last_rows: Neighbours<LastRowKey, LastRow>,
    /// Neighbouring parts of mixed blocks, by the block's position and the first of the parts.
    pub(super) parts: Neighbours<(u64, usize), MixedParts>,
}

/// Max number of buffers that are kept, and max bytes of one.
const BUFFERS: usize = 4;
const BUFFER_BYTES: usize = 512 << 10;

#[derive(Default)]
struct ResidentSegment {
    segments: HashMap<u64, Arc<Segment>, foldhash::fast::RandomState>,
    entries: usize,
    files: usize,
}

impl Residents {
    /// Returns a buffer of `len` bytes. Its contents are undefined until read into.
    pub(crate) fn buffer(&self, len: usize) -> Vec<u8> {
        let mut buffer = self.buffers.lock().pop().unwrap_or_default();
        buffer.resize(len, 0);
        buffer
    }

    /// Keeps a buffer for reuse.
    pub(crate) fn keep_buffer(&self, buffer: Vec<u8>) {
        let mut buffers = self.buffers.lock();
        if buffers.len() < BUFFERS && buffer.capacity() <= BUFFER_BYTES {
            buffers.push(buffer);
        }
    }

    /// Notes that the file of a segment is missing.
    pub(super) fn note_vanished(&self) {
        self.vanished.store(true, Ordering::Release);
    }

    /// Notes that another process may own the files from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Returns whether another process may own the files.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns whether the file of a segment was found missing since the last call.
    pub(crate) fn take_vanished(&self) -> bool {
        self.vanished.swap(false, Ordering::AcqRel)
    }

    /// Returns the next value of the use counter.
    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts a segment that was just sealed: its index is in memory, its file no longer needs a handle.
    pub(crate) fn sealed(&self, segment: &Arc<Segment>) {
        segment.file.lock().take();
        let mut kept = self.kept.lock();
        kept.entries += segment.index.read().as_ref().map_or(0, SegmentIndex::entries);
        segment.used.store(self.tick(), Ordering::Relaxed);
        kept.segments.insert(segment.id, segment.clone());
        kept.trim();
    }

    /// Keeps the index of a segment that was just read.
    pub(super) fn keep_index(&self, segment: &Arc<Segment>, read: SegmentIndex) {
        let mut kept = self.kept.lock();
        if segment.replaced.load(Ordering::Acquire) || segment.expired.load(Ordering::Acquire) {
            return;
        }
        let mut index = segment.index.write();
        if index.is_none() {
            kept.entries += read.entries();
            *index = Some(read);
        }
        drop(index);
        kept.segments.insert(segment.id, segment.clone());
        kept.trim();
    }

    /// Keeps the newest earlier blocks of a segment, if its index is still in memory.
    pub(super) fn keep_last(&self, segment: &Arc<Segment>, last: LastBlocks) {
        let mut kept = self.kept.lock();
        if let Some(index) = &mut *segment.index.write()
            && index.last.is_none()
        {
            kept.entries += last.places.len();
            index.last = Some(last);
        }
        kept.trim();
    }

    /// Keeps a file that was opened for reading; the first one opened wins.
    pub(super) fn keep_file(&self, segment: &Arc<Segment>, opened: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let mut kept = self.kept.lock();
        if let Some(file) = &*segment.file.lock() {
            return file.clone();
        }
        if segment.replaced.load(Ordering::Acquire) || segment.expired.load(Ordering::Acquire) {
            return opened;
        }
        *segment.file.lock() = Some(opened.clone());
        kept.files += 1;
        kept.segments.insert(segment.id, segment.clone());
        kept.trim();
        opened
    }

    /// Drops segments that no longer exist or were replaced: see [`Segment::set_replaced`].
    pub(crate) fn forget(&self, segments: &[Arc<Segment>]) {
        let mut kept = self.kept.lock();
        for segment in segments {
            if kept.segments.remove(&segment.id).is_some() {
                kept.drop_index(segment);
                kept.close_file(segment);
            }
        }
        drop(kept);
        let is_gone = |id: u64| segments.iter().any(|segment| segment.id == id);
        self.stretches.forget(is_gone);
        self.blocks.forget(is_gone);
        self.parts.forget(is_gone);
        self.groups.forget(is_gone);
        self.wholes.forget(is_gone);
        self.last_rows.forget(is_gone);
    }
}

impl ResidentSegment {
    fn drop_index(&mut self, segment: &Segment) {
        let dropped = segment.index.write().take();
        self.entries = self.entries.saturating_sub(dropped.as_ref().map_or(0, SegmentIndex::entries));
    }

    fn close_file(&mut self, segment: &Segment) {
        // Current readers keep the handle until they are done.
        if segment.file.lock().take().is_some() {
            self.files = self.files.saturating_sub(1);
        }
    }

    /// Drops half of what is kept if a limit is exceeded.
    fn trim(&mut self) {
        if self.entries <= INDEX_ENTRIES_MAX && self.files <= FILES_MAX {
            return;
        }
        let mut by_use: Vec<(u64, Arc<Segment>)> =
            self.segments.values().map(|s| (s.used.load(Ordering::Relaxed), s.clone())).collect();
        by_use.sort_unstable_by_key(|(used, _)| *used);
        for (_, segment) in by_use {
            if self.entries <= INDEX_ENTRIES_MAX / 2 && self.files <= FILES_MAX / 2 {
                break;
            }
            // The index of an open segment is nowhere else.
            if self.entries > INDEX_ENTRIES_MAX / 2 && segment.state.lock().sealed {
                self.drop_index(&segment);
            }
            if self.files > FILES_MAX / 2 {
                self.close_file(&segment);
            }
            if segment.index.read().is_none() && segment.file.lock().is_none() {
                self.segments.remove(&segment.id);
            }
        }
    }
}
