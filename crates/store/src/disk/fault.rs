//! In-memory disk that fails as real ones do. It keeps a live image, which the process sees, and a durable one, which a
//! power cut leaves. Between the two are ordered writes. At a power cut, each write that no sync covers is dropped,
//! kept or torn within its pages, in any combination and order. Reads may be short, interrupted or fail. A failed write
//! may have arrived in part. A failed sync makes nothing durable, and no later sync will.
//!
//! Space: [`FaultDisk::set_capacity_bytes`] sets the capacity, [`FaultDisk::take_space`] how much of it others use, and
//! [`Allocation`] when a file takes its own. Calls fail by their number ([`FaultDisk::fail_call`]) or by the name of
//! the file. The folder can be mounted read-only, be removed, or keep only some names at a power cut.
//!
//! Available to the tests of this crate, and with the feature `fault-disk` to those of dependent crates.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use self::calls::{Call, Failing, Faults};
use self::file::FaultFile;
use self::image::{FileImage, Folder};
use super::volume::Volume;
use super::{Access, Disk, DiskFile};
use crate::{OpenError, Store, StoreOptions};

mod calls;
mod file;
mod image;
#[cfg(test)]
mod tests;

pub use self::calls::Fault;

/// Name that stands for the folder itself where a file is named, to make changes or syncs of names fail.
pub(crate) const FOLDER: &str = ".";

/// Time at which a file takes the space that it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// At creation, or when a write extends the file. If creation fails, an existing file stays.
    #[default]
    Create,
    /// At creation or when the file grows, as with `fallocate`. Creation truncates an existing file, and removes it if
    /// there is no space.
    Reserve,
    /// At the first write of a page, as on a file system that cannot reserve space.
    Write,
    /// At the first sync of a page, as on a file system that writes late, such as NFS.
    Sync,
}

impl Allocation {
    /// Returns whether a created file takes no space yet.
    fn is_late(self) -> bool {
        matches!(self, Allocation::Write | Allocation::Sync)
    }
}

/// Folder in memory. Clones share it.
#[derive(Clone)]
pub struct FaultDisk {
    folder: Arc<Mutex<Folder>>,
    pub(crate) faults: Arc<Faults>,
    power: u64,
}

fn cut() -> io::Error {
    io::Error::other("the power is cut")
}

impl FaultDisk {
    /// Creates an empty disk without faults. `seed` determines what a power cut leaves.
    pub fn new(seed: u64) -> FaultDisk {
        FaultDisk { folder: Arc::default(), faults: Arc::new(Faults::new(seed)), power: 0 }
    }

    /// Opens the store on the disk, or creates one: see [`Store::open`].
    ///
    /// # Errors
    /// Same as [`Store::open`].
    pub fn open_store(&self, options: StoreOptions, now: i64) -> Result<Store, OpenError> {
        Store::open_on(Arc::new(self.clone()), options, now)
    }

    /// Sets the capacity for all files together, in bytes.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.faults.capacity_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Makes others use more of the disk.
    pub fn take_space(&self, bytes: u64) {
        self.faults.others_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Makes others use all of the disk but `bytes`.
    pub fn leave_space(&self, bytes: u64) {
        self.faults.others_bytes.store(0, Ordering::Relaxed);
        self.take_space(self.free_bytes().saturating_sub(bytes));
    }

    /// Frees space that others use (`u64::MAX`: all).
    pub fn give_space(&self, bytes: u64) {
        let others = self.faults.others_bytes.load(Ordering::Relaxed);
        self.faults.others_bytes.store(others.saturating_sub(bytes), Ordering::Relaxed);
    }

    /// Returns the number of free bytes.
    pub fn free_bytes(&self) -> u64 {
        let capacity = self.faults.capacity_bytes.load(Ordering::Relaxed).min(1 << 40);
        let others = self.faults.others_bytes.load(Ordering::Relaxed);
        capacity.saturating_sub(others).saturating_sub(self.used_bytes())
    }

    /// Returns whether space is unlimited.
    fn is_endless(&self) -> bool {
        let others = self.faults.others_bytes.load(Ordering::Relaxed);
        others == 0 && self.faults.capacity_bytes.load(Ordering::Relaxed) == u64::MAX
    }

    /// Returns the bytes that all files take.
    pub fn used_bytes(&self) -> u64 {
        self.folder.lock().taken_bytes()
    }

    /// Sets when files take the space that they need.
    pub fn set_allocation(&self, allocation: Allocation) {
        *self.faults.allocation.lock() = allocation;
    }

    /// Sets whether overwriting needs space until the next sync, as on btrfs and ZFS. Not for use with
    /// [`Allocation::Create`] and [`Allocation::Sync`], where a write takes no space.
    pub fn set_copy_on_write(&self, on: bool) {
        self.faults.copy_on_write.store(on, Ordering::Relaxed);
    }

    /// Sets whether a power cut may keep some of the names that were not synced and drop others.
    pub fn set_names_apart(&self, on: bool) {
        self.folder.lock().apart = on;
    }

    /// Mounts the disk read-only, or writable again.
    pub fn set_read_only(&self, on: bool) {
        self.faults.read_only.store(on, Ordering::Relaxed);
    }

    /// Sets whether the process has no descriptor left.
    pub fn set_out_of_descriptors(&self, on: bool) {
        self.faults.no_descriptors.store(on, Ordering::Relaxed);
    }

    /// Removes the folder with all files. Open files can still be read and written, but have no name.
    pub fn remove_folder(&self) {
        self.faults.removed.store(true, Ordering::Relaxed);
        self.folder.lock().remove();
    }

    /// Creates an empty folder of the same name, if it was removed.
    pub fn make_folder(&self) {
        self.faults.removed.store(false, Ordering::Relaxed);
    }

    /// Makes `times` calls fail with an error (`u64::MAX`: all, until changed), after `before` that succeed. A failed
    /// write arrives in part. A failed sync makes nothing durable, and no later sync will.
    pub fn fail_call(&self, fault: Fault, before: u64, times: u64) {
        self.faults.arm(fault, before, times);
    }

    /// Returns whether calls set to fail by [`FaultDisk::fail_call`] are still outstanding.
    pub fn is_call_to_fail(&self) -> bool {
        self.faults.is_armed()
    }

    /// Returns the number of calls other than reads since the disk was made.
    pub fn calls(&self) -> u64 {
        self.faults.calls()
    }

    /// Makes the next syncs of a file fail (`u64::MAX`: all, until changed). No later sync makes their data durable.
    pub fn fail_syncs(&self, file: &str, times: u64) {
        self.faults.failing.lock().entry(file.to_owned()).or_default().syncs = times;
    }

    /// Makes the next writes to a file fail (`u64::MAX`: all, until changed) without writing anything.
    pub fn fail_writes(&self, file: &str, times: u64) {
        let mut failing = self.faults.failing.lock();
        let failing = failing.entry(file.to_owned()).or_default();
        (failing.writes, failing.torn) = (times, false);
    }

    /// Makes writes fail like [`FaultDisk::fail_writes`], but each writes a part of its pages, or all of them.
    #[cfg(test)]
    pub(crate) fn tear_writes(&self, file: &str, times: u64) {
        self.fail_writes(file, times);
        self.faults.failing.lock().entry(file.to_owned()).or_default().torn = true;
    }

    /// Makes the next reads of a file fail (`u64::MAX`: all, until changed).
    pub fn fail_reads(&self, file: &str, times: u64) {
        self.faults.failing.lock().entry(file.to_owned()).or_default().reads = times;
    }

    /// Returns the number of calls that failed or found no space.
    #[cfg(test)]
    pub(crate) fn errors(&self) -> u64 {
        self.faults.errors.load(Ordering::Relaxed)
    }

    /// Returns whether the power is cut.
    pub(crate) fn is_cut(&self) -> bool {
        self.faults.writes_left.load(Ordering::Relaxed) == 0
    }

    /// Cuts the power, decides which pending changes survive, and returns the disk after the restart.
    pub fn after_cut(&self) -> FaultDisk {
        self.folder.lock().cut(&mut self.faults.random.lock());
        self.faults.writes_left.store(u64::MAX, Ordering::Relaxed);
        self.faults.syncs_left.store(u64::MAX, Ordering::Relaxed);
        self.after_kill()
    }

    /// Kills the process, whose writes all survive, and returns the disk after the restart.
    pub fn after_kill(&self) -> FaultDisk {
        *self.faults.locked.lock() = None;
        let power = self.faults.power.fetch_add(1, Ordering::Relaxed) + 1;
        FaultDisk { folder: self.folder.clone(), faults: self.faults.clone(), power }
    }

    /// Returns the offsets at which a file holds bytes other than zero.
    #[cfg(test)]
    pub(crate) fn written(&self, name: &str) -> Vec<usize> {
        let content = self.content(name).unwrap_or_default();
        content.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(at, _)| at).collect()
    }

    /// Returns the content of a file, as the process sees it.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn content(&self, name: &str) -> Option<Vec<u8>> {
        self.folder.lock().live.get(name).map(|file| file.lock().live.clone())
    }

    /// Clears all faults except a power cut that has happened, and frees all space.
    #[cfg(test)]
    pub(crate) fn heal(&self) {
        self.faults.heal();
        if !self.is_cut() {
            self.faults.writes_left.store(u64::MAX, Ordering::Relaxed);
        }
    }

    fn lies_about(&self, name: &str) -> bool {
        self.faults.lies_about.lock().is_some_and(|prefix| name.starts_with(prefix))
    }

    fn allocation(&self) -> Allocation {
        *self.faults.allocation.lock()
    }

    /// Flips the bits of `with` in a byte of a file: bit rot.
    pub fn rot(&self, name: &str, offset: usize, with: u8) {
        let folder = self.folder.lock();
        if let Some(file) = folder.live.get(name) {
            let mut file = file.lock();
            file.live[offset] ^= with;
            // A byte that was never synced has no durable copy to rot.
            if let Some(byte) = file.durable.get_mut(offset) {
                *byte ^= with;
            }
        }
    }

    fn check_power(&self) -> io::Result<()> {
        let on = self.power == self.faults.power.load(Ordering::Relaxed) && !self.is_cut();
        if on { Ok(()) } else { Err(cut()) }
    }

    /// Counts one write against those left. Fails if it is the one at which the power is cut.
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

    /// Fails a call on names if the folder was removed or a fault is set.
    fn trip(&self, call: Call) -> io::Result<()> {
        self.check_power()?;
        if self.faults.removed.load(Ordering::Relaxed) {
            self.faults.errors.fetch_add(1, Ordering::Relaxed);
            return Err(io::ErrorKind::NotFound.into());
        }
        self.faults.trip(call).map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn handle(&self, name: &str, file: &Arc<Mutex<FileImage>>, access: Access) -> Arc<dyn DiskFile> {
        Arc::new(FaultFile { disk: self.clone(), name: name.to_owned(), file: file.clone(), access })
    }

    /// Returns whether a call on a file fails. `pick` selects the count of its failures.
    fn fails(&self, name: &str, pick: impl Fn(&mut Failing) -> &mut u64) -> bool {
        let fails = {
            let mut failing = self.faults.failing.lock();
            failing.get_mut(name).is_some_and(|f| Failing::take(pick(f)))
        };
        self.faults.errors.fetch_add(u64::from(fails), Ordering::Relaxed);
        fails
    }

    /// Creates a file as the folder of a real disk does: an existing file is truncated before space is taken, and
    /// removed if there is none.
    fn create_in_place(&self, name: &str, size: usize, allocation: Allocation) -> io::Result<Arc<Mutex<FileImage>>> {
        let mut folder = self.folder.lock();
        let there = folder.live.get(name).cloned();
        let file = there.unwrap_or_else(|| {
            let file = Arc::default();
            folder.name(name, &file);
            file
        });
        file.lock().resize(0, allocation);
        drop(folder);
        let space = if allocation == Allocation::Reserve { self.free_bytes() } else { u64::MAX };
        if size as u64 > space {
            self.faults.errors.fetch_add(1, Ordering::Relaxed);
            self.folder.lock().forget(name);
            return Err(Fault::NoSpace.error());
        }
        file.lock().resize(size, allocation);
        Ok(file)
    }
}

/// Guard that releases the folder when the process "ends".
struct FolderLock {
    disk: FaultDisk,
}

impl Drop for FolderLock {
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
        self.trip(Call::Open)?;
        let mut locked = self.faults.locked.lock();
        if locked.is_some() {
            return Ok(None);
        }
        *locked = Some(self.power);
        Ok(Some(Box::new(FolderLock { disk: self.clone() })))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        self.trip(Call::Open)?;
        let folder = self.folder.lock();
        folder.live.get(name).map(|f| self.handle(name, f, access)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&self, name: &str, size_bytes: u64, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        if self.fails(FOLDER, |f| &mut f.writes) {
            return Err(Fault::Io.error());
        }
        let (allocation, size) = (self.allocation(), size_bytes as usize);
        if let Err(error) = self.trip(Call::Create) {
            // An existing file is truncated first, and removed if there is no space. A file that cannot be opened
            // stays.
            if allocation != Allocation::Create && Fault::NoSpace.error().kind() == error.kind() {
                self.create_in_place(name, 0, allocation)?;
                self.folder.lock().forget(name);
            }
            return Err(error);
        }
        self.take_write()?;
        if allocation != Allocation::Create {
            let file = self.create_in_place(name, size, allocation)?;
            return Ok(self.handle(name, &file, access));
        }
        let before = self.folder.lock().live.get(name).map_or(0, |file| file.lock().taken_bytes());
        if size_bytes > self.free_bytes() + before {
            self.faults.errors.fetch_add(1, Ordering::Relaxed);
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = Arc::new(Mutex::new(FileImage::new(size, allocation)));
        self.folder.lock().name(name, &file);
        Ok(self.handle(name, &file, access))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if self.fails(FOLDER, |f| &mut f.writes) {
            return Err(Fault::Io.error());
        }
        self.trip(Call::Remove)?;
        self.take_write()?;
        if self.folder.lock().forget(name) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.trip(Call::List)?;
        let folder = self.folder.lock();
        Ok(folder.live.iter().map(|(n, f)| (n.clone(), f.lock().live.len() as u64)).collect())
    }

    fn sync(&self) -> io::Result<()> {
        self.check_power()?;
        if self.fails(FOLDER, |f| &mut f.syncs) {
            return Err(Fault::Io.error());
        }
        self.trip(Call::SyncFolder)?;
        if self.lies_about(FOLDER) {
            return Ok(());
        }
        self.folder.lock().sync();
        Ok(())
    }

    fn forget_cached(&self) {
        self.folder.lock().live.values().for_each(|file| file.lock().forget_cached());
    }

    fn forget_cached_of(&self, names: &[String]) {
        let folder = self.folder.lock();
        names.iter().filter_map(|name| folder.live.get(name)).for_each(|file| file.lock().forget_cached());
    }

    fn space(&self) -> io::Result<(u64, u64)> {
        if self.faults.removed.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok((self.faults.capacity_bytes.load(Ordering::Relaxed).min(1 << 40), self.free_bytes()))
    }

    fn is_read_only(&self) -> bool {
        self.faults.read_only.load(Ordering::Relaxed)
    }

    fn identity(&self, name: &str) -> io::Result<u64> {
        self.folder.lock().live.get(name).map(|_| 7).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn random(&self) -> io::Result<u128> {
        Ok(self.faults.random.lock().u128(..))
    }
}

/// Name of the file that holds a store of a fixed size.
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
