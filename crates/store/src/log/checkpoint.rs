//! Checkpoints: what recovery knows without the log. Two files, `checkpoint.a` and `checkpoint.b`; one holds a
//! base and the deltas since, each a *part* of whole pages; when the deltas outgrow the base a new base goes
//! to the other file. The superblock names the file, how many of its bytes count and the chain of its last
//! part, so a part cut short was never there.
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
//!   3 segment   u64 id, u8 lower half of the group's number, u8 flags (1 sealed, 2 settle leaves it as it is, 4 made by
//!               settle, 8 blobs, 16 its file was found missing or cut, and the gap is told), u64 bytes, u64 blocks, u64 points, i64 time min, i64 time max, i64 stored first, i64 stored
//!               last, u8 upper half of the number; of one made by settle u64 first and u64 last of the numbers that it
//!               stands for; in a store of a fixed size u32 slot
//!   4 expired   u64 id of a segment that is no more, or not yet one: settle is writing it
//!   5 group     as the record of a retention group (crate::catalog::group), ahead of its streams
//!   6 sequence  which frames of a stream were seen, by their sequences (crate::append::sequence::saved), behind its position; only
//!               where the superblock has the incompatible feature 1. Of a stream without one only the position is known
//! ```
//! Entries state what is, so a later one replaces an earlier one. The chain of a part is FNV-1a (64 bits) over
//! its first 32 bytes.

use std::io;
use std::sync::Arc;

use crate::bytes::fields::{Put, Take};
use crate::disk::names;
use crate::disk::{Access, Disk, DiskFile, PAGE_BYTES, Pages, read_exact};
use crate::model::limits::ROWS_MAX;
use crate::model::trouble::is_full;
use crate::segment::directory::BlockRef;

const MAGIC: u32 = u32::from_le_bytes(*b"SBCP");
/// Bytes of a part's header.
pub(crate) const HEADER_BYTES: usize = 32;

/// Kinds of entries.
pub(crate) const STREAM: u8 = 1;
pub(crate) const POSITION: u8 = 2;
pub(crate) const SEGMENT: u8 = 3;
pub(crate) const EXPIRED: u8 = 4;
pub(crate) const GROUP: u8 = 5;
pub(crate) const SEQUENCE: u8 = 6;

/// Bytes that a segment takes in a checkpoint: its entry, and that it is no more.
pub(crate) const SLOT_BYTES: u64 = 101;

/// Entries under way.
#[derive(Debug, Default)]
pub(crate) struct Entries(Put);

impl Entries {
    /// Adds one.
    pub(crate) fn put(&mut self, kind: u8, body: &[u8]) {
        self.0.u8(kind);
        self.0.u32(body.len() as u32);
        self.0.0.extend_from_slice(body);
    }

    /// Bytes that an entry takes beside its body.
    pub(crate) const HEAD_BYTES: usize = 5;

    /// Bytes of a part that holds them.
    fn part_bytes(&self) -> u64 {
        (HEADER_BYTES + self.0.0.len()).next_multiple_of(PAGE_BYTES) as u64
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.0.is_empty()
    }
}

/// Where a stream goes on after its last row in a segment, and what of it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) stream: u32,
    pub(crate) first_row: u64,
    pub(crate) sequence: Option<(u32, i64)>,
    pub(crate) sealed: SealedRows,
}

/// What is known of a stream's rows in segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SealedRows {
    /// Whether `time` ascends from row to row.
    pub(crate) sorted: bool,
    /// Smallest and largest `time`, also of what was expired; min > max: none.
    pub(crate) time: (i64, i64),
    /// The newest segment with a block of it.
    pub(crate) newest_segment: u64,
    /// First row in that segment: what recovery expects there.
    pub(crate) newest_first_row: u64,
    /// The newest block, in that segment; none: not known.
    pub(crate) last: Option<BlockRef>,
    /// By channel: no row from this one on has a value; 0: none has.
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
    /// Takes in a block.
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

    /// Most bytes of the entry of a stream with so many channels.
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

    pub(crate) fn decode(bytes: &[u8]) -> Option<Position> {
        let mut t = Take(bytes);
        let (stream, first_row) = (t.u32()?, t.u64()?);
        let sequence = if t.u8()? != 0 { Some((t.u32()?, t.i64()?)) } else { None };
        let (sorted, time) = (t.u8()? != 0, (t.i64()?, t.i64()?));
        let (newest_segment, newest_first_row) = (t.u64()?, t.u64()?);
        let last = match t.u8()? {
            0 => None,
            _ => Some(BlockRef {
                first_row: t.u64()?,
                rows: t.u32()?,
                offset: t.u32()?,
                len: t.u32()?,
                part: Some(t.u32()?).filter(|&part| part != u32::MAX),
                time_sorted: t.u8()? != 0,
                time: (t.i64()?, t.i64()?),
            }),
        };
        let valued_to = (0..t.u16()?).map(|_| t.u64()).collect::<Option<_>>()?;
        let newest = last.map_or(0, |block| block.first_row).max(first_row).max(newest_first_row);
        (newest < ROWS_MAX).then_some(())?;
        let sealed = SealedRows { sorted, time, newest_segment, newest_first_row, last, valued_to };
        Some(Position { stream, first_row, sequence, sealed })
    }
}

/// The checkpoint that counts.
#[derive(Default)]
pub(crate) struct Checkpoint {
    /// Both files, as far as they are there.
    files: [Option<Arc<dyn DiskFile>>; 2],
    /// 0: none; 1 and 2: [`names::CHECKPOINTS`].
    pub(crate) number: u32,
    /// Bytes that count.
    pub(crate) bytes: u64,
    /// Chain of the last part.
    pub(crate) chain: u64,
    base_bytes: u64,
    /// Sizes of both files.
    sizes: [u64; 2],
    /// Bytes that the disk had no space for when one was to grow.
    pub(crate) missing_bytes: u64,
    /// Bytes by which they grew, until somebody asks.
    pub(crate) grown_bytes: u64,
    /// Bytes that each may have, where that is fixed.
    pub(crate) room: Option<u64>,
}

/// Deltas may always take as much before a base is written anew.
const DELTAS_BYTES_MIN: u64 = 256 << 10;

/// Bytes that stay free behind the last part of a file: written once before use, so that a full disk never keeps the
/// store from saying that its oldest segments are no more. Nothing else is written there.
const SLACK_BYTES: u64 = 64 << 10;

/// Bytes of a file that holds a base, its deltas, and what stays free behind them.
fn capacity(base_bytes: u64) -> u64 {
    (base_bytes + base_bytes.max(DELTAS_BYTES_MIN) + SLACK_BYTES).next_multiple_of(SLACK_BYTES)
}

impl Checkpoint {
    /// Whether the next part must be a base.
    pub(crate) fn wants_base(&self) -> bool {
        let deltas = self.bytes - self.base_bytes;
        if self.room.is_some() {
            return self.number == 0 || deltas > self.base_bytes.max(DELTAS_BYTES_MIN);
        }
        self.number == 0
            || deltas > self.base_bytes.max(DELTAS_BYTES_MIN)
            || deltas > 0 && self.bytes + SLACK_BYTES > self.size()
    }

    /// Whether a delta fits behind what is there, and leaves free what stays free.
    pub(crate) fn has_room(&self, entries: &Entries) -> bool {
        let end = self.bytes + entries.part_bytes();
        match self.room {
            Some(room) => end <= room,
            None => end + SLACK_BYTES <= self.size(),
        }
    }

    /// Whether a delta fits into what stays free.
    pub(crate) fn has_last_room(&self, entries: &Entries) -> bool {
        self.bytes + entries.part_bytes() <= self.room.unwrap_or_else(|| self.size())
    }

    /// Bytes of the file that counts.
    fn size(&self) -> u64 {
        self.number.checked_sub(1).and_then(|at| self.sizes.get(at as usize)).copied().unwrap_or(0)
    }

    /// Bytes left for more entries of a base, where that is bounded.
    pub(crate) fn base_room(&self, entries: &Entries) -> Option<usize> {
        let taken = HEADER_BYTES + entries.0.0.len();
        self.room.map(|room| usize::try_from(room).unwrap_or(usize::MAX).saturating_sub(taken))
    }

    /// Bytes of both files.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// Which of [`names::CHECKPOINTS`] takes the next base.
    fn next(&self) -> usize {
        if self.number == 1 { 1 } else { 0 }
    }

    /// The file for the next base, with room for at least `least` bytes; where there is less it grows to `wanted`, or as
    /// far as there is space. What it has it keeps.
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

    /// Allocates the file of the next base ahead of its need. A full disk is no error: the next try may do better.
    pub(crate) fn reserve(&mut self, disk: &dyn Disk) -> io::Result<()> {
        if self.room.is_some() {
            return Ok(());
        }
        // The next base is at most what there is now, and what the catalog grows by until then.
        let least = capacity(self.base_bytes).max((self.bytes + 2 * SLACK_BYTES).next_multiple_of(SLACK_BYTES));
        let made = self.next_file(disk, least, least);
        self.missing_bytes = 0;
        match made {
            Err(error) if !is_full(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes a part durably. It counts once the superblock names it. `base`: begins the other file.
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
            // One that was allocated ahead does as long as this one fits, with what stays free behind it.
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

    /// Reads the parts that the superblock counts and gives each entry to `take`, which says whether it fits.
    /// Err: the reason why it is damaged.
    pub(crate) fn read(
        disk: &dyn Disk,
        (number, bytes, chain): (u32, u64, u64),
        mut take: impl FnMut(u8, &[u8]) -> Option<()>,
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
            let Some((link, len)) = read_part(&content[at..], last, &mut take) else {
                return Ok(Err(format!("{name}: the part at offset {at} does not fit")));
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

/// Lets a file grow by zeros that are written: then they have a place, whatever the file system can reserve.
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

/// No write in front of a commit exceeds 1 MiB.
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

/// Reads the part at the beginning of `bytes`, which follows the part of the chain `before`: its chain and its
/// bytes. None: it does not fit, or an entry does not.
pub(crate) fn read_part(
    bytes: &[u8],
    before: u64,
    take: &mut impl FnMut(u8, &[u8]) -> Option<()>,
) -> Option<(u64, usize)> {
    let header = bytes.get(..HEADER_BYTES)?;
    let mut t = Take(header);
    if t.u32()? != MAGIC {
        return None;
    }
    let (_kind, len, previous, crc) = (t.u32()?, t.u64()?, t.u64()?, t.u32()?);
    if t.u32()? != crc32c::crc32c(&header[..28]) || previous != before {
        return None;
    }
    let body = bytes.get(HEADER_BYTES..HEADER_BYTES.checked_add(usize::try_from(len).ok()?)?)?;
    if crc32c::crc32c(body) != crc {
        return None;
    }
    let mut t = Take(body);
    while !t.0.is_empty() {
        let kind = t.u8()?;
        let len = t.u32()? as usize;
        take(kind, t.bytes(len)?)?;
    }
    Some((fnv(header), (HEADER_BYTES + body.len()).next_multiple_of(PAGE_BYTES)))
}

/// FNV-1a, 64 bits.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ *byte as u64).wrapping_mul(0x0000_0100_0000_01b3))
}
