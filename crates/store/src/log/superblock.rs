//! The superblock: the identity of the store, and where recovery begins. The file `superblock` has two pages A and B of
//! 4 KiB, written in turn. The valid one with the higher generation counts.
//!
//! ```text
//! offset size field
//! 0      8    magic "STRONGBK"
//! 8      4    format version: 1
//! 12     4    incompatible features: an unknown bit refuses; 1: the checkpoint says which sequences were seen,
//!             2: rows of losses have a group of their own; 4: rows of the log state their clock
//! 16     4    compatible features: unknown bits are ignored
//! 20     4    epoch of the newest opening
//! 24     8    generation
//! 32     16   origin
//! 48     8    bytes of the log's ring
//! 56     8    log tail: position of the first unit that recovery reads
//! 64     8    log tail: number of the commit before it
//! 72     8    log tail: chain of the unit before it
//! 80     4    log tail: epoch of the unit before it
//! 84     4    checkpoint file: 0 none, 1 `checkpoint.a`, 2 `checkpoint.b`
//! 88     8    checkpoint: bytes that count
//! 96     8    checkpoint: chain of its last part
//! 104    8    identity of the folder (inode of this file): another one means a copy
//! 112    8    number of the next segment
//! 120    4    CRC32C of bytes 0 to 120
//! ```

use std::io;
use std::sync::Arc;

use crate::bytes::fields::Put;
use crate::bytes::{Cursor, FormatError, check_crc};
use crate::disk::names;
use crate::disk::{Access, Disk, DiskFile, PAGE_BYTES, Pages};
use crate::log::{Link, LogPosition};
use crate::model::refusal::{OpenError, repair_hint};

const MAGIC: &[u8; 8] = b"STRONGBK";
const CRC_AT: usize = 120;
/// Version of the format that this program writes.
pub(crate) const VERSION: u32 = 1;
/// Incompatible feature: the checkpoint has entries for the sequences that were seen.
pub(crate) const SEQUENCES: u32 = 1;
/// Incompatible feature: rows of `strongback.gaps` have their own group, which a program that does not know it would
/// take for data that may be dropped.
pub(crate) const GAPS_APART: u32 = 2;
/// Incompatible feature: rows of the log state which of their times is their `time`.
pub(crate) const CLOCKS_STATED: u32 = 4;
/// Incompatible features that this program knows.
pub(crate) const KNOWN_INCOMPATIBLE: u32 = SEQUENCES | GAPS_APART | CLOCKS_STATED;

/// Fields of the superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) incompatible: u32,
    pub(crate) compatible: u32,
    pub(crate) epoch: u32,
    pub(crate) generation: u64,
    pub(crate) origin: u128,
    pub(crate) log_bytes: u64,
    pub(crate) tail: Link,
    pub(crate) checkpoint_file: u32,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) checkpoint_chain: u64,
    pub(crate) identity: u64,
    pub(crate) next_segment: u64,
}

/// Result of decoding a page of the superblock.
pub(crate) enum SuperblockState {
    Valid(Superblock),
    /// Page of a later version; names what is newer.
    Newer(String),
    /// Page that is not valid, and why.
    Damaged(FormatError),
}

impl Superblock {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut p = Put::default();
        p.0.extend_from_slice(MAGIC);
        p.u32(VERSION);
        p.u32(self.incompatible);
        p.u32(self.compatible);
        p.u32(self.epoch);
        p.u64(self.generation);
        p.u128(self.origin);
        p.u64(self.log_bytes);
        p.u64(self.tail.position.number());
        p.u64(self.tail.commit);
        p.u64(self.tail.chain);
        p.u32(self.tail.epoch);
        p.u32(self.checkpoint_file);
        p.u64(self.checkpoint_bytes);
        p.u64(self.checkpoint_chain);
        p.u64(self.identity);
        p.u64(self.next_segment);
        let crc = crc32c::crc32c(&p.0);
        p.u32(crc);
        p.0
    }

    /// Decodes a page.
    pub(crate) fn decode(bytes: &[u8]) -> SuperblockState {
        Superblock::read_fields(bytes).unwrap_or_else(SuperblockState::Damaged)
    }

    fn read_fields(bytes: &[u8]) -> Result<SuperblockState, FormatError> {
        let mut t = Cursor::new(bytes);
        let magic = t;
        if t.take(MAGIC.len(), "magic")? != MAGIC {
            return Err(magic.invalid("magic", "it is not that of a superblock"));
        }
        let version = t.u32("version")?;
        // The magic, the version and the checksum of bytes 0 to 120 keep their offsets in every later version, so that a
        // bit that flips in the version is damage.
        let mut whole = Cursor::new(bytes);
        let checked = whole.take(CRC_AT, "superblock")?;
        check_crc("superblock", whole.u32("checksum")?, checked)?;
        if version > VERSION {
            return Ok(SuperblockState::Newer(format!("version {version}")));
        }
        let incompatible = t.u32("incompatible features")?;
        if incompatible & !KNOWN_INCOMPATIBLE != 0 {
            return Ok(SuperblockState::Newer(format!("features {incompatible:#x}")));
        }
        Ok(SuperblockState::Valid(Superblock {
            incompatible,
            compatible: t.u32("compatible features")?,
            epoch: t.u32("epoch")?,
            generation: t.u64("generation")?,
            origin: t.u128("origin")?,
            log_bytes: t.u64("bytes of the log")?,
            tail: Link {
                position: LogPosition::new(t.u64("position of the tail")?),
                commit: t.u64("commit before the tail")?,
                chain: t.u64("chain of the tail")?,
                epoch: t.u32("epoch of the tail")?,
            },
            checkpoint_file: t.u32("checkpoint file")?,
            checkpoint_bytes: t.u64("bytes of the checkpoint")?,
            checkpoint_chain: t.u64("chain of the checkpoint")?,
            identity: t.u64("identity")?,
            next_segment: t.u64("number of the next segment")?,
        }))
    }

    /// Returns whether one of the two pages was written and cannot be read back.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn has_lost_copy(disk: &dyn Disk) -> Result<bool, OpenError> {
        let io = |source| OpenError::Io { path: format!("{}/{}", disk.path(), names::SUPERBLOCK), source };
        let mut bytes = vec![0; 2 * PAGE_BYTES];
        disk.open(names::SUPERBLOCK, Access::Log).and_then(|file| file.read_at(&mut bytes, 0)).map_err(io)?;
        let copies = bytes.chunks(PAGE_BYTES).filter_map(|page| match Superblock::decode(page) {
            SuperblockState::Valid(superblock) => Some(superblock),
            _ => None,
        });
        let copies: Vec<Superblock> = copies.collect();
        // In the first generation, only one page was written.
        Ok(copies.len() < 2 && copies.iter().all(|copy| copy.generation > 1))
    }

    /// Reads the newest valid page. The error names what is wrong.
    pub(crate) fn read(disk: &dyn Disk, file: &dyn DiskFile) -> Result<Superblock, OpenError> {
        let path = || format!("{}/{}", disk.path(), names::SUPERBLOCK);
        let mut bytes = vec![0; 2 * PAGE_BYTES];
        file.read_at(&mut bytes, 0).map_err(|source| OpenError::Io { path: path(), source })?;
        let (mut newest, mut wrong): (Option<Superblock>, Vec<String>) = (None, Vec::new());
        for (copy, page) in bytes.chunks(PAGE_BYTES).enumerate() {
            match Superblock::decode(page) {
                SuperblockState::Valid(s) if newest.is_none_or(|n| s.generation > n.generation) => newest = Some(s),
                SuperblockState::Valid(_) => {}
                SuperblockState::Damaged(error) => wrong.push(format!("offset {}: {error}", copy * PAGE_BYTES)),
                SuperblockState::Newer(found) => {
                    return Err(OpenError::Newer {
                        path: disk.path(),
                        found,
                        known: format!("version {VERSION}, features {KNOWN_INCOMPATIBLE:#x}"),
                    });
                }
            }
        }
        newest.ok_or_else(|| OpenError::Damaged {
            path: path(),
            reason: format!("neither copy is valid ({}); {}", wrong.join("; "), repair_hint(&disk.path())),
        })
    }
}

/// Open superblock.
pub(crate) struct SuperblockFile {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) now: Superblock,
}

impl SuperblockFile {
    /// Writes the first superblock of a new store.
    pub(crate) fn create(disk: &dyn Disk, mut first: Superblock) -> io::Result<SuperblockFile> {
        let file = disk.create(names::SUPERBLOCK, names::SUPERBLOCK_BYTES, Access::Log)?;
        first.identity = disk.identity(names::SUPERBLOCK)?;
        let mut this = SuperblockFile { file, now: first };
        this.write(first)?;
        Ok(this)
    }

    /// Replaces the superblock durably: writes the other page with the next generation.
    pub(crate) fn write(&mut self, mut next: Superblock) -> io::Result<()> {
        next.generation = self.now.generation + 1;
        let at = next.generation % 2 * PAGE_BYTES as u64;
        self.file.write_at(&Pages::of(&next.encode()), at)?;
        self.file.sync()?;
        self.now = next;
        Ok(())
    }
}
