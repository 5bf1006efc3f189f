//! References to blobs: what a cell of a frame holds in the stead of its bytes.

use std::fmt;

use crate::model::limits::PAGE_BYTES;

/// Code of the type of channels that hold references.
pub(crate) const TYPE_CODE: u8 = 13;
/// Bytes of a reference.
pub(crate) const REFERENCE_BYTES: usize = 16;

const PAGE_BITS: u32 = 16;

/// Names a blob: what a frame's cell holds in its stead. [`crate::BlobWriter::finish`] gives it, [`crate::View::blob`] takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobRef {
    place: u64,
    length_bytes: u32,
    crc: u32,
}

impl BlobRef {
    pub(crate) fn new(segment: u64, start: u64, length_bytes: u32, crc: u32) -> BlobRef {
        BlobRef { place: (segment << PAGE_BITS) | (start / PAGE_BYTES as u64), length_bytes, crc }
    }

    /// Bytes of the blob.
    pub fn length_bytes(&self) -> u32 {
        self.length_bytes
    }

    /// CRC32C of the blob.
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// Number of the segment that it lies in.
    pub fn segment(&self) -> u64 {
        self.place >> PAGE_BITS
    }

    /// Offset of its first chunk in the segment.
    pub fn offset(&self) -> u64 {
        (self.place & ((1 << PAGE_BITS) - 1)) * PAGE_BYTES as u64
    }

    /// As it stands in rows and blocks.
    pub fn bytes(&self) -> [u8; REFERENCE_BYTES] {
        let mut bytes = [0; REFERENCE_BYTES];
        bytes[..8].copy_from_slice(&self.place.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length_bytes.to_le_bytes());
        bytes[12..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    /// The inverse of [`BlobRef::bytes`]; none of another length. Whether there is such a blob shows when it is read.
    pub fn from_bytes(bytes: &[u8]) -> Option<BlobRef> {
        let bytes: &[u8; REFERENCE_BYTES] = bytes.try_into().ok()?;
        let word = u128::from_le_bytes(*bytes);
        Some(BlobRef { place: word as u64, length_bytes: (word >> 64) as u32, crc: (word >> 96) as u32 })
    }
}

impl fmt::Display for BlobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blob({} bytes, {:08x})", self.length_bytes, self.crc)
    }
}
