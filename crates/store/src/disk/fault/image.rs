//! What a file of the fault disk holds: what the process sees, what is durable, and what lies between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::Allocation;
use crate::disk::{Access, PAGE_BYTES};

/// Bytes of what a power cut leaves whole or not at all.
const SECTOR_BYTES: usize = 512;

/// What a power cut can still tear apart.
pub(super) enum Pending {
    Write { offset: usize, bytes: Vec<u8>, access: Access },
    Truncate { size: usize },
}

impl Pending {
    /// Whether a sync of a handle covers it: what goes past the page cache is made durable by itself, and makes nothing
    /// in there durable.
    fn is_of(&self, access: Access) -> bool {
        matches!(self, Pending::Truncate { .. }) || matches!(self, Pending::Write { access: of, .. } if *of == access)
    }

    /// Brings those of its sectors that arrive into an image.
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

/// One file.
#[derive(Default)]
pub(super) struct FileImage {
    pub(super) live: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pending: Vec<Pending>,
    /// Whether a sync failed: what it was to write is in `live` alone.
    stale: bool,
    /// Pages that have no place on the disk.
    holes: BTreeSet<usize>,
    /// Pages that hold what was written to them.
    written: BTreeSet<usize>,
    /// Pages that lie on the disk twice until the next sync: where nothing is written over.
    twice: BTreeSet<usize>,
}

impl FileImage {
    /// A file of a size that reads as zeros.
    pub(super) fn new(size: usize, allocation: Allocation) -> FileImage {
        let mut file = FileImage::default();
        file.resize(size, allocation);
        file
    }

    /// Bytes that it takes of the disk.
    pub(super) fn taken_bytes(&self) -> u64 {
        (self.live.len() + self.twice.len() * PAGE_BYTES).saturating_sub(self.holes.len() * PAGE_BYTES) as u64
    }

    /// Sets the size, which no sync covers yet.
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

    /// A write that no sync covers yet.
    pub(super) fn write(&mut self, bytes: &[u8], offset: usize, access: Access) {
        let pending = Pending::Write { offset, bytes: bytes.to_vec(), access };
        pending.apply(&mut self.live, || true);
        self.pending.push(pending);
        self.written.extend(offset / PAGE_BYTES..(offset + bytes.len()).div_ceil(PAGE_BYTES));
    }

    /// Bytes of a write that find a place among so many free ones, which they take.
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

    /// Bytes that what waits for a sync still needs, where space is taken as late as that.
    pub(super) fn wanted_bytes(&self) -> u64 {
        (self.holes.intersection(&self.written).count() * PAGE_BYTES) as u64
    }

    /// Makes durable what a sync through a handle covers.
    pub(super) fn sync(&mut self, access: Access) {
        for pending in self.pending.extract_if(.., |pending| pending.is_of(access)) {
            pending.apply(&mut self.durable, || true);
        }
        let written = &self.written;
        self.holes.retain(|page| !written.contains(page));
        self.twice.clear();
    }

    /// A sync that fails, as Linux does: the pages count as clean, so no later sync writes them.
    pub(super) fn fail_sync(&mut self, access: Access) {
        self.pending.retain(|pending| !pending.is_of(access));
        self.stale = true;
        self.twice.clear();
        let holes = &self.holes;
        self.written.retain(|page| !holes.contains(page));
    }

    /// Shows what the disk holds, if a sync failed since it last did.
    pub(super) fn forget_cached(&mut self) {
        if std::mem::take(&mut self.stale) {
            self.live = self.durable.clone();
            // What no sync was to make durable yet is in the cache still.
            self.pending.iter().for_each(|pending| pending.apply(&mut self.live, || true));
        }
    }

    /// Decides the fate of what was not synced.
    pub(super) fn cut(&mut self, random: &mut fastrand::Rng) {
        let mood = random.u8(0..5);
        let mut all: Vec<Pending> = self.pending.drain(..).collect();
        if mood == 4 {
            // Without a sync between them a disk may take them in any order.
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

/// Names of files, as the folder says.
pub(super) type Names = BTreeMap<String, Arc<Mutex<FileImage>>>;

/// A change of the folder that no sync covers.
#[derive(Clone)]
enum Change {
    Name(String, Arc<Mutex<FileImage>>),
    Forget(String),
}

/// The folder.
#[derive(Default)]
pub(super) struct Folder {
    pub(super) live: Names,
    durable: Names,
    changes: Vec<Change>,
    /// Whether a power cut keeps some names and not others.
    pub(super) apart: bool,
}

impl Folder {
    /// Bytes that all files take.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.live.values().map(|file| file.lock().taken_bytes()).sum()
    }

    /// Gives a file a name.
    pub(super) fn name(&mut self, name: &str, file: &Arc<Mutex<FileImage>>) {
        self.live.insert(name.to_owned(), file.clone());
        self.changes.push(Change::Name(name.to_owned(), file.clone()));
    }

    /// Removes a name; false: there is none.
    pub(super) fn forget(&mut self, name: &str) -> bool {
        self.changes.push(Change::Forget(name.to_owned()));
        self.live.remove(name).is_some()
    }

    /// Makes names durable.
    pub(super) fn sync(&mut self) {
        self.durable = self.live.clone();
        self.changes.clear();
    }

    /// Removes the folder with all names: durable at once.
    pub(super) fn remove(&mut self) {
        self.live.clear();
        self.sync();
    }

    /// Decides the fate of names that were not synced: the old folder or the new one, as the file system pleases, and
    /// where they stand apart anything between: as far as some change, or each for itself.
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
