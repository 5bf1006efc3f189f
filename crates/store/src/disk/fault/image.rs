//! Contents of a file of the fault disk: the live image that the process sees, the durable one, and the changes
//! between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::Allocation;
use crate::disk::{Access, PAGE_BYTES};

/// Size of the unit that a power cut leaves whole or not at all, in bytes.
const SECTOR_BYTES: usize = 512;

/// Change that a power cut can still tear.
pub(super) enum Pending {
    Write { offset: usize, bytes: Vec<u8>, access: Access },
    Truncate { size: usize },
}

impl Pending {
    /// Returns whether a sync through a handle covers the change. Writes that bypass the page cache are made durable on
    /// their own, and make nothing in the page cache durable.
    fn is_of(&self, access: Access) -> bool {
        matches!(self, Pending::Truncate { .. }) || matches!(self, Pending::Write { access: of, .. } if *of == access)
    }

    /// Applies the change to an image, for those of its sectors that arrive.
    fn apply(&self, image: &mut Vec<u8>, mut arrives: impl FnMut() -> bool) {
        match self {
            Pending::Truncate { size } => image.resize(*size, 0),
            Pending::Write { offset, bytes, .. } => {
                let end = offset + bytes.len();
                if image.len() < end {
                    image.resize(end, 0);
                }
                for (n, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                    if arrives() {
                        let at = offset + n * SECTOR_BYTES;
                        image[at..at + sector.len()].copy_from_slice(sector);
                    }
                }
            }
        }
    }
}

/// Images and pending changes of one file.
#[derive(Default)]
pub(super) struct FileImage {
    pub(super) live: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pending: Vec<Pending>,
    /// Whether a sync failed: the data that it should have written is in `live` only.
    stale: bool,
    /// Pages without space allocated on the disk.
    holes: BTreeSet<usize>,
    /// Pages that were written and not lost by a failed sync.
    written: BTreeSet<usize>,
    /// Pages that take space twice until the next sync, because the file system copies on write.
    twice: BTreeSet<usize>,
}

impl FileImage {
    /// Creates a file of a size that reads as zeros.
    pub(super) fn new(size: usize, allocation: Allocation) -> FileImage {
        let mut file = FileImage::default();
        file.resize(size, allocation);
        file
    }

    /// Returns the bytes of disk space that the file takes.
    pub(super) fn taken_bytes(&self) -> u64 {
        (self.live.len() + self.twice.len() * PAGE_BYTES).saturating_sub(self.holes.len() * PAGE_BYTES) as u64
    }

    /// Sets the size. The change is pending until a sync.
    pub(super) fn resize(&mut self, size: usize, allocation: Allocation) {
        let pages = size.div_ceil(PAGE_BYTES);
        if allocation.is_late() {
            self.holes.extend(self.live.len().div_ceil(PAGE_BYTES)..pages);
        }
        for set in [&mut self.holes, &mut self.written, &mut self.twice] {
            set.split_off(&pages);
        }
        self.live.resize(size, 0);
        self.pending.push(Pending::Truncate { size });
    }

    /// Writes bytes. The change is pending until a sync.
    pub(super) fn write(&mut self, bytes: &[u8], offset: usize, access: Access) {
        let pending = Pending::Write { offset, bytes: bytes.to_vec(), access };
        pending.apply(&mut self.live, || true);
        self.pending.push(pending);
        self.written.extend(offset / PAGE_BYTES..(offset + bytes.len()).div_ceil(PAGE_BYTES));
    }

    /// Allocates space for a write out of `free` bytes. Returns the number of bytes of the write that have space.
    pub(super) fn place(&mut self, bytes: usize, offset: usize, free: u64, cow: bool) -> usize {
        let (mut free, end) = (free, self.live.len().div_ceil(PAGE_BYTES));
        for page in offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES) {
            let again = cow && self.written.contains(&page) && !self.twice.contains(&page);
            if self.holes.contains(&page) || page >= end || again {
                if free < PAGE_BYTES as u64 {
                    return page * PAGE_BYTES - offset;
                }
                free -= PAGE_BYTES as u64;
                self.holes.remove(&page);
                if again {
                    self.twice.insert(page);
                }
            }
        }
        bytes
    }

    /// Returns the bytes that pending writes still need, if space is allocated at the sync.
    pub(super) fn wanted_bytes(&self) -> u64 {
        (self.holes.intersection(&self.written).count() * PAGE_BYTES) as u64
    }

    /// Makes the changes durable that a sync through a handle covers.
    pub(super) fn sync(&mut self, access: Access) {
        for pending in self.pending.extract_if(.., |pending| pending.is_of(access)) {
            pending.apply(&mut self.durable, || true);
        }
        let written = &self.written;
        self.holes.retain(|page| !written.contains(page));
        self.twice.clear();
    }

    /// Fails a sync as Linux does: the pages count as clean, so no later sync writes them.
    pub(super) fn fail_sync(&mut self, access: Access) {
        self.pending.retain(|pending| !pending.is_of(access));
        self.stale = true;
        self.twice.clear();
        let holes = &self.holes;
        self.written.retain(|page| !holes.contains(page));
    }

    /// Makes the live image show what is on the disk, if a sync failed since the last call.
    pub(super) fn forget_cached(&mut self) {
        if std::mem::take(&mut self.stale) {
            self.live = self.durable.clone();
            // Changes that no sync has covered yet are still in the cache.
            self.pending.iter().for_each(|pending| pending.apply(&mut self.live, || true));
        }
    }

    /// Decides at random which changes that were not synced survive a power cut.
    pub(super) fn cut(&mut self, random: &mut fastrand::Rng) {
        let mood = random.u8(0..5);
        let mut all: Vec<Pending> = self.pending.drain(..).collect();
        if mood == 4 {
            // Without a sync between them, a disk may apply changes in any order.
            random.shuffle(&mut all);
        }
        for pending in all {
            let keep = match mood {
                0 => false,
                1 => true,
                _ => random.bool(),
            };
            let torn = mood == 3 && matches!(pending, Pending::Write { .. });
            if keep || torn {
                pending.apply(&mut self.durable, || keep || random.bool());
            } else if mood == 3 {
                pending.apply(&mut self.durable, || true);
            }
        }
        self.live = self.durable.clone();
        self.stale = false;
        let pages = self.live.len().div_ceil(PAGE_BYTES);
        self.holes.split_off(&pages);
        self.written.split_off(&pages);
        self.twice.clear();
    }
}

/// Files by their name in the folder.
pub(super) type Names = BTreeMap<String, Arc<Mutex<FileImage>>>;

/// Change of the folder that no sync has covered.
#[derive(Clone)]
enum Change {
    Name(String, Arc<Mutex<FileImage>>),
    Forget(String),
}

/// Names in the folder: live, durable and pending.
#[derive(Default)]
pub(super) struct Folder {
    pub(super) live: Names,
    durable: Names,
    changes: Vec<Change>,
    /// Whether a power cut may keep some pending names and drop others.
    pub(super) apart: bool,
}

impl Folder {
    /// Returns the bytes of disk space that all files take.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.live.values().map(|file| file.lock().taken_bytes()).sum()
    }

    /// Gives a file a name.
    pub(super) fn name(&mut self, name: &str, file: &Arc<Mutex<FileImage>>) {
        self.live.insert(name.to_owned(), file.clone());
        self.changes.push(Change::Name(name.to_owned(), file.clone()));
    }

    /// Removes a name. Returns `false` if there is none.
    pub(super) fn forget(&mut self, name: &str) -> bool {
        self.changes.push(Change::Forget(name.to_owned()));
        self.live.remove(name).is_some()
    }

    /// Makes the names durable.
    pub(super) fn sync(&mut self) {
        self.durable = self.live.clone();
        self.changes.clear();
    }

    /// Removes the folder with all names. This is durable at once.
    pub(super) fn remove(&mut self) {
        self.live.clear();
        self.sync();
    }

    /// Decides at random which changes of names survive a power cut: the old folder or the new one. If `apart` is set,
    /// any state in between is possible: a prefix of the changes, or each change independently.
    pub(super) fn cut(&mut self, random: &mut fastrand::Rng) {
        let changes = std::mem::take(&mut self.changes);
        let mut names = if random.bool() { self.live.clone() } else { self.durable.clone() };
        if self.apart && random.bool() {
            names = self.durable.clone();
            let to = if random.bool() { random.usize(..=changes.len()) } else { changes.len() };
            let each = to == changes.len();
            for change in changes.into_iter().take(to).filter(|_| !each || random.bool()) {
                match change {
                    Change::Name(name, file) => names.insert(name, file),
                    Change::Forget(name) => names.remove(&name),
                };
            }
        }
        names.values().for_each(|file| file.lock().cut(random));
        self.live = names.clone();
        self.durable = names;
    }
}
