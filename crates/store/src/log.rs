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
//! 36     4    flags: bit 0: begins an epoch; bit 1: clean shutdown; bit 2: holds nothing but rows
//! 40     8    instant of the commit, nanoseconds since 1970 UTC
//! 48     8    zero
//! 56     4    CRC32C of the records
//! 60     4    CRC32C of bytes 0 to 60
//! ```
//! The chain of a unit is FNV-1a (64 bits) over its 64 header bytes. A unit follows another if its position is where
//! that one ended, its commit number is one more, its epoch is the same or (flag bit 0) higher, and it contains the
//! other's chain. Records are described in [`crate::log::record`].

pub(crate) mod checkpoint;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod superblock;

use std::io;
use std::ops::{Add, Sub};
use std::sync::Arc;

use crate::disk::{DiskFile, PAGE_BYTES, Pages};

/// Max bytes of the records of a unit.
pub(crate) const RECORDS_BYTES_MAX: usize = 16 << 20;

/// Size of a unit's header in bytes.
pub(crate) const UNIT_HEADER_BYTES: usize = 64;

const MAGIC: u32 = u32::from_le_bytes(*b"SBLU");

/// Flag of a unit that begins an epoch.
pub(crate) const BEGINS_EPOCH: u32 = 1;
/// Flag of the last unit of a clean shutdown.
pub(crate) const CLEAN: u32 = 2;
/// Flag of a unit that holds nothing but rows: no later one needs it to be understood.
pub(crate) const ROWS_ONLY: u32 = 4;

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

    /// Returns the state that the unit follows, as far as the unit alone knows it.
    pub(crate) fn link_before(&self) -> Link {
        let commit = self.commit.saturating_sub(1);
        Link { position: self.position, commit, chain: self.previous, epoch: self.epoch }
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
