//! A disk in memory that fails as real ones do: it keeps a live image, which the process sees, and a durable
//! one, which a power cut leaves. Between the two lie writes in order; at a cut each of them that no sync
//! covers is dropped, kept, or torn within its pages, in any combination and any order. Reads come short, are
//! interrupted or fail; a write that fails may have arrived in part; a sync that fails makes nothing durable, and no
//! later one will.
//!
//! Space: [`FaultDisk::set_capacity_bytes`] says how much there is, [`FaultDisk::take_space`] how much of it others have,
//! and [`Allocation`] when a file takes its own. Calls fail by their number ([`FaultDisk::fail_call`]) or by the name of
//! the file. The folder can be mounted to be read only, be removed, or keep some names and not others at a power cut.
//!
//! For tests of this crate, and with the feature `fault-disk` for those of the crates that stand on it.

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

/// What stands for the folder where a file is named: its names are made, removed and synced.
pub(crate) const FOLDER: &str = ".";

/// When a file takes the space that it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// When it is made or grows by a write; one that cannot be made leaves what was there before.
    #[default]
    Create,
    /// When it is made or grows, as `fallocate` does. Making it empties what was there, and removes it if there is no
    /// space.
    Reserve,
    /// When a page is first written: a file system that cannot reserve.
    Write,
    /// When a page is first synced: one that writes late, such as NFS.
    Sync,
}

impl Allocation {
    /// Whether a file that is made takes nothing yet.
    fn is_late(self) -> bool {
        matches!(self, Allocation::Write | Allocation::Sync)
    }
}

/// A folder in memory. Clones share it.
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
    /// An empty disk without faults. `seed` decides what a power cut leaves.
    pub fn new(seed: u64) -> FaultDisk {
        FaultDisk { folder: Arc::default(), faults: Arc::new(Faults::new(seed)), power: 0 }
    }

    /// Opens the store on it, or makes one: see [`Store::open`].
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_store(&self, options: StoreOptions, now: i64) -> Result<Store, OpenError> {
        Store::open_on(Arc::new(self.clone()), options, now)
    }

    /// Says how many bytes of all files together fit: beyond, no space is left.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.faults.capacity_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Lets others take so many more bytes of the disk.
    pub fn take_space(&self, bytes: u64) {
        self.faults.others_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Lets others take all of the disk but so many bytes.
    pub fn leave_space(&self, bytes: u64) {
        self.faults.others_bytes.store(0, Ordering::Relaxed);
        self.take_space(self.free_bytes().saturating_sub(bytes));
    }

    /// Lets others give back so many bytes of what they took (`u64::MAX`: all).
    pub fn give_space(&self, bytes: u64) {
        let others = self.faults.others_bytes.load(Ordering::Relaxed);
        self.faults.others_bytes.store(others.saturating_sub(bytes), Ordering::Relaxed);
    }

    /// Bytes that are free.
    pub fn free_bytes(&self) -> u64 {
        let capacity = self.faults.capacity_bytes.load(Ordering::Relaxed).min(1 << 40);
        let others = self.faults.others_bytes.load(Ordering::Relaxed);
        capacity.saturating_sub(others).saturating_sub(self.used_bytes())
    }

    /// Whether there is all the space that anybody asks for.
    fn is_endless(&self) -> bool {
        let others = self.faults.others_bytes.load(Ordering::Relaxed);
        others == 0 && self.faults.capacity_bytes.load(Ordering::Relaxed) == u64::MAX
    }

    /// Bytes of all files.
    pub fn used_bytes(&self) -> u64 {
        self.folder.lock().taken_bytes()
    }

    /// Says when files take the space that they need.
    pub fn set_allocation(&self, allocation: Allocation) {
        *self.faults.allocation.lock() = allocation;
    }

    /// Whether what is written over what was written needs space until the next sync, as on btrfs and ZFS. Not together
    /// with [`Allocation::Create`] and [`Allocation::Sync`], where a write takes none.
    pub fn set_copy_on_write(&self, on: bool) {
        self.faults.copy_on_write.store(on, Ordering::Relaxed);
    }

    /// Whether a power cut keeps some of the names that were not synced and not others.
    pub fn set_names_apart(&self, on: bool) {
        self.folder.lock().apart = on;
    }

    /// Mounts it so that it can be read only, or to be written again.
    pub fn set_read_only(&self, on: bool) {
        self.faults.read_only.store(on, Ordering::Relaxed);
    }

    /// Whether the process has all descriptors that it may have.
    pub fn set_out_of_descriptors(&self, on: bool) {
        self.faults.no_descriptors.store(on, Ordering::Relaxed);
    }

    /// Removes the folder with all files. What is open can be read and written still, and is nowhere.
    pub fn remove_folder(&self) {
        self.faults.removed.store(true, Ordering::Relaxed);
        self.folder.lock().remove();
    }

    /// Makes a folder of the same name, which is empty, if it was removed.
    pub fn make_folder(&self) {
        self.faults.removed.store(false, Ordering::Relaxed);
    }

    /// Lets calls fail that can: `times` of them (`u64::MAX`: all until told otherwise) after `before` that do not fail.
    /// Of a write that fails a part arrives; a sync that fails makes nothing durable, and no later one will.
    pub fn fail_call(&self, fault: Fault, before: u64, times: u64) {
        self.faults.arm(fault, before, times);
    }

    /// Whether calls are still to fail of those that [`FaultDisk::fail_call`] named.
    pub fn is_call_to_fail(&self) -> bool {
        self.faults.is_armed()
    }

    /// Calls other than reads since the disk was made.
    pub fn calls(&self) -> u64 {
        self.faults.calls()
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

    /// Calls that failed, or found no space.
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
        self.folder.lock().cut(&mut self.faults.random.lock());
        self.faults.writes_left.store(u64::MAX, Ordering::Relaxed);
        self.faults.syncs_left.store(u64::MAX, Ordering::Relaxed);
        self.after_kill()
    }

    /// Kills the process: what it wrote is there, and gives the disk after it.
    pub fn after_kill(&self) -> FaultDisk {
        *self.faults.locked.lock() = None;
        let power = self.faults.power.fetch_add(1, Ordering::Relaxed) + 1;
        FaultDisk { folder: self.folder.clone(), faults: self.faults.clone(), power }
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
        self.folder.lock().live.get(name).map(|file| file.lock().live.clone())
    }

    /// Lets nothing fail any more, as far as the power is not cut already, and gives all space back.
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

    /// Changes bytes of a file under the store: bit rot.
    pub fn rot(&self, name: &str, offset: usize, with: u8) {
        let folder = self.folder.lock();
        if let Some(file) = folder.live.get(name) {
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

    /// Whether a call on names fails: that the folder was removed, or as it was told to.
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

    /// Whether the call that `pick` counts fails for a file.
    fn fails(&self, name: &str, pick: impl Fn(&mut Failing) -> &mut u64) -> bool {
        let fails = {
            let mut failing = self.faults.failing.lock();
            failing.get_mut(name).is_some_and(|f| Failing::take(pick(f)))
        };
        self.faults.errors.fetch_add(u64::from(fails), Ordering::Relaxed);
        fails
    }

    /// As `create` of a folder of the real disk: what is there is emptied before there is space for what comes, and
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

/// Releases the folder when the process "ends".
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
            // What is there is emptied first, and removed if there is no space; a file that cannot be opened stays.
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
