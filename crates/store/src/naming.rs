//! What a checkpoint puts into force, and when: what it says counts once the superblock names it, not before.
//!
//! Invariants: a segment leaves the list, and another takes the place of some, once a durable checkpoint says so; until
//! then nothing of it is removed. A superblock whose write failed may be durable or not: both checkpoints stay as they
//! are until the same one is written, so that whichever counts is there. Files go after the superblock that names what
//! says that they are no more; where that fails they are told to be no more again, until they went.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::checkpoint::{self, Entries};
use crate::directory::{Segment, remove_segment};
use crate::expiry::is_full;
use crate::group::Group;
use crate::mutant::{self, Mutant};
use crate::retain::STREAMS_A_LOCK;
use crate::seal::Sealer;
use crate::store::Inner;
use crate::superblock::Superblock;

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

impl Sealer {
    /// Lets the superblock name what was written, if it does not yet; then that is in force.
    pub(crate) fn name_written(&mut self, store: &Inner) -> io::Result<()> {
        let Some(unnamed) = &self.unnamed else { return Ok(()) };
        self.superblock.write(unnamed.superblock)?;
        let Some(Unnamed { streams, groups, gone, effect, .. }) = self.unnamed.take() else { return Ok(()) };
        for few in streams.chunks(STREAMS_A_LOCK) {
            let mut writer = store.writer.lock();
            for &(id, serial) in few {
                writer.streams[id as usize].saved_serial = Some(serial);
            }
        }
        store.writer.lock().groups.saved(&groups);
        self.gone.extend(gone);
        self.put_into_force(store, effect);
        self.remove_gone()
    }

    pub(crate) fn put_into_force(&mut self, store: &Inner, effect: Effect) {
        let list = store.shared.segments.load();
        match effect {
            Effect::Nothing => {}
            Effect::Drop(victims) => {
                for segment in &victims {
                    segment.expired.store(true, Ordering::Release);
                    self.changed_segments.remove(&segment.id);
                    self.filled.remove(&segment.place());
                }
                store.shared.segments.store(Arc::new(list.without(&victims)));
                store.shared.residents.forget(&victims);
            }
            Effect::Replace { old, new, since } => {
                store.shared.segments.store(Arc::new(list.with_replaced(&old, &new)));
                // Before they are let go of: who reads one keeps it no more.
                old.iter().for_each(|segment| segment.set_replaced());
                store.shared.residents.forget(&old);
                self.note_replaced(store, &old, &new, since);
            }
        }
    }

    /// Removes the files of what is no more. What refuses for a time is tried again with the next checkpoint, which says
    /// again that they are no more.
    pub(crate) fn remove_gone(&mut self) -> io::Result<()> {
        if self.gone.is_empty() {
            return Ok(());
        }
        let all = self.gone.iter().try_for_each(|id| remove_segment(&*self.disk, *id).map(drop));
        match all.and_then(|()| self.disk.sync()) {
            Ok(()) => self.gone.clear(),
            // Until the folder is synced a power cut brings back the names of those that went, too.
            Err(error) if crate::trouble::passes(&error) => {
                if mutant::is_active(Mutant::ForgetRemoved) {
                    self.gone.clear();
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Drops segments: they leave the list once a checkpoint says so. Where the disk has no room for what changed
    /// besides, it says that alone, in pages that are kept for it.
    pub(crate) fn drop_segments(&mut self, store: &Inner, victims: &[Arc<Segment>]) -> io::Result<()> {
        self.name_written(store)?;
        if mutant::is_active(Mutant::DropEarly) {
            self.put_into_force(store, Effect::Drop(victims.to_vec()));
            self.expired.extend(victims.iter().map(|segment| segment.id));
            return self.write_checkpoint(store, None);
        }
        self.effect = Effect::Drop(victims.to_vec());
        let done = match self.write_checkpoint(store, None) {
            Err(error) if is_full(&error) && self.unnamed.is_none() => {
                self.drop_alone(store).and_then(|done| match done {
                    true => Ok(()),
                    false => Err(error),
                })
            }
            done => done,
        };
        self.effect = Effect::Nothing;
        done
    }

    /// Writes a checkpoint that says that segments are no more, and nothing else; false: even that has no room.
    fn drop_alone(&mut self, store: &Inner) -> io::Result<bool> {
        let mut entries = Entries::default();
        for segment in self.effect.gone() {
            entries.put(checkpoint::EXPIRED, &segment.id.to_le_bytes());
        }
        if self.checkpoint.number == 0 || !self.checkpoint.has_last_room(&entries) {
            return Ok(false);
        }
        self.written_bytes += self.checkpoint.write(&*self.disk, false, &entries)?;
        let superblock = self.naming(self.superblock.now.tail, self.superblock.now.next_segment);
        let gone = self.effect.gone().iter().map(|segment| segment.id).collect();
        let effect = std::mem::take(&mut self.effect);
        self.unnamed = Some(Unnamed { superblock, streams: Vec::new(), groups: Vec::new(), gone, effect });
        self.name_written(store)?;
        Ok(true)
    }

    /// The superblock that names the checkpoint as it is now.
    pub(crate) fn naming(&self, tail: crate::log::Link, next_segment: u64) -> Superblock {
        Superblock {
            tail,
            next_segment,
            checkpoint_file: self.checkpoint.number,
            checkpoint_bytes: self.checkpoint.bytes,
            checkpoint_chain: self.checkpoint.chain,
            ..self.superblock.now
        }
    }
}
