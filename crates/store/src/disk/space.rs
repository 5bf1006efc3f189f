//! Disk space that a store may take.

use crate::disk::PAGE_BYTES;
use crate::disk::layout::Regions;
use crate::model::limits::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::model::options::StoreOptions;

/// Ratio of a segment's usual size to the smallest: small enough that little must be dropped to make room for it, and
/// large enough that a disk that stays full does not end up with thousands of files.
const PART_MIN: u64 = 64;
/// Number of segments that each group should have room for.
const SEGMENTS_OF_GROUP: u64 = 8;

/// Disk space that a store may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// Maximum bytes of all files.
    pub(crate) max_bytes: u64,
    /// Size of a segment's file in bytes, if the disk has room for it.
    pub(crate) segment_bytes: u64,
    /// Layout, if the size is fixed.
    pub(crate) fixed: Option<FixedSpace>,
}

impl Space {
    /// Returns the space of a store of a fixed size: all slots are for segments.
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

    /// Returns the generation of a segment. No two segments of any stores that were ever in the same place share both
    /// generation and number.
    pub(crate) fn generation_of(&self, segment: u64) -> u64 {
        self.fixed.map_or(0, |fixed| fixed.generation).wrapping_add(segment)
    }

    /// Returns the space that a store may take of a file system with `disk_bytes`.
    pub(crate) fn of(options: &StoreOptions, disk_bytes: u64) -> Space {
        let max_bytes = options.max_bytes.unwrap_or(disk_bytes / 5 * 4);
        // The groups of a small store must not consist of one segment each.
        let groups = 2 + options.retention.len() as u64;
        let most = (max_bytes / (SEGMENTS_OF_GROUP * groups)).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let most = 1 << most.ilog2();
        Space { max_bytes, segment_bytes: options.segment_bytes.clamp(SEGMENT_BYTES_MIN, most), fixed: None }
    }

    /// Returns the size of the smallest segment in bytes, created if the disk has no room for a larger one.
    pub(crate) fn least_segment(&self) -> u64 {
        let part = (self.segment_bytes / PART_MIN).next_multiple_of(PAGE_BYTES as u64);
        part.max(SEGMENT_BYTES_MIN).min(self.segment_bytes)
    }
}

/// Layout of a store of a fixed size, as far as the engine needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedSpace {
    /// Size of the whole store.
    pub(crate) size_bytes: u64,
    pub(crate) slots: u64,
    /// Maximum size of each checkpoint in bytes.
    pub(crate) checkpoint_bytes: u64,
    /// Bytes for the hashes of recently received frames.
    pub(crate) recent_bytes: u64,
    /// Generation of the store; that of a segment is this plus its number.
    pub(crate) generation: u64,
}
