//! Reading a blob from its segment, a chunk at a time.

use std::io;
use std::sync::Arc;

use super::{CHUNK_BODY_BYTES, CHUNK_HEADER_BYTES, ChunkHeader, padded_bytes};
use crate::ScanError;
use crate::bytes::{FormatError, malformed};
use crate::model::blob_ref::BlobRef;
use crate::model::limits::{BLOB_CHUNK_BYTES, PAGE_BYTES, SEGMENT_BYTES_MAX};
use crate::model::mutant::{self, Mutant};
use crate::model::stream::StreamId;
use crate::read::shared::Shared;
use crate::read::view::View;
use crate::segment::directory::Segment;

/// Forward reader of a blob that holds one chunk of 128 KiB in memory. Each chunk is checked before a byte of it is
/// returned, the whole blob at its end.
///
/// Errors of [`io::Read`] have the kind `InvalidData` (damaged) or `NotFound` (expired), with a [`ScanError`] inside.
pub struct BlobReader {
    shared: Arc<Shared>,
    segment: Arc<Segment>,
    generation: u64,
    reference: BlobRef,
    /// Header and bytes of the current chunk, and how many of the bytes were returned.
    chunk: Vec<u8>,
    given: usize,
    /// Number of the next chunk.
    index: u32,
    /// Bytes in the remaining chunks.
    left_bytes: u64,
    crc: u32,
    ended: bool,
}

impl std::fmt::Debug for BlobReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in {:?}, {} bytes to come", self.reference, self.segment, self.left_bytes)
    }
}

impl View {
    /// Opens the blob that a cell of a stream names. The current segments are searched, so the blob may be expired
    /// although this view still has the frame.
    ///
    /// # Errors
    /// [`ScanError::BlobExpired`], or [`ScanError::Damaged`] if the reference is invalid.
    pub fn blob(&self, stream: StreamId, reference: &BlobRef) -> Result<BlobReader, ScanError> {
        let shared = self.shared().clone();
        let expired = ScanError::BlobExpired { segment: reference.segment() };
        let Some(slot) = shared.slots.get(stream) else { return Err(expired) };
        let segment = shared.segments.load().blobs_of(slot.group, reference.segment());
        let Some(segment) = segment else { return Err(expired) };
        let generation = shared.generation_base.wrapping_add(segment.id);
        let length = u64::from(reference.length_bytes());
        let end = reference.offset() + padded_bytes(length);
        let reader = BlobReader {
            shared,
            segment,
            generation,
            reference: *reference,
            chunk: Vec::new(),
            given: 0,
            index: 0,
            left_bytes: length,
            crc: 0,
            ended: false,
        };
        if reference.offset() < PAGE_BYTES as u64 || end > SEGMENT_BYTES_MAX {
            return Err(reader.damaged(reference.offset(), malformed("a reference to bytes beyond the segment")));
        }
        Ok(reader)
    }
}

impl BlobReader {
    /// Returns the bytes of the whole blob.
    pub fn length_bytes(&self) -> u64 {
        self.reference.length_bytes().into()
    }

    /// Returns the next bytes of the blob, those of one chunk, or `None` at its end, once the whole was checked.
    ///
    /// # Errors
    /// [`ScanError`] if a chunk or the whole is damaged, the segment is expired, or the disk fails.
    pub fn next_chunk(&mut self) -> Result<Option<&[u8]>, ScanError> {
        if self.given >= self.chunk.len() && !self.read_chunk()? {
            return Ok(None);
        }
        let from = std::mem::replace(&mut self.given, self.chunk.len());
        Ok(Some(&self.chunk[from..]))
    }

    /// Reads and checks the next chunk. Returns `false` after the last one.
    fn read_chunk(&mut self) -> Result<bool, ScanError> {
        if self.ended {
            return Ok(false);
        }
        self.chunk.clear();
        self.given = 0;
        let wanted = self.left_bytes.min(CHUNK_BODY_BYTES as u64);
        let at = self.reference.offset() + u64::from(self.index) * BLOB_CHUNK_BYTES as u64;
        let read = self.segment.read_bytes(at, CHUNK_HEADER_BYTES + wanted as usize, &self.shared.residents);
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(ScanError::Io { source, .. }) if source.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self.damaged(at, malformed("the segment ends before the blob")));
            }
            Err(error) => return Err(self.expired_or(error)),
        };
        if let Err(error) = self.check_chunk(&bytes, at, wanted) {
            // The segment may have been replaced in the meantime, so its bytes may belong to another one.
            let damaged = self.damaged(at, error);
            return Err(self.expired_or(damaged));
        }
        self.chunk = bytes;
        self.given = CHUNK_HEADER_BYTES;
        self.index += 1;
        self.left_bytes -= wanted;
        self.ended = self.left_bytes == 0;
        Ok(true)
    }

    fn check_chunk(&mut self, bytes: &[u8], at: u64, wanted: u64) -> Result<(), FormatError> {
        if mutant::is_active(Mutant::NoBlobCheck) {
            return Ok(());
        }
        let chunk = ChunkHeader::read(bytes)?;
        let start = u64::from(chunk.start) == self.reference.offset() && chunk.index == self.index;
        if !chunk.is_at(at, (self.segment.id, self.generation)) || !start || u64::from(chunk.length_bytes) != wanted {
            return Err(malformed("the chunk of another blob"));
        }
        let body = chunk.body(bytes)?;
        self.crc = crc32c::crc32c_append(self.crc, body);
        let whole = chunk.whole.map(|whole| (whole.length_bytes, whole.crc));
        let last = wanted == self.left_bytes;
        let expected = (self.reference.length_bytes(), self.reference.crc());
        if whole != last.then_some(expected) {
            return Err(malformed("the reference names another blob than lies here"));
        }
        if last && self.crc != expected.1 {
            return Err(FormatError::Checksum { what: "blob", expected: expected.1, found: self.crc });
        }
        Ok(())
    }

    fn damaged(&self, offset: u64, error: FormatError) -> ScanError {
        ScanError::Damaged { file: self.segment.path(), offset, reason: error.to_string() }
    }

    fn expired_or(&self, error: ScanError) -> ScanError {
        let gone = self.segment.expired.load(std::sync::atomic::Ordering::Acquire);
        if gone { ScanError::BlobExpired { segment: self.segment.id } } else { error }
    }
}

impl io::Read for BlobReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while self.given >= self.chunk.len() {
            let read = self.read_chunk().map_err(|error| {
                let kind = match &error {
                    ScanError::Damaged { .. } => io::ErrorKind::InvalidData,
                    ScanError::BlobExpired { .. } => io::ErrorKind::NotFound,
                    _ => io::ErrorKind::Other,
                };
                io::Error::new(kind, error)
            })?;
            if !read {
                return Ok(0);
            }
        }
        let waiting = &self.chunk[self.given..];
        let len = waiting.len().min(buffer.len());
        buffer[..len].copy_from_slice(&waiting[..len]);
        self.given += len;
        Ok(len)
    }
}
