//! References to blobs: the cell of a frame holds one instead of the blob's bytes.

use std::fmt;

use crate::model::limits::PAGE_BYTES;

/// Type code of channels that hold blob references.
pub(crate) const TYPE_CODE: u8 = 13;
/// Size of a reference in bytes.
pub(crate) const REFERENCE_BYTES: usize = 16;

const PAGE_BITS: u32 = 16;

/// Reference to a blob, stored in a frame's cell instead of its bytes. Returned by [`crate::BlobWriter::finish`] and
/// taken by [`crate::View::blob`].
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

    /// Returns the size of the blob in bytes.
    pub fn length_bytes(&self) -> u32 {
        self.length_bytes
    }

    /// Returns the CRC32C of the blob.
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// Returns the number of the segment that holds the blob.
    pub fn segment(&self) -> u64 {
        self.place >> PAGE_BITS
    }

    /// Returns the offset of the blob's first chunk in the segment, in bytes.
    pub fn offset(&self) -> u64 {
        (self.place & ((1 << PAGE_BITS) - 1)) * PAGE_BYTES as u64
    }

    /// Returns the reference as it is stored in rows and blocks.
    pub fn bytes(&self) -> [u8; REFERENCE_BYTES] {
        let mut bytes = [0; REFERENCE_BYTES];
        bytes[..8].copy_from_slice(&self.place.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length_bytes.to_le_bytes());
        bytes[12..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    /// Decodes what [`BlobRef::bytes`] encoded. Returns `None` if the length is wrong. Whether the blob exists is
    /// checked when it is read.
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
