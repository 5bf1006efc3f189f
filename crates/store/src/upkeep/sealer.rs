//! State of upkeep.

use std::sync::{Arc, Weak};

use crate::blob::Blobs;
use crate::block::Encoder;
use crate::disk::{Disk, DiskFile};
use crate::log::checkpoint::Checkpoint;
use crate::log::superblock::SuperblockFile;
use crate::model::clock::WallClock;
use crate::segment::directory::Segment;
use crate::upkeep::age::Aging;
use crate::upkeep::checkpointing::{Checkpointing, Effect};
use crate::upkeep::sealing::Sealing;
use crate::upkeep::settle::work::Work;
use crate::upkeep::shortage::Shortage;

/// File for a segment, allocated and empty.
#[derive(Clone)]
pub(crate) struct Spare {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) size_bytes: u64,
}

/// Lost segments whose gaps may not be durable yet.
#[derive(Default)]
pub(crate) struct Untold {
    pub(crate) segments: Vec<Arc<Segment>>,
    /// Commit that makes their gaps durable, once all are in one.
    pub(super) commit: Option<u64>,
}

/// Counts of compaction since the store was opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettleCounts {
    /// Segments that were replaced.
    pub(crate) segments: u64,
    /// Bytes written, including output that was abandoned.
    pub(crate) written_bytes: u64,
    /// Bytes of the replaced segments, less those of the segments that stand for them.
    pub(crate) saved_bytes: u64,
    /// Segments that could not be read, or not be rewritten unchanged.
    pub(crate) failed: u64,
    /// Reason why the newest of them could not.
    pub(crate) failure: Option<String>,
}

/// A replaced segment, for as long as it has readers.
pub(crate) struct Replaced {
    pub(super) id: u64,
    pub(super) bytes: u64,
    pub(super) segment: Weak<Segment>,
    pub(super) since: i64,
}

/// State of compaction.
#[derive(Default)]
pub(crate) struct Settler {
    pub(super) work: Option<Box<Work>>,
    /// Number of the segment that is being written.
    pub(super) under_way: Option<u64>,
    pub(super) replaced: Vec<Replaced>,
    /// Instant before which no segments are looked for.
    pub(super) look_at: Option<i64>,
    /// Segments that were looked at since the store was opened, and are not looked at again.
    pub(super) passed: hashbrown::HashSet<u64>,
    pub(super) encoder: Encoder,
    pub(crate) counts: SettleCounts,
}

impl Settler {
    /// Returns the numbers whose files exist although no entry of a checkpoint names them.
    pub(crate) fn without_entry(&self, effect: &Effect) -> Vec<u64> {
        let comes = effect.comes().map(|segment| segment.id);
        let under_way = self.under_way.filter(|id| Some(*id) != comes);
        under_way.into_iter().chain(self.replaced.iter().map(|replaced| replaced.id)).collect()
    }

    /// Returns the bytes that are freed when compaction is over.
    pub(crate) fn extra_bytes(&self, segment_bytes: u64) -> u64 {
        self.under_way.map_or(0, |_| segment_bytes) + self.replaced.iter().map(|replaced| replaced.bytes).sum::<u64>()
    }
}

/// Everything behind the maintain lock: parts that each own their state, and what connects them.
pub(crate) struct Sealer {
    pub(super) disk: Arc<dyn Disk>,
    /// Changes that wait for the next checkpoint.
    pub(crate) checkpoints: Checkpointing,
    /// Segments that are being written, and rows that are encoded.
    pub(crate) sealing: Sealing,
    pub(crate) settle: Settler,
    /// Open segments of blobs.
    pub(crate) blobs: Blobs,
    /// Lost segments whose gaps may not be durable yet.
    pub(crate) untold: Untold,
    /// Clock, and the times at which segments got their rows.
    pub(crate) ages: Aging,
    /// Attempts while the disk had no space.
    pub(crate) shortage: Shortage,
    /// File of the next segment, allocated and empty, so that it is there when the disk fills up.
    pub(super) spare: Option<Spare>,
    /// Whether the store is being closed: then nothing is dropped for rows that the log holds as well.
    pub(super) is_closing: bool,
    /// Whether segments must be examined for expiry now, and when they last were.
    pub(super) expiry_due: bool,
    pub(super) expiry_at: i64,
    pub(crate) written_bytes: u64,
}

impl Sealer {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        superblock: SuperblockFile,
        checkpoint: Checkpoint,
        spare: Option<Spare>,
        clock: WallClock,
    ) -> Sealer {
        Sealer {
            disk,
            checkpoints: Checkpointing::new(superblock, checkpoint),
            sealing: Sealing::new(),
            settle: Settler::default(),
            blobs: Blobs::default(),
            untold: Untold::default(),
            ages: Aging::new(clock),
            shortage: Shortage::default(),
            spare,
            is_closing: false,
            expiry_due: true,
            expiry_at: i64::MIN,
            written_bytes: 0,
        }
    }
}
