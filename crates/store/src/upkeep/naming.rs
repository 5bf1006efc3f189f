//! What a checkpoint puts into force, and when: what it says counts once the superblock names it, not before.
//!
//! Invariants: a segment leaves the list, and another takes the place of some, once a durable checkpoint says so; until
//! then nothing of it is removed. A superblock whose write failed may be durable or not: both checkpoints stay as they
//! are until the same one is written, so that whichever counts is there. Files go after the superblock that names what
//! says that they are no more; where that fails they are told to be no more again, until they went.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::log::checkpoint::{self, Entries};
use crate::log::superblock::Superblock;
use crate::model::mutant::{self, Mutant};
use crate::model::trouble::is_full;
use crate::segment::directory::{Segment, remove_segment};
use crate::upkeep::sealer::{Effect, Sealer, Unnamed};
use crate::upkeep::turnover::STREAMS_A_LOCK;

impl Sealer {
    /// Lets the superblock name what was written, if it does not yet; then that is in force.
    pub(crate) fn name_written(&mut self, engine: &Engine) -> io::Result<()> {
        let Some(unnamed) = &self.unnamed else { return Ok(()) };
        self.superblock.write(unnamed.superblock)?;
        let Some(Unnamed { streams, groups, gone, effect, .. }) = self.unnamed.take() else { return Ok(()) };
        for few in streams.chunks(STREAMS_A_LOCK) {
            let mut writer = engine.writer.lock();
            for &(id, serial) in few {
                writer.streams[id].saved_serial = Some(serial);
            }
        }
        engine.writer.lock().groups.saved(&groups);
        self.gone.extend(gone);
        self.put_into_force(engine, effect);
        self.remove_gone()
    }

    pub(crate) fn put_into_force(&mut self, engine: &Engine, effect: Effect) {
        let list = engine.shared.segments.load();
        match effect {
            Effect::Nothing => {}
            Effect::Drop(victims) => {
                for segment in &victims {
                    segment.expired.store(true, Ordering::Release);
                    self.changed_segments.remove(&segment.id);
                    self.filled.remove(&segment.place());
                }
                engine.shared.segments.store(Arc::new(list.without(&victims)));
                engine.shared.residents.forget(&victims);
            }
            Effect::Replace { old, new, since } => {
                engine.shared.segments.store(Arc::new(list.with_replaced(&old, &new)));
                // Before they are let go of: who reads one keeps it no more.
                old.iter().for_each(|segment| segment.set_replaced());
                engine.shared.residents.forget(&old);
                self.note_replaced(engine, &old, &new, since);
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
            Err(error) if crate::model::trouble::passes(&error) => {
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
    pub(crate) fn drop_segments(&mut self, engine: &Engine, victims: &[Arc<Segment>]) -> io::Result<()> {
        self.name_written(engine)?;
        if mutant::is_active(Mutant::DropEarly) {
            self.put_into_force(engine, Effect::Drop(victims.to_vec()));
            self.expired.extend(victims.iter().map(|segment| segment.id));
            return self.write_checkpoint(engine, None);
        }
        self.effect = Effect::Drop(victims.to_vec());
        let done = match self.write_checkpoint(engine, None) {
            Err(error) if is_full(&error) && self.unnamed.is_none() => {
                self.drop_alone(engine).and_then(|done| match done {
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
    fn drop_alone(&mut self, engine: &Engine) -> io::Result<bool> {
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
        self.name_written(engine)?;
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
