//! The store to be read: the files of a folder, or the regions and slots of a fixed size as files of a folder.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::metadata;
use crate::OpenError;
use crate::disk::fixed::FixedDisk;
use crate::disk::names;
use crate::disk::unreadable::UnreadablePages;
use crate::disk::{Disk, DiskFile, PAGE_BYTES};
use crate::repair::overlay::{OverlayVolume, ReadFiles, ReadFolder};
use crate::segment::directory::file_name;
use crate::segment::{GroupHeader, SegmentHeader};

/// Store that is read; writers are kept out until this is dropped.
pub(super) struct Source {
    files: Arc<dyn ReadFiles>,
    /// Where a store of a fixed size ends too early, and how early, if it does.
    pub(super) missing_end: Option<(u64, String)>,
    /// Pages that could not be read.
    pub(super) unreadable: UnreadablePages,
    _lock: Box<dyn Send + Sync>,
}

impl Source {
    /// Opens the files of a store.
    pub(super) fn open(path: &Path) -> Result<Source, OpenError> {
        let fails = |source| OpenError::Io { path: path.display().to_string(), source };
        let in_use = || OpenError::InUse { path: path.display().to_string() };
        if std::fs::metadata(path).map_err(fails)?.is_dir() {
            let files = ReadFolder(path.to_owned());
            let lock = files.lock().map_err(fails)?.ok_or_else(in_use)?;
            let unreadable = UnreadablePages::default();
            return Ok(Source { files: Arc::new(files), missing_end: None, unreadable, _lock: lock });
        }
        let disk = FixedDisk::open_rest(Arc::new(OverlayVolume::new(path).map_err(fails)?))?;
        let missing_end = disk.missing_end();
        let lock = OverlayVolume::new(path).and_then(|volume| crate::disk::volume::Volume::lock(&volume));
        let lock = lock.map_err(fails)?.ok_or_else(in_use)?;
        let unreadable = UnreadablePages::default();
        let slots = slots_of(&disk, &unreadable).map_err(fails)?;
        Ok(Source { files: Arc::new(SlotFiles { disk, slots }), missing_end, unreadable, _lock: lock })
    }

    /// Returns a source of files without keeping writers out.
    #[cfg(test)]
    pub(super) fn of(files: Arc<dyn ReadFiles>) -> Source {
        Source { files, missing_end: None, unreadable: UnreadablePages::default(), _lock: Box::new(()) }
    }

    /// Returns its files.
    pub(super) fn files(&self) -> Arc<dyn ReadFiles> {
        self.files.clone()
    }

    /// Opens a file whose unreadable pages read as invalid bytes, or returns `None` if it is missing.
    pub(super) fn file(&self, name: &str) -> io::Result<Option<Arc<dyn DiskFile>>> {
        match self.files.open(name) {
            Ok(file) => Ok(Some(self.unreadable.around(name, file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the numbers of the segments that have files.
    pub(super) fn segments(&self) -> io::Result<Vec<u64>> {
        let number = |name: &str| name.strip_prefix("segment-")?.strip_suffix(".sbs")?.parse().ok();
        let mut numbers: Vec<u64> = self.files.list()?.iter().filter_map(|(name, _)| number(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns whether any part of a store exists.
    pub(super) fn has_data(&self) -> bool {
        let known = [names::SUPERBLOCK, names::CHECKPOINTS[0], names::CHECKPOINTS[1]];
        let is = |name: &str| known.contains(&name) || name.starts_with("segment-");
        self.files.list().is_ok_and(|files| files.iter().any(|(name, _)| is(name)))
    }
}

/// Store of a fixed size: each slot is the file of the segment in it.
struct SlotFiles {
    disk: FixedDisk,
    slots: BTreeMap<String, u32>,
}

/// Returns which segment each slot holds, according to a checkpoint or to its own pages.
fn slots_of(disk: &FixedDisk, unreadable: &UnreadablePages) -> io::Result<BTreeMap<String, u32>> {
    let Some(layout) = disk.layout() else { return Ok(BTreeMap::new()) };
    let mut slots = BTreeMap::new();
    let mut taken = vec![false; layout.slots as usize];
    for (id, slot) in metadata::slots(disk, unreadable)? {
        if let Some(taken) = taken.get_mut(slot as usize).filter(|taken| !**taken) {
            *taken = true;
            slots.insert(file_name(id), slot);
        }
    }
    for slot in (0..layout.slots).filter(|slot| !taken[*slot as usize]) {
        let file = unreadable.around(&format!("slot {slot}"), disk.slot_file(slot));
        let mut pages = vec![0; 2 * PAGE_BYTES];
        let read = file.read_at(&mut pages, 0)?;
        let (first, second) = pages[..read].split_at(PAGE_BYTES.min(read));
        let of = |id: u64, generation: u64| (layout.generation.wrapping_add(id) == generation).then_some(id);
        let id = SegmentHeader::read(first).ok().and_then(|header| of(header.id, header.generation));
        let id = id.or_else(|| GroupHeader::read(second).ok().and_then(|group| of(group.segment, group.generation)));
        if let Some(id) = id {
            slots.entry(file_name(id)).or_insert(slot);
        }
    }
    Ok(slots)
}

impl ReadFiles for SlotFiles {
    fn path(&self) -> String {
        self.disk.path()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        Ok(Some(Box::new(())))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        match self.slots.get(name) {
            Some(slot) => Ok(self.disk.slot_file(*slot)),
            None => self.disk.open(name, crate::disk::Access::Log),
        }
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let bytes = self.disk.layout().map_or(0, |layout| layout.segment_bytes);
        let mut files = self.disk.list()?;
        files.extend(self.slots.keys().map(|name| (name.clone(), bytes)));
        Ok(files)
    }

    fn space(&self) -> io::Result<(u64, u64)> {
        self.disk.space()
    }
}
