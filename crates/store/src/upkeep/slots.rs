//! Space in a fixed size: which segment the next one overwrites.
//!
//! Invariants: a slot is given to another segment only after a checkpoint records the one before as gone. That is the
//! one that was finished first, by the order of segments and not by a clock, among groups that hold their minimum
//! without it; a segment that is still open counts with the bytes in it. Segments of the store's own tables are dropped
//! only for newer ones of these, beyond [`ledger_slots`]; runs that are not released are not dropped.

use std::io;
use std::sync::Arc;

use crate::catalog::group::Group;
use crate::disk::space::FixedSpace;
use crate::disk::{Access, DiskFile};
use crate::engine::Engine;
use crate::model::trouble::is_full;
use crate::segment::directory::{GroupList, Segment, SegmentList, file_name};
use crate::upkeep::room::ledger_slots;
use crate::upkeep::sealer::Sealer;

impl Sealer {
    /// Returns a slot for the next segment of a group; the oldest segment that may go is dropped for it.
    pub(crate) fn next_slot(
        &mut self,
        engine: &Engine,
        fixed: &FixedSpace,
        group: Group,
    ) -> io::Result<Arc<dyn DiskFile>> {
        let own = engine.shared.segments.load().group(Group::LEDGER).map_or(0, |own| own.len());
        if group == Group::LEDGER && own >= ledger_slots(fixed.slots) {
            self.overwrite(engine, group)?;
        }
        let name = file_name(self.checkpoints.next_segment());
        // The last free slot is for compaction, as long as any segment may go.
        while self.keeps_slot(engine) && self.disk.free_slots() <= 1 && self.overwrite(engine, group)? {}
        loop {
            match self.disk.create(&name, engine.space.segment_bytes, Access::Buffered) {
                Err(error) if is_full(&error) => {
                    let now = engine.shared.paces.now();
                    if !self.overwrite(engine, group)? && !self.free_settle(engine, now)? {
                        return Err(error);
                    }
                }
                made => return made,
            }
        }
    }

    /// Drops a segment, or writes rows that wait and keep one from going. Returns false if none may go.
    fn overwrite(&mut self, engine: &Engine, group: Group) -> io::Result<bool> {
        let Some(oldest) = self.overwritten_next(engine, group) else { return Ok(false) };
        let is_sealed = oldest.state.lock().sealed;
        if !is_sealed && oldest.blobs {
            self.seal_idle(engine, |segment| segment.id == oldest.id)?;
        } else if !is_sealed {
            // Rows that wait to be written may make it newer than others.
            self.flush(engine, oldest.group)?;
            if !self.overwritten_next(engine, group).is_some_and(|next| Arc::ptr_eq(&next, &oldest)) {
                return Ok(true);
            }
            self.finish_segment(engine, oldest.group)?;
        }
        self.drop_segments(engine, &[oldest])?;
        Ok(true)
    }

    /// Returns the segment that goes next if a group needs a slot.
    pub(crate) fn overwritten_next(&self, engine: &Engine, group: Group) -> Option<Arc<Segment>> {
        let fixed = engine.space.fixed?;
        let policies = engine.policies();
        let list = engine.shared.segments.load_full();
        let own = || Some(list.group(Group::LEDGER)?.sealed().next()?.0.clone());
        let held = list.group(Group::LEDGER).map_or(0, |own| own.len());
        if group == Group::LEDGER && held >= ledger_slots(fixed.slots) {
            return own();
        }
        let of_others = list.lists().filter_map(|(group, segments)| {
            let policy = policies[group.0 as usize];
            let bytes = |of: &GroupList| of.sealed_len() * engine.space.segment_bytes + of.open_bytes();
            let all = list.of_group(group).map(bytes).sum::<u64>();
            let (oldest, finished, left) = match segments.sealed_in_order().next() {
                Some((oldest, _, finished)) => {
                    let finished = finished.unwrap_or_else(|| quiet_since(&list, oldest));
                    (oldest, finished, all - engine.space.segment_bytes)
                }
                // The only segment of a group that has been quiet since it began it.
                None => {
                    let may_go = |open: &&Arc<Segment>| !open.blobs || self.blobs.is_idle(open);
                    let open =
                        segments.open().filter(may_go).find(|open| open.blobs || open.state.lock().blocks > 0)?;
                    (open, quiet_since(&list, open), all - open.state.lock().bytes)
                }
            };
            (!policy.protected && left >= policy.keep_bytes).then(|| (finished, oldest.clone()))
        });
        let oldest = of_others.min_by_key(|(finished, segment)| (*finished, segment.id)).map(|(_, segment)| segment);
        oldest.or_else(|| (group == Group::LEDGER).then(own)?)
    }
}

/// Returns the number that a segment would have got that was begun when the newest one of a group got its newest row:
/// after its own, and after all that were finished by then.
pub(crate) fn quiet_since(list: &SegmentList, newest: &Segment) -> u64 {
    let stored = newest.state.lock().stored.1;
    let before = list.lists().flat_map(|(_, segments)| segments.sealed());
    let before = before.filter(|(_, state)| state.stored.1 < stored).map(|(segment, _)| segment.place());
    before.max().unwrap_or(0).max(newest.place()) + 1
}
