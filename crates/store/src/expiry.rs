//! Space: what the store takes of the disk, the spare segment, and what goes when there is too little.
//!
//! Invariants: the store takes no more than `max_bytes`, as far as the catalog does not outgrow its checkpoints.
//! The spare is the file of the number that the next segment gets, allocated and all zeros, so there is never more
//! than one. What [`crate::group`] protects stays, whatever others send.

use std::io;
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::directory::{Segment, SegmentState, file_name};
use crate::disk::{Access, Disk, DiskFile, PAGE_BYTES};
use crate::group::Group;
use crate::limits::{MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES};
use crate::options::StoreOptions;
use crate::seal::Sealer;
use crate::slots::FixedSpace;
use crate::store::Inner;

/// Bytes that must stay free beside a segment that is made, for checkpoints.
const FREE_BYTES_MIN: u64 = 8 << 20;
/// Segments that a group should have room for.
const SEGMENTS_OF_GROUP: u64 = 8;

/// How much of the disk a store may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// Most bytes over all files.
    pub(crate) max_bytes: u64,
    /// Bytes of a segment's file.
    pub(crate) segment_bytes: u64,
    /// If the size is fixed.
    pub(crate) fixed: Option<FixedSpace>,
}

impl Space {
    /// What a store may take of a file system of this size.
    pub(crate) fn of(options: &StoreOptions, disk_bytes: u64) -> Space {
        let max_bytes = options.max_bytes.unwrap_or(disk_bytes / 5 * 4);
        // The groups of a small store must not be one segment each.
        let groups = 2 + options.retention.len() as u64;
        let most = (max_bytes / (SEGMENTS_OF_GROUP * groups)).clamp(MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES);
        let most = 1 << most.ilog2();
        Space { max_bytes, segment_bytes: options.segment_bytes.clamp(MIN_SEGMENT_BYTES, most), fixed: None }
    }

    /// Refuses a size that holds no log, two segments a group and the minima.
    pub(crate) fn check(&self, options: &StoreOptions, log_bytes: u64) -> Result<(), String> {
        if let Some(fixed) = &self.fixed {
            return self.check_slots(fixed, options);
        }
        if options.max_bytes.is_none() && options.retention.is_empty() {
            return Ok(());
        }
        let keep = options.retention.iter().map(|group| group.keep.of(self.max_bytes)).fold(0, u64::saturating_add);
        let groups = 2 + options.retention.len() as u64;
        let least = (log_bytes + (2 * groups + 1) * self.segment_bytes + (1 << 20)).saturating_add(keep);
        if least > self.max_bytes {
            return Err(format!(
                "a store of at most {} bytes is too small: its log, two segments of each retention group and the \
                 {keep} bytes that groups keep take {least}",
                self.max_bytes
            ));
        }
        Ok(())
    }
}

/// Finds the spare that the store left. A file of its name that something was written to is not one, and is written
/// over when the segment is made.
pub(crate) fn find_spare(disk: &dyn Disk, id: u64, size_bytes: u64) -> io::Result<Option<Arc<dyn DiskFile>>> {
    let file = match disk.open(&file_name(id), Access::Buffered) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut page = vec![0; PAGE_BYTES];
    let got = file.read_at(&mut page, 0)?;
    if page[..got].iter().any(|byte| *byte != 0) {
        return Ok(None);
    }
    if file.size()? == size_bytes {
        return Ok(Some(file));
    }
    // Cut short while it was made, or of another size of segments.
    disk.remove(&file_name(id))?;
    Ok(None)
}

/// Sealed segments, oldest first, what the directory says of each, and what they are ordered by among all groups.
type Oldest<'a> = Box<dyn Iterator<Item = (&'a Arc<Segment>, &'a SegmentState, u64)> + 'a>;

/// The sealed segments of a group that are left, when some may have to go: those of rows, and those of blobs.
struct Front<'a> {
    oldest: Vec<Peekable<Oldest<'a>>>,
    /// Bytes of the group.
    bytes: u64,
    /// Its minimum.
    keep: u64,
}

impl<'a> Front<'a> {
    /// The place of the oldest one among those of all groups, if the group stays at its minimum without it.
    fn may_go(&mut self) -> Option<(u64, u64)> {
        let (segment, state, finished) = *self.of_oldest()?.peek()?;
        (self.bytes.saturating_sub(state.bytes) >= self.keep).then_some((finished, segment.id))
    }

    /// Those among which the oldest is.
    fn of_oldest(&mut self) -> Option<&mut Peekable<Oldest<'a>>> {
        let age = |list: &mut Peekable<Oldest<'a>>| list.peek().map(|(segment, _, finished)| (*finished, segment.id));
        let ages = self.oldest.iter_mut().map(age).enumerate();
        let (at, _) = ages.filter_map(|(at, age)| Some((at, age?))).min_by_key(|(_, age)| *age)?;
        self.oldest.get_mut(at)
    }
}

impl Sealer {
    /// Bytes of all files, what is allocated and not yet written counted.
    pub(crate) fn used_bytes(&self, store: &Inner) -> u64 {
        if let Some(fixed) = store.space.fixed {
            return fixed.size_bytes;
        }
        let ahead: u64 = self.groups.values().map(|file| file.ahead_bytes()).sum();
        let spare = if self.spare.is_some() { store.space.segment_bytes } else { 0 };
        let fixed = store.log_bytes + crate::superblock::FILE_BYTES;
        let settle = self.settle.extra_bytes(store.space.segment_bytes);
        let (rows, blobs) = store.shared.segments.load().sums();
        let blobs = blobs.bytes + self.blobs_ahead_bytes(store);
        fixed + self.checkpoint.file_bytes() + rows.bytes + blobs + ahead + spare + settle
    }

    /// The file of the next segment: the spare, or one that is made, for which the oldest segments go that may.
    pub(crate) fn next_file(&mut self, store: &Inner, group: Group) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(spare) = self.spare.take() {
            return Ok(spare);
        }
        if let Some(fixed) = store.space.fixed {
            return self.next_slot(store, &fixed, group);
        }
        let (size, max) = (store.space.segment_bytes, store.space.max_bytes);
        loop {
            let made = if self.used_bytes(store) + size > max {
                Err(io::ErrorKind::StorageFull.into())
            } else {
                self.disk.create(&file_name(self.superblock.now.next_segment), size, Access::Buffered)
            };
            match made {
                Ok(file) => {
                    self.disk.sync()?;
                    return Ok(file);
                }
                Err(error) if is_full(&error) => {
                    if self.free_settle(store, store.shared.paces.now())? {
                        continue;
                    }
                    let victims = self.victims(store, 1);
                    if victims.is_empty() {
                        return Err(error);
                    }
                    self.drop_segments(store, &victims)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the spare, if there is none and room for it. A full disk is no error here: what is there goes on.
    pub(crate) fn make_spare(&mut self, store: &Inner) -> io::Result<()> {
        let size = store.space.segment_bytes;
        // In a fixed size a slot is there when it is needed, and holds data until then.
        let no_need = self.spare.is_some() || store.space.fixed.is_some();
        if no_need || self.used_bytes(store) + size > store.space.max_bytes {
            return Ok(());
        }
        match self.disk.create(&file_name(self.superblock.now.next_segment), size, Access::Buffered) {
            Ok(file) => {
                file.sync()?;
                self.disk.sync()?;
                self.spare = Some(file);
                Ok(())
            }
            Err(error) if is_full(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Drops whole segments that are too old or beyond the bytes that the store may take, the spare counted.
    pub(crate) fn expire(&mut self, store: &Inner) -> io::Result<()> {
        self.checkpoint.reserve(&*self.disk)?;
        self.finish_aged(store)?;
        if self.over(store) > 0 && self.settle.extra_bytes(store.space.segment_bytes) > store.space.segment_bytes {
            self.free_settle(store, store.shared.paces.now())?;
        }
        let over = self.over(store);
        let victims = self.victims(store, over);
        // Files of segments that went before a power cut may still be there.
        if victims.is_empty() && self.expired.is_empty() { Ok(()) } else { self.drop_segments(store, &victims) }
    }

    /// Bytes beyond those that the store may take: the spare, and what settle needs, are counted if they are there or not.
    fn over(&self, store: &Inner) -> u64 {
        if store.space.fixed.is_some() {
            return 0;
        }
        let segment = store.space.segment_bytes;
        let spare = if self.spare.is_some() { 0 } else { segment };
        let settle = if store.options.settle { segment } else { 0 };
        let kept = settle.saturating_sub(self.settle.extra_bytes(segment));
        (self.used_bytes(store) + spare + kept).saturating_sub(store.space.max_bytes)
    }

    /// Finishes open segments whose oldest row is too old: they can only go whole.
    fn finish_aged(&mut self, store: &Inner) -> io::Result<()> {
        let policies = store.policies();
        let age_of = |group: Group| {
            let policy = policies[group.0 as usize];
            policy.max_age_ns.or(store.max_age_ns).filter(|_| !policy.protected)
        };
        let aged =
            |this: &Sealer, segment: &Segment| age_of(segment.group).is_some_and(|age| this.has_aged_row(segment, age));
        let of_rows: Vec<Group> =
            self.groups.iter().filter(|(_, file)| aged(self, file.segment())).map(|(group, _)| *group).collect();
        for group in of_rows {
            self.flush(store, group)?;
            self.finish_segment(store, group)?;
        }
        let list = store.shared.segments.load_full();
        let blobs: Vec<u64> = list
            .blob_groups()
            .flat_map(|(_, segments)| segments.open())
            .filter(|segment| segment.state.lock().blocks > 0 && aged(self, segment))
            .map(|segment| segment.id)
            .collect();
        self.seal_idle(store, |segment| blobs.contains(&segment.id))
    }

    /// Segments that may go: those too old, and then, until they come to `least` bytes, the one that was finished first
    /// among groups that stay at their minimum without it.
    fn victims(&self, store: &Inner, least: u64) -> Vec<Arc<Segment>> {
        let policies = store.policies();
        let list = store.shared.segments.load_full();
        let (mut victims, mut freed, mut fronts) = (Vec::new(), 0, Vec::new());
        for group in list.all_groups() {
            let policy = policies[group.0 as usize];
            if policy.protected {
                continue;
            }
            let mut bytes = list.of_group(group).map(|segments| segments.bytes()).sum::<u64>();
            let age = policy.max_age_ns.or(store.max_age_ns);
            let rest = list.of_group(group).map(|segments| -> Peekable<Oldest<'_>> {
                let aged = age.map_or_else(Vec::new, |age| self.aged(segments, age));
                let aged_bytes: u64 = aged.iter().map(|segment| segment.state.lock().bytes).sum();
                bytes -= aged_bytes;
                freed += aged_bytes;
                let rest: Oldest<'_> = Box::new(segments.sealed_in_order().skip(aged.len()));
                victims.extend(aged);
                rest.peekable()
            });
            let oldest = rest.collect();
            fronts.push(Front { oldest, bytes, keep: policy.keep_bytes });
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

    pub(crate) fn drop_segments(&mut self, store: &Inner, victims: &[Arc<Segment>]) -> io::Result<()> {
        let list = store.shared.segments.load().without(victims);
        for segment in victims {
            segment.expired.store(true, Ordering::Release);
            self.changed_segments.remove(&segment.id);
            self.begun.remove(&segment.place());
            self.expired.push(segment.id);
        }
        store.shared.segments.store(Arc::new(list));
        store.shared.residents.forget(victims);
        self.write_checkpoint(store, None)
    }

    /// Whether another segment can be had again.
    pub(crate) fn has_space(&self, store: &Inner) -> bool {
        if store.space.fixed.is_some() {
            return self.disk.free_slots() > 0 || self.overwritten_next(store, Group::DATA).is_some();
        }
        let size = if self.spare.is_some() { 0 } else { store.space.segment_bytes };
        let fits = self.used_bytes(store) + size <= store.space.max_bytes;
        let free = || self.disk.space().is_ok_and(|(_, free)| free >= size + FREE_BYTES_MIN);
        fits && free() || !self.victims(store, 1).is_empty()
    }
}

/// Whether the file system has no space left.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}
