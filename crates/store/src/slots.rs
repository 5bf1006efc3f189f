//! Space in a fixed size: which segment the next one is written over.
//!
//! Invariants: a slot is given to another segment only after a checkpoint says that the one before is no more. It is the
//! one that was finished first, by the order of segments and not by a clock, among groups that hold their minimum without it, a segment that is
//! still open counted with the bytes in it. Segments of the store's own tables go only for newer ones of these, and do
//! so beyond [`ledger_slots`]; runs that are not released do not go.

use std::io;
use std::sync::Arc;

use crate::checkpoint;
use crate::directory::{GroupList, Segment, SegmentList, file_name};
use crate::disk::{Access, DiskFile};
use crate::expiry::{Space, is_full};
use crate::fixed::{SLOT_BYTES, ledger_slots, slots_needed};
use crate::group::Group;
use crate::layout::Layout;
use crate::options::StoreOptions;
use crate::seal::Sealer;
use crate::store::Inner;

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
    generation: u64,
}

impl FixedSpace {
    /// Bytes that a checkpoint has for the catalog, beside its header and what it says of segments.
    pub(crate) fn catalog_room(&self) -> u64 {
        self.checkpoint_bytes.saturating_sub(checkpoint::HEADER_BYTES as u64 + self.slots * SLOT_BYTES)
    }
}

impl Space {
    /// That of a fixed size: all slots are for segments.
    pub(crate) fn fixed(layout: &Layout) -> Space {
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

    /// Refuses groups that keep more than there is.
    pub(crate) fn check_slots(&self, fixed: &FixedSpace, options: &StoreOptions) -> Result<(), String> {
        let needed = slots_needed(&options.retention, fixed.slots, self.segment_bytes);
        if needed <= fixed.slots {
            return Ok(());
        }
        Err(format!(
            "a store of {} segments of {} bytes is too small: what its groups keep, and two segments of each, take \
             {needed}",
            fixed.slots, self.segment_bytes
        ))
    }
}

impl Sealer {
    /// A slot for the next segment of a group, for which the oldest goes that may.
    pub(crate) fn next_slot(
        &mut self,
        store: &Inner,
        fixed: &FixedSpace,
        group: Group,
    ) -> io::Result<Arc<dyn DiskFile>> {
        let own = store.shared.segments.load().group(Group::LEDGER).map_or(0, |own| own.len());
        if group == Group::LEDGER && own >= ledger_slots(fixed.slots) {
            self.overwrite(store, group)?;
        }
        let name = file_name(self.superblock.now.next_segment);
        // The last one is for settle, as long as any segment may go.
        while self.keeps_slot(store) && self.disk.free_slots() <= 1 && self.overwrite(store, group)? {}
        loop {
            match self.disk.create(&name, store.space.segment_bytes, Access::Buffered) {
                Err(error) if is_full(&error) => {
                    let now = store.shared.paces.now();
                    if !self.overwrite(store, group)? && !self.free_settle(store, now)? {
                        return Err(error);
                    }
                }
                made => return made,
            }
        }
    }

    /// Lets a segment go; false: none may.
    fn overwrite(&mut self, store: &Inner, group: Group) -> io::Result<bool> {
        let Some(oldest) = self.overwritten_next(store, group) else { return Ok(false) };
        let is_sealed = oldest.state.lock().sealed;
        if !is_sealed && oldest.blobs {
            self.seal_idle(store, |segment| segment.id == oldest.id)?;
        } else if !is_sealed {
            self.flush(store, oldest.group)?;
            self.finish_segment(store, oldest.group)?;
        }
        self.drop_segments(store, &[oldest])?;
        Ok(true)
    }

    /// The segment that goes next if a group needs a slot.
    pub(crate) fn overwritten_next(&self, store: &Inner, group: Group) -> Option<Arc<Segment>> {
        let fixed = store.space.fixed?;
        let policies = store.policies();
        let list = store.shared.segments.load_full();
        let own = || Some(list.group(Group::LEDGER)?.sealed().next()?.0.clone());
        let held = list.group(Group::LEDGER).map_or(0, |own| own.len());
        if group == Group::LEDGER && held >= ledger_slots(fixed.slots) {
            return own();
        }
        let of_others = list.lists().filter_map(|(group, segments)| {
            let policy = policies[group.0 as usize];
            let bytes = |of: &GroupList| of.sealed_len() * store.space.segment_bytes + of.open_bytes();
            let all = list.of_group(group).map(bytes).sum::<u64>();
            let (oldest, finished, left) = match segments.sealed_in_order().next() {
                Some((oldest, _, finished)) => (oldest, finished, all - store.space.segment_bytes),
                // Of a group that has been quiet since it began its only one.
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

/// The number that a segment would have been begun with that was begun when an open one got its newest row: not before its
/// own, and after all that were finished by then.
fn quiet_since(list: &SegmentList, open: &Segment) -> u64 {
    let newest = open.state.lock().stored.1;
    let before = list.lists().flat_map(|(_, segments)| segments.sealed());
    let before = before.filter(|(_, state)| state.stored.1 <= newest).map(|(segment, _)| segment.place());
    before.max().unwrap_or(0).max(open.id) + 1
}
