//! A disk in memory that fails as real ones do: it keeps a live image, which the process sees, and a durable
//! one, which a power cut leaves. Between the two lie writes in order; at a cut each of them that no sync
//! covers is dropped, kept, or torn within its pages, in any combination and any order. Reads come short, are
//! interrupted or fail; a write that fails may have arrived in part; a sync that fails makes nothing durable, and no
//! later one will.
//!
//! For tests of this crate, and with the feature `fault-disk` for those of the crates that stand on it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::volume::Volume;
use super::{Access, Disk, DiskFile, PAGE_BYTES, Pages, read_full};
use crate::{OpenError, Store, StoreOptions};

/// What a real disk says when it gives up.
const EIO: i32 = 5;

/// What stands for the folder where a file is named: its names are made, removed and synced.
pub(crate) const FOLDER: &str = ".";

/// What a power cut can still tear apart.
enum Pending {
    Write { offset: usize, bytes: Vec<u8>, access: Access },
    Truncate { size: usize },
}

impl Pending {
    /// Whether a sync of a handle covers it: what goes past the page cache is made durable by itself, and makes nothing
    /// in there durable.
    fn is_of(&self, access: Access) -> bool {
        matches!(self, Pending::Truncate { .. }) || matches!(self, Pending::Write { access: of, .. } if *of == access)
    }
}

#[derive(Default)]
struct FileImage {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
    /// Whether a sync failed: what it was to write is in `live` alone.
    stale: bool,
}

impl FileImage {
    /// A write that no sync covers yet.
    fn write(&mut self, bytes: &[u8], offset: usize, access: Access) {
        let end = offset + bytes.len();
        if self.live.len() < end {
            self.live.resize(end, 0);
        }
        self.live[offset..end].copy_from_slice(bytes);
        self.pending.push(Pending::Write { offset, bytes: bytes.to_vec(), access });
    }
}

/// Names of files, as the folder says.
type Names = BTreeMap<String, Arc<Mutex<FileImage>>>;

#[derive(Default)]
struct Images {
    live: Names,
    durable: Names,
    used_bytes: u64,
}

/// Calls on a file that fail.
#[derive(Default)]
struct Failing {
    syncs: u64,
    writes: u64,
    /// Whether a part of a write that fails arrives, perhaps all of it.
    torn: bool,
    reads: u64,
}

impl Failing {
    /// Takes one off a count; whether there was one.
    fn take(left: &mut u64) -> bool {
        let fails = *left > 0;
        if fails && *left != u64::MAX {
            *left -= 1;
        }
        fails
    }
}

/// What the disk does wrong, and what it counted.
pub(crate) struct Faults {
    /// Writes left before the power is cut: each one takes one.
    pub(crate) writes_left: AtomicU64,
    /// Syncs left before one fails with EIO.
    pub(crate) syncs_left: AtomicU64,
    /// Bytes that fit.
    pub(crate) capacity_bytes: AtomicU64,
    /// Syncs of files whose names begin so do nothing and say they did: a disk that lies.
    pub(crate) lies_about: Mutex<Option<&'static str>>,
    /// Reads give less than they were asked for now and then, or are interrupted.
    pub(crate) short_reads: std::sync::atomic::AtomicBool,
    /// Calls that failed with EIO or for want of space.
    pub(crate) errors: AtomicU64,
    /// Reads and bytes read.
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    /// By name of the file.
    failing: Mutex<BTreeMap<String, Failing>>,
    /// Rises with each cut: what was opened before does nothing any more.
    power: AtomicU64,
    locked: Mutex<Option<u64>>,
    random: Mutex<fastrand::Rng>,
}

/// A folder in memory. Clones share it.
#[derive(Clone)]
pub struct FaultDisk {
    images: Arc<Mutex<Images>>,
    pub(crate) faults: Arc<Faults>,
    power: u64,
}

fn cut() -> io::Error {
    io::Error::other("the power is cut")
}

impl FaultDisk {
    /// An empty disk without faults. `seed` decides what a power cut leaves.
    pub fn new(seed: u64) -> FaultDisk {
        let faults = Faults {
            writes_left: AtomicU64::new(u64::MAX),
            syncs_left: AtomicU64::new(u64::MAX),
            capacity_bytes: AtomicU64::new(u64::MAX),
            lies_about: Mutex::new(None),
            short_reads: false.into(),
            errors: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            failing: Mutex::default(),
            power: AtomicU64::new(0),
            locked: Mutex::new(None),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
        };
        FaultDisk { images: Arc::default(), faults: Arc::new(faults), power: 0 }
    }

    /// Opens the store on it, or makes one: see [`Store::open`].
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_store(&self, options: StoreOptions, now: i64) -> Result<Store, OpenError> {
        Store::open_on(Arc::new(self.clone()), options, now)
    }

    /// Lets no file be made beyond this many bytes of all files together: no space is left.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.faults.capacity_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of all files.
    pub fn used_bytes(&self) -> u64 {
        self.images.lock().used_bytes
    }

    /// Lets the next syncs of a file fail (`u64::MAX`: all until told otherwise). What they were to make
    /// durable never will be by a later one.
    pub fn fail_syncs(&self, file: &str, times: u64) {
        self.faults.failing.lock().entry(file.to_owned()).or_default().syncs = times;
    }

    /// Lets the next writes to a file fail (`u64::MAX`: all until told otherwise), of which nothing arrives.
    pub fn fail_writes(&self, file: &str, times: u64) {
        let mut failing = self.faults.failing.lock();
        let failing = failing.entry(file.to_owned()).or_default();
        (failing.writes, failing.torn) = (times, false);
    }

    /// As [`FaultDisk::fail_writes`], but a part of each arrives, perhaps all of it.
    #[cfg(test)]
    pub(crate) fn tear_writes(&self, file: &str, times: u64) {
        self.fail_writes(file, times);
        self.faults.failing.lock().entry(file.to_owned()).or_default().torn = true;
    }

    /// Lets the next reads of a file fail (`u64::MAX`: all until told otherwise).
    pub fn fail_reads(&self, file: &str, times: u64) {
        self.faults.failing.lock().entry(file.to_owned()).or_default().reads = times;
    }

    /// Calls that failed with EIO or for want of space.
    #[cfg(test)]
    pub(crate) fn errors(&self) -> u64 {
        self.faults.errors.load(Ordering::Relaxed)
    }

    /// Whether a cut has come.
    pub(crate) fn is_cut(&self) -> bool {
        self.faults.writes_left.load(Ordering::Relaxed) == 0
    }

    /// Cuts the power, decides the fate of what was not synced, and gives the disk after it.
    pub fn after_cut(&self) -> FaultDisk {
        let mut images = self.images.lock();
        let mut random = self.faults.random.lock();
        // Names that were not synced: the old folder or the new one, as the file system pleases.
        let names = if random.bool() { images.live.clone() } else { images.durable.clone() };
        for file in names.values() {
            let mut file = file.lock();
            let file = &mut *file;
            let mood = random.u8(0..5);
            let mut all: Vec<Pending> = file.pending.drain(..).collect();
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
                if !keep && mood != 3 {
                    continue;
                }
                match pending {
                    Pending::Truncate { size } => file.durable.resize(size, 0),
                    Pending::Write { offset, bytes, .. } => {
                        let end = offset + bytes.len();
                        if file.durable.len() < end {
                            file.durable.resize(end, 0);
                        }
                        // Torn: any of its sectors arrived, in any order.
                        for (n, sector) in bytes.chunks(512).enumerate() {
                            if keep || random.bool() {
                                let at = offset + n * 512;
                                file.durable[at..at + sector.len()].copy_from_slice(sector);
                            }
                        }
                    }
                }
            }
            file.live = file.durable.clone();
        }
        images.used_bytes = names.values().map(|file| file.lock().live.len() as u64).sum();
        images.live = names.clone();
        images.durable = names;
        drop(images);
        self.faults.writes_left.store(u64::MAX, Ordering::Relaxed);
        self.faults.syncs_left.store(u64::MAX, Ordering::Relaxed);
        *self.faults.locked.lock() = None;
        let power = self.faults.power.fetch_add(1, Ordering::Relaxed) + 1;
        FaultDisk { images: self.images.clone(), faults: self.faults.clone(), power }
    }

    /// Offsets at which a file holds anything but zeros.
    #[cfg(test)]
    pub(crate) fn written(&self, name: &str) -> Vec<usize> {
        let content = self.content(name).unwrap_or_default();
        content.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(at, _)| at).collect()
    }

    /// The bytes of a file, as the process sees them.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn content(&self, name: &str) -> Option<Vec<u8>> {
        self.images.lock().live.get(name).map(|file| file.lock().live.clone())
    }

    /// Lets nothing fail any more, as far as the power is not cut already.
    #[cfg(test)]
    pub(crate) fn heal(&self) {
        self.faults.failing.lock().clear();
        self.set_capacity_bytes(u64::MAX);
        if !self.is_cut() {
            self.faults.writes_left.store(u64::MAX, Ordering::Relaxed);
        }
    }

    fn lies_about(&self, name: &str) -> bool {
        self.faults.lies_about.lock().is_some_and(|prefix| name.starts_with(prefix))
    }

    /// Changes bytes of a file under the store: bit rot.
    pub fn rot(&self, name: &str, offset: usize, with: u8) {
        let images = self.images.lock();
        if let Some(file) = images.live.get(name) {
            let mut file = file.lock();
            file.live[offset] ^= with;
            // What was never synced has no durable byte to rot.
            if let Some(byte) = file.durable.get_mut(offset) {
                *byte ^= with;
            }
        }
    }

    fn check_power(&self) -> io::Result<()> {
        let on = self.power == self.faults.power.load(Ordering::Relaxed) && !self.is_cut();
        if on { Ok(()) } else { Err(cut()) }
    }

    /// Takes one write; the one that finds none left is cut off.
    fn take_write(&self) -> io::Result<()> {
        self.check_power()?;
        self.faults.writes.fetch_add(1, Ordering::Relaxed);
        let left = self.faults.writes_left.load(Ordering::Relaxed);
        if left != u64::MAX {
            self.faults.writes_left.store(left - 1, Ordering::Relaxed);
            if left == 1 {
                return Err(cut());
            }
        }
        Ok(())
    }

    fn handle(&self, name: &str, file: &Arc<Mutex<FileImage>>, access: Access) -> Arc<dyn DiskFile> {
        Arc::new(FaultFile { disk: self.clone(), name: name.to_owned(), file: file.clone(), access })
    }

    /// Whether the call that `pick` counts fails for a file.
    fn fails(&self, name: &str, pick: impl Fn(&mut Failing) -> &mut u64) -> bool {
        let fails = {
            let mut failing = self.faults.failing.lock();
            failing.get_mut(name).is_some_and(|f| Failing::take(pick(f)))
        };
        self.faults.errors.fetch_add(u64::from(fails), Ordering::Relaxed);
        fails
    }
}

/// Releases the folder when the process "ends".
struct Lock {
    disk: FaultDisk,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut locked = self.disk.faults.locked.lock();
        if *locked == Some(self.disk.power) {
            *locked = None;
        }
    }
}

impl Disk for FaultDisk {
    fn path(&self) -> String {
        "memory".into()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let mut locked = self.faults.locked.lock();
        if locked.is_some() {
            return Ok(None);
        }
        *locked = Some(self.power);
        Ok(Some(Box::new(Lock { disk: self.clone() })))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        self.check_power()?;
        let images = self.images.lock();
        images.live.get(name).map(|f| self.handle(name, f, access)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&self, name: &str, size_bytes: u64, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        if self.fails(FOLDER, |f| &mut f.writes) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        self.take_write()?;
        let mut images = self.images.lock();
        let before = images.live.get(name).map_or(0, |f| f.lock().live.len() as u64);
        let used = images.used_bytes.saturating_sub(before);
        if used + size_bytes > self.faults.capacity_bytes.load(Ordering::Relaxed) {
            self.faults.errors.fetch_add(1, Ordering::Relaxed);
            return Err(io::ErrorKind::StorageFull.into());
        }
        images.used_bytes = used + size_bytes;
        let file = Arc::new(Mutex::new(FileImage {
            live: vec![0; size_bytes as usize],
            durable: Vec::new(),
            pending: vec![Pending::Truncate { size: size_bytes as usize }],
            stale: false,
        }));
        images.live.insert(name.to_owned(), file.clone());
        Ok(self.handle(name, &file, access))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if self.fails(FOLDER, |f| &mut f.writes) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        self.take_write()?;
        let mut images = self.images.lock();
        let file = images.live.remove(name).ok_or(io::ErrorKind::NotFound)?;
        images.used_bytes = images.used_bytes.saturating_sub(file.lock().live.len() as u64);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.check_power()?;
        let images = self.images.lock();
        Ok(images.live.iter().map(|(n, f)| (n.clone(), f.lock().live.len() as u64)).collect())
    }

    fn sync(&self) -> io::Result<()> {
        self.check_power()?;
        if self.fails(FOLDER, |f| &mut f.syncs) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        if self.lies_about(FOLDER) {
            return Ok(());
        }
        let mut images = self.images.lock();
        images.durable = images.live.clone();
        Ok(())
    }

    fn forget_cached(&self) {
        for file in self.images.lock().live.values() {
            let mut file = file.lock();
            if std::mem::take(&mut file.stale) {
                let file = &mut *file;
                file.live = file.durable.clone();
                // What no sync was to make durable yet is in the cache still.
                for pending in &file.pending {
                    match pending {
                        Pending::Truncate { size } => file.live.resize(*size, 0),
                        Pending::Write { offset, bytes, .. } => {
                            let end = (offset + bytes.len()).max(file.live.len());
                            file.live.resize(end, 0);
                            file.live[*offset..offset + bytes.len()].copy_from_slice(bytes);
                        }
                    }
                }
            }
        }
    }

    fn space(&self) -> io::Result<(u64, u64)> {
        let capacity = self.faults.capacity_bytes.load(Ordering::Relaxed).min(1 << 40);
        Ok((capacity, capacity.saturating_sub(self.images.lock().used_bytes)))
    }

    fn identity(&self, name: &str) -> io::Result<u64> {
        self.images.lock().live.get(name).map(|_| 7).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn random(&self) -> io::Result<u128> {
        Ok(self.faults.random.lock().u128(..))
    }
}

struct FaultFile {
    disk: FaultDisk,
    name: String,
    file: Arc<Mutex<FileImage>>,
    access: Access,
}

impl DiskFile for FaultFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.check_power()?;
        self.disk.faults.reads.fetch_add(1, Ordering::Relaxed);
        if self.disk.fails(&self.name, |f| &mut f.reads) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let file = self.file.lock();
        let short = self.disk.faults.short_reads.load(Ordering::Relaxed);
        let len = read_full(buffer, |part, done| {
            let from = (offset as usize + done).min(file.live.len());
            let mut len = part.len().min(file.live.len() - from);
            if short && len > 1 {
                let mut random = self.disk.faults.random.lock();
                match random.u8(0..8) {
                    0 => return Err(io::ErrorKind::Interrupted.into()),
                    1 => len = random.usize(1..len),
                    _ => {}
                }
            }
            part[..len].copy_from_slice(&file.live[from..from + len]);
            Ok(len)
        })?;
        self.disk.faults.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }

    fn write_at(&self, bytes: &Pages, offset: u64) -> io::Result<()> {
        let bytes = bytes.as_slice();
        assert!(bytes.len().is_multiple_of(PAGE_BYTES) && offset.is_multiple_of(PAGE_BYTES as u64), "aligned writes");
        if self.disk.fails(&self.name, |f| &mut f.writes) {
            let torn = self.disk.faults.failing.lock().get(&self.name).is_some_and(|f| f.torn);
            let pages = if torn { self.disk.faults.random.lock().usize(..=bytes.len() / PAGE_BYTES) } else { 0 };
            let part = pages * PAGE_BYTES;
            self.file.lock().write(&bytes[..part], offset as usize, self.access);
            return Err(io::Error::from_raw_os_error(EIO));
        }
        // The write at which the power goes off is under way: it may arrive, or a part of it.
        let power = self.disk.take_write();
        let alive =
            power.is_ok() || self.disk.is_cut() && self.disk.power == self.disk.faults.power.load(Ordering::Relaxed);
        if alive {
            self.file.lock().write(bytes, offset as usize, self.access);
        }
        power
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.check_power()?;
        let left = self.disk.faults.syncs_left.load(Ordering::Relaxed);
        if left != u64::MAX {
            if left == 0 {
                self.disk.faults.errors.fetch_add(1, Ordering::Relaxed);
                return Err(io::Error::from_raw_os_error(EIO));
            }
            self.disk.faults.syncs_left.store(left - 1, Ordering::Relaxed);
        }
        if self.disk.fails(&self.name, |f| &mut f.syncs) {
            // As Linux does: the pages count as clean, so no later sync writes them.
            let mut file = self.file.lock();
            file.pending.retain(|pending| !pending.is_of(self.access));
            file.stale = true;
            return Err(io::Error::from_raw_os_error(EIO));
        }
        if self.disk.lies_about(&self.name) {
            return Ok(());
        }
        let mut file = self.file.lock();
        let file = &mut *file;
        for pending in file.pending.extract_if(.., |pending| pending.is_of(self.access)) {
            match pending {
                Pending::Truncate { size } => file.durable.resize(size, 0),
                Pending::Write { offset, bytes, .. } => {
                    let end = offset + bytes.len();
                    if file.durable.len() < end {
                        file.durable.resize(end, 0);
                    }
                    file.durable[offset..end].copy_from_slice(&bytes);
                }
            }
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.lock().live.len() as u64)
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<u64> {
        self.disk.take_write()?;
        let mut file = self.file.lock();
        let size = size_bytes as usize;
        let mut images = self.disk.images.lock();
        images.used_bytes = (images.used_bytes + size_bytes).saturating_sub(file.live.len() as u64);
        file.live.resize(size, 0);
        file.pending.push(Pending::Truncate { size });
        Ok(size_bytes)
    }
}

/// The file of a store of a fixed size on the disk.
pub(crate) const VOLUME: &str = "store";

impl Volume for FaultDisk {
    fn path(&self) -> String {
        Disk::path(self)
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        Disk::lock(self)
    }

    fn open(&self, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        Disk::open(self, VOLUME, access)
    }

    fn size(&self) -> io::Result<u64> {
        Disk::open(self, VOLUME, Access::Buffered)?.size()
    }

    fn forget_cached(&self) {
        Disk::forget_cached(self);
    }

    fn identity(&self) -> io::Result<u64> {
        Disk::identity(self, VOLUME)
    }

    fn random(&self) -> io::Result<u128> {
        Disk::random(self)
    }
}
