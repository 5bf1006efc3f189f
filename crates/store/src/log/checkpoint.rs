//! Checkpoints: the state from which recovery begins, without the log. There are two files, `checkpoint.a` and
//! `checkpoint.b`. One holds a base and the deltas since, each a *part* of whole pages. When the deltas outgrow the
//! base, a new base is written to the other file. The superblock names the file, the number of valid bytes and the
//! chain of the last part, so a truncated part never counts.
//!
//! ```text
//! part:   0 4 magic "SBCP" · 4 4 kind: 1 base, 2 delta · 8 8 bytes of entries · 16 8 chain of the part before
//!         (base: 0) · 24 4 CRC32C of the entries · 28 4 CRC32C of bytes 0 to 28 · entries · zeros to 4 KiB
//! entry:  u8 kind, u32 bytes, then
//!   1 stream    as the record `stream` of the catalog (crate::catalog)
//!   2 position  u32 stream, u64 first row not in a segment, u8 1 and u32 session, i64 highest sequence, or 0;
//!               of the rows in segments: u8 whether time ascends, i64 time min, i64 time max, u64 newest
//!               segment, u64 first row in that, u8 1 and of the newest block u64 first row, u32 rows, u32
//!               offset, u32 bytes, u32 part (ffffffff: none), u8 whether time ascends, i64 time min, i64 time
//!               max, or 0; u16 channels, of each u64 row before which its newest value lies (0: none)
//!   3 segment   u64 id, u8 lower half of the group's number, u8 flags (1 sealed, 2 excluded from compaction,
//!               4 made by compaction, 8 blobs, 16 its file was found missing or cut, and the gap is recorded),
//!               u64 bytes, u64 blocks, u64 points, i64 time min, i64 time max, i64 stored first, i64 stored last,
//!               u8 upper half of the number; of one made by compaction u64 first and u64 last of the numbers that it
//!               replaces; in a store of a fixed size u32 slot
//!   4 expired   u64 id of a segment that was removed, or is not one yet: compaction is writing it
//!   5 group     as the record of a retention group (crate::catalog::group), ahead of its streams
//!   6 sequence  which frames of a stream were seen, by their sequences (crate::append::sequence::saved), after its
//!               position; only if the superblock has the incompatible feature 1. Of a stream without this entry
//!               only the position is known
//! ```
//! Entries are complete, so a later one replaces an earlier one. The chain of a part is FNV-1a (64 bits) over its first
//! 32 bytes.

use std::io;
use std::sync::Arc;

use crate::bytes::fields::Put;
use crate::bytes::{Cursor, FormatError, RecordError, check_crc, check_magic, contradiction};
use crate::disk::names;
use crate::disk::{Access, Disk, DiskFile, PAGE_BYTES, Pages, read_exact};
use crate::model::limits::ROWS_MAX;
use crate::model::trouble::is_full;
use crate::segment::directory::BlockRef;

const MAGIC: u32 = u32::from_le_bytes(*b"SBCP");
/// Size of a part's header in bytes.
pub(crate) const HEADER_BYTES: usize = 32;

/// Kinds of entries.
pub(crate) const STREAM: u8 = 1;
pub(crate) const POSITION: u8 = 2;
pub(crate) const SEGMENT: u8 = 3;
pub(crate) const EXPIRED: u8 = 4;
pub(crate) const GROUP: u8 = 5;
pub(crate) const SEQUENCE: u8 = 6;

/// Bytes that a segment takes in a checkpoint, including the entry for its removal.
pub(crate) const SLOT_BYTES: u64 = 101;

/// Entries to be written.
#[derive(Debug, Default)]
pub(crate) struct Entries(Put);

impl Entries {
    /// Appends an entry.
    pub(crate) fn put(&mut self, kind: u8, body: &[u8]) {
        self.0.u8(kind);
        self.0.u32(body.len() as u32);
        self.0.0.extend_from_slice(body);
    }

    /// Bytes that an entry takes in addition to its body.
    pub(crate) const HEAD_BYTES: usize = 5;

    /// Returns the size of a part with these entries, in bytes.
    fn part_bytes(&self) -> u64 {
        (HEADER_BYTES + self.0.0.len()).next_multiple_of(PAGE_BYTES) as u64
    }

    /// Returns whether there are no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.0.is_empty()
    }
}

/// Position at which a stream continues after its last row in a segment, and a summary of its rows there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) stream: u32,
    pub(crate) first_row: u64,
    pub(crate) sequence: Option<(u32, i64)>,
    pub(crate) sealed: SealedRows,
}

/// Summary of a stream's rows in segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SealedRows {
    /// Whether `time` ascends from row to row.
    pub(crate) sorted: bool,
    /// Smallest and largest `time`, including expired rows; min > max if there are none.
    pub(crate) time: (i64, i64),
    /// Newest segment with a block of the stream.
    pub(crate) newest_segment: u64,
    /// First row in that segment, which recovery expects there.
    pub(crate) newest_first_row: u64,
    /// Newest block in that segment; `None` if it is not known.
    pub(crate) last: Option<BlockRef>,
    /// For each channel, the row after the block with its newest value; 0 if it has none.
    pub(crate) valued_to: Vec<u64>,
}

impl Default for SealedRows {
    fn default() -> Self {
        SealedRows {
            sorted: true,
            time: (i64::MAX, i64::MIN),
            newest_segment: 0,
            newest_first_row: 0,
            last: None,
            valued_to: Vec::new(),
        }
    }
}

impl SealedRows {
    /// Adds a block.
    pub(crate) fn add(&mut self, block: &BlockRef, segment: u64, valued: impl Iterator<Item = bool>) {
        self.sorted &= block.time_sorted && block.time.0 >= self.time.1;
        self.time = (self.time.0.min(block.time.0), self.time.1.max(block.time.1));
        if segment > self.newest_segment {
            (self.newest_segment, self.newest_first_row) = (segment, block.first_row);
        }
        self.last = Some(*block);
        for (channel, valued) in valued.enumerate() {
            if self.valued_to.len() <= channel {
                self.valued_to.push(0);
            }
            if valued {
                self.valued_to[channel] = block.end_row();
            }
        }
    }
}

impl Position {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut p = Put::default();
        p.u32(self.stream);
        p.u64(self.first_row);
        p.u8(self.sequence.is_some() as u8);
        if let Some((session, highest)) = self.sequence {
            p.u32(session);
            p.i64(highest);
        }
        p.u8(self.sealed.sorted as u8);
        p.i64(self.sealed.time.0);
        p.i64(self.sealed.time.1);
        p.u64(self.sealed.newest_segment);
        p.u64(self.sealed.newest_first_row);
        p.u8(self.sealed.last.is_some() as u8);
        if let Some(block) = &self.sealed.last {
            p.u64(block.first_row);
            p.u32(block.rows);
            p.u32(block.offset);
            p.u32(block.len);
            p.u32(block.part.unwrap_or(u32::MAX));
            p.u8(block.time_sorted as u8);
            p.i64(block.time.0);
            p.i64(block.time.1);
        }
        p.u16(self.sealed.valued_to.len() as u16);
        self.sealed.valued_to.iter().for_each(|&row| p.u64(row));
        p.0
    }

    /// Returns the maximum size of the entry of a stream with `channels` channels.
    pub(crate) fn most_bytes(channels: usize) -> usize {
        let sealed = SealedRows {
            last: Some(BlockRef {
                first_row: 0,
                rows: 0,
                offset: 0,
                len: 0,
                part: None,
                time_sorted: true,
                time: (0, 0),
            }),
            ..SealedRows::default()
        };
        Position { stream: 0, first_row: 0, sequence: Some((0, 0)), sealed }.encode().len() + 8 * channels
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// If a field is cut or invalid.
    pub(crate) fn decode(t: &mut Cursor<'_>) -> Result<Position, FormatError> {
        let (stream, first_row) = (t.u32("stream")?, row(t, "first row not in a segment")?);
        let sequence = match t.flag("mark of a sequence")? {
            true => Some((t.u32("session")?, t.i64("highest sequence")?)),
            false => None,
        };
        let (sorted, time) = (t.flag("order of times")?, (t.i64("time min")?, t.i64("time max")?));
        let newest_segment = t.u64("newest segment")?;
        let newest_first_row = row(t, "first row in the newest segment")?;
        let last = match t.flag("mark of a newest block")? {
            true => Some(read_block(t)?),
            false => None,
        };
        let valued_to = (0..t.u16("number of channels")?)
            .map(|_| t.u64("row behind the newest value of a channel"))
            .collect::<Result<_, _>>()?;
        let sealed = SealedRows { sorted, time, newest_segment, newest_first_row, last, valued_to };
        Ok(Position { stream, first_row, sequence, sealed })
    }
}

/// Reads the number of a row.
fn row(t: &mut Cursor<'_>, what: &'static str) -> Result<u64, FormatError> {
    let begin = *t;
    Some(t.u64(what)?).filter(|row| *row < ROWS_MAX).ok_or_else(|| begin.invalid(what, "beyond the last possible row"))
}

fn read_block(t: &mut Cursor<'_>) -> Result<BlockRef, FormatError> {
    Ok(BlockRef {
        first_row: row(t, "first row of the newest block")?,
        rows: t.u32("rows of the newest block")?,
        offset: t.u32("offset of the newest block")?,
        len: t.u32("bytes of the newest block")?,
        part: Some(t.u32("part of the newest block")?).filter(|&part| part != u32::MAX),
        time_sorted: t.flag("order of times in the newest block")?,
        time: (t.i64("time min of the newest block")?, t.i64("time max of the newest block")?),
    })
}

/// Current checkpoint.
#[derive(Default)]
pub(crate) struct Checkpoint {
    /// Both files, if they exist.
    files: [Option<Arc<dyn DiskFile>>; 2],
    /// Number of the file in [`names::CHECKPOINTS`], from 1; 0 if there is no checkpoint.
    pub(crate) number: u32,
    /// Number of valid bytes.
    pub(crate) bytes: u64,
    /// Chain of the last part.
    pub(crate) chain: u64,
    base_bytes: u64,
    /// Sizes of both files in bytes.
    sizes: [u64; 2],
    /// Bytes missing on the disk when a file was last to grow.
    pub(crate) missing_bytes: u64,
    /// Bytes by which the files grew since the last query.
    pub(crate) grown_bytes: u64,
    /// Maximum size of each file in bytes, if the size is fixed.
    pub(crate) room: Option<u64>,
}

/// Minimum size of the deltas, in bytes, before a new base is written.
const DELTAS_BYTES_MIN: u64 = 256 << 10;

/// Bytes kept free after the last part of a file. They are written once before use, so that even on a full disk the
/// store can record that its oldest segments were removed. Nothing else is written there.
const SLACK_BYTES: u64 = 64 << 10;

/// Returns the size of a file that holds a base, its deltas and the free space after them.
fn capacity(base_bytes: u64) -> u64 {
    (base_bytes + base_bytes.max(DELTAS_BYTES_MIN) + SLACK_BYTES).next_multiple_of(SLACK_BYTES)
}

impl Checkpoint {
    /// Returns whether the next part must be a base.
    pub(crate) fn wants_base(&self) -> bool {
        let deltas = self.bytes - self.base_bytes;
        if self.room.is_some() {
            return self.number == 0 || deltas > self.base_bytes.max(DELTAS_BYTES_MIN);
        }
        self.number == 0
            || deltas > self.base_bytes.max(DELTAS_BYTES_MIN)
            || deltas > 0 && self.bytes + SLACK_BYTES > self.size()
    }

    /// Returns whether a delta fits after the last part without using the space that is kept free.
    pub(crate) fn has_room(&self, entries: &Entries) -> bool {
        let end = self.bytes + entries.part_bytes();
        match self.room {
            Some(room) => end <= room,
            None => end + SLACK_BYTES <= self.size(),
        }
    }

    /// Returns whether a delta fits if the space that is kept free is used.
    pub(crate) fn has_last_room(&self, entries: &Entries) -> bool {
        self.bytes + entries.part_bytes() <= self.room.unwrap_or_else(|| self.size())
    }

    /// Returns the size of the current file.
    fn size(&self) -> u64 {
        self.number.checked_sub(1).and_then(|at| self.sizes.get(at as usize)).copied().unwrap_or(0)
    }

    /// Returns the bytes left for more entries of a base, if its size is bounded.
    pub(crate) fn base_room(&self, entries: &Entries) -> Option<usize> {
        let taken = HEADER_BYTES + entries.0.0.len();
        self.room.map(|room| usize::try_from(room).unwrap_or(usize::MAX).saturating_sub(taken))
    }

    /// Returns the size of both files in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// Returns the index in [`names::CHECKPOINTS`] of the file for the next base.
    fn next(&self) -> usize {
        if self.number == 1 { 1 } else { 0 }
    }

    /// Opens or creates the file for the next base, with at least `least` bytes. If it is smaller, it grows to
    /// `wanted`, or as far as there is space. It never shrinks.
    fn next_file(&mut self, disk: &dyn Disk, least: u64, wanted: u64) -> io::Result<(u32, Arc<dyn DiskFile>)> {
        let next = self.next();
        let file = match &self.files[next] {
            Some(file) => file.clone(),
            None => {
                let file = match disk.open(names::CHECKPOINTS[next], Access::Log) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        let made = disk.create(names::CHECKPOINTS[next], self.room.unwrap_or(0), Access::Log)?;
                        disk.sync()?;
                        made
                    }
                    file => file?,
                };
                self.sizes[next] = file.size()?;
                self.files[next].insert(file).clone()
            }
        };
        self.missing_bytes = 0;
        if self.sizes[next] < least && self.room.is_none() {
            let grown = grow(&*file, self.sizes[next], wanted);
            match file.sync() {
                Ok(()) => {
                    // A page that was written in part is written again.
                    let size = file.size()? / PAGE_BYTES as u64 * PAGE_BYTES as u64;
                    self.grown_bytes += size.saturating_sub(self.sizes[next]);
                    self.sizes[next] = size;
                }
                Err(error) if is_full(&error) => {}
                Err(error) => return Err(error),
            }
            self.missing_bytes = least.saturating_sub(self.sizes[next]);
            if self.missing_bytes > 0 {
                grown?;
            }
        }
        if self.sizes[next] < least {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok((next as u32 + 1, file))
    }

    /// Allocates the file of the next base in advance. A full disk is not an error: a later attempt may succeed.
    pub(crate) fn reserve(&mut self, disk: &dyn Disk) -> io::Result<()> {
        if self.room.is_some() {
            return Ok(());
        }
        // The next base is at most as large as the checkpoint now, plus the growth of the catalog until then.
        let least = capacity(self.base_bytes).max((self.bytes + 2 * SLACK_BYTES).next_multiple_of(SLACK_BYTES));
        let made = self.next_file(disk, least, least);
        self.missing_bytes = 0;
        match made {
            Err(error) if !is_full(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes a part durably. It takes effect once the superblock names it. `base` starts the other file.
    pub(crate) fn write(&mut self, disk: &dyn Disk, base: bool, entries: &Entries) -> io::Result<u64> {
        let body = &entries.0.0;
        let mut p = Put::default();
        p.u32(MAGIC);
        p.u32(if base { 1 } else { 2 });
        p.u64(body.len() as u64);
        p.u64(if base { 0 } else { self.chain });
        p.u32(crc32c::crc32c(body));
        let crc = crc32c::crc32c(&p.0);
        p.u32(crc);
        let chain = fnv(&p.0);
        p.0.extend_from_slice(body);
        let pages = Pages::of(&p.0);
        let len = pages.as_slice().len() as u64;
        if base {
            // A preallocated file suffices as long as the base fits with the free space after it.
            let (least, wanted) = match self.room {
                Some(room) => (len, room),
                None => (len + SLACK_BYTES, capacity(len)),
            };
            let (number, file) = self.next_file(disk, least, wanted)?;
            write_pieces(&*file, &pages, 0)?;
            file.sync()?;
            (self.number, self.bytes, self.chain, self.base_bytes) = (number, len, chain, len);
        } else if let Some(file) = self.number.checked_sub(1).and_then(|at| self.files[at as usize].as_ref()) {
            write_pieces(&**file, &pages, self.bytes)?;
            file.sync()?;
            self.bytes += len;
            self.chain = chain;
        }
        Ok(len)
    }

    /// Reads the parts that the superblock counts and passes each entry to `take`. The inner error is the reason why
    /// the checkpoint is damaged.
    pub(crate) fn read(
        disk: &dyn Disk,
        (number, bytes, chain): (u32, u64, u64),
        mut take: impl FnMut(u8, &mut Cursor<'_>) -> Result<(), RecordError>,
    ) -> io::Result<Result<Checkpoint, String>> {
        if number == 0 {
            return Ok(Ok(Checkpoint::default()));
        }
        let Some(name) = names::CHECKPOINTS.get(number as usize - 1) else {
            return Ok(Err(format!("checkpoint file number {number}")));
        };
        let file = disk.open(name, Access::Log)?;
        crate::disk::forget_cached(&*file);
        let (mut files, mut sizes) = ([Some(file.clone()), None], [0; 2]);
        if number == 2 {
            files.swap(0, 1);
        }
        for ((size, file), name) in sizes.iter_mut().zip(&mut files).zip(names::CHECKPOINTS) {
            if file.is_none() {
                *file = match disk.open(name, Access::Log) {
                    Ok(file) => Some(file),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    Err(error) => return Err(error),
                };
            }
            *size = file.as_ref().map_or(Ok(0), |file| file.size())?;
        }
        if file.size()? < bytes {
            return Ok(Err(format!("{name} is shorter than its {bytes} bytes")));
        }
        let mut content = Vec::with_capacity(bytes as usize);
        while (content.len() as u64) < bytes {
            let len = (bytes - content.len() as u64).min(4 << 20) as usize;
            content.extend(read_exact(&*file, content.len() as u64, len)?);
        }
        let mut at = 0;
        let (mut last, mut base_bytes) = (0, 0);
        while at < content.len() {
            let (link, len) = match read_part(&content, at, last, &mut take) {
                Ok(part) => part,
                Err(why) => return Ok(Err(format!("{name}: the part at offset {at} does not fit: {why}"))),
            };
            last = link;
            at += len;
            if base_bytes == 0 {
                base_bytes = at as u64;
            }
        }
        if last != chain {
            return Ok(Err(format!("{name}: the last part is not the one that the superblock names")));
        }
        Ok(Ok(Checkpoint {
            files,
            number,
            bytes,
            chain,
            base_bytes,
            sizes,
            missing_bytes: 0,
            grown_bytes: 0,
            room: None,
        }))
    }
}

/// Extends a file by writing zeros, which allocates the space even if the file system cannot reserve it.
fn grow(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<()> {
    let mut zeros = Pages::default();
    let mut at = from / PAGE_BYTES as u64 * PAGE_BYTES as u64;
    let to = to.next_multiple_of(PAGE_BYTES as u64);
    while at < to {
        zeros.resize((to - at).min(1 << 20) as usize);
        zeros.as_mut().fill(0);
        file.write_at(&zeros, at)?;
        at += zeros.as_slice().len() as u64;
    }
    Ok(())
}

/// Writes pages in pieces: no write before a commit exceeds 1 MiB.
fn write_pieces(file: &dyn DiskFile, pages: &Pages, offset: u64) -> io::Result<()> {
    let bytes = pages.as_slice();
    if bytes.len() <= 1 << 20 {
        return file.write_at(pages, offset);
    }
    for (n, piece) in bytes.chunks(1 << 20).enumerate() {
        file.write_at(&Pages::of(piece), offset + (n << 20) as u64)?;
    }
    Ok(())
}

/// Returns what an entry of a kind is called in messages.
pub(crate) fn name_of(kind: u8) -> &'static str {
    match kind {
        STREAM => "stream",
        POSITION => "position",
        SEGMENT => "segment",
        EXPIRED => "expired segment",
        GROUP => "retention group",
        SEQUENCE => "sequence",
        _ => "unknown",
    }
}

/// Returns the error for an entry whose kind is not known.
pub(crate) fn unknown_kind(kind: u8) -> RecordError {
    contradiction(format!("kind {kind} is not known to this program"))
}

/// Reads the number of a segment that was removed, or is not one yet.
///
/// # Errors
/// If the entry has another length.
pub(crate) fn read_expired(t: &mut Cursor<'_>) -> Result<u64, FormatError> {
    let id = t.u64("number of an expired segment")?;
    if t.remaining() > 0 {
        return Err(t.invalid("end of the entry", "bytes are left"));
    }
    Ok(id)
}

/// Reads the part at an offset of a file, which must follow the part with the chain `before`, and passes each entry to
/// `take`. Returns its chain and its size in bytes.
///
/// # Errors
/// With the reason, if the part or an entry is invalid. Offsets in it are those in the file.
pub(crate) fn read_part(
    file: &[u8],
    at: usize,
    before: u64,
    take: &mut impl FnMut(u8, &mut Cursor<'_>) -> Result<(), RecordError>,
) -> Result<(u64, usize), String> {
    let mut t = Cursor::at(at as u64, file.get(at..).unwrap_or_default());
    let (header, mut body) = read_part_header(&mut t, before).map_err(|error| error.to_string())?;
    let len = HEADER_BYTES + body.remaining();
    while body.remaining() > 0 {
        let offset = body.offset();
        let cut = |error: FormatError| format!("entry at offset {offset}: {error}");
        let kind = body.u8("kind").map_err(cut)?;
        let bytes = body.u32("length").map_err(cut)?;
        let mut entry = body.part(bytes as usize, "entry").map_err(cut)?;
        take(kind, &mut entry).map_err(|error| format!("{} entry at offset {offset}: {error}", name_of(kind)))?;
    }
    Ok((fnv(header), len.next_multiple_of(PAGE_BYTES)))
}

/// Reads the header of a part and checks the whole part. Returns the header's bytes and the entries.
fn read_part_header<'a>(t: &mut Cursor<'a>, before: u64) -> Result<(&'a [u8], Cursor<'a>), RecordError> {
    let offset = t.offset();
    let header = t.take(HEADER_BYTES, "header of a part")?;
    let mut fields = Cursor::at(offset, header);
    check_magic("part of a checkpoint", MAGIC, fields.u32("magic")?)?;
    fields.u32("kind of a part")?;
    let (len, previous) = (fields.u64("bytes of entries")?, fields.u64("chain")?);
    let (crc, header_crc) = (fields.u32("checksum of the entries")?, fields.u32("checksum of the header")?);
    check_crc("header of a part", header_crc, &header[..28])?;
    if previous != before {
        let how = format!("it follows the chain {previous:#018x}, and the part before it has {before:#018x}");
        return Err(contradiction(how));
    }
    let body = t.part(usize::try_from(len).unwrap_or(usize::MAX), "entries")?;
    check_crc("entries", crc, body.unread())?;
    Ok((header, body))
}

/// Returns the FNV-1a hash (64 bits).
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ *byte as u64).wrapping_mul(0x0000_0100_0000_01b3))
}
