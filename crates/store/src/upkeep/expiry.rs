//! Space: what the store takes of the disk, the spare segment, and what is dropped when there is too little.
//!
//! Invariants: the store takes no more than `max_bytes`, as far as the catalog does not outgrow its checkpoints.
//! The spare is the file of the number that the next segment gets, allocated and all zeros, so there is never more
//! than one. What [`crate::catalog::group`] protects stays, whatever others send, but for the
//! store's own tables beyond their share.
//!
//! On a file system that others fill, a segment is created smaller before anything is dropped for it, down to
//! [`Space::least_segment`] or to what its first block needs. Only then the oldest segments are dropped, until that
//! fits. So what is dropped is at most twice the blocks that come in with their footers, a smallest segment of each
//! group at each opening, the growth of checkpoints, and the rest of the last segment dropped, as these go whole. If
//! others take the freed space at once, [`Sealer::make_room`] stops after [`USELESS_TIMES`] times what it was asked for
//! and [`USELESS_BYTES`].

use std::io;
use std::iter::Peekable;
use std::sync::Arc;

use crate::catalog::group::Group;
use crate::disk::names;
use crate::disk::space::Space;
use crate::disk::{Access, Disk, PAGE_BYTES};
use crate::engine::Engine;
use crate::model::damage::Damage;
use crate::model::limits::SEGMENT_BYTES_MIN;
use crate::model::mutant::{self, Mutant};
use crate::model::trouble::is_full;
use crate::segment::directory::{Segment, SegmentState, file_name};
use crate::upkeep::sealer::{Sealer, Spare};
use crate::upkeep::slots::quiet_since;

/// Bytes that must stay free beside a new segment, for checkpoints.
const FREE_BYTES_MIN: u64 = 8 << 20;
/// Bytes that may be dropped for a full disk without effect before frames are refused: this many times the bytes asked
/// for, and these bytes besides. Something else may be used up, or others may take the freed space.
const USELESS_TIMES: u64 = 4;
const USELESS_BYTES: u64 = 256 << 10;
/// Times in a row that a disk that reports free space must be full before anything is dropped for it.
const FULL_TIMES: u32 = 3;
/// Divisor of a folder's size: the part that the store's own tables may take beside gap rows, as of the slots of a
/// fixed size.
const LEDGER_PART: u64 = 16;

/// Request that a disk had no space for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Bytes that were missing, as far as known.
    pub(crate) missing: u64,
    /// Bytes that were asked for.
    pub(crate) whole: u64,
}

/// Finds the spare that the store left, of at most `most_bytes`. A file of its name that something was written to is
/// not one, and is overwritten when the segment is created; so is one that cannot be read, which is added to `damaged`.
pub(crate) fn find_spare(
    disk: &dyn Disk,
    id: u64,
    most_bytes: u64,
    damaged: &mut Vec<Damage>,
) -> io::Result<Option<Spare>> {
    let file = match disk.open(&file_name(id), Access::Buffered) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut page = vec![0; PAGE_BYTES];
    let got = match file.read_at(&mut page, 0) {
        Ok(got) => got,
        Err(error) => {
            let reason = format!("the file for the next segment cannot be read: {error}");
            damaged.push(Damage { file: file_name(id), offset: 0, reason });
            return Ok(None);
        }
    };
    if page[..got].iter().any(|byte| *byte != 0) {
        return Ok(None);
    }
    let size_bytes = file.size()?;
    if (SEGMENT_BYTES_MIN..=most_bytes).contains(&size_bytes) && size_bytes.is_multiple_of(PAGE_BYTES as u64) {
        return Ok(Some(Spare { file, size_bytes }));
    }
    // Cut short during creation, or of a larger segment size.
    disk.remove(&file_name(id))?;
    Ok(None)
}

/// Returns the bytes that the store's own tables of a group may take of a folder, gap rows half of what others may;
/// beyond, their oldest rows are dropped. Returns `None` for any other group.
fn own_bytes(space: &Space, group: Group) -> Option<u64> {
    let part = match group {
        Group::LEDGER => LEDGER_PART,
        Group::GAPS => 2 * LEDGER_PART,
        _ => return None,
    };
    Some((space.max_bytes / part).max(2 * space.segment_bytes))
}

/// Sealed segments, oldest first, with their states in the directory and the key that orders them among all groups.
type Oldest<'a> = Box<dyn Iterator<Item = (&'a Arc<Segment>, &'a SegmentState, u64)> + 'a>;

/// Remaining sealed segments of a group when some may have to go: those of rows, and those of blobs.
struct OldestSegments<'a> {
    oldest: Vec<Peekable<Oldest<'a>>>,
    /// Bytes of the group.
    bytes: u64,
    /// Min bytes that the group keeps.
    keep: u64,
}

impl<'a> OldestSegments<'a> {
    /// Returns the place of the oldest segment among those of all groups, if the group keeps its minimum without it.
    fn may_go(&mut self) -> Option<(u64, u64)> {
        let (segment, state, finished) = *self.of_oldest()?.peek()?;
        (self.bytes.saturating_sub(state.bytes) >= self.keep).then_some((finished, segment.id))
    }

    /// Returns the list that has the oldest segment.
    fn of_oldest(&mut self) -> Option<&mut Peekable<Oldest<'a>>> {
        let age = |list: &mut Peekable<Oldest<'a>>| list.peek().map(|(segment, _, finished)| (*finished, segment.id));
        let ages = self.oldest.iter_mut().map(age).enumerate();
        let (at, _) = ages.filter_map(|(at, age)| Some((at, age?))).min_by_key(|(_, age)| *age)?;
        self.oldest.get_mut(at)
    }
}

impl Sealer {
    /// Returns the bytes of all files, including what is allocated and not yet written.
    pub(crate) fn used_bytes(&self, engine: &Engine) -> u64 {
        if let Some(fixed) = engine.space.fixed {
            return fixed.size_bytes;
        }
        let ahead: u64 = self.sealing.open.values().map(|file| file.ahead_bytes()).sum();
        let spare = self.spare.as_ref().map_or(0, |spare| spare.size_bytes);
        let fixed = engine.log_bytes + names::SUPERBLOCK_BYTES;
        let settle = self.settle.extra_bytes(engine.space.segment_bytes);
        let (rows, blobs) = engine.shared.segments.load().sums();
        let blobs = blobs.bytes + self.blobs_ahead_bytes(engine);
        fixed + self.checkpoints.checkpoint.file_bytes() + rows.bytes + blobs + ahead + spare + settle
    }

    /// Returns the file of the next segment, of at least `least_bytes`: the spare, or a new one. If the disk has no
    /// room for one of the usual size, it is smaller; if it has none for the smallest, the oldest segments that may go
    /// are dropped.
    pub(crate) fn next_file(&mut self, engine: &Engine, group: Group, least_bytes: u64) -> io::Result<Spare> {
        if let Some(spare) = self.spare.take() {
            if spare.size_bytes >= least_bytes {
                return Ok(spare);
            }
            self.disk.remove(&file_name(self.checkpoints.next_segment()))?;
        }
        let (size_bytes, max) = (engine.space.segment_bytes, engine.space.max_bytes);
        if let Some(fixed) = engine.space.fixed {
            let file = self.next_slot(engine, &fixed, group)?;
            return Ok(Spare { file, size_bytes });
        }
        loop {
            let is_over = self.used_bytes(engine) + size_bytes > max;
            let made = if is_over {
                Err(io::ErrorKind::StorageFull.into())
            } else {
                self.create_file(size_bytes, least_bytes)
            };
            match made {
                Ok(made) => {
                    self.disk.sync()?;
                    self.shortage.end();
                    return Ok(made);
                }
                Err(error) if is_full(&error) => {
                    let now = engine.shared.paces.now();
                    let made = if is_over {
                        // Files of compaction no longer count, even if the disk refuses to remove them yet.
                        self.free_settle(engine, now)?
                            || self.used_bytes(engine) + size_bytes <= max
                            || self.drop_oldest(engine, 1)? > 0
                    } else {
                        let free = self.disk.space().map_or(0, |(_, free)| free);
                        let missing = least_bytes.saturating_sub(free);
                        self.make_room(engine, now, Asked { missing, whole: least_bytes })?
                    };
                    if !made {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates the file of the next segment: of a size, or of a half, a quarter and so on of it, down to `least_bytes`.
    fn create_file(&self, size_bytes: u64, least_bytes: u64) -> io::Result<Spare> {
        let name = file_name(self.checkpoints.next_segment());
        let create = |size_bytes| {
            let file = self.disk.create(&name, size_bytes, Access::Buffered)?;
            Ok(Spare { file, size_bytes })
        };
        let half = |size: u64| (size / 2 / PAGE_BYTES as u64 * PAGE_BYTES as u64).max(least_bytes);
        let (mut size, mut made) = (size_bytes, create(size_bytes));
        while size > least_bytes && made.as_ref().is_err_and(is_full) {
            // Each attempt costs the file system more than this query.
            let free = self.disk.space().map_or(u64::MAX, |(_, free)| free);
            size = half(size);
            while size > least_bytes && size > free {
                size = half(size);
            }
            made = create(size);
        }
        made
    }

    /// Creates the spare, if there is none and room for it. A full disk is no error here: the store works without a
    /// spare.
    pub(crate) fn make_spare(&mut self, engine: &Engine) -> io::Result<()> {
        let size = engine.space.segment_bytes;
        // In a fixed size, a slot is there when it is needed, and holds data until then.
        let no_need = self.spare.is_some() || engine.space.fixed.is_some();
        if no_need || self.used_bytes(engine) + size > engine.space.max_bytes {
            return Ok(());
        }
        match self.disk.create(&file_name(self.checkpoints.next_segment()), size, Access::Buffered) {
            Ok(file) => {
                file.sync()?;
                self.disk.sync()?;
                self.spare = Some(Spare { file, size_bytes: size });
                Ok(())
            }
            Err(error) if is_full(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Drops whole segments that are too old or beyond the bytes that the store may take, including the spare.
    pub(crate) fn expire(&mut self, engine: &Engine) -> io::Result<()> {
        self.checkpoints.checkpoint.reserve(&*self.disk)?;
        self.tell_vanished(engine);
        self.seal_left(engine)?;
        self.finish_aged(engine)?;
        if self.over(engine) > 0 && self.settle.extra_bytes(engine.space.segment_bytes) > engine.space.segment_bytes {
            self.free_settle(engine, engine.shared.paces.now())?;
        }
        let over = self.over(engine);
        let victims = self.victims(engine, over);
        // Files of segments dropped before a power cut may still exist.
        if victims.is_empty() && !self.checkpoints.has_leftovers() {
            Ok(())
        } else {
            self.drop_segments(engine, &victims)
        }
    }

    /// Returns the bytes beyond those that the store may take. The spare, and what compaction needs, count whether they
    /// exist or not.
    fn over(&self, engine: &Engine) -> u64 {
        if engine.space.fixed.is_some() {
            return 0;
        }
        let segment = engine.space.segment_bytes;
        let spare = if self.spare.is_some() { 0 } else { segment };
        let settle = if engine.options.settle { segment } else { 0 };
        let kept = settle.saturating_sub(self.settle.extra_bytes(segment));
        (self.used_bytes(engine) + spare + kept).saturating_sub(engine.space.max_bytes)
    }

    /// Finishes open segments whose oldest row is too old: segments are only dropped whole.
    fn finish_aged(&mut self, engine: &Engine) -> io::Result<()> {
        let policies = engine.policies();
        let age_of = |group: Group| {
            let policy = policies[group.0 as usize];
            policy.max_age_ns.or(engine.max_age_ns).filter(|_| !policy.protected)
        };
        let aged = |this: &Sealer, segment: &Segment| {
            age_of(segment.group).is_some_and(|age| this.ages.has_aged_row(segment, age))
        };
        let of_rows: Vec<Group> =
            self.sealing.open.iter().filter(|(_, file)| aged(self, file.segment())).map(|(group, _)| *group).collect();
        for group in of_rows {
            self.flush(engine, group)?;
            self.finish_segment(engine, group)?;
        }
        let list = engine.shared.segments.load_full();
        let blobs: Vec<u64> = list
            .blob_groups()
            .flat_map(|(_, segments)| segments.open())
            .filter(|segment| segment.state.lock().blocks > 0 && aged(self, segment))
            .map(|segment| segment.id)
            .collect();
        self.seal_idle(engine, |segment| blobs.contains(&segment.id))
    }

    /// Returns the segments to drop: those too old, and then, until they add up to `least` bytes, the one that was
    /// finished first among groups that keep their minimum without it.
    fn victims(&self, engine: &Engine, least: u64) -> Vec<Arc<Segment>> {
        let policies = engine.policies();
        let list = engine.shared.segments.load_full();
        let (mut victims, mut freed, mut fronts) = (Vec::new(), 0, Vec::new());
        for group in list.all_groups() {
            let policy = policies[group.0 as usize];
            if let Some(most) = own_bytes(&engine.space, group) {
                // The store's own tables are dropped for their own newer rows, and for nothing else.
                let mut bytes = list.of_group(group).map(|segments| segments.bytes()).sum::<u64>();
                for (segment, state) in list.of_group(group).flat_map(|segments| segments.sealed()) {
                    if bytes <= most {
                        break;
                    }
                    bytes -= state.bytes;
                    freed += state.bytes;
                    victims.push(segment.clone());
                }
            }
            if policy.protected {
                continue;
            }
            let mut bytes = list.of_group(group).map(|segments| segments.bytes()).sum::<u64>();
            let age = policy.max_age_ns.or(engine.max_age_ns);
            let rest = list.of_group(group).map(|segments| -> Peekable<Oldest<'_>> {
                let aged = age.map_or_else(Vec::new, |age| self.ages.aged(segments, age));
                let aged_bytes: u64 = aged.iter().map(|segment| segment.state.lock().bytes).sum();
                bytes -= aged_bytes;
                freed += aged_bytes;
                let finished = segments.sealed_in_order().map(|(segment, state, next)| {
                    (segment, state, next.unwrap_or_else(|| quiet_since(&list, segment)))
                });
                let rest: Oldest<'_> = Box::new(finished.skip(aged.len()));
                victims.extend(aged);
                rest.peekable()
            });
            let oldest = rest.collect();
            fronts.push(OldestSegments { oldest, bytes, keep: policy.keep_bytes });
        }
        while freed < least {
            let fronts = fronts.iter_mut().filter_map(|front| Some((front.may_go()?, front)));
            let Some((_, front)) = fronts.min_by_key(|(age, _)| *age) else { break };
            let Some((segment, state, _)) = front.of_oldest().and_then(|oldest| oldest.next()) else { break };
            front.bytes -= state.bytes;
            freed += state.bytes;
            victims.push(segment.clone());
        }
        victims
    }

    /// Returns what a disk without space may have been asked for, beside checkpoints: blocks to be written, or
    /// `unit_bytes` of the log.
    pub(crate) fn asked(&self, unit_bytes: usize) -> Asked {
        let missing = self.checkpoints.checkpoint.missing_bytes;
        let blocks = self.sealing.open.values().map(|file| file.waiting_bytes()).max().unwrap_or(0);
        Asked { missing, whole: missing.max(blocks.max(unit_bytes) as u64) }
    }

    /// Gives space back to a disk that has none: that of compaction, or the oldest segments that may go, of the bytes
    /// that are missing. Returns false if there is nothing, or if what was dropped so far was of no use.
    pub(crate) fn make_room(&mut self, engine: &Engine, now: i64, asked: Asked) -> io::Result<bool> {
        if self.free_settle(engine, now)? {
            return Ok(true);
        }
        if self.checkpoints.has_gone() {
            // Files that are to be removed already, and that the disk refuses to remove yet: it would refuse more, too.
            self.remove_gone()?;
            return Ok(!self.checkpoints.has_gone());
        }
        self.shortage.times = self.shortage.times.saturating_add(1);
        let free = || self.disk.space().map_or(0, |(_, free)| free);
        // Nothing need be dropped for space that is there by now, or again.
        let passed = self.shortage.times < FULL_TIMES && free() >= 2 * asked.whole + FREE_BYTES_MIN;
        // Space that the checkpoints took was of use.
        let of_use = std::mem::take(&mut self.checkpoints.checkpoint.grown_bytes);
        self.shortage.dropped_bytes = self.shortage.dropped_bytes.saturating_sub(of_use);
        let whole = asked.whole.max(engine.space.least_segment());
        let useless = self.shortage.dropped_bytes > USELESS_TIMES * whole + USELESS_BYTES;
        if engine.space.fixed.is_some() || passed || useless || mutant::is_active(Mutant::KeepOldest) {
            return Ok(false);
        }
        let dropped = self.drop_oldest(engine, asked.missing.max(1))?;
        self.shortage.dropped_bytes += dropped;
        Ok(dropped > 0)
    }

    /// Drops the oldest segments that may go, of at least `least` bytes. Returns how many bytes were dropped.
    fn drop_oldest(&mut self, engine: &Engine, least: u64) -> io::Result<u64> {
        let victims = self.victims(engine, least);
        let bytes = victims.iter().map(|victim| victim.state.lock().bytes).sum();
        if !victims.is_empty() {
            self.drop_segments(engine, &victims)?;
        }
        Ok(bytes)
    }

    /// Returns whether another segment can be created again.
    pub(crate) fn has_space(&self, engine: &Engine) -> bool {
        if engine.space.fixed.is_some() {
            return self.disk.free_slots() > 0 || self.overwritten_next(engine, Group::DATA).is_some();
        }
        let of = |bytes: u64| if self.spare.is_some() { 0 } else { bytes };
        let fits = self.used_bytes(engine) + of(engine.space.segment_bytes) <= engine.space.max_bytes;
        let least = of(engine.space.least_segment()) + FREE_BYTES_MIN;
        let free = || self.disk.space().is_ok_and(|(_, free)| free >= least);
        fits && free() || !self.victims(engine, 1).is_empty()
    }
}
