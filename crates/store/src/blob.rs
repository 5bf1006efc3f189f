//! Blobs: images and other bytes that frames refer to, in segments of their own.
//!
//! ```text
//!  writer ─> chunk ─> [segment of blobs] ─> sync ─> reference ─> cell of a frame ─> commit
//!
//!  | header page | chunk | chunk | last chunk, padding | chunk | …
//! ```
//! Invariants: a blob lies in one segment, its chunks one behind the other; all but the last have 128 KiB, the last
//! is padded to 4 KiB. A segment has one writer at a time. No page is written twice. The reference is returned after
//! the sync that covers the last chunk, and the segment is in a checkpoint before its first byte is written, so a
//! frame that names a blob is never durable before the blob. A segment of blobs has no footer: chunks describe
//! themselves. The bytes of it that a checkpoint counts are whole chunks, synced; in one with the bit *left* a cut
//! may have torn any of them.
//!
//! Chunk, a header of 64 bytes and the bytes behind it, little-endian:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | magic | `SBBC` |
//! | 4 | 4 | length_bytes | bytes behind the header: 131,008, in the last chunk fewer or as many |
//! | 8 | 8 | segment | id of the segment |
//! | 16 | 8 | generation | of the segment |
//! | 24 | 4 | start | offset in the segment of the blob's first chunk, a multiple of 4,096 |
//! | 28 | 4 | index | number of the chunk in its blob, from 0: it lies at start + index · 131,072 |
//! | 32 | 4 | epoch | opening that wrote it |
//! | 36 | 4 | flags | 1 the last one: the next three fields count; others: refuse |
//! | 40 | 8 | stored | instant at which the blob was finished, ns since 1970 UTC |
//! | 48 | 4 | blob_bytes | of the whole blob |
//! | 52 | 4 | blob_crc | CRC32C of the whole blob |
//! | 56 | 4 | body_crc | CRC32C of the bytes behind the header |
//! | 60 | 4 | header_crc | CRC32C of bytes 0 to 60 |
//!
//! A reference, the value of a cell, 16 bytes: u64 segment << 16 | start / 4,096; u32 blob_bytes; u32 blob_crc.

pub(crate) mod file;
mod read;

use crate::bytes::{Cursor, FormatError, check_limit, check_magic, malformed};
use crate::model::limits::{BLOB_CHUNK_BYTES, PAGE_BYTES, SEGMENT_BYTES_MAX};
use crate::model::refusal::Refusal;
use crate::segment::check_crc;

pub(crate) use file::{BlobFile, Blobs, ResumedBlobs};
pub use read::BlobReader;

/// Bytes of a chunk's header.
pub(crate) const CHUNK_HEADER_BYTES: usize = 64;
/// Bytes of a blob in each chunk except its last.
pub(crate) const CHUNK_BODY_BYTES: usize = BLOB_CHUNK_BYTES - CHUNK_HEADER_BYTES;

const MAGIC: u32 = u32::from_le_bytes(*b"SBBC");
const LAST: u32 = 1;

/// Reason why a blob was not written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BlobError {
    /// The store accepts no writes.
    #[error("{0}")]
    Refused(Refusal),
    /// The blob is larger than a segment.
    #[error("{stream}: a blob of {size_bytes} bytes or more; the limit of this store is {max_bytes}")]
    TooLarge {
        /// Name of the stream.
        stream: String,
        /// Bytes that were passed, or announced.
        size_bytes: u64,
        /// Max bytes of a blob.
        max_bytes: u64,
    },
    /// Every blob segment is in use: each blob that is being written has one to itself.
    #[error("{stream}: {writers} blobs are being written, the limit of this store; try again later")]
    Busy {
        /// Name of the stream.
        stream: String,
        /// Number of blobs being written.
        writers: usize,
    },
    /// The stream accepts no blobs: it is not in this store, or is one of the store's own tables.
    #[error("{stream}: does not accept blobs")]
    NoBlobs {
        /// Name of the stream.
        stream: String,
    },
}

/// Returns the max bytes of a blob in segments of a size: it lies behind the header page of an empty one.
pub(crate) fn most_bytes(segment_bytes: u64) -> u64 {
    let room = segment_bytes.min(SEGMENT_BYTES_MAX).saturating_sub(PAGE_BYTES as u64);
    let (whole, rest) = (room / BLOB_CHUNK_BYTES as u64, room % BLOB_CHUNK_BYTES as u64);
    whole * CHUNK_BODY_BYTES as u64 + rest.saturating_sub(CHUNK_HEADER_BYTES as u64)
}

/// Returns the bytes that the chunks of a blob take, including padding.
pub(crate) fn padded_bytes(length_bytes: u64) -> u64 {
    // An empty blob still has a chunk.
    let before = length_bytes.saturating_sub(1) / CHUNK_BODY_BYTES as u64;
    let last = length_bytes - before * CHUNK_BODY_BYTES as u64 + CHUNK_HEADER_BYTES as u64;
    before * BLOB_CHUNK_BYTES as u64 + last.next_multiple_of(PAGE_BYTES as u64)
}

/// Fields of the last chunk that describe its blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    /// Instant at which the blob was finished.
    pub(crate) stored: i64,
    pub(crate) length_bytes: u32,
    pub(crate) crc: u32,
}

/// Header of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    pub(crate) length_bytes: u32,
    pub(crate) segment: u64,
    pub(crate) generation: u64,
    pub(crate) start: u32,
    pub(crate) index: u32,
    pub(crate) epoch: u32,
    /// Fields of the last chunk of a blob.
    pub(crate) whole: Option<Whole>,
    pub(crate) body_crc: u32,
}

impl ChunkHeader {
    pub(crate) fn bytes(&self) -> [u8; CHUNK_HEADER_BYTES] {
        let mut bytes = [0; CHUNK_HEADER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC.to_le_bytes());
        put(4, &self.length_bytes.to_le_bytes());
        put(8, &self.segment.to_le_bytes());
        put(16, &self.generation.to_le_bytes());
        put(24, &self.start.to_le_bytes());
        put(28, &self.index.to_le_bytes());
        put(32, &self.epoch.to_le_bytes());
        if let Some(whole) = self.whole {
            put(36, &LAST.to_le_bytes());
            put(40, &whole.stored.to_le_bytes());
            put(48, &whole.length_bytes.to_le_bytes());
            put(52, &whole.crc.to_le_bytes());
        }
        put(56, &self.body_crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads and checks the header at the beginning of `bytes`; the chunk's body may be missing.
    ///
    /// # Errors
    /// When it is not a chunk header, is damaged, or contradicts itself.
    pub(crate) fn read(bytes: &[u8]) -> Result<ChunkHeader, FormatError> {
        let header = Cursor::new(bytes).take(CHUNK_HEADER_BYTES, "header of a blob's chunk")?;
        let mut fields = Cursor::new(header);
        check_magic("blob's chunk", MAGIC, fields.u32("magic")?)?;
        let (checked, crc) = header.split_at(60);
        check_crc("header of a blob's chunk", Cursor::at(60, crc).u32("crc")?, checked)?;
        let length_bytes =
            check_limit("bytes of a blob's chunk", fields.u32("length")?.into(), CHUNK_BODY_BYTES)? as u32;
        let (segment, generation) = (fields.u64("segment")?, fields.u64("generation")?);
        let (start, index, epoch) = (fields.u32("start")?, fields.u32("index")?, fields.u32("epoch")?);
        let flags = fields.u32("flags")?;
        if flags & !LAST != 0 {
            return Err(FormatError::Unsupported { what: "flags of a blob's chunk", found: flags.into() });
        }
        let whole = Whole { stored: fields.i64("stored")?, length_bytes: fields.u32("size")?, crc: fields.u32("crc")? };
        let body_crc = fields.u32("crc")?;
        let whole = (flags & LAST != 0).then_some(whole);
        let chunk = ChunkHeader { length_bytes, segment, generation, start, index, epoch, whole, body_crc };
        let fits = match whole {
            Some(whole) => {
                u64::from(whole.length_bytes) == u64::from(index) * CHUNK_BODY_BYTES as u64 + u64::from(length_bytes)
            }
            None => length_bytes as usize == CHUNK_BODY_BYTES,
        };
        if !fits || !(start as usize).is_multiple_of(PAGE_BYTES) || chunk.offset() >= SEGMENT_BYTES_MAX {
            return Err(malformed("place or length of a blob's chunk"));
        }
        Ok(chunk)
    }

    /// Returns its offset in its segment.
    pub(crate) fn offset(&self) -> u64 {
        u64::from(self.start) + u64::from(self.index) * BLOB_CHUNK_BYTES as u64
    }

    /// Returns the bytes with padding: the next chunk begins there.
    pub(crate) fn padded_bytes(&self) -> u64 {
        (CHUNK_HEADER_BYTES as u64 + u64::from(self.length_bytes)).next_multiple_of(PAGE_BYTES as u64)
    }

    /// Returns whether its fields match the segment and offset where it was found.
    pub(crate) fn is_at(&self, offset: u64, of: (u64, u64)) -> bool {
        (self.segment, self.generation) == of && self.offset() == offset
    }

    /// Returns the body at the beginning of `bytes` after checking its checksum.
    ///
    /// # Errors
    /// When it is incomplete or damaged.
    pub(crate) fn body<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], FormatError> {
        let behind = bytes.get(CHUNK_HEADER_BYTES..).unwrap_or_default();
        let mut cursor = Cursor::at(CHUNK_HEADER_BYTES as u64, behind);
        let body = cursor.take(self.length_bytes as usize, "bytes of a blob's chunk")?;
        check_crc("bytes of a blob's chunk", self.body_crc, body)?;
        Ok(body)
    }
}
