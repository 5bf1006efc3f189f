//! Open file of the fault disk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::calls::{Call, Failing, Fault};
use super::image::FileImage;
use super::{Allocation, FaultDisk};
use crate::disk::{Access, DiskFile, PAGE_BYTES, Pages, read_full};

/// Handle of a file.
pub(super) struct FaultFile {
    pub(super) disk: FaultDisk,
    pub(super) name: String,
    pub(super) file: Arc<Mutex<FileImage>>,
    pub(super) access: Access,
}

impl FaultFile {
    /// Draws at random how many bytes of a write arrive, in whole pages.
    fn some_pages(&self, bytes: usize) -> usize {
        self.disk.faults.random.lock().usize(..=bytes / PAGE_BYTES) * PAGE_BYTES
    }

    /// Returns how many bytes of a write have space.
    fn place(&self, bytes: usize, offset: usize) -> usize {
        if self.disk.allocation() == Allocation::Sync {
            return bytes;
        }
        let free = if self.disk.is_endless() { u64::MAX } else { self.disk.free_bytes() };
        let cow = self.disk.faults.copy_on_write.load(Ordering::Relaxed);
        self.file.lock().place(bytes, offset, free, cow)
    }
}

impl DiskFile for FaultFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.check_power()?;
        self.disk.faults.reads.fetch_add(1, Ordering::Relaxed);
        if self.disk.fails(&self.name, |f| &mut f.reads) {
            return Err(Fault::Io.error());
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
        let offset = offset as usize;
        assert!(bytes.len().is_multiple_of(PAGE_BYTES) && offset.is_multiple_of(PAGE_BYTES), "aligned writes");
        if self.disk.fails(&self.name, |f| &mut f.writes) {
            let torn = self.disk.faults.failing.lock().get(&self.name).is_some_and(|f: &Failing| f.torn);
            let part = if torn { self.some_pages(bytes.len()) } else { 0 };
            self.file.lock().write(&bytes[..part], offset, self.access);
            return Err(Fault::Io.error());
        }
        if let Some(fault) = self.disk.faults.trip(Call::Write) {
            let part = if fault == Fault::ReadOnly { 0 } else { self.some_pages(bytes.len()) };
            let part = self.place(part, offset);
            self.file.lock().write(&bytes[..part], offset, self.access);
            return Err(fault.error());
        }
        let part = self.place(bytes.len(), offset);
        if part < bytes.len() {
            self.disk.faults.errors.fetch_add(1, Ordering::Relaxed);
            self.file.lock().write(&bytes[..part], offset, self.access);
            return Err(Fault::NoSpace.error());
        }
        // The write at which the power is cut is in flight: it may arrive as a whole or in part.
        let power = self.disk.take_write();
        let alive =
            power.is_ok() || self.disk.is_cut() && self.disk.power == self.disk.faults.power.load(Ordering::Relaxed);
        if alive {
            self.file.lock().write(bytes, offset, self.access);
        }
        power
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.check_power()?;
        let left = self.disk.faults.syncs_left.load(Ordering::Relaxed);
        if left != u64::MAX {
            if left == 0 {
                self.disk.faults.errors.fetch_add(1, Ordering::Relaxed);
                return Err(Fault::Io.error());
            }
            self.disk.faults.syncs_left.store(left - 1, Ordering::Relaxed);
        }
        if self.disk.fails(&self.name, |f| &mut f.syncs) {
            self.file.lock().fail_sync(self.access);
            return Err(Fault::Io.error());
        }
        if let Some(fault) = self.disk.faults.trip(Call::Sync) {
            self.file.lock().fail_sync(self.access);
            return Err(fault.error());
        }
        if self.disk.lies_about(&self.name) {
            return Ok(());
        }
        if self.disk.allocation() == Allocation::Sync {
            let free = self.disk.free_bytes();
            let mut file = self.file.lock();
            if file.wanted_bytes() > free {
                self.disk.faults.errors.fetch_add(1, Ordering::Relaxed);
                file.fail_sync(self.access);
                return Err(Fault::NoSpace.error());
            }
        }
        self.file.lock().sync(self.access);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.lock().live.len() as u64)
    }

    fn forget_cached(&self) {
        self.file.lock().forget_cached();
    }

    fn is_linked(&self) -> bool {
        let folder = self.disk.folder.lock();
        folder.live.get(&self.name).is_some_and(|file| Arc::ptr_eq(file, &self.file))
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<u64> {
        let grown = size_bytes.saturating_sub(self.size()?);
        if let Some(fault) = self.disk.faults.trip(if grown > 0 { Call::Grow } else { Call::Shrink }) {
            return Err(fault.error());
        }
        let allocation = self.disk.allocation();
        if allocation == Allocation::Reserve && grown > self.disk.free_bytes() {
            self.disk.faults.errors.fetch_add(1, Ordering::Relaxed);
            return Err(Fault::NoSpace.error());
        }
        self.disk.take_write()?;
        self.file.lock().resize(size_bytes as usize, allocation);
        Ok(size_bytes)
    }
}
