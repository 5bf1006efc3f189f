//! The commit log: a ring of pages that is written once before use, and then reused for ever.
//!
//! Each commit is one *unit*: page-aligned, at a position that only increases. `position % ring` is its offset in the
//! file `log`, and a unit may wrap around the end of the ring. Header, little-endian:
//!
//! ```text
//! offset size field
//! 0      4    magic "SBLU"
//! 4      4    epoch
//! 8      8    commit number
//! 16     8    position of this unit
//! 24     8    chain of the previous unit
//! 32     4    bytes of records that follow the header
//! 36     4    flags: bit 0: begins an epoch; bit 1: clean shutdown
//! 40     8    instant of the commit, nanoseconds since 1970 UTC
//! 48     8    zero
//! 56     4    CRC32C of the records
//! 60     4    CRC32C of bytes 0 to 60
//! ```
//! The chain of a unit is FNV-1a (64 bits) over its 64 header bytes. A unit follows another if its position is where
//! that one ended, its commit number is one more, its epoch is the same or (flag bit 0) higher, and it contains the
//! other's chain. Records are described in [`crate::log::record`].

pub(crate) mod checkpoint;
pub(crate) mod record;
pub(crate) mod superblock;

use std::io;
use std::ops::{Add, Sub};
use std::sync::Arc;

use crate::disk::{DiskFile, PAGE_BYTES, Pages};

/// Size of a unit's header in bytes.
pub(crate) const UNIT_HEADER_BYTES: usize = 64;

const MAGIC: u32 = u32::from_le_bytes(*b"SBLU");

/// Flag of a unit that begins an epoch.
pub(crate) const BEGINS_EPOCH: u32 = 1;
/// Flag of the last unit of a clean shutdown.
pub(crate) const CLEAN: u32 = 2;

/// Position in the log, in bytes from its first unit on. Positions only increase, whereas offsets in the ring repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogPosition(u64);

impl LogPosition {
    /// Position after all others.
    pub(crate) const END: LogPosition = LogPosition(u64::MAX);

    /// Creates the position that is read from a file.
    pub(crate) fn new(position: u64) -> LogPosition {
        LogPosition(position)
    }

    /// Returns its number, as it is written to files.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Returns its offset in a ring of this size.
    pub(crate) fn offset(self, ring_bytes: u64) -> u64 {
        self.0 % ring_bytes
    }

    /// Returns the position `bytes` before this one, or the first position.
    pub(crate) fn back(self, bytes: u64) -> LogPosition {
        LogPosition(self.0.saturating_sub(bytes))
    }
}

impl Add<u64> for LogPosition {
    type Output = LogPosition;

    /// Returns the position `bytes` after this one. Saturates only for forged numbers: no real position is that large.
    #[inline(always)]
    fn add(self, bytes: u64) -> LogPosition {
        LogPosition(self.0.saturating_add(bytes))
    }
}

impl Sub for LogPosition {
    type Output = u64;

    /// Returns the bytes from `other` to this position, or 0 if `other` is after it.
    #[inline(always)]
    fn sub(self, other: LogPosition) -> u64 {
        self.0.saturating_sub(other.0)
    }
}

/// State that the next unit must follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// Position at which the next unit begins.
    pub(crate) position: LogPosition,
    /// Number of the last commit.
    pub(crate) commit: u64,
    /// Chain of the last unit.
    pub(crate) chain: u64,
    /// Epoch of the last unit.
    pub(crate) epoch: u32,
}

/// Header of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitHeader {
    pub(crate) epoch: u32,
    pub(crate) commit: u64,
    pub(crate) position: LogPosition,
    pub(crate) previous: u64,
    pub(crate) len: u32,
    pub(crate) flags: u32,
    pub(crate) instant: i64,
    pub(crate) crc: u32,
}

impl UnitHeader {
    /// Encodes the header.
    pub(crate) fn encode(&self) -> [u8; UNIT_HEADER_BYTES] {
        let mut b = [0; UNIT_HEADER_BYTES];
        b[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        b[4..8].copy_from_slice(&self.epoch.to_le_bytes());
        b[8..16].copy_from_slice(&self.commit.to_le_bytes());
        b[16..24].copy_from_slice(&self.position.0.to_le_bytes());
        b[24..32].copy_from_slice(&self.previous.to_le_bytes());
        b[32..36].copy_from_slice(&self.len.to_le_bytes());
        b[36..40].copy_from_slice(&self.flags.to_le_bytes());
        b[40..48].copy_from_slice(&self.instant.to_le_bytes());
        b[56..60].copy_from_slice(&self.crc.to_le_bytes());
        let crc = crc32c::crc32c(&b[..60]);
        b[60..64].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// Decodes a header. Returns `None` if its magic or checksum does not match.
    pub(crate) fn decode(b: &[u8]) -> Option<UnitHeader> {
        let header = b.get(..UNIT_HEADER_BYTES)?;
        let fits = header[..4] == MAGIC.to_le_bytes() && header[60..] == crc32c::crc32c(&header[..60]).to_le_bytes();
        if fits { UnitHeader::fields(header) } else { None }
    }

    /// Decodes the fields of a header without checking it.
    fn fields(b: &[u8]) -> Option<UnitHeader> {
        let b: &[u8; UNIT_HEADER_BYTES] = b.get(..UNIT_HEADER_BYTES)?.try_into().ok()?;
        let u32_at = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let u64_at = |at: usize| u32_at(at) as u64 | (u32_at(at + 4) as u64) << 32;
        Some(UnitHeader {
            epoch: u32_at(4),
            commit: u64_at(8),
            position: LogPosition(u64_at(16)),
            previous: u64_at(24),
            len: u32_at(32),
            flags: u32_at(36),
            instant: u64_at(40) as i64,
            crc: u32_at(56),
        })
    }

    /// Returns the state that the next unit must follow.
    pub(crate) fn link(&self) -> Link {
        let mut chain = 0xcbf2_9ce4_8422_2325_u64;
        for byte in self.encode() {
            chain = (chain ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let position = self.position + unit_bytes(self.len as usize);
        Link { position, commit: self.commit, chain, epoch: self.epoch }
    }

    /// Returns whether the unit follows the given state.
    pub(crate) fn follows(&self, link: &Link) -> bool {
        self.position == link.position
            && self.commit.checked_sub(1) == Some(link.commit)
            && self.previous == link.chain
            && (self.epoch == link.epoch || self.flags & BEGINS_EPOCH != 0 && self.epoch > link.epoch)
    }
}

/// Returns the bytes that a unit with `records` bytes of records takes in the ring.
pub(crate) fn unit_bytes(records: usize) -> u64 {
    (UNIT_HEADER_BYTES + records).next_multiple_of(PAGE_BYTES) as u64
}

/// File of the ring.
pub(crate) struct Ring {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) size_bytes: u64,
}

impl Ring {
    /// Writes pages at a position, wrapping around the end of the ring.
    fn write(&self, pages: &Pages, position: LogPosition, spill: &mut Pages) -> io::Result<()> {
        let offset = position.offset(self.size_bytes);
        let bytes = pages.as_slice();
        let first = (self.size_bytes - offset).min(bytes.len() as u64) as usize;
        if first == bytes.len() {
            return self.file.write_at(pages, offset);
        }
        for (part, at) in [(&bytes[..first], offset), (&bytes[first..], 0)] {
            spill.resize(part.len());
            spill.as_mut().copy_from_slice(part);
            self.file.write_at(spill, at)?;
        }
        Ok(())
    }
}

/// Writer of commits at the end of the log, one at a time.
pub(crate) struct LogWriter {
    pub(crate) ring: Arc<Ring>,
    pub(crate) link: Link,
    pages: Pages,
    spill: Pages,
    /// Bytes written since opening.
    pub(crate) written_bytes: u64,
    /// Whether the next unit begins an epoch.
    begins: bool,
}

impl LogWriter {
    /// Creates a writer that continues after `link`.
    pub(crate) fn new(ring: Arc<Ring>, link: Link) -> LogWriter {
        LogWriter { ring, link, pages: Pages::default(), spill: Pages::default(), written_bytes: 0, begins: false }
    }

    /// Marks the first unit to begin the epoch, and makes durable what recovery found.
    pub(crate) fn begin_later(&mut self) -> io::Result<()> {
        self.begins = true;
        self.ring.file.sync()
    }

    /// Writes one unit and makes it durable.
    pub(crate) fn write_unit(&mut self, records: &[u64], epoch: u32, flags: u32, instant: i64) -> io::Result<()> {
        let flags = if self.begins { flags | BEGINS_EPOCH } else { flags };
        let len = records.len() * 8;
        let size = unit_bytes(len) as usize;
        self.pages.resize(size);
        let bytes = self.pages.as_mut();
        for (to, word) in bytes[UNIT_HEADER_BYTES..].as_chunks_mut::<8>().0.iter_mut().zip(records) {
            *to = word.to_le_bytes();
        }
        bytes[UNIT_HEADER_BYTES + len..].fill(0);
        let header = UnitHeader {
            epoch,
            commit: self.link.commit + 1,
            position: self.link.position,
            previous: self.link.chain,
            len: len as u32,
            flags,
            instant,
            crc: crc32c::crc32c(&bytes[UNIT_HEADER_BYTES..UNIT_HEADER_BYTES + len]),
        };
        bytes[..UNIT_HEADER_BYTES].copy_from_slice(&header.encode());
        self.ring.write(&self.pages, self.link.position, &mut self.spill)?;
        self.ring.file.sync()?;
        self.written_bytes += size as u64;
        self.link = header.link();
        self.begins = false;
        // Do not keep the memory of a large commit for ever.
        if size > 16 << 20 {
            self.pages = Pages::default();
        }
        Ok(())
    }
}

/// Reader of units one after the other, in large pieces.
pub(crate) struct LogReader<'a> {
    ring: &'a Ring,
    link: Link,
    /// Position at which the next lap of the ring begins; no unit may extend beyond it.
    limit: LogPosition,
    buffer: Vec<u8>,
    /// Position of the buffer's first byte.
    start: LogPosition,
}

/// Bytes read at a time during recovery.
const READ_BYTES: u64 = 1 << 20;

impl<'a> LogReader<'a> {
    /// Creates a reader of the units after `link`.
    pub(crate) fn new(ring: &'a Ring, link: Link) -> Self {
        LogReader { ring, link, limit: link.position + ring.size_bytes, buffer: Vec::new(), start: link.position }
    }

    /// Returns the link after the last complete unit.
    pub(crate) fn link(&self) -> Link {
        self.link
    }

    /// Reads until the buffer holds `len` bytes from the link's position on. Returns whether it does.
    fn fill(&mut self, len: u64) -> io::Result<bool> {
        let position = self.link.position;
        if position + len > self.limit {
            return Ok(false);
        }
        let skip = (position - self.start) as usize;
        if skip >= READ_BYTES as usize || skip == self.buffer.len() {
            self.buffer.drain(..skip.min(self.buffer.len()));
            self.start = position;
        }
        let want = position + len - self.start;
        while (self.buffer.len() as u64) < want {
            let at = self.start + self.buffer.len() as u64;
            let offset = at.offset(self.ring.size_bytes);
            let piece = READ_BYTES.min(self.ring.size_bytes - offset).min(self.limit - at) as usize;
            let have = self.buffer.len();
            self.buffer.resize(have + piece, 0);
            let got = self.ring.file.read_at(&mut self.buffer[have..], offset)?;
            if got < piece {
                self.buffer.truncate(have + got);
                return Ok((self.buffer.len() as u64) >= want);
            }
        }
        Ok(true)
    }

    /// Reads the next complete unit that follows: its header and records. Returns `None` at the end of the log. `check`
    /// is only off for a mutant of the tests, which accepts whatever it finds.
    pub(crate) fn next_unit(&mut self, check: bool) -> io::Result<Option<(UnitHeader, &[u8])>> {
        if !self.fill(PAGE_BYTES as u64)? {
            return Ok(None);
        }
        let at = (self.link.position - self.start) as usize;
        let Some(header) = UnitHeader::decode(&self.buffer[at..]) else { return Ok(None) };
        if !header.follows(&self.link) && (check || header.position != self.link.position) {
            return Ok(None);
        }
        let size = unit_bytes(header.len as usize);
        if !header.len.is_multiple_of(8) || !self.fill(size)? {
            return Ok(None);
        }
        let at = (self.link.position - self.start) as usize + UNIT_HEADER_BYTES;
        let end = at + header.len as usize;
        if check && crc32c::crc32c(&self.buffer[at..end]) != header.crc {
            return Ok(None);
        }
        self.link = header.link();
        Ok(Some((header, &self.buffer[at..end])))
    }

    /// Returns the bytes after the last complete unit that look like a truncated unit of the same lap, or like its
    /// remains. Remains have a header that fails its checksum, but whose position or chain still fits.
    pub(crate) fn torn_bytes(&mut self) -> io::Result<u64> {
        if !self.fill(PAGE_BYTES as u64)? {
            return Ok(0);
        }
        let at = (self.link.position - self.start) as usize;
        let page = &self.buffer[at..];
        let Some(header) = UnitHeader::decode(page) else {
            let zeros = page.iter().take(UNIT_HEADER_BYTES).all(|byte| *byte == 0);
            let left = UnitHeader::fields(page).is_some_and(|header| {
                let place = (header.position, header.commit) == (self.link.position, self.link.commit + 1);
                !zeros && (header.previous == self.link.chain || place)
            });
            return Ok(if left { PAGE_BYTES as u64 } else { 0 });
        };
        Ok(if header.follows(&self.link) { unit_bytes(header.len as usize) } else { 0 })
    }

    /// Returns the newest commits whose complete headers are in the next MiB, where no intact log can have them.
    pub(crate) fn behind_end(&mut self) -> io::Result<Behind> {
        let link = self.link;
        let room = READ_BYTES.min(self.limit - link.position);
        self.fill(room)?;
        let from = ((link.position - self.start) as usize).min(self.buffer.len());
        Ok(Behind::of(&self.buffer[from..], &link, self.ring.size_bytes, self.limit))
    }
}

/// Commits whose headers were found behind the log's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    /// Newest commit of the lap that ends there: those in between are damaged.
    pub(crate) same_lap: Option<u64>,
    /// Newest commit of a later lap: the log was overwritten after the position of its beginning was recorded.
    pub(crate) later_lap: Option<u64>,
}

impl Behind {
    /// Bytes behind the end that are searched.
    pub(crate) const BYTES: u64 = READ_BYTES;

    /// Returns the newest commits whose complete headers are in `bytes`, which follow the last complete unit in a ring
    /// of `ring_bytes`. The lap ends at `limit`.
    ///
    /// A unit is written when the one before it is durable. Units before one of a later commit were therefore durable,
    /// and are not as they were written. Every page is searched for headers, including pages with values of an earlier
    /// lap. A header counts only if a unit with its number can be there, given that each unit before it takes at least
    /// a page.
    pub(crate) fn of(bytes: &[u8], link: &Link, ring_bytes: u64, limit: LogPosition) -> Behind {
        let mut behind = Behind::default();
        for (n, page) in bytes.chunks(PAGE_BYTES).enumerate().skip(1) {
            let Some(header) = UnitHeader::decode(page) else { continue };
            let at = link.position + (n * PAGE_BYTES) as u64;
            let units = header.commit.saturating_sub(link.commit);
            let is_there =
                header.position >= link.position && header.position.offset(ring_bytes) == at.offset(ring_bytes);
            if !is_there {
                continue;
            }
            let pages = (header.position - link.position) / PAGE_BYTES as u64;
            if units < 2 || units > pages + 1 || header.epoch < link.epoch {
                continue;
            }
            let newest = if header.position < limit { &mut behind.same_lap } else { &mut behind.later_lap };
            *newest = (*newest).max(Some(header.commit));
        }
        behind
    }

    /// Says which commits are damaged and lost if those after `link` are not as they were written.
    pub(crate) fn damage(&self, link: &Link) -> Option<String> {
        let commit = self.same_lap?;
        let first = link.commit + 1;
        Some(format!("commit {first} is damaged, and what was committed after it, to {commit} at least, lost"))
    }
}
