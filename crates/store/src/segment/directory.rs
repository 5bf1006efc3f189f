//! The segment directory: which segments exist and where their blocks lie.

mod index;
pub(crate) mod last_row;
mod list;
mod neighbours;
mod resident;
pub(crate) mod whole_stream;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::block::mixed::{MixedBlock, MixedParts};
use crate::bytes::fields::Put;
use crate::bytes::{Cursor, FormatError, malformed};
use crate::catalog::group::Group;
use crate::disk::{Access, Disk, DiskFile, PAGE_BYTES, read_exact, read_exact_into};
use crate::model::refusal::ScanError;
use crate::segment::file::block_ref;
use crate::segment::pyramid::Extent;
use crate::segment::{self, Footer, LastBlocks, NewestBefore, Outline, Trailer};

pub(crate) use index::SegmentIndex;
#[cfg(test)]
pub(crate) use index::WHOLE;
use index::{Blocks, Listing};
pub(crate) use list::{GroupList, SegmentList};
pub(crate) use resident::Residents;

/// Number of neighbouring parts of a mixed block that are kept when one of them is read.
const PARTS_TOGETHER: usize = 64;

/// Block as listed in the directory. A mixed block is listed once for each of its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRef {
    pub(crate) first_row: u64,
    pub(crate) rows: u32,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    /// Index of the part in a mixed block.
    pub(crate) part: Option<u32>,
    pub(crate) time_sorted: bool,
    pub(crate) time: (i64, i64),
}

impl BlockRef {
    pub(crate) fn end_row(&self) -> u64 {
        self.first_row + self.rows as u64
    }
}

/// State of a segment in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentState {
    pub(crate) sealed: bool,
    /// Whether compaction examined the segment and left it as it is.
    pub(crate) left: bool,
    /// Whether its file is missing or cut and `strongback.gaps` has the loss.
    pub(crate) told_lost: bool,
    /// Bytes written, including the footer.
    pub(crate) bytes: u64,
    /// Number of blocks, or of blobs.
    pub(crate) blocks: u64,
    pub(crate) points: u64,
    /// Smallest and largest `time`; min > max if there are no rows.
    pub(crate) time: (i64, i64),
    pub(crate) stored: (i64, i64),
    /// Instant before which nothing in it was stored, by the last correct clock. Its checkpoint entry has this as the
    /// newest stored instant if that would be earlier.
    pub(crate) not_before: i64,
}

impl Default for SegmentState {
    fn default() -> Self {
        let none = (i64::MAX, i64::MIN);
        SegmentState {
            sealed: false,
            left: false,
            told_lost: false,
            bytes: 0,
            blocks: 0,
            points: 0,
            time: none,
            stored: none,
            not_before: i64::MIN,
        }
    }
}

/// Segment and its state in the directory.
pub(crate) struct Segment {
    pub(crate) id: u64,
    /// First and last number that the segment replaces; both its own unless it was made by compaction. The last is
    /// its place among the segments of its group.
    pub(crate) places: (u64, u64),
    pub(crate) group: Group,
    /// Whether the segment holds blobs and no blocks; it is then not searched for rows.
    pub(crate) blobs: bool,
    /// Whether its file is missing or cut. It is then not searched for blocks, so that readers get the rest.
    lost: AtomicBool,
    disk: Arc<dyn Disk>,
    file: Mutex<Option<Arc<dyn DiskFile>>>,
    pub(crate) state: Mutex<SegmentState>,
    /// Index of the blocks. Complete while the segment is open; once sealed, read at first use and dropped when
    /// memory is short.
    index: RwLock<Option<SegmentIndex>>,
    /// Counter value of the last use of the index.
    used: AtomicU64,
    pub(crate) expired: AtomicBool,
    /// Whether another segment replaces it; only older views still read it.
    replaced: AtomicBool,
}

/// Entry of a segment in a checkpoint.
#[derive(Clone)]
pub(crate) struct SegmentEntry {
    pub(crate) id: u64,
    pub(crate) places: (u64, u64),
    pub(crate) group: Group,
    pub(crate) blobs: bool,
    pub(crate) state: SegmentState,
    /// Slot, in a store of fixed size.
    pub(crate) slot: Option<u32>,
}

/// Flag bits of an entry.
const ENTRY_SEALED: u8 = 1;
const ENTRY_LEFT: u8 = 2;
const ENTRY_PLACES: u8 = 4;
const ENTRY_BLOBS: u8 = 8;
const ENTRY_TOLD_LOST: u8 = 16;

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "segment {}", self.id)
    }
}

/// Returns the name of a segment's file.
pub(crate) fn file_name(id: u64) -> String {
    format!("segment-{id:012}.sbs")
}

/// Removes the file of a segment. Returns `false` if there is none.
pub(crate) fn remove_segment(disk: &dyn Disk, id: u64) -> std::io::Result<bool> {
    match disk.remove(&file_name(id)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl Segment {
    pub(crate) fn new(disk: Arc<dyn Disk>, id: u64, group: Group, state: SegmentState) -> Segment {
        Segment::standing_for((id, id), disk, id, group, state)
    }

    /// Returns a segment that replaces those of other numbers.
    pub(crate) fn standing_for(
        places: (u64, u64),
        disk: Arc<dyn Disk>,
        id: u64,
        group: Group,
        state: SegmentState,
    ) -> Segment {
        Segment {
            id,
            places,
            group,
            blobs: false,
            lost: AtomicBool::new(false),
            disk,
            file: Mutex::new(None),
            state: Mutex::new(state),
            index: RwLock::new(None),
            used: AtomicU64::new(0),
            expired: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
        }
    }

    /// Marks the segment as one of blobs.
    pub(crate) fn of_blobs(self) -> Segment {
        Segment { blobs: true, ..self }
    }

    /// Marks the segment as lost: the blocks in its file are no longer searched.
    pub(crate) fn lost(self) -> Segment {
        Segment { lost: AtomicBool::new(true), ..self }
    }

    /// Returns whether its file is missing or cut.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Returns its place among the segments of its group: rows of a stream ascend with it.
    pub(crate) fn place(&self) -> u64 {
        self.places.1
    }

    /// Returns whether it was made by compaction; offsets recorded before do not apply to it.
    pub(crate) fn is_settled(&self) -> bool {
        self.places.1 != self.id
    }

    /// Marks the segment as replaced by another one. Current readers continue; its file is no longer kept open for
    /// others.
    pub(crate) fn set_replaced(&self) {
        self.replaced.store(true, Ordering::Release);
    }

    /// Drops the handle of its file. The next reader reopens the file and is counted.
    pub(crate) fn close_file(&self) {
        self.file.lock().take();
    }

    /// Returns its file for writing.
    pub(crate) fn file(&self) -> std::io::Result<Arc<dyn DiskFile>> {
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(file.clone());
        }
        let opened = self.disk.open(&file_name(self.id), Access::Buffered)?;
        Ok(file.insert(opened).clone())
    }

    /// Returns its file for reading: opened at first use, closed when many others are used.
    fn file_to_read(self: &Arc<Self>, residents: &Residents) -> std::io::Result<Arc<dyn DiskFile>> {
        self.used.store(residents.tick(), Ordering::Relaxed);
        if let Some(file) = &*self.file.lock() {
            return Ok(file.clone());
        }
        let opened = self.disk.open(&file_name(self.id), Access::Buffered).inspect_err(|error| {
            let is_gone = error.kind() == std::io::ErrorKind::NotFound && self.state.lock().sealed;
            let is_known = self.expired.load(Ordering::Acquire) || self.replaced.load(Ordering::Acquire);
            if is_gone && !is_known && !residents.is_closed() {
                self.lost.store(true, Ordering::Release);
                residents.note_vanished();
            }
        })?;
        Ok(residents.keep_file(self, opened))
    }

    /// Wraps an I/O error as the reason why the segment cannot be read.
    fn unreadable(&self, source: std::io::Error) -> ScanError {
        if self.expired.load(Ordering::Acquire) {
            ScanError::Expired
        } else if self.is_lost() {
            ScanError::Damaged { file: self.path(), offset: 0, reason: "the segment is missing".to_owned() }
        } else {
            ScanError::Io { file: self.path(), source }
        }
    }

    /// Sets the file that was just created.
    pub(crate) fn set_file(&self, file: Arc<dyn DiskFile>) {
        *self.file.lock() = Some(file);
    }

    /// Returns the file's path for messages.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.disk.path(), file_name(self.id))
    }

    /// Lists blocks that were just written.
    pub(crate) fn add_blocks(&self, blocks: impl Iterator<Item = (u32, BlockRef)>) {
        let mut index = self.index.write();
        let index = index.get_or_insert_default();
        blocks.for_each(|(stream, block)| index.add(stream, block));
    }

    /// Keeps the newest earlier blocks from the footer that was just written.
    pub(crate) fn set_last(&self, last: Option<LastBlocks>) {
        self.index.write().get_or_insert_default().last = last;
    }

    /// Returns the blocks of a stream, in row order.
    ///
    /// # Errors
    /// When the footer cannot be read or is damaged.
    pub(crate) fn blocks(self: &Arc<Self>, stream: u32, residents: &Residents) -> Result<Vec<BlockRef>, ScanError> {
        self.blocks_of(stream, residents, |of| of.refs.clone())
    }

    /// Returns the blocks of a stream that may have rows and times in these ranges.
    ///
    /// # Errors
    /// As for [`Segment::blocks`].
    pub(crate) fn blocks_within(
        self: &Arc<Self>,
        stream: u32,
        (time, rows): (&Range<i64>, &Range<u64>),
        residents: &Residents,
    ) -> Result<Vec<BlockRef>, ScanError> {
        self.blocks_of(stream, residents, |of| of.within(time, rows).copied().collect())
    }

    /// Returns some blocks of a stream.
    fn blocks_of(
        self: &Arc<Self>,
        stream: u32,
        residents: &Residents,
        some: impl Fn(&Blocks) -> Vec<BlockRef>,
    ) -> Result<Vec<BlockRef>, ScanError> {
        let asked = self.with_index(residents, |index| match &index.listing {
            Listing::Whole(listed) => Ok(listed.get(&stream).map(&some).unwrap_or_default()),
            Listing::Outline(outline, at) => Err((outline.clone(), *at)),
        })?;
        match asked {
            None => Ok(Vec::new()),
            Some(Ok(blocks)) => Ok(blocks),
            Some(Err((outline, at))) => {
                let key = (self.id, stream);
                let kept = residents.blocks.get(key).map_or_else(
                    || {
                        let read = self.read_blocks(stream, &outline, at, residents)?;
                        Ok(residents.blocks.keep(key, read, Blocks::bytes))
                    },
                    Ok::<_, ScanError>,
                )?;
                Ok(some(&kept))
            }
        }
    }

    /// Reads the blocks of a stream whose entries are not in memory.
    fn read_blocks(
        self: &Arc<Self>,
        stream: u32,
        outline: &Outline,
        section: u64,
        residents: &Residents,
    ) -> Result<Blocks, ScanError> {
        let mut blocks = Blocks::default();
        for stretch in outline.of_stream(stream) {
            let at = section + stretch.at as u64;
            let listed = residents.stretches.get((self.id, at)).map_or_else(
                || {
                    let bytes = self.read_bytes(at, stretch.bytes, residents)?;
                    let entries = outline.entries(stretch, &bytes).map_err(|e| self.damaged(at, e))?;
                    let mut listed: Vec<_> = entries.iter().map(|e| (e.header.stream.0, block_ref(e))).collect();
                    // Those of a stream lie together, so that they are found without looking at all others.
                    listed.sort_by_key(|(of, _)| *of);
                    Ok(residents.stretches.keep((self.id, at), listed, |listed| size_of_val(&listed[..])))
                },
                Ok,
            )?;
            let own = &listed[listed.partition_point(|(of, _)| *of < stream)..];
            own.iter().take_while(|(of, _)| *of == stream).for_each(|(_, block)| blocks.push(*block));
        }
        blocks.sort();
        Ok(blocks)
    }

    pub(crate) fn damaged(&self, offset: u64, error: FormatError) -> ScanError {
        ScanError::Damaged { file: self.path(), offset, reason: error.to_string() }
    }

    /// Returns the newest earlier block of a stream that has no block in the segment.
    ///
    /// # Errors
    /// As for [`Segment::blocks`].
    pub(crate) fn before(self: &Arc<Self>, stream: u32, residents: &Residents) -> Result<NewestBefore, ScanError> {
        if !self.blocks_of(stream, residents, |of| of.refs.first().copied().into_iter().collect())?.is_empty() {
            return Ok(NewestBefore::Unknown);
        }
        let asked = self.with_index(residents, |index| match (&index.last, index.last_at) {
            (Some(last), _) => Ok(last.of(stream)),
            (None, Some(at)) => Err(at),
            (None, None) => Ok(NewestBefore::Unknown),
        })?;
        let (at, len, crc) = match asked {
            None => return Ok(NewestBefore::Unknown),
            Some(Ok(before)) => return Ok(before),
            Some(Err(at)) => at,
        };
        let bytes = self.read_bytes(at, len, residents)?;
        let last = segment::check_crc("newest blocks before a segment", crc, &bytes)
            .and_then(|()| LastBlocks::read(Cursor::new(&bytes), self.id))
            .map_err(|e| self.damaged(at, e))?;
        let before = last.of(stream);
        residents.keep_last(self, last);
        Ok(before)
    }

    /// Returns the offset and extent of a channel's statistics pyramid, or `None` if there is none.
    ///
    /// # Errors
    /// As for [`Segment::blocks`].
    pub(crate) fn pyramid(
        self: &Arc<Self>,
        stream: u32,
        channel: usize,
        residents: &Residents,
    ) -> Result<Option<(u64, Extent)>, ScanError> {
        let found = self.with_index(residents, |index| {
            let (start, extents) = index.pyramids.get(&stream)?;
            let before: u64 = extents.get(..channel)?.iter().map(|(_, all)| u64::from(*all)).sum();
            Some((start + before, *extents.get(channel)?))
        })?;
        Ok(found.flatten())
    }

    /// Calls `ask` with the index, or returns `None` if the segment is open and has no block yet.
    fn with_index<T>(
        self: &Arc<Self>,
        residents: &Residents,
        ask: impl FnOnce(&SegmentIndex) -> T,
    ) -> Result<Option<T>, ScanError> {
        if self.is_lost() {
            return Ok(Some(ask(&SegmentIndex::default())));
        }
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

    /// Reads its footer from disk.
    ///
    /// # Errors
    /// When the disk fails or the footer is damaged.
    pub(crate) fn read_footer(self: &Arc<Self>, residents: &Residents) -> Result<Footer, ScanError> {
        let (bytes, trailer) = self.read_footer_bytes(residents)?;
        segment::read_footer(&bytes, &trailer).map_err(|e| self.damaged(trailer.footer_offset, e))
    }

    /// Reads the bytes of its footer, and its trailer.
    fn read_footer_bytes(self: &Arc<Self>, residents: &Residents) -> Result<(Vec<u8>, Trailer), ScanError> {
        let file = self.file_to_read(residents).map_err(|e| self.unreadable(e))?;
        // The trailer is the last page of the slot, or of the file, which was truncated behind it.
        let at = file.size().map_err(|e| self.unreadable(e))?.saturating_sub(PAGE_BYTES as u64);
        let trailer = read_exact(&*file, at, PAGE_BYTES).map_err(|e| self.unreadable(e))?;
        let trailer = segment::read_trailer(&trailer).map_err(|e| self.damaged(at, e))?;
        if trailer.segment != self.id {
            return Err(self.damaged(at, malformed("the trailer of another segment")));
        }
        let bytes = read_exact(&*file, trailer.footer_offset, trailer.footer_bytes).map_err(|e| self.unreadable(e))?;
        Ok((bytes, trailer))
    }

    fn read_index(self: &Arc<Self>, residents: &Residents) -> Result<SegmentIndex, ScanError> {
        let (bytes, trailer) = self.read_footer_bytes(residents)?;
        let behind = trailer.footer_offset + (trailer.footer_bytes as u64).next_multiple_of(PAGE_BYTES as u64);
        SegmentIndex::of_footer(&bytes, &trailer, behind).map_err(|e| self.damaged(trailer.footer_offset, e))
    }

    /// Reads some parts of a mixed block, including the requested one.
    ///
    /// # Errors
    /// When the disk fails, the segment was expired, or the block is damaged.
    pub(crate) fn read_parts(
        self: &Arc<Self>,
        block: &BlockRef,
        part: u32,
        residents: &Residents,
    ) -> Result<Arc<MixedParts>, ScanError> {
        let group = part as usize / PARTS_TOGETHER * PARTS_TOGETHER;
        let key = (self.id, (u64::from(block.offset), group));
        if let Some(parts) = residents.parts.get(key) {
            return Ok(parts);
        }
        let bytes = self.read_block(block, residents)?;
        let mixed = MixedBlock::read(&bytes).map_err(|e| self.damaged(block.offset.into(), e))?;
        Ok(residents.parts.keep(key, mixed.some(group..group + PARTS_TOGETHER), MixedParts::bytes))
    }

    /// Reads the bytes of a block.
    ///
    /// # Errors
    /// When the disk fails or the segment was expired.
    pub(crate) fn read_block(self: &Arc<Self>, block: &BlockRef, residents: &Residents) -> Result<Vec<u8>, ScanError> {
        self.read_bytes(block.offset.into(), block.len as usize, residents)
    }

    /// Reads some bytes of a block.
    ///
    /// # Errors
    /// As for [`Segment::read_block`].
    pub(crate) fn read_bytes(
        self: &Arc<Self>,
        offset: u64,
        len: usize,
        residents: &Residents,
    ) -> Result<Vec<u8>, ScanError> {
        let mut bytes = vec![0; len];
        self.read_into(&mut bytes, offset, residents)?;
        Ok(bytes)
    }

    /// Reads some bytes of a block, like [`Segment::read_bytes`], into an existing buffer.
    ///
    /// # Errors
    /// As for [`Segment::read_block`].
    pub(crate) fn read_into(
        self: &Arc<Self>,
        bytes: &mut [u8],
        offset: u64,
        residents: &Residents,
    ) -> Result<(), ScanError> {
        let file = self.file_to_read(residents);
        file.and_then(|file| read_exact_into(&*file, offset, bytes)).map_err(|source| self.unreadable(source))
    }

    /// Encodes its checkpoint entry.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let state = *self.state.lock();
        let mut p = Put::default();
        p.u64(self.id);
        p.u8(self.group.0 as u8);
        let flags = [
            (state.sealed, ENTRY_SEALED),
            (state.left, ENTRY_LEFT),
            (self.is_settled(), ENTRY_PLACES),
            (self.blobs, ENTRY_BLOBS),
            (state.told_lost, ENTRY_TOLD_LOST),
        ];
        p.u8(flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag));
        p.u64(state.bytes);
        p.u64(state.blocks);
        p.u64(state.points);
        p.i64(state.time.0);
        p.i64(state.time.1);
        p.i64(state.stored.0);
        let (oldest, newest) = state.stored;
        p.i64(if oldest <= newest { newest.max(state.not_before) } else { newest });
        p.u8((self.group.0 >> 8) as u8);
        if self.is_settled() {
            p.u64(self.places.0);
            p.u64(self.places.1);
        }
        if let Some(slot) = self.disk.slot_of(&file_name(self.id)) {
            p.u32(slot);
        }
        p.0
    }

    /// Decodes a checkpoint entry.
    ///
    /// # Errors
    /// If a field is cut or invalid.
    pub(crate) fn decode(t: &mut Cursor<'_>) -> Result<SegmentEntry, FormatError> {
        let id = t.u64("number of a segment")?;
        let (group, flags) = (t.u8("lower half of the group")?, t.u8("flags of a segment")?);
        let state = SegmentState {
            sealed: flags & ENTRY_SEALED != 0,
            left: flags & ENTRY_LEFT != 0,
            told_lost: flags & ENTRY_TOLD_LOST != 0,
            bytes: t.u64("bytes of a segment")?,
            blocks: t.u64("blocks of a segment")?,
            points: t.u64("points of a segment")?,
            time: (t.i64("time min")?, t.i64("time max")?),
            stored: (t.i64("stored first")?, t.i64("stored last")?),
            not_before: i64::MIN,
        };
        // Entries written before there could be more than 256 groups end here.
        let upper = if t.remaining() > 0 { t.u8("upper half of the group")? } else { 0 };
        let begin = *t;
        let places = match flags & ENTRY_PLACES {
            0 => (id, id),
            _ => (t.u64("first number replaced")?, t.u64("last number replaced")?),
        };
        if places.0 > places.1 || places.1 > id {
            return Err(begin.invalid("first number replaced", "no range with the last one up to the segment's"));
        }
        // Only entries of a store of a fixed size have a slot.
        let slot = if t.remaining() < size_of::<u32>() { None } else { Some(t.u32("slot")?) };
        let (group, blobs) = (Group(u16::from_le_bytes([group, upper])), flags & ENTRY_BLOBS != 0);
        Ok(SegmentEntry { id, places, group, blobs, state, slot })
    }
}
