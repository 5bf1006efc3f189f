//! Putting checkpoints into force: once the superblock names one, not before.
//!
//! Invariants: a segment leaves the list, and another takes the place of some, once a durable checkpoint says so; until
//! then nothing of it is removed. A superblock whose write failed may be durable or not: both checkpoints stay as they
//! are until the same superblock is written, so that whichever is valid exists. Files are removed after the superblock
//! that names the checkpoint that drops them; if that fails, they are recorded as gone again, until they are removed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::model::mutant::{self, Mutant};
use crate::model::trouble::is_full;
use crate::segment::directory::Segment;
use crate::upkeep::checkpointing::Effect;
use crate::upkeep::sealer::Sealer;
use crate::upkeep::turnover::STREAMS_A_LOCK;

impl Sealer {
    /// Writes the superblock that names what was written, if it is not named yet, and puts that into force.
    pub(crate) fn name_written(&mut self, engine: &Engine) -> io::Result<()> {
        let Some((named, effect)) = self.checkpoints.write_name()? else { return Ok(()) };
        for few in named.streams.chunks(STREAMS_A_LOCK) {
            let mut writer = engine.writer.lock();
            for &(id, serial) in few {
                writer.streams[id].saved_serial = Some(serial);
            }
        }
        engine.writer.lock().groups.saved(&named.groups);
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
                    self.checkpoints.forget_segment(segment.id);
                    self.ages.forget(segment);
                }
                engine.shared.segments.store(Arc::new(list.without(&victims)));
                engine.shared.residents.forget(&victims);
            }
            Effect::Replace { old, new, since } => {
                engine.shared.segments.store(Arc::new(list.with_replaced(&old, &new)));
                // Before they are let go of: a reader of one no longer keeps it.
                old.iter().for_each(|segment| segment.set_replaced());
                engine.shared.residents.forget(&old);
                self.note_replaced(engine, &old, &new, since);
            }
        }
    }

    /// Removes the files of gone segments.
    pub(crate) fn remove_gone(&mut self) -> io::Result<()> {
        self.checkpoints.remove_gone(&*self.disk)
    }

    /// Drops segments: they leave the list once a checkpoint says so. If the disk has no room for the other changes,
    /// the checkpoint records the drop alone, in pages that are kept for it.
    pub(crate) fn drop_segments(&mut self, engine: &Engine, victims: &[Arc<Segment>]) -> io::Result<()> {
        self.name_written(engine)?;
        // What was named only now may have dropped some, or put another segment in the place of some.
        let list = engine.shared.segments.load_full();
        let victims: Vec<Arc<Segment>> = victims.iter().filter(|segment| list.holds(segment)).cloned().collect();
        if mutant::is_active(Mutant::DropEarly) {
            self.put_into_force(engine, Effect::Drop(victims.clone()));
            self.checkpoints.note_expired(victims.iter().map(|segment| segment.id));
            return self.write_checkpoint(engine, None);
        }
        self.checkpoints.set_effect(Effect::Drop(victims));
        let done = match self.write_checkpoint(engine, None) {
            Err(error) if is_full(&error) && !self.checkpoints.is_unnamed() => {
                self.drop_alone(engine).and_then(|done| match done {
                    true => Ok(()),
                    false => Err(error),
                })
            }
            done => done,
        };
        self.checkpoints.set_effect(Effect::Nothing);
        done
    }

    /// Writes a checkpoint that records only that segments are gone. Returns false if even that has no room.
    fn drop_alone(&mut self, engine: &Engine) -> io::Result<bool> {
        let Some(written) = self.checkpoints.write_drop_alone(&*self.disk)? else { return Ok(false) };
        self.written_bytes += written;
        self.name_written(engine)?;
        Ok(true)
    }
}
