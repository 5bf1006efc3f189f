//! Blocks: a batch on disk. A block has one origin, epoch, stream and layout version, and holds one contiguous range
//! of rows in row order.
//!
//! ```text
//!  append ─> open block ─> seal ─> [block] ─> segment ─> scan
//! ```
//!
//! Header, 96 bytes, little-endian:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | magic | `SBBK` |
//! | 4 | 4 | length_bytes | whole block with header and padding, a multiple of 8 |
//! | 8 | 2 | incompatible | feature bits; refuse if any is unknown |
//! | 10 | 2 | compatible | feature bits; ignore unknown ones |
//! | 12 | 4 | flags | 1 time_sorted, 2 overlaps_previous, 4 source_clock, 8 gap_before, 16 mixed |
//! | 16 | 16 | origin | node that received the frames |
//! | 32 | 4 | epoch | opening of the store that received them |
//! | 36 | 4 | stream | number of the stream at its origin; 0xffffffff in a mixed block |
//! | 40 | 4 | layout_version | of the stream |
//! | 44 | 4 | rows | number of frames |
//! | 48 | 8 | first_row | row of the first frame |
//! | 56 | 8 | time_min | smallest `time`, ns since 1970 UTC |
//! | 64 | 8 | time_max | largest `time` |
//! | 72 | 8 | stored_first | instant at which the first frame was stored |
//! | 80 | 8 | stored_last | instant at which the last frame was stored |
//! | 88 | 4 | body_crc | CRC32C of bytes 96 to length_bytes |
//! | 92 | 4 | header_crc | CRC32C of bytes 0 to 92 |
//!
//! The body is a sequence of sections; `docs/format/store.md` has their tables.
//! Invariants: `time_min ≤ time_max`, `stored_first ≤ stored_last`, `1 ≤ rows`, `first_row + rows` fits 64 bits.

pub(crate) mod leaps;
pub mod mixed;

mod encode;
mod front;
mod read;

use std::ops::Range;

use crate::bytes::{Cursor, FormatError, check_crc, check_limit, check_magic, malformed};
use crate::model::limits::{BLOCK_ALIGN_BYTES, BLOCK_BYTES_MAX, BLOCK_ROWS_MAX};
use crate::model::stream::StreamId;

pub use encode::{BlockMeta, Encoder};
pub(crate) use encode::{finish, put_section};
pub(crate) use front::{Front, begin};
pub use read::{Block, ColumnEntry, decode};
pub(crate) use read::{absent, checked_body};

/// Bytes of a block's header.
pub const HEADER_BYTES: usize = crate::model::limits::BLOCK_HEADER_BYTES;
/// First four bytes of a block.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SBBK");

const FLAG_TIME_SORTED: u32 = 1;
const FLAG_OVERLAPS_PREVIOUS: u32 = 2;
const FLAG_SOURCE_CLOCK: u32 = 4;
const FLAG_GAP_BEFORE: u32 = 8;
const FLAG_MIXED: u32 = 16;

/// Section numbers. A reader skips an unknown section numbered [`SKIPPABLE`] or above.
const SECTION_DIRECTORY: u8 = 1;
const SECTION_VALUES: u8 = 2;
pub(crate) const SECTION_PARTS: u8 = 3;
pub(crate) const SECTION_ROWS: u8 = 4;
const SECTION_FRONT: u8 = 5;
const SECTION_TILES: u8 = 6;
const SECTION_PLACES: u8 = 7;
const SECTION_STATISTICS: u8 = SKIPPABLE | 1;
pub(crate) const SKIPPABLE: u8 = 0x80;

/// Columns before the channels: receive_time, source_time, sequence, session.
const SYSTEM_COLUMNS: usize = 4;
const HAS_PARAMETERS: u8 = 0x80;
const HAS_STATES: u8 = 0x40;

/// Fields of a block's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// Bytes of the block on disk, including header and padding.
    pub length_bytes: usize,
    /// Node that received the frames.
    pub origin: u128,
    /// Opening of the store that received the frames.
    pub epoch: u32,
    /// Stream of the frames.
    pub stream: StreamId,
    /// Layout version of the stream when the block was sealed.
    pub layout_version: u32,
    /// Number of frames.
    pub rows: usize,
    /// Row of the first frame.
    pub first_row: u64,
    /// Smallest and largest `time`.
    pub time: (i64, i64),
    /// First and last instant at which frames of the block were stored.
    pub stored: (i64, i64),
    /// Whether `time` never decreases from row to row.
    pub time_sorted: bool,
    /// Whether some `time` is not after every `time` of the stream's earlier blocks.
    pub overlaps_previous: bool,
    /// Whether `time` is `source_time` where there is one.
    pub source_clock: bool,
    /// Whether frames are known missing before the first one.
    pub gap_before: bool,
    /// Whether the block holds frames of many streams: see [`crate::block::mixed`].
    pub mixed: bool,
}

impl BlockHeader {
    /// Returns the row after the last.
    pub fn next_row(&self) -> u64 {
        self.first_row + self.rows as u64
    }

    /// Returns the flags as written to disk.
    pub(crate) fn flags(&self) -> u32 {
        let flags = [
            (self.time_sorted, FLAG_TIME_SORTED),
            (self.overlaps_previous, FLAG_OVERLAPS_PREVIOUS),
            (self.source_clock, FLAG_SOURCE_CLOCK),
            (self.gap_before, FLAG_GAP_BEFORE),
            (self.mixed, FLAG_MIXED),
        ];
        flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag)
    }

    /// Returns a header of which only the flags are set.
    pub(crate) fn of_flags(flags: u32) -> Self {
        BlockHeader {
            length_bytes: 0,
            origin: 0,
            epoch: 0,
            stream: StreamId(0),
            layout_version: 0,
            rows: 0,
            first_row: 0,
            time: (0, 0),
            stored: (0, 0),
            time_sorted: flags & FLAG_TIME_SORTED != 0,
            overlaps_previous: flags & FLAG_OVERLAPS_PREVIOUS != 0,
            source_clock: flags & FLAG_SOURCE_CLOCK != 0,
            gap_before: flags & FLAG_GAP_BEFORE != 0,
            mixed: flags & FLAG_MIXED != 0,
        }
    }
}

pub(crate) fn put_header(header: &BlockHeader, body_crc: u32) -> [u8; HEADER_BYTES] {
    let flags = header.flags();
    let mut bytes = [0; HEADER_BYTES];
    let mut at = 0;
    let mut put = |field: &[u8]| {
        bytes[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    };
    put(&MAGIC.to_le_bytes());
    put(&(header.length_bytes as u32).to_le_bytes());
    put(&0u16.to_le_bytes());
    put(&0u16.to_le_bytes());
    put(&flags.to_le_bytes());
    put(&header.origin.to_le_bytes());
    put(&header.epoch.to_le_bytes());
    put(&header.stream.0.to_le_bytes());
    put(&header.layout_version.to_le_bytes());
    put(&(header.rows as u32).to_le_bytes());
    put(&header.first_row.to_le_bytes());
    for instant in [header.time.0, header.time.1, header.stored.0, header.stored.1] {
        put(&instant.to_le_bytes());
    }
    put(&body_crc.to_le_bytes());
    debug_assert_eq!(at, HEADER_BYTES - 4);
    let header_crc = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..].copy_from_slice(&header_crc.to_le_bytes());
    bytes
}

/// Reads and checks the header at the beginning of `bytes`; the body may be missing.
///
/// # Errors
/// When it is not a block header, is damaged, has an unknown format, or contradicts itself.
pub fn read_header(bytes: &[u8]) -> Result<BlockHeader, FormatError> {
    read_header_and_crc(bytes).map(|(header, _)| header)
}

pub(crate) fn read_header_and_crc(bytes: &[u8]) -> Result<(BlockHeader, u32), FormatError> {
    let mut all = Cursor::new(bytes);
    let bytes = all.take(HEADER_BYTES, "block header")?;
    let mut fields = Cursor::new(bytes);
    check_magic("block", MAGIC, fields.u32("magic")?)?;
    let (checked, crc) = bytes.split_at(HEADER_BYTES - 4);
    check_crc("block header", Cursor::at(checked.len() as u64, crc).u32("header checksum")?, checked)?;
    let length_bytes = check_limit("bytes of a block", fields.u32("length")?.into(), BLOCK_BYTES_MAX)?;
    let incompatible = fields.u16("incompatible features")?;
    if incompatible != 0 {
        return Err(FormatError::Unsupported { what: "block feature", found: incompatible.into() });
    }
    fields.u16("compatible features")?;
    let flags = fields.u32("flags")?;
    let origin = fields.u128("origin")?;
    let epoch = fields.u32("epoch")?;
    let stream = StreamId(fields.u32("stream")?);
    let layout_version = fields.u32("layout version")?;
    let rows = check_limit("rows of a block", fields.u32("rows")?.into(), BLOCK_ROWS_MAX)?;
    let first_row = fields.u64("first row")?;
    let time = (fields.i64("time_min")?, fields.i64("time_max")?);
    let stored = (fields.i64("stored_first")?, fields.i64("stored_last")?);
    let body_crc = fields.u32("body checksum")?;
    if rows == 0 || first_row.checked_add(rows as u64).is_none() {
        return Err(malformed("row range of a block"));
    }
    if length_bytes < HEADER_BYTES || !length_bytes.is_multiple_of(BLOCK_ALIGN_BYTES) {
        return Err(malformed("length of a block"));
    }
    if time.0 > time.1 || stored.0 > stored.1 {
        return Err(malformed("time range of a block"));
    }
    let header = BlockHeader {
        length_bytes,
        origin,
        epoch,
        stream,
        layout_version,
        rows,
        first_row,
        time,
        stored,
        ..BlockHeader::of_flags(flags)
    };
    Ok((header, body_crc))
}

/// Splits a group's bytes into blocks. Yields offset and header of each, or the first error and its offset.
pub fn headers(bytes: &[u8]) -> impl Iterator<Item = Result<(Range<usize>, BlockHeader), (usize, FormatError)>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= bytes.len() {
            return None;
        }
        let start = at;
        match read_header(&bytes[start..]) {
            Ok(header) if start + header.length_bytes <= bytes.len() => {
                at += header.length_bytes;
                Some(Ok((start..at, header)))
            }
            Ok(header) => {
                at = bytes.len();
                let (needed, had) = (header.length_bytes, bytes.len() - start);
                Some(Err((start, FormatError::Truncated { what: "block", offset: start as u64, needed, had })))
            }
            Err(error) => {
                at = bytes.len();
                Some(Err((start, error)))
            }
        }
    })
}

/// Recomputes the checksums of a block, for tests that attack what lies behind them.
#[doc(hidden)]
pub fn forge_checksums(bytes: &mut [u8]) {
    let Some(length) = bytes.get(4..8).and_then(|b| b.try_into().ok()).map(|b| u32::from_le_bytes(b) as usize) else {
        return;
    };
    front::forge_checksums(bytes);
    if let Some(body) = bytes.get(HEADER_BYTES..length) {
        let crc = crc32c::crc32c(body);
        bytes[88..92].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..92]);
        bytes[92..96].copy_from_slice(&crc.to_le_bytes());
    }
}
