//! Segments: fixed-size, append-only containers of blocks; *open*, then *sealed*, then immutable.
//!
//! ```text
//!  block ─> write group ─> [segment] ─> scan, recovery, inspect
//!
//!  | header page | group | pad | group | pad | … | footer | pad | trailer page |
//! ```
//! Every part begins at a multiple of 4 KiB, so that no durable page is ever rewritten. The trailer is the last page
//! of the file or region; a segment without one is open and is read by walking its groups.
//!
//! Header page, 4,096 bytes, little-endian:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | magic | `SBSG` |
//! | 4 | 4 | version | format version, 1; bit 31 was set in drafts of it, which are refused |
//! | 8 | 8 | incompatible | feature bits: 1 it holds blobs (`crate::blob`) and no blocks; refuse if any is unknown |
//! | 16 | 8 | compatible | feature bits; ignore unknown ones |
//! | 24 | 16 | origin | the store that wrote it |
//! | 40 | 8 | id | number of the segment, rising |
//! | 48 | 8 | generation | rises whenever the same place is reused |
//! | 56 | 8 | size_bytes | of the file or region |
//! | 64 | 8 | created | instant, ns since 1970 UTC |
//! | 72 | 2 | group_len | bytes of the retention group's name |
//! | 74 | … | group | its name, UTF-8 |
//! | 4092 | 4 | crc | CRC32C of bytes 0 to 4092 |
//!
//! Write group header, 40 bytes, blocks behind it:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | magic | `SBWG` |
//! | 4 | 4 | length_bytes | header and blocks, padding not counted |
//! | 8 | 4 | blocks | number of blocks |
//! | 12 | 4 | index | number of the group in its segment, from 0 |
//! | 16 | 8 | segment | id of the segment |
//! | 24 | 8 | generation | of the segment; data behind the last group of an open one may have an older one |
//! | 32 | 4 | body_crc | CRC32C of bytes 40 to length_bytes |
//! | 36 | 4 | header_crc | CRC32C of bytes 0 to 36 |
//!
//! A group has at most 256 KiB, unless it holds a single block that is larger.

pub(crate) mod directory;
pub(crate) mod file;

mod build;
mod footer;
mod last;
mod outline;
pub(crate) mod pyramid;

use crate::bytes::{self, Cursor, FormatError, check_limit, check_magic, malformed};
use crate::model::limits::{
    BLOCK_ALIGN_BYTES, BLOCK_BYTES_MAX, GROUP_BYTES_MAX, PAGE_BYTES, SEGMENT_BLOCKS_MAX, SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN, TEXT_BYTES_MAX,
};
use crate::model::mutant::{self, Mutant};

pub(crate) use build::index_entries;
pub use build::{Builder, Sealed, WriteGroup};
pub(crate) use footer::Beside;
#[doc(hidden)]
pub use footer::forge_footer_checksums;
pub use footer::{Footer, IndexEntry, Trailer, read_footer, read_trailer};
pub(crate) use footer::{IndexEntries, part_of, read_sections};
pub(crate) use last::{LastBlocks, NewestBefore};
pub(crate) use outline::Outline;

/// First four bytes of a segment.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SBSG");
/// First four bytes of a write group.
pub const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"SBWG");
/// Bytes of a write group's header.
pub const GROUP_HEADER_BYTES: usize = 40;
/// Format version that is written. The meaning of version 1 never changes.
pub const VERSION: u32 = 1;
/// Version bit of drafts written before version 1 was final.
const DRAFT: u32 = 1 << 31;
const CRC_AT: usize = PAGE_BYTES - 4;

/// Contents of a segment's header page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Origin of the store that wrote the segment.
    pub origin: u128,
    /// Number of the segment, rising.
    pub id: u64,
    /// Generation; rises whenever the same place is reused.
    pub generation: u64,
    /// Size of the file or region in bytes.
    pub size_bytes: u64,
    /// Instant at which the segment was begun, nanoseconds since 1970 UTC.
    pub created: i64,
    /// Retention group of everything in the segment.
    pub group: String,
    /// Whether the segment holds blobs and no blocks.
    pub blobs: bool,
}

/// Incompatible feature: blobs.
const BLOBS: u64 = 1;

impl SegmentHeader {
    /// Encodes the header page.
    ///
    /// # Errors
    /// When the size or the group's name exceeds a limit.
    pub fn page(&self) -> Result<Vec<u8>, FormatError> {
        self.check()?;
        let mut page = Vec::with_capacity(PAGE_BYTES);
        page.extend_from_slice(&MAGIC.to_le_bytes());
        page.extend_from_slice(&VERSION.to_le_bytes());
        page.extend_from_slice(&if self.blobs { BLOBS } else { 0 }.to_le_bytes());
        page.extend_from_slice(&[0; 8]);
        page.extend_from_slice(&self.origin.to_le_bytes());
        for field in [self.id, self.generation, self.size_bytes, self.created as u64] {
            page.extend_from_slice(&field.to_le_bytes());
        }
        page.extend_from_slice(&(self.group.len() as u16).to_le_bytes());
        page.extend_from_slice(self.group.as_bytes());
        Ok(seal_page(page))
    }

    fn check(&self) -> Result<(), FormatError> {
        check_limit("bytes of a segment", self.size_bytes, SEGMENT_BYTES_MAX as usize)?;
        if self.size_bytes < SEGMENT_BYTES_MIN || !self.size_bytes.is_multiple_of(PAGE_BYTES as u64) {
            return Err(malformed("size of a segment"));
        }
        check_limit("bytes of a group's name", self.group.len() as u64, TEXT_BYTES_MAX.min(CRC_AT - 74))?;
        Ok(())
    }

    /// Reads a header page.
    ///
    /// # Errors
    /// When it is not a header page, is damaged, has an unknown format, or contradicts itself.
    pub fn read(bytes: &[u8]) -> Result<Self, FormatError> {
        let page = Cursor::new(bytes).take(PAGE_BYTES, "segment header")?;
        let mut fields = Cursor::new(page);
        check_magic("segment", MAGIC, fields.u32("magic")?)?;
        // Check the version before the checksum: a newer format may have another one.
        let version = fields.u32("version")?;
        if version != VERSION {
            check_page("segment header", page)?;
            let what = if version & DRAFT != 0 { "draft of segment format version" } else { "segment format version" };
            return Err(FormatError::Unsupported { what, found: (version & !DRAFT).into() });
        }
        check_page("segment header", page)?;
        let incompatible = fields.u64("incompatible features")?;
        if incompatible & !BLOBS != 0 {
            return Err(FormatError::Unsupported { what: "segment feature", found: incompatible });
        }
        fields.u64("compatible features")?;
        let header = SegmentHeader {
            origin: fields.u128("origin")?,
            id: fields.u64("id")?,
            generation: fields.u64("generation")?,
            size_bytes: fields.u64("size")?,
            created: fields.i64("created")?,
            group: fields.short_text("group")?.to_owned(),
            blobs: incompatible & BLOBS != 0,
        };
        header.check()?;
        Ok(header)
    }
}

/// Pads a page with zeros and puts its checksum at the end.
fn seal_page(mut page: Vec<u8>) -> Vec<u8> {
    page.resize(CRC_AT, 0);
    let crc = crc32c::crc32c(&page);
    page.extend_from_slice(&crc.to_le_bytes());
    page
}

fn check_page(what: &'static str, page: &[u8]) -> Result<(), FormatError> {
    check_crc(what, Cursor::at(CRC_AT as u64, &page[CRC_AT..]).u32(what)?, &page[..CRC_AT])
}

pub(crate) fn check_crc(what: &'static str, expected: u32, bytes: &[u8]) -> Result<(), FormatError> {
    if mutant::is_active(Mutant::NoSegmentCheck) { Ok(()) } else { bytes::check_crc(what, expected, bytes) }
}

/// Header of a write group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// Bytes of header and blocks, without padding.
    pub length_bytes: usize,
    /// Number of blocks in the group.
    pub blocks: usize,
    /// Number of the group in its segment, from 0.
    pub index: u32,
    /// Id of the segment.
    pub segment: u64,
    /// Generation of the segment.
    pub generation: u64,
    body_crc: u32,
}

impl GroupHeader {
    /// Returns the bytes with padding: the next group begins there.
    pub fn padded_bytes(&self) -> usize {
        self.length_bytes.next_multiple_of(PAGE_BYTES)
    }

    /// Reads and checks the header at the beginning of `bytes`; its blocks may be missing.
    ///
    /// # Errors
    /// When it is not a group header, is damaged, or contradicts itself.
    pub fn read(bytes: &[u8]) -> Result<Self, FormatError> {
        let header = Cursor::new(bytes).take(GROUP_HEADER_BYTES, "group header")?;
        let mut fields = Cursor::new(header);
        check_magic("write group", GROUP_MAGIC, fields.u32("magic")?)?;
        let (checked, crc) = header.split_at(GROUP_HEADER_BYTES - 4);
        check_crc("group header", Cursor::at(checked.len() as u64, crc).u32("crc")?, checked)?;
        let length = fields.u32("length")?;
        let blocks = check_limit("blocks of a group", fields.u32("blocks")?.into(), SEGMENT_BLOCKS_MAX)?;
        // A block larger than a usual group has a group to itself.
        let most = if blocks == 1 { GROUP_HEADER_BYTES + BLOCK_BYTES_MAX } else { GROUP_BYTES_MAX };
        let length_bytes = check_limit("bytes of a group", length.into(), most)?;
        if length_bytes < GROUP_HEADER_BYTES || blocks == 0 || !length_bytes.is_multiple_of(BLOCK_ALIGN_BYTES) {
            return Err(malformed("length of a group"));
        }
        Ok(GroupHeader {
            length_bytes,
            blocks,
            index: fields.u32("index")?,
            segment: fields.u64("segment")?,
            generation: fields.u64("generation")?,
            body_crc: fields.u32("crc")?,
        })
    }

    /// Returns the blocks of the group at the beginning of `bytes` after checking their checksum.
    ///
    /// # Errors
    /// When they are incomplete or damaged.
    pub fn body<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], FormatError> {
        let whole = Cursor::new(bytes).take(self.length_bytes, "write group")?;
        let body = &whole[GROUP_HEADER_BYTES..];
        check_crc("write group", self.body_crc, body)?;
        Ok(body)
    }

    fn of(header: &SegmentHeader, index: u32, blocks: usize, body: &[u8]) -> Self {
        GroupHeader {
            length_bytes: GROUP_HEADER_BYTES + body.len(),
            blocks,
            index,
            segment: header.id,
            generation: header.generation,
            body_crc: crc32c::crc32c(body),
        }
    }

    fn bytes(&self) -> [u8; GROUP_HEADER_BYTES] {
        let mut bytes = [0; GROUP_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&GROUP_MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.length_bytes as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&(self.blocks as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.index.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.segment.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.generation.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.body_crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..36]);
        bytes[36..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}
