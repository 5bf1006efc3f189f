//! Changes that wait for the next checkpoint, and a written part of one that no superblock names yet.

use std::io;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use crate::catalog::group::Group;
use crate::disk::Disk;
use crate::log::Link;
use crate::log::checkpoint::{self, Checkpoint, Entries};
use crate::log::superblock::{Superblock, SuperblockFile};
use crate::model::mutant::{self, Mutant};
use crate::model::trouble::passes;
use crate::segment::directory::{Segment, SegmentList, remove_segment};

type Hash = foldhash::fast::RandomState;

/// Effect of the next checkpoint, beside recording what changed.
#[derive(Default)]
pub(crate) enum Effect {
    #[default]
    Nothing,
    /// Segments to drop.
    Drop(Vec<Arc<Segment>>),
    /// A segment that stands for others, since an instant.
    Replace { old: Vec<Arc<Segment>>, new: Arc<Segment>, since: i64 },
}

impl Effect {
    /// Returns the segments that are dropped or replaced.
    pub(crate) fn gone(&self) -> &[Arc<Segment>] {
        match self {
            Effect::Nothing => &[],
            Effect::Drop(old) | Effect::Replace { old, .. } => old,
        }
    }

    /// Returns the segment that stands for others, if any.
    pub(crate) fn comes(&self) -> Option<&Arc<Segment>> {
        match self {
            Effect::Replace { new, .. } => Some(new),
            _ => None,
        }
    }

    /// Returns whether a segment stays as it is.
    fn leaves(&self, id: u64) -> bool {
        !self.gone().iter().any(|segment| segment.id == id)
    }
}

/// A written part of a checkpoint that possibly no superblock names.
pub(super) struct Unnamed {
    /// Superblock that names it.
    superblock: Superblock,
    named: Named,
    /// Segments that it says are gone, whose files may exist.
    gone: Vec<u64>,
    effect: Effect,
}

/// Contents of a part of a checkpoint that count once it is named.
#[derive(Default)]
pub(super) struct Named {
    /// Streams and the serials of their definitions in it.
    pub(super) streams: Vec<(u32, u32)>,
    pub(super) groups: Vec<(Group, Vec<u8>)>,
    /// Features that a store must know to read it.
    pub(super) features: u32,
}

/// The newest checkpoint, and the changes that it does not record yet.
pub(crate) struct Checkpointing {
    superblock: SuperblockFile,
    pub(super) checkpoint: Checkpoint,
    /// Streams whose definition or position is newer than the checkpoint.
    streams: HashSet<u32, Hash>,
    segments: HashMap<u64, Arc<Segment>, Hash>,
    /// Segments that are gone, which no checkpoint records yet.
    expired: Vec<u64>,
    /// Segments that the checkpoint records as gone, whose files are to be removed.
    gone: Vec<u64>,
    effect: Effect,
    /// Part that the superblock must name before anything else is written.
    unnamed: Option<Unnamed>,
}

impl Checkpointing {
    /// Continues from the checkpoint that a superblock names.
    pub(super) fn new(superblock: SuperblockFile, checkpoint: Checkpoint) -> Checkpointing {
        Checkpointing {
            superblock,
            checkpoint,
            streams: HashSet::default(),
            segments: HashMap::default(),
            expired: Vec::new(),
            gone: Vec::new(),
            effect: Effect::default(),
            unnamed: None,
        }
    }

    /// Returns the number of the next segment.
    pub(super) fn next_segment(&self) -> u64 {
        self.superblock.now.next_segment
    }

    /// Returns the link at which the log begins.
    pub(super) fn tail(&self) -> Link {
        self.superblock.now.tail
    }

    /// Makes the next checkpoint record the positions of streams.
    pub(super) fn note_streams(&mut self, streams: impl IntoIterator<Item = u32>) {
        self.streams.extend(streams);
    }

    /// Makes the next checkpoint record the state of a segment.
    pub(crate) fn note_segment(&mut self, segment: Arc<Segment>) {
        self.segments.insert(segment.id, segment);
    }

    /// Removes a segment from what the next checkpoint records.
    pub(super) fn forget_segment(&mut self, id: u64) {
        self.segments.remove(&id);
    }

    /// Makes the next checkpoint record that segments are gone.
    pub(crate) fn note_expired(&mut self, segments: impl IntoIterator<Item = u64>) {
        self.expired.extend(segments);
    }

    /// Notes that the checkpoint records segments as gone: their files are to be removed.
    pub(super) fn note_gone(&mut self, segments: &[u64]) {
        self.gone.extend(segments);
    }

    /// Returns whether there are gone segments whose files may exist.
    pub(super) fn has_leftovers(&self) -> bool {
        !self.expired.is_empty() || self.has_gone()
    }

    /// Returns whether files are to be removed.
    pub(crate) fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Returns whether the file of a segment is to be removed.
    pub(super) fn is_gone(&self, id: u64) -> bool {
        self.gone.contains(&id)
    }

    /// Returns whether it is uncertain what the superblock names.
    pub(super) fn is_unnamed(&self) -> bool {
        self.unnamed.is_some()
    }

    /// Returns the effect of the next checkpoint.
    pub(super) fn effect(&self) -> &Effect {
        &self.effect
    }

    /// Sets the effect of the next checkpoint.
    pub(super) fn set_effect(&mut self, effect: Effect) {
        self.effect = effect;
    }

    /// Returns the streams that the next part records, in order.
    pub(super) fn changed_streams(&self) -> Vec<u32> {
        let mut changed: Vec<u32> = self.streams.iter().copied().collect();
        changed.sort_unstable();
        changed
    }

    /// Adds the segments to a part: all of them for a base, otherwise those that changed. `settled` are numbers that
    /// are no segments. Returns those that are gone.
    pub(super) fn put_segments(&self, all: Option<&SegmentList>, settled: &[u64], entries: &mut Entries) -> Vec<u64> {
        let mut segments: Vec<Arc<Segment>> = match all {
            Some(all) => all.iter().cloned().collect(),
            None => {
                let mut changed: Vec<Arc<Segment>> = self.segments.values().cloned().collect();
                changed.sort_unstable_by_key(|segment| segment.id);
                changed
            }
        };
        segments.retain(|segment| self.effect.leaves(segment.id));
        segments.extend(self.effect.comes().cloned());
        segments.iter().for_each(|segment| entries.put(checkpoint::SEGMENT, &segment.encode()));
        // In a base, too: their files are removed after it, and a power cut may come before.
        let mut gone: Vec<u64> = self.expired.clone();
        gone.extend(self.effect.gone().iter().map(|segment| segment.id));
        gone.iter().chain(&self.gone).chain(settled).for_each(|id| entries.put(checkpoint::EXPIRED, &id.to_le_bytes()));
        gone
    }

    /// Returns whether a part with these entries would record nothing new.
    pub(super) fn says_nothing(&self, entries: &Entries, tail: Link, next_segment: u64) -> bool {
        entries.is_empty() && tail == self.tail() && next_segment == self.next_segment()
    }

    /// Writes a base, or a delta behind it, of all that changed, for the superblock to name. `gone` are the segments
    /// that it records as gone. Returns the bytes written.
    pub(super) fn write(
        &mut self,
        disk: &dyn Disk,
        base: bool,
        (entries, named, mut gone): (&Entries, Named, Vec<u64>),
        (tail, next_segment): (Link, u64),
    ) -> io::Result<u64> {
        let written = self.checkpoint.write(disk, base, entries)?;
        self.streams.clear();
        self.segments.clear();
        self.expired.clear();
        if matches!(self.effect, Effect::Replace { .. }) {
            // The files of replaced segments stay as long as they have readers.
            gone.retain(|id| self.effect.leaves(*id));
        }
        self.await_naming(named, gone, (tail, next_segment));
        Ok(written)
    }

    /// Writes a delta that records only that the segments of the effect are gone. Returns the bytes written, or `None`
    /// if even that has no room.
    pub(super) fn write_drop_alone(&mut self, disk: &dyn Disk) -> io::Result<Option<u64>> {
        let mut entries = Entries::default();
        let gone: Vec<u64> = self.effect.gone().iter().map(|segment| segment.id).collect();
        gone.iter().for_each(|id| entries.put(checkpoint::EXPIRED, &id.to_le_bytes()));
        if self.checkpoint.number == 0 || !self.checkpoint.has_last_room(&entries) {
            return Ok(None);
        }
        let written = self.checkpoint.write(disk, false, &entries)?;
        self.await_naming(Named::default(), gone, (self.tail(), self.next_segment()));
        Ok(Some(written))
    }

    /// Prepares the superblock that names the checkpoint as it is now, with its effect.
    fn await_naming(&mut self, named: Named, gone: Vec<u64>, (tail, next_segment): (Link, u64)) {
        let now = self.superblock.now;
        let superblock = Superblock {
            tail,
            next_segment,
            checkpoint_file: self.checkpoint.number,
            checkpoint_bytes: self.checkpoint.bytes,
            checkpoint_chain: self.checkpoint.chain,
            incompatible: now.incompatible | named.features,
            ..now
        };
        let effect = std::mem::take(&mut self.effect);
        self.unnamed = Some(Unnamed { superblock, named, gone, effect });
    }

    /// Writes the superblock that names what was written. Returns what it names and the effect that comes into force,
    /// or `None` if everything was named before.
    pub(super) fn write_name(&mut self) -> io::Result<Option<(Named, Effect)>> {
        let Some(unnamed) = &self.unnamed else { return Ok(None) };
        self.superblock.write(unnamed.superblock)?;
        let Some(Unnamed { named, gone, effect, .. }) = self.unnamed.take() else { return Ok(None) };
        self.gone.extend(gone);
        Ok(Some((named, effect)))
    }

    /// Removes the files of gone segments. If the disk refuses for a time, that is tried again with the next
    /// checkpoint, which records again that they are gone.
    pub(super) fn remove_gone(&mut self, disk: &dyn Disk) -> io::Result<()> {
        if self.gone.is_empty() {
            return Ok(());
        }
        let all = self.gone.iter().try_for_each(|id| remove_segment(disk, *id).map(drop));
        match all.and_then(|()| disk.sync()) {
            Ok(()) => self.gone.clear(),
            // Until the folder is synced, a power cut also brings back the names of removed files.
            Err(error) if passes(&error) => {
                if mutant::is_active(Mutant::ForgetRemoved) {
                    self.gone.clear();
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
