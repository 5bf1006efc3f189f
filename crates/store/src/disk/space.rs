//! Space: how much of the disk a store may take.

use crate::disk::PAGE_BYTES;
use crate::disk::layout::Regions;
use crate::model::limits::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::model::options::StoreOptions;

/// Part of a segment's usual size that the smallest has: small enough for what goes for it, and large enough that a disk
/// that stays full is not left with thousands of files.
const PART_MIN: u64 = 64;
/// Segments that a group should have room for.
const SEGMENTS_OF_GROUP: u64 = 8;

/// How much of the disk a store may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// Most bytes over all files.
    pub(crate) max_bytes: u64,
    /// Bytes of a segment's file, where the disk has room for it.
    pub(crate) segment_bytes: u64,
    /// If the size is fixed.
    pub(crate) fixed: Option<FixedSpace>,
}

impl Space {
    /// That of a fixed size: all slots are for segments.
    pub(crate) fn fixed(layout: &Regions) -> Space {
        let slots = u64::from(layout.slots);
        Space {
            max_bytes: slots * layout.segment_bytes,
            segment_bytes: layout.segment_bytes,
            fixed: Some(FixedSpace {
                size_bytes: layout.size_bytes,
                slots,
                checkpoint_bytes: layout.checkpoint_bytes,
                recent_bytes: layout.recent_bytes,
                generation: layout.generation,
            }),
        }
    }

    /// The generation of a segment: no two of any stores that were ever in the same place have both this and the
    /// number in common.
    pub(crate) fn generation_of(&self, segment: u64) -> u64 {
        self.fixed.map_or(0, |fixed| fixed.generation).wrapping_add(segment)
    }

    /// What a store may take of a file system of this size.
    pub(crate) fn of(options: &StoreOptions, disk_bytes: u64) -> Space {
        let max_bytes = options.max_bytes.unwrap_or(disk_bytes / 5 * 4);
        // The groups of a small store must not be one segment each.
        let groups = 2 + options.retention.len() as u64;
        let most = (max_bytes / (SEGMENTS_OF_GROUP * groups)).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let most = 1 << most.ilog2();
        Space { max_bytes, segment_bytes: options.segment_bytes.clamp(SEGMENT_BYTES_MIN, most), fixed: None }
    }

    /// Bytes of the smallest segment, which is made where the disk has no room for another.
    pub(crate) fn least_segment(&self) -> u64 {
        let part = (self.segment_bytes / PART_MIN).next_multiple_of(PAGE_BYTES as u64);
        part.max(SEGMENT_BYTES_MIN).min(self.segment_bytes)
    }
}

/// What the layout of a store of a fixed size means for its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedSpace {
    /// Of the whole.
    pub(crate) size_bytes: u64,
    pub(crate) slots: u64,
    /// Bytes that each checkpoint may have.
    pub(crate) checkpoint_bytes: u64,
    /// Bytes for the hashes of frames received lately.
    pub(crate) recent_bytes: u64,
    /// That of a segment is this and its number.
    pub(crate) generation: u64,
}
