//! Store in one volume of a fixed size. Each file of a folder is a region here. Superblock, log, checkpoints and
//! `recent` have permanent regions; a segment has a *slot* from its creation until it is removed.
//!
//! Invariants: the size never changes, and nothing is written outside a region. A slot belongs to at most one file,
//! which is recorded in the checkpoint. Reading from a file whose slot was given to another is an error and never
//! returns bytes of the other: the slot's owner changes before the first write to it, and is checked after each read.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::volume::Volume;
use super::{Access, Disk, DiskFile, PAGE_BYTES, Pages, read_exact};
use crate::OpenError;
use crate::disk::layout::{self, COPIES, FirstPageState, Regions};
use crate::disk::names;

/// Volume with its regions.
pub(crate) struct FixedDisk {
    volume: Arc<dyn Volume>,
    layout: Regions,
    /// Handles of the volume: one for the log, one through the page cache.
    log: Arc<dyn DiskFile>,
    buffered: Arc<dyn DiskFile>,
    slots: Arc<Slots>,
    /// Whether a copy of the first page was damaged.
    is_damaged: bool,
    /// Bytes that the volume has, which may be fewer than those of the store.
    present_bytes: u64,
}

/// Owners of the slots.
struct Slots {
    /// Turn in which each slot was assigned; 0 if it is free.
    turns: Vec<AtomicU64>,
    by_name: Mutex<HashMap<String, u32>>,
    next_turn: AtomicU64,
    /// Whether the volume was unlocked, so that another process may write to it.
    closed: AtomicBool,
}

impl Slots {
    fn give(&self, by_name: &mut HashMap<String, u32>, name: &str, slot: u32) {
        let turn = self.next_turn.fetch_add(1, Ordering::Relaxed);
        self.turns[slot as usize].store(turn, Ordering::SeqCst);
        by_name.insert(name.to_owned(), slot);
    }
}

fn io_error(volume: Arc<dyn Volume>) -> impl Fn(io::Error) -> OpenError {
    let path = volume.path();
    move |source| OpenError::Io { path: path.clone(), source }
}

impl FixedDisk {
    /// Reads the regions of a volume and opens it.
    ///
    /// # Errors
    /// If the volume holds no store, a newer one, one that was cut short or one whose first pages are both damaged, or
    /// if the disk fails.
    pub(crate) fn open(volume: Arc<dyn Volume>) -> Result<FixedDisk, OpenError> {
        let disk = FixedDisk::open_rest(volume)?;
        match disk.missing_end() {
            None => Ok(disk),
            Some((_, reason)) => Err(OpenError::Damaged {
                path: disk.path(),
                reason: format!(
                    "{reason}: the file was cut, or the device is smaller than before; copy the whole store back, or \
                     read what is left with `strongback store read` or `strongback store repair {} --into NEW`",
                    disk.path()
                ),
            }),
        }
    }

    /// Opens the store of a volume whose end may be missing, to read what is left.
    ///
    /// # Errors
    /// As for [`FixedDisk::open`], except for a missing end.
    pub(crate) fn open_rest(volume: Arc<dyn Volume>) -> Result<FixedDisk, OpenError> {
        let fails = io_error(volume.clone());
        let size = volume.size().map_err(&fails)?;
        let file = volume.open(Access::Buffered).map_err(&fails)?;
        let (mut valid, mut wrong, mut is_damaged) = (None, Vec::new(), false);
        for offset in COPIES {
            let mut page = vec![0; PAGE_BYTES];
            let found = match file.read_at(&mut page, offset) {
                Ok(read) => Regions::read(&page[..read]),
                // The sector cannot be read: the other copy is in a different place.
                Err(error) => {
                    wrong.push(format!("offset {offset}: {error}"));
                    continue;
                }
            };
            match found {
                FirstPageState::Valid(layout) => valid = valid.or(Some(layout)),
                FirstPageState::Newer(found) => {
                    return Err(OpenError::Newer { path: volume.path(), found, known: layout::known() });
                }
                FirstPageState::Damaged(reason) => {
                    wrong.push(format!("offset {offset}: {reason}"));
                    is_damaged = true;
                }
                FirstPageState::Nothing => {
                    wrong.push(format!("offset {offset}: no first page of a store"));
                    is_damaged = true;
                }
            }
        }
        let damaged = |reason| OpenError::Damaged { path: volume.path(), reason };
        let Some(layout) = valid else {
            return Err(damaged(format!(
                "not a store of a fixed size, or one whose making was cut short ({}); neither copy of its first page \
                 is valid",
                wrong.join("; ")
            )));
        };
        let disk = FixedDisk::with(volume, layout).map_err(fails)?;
        Ok(FixedDisk { is_damaged, present_bytes: size, ..disk })
    }

    /// Returns where the store ends too early, and says so, if it does.
    pub(crate) fn missing_end(&self) -> Option<(u64, String)> {
        let (made, there) = (self.layout.size_bytes, self.present_bytes);
        (there < made).then(|| (there, format!("made with {made} bytes, and only {there} are there")))
    }

    fn with(volume: Arc<dyn Volume>, layout: Regions) -> io::Result<FixedDisk> {
        let (log, buffered) = (volume.open(Access::Log)?, volume.open(Access::Buffered)?);
        let slots = Slots {
            turns: (0..layout.slots).map(|_| AtomicU64::new(0)).collect(),
            by_name: Mutex::default(),
            next_turn: AtomicU64::new(1),
            closed: false.into(),
        };
        let present_bytes = layout.size_bytes;
        Ok(FixedDisk { volume, layout, present_bytes, log, buffered, slots: Arc::new(slots), is_damaged: false })
    }

    /// Begins to create a store in a volume. It overwrites any previous store; the new one exists after
    /// [`FixedDisk::finish`].
    pub(crate) fn begin(volume: Arc<dyn Volume>, layout: Regions) -> io::Result<FixedDisk> {
        let disk = FixedDisk::with(volume, layout)?;
        let mut zeros = Pages::default();
        zeros.resize(PAGE_BYTES);
        zeros.as_mut().fill(0);
        // Invalidate the first pages first: a power cut in between leaves no store, rather than half of one.
        for offset in COPIES {
            disk.log.write_at(&zeros, offset)?;
        }
        disk.log.sync()?;
        let regions = [names::SUPERBLOCK, names::CHECKPOINTS[0], names::CHECKPOINTS[1], names::RECENT];
        for (offset, bytes) in regions.iter().filter_map(|name| disk.layout.region(name)) {
            for page in 0..(bytes / PAGE_BYTES as u64).min(2) {
                disk.log.write_at(&zeros, offset + page * PAGE_BYTES as u64)?;
            }
        }
        disk.log.sync()?;
        Ok(disk)
    }

    /// Writes the first pages, which completes the store.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let page = self.layout.page().ok_or(io::ErrorKind::InvalidInput)?;
        for offset in COPIES {
            self.log.write_at(&Pages::of(&page), offset)?;
            self.log.sync()?;
        }
        // Verify that the page reads back as written.
        let back = read_exact(&*self.buffered, 0, PAGE_BYTES)?;
        if back == page { Ok(()) } else { Err(io::Error::other("the first page does not read back as it was written")) }
    }

    /// Writes damaged copies of the first page again, as the other one is.
    fn mend(&self) -> io::Result<()> {
        if !self.is_damaged {
            return Ok(());
        }
        // Read under the lock: another process may have made another store here.
        let mut pages = Vec::new();
        for offset in COPIES {
            let page = read_exact(&*self.buffered, offset, PAGE_BYTES)?;
            pages.push((offset, Regions::read(&page), page));
        }
        let Some((_, _, whole)) =
            pages.iter().find(|(_, state, _)| *state == FirstPageState::Valid(self.layout.clone()))
        else {
            return Ok(());
        };
        for (offset, state, _) in &pages {
            if matches!(state, FirstPageState::Damaged(_) | FirstPageState::Nothing) {
                self.log.write_at(&Pages::of(whole), *offset)?;
            }
        }
        self.log.sync()
    }

    fn handle(&self, (offset, size_bytes): (u64, u64), access: Access) -> Arc<dyn DiskFile> {
        let file = match access {
            Access::Log => self.log.clone(),
            Access::Buffered => self.buffered.clone(),
        };
        Arc::new(Region { file, offset, size_bytes, owner: None })
    }

    /// Returns the content of a slot as a file, whichever segment owns it.
    pub(crate) fn slot_file(&self, slot: u32) -> Arc<dyn DiskFile> {
        let offset = self.layout.slots_offset + u64::from(slot) * self.layout.segment_bytes;
        self.handle((offset, self.layout.segment_bytes), Access::Buffered)
    }

    fn slot_handle(&self, slot: u32, access: Access) -> Arc<dyn DiskFile> {
        let file = match access {
            Access::Log => self.log.clone(),
            Access::Buffered => self.buffered.clone(),
        };
        let offset = self.layout.slots_offset + u64::from(slot) * self.layout.segment_bytes;
        let turn = self.slots.turns[slot as usize].load(Ordering::SeqCst);
        Arc::new(Region {
            file,
            offset,
            size_bytes: self.layout.segment_bytes,
            owner: Some((self.slots.clone(), slot, turn)),
        })
    }
}

/// Guard that unlocks the volume, and invalidates the handles of remaining readers.
struct VolumeLock {
    slots: Arc<Slots>,
    _volume: Box<dyn Send + Sync>,
}

impl Drop for VolumeLock {
    fn drop(&mut self) {
        self.slots.closed.store(true, Ordering::SeqCst);
    }
}

impl Disk for FixedDisk {
    fn path(&self) -> String {
        self.volume.path()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let Some(volume) = self.volume.lock()? else { return Ok(None) };
        // If it fails, the other copy suffices, `verify` tells it, and the next opening tries again.
        let _ = self.mend();
        Ok(Some(Box::new(VolumeLock { slots: self.slots.clone(), _volume: volume })))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(region) = self.layout.region(name) {
            return Ok(self.handle(region, access));
        }
        let by_name = self.slots.by_name.lock();
        let slot = *by_name.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.slot_handle(slot, access))
    }

    fn create(&self, name: &str, size_bytes: u64, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        if let Some(region) = self.layout.region(name) {
            return if size_bytes <= region.1 { Ok(self.handle(region, access)) } else { Err(full()) };
        }
        if !name.starts_with("segment-") || size_bytes > self.layout.segment_bytes {
            return Err(full());
        }
        let mut by_name = self.slots.by_name.lock();
        let slot = match by_name.get(name) {
            Some(&slot) => slot,
            None => {
                let free = self.slots.turns.iter().position(|turn| turn.load(Ordering::SeqCst) == 0);
                free.ok_or_else(full)? as u32
            }
        };
        self.slots.give(&mut by_name, name, slot);
        Ok(self.slot_handle(slot, access))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let slot = self.slots.by_name.lock().remove(name).ok_or(io::ErrorKind::NotFound)?;
        // The bytes stay readable until the slot is given to another file.
        self.slots.turns[slot as usize].store(0, Ordering::SeqCst);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let fixed = [names::SUPERBLOCK, names::LOG, names::CHECKPOINTS[0], names::CHECKPOINTS[1], names::RECENT];
        let regions = fixed.iter().filter_map(|name| Some(((*name).to_owned(), self.layout.region(name)?.1)));
        let by_name = self.slots.by_name.lock();
        Ok(regions.chain(by_name.keys().map(|name| (name.clone(), self.layout.segment_bytes))).collect())
    }

    fn sync(&self) -> io::Result<()> {
        // There are no names: the checkpoint records which segment has which slot.
        Ok(())
    }

    fn forget_cached(&self) {
        self.volume.forget_cached();
    }

    fn space(&self) -> io::Result<(u64, u64)> {
        Ok((self.layout.size_bytes, self.free_slots() * self.layout.segment_bytes))
    }

    fn identity(&self, _name: &str) -> io::Result<u64> {
        self.volume.identity()
    }

    fn random(&self) -> io::Result<u128> {
        self.volume.random()
    }

    fn layout(&self) -> Option<&Regions> {
        Some(&self.layout)
    }

    fn slot_of(&self, name: &str) -> Option<u32> {
        self.slots.by_name.lock().get(name).copied()
    }

    fn put_into_slot(&self, name: &str, slot: u32) -> bool {
        let mut by_name = self.slots.by_name.lock();
        let is_free = self.slots.turns.get(slot as usize).is_some_and(|turn| turn.load(Ordering::SeqCst) == 0);
        if is_free {
            self.slots.give(&mut by_name, name, slot);
        }
        is_free
    }

    fn free_slots(&self) -> u64 {
        u64::from(self.layout.slots) - self.slots.by_name.lock().len() as u64
    }
}

/// Range of bytes of a volume, as a file.
struct Region {
    file: Arc<dyn DiskFile>,
    offset: u64,
    size_bytes: u64,
    /// Slot of the file, and the turn in which it was assigned; `None` for permanent regions.
    owner: Option<(Arc<Slots>, u32, u64)>,
}

impl Region {
    /// Returns whether the slot was, or may have been, given to another file.
    fn is_gone(&self) -> bool {
        let Some((slots, slot, turn)) = &self.owner else { return false };
        let now = slots.turns[*slot as usize].load(Ordering::SeqCst);
        now != *turn && now != 0 || slots.closed.load(Ordering::SeqCst)
    }
}

impl DiskFile for Region {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let len = (buffer.len() as u64).min(self.size_bytes.saturating_sub(offset)) as usize;
        let read = self.file.read_at(&mut buffer[..len], self.offset + offset)?;
        // What a cut took away is damaged like anything else: its checksums do not match.
        buffer[read..len].fill(0);
        // Check after the read: anything written to the slot since does not belong to this file.
        fence(Ordering::SeqCst);
        if self.is_gone() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "overwritten, or the store was closed"));
        }
        Ok(len)
    }

    fn write_at(&self, bytes: &Pages, offset: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes.as_slice().len() as u64);
        if end.is_none_or(|end| end > self.size_bytes) || self.is_gone() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a write outside its place"));
        }
        self.file.write_at(bytes, self.offset + offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size_bytes)
    }

    fn is_linked(&self) -> bool {
        self.file.is_linked()
    }

    fn truncate(&self, _size_bytes: u64) -> io::Result<u64> {
        Ok(self.size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FixedOptions;
    use crate::disk::volume::MemoryRegion;

    fn disk() -> FixedDisk {
        let fixed = FixedOptions { max_streams: 3, max_channels: 12, ..FixedOptions::new(204_800) };
        FixedDisk::with(Arc::new(MemoryRegion::new(204_800)), fixed.layout(1).expect("a layout")).expect("a disk")
    }

    fn pages(with: u8) -> Pages {
        Pages::of(&[with; PAGE_BYTES])
    }

    fn create(disk: &FixedDisk, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        disk.create(name, disk.layout.segment_bytes, Access::Buffered)
    }

    #[test]
    fn a_slot_that_was_given_to_another_reads_as_gone() {
        let disk = disk();
        let old = create(&disk, "segment-1").expect("a slot");
        old.write_at(&pages(1), 4096).expect("written");
        disk.remove("segment-1").expect("removed");
        let mut byte = [0];
        assert_eq!((old.read_at(&mut byte, 5000).expect("nobody has it"), byte), (1, [1]));
        let new = create(&disk, "segment-2").expect("the same slot");
        assert_eq!(disk.slot_of("segment-2"), Some(0));
        new.write_at(&pages(2), 4096).expect("written");
        assert_eq!(old.read_at(&mut byte, 5000).expect_err("gone").kind(), io::ErrorKind::NotFound);
        assert!(old.write_at(&pages(1), 4096).is_err());
        assert_eq!((new.read_at(&mut byte, 5000).expect("read"), byte), (1, [2]));
        // Nothing is read where another process may write.
        let lock = disk.lock().expect("locked").expect("free");
        drop(lock);
        assert!(new.read_at(&mut byte, 5000).is_err());
    }

    #[test]
    fn files_have_their_places_and_nothing_else() {
        let disk = disk();
        let names = [names::SUPERBLOCK, names::LOG, names::CHECKPOINTS[0], names::CHECKPOINTS[1]];
        let mut files: Vec<Arc<dyn DiskFile>> =
            names.map(|name| disk.open(name, Access::Log).expect("a region")).into();
        files.extend((0..5).map(|n| create(&disk, &format!("segment-{n}")).expect("a slot")));
        assert_eq!(create(&disk, "segment-5").err().expect("no slot is left").kind(), io::ErrorKind::StorageFull);
        assert_eq!(disk.free_slots(), 0);
        assert!(!disk.put_into_slot("segment-9", 3) && !disk.put_into_slot("segment-9", 5));
        // Each file is filled with its number; no file reaches into another.
        for (n, file) in files.iter().enumerate() {
            for at in (0..file.size().expect("a size")).step_by(PAGE_BYTES) {
                file.write_at(&pages(n as u8 + 1), at).expect("written");
            }
            assert!(file.write_at(&pages(99), file.size().expect("a size")).is_err());
        }
        for (n, file) in files.iter().enumerate() {
            let mut bytes = vec![0; file.size().expect("a size") as usize + 1];
            assert_eq!(file.read_at(&mut bytes, 0).expect("read"), bytes.len() - 1);
            assert!(bytes[..bytes.len() - 1].iter().all(|byte| *byte == n as u8 + 1), "file {n}");
        }
        assert!(disk.open("recent", Access::Buffered).is_err() && disk.open("segment-7", Access::Buffered).is_err());
        assert!(disk.create("recent", 4096, Access::Buffered).is_err());
        disk.remove("segment-3").expect("removed");
        assert!(disk.put_into_slot("segment-9", 3) && disk.slot_of("segment-9") == Some(3));
    }
}
