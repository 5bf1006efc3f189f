//! What upkeep has of its own, and what of it waits for the next checkpoint.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use crate::append::recent::{RECENT_BYTES_MAX, RecentOrder};
use crate::blob::Blobs;
use crate::block::Encoder;
use crate::catalog::group::Group;
use crate::codec::CodecMemory;
use crate::disk::{Disk, DiskFile};
use crate::log::checkpoint::Checkpoint;
use crate::log::superblock::{Superblock, SuperblockFile};
use crate::model::clock::WallClock;
use crate::segment::directory::Segment;
use crate::segment::file::SegmentFile;
use crate::upkeep::settle::work::Work;

/// A file for a segment, allocated and empty.
#[derive(Clone)]
pub(crate) struct Spare {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) size_bytes: u64,
}

/// When a segment got what it got since the opening, by its steady clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filled {
    /// Before it none of that was stored.
    pub(super) first: i64,
    /// After it none was.
    pub(super) last: i64,
}

/// What the next checkpoint says beside what changed.
#[derive(Default)]
pub(crate) enum Effect {
    #[default]
    Nothing,
    /// Segments are no more.
    Drop(Vec<Arc<Segment>>),
    /// A segment stands for others, since an instant.
    Replace { old: Vec<Arc<Segment>>, new: Arc<Segment>, since: i64 },
}

impl Effect {
    /// The segments that are no more.
    pub(crate) fn gone(&self) -> &[Arc<Segment>] {
        match self {
            Effect::Nothing => &[],
            Effect::Drop(old) | Effect::Replace { old, .. } => old,
        }
    }

    /// The segment that comes.
    pub(crate) fn comes(&self) -> Option<&Arc<Segment>> {
        match self {
            Effect::Replace { new, .. } => Some(new),
            _ => None,
        }
    }

    /// Whether a segment stays as it is.
    pub(crate) fn leaves(&self, id: u64) -> bool {
        !self.gone().iter().any(|segment| segment.id == id)
    }
}

/// A part of a checkpoint that was written, and that no superblock names for certain.
pub(crate) struct Unnamed {
    /// The one that names it.
    pub(crate) superblock: Superblock,
    /// Streams and the serials of their definitions in it.
    pub(crate) streams: Vec<(u32, u32)>,
    pub(crate) groups: Vec<(Group, Vec<u8>)>,
    /// Segments that it says are no more, whose files may be there.
    pub(crate) gone: Vec<u64>,
    pub(crate) effect: Effect,
}

/// Lost segments whose gaps may not be durable yet.
#[derive(Default)]
pub(crate) struct Untold {
    pub(crate) segments: Vec<Arc<Segment>>,
    /// The commit that makes their gaps durable, once all are in one.
    pub(super) commit: Option<u64>,
}

/// How far rows of a stream are encoded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EncodedRows {
    pub(super) to: u64,
    /// Session and highest sequence before; none: not known, or there is none.
    pub(super) newest: Option<(u32, i64)>,
}

/// What settle did since the store was opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettleCounts {
    /// Segments that others were put in the place of.
    pub(crate) segments: u64,
    /// Bytes written, including output that was abandoned.
    pub(crate) written_bytes: u64,
    /// Bytes of what was replaced, less those of what stands for it.
    pub(crate) saved_bytes: u64,
    /// Segments that could not be read, or not be rewritten as they were.
    pub(crate) failed: u64,
    /// Why the newest of them could not.
    pub(crate) failure: Option<String>,
}

/// A segment that another stands for, until nobody reads it any more.
pub(crate) struct Replaced {
    pub(super) id: u64,
    pub(super) bytes: u64,
    pub(super) segment: Weak<Segment>,
    pub(super) since: i64,
}

/// What settle has under way.
#[derive(Default)]
pub(crate) struct Settler {
    pub(super) work: Option<Box<Work>>,
    /// The number of the segment that is being written.
    pub(super) under_way: Option<u64>,
    pub(super) replaced: Vec<Replaced>,
    /// Not to be looked for before.
    pub(super) look_at: Option<i64>,
    /// Segments that were looked at since the store was opened, and are not looked at again.
    pub(super) passed: hashbrown::HashSet<u64>,
    pub(super) encoder: Encoder,
    pub(crate) counts: SettleCounts,
}

impl Settler {
    /// Numbers whose files are there although no entry of a checkpoint names them.
    pub(crate) fn without_entry(&self, effect: &Effect) -> Vec<u64> {
        let comes = effect.comes().map(|segment| segment.id);
        let under_way = self.under_way.filter(|id| Some(*id) != comes);
        under_way.into_iter().chain(self.replaced.iter().map(|replaced| replaced.id)).collect()
    }

    /// Bytes that go when settle is over.
    pub(crate) fn extra_bytes(&self, segment_bytes: u64) -> u64 {
        self.under_way.map_or(0, |_| segment_bytes) + self.replaced.iter().map(|replaced| replaced.bytes).sum::<u64>()
    }
}

/// Everything behind the maintain lock.
pub(crate) struct Sealer {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) superblock: SuperblockFile,
    pub(crate) checkpoint: Checkpoint,
    pub(super) encoder: Encoder,
    pub(super) memories: hashbrown::HashMap<u32, CodecMemory, foldhash::fast::RandomState>,
    /// Open segments by group.
    pub(crate) groups: BTreeMap<Group, SegmentFile>,
    /// The file of the next segment, allocated and empty: a disk that fills up finds it there.
    pub(crate) spare: Option<Spare>,
    /// By group, the stream after the last of which the newest finished segment says where its blocks are.
    pub(crate) covered_to: BTreeMap<Group, u32>,
    pub(super) queue: VecDeque<u32>,
    /// First row of a stream that is not encoded yet, where that is not the first in memory, with the session and highest
    /// sequence before it.
    pub(super) encoded_to: hashbrown::HashMap<u32, EncodedRows, foldhash::fast::RandomState>,
    /// Streams whose definition or position is newer than the checkpoint.
    pub(crate) changed: hashbrown::HashSet<u32, foldhash::fast::RandomState>,
    pub(crate) changed_segments: hashbrown::HashMap<u64, Arc<Segment>, foldhash::fast::RandomState>,
    /// Segments that are no more, which no checkpoint says yet.
    pub(crate) expired: Vec<u64>,
    /// Segments that the checkpoint says are no more, whose files are to be removed.
    pub(crate) gone: Vec<u64>,
    /// What the next checkpoint says beside what changed.
    pub(crate) effect: Effect,
    /// What the superblock must name before anything else is written.
    pub(crate) unnamed: Option<Unnamed>,
    /// Bytes that were dropped since the disk last had room for what was asked of it.
    pub(crate) dropped_bytes: u64,
    /// Times in a row that it had none.
    pub(crate) full_times: u32,
    /// Whether the store is being closed: then nothing goes for what the log holds as well.
    pub(super) is_closing: bool,
    /// Why maintenance waits for the disk, if so.
    pub(crate) held_up: Option<String>,
    /// Whether segments must be looked at for expiry now, and when they were last.
    pub(crate) expiry_due: bool,
    pub(super) expiry_at: i64,
    pub(crate) written_bytes: u64,
    /// Newest `time` sealed of a stream.
    pub(crate) sealed_time: hashbrown::HashMap<u32, i64, foldhash::fast::RandomState>,
    /// Hashes of rows sealed lately, and how many bytes they may take.
    pub(crate) recent: RecentOrder,
    pub(crate) recent_max: usize,
    pub(crate) settle: Settler,
    /// Open segments of blobs.
    pub(crate) blobs: Blobs,
    /// Lost segments whose gaps may not be durable yet.
    pub(crate) untold: Untold,
    /// The clock that ages are counted by.
    pub(crate) clock: WallClock,
    /// Of segments that were open or begun since the opening, by their numbers: when they got what they got since.
    pub(crate) filled: hashbrown::HashMap<u64, Filled, foldhash::fast::RandomState>,
    /// What segments were last said to hold nothing of before.
    pub(crate) noted_leap: Option<i64>,
    /// Whether the log is to be marked with an instant after the leap still.
    pub(crate) mark_due: bool,
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
            superblock,
            checkpoint,
            encoder: Encoder::new(),
            memories: Default::default(),
            groups: BTreeMap::new(),
            spare,
            covered_to: BTreeMap::new(),
            queue: VecDeque::new(),
            encoded_to: Default::default(),
            changed: Default::default(),
            changed_segments: Default::default(),
            expired: Vec::new(),
            gone: Vec::new(),
            effect: Effect::default(),
            unnamed: None,
            dropped_bytes: 0,
            full_times: 0,
            is_closing: false,
            held_up: None,
            expiry_due: true,
            expiry_at: i64::MIN,
            written_bytes: 0,
            sealed_time: Default::default(),
            recent: RecentOrder::default(),
            recent_max: RECENT_BYTES_MAX,
            settle: Settler::default(),
            blobs: Blobs::default(),
            untold: Untold::default(),
            clock,
            filled: Default::default(),
            noted_leap: None,
            mark_due: false,
        }
    }
}
