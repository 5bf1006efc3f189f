//! The file of an open segment: collects blocks into write groups, writes the groups, and at last the footer.

use std::io;
use std::sync::Arc;

use crate::bytes::FormatError;
use crate::disk::forget_cached;
use crate::disk::{DiskFile, PAGE_BYTES, Pages};
use crate::model::damage::Damage;
use crate::model::mutant::{self, Mutant};
use crate::model::stream::{Stream, StreamId};
use crate::segment::directory::{BlockRef, Segment, file_name};
use crate::segment::{self, Beside, Builder, GroupHeader, IndexEntry, SegmentHeader};

/// Converts a format error to an I/O error. The engine and the format disagree, which is a defect of the program.
pub(crate) fn invalid(error: FormatError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Open segment that is being written.
pub(crate) struct SegmentFile {
    segment: Arc<Segment>,
    file: Arc<dyn DiskFile>,
    builder: Builder,
    /// Groups waiting to be written, in order.
    ready: Vec<segment::WriteGroup>,
    /// Header page, until it is written.
    header: Option<Vec<u8>>,
    /// Number of the builder's entries that are on disk.
    on_disk: usize,
    points: u64,
    blocks: u64,
    /// Whether more blocks may be added.
    goes_on: bool,
    /// Whether its end was written, perhaps in part; nothing may be added then.
    is_ending: bool,
}

/// Open segment as found by recovery.
pub(crate) struct ResumedSegment {
    pub(crate) file: SegmentFile,
    /// Damage found in it.
    pub(crate) damage: Vec<Damage>,
}

/// Converts an index entry to the directory's form.
pub(crate) fn block_ref(entry: &IndexEntry) -> BlockRef {
    BlockRef {
        first_row: entry.header.first_row,
        rows: entry.header.rows as u32,
        offset: entry.offset as u32,
        len: entry.length_bytes as u32,
        part: entry.part,
        time_sorted: entry.header.time_sorted,
        time: entry.header.time,
    }
}

impl SegmentFile {
    /// Begins a segment in a file that was just created; `reserved_bytes` of it are kept free for the section of
    /// newest earlier blocks.
    pub(crate) fn create(
        segment: Arc<Segment>,
        header: SegmentHeader,
        reserved_bytes: usize,
    ) -> io::Result<SegmentFile> {
        let page = header.page().map_err(invalid)?;
        let mut builder = Builder::new(header);
        builder.reserve(reserved_bytes);
        Ok(SegmentFile {
            file: segment.file()?,
            segment,
            builder,
            ready: Vec::new(),
            header: Some(page),
            on_disk: 0,
            points: 0,
            blocks: 0,
            goes_on: true,
            is_ending: false,
        })
    }

    /// Recovers an open segment from disk. Returns `None` if not even its header is there. The bytes that the
    /// checkpoint counts were durable: whatever is invalid among them is damage, and skipped. The bytes behind them
    /// are at most what the log still holds: there the groups end at the first invalid one. With `reserved_bytes`,
    /// more blocks may be added, as to a segment created with these.
    pub(crate) fn resume(
        segment: Arc<Segment>,
        (origin, generation, group): (u128, u64, &str),
        reserved_bytes: Option<usize>,
        mut definition: impl FnMut(StreamId) -> Option<Arc<Stream>>,
    ) -> io::Result<Option<ResumedSegment>> {
        let file = segment.file()?;
        forget_cached(&*file);
        let size = file.size()?;
        let durable = segment.state.lock().bytes;
        let mut window = Window::new(&*file, size);
        let mut damage = Vec::new();
        let mut damaged = |offset: u64, reason: String| {
            damage.push(Damage { file: file_name(segment.id), offset, reason });
        };
        let header = match SegmentHeader::read(window.at(0, PAGE_BYTES)?) {
            Ok(header) if (header.id, header.generation) == (segment.id, generation) => header,
            _ if durable == 0 => return Ok(None),
            found => {
                damaged(0, found.map_or_else(|e| e.to_string(), |h| format!("the header of segment {}", h.id)));
                let group = group.to_owned();
                // The file ends where its footer and trailer will be, or was preallocated.
                SegmentHeader { origin, id: segment.id, generation, size_bytes: size, created: 0, group, blobs: false }
            }
        };
        let mut builder = Builder::new(header);
        builder.reserve(reserved_bytes.unwrap_or(0));
        let mut at = PAGE_BYTES as u64;
        loop {
            let found = GroupHeader::read(window.at(at, PAGE_BYTES)?);
            match found {
                Ok(group) if builder.expects(&group) => {
                    let bytes = window.at(at, group.padded_bytes())?;
                    match builder.resume_group(bytes, &mut definition) {
                        Ok(_) => {}
                        Err(error) if at < durable => {
                            damaged(at, error.to_string());
                            builder.resume_damaged(bytes, &group, &mut definition);
                        }
                        Err(_) => break,
                    }
                    at += group.padded_bytes() as u64;
                }
                found if at < durable => {
                    damaged(at, found.map_or_else(|e| e.to_string(), |_| "a write group of another place".to_owned()));
                    builder.pass_over(at);
                    loop {
                        at += PAGE_BYTES as u64;
                        let next = GroupHeader::read(window.at(at, PAGE_BYTES)?);
                        if at >= durable || next.is_ok_and(|group| builder.expects(&group)) {
                            break;
                        }
                    }
                    builder.pass_over(at);
                }
                // Remains of a torn write, or nothing.
                _ => break,
            }
        }
        let entries = builder.entries();
        let blocks = entries.chunk_by(|a, b| a.offset == b.offset).count() as u64;
        let points = segment.state.lock().points;
        let goes_on = reserved_bytes.is_some() && damage.is_empty();
        let ready = Vec::new();
        let (header, on_disk, is_ending) = (None, 0, false);
        let file = SegmentFile { segment, file, builder, ready, header, on_disk, points, blocks, goes_on, is_ending };
        Ok(Some(ResumedSegment { file, damage }))
    }

    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Returns whether more blocks may be added to the recovered segment: it is not damaged.
    pub(crate) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Syncs the recovered data.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// Returns the bytes of the file behind what is written.
    pub(crate) fn ahead_bytes(&self) -> u64 {
        self.builder.header().size_bytes.saturating_sub(self.segment.state.lock().bytes)
    }

    /// Returns the bytes left for blocks, without those that the footer needs.
    pub(crate) fn free_bytes(&self) -> u64 {
        let end = self.builder.used_bytes().next_multiple_of(PAGE_BYTES as u64) + 2 * PAGE_BYTES as u64;
        self.builder.header().size_bytes.saturating_sub(end + self.builder.reserved_bytes() as u64)
    }

    /// Returns the bytes kept free for the section of newest earlier blocks.
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.builder.reserved_bytes()
    }

    /// Returns whether the segment holds no block.
    pub(crate) fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    /// Returns the bytes that are encoded and not yet written.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.builder.pending_bytes() + self.ready.iter().map(|g| g.bytes.len()).sum::<usize>()
    }

    /// Returns whether there is room for a block and for the footer behind it.
    pub(crate) fn has_room(&self, block_bytes: usize, streams: &[Arc<Stream>]) -> bool {
        !self.is_ending && self.builder.fits(block_bytes, streams.len(), streams.iter().map(|s| &**s))
    }

    /// Returns whether there is room for `bytes` more in and behind the footer.
    pub(crate) fn has_room_beside(&self, bytes: usize) -> bool {
        self.builder.has_room_beside(bytes)
    }

    /// Adds a block.
    pub(crate) fn put(&mut self, block: &[u8], streams: &[Arc<Stream>], points: u64) -> io::Result<()> {
        if !self.builder.fits_group(block.len()) {
            self.ready.extend(self.builder.take_group());
        }
        self.builder.push(block, streams).map_err(invalid)?;
        self.points += points;
        self.blocks += 1;
        Ok(())
    }

    /// Returns the blocks that are not on disk yet.
    pub(crate) fn waiting(&self) -> &[IndexEntry] {
        &self.builder.entries()[self.on_disk..]
    }

    /// Writes and syncs the pending groups and lists their blocks in the directory. Returns the bytes written and the
    /// blocks with their streams.
    pub(crate) fn flush(&mut self) -> io::Result<(u64, Vec<(u32, BlockRef)>)> {
        self.ready.extend(self.builder.take_group());
        if self.ready.is_empty() {
            return Ok((0, Vec::new()));
        }
        // After an error, write all of it again: the disk may have taken a part, and after a sync that failed for
        // lack of space a later sync does not write the data either.
        let written = self.write_ready();
        if written.is_err() && mutant::is_active(Mutant::ThrowGroups) {
            self.ready.clear();
        }
        let written = written?;
        self.header = None;
        self.ready.clear();
        Ok((written, self.list()))
    }

    /// Writes and syncs the pending groups, and the header before the first. Returns the bytes written.
    fn write_ready(&self) -> io::Result<u64> {
        let mut written = 0;
        if let Some(page) = &self.header {
            self.file.write_at(&Pages::of(page), 0)?;
            written += page.len() as u64;
        }
        for group in &self.ready {
            for (n, piece) in group.bytes.chunks(1 << 20).enumerate() {
                self.file.write_at(&Pages::of(piece), group.offset + (n << 20) as u64)?;
            }
            written += group.bytes.len() as u64;
        }
        self.file.sync()?;
        Ok(written)
    }

    /// Lists the blocks on disk in the directory.
    pub(crate) fn list(&mut self) -> Vec<(u32, BlockRef)> {
        let entries = &self.builder.entries()[self.on_disk..];
        self.segment.add_blocks(entries.iter().map(|e| (e.header.stream.0, block_ref(e))));
        let mut state = self.segment.state.lock();
        let mut listed = Vec::with_capacity(entries.len());
        for entry in entries {
            let header = &entry.header;
            state.time = (state.time.0.min(header.time.0), state.time.1.max(header.time.1));
            state.stored = (state.stored.0.min(header.stored.0), state.stored.1.max(header.stored.1));
            listed.push((header.stream.0, block_ref(entry)));
        }
        state.bytes = self.builder.used_bytes().next_multiple_of(PAGE_BYTES as u64);
        state.blocks = self.blocks;
        state.points = state.points.max(self.points);
        drop(state);
        self.on_disk = self.builder.entries().len();
        listed
    }

    /// Writes the footer and the trailer, which is the last page of the slot, or of the file, which is truncated
    /// behind it. All blocks must have been flushed. Returns the bytes written. May be called again after an error.
    pub(crate) fn finish(&mut self, beside: Beside) -> io::Result<u64> {
        let sealed = self.builder.seal_with(&beside).map_err(invalid)?;
        self.is_ending = true;
        for (n, piece) in sealed.footer.chunks(1 << 20).enumerate() {
            self.file.write_at(&Pages::of(piece), sealed.footer_offset + (n << 20) as u64)?;
        }
        self.file.sync()?;
        let page = PAGE_BYTES as u64;
        let used_bytes = sealed.footer_offset + sealed.footer.len() as u64 + page;
        let trailer_at = self.file.truncate(used_bytes)? - page;
        self.file.write_at(&Pages::of(&sealed.trailer), trailer_at)?;
        self.file.sync()?;
        self.segment.set_last(beside.last);
        let mut state = self.segment.state.lock();
        state.sealed = true;
        state.bytes = used_bytes;
        drop(state);
        Ok((sealed.footer.len() + PAGE_BYTES) as u64)
    }
}

/// Forward reader of a file in pieces of 1 MiB.
pub(crate) struct Window<'a> {
    file: &'a dyn DiskFile,
    start: u64,
    bytes: Vec<u8>,
    size: u64,
}

impl Window<'_> {
    /// Returns a window at the beginning of a file of this size.
    pub(crate) fn new(file: &dyn DiskFile, size: u64) -> Window<'_> {
        Window { file, start: 0, bytes: Vec::new(), size }
    }

    /// Returns `len` bytes at an offset, or fewer at the end of the file.
    pub(crate) fn at(&mut self, offset: u64, len: usize) -> io::Result<&[u8]> {
        let have = self.start..self.start + self.bytes.len() as u64;
        let end = (offset + len as u64).min(self.size);
        if !have.contains(&offset) || end > have.end {
            let want = (len as u64).max(1 << 20).min(self.size.saturating_sub(offset)) as usize;
            self.bytes.resize(want, 0);
            let got = self.file.read_at(&mut self.bytes, offset)?;
            self.bytes.truncate(got);
            self.start = offset;
        }
        let from = (offset - self.start) as usize;
        let to = (from + len).min(self.bytes.len());
        Ok(&self.bytes[from.min(to)..to])
    }
}
