//! The segment directory: which segments there are and where their blocks lie.

mod list;
mod resident;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::bytes::FormatError;
use crate::disk::{Access, Disk, DiskFile, PAGE_BYTES, read_exact};
use crate::fields::{Put, Take};
use crate::group::Group;
use crate::refusal::ScanError;
use crate::segment::{self, Before, LastBlocks};
use crate::segment_file::block_ref;

pub(crate) use list::SegmentList;
pub(crate) use resident::Residents;

/// A block as the directory knows it. Mixed blocks are listed once for each of their streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRef {
    pub(crate) first_row: u64,
    pub(crate) rows: u32,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    /// Which part of a mixed block, if it is one.
    pub(crate) part: Option<u32>,
    pub(crate) time_sorted: bool,
    pub(crate) time: (i64, i64),
}

impl BlockRef {
    pub(crate) fn end_row(&self) -> u64 {
        self.first_row + self.rows as u64
    }
}

/// What a footer says, or will.
#[derive(Default)]
pub(crate) struct SegmentIndex {
    /// Blocks by stream, in row order.
    blocks: hashbrown::HashMap<u32, Vec<BlockRef>, foldhash::fast::RandomState>,
    /// Of streams without a block in it, where the newest one before is.
    last: Option<LastBlocks>,
}

/// What the directory says of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentState {
    pub(crate) sealed: bool,
    /// Bytes written, footer included.
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
    pub(crate) points: u64,
    /// min > max: no rows.
    pub(crate) time: (i64, i64),
    pub(crate) stored: (i64, i64),
}

impl Default for SegmentState {
    fn default() -> Self {
        let none = (i64::MAX, i64::MIN);
        SegmentState { sealed: false, bytes: 0, blocks: 0, points: 0, time: none, stored: none }
    }
}

/// A segment.
pub(crate) struct Segment {
    pub(crate) id: u64,
    pub(crate) group: Group,
    disk: Arc<dyn Disk>,
    file: Mutex<Option<Arc<dyn DiskFile>>>,
    pub(crate) state: Mutex<SegmentState>,
    /// Complete while it is open; of a sealed one read at first use, and dropped when others need the memory.
    index: RwLock<Option<SegmentIndex>>,
    /// When the index was used last, by a counter.
    used: AtomicU64,
    pub(crate) expired: AtomicBool,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "segment {}", self.id)
    }
}

/// Name of a segment's file.
pub(crate) fn file_name(id: u64) -> String {
    format!("segment-{id:012}.sbs")
}

impl Segment {
    pub(crate) fn new(disk: Arc<dyn Disk>, id: u64, group: Group, state: SegmentState) -> Segment {
        Segment {
            id,
            group,
            disk,
            file: Mutex::new(None),
            state: Mutex::new(state),
            index: RwLock::new(None),
            used: AtomicU64::new(0),
            expired: AtomicBool::new(false),
        }
    }

    /// Its file, to write.
    pub(crate) fn file(&self) -> std::io::Result<Arc<dyn DiskFile>> {
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(file.clone());
        }
        let opened = self.disk.open(&file_name(self.id), Access::Buffered)?;
        Ok(file.insert(opened).clone())
    }

    /// Its file, to read: opened at first use, closed when many others are used.
    fn file_to_read(self: &Arc<Self>, residents: &Residents) -> std::io::Result<Arc<dyn DiskFile>> {
        self.used.store(residents.tick(), Ordering::Relaxed);
        if let Some(file) = &*self.file.lock() {
            return Ok(file.clone());
        }
        let opened = self.disk.open(&file_name(self.id), Access::Buffered)?;
        Ok(residents.keep_file(self, opened))
    }

    /// Why it cannot be read.
    fn unreadable(&self, source: std::io::Error) -> ScanError {
        if self.expired.load(Ordering::Acquire) {
            ScanError::Expired
        } else {
            ScanError::Io { file: self.path(), source }
        }
    }

    /// Gives it the file that was just made.
    pub(crate) fn set_file(&self, file: Arc<dyn DiskFile>) {
        *self.file.lock() = Some(file);
    }

    /// The file as messages name it.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.disk.path(), file_name(self.id))
    }

    /// Lists blocks that were just written.
    pub(crate) fn add_blocks(&self, blocks: impl Iterator<Item = (u32, BlockRef)>) {
        let mut index = self.index.write();
        let index = index.get_or_insert_default();
        for (stream, block) in blocks {
            index.blocks.entry(stream).or_default().push(block);
        }
    }

    /// Keeps what the footer that was just written says of earlier segments.
    pub(crate) fn set_last(&self, last: Option<LastBlocks>) {
        self.index.write().get_or_insert_default().last = last;
    }

    /// Blocks of a stream, in row order.
    ///
    /// # Errors
    /// The footer cannot be read or is damaged.
    pub(crate) fn blocks(self: &Arc<Self>, stream: u32, residents: &Residents) -> Result<Vec<BlockRef>, ScanError> {
        let blocks = self.with_index(residents, |index| index.blocks.get(&stream).cloned())?;
        Ok(blocks.flatten().unwrap_or_default())
    }

    /// Where a stream without a block in it has its newest one before.
    ///
    /// # Errors
    /// As [`Segment::blocks`].
    pub(crate) fn before(self: &Arc<Self>, stream: u32, residents: &Residents) -> Result<Before, ScanError> {
        let before = self.with_index(residents, |index| match &index.last {
            Some(last) if !index.blocks.contains_key(&stream) => last.of(stream),
            _ => Before::Unknown,
        })?;
        Ok(before.unwrap_or(Before::Unknown))
    }

    /// Asks the index; none where a segment that is still open has no block.
    fn with_index<T>(
        self: &Arc<Self>,
        residents: &Residents,
        ask: impl FnOnce(&SegmentIndex) -> T,
    ) -> Result<Option<T>, ScanError> {
        if let Some(index) = &*self.index.read() {
            self.used.store(residents.tick(), Ordering::Relaxed);
            return Ok(Some(ask(index)));
        }
        if !self.state.lock().sealed {
            return Ok(None);
        }
        let index = self.read_index(residents)?;
        let found = ask(&index);
        residents.keep_index(self, index);
        Ok(Some(found))
    }

    fn read_index(self: &Arc<Self>, residents: &Residents) -> Result<SegmentIndex, ScanError> {
        let damaged =
            |offset, error: FormatError| ScanError::Damaged { file: self.path(), offset, reason: error.to_string() };
        let file = self.file_to_read(residents).map_err(|e| self.unreadable(e))?;
        // The last page of the file, which was cut behind it, or of the slot.
        let at = file.size().map_err(|e| self.unreadable(e))?.saturating_sub(PAGE_BYTES as u64);
        let trailer = read_exact(&*file, at, PAGE_BYTES).map_err(|e| self.unreadable(e))?;
        let trailer = segment::read_trailer(&trailer).map_err(|e| damaged(at, e))?;
        let footer = read_exact(&*file, trailer.footer_offset, trailer.footer_bytes).map_err(|e| self.unreadable(e))?;
        let footer = segment::read_footer(&footer, &trailer).map_err(|e| damaged(trailer.footer_offset, e))?;
        let mut index = SegmentIndex { last: footer.last, ..SegmentIndex::default() };
        for entry in &footer.entries {
            index.blocks.entry(entry.header.stream.0).or_default().push(block_ref(entry));
        }
        Ok(index)
    }

    /// Bytes of a block.
    ///
    /// # Errors
    /// The disk refuses, or the segment was expired.
    pub(crate) fn read_block(self: &Arc<Self>, block: &BlockRef, residents: &Residents) -> Result<Vec<u8>, ScanError> {
        self.read_bytes(block.offset.into(), block.len as usize, residents)
    }

    /// Some of its bytes.
    ///
    /// # Errors
    /// As [`Segment::read_block`].
    pub(crate) fn read_bytes(
        self: &Arc<Self>,
        offset: u64,
        len: usize,
        residents: &Residents,
    ) -> Result<Vec<u8>, ScanError> {
        let file = self.file_to_read(residents);
        file.and_then(|file| read_exact(&*file, offset, len)).map_err(|source| self.unreadable(source))
    }

    /// Its entry in a checkpoint.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let state = *self.state.lock();
        let mut p = Put::default();
        p.u64(self.id);
        p.u8(self.group.0 as u8);
        p.u8(state.sealed as u8);
        p.u64(state.bytes);
        p.u64(state.blocks);
        p.u64(state.points);
        p.i64(state.time.0);
        p.i64(state.time.1);
        p.i64(state.stored.0);
        p.i64(state.stored.1);
        p.u8((self.group.0 >> 8) as u8);
        if let Some(slot) = self.disk.slot_of(&file_name(self.id)) {
            p.u32(slot);
        }
        p.0
    }

    /// The id, group, state and slot of a checkpoint's entry.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(u64, Group, SegmentState, Option<u32>)> {
        let mut t = Take(bytes);
        let (id, group, sealed) = (t.u64()?, t.u8()?, t.u8()? != 0);
        let state = SegmentState {
            sealed,
            bytes: t.u64()?,
            blocks: t.u64()?,
            points: t.u64()?,
            time: (t.i64()?, t.i64()?),
            stored: (t.i64()?, t.i64()?),
        };
        // Of an entry from before there were more than 256 groups the upper half is not there.
        let upper = t.u8().unwrap_or(0);
        Some((id, Group(u16::from_le_bytes([group, upper])), state, t.u32()))
    }
}
