//! Access to persistent bytes: every read and write of the engine goes through [`Disk`].
//!
//! Files are named without a path. A store is in one folder ([`real`]), or in one [`volume`] of a fixed size, in which
//! [`fixed`] assigns each file its place. For tests, `fault` keeps a live and a durable image, and can cut the power
//! between any two writes.

use std::io;
use std::sync::Arc;

use crate::OpenError;
use crate::disk::layout::Regions;
use crate::model::mutant::{self, Mutant};

pub(crate) mod fixed;
pub(crate) mod layout;
pub(crate) mod names;
pub(crate) mod real;
pub(crate) mod space;
pub(crate) mod unreadable;
pub(crate) mod volume;

#[cfg(any(test, feature = "fault-disk"))]
pub(crate) mod fault;

/// Alignment, in bytes, of every write that must be durable on its own.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Folder of a store.
pub(crate) trait Disk: Send + Sync {
    /// Returns the name of the folder for messages.
    fn path(&self) -> String;

    /// Locks the folder for this process until the returned value is dropped. Returns `None` if another process holds
    /// the lock.
    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>>;

    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// Creates a file whose bytes are allocated and read as zeros, or truncates an existing one.
    fn create(&self, name: &str, size_bytes: u64, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// Removes a file. The removal is durable after [`Disk::sync`].
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns the names and sizes of all files.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Makes the names of files durable.
    fn sync(&self) -> io::Result<()>;

    /// Drops cached contents of the files, as far as the system allows it. After a failed sync, the cache shows data
    /// that is not on the disk and that no later sync will write.
    fn forget_cached(&self);

    /// Drops cached contents of some files, like [`Disk::forget_cached`].
    fn forget_cached_of(&self, _names: &[String]) {
        self.forget_cached();
    }

    /// Returns the size of the file system and the bytes that are free to this process.
    fn space(&self) -> io::Result<(u64, u64)>;

    /// Returns whether the file system reports that it is read-only.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Returns the file's inode, which differs in a copy of the file.
    fn identity(&self, name: &str) -> io::Result<u64>;

    /// Returns 128 random bits.
    fn random(&self) -> io::Result<u128>;

    /// Returns the regions of a store of a fixed size, in which nothing grows and segment files have slots.
    fn layout(&self) -> Option<&Regions> {
        None
    }

    /// Returns the slot of a file, if files have slots.
    fn slot_of(&self, _name: &str) -> Option<u32> {
        None
    }

    /// Assigns a slot to a file at opening. Returns `false` if there is no such slot, or if another file has it.
    fn put_into_slot(&self, _name: &str, _slot: u32) -> bool {
        false
    }

    /// Returns the number of slots without a file.
    fn free_slots(&self) -> u64 {
        0
    }
}

/// Mode in which a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Page-aligned writes that bypass the page cache if possible. Each is durable once `sync` returned.
    Log,
    /// Writes through the page cache.
    Buffered,
}

/// Open file of a [`Disk`].
pub(crate) trait DiskFile: Send + Sync {
    /// Reads from an offset until the buffer is full or the file ends. Returns the number of bytes read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all bytes at an offset. For [`Access::Log`], offset and length are multiples of [`PAGE_BYTES`].
    fn write_at(&self, bytes: &Pages, offset: u64) -> io::Result<()>;

    /// Makes all finished writes of this file durable.
    fn sync(&self) -> io::Result<()>;

    /// Returns the size in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Drops cached contents of the file, as far as the system allows it, so that the next read reads the disk.
    fn forget_cached(&self) {}

    /// Returns whether the file still has a name. Data written to a file without one is lost when it is closed.
    fn is_linked(&self) -> bool {
        true
    }

    /// Sets the size in bytes, if files have sizes of their own. New bytes read as zeros. Returns the resulting size.
    fn truncate(&self, size_bytes: u64) -> io::Result<u64>;
}

/// Reusable buffer at a page-aligned address, as required for writes that bypass the page cache.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Pages {
    /// Sets the length. The content is unspecified but initialised. The memory is kept if it suffices.
    pub(crate) fn resize(&mut self, len: usize) {
        if self.bytes.len() < len + PAGE_BYTES {
            self.bytes = vec![0; len + PAGE_BYTES];
            let address = self.bytes.as_ptr() as usize;
            self.start = address.next_multiple_of(PAGE_BYTES) - address;
        }
        self.len = len;
    }

    /// Copies bytes into a buffer, padded with zeros to whole pages.
    pub(crate) fn of(bytes: &[u8]) -> Pages {
        let mut pages = Pages::default();
        pages.resize(bytes.len().next_multiple_of(PAGE_BYTES));
        pages.as_mut()[..bytes.len()].copy_from_slice(bytes);
        pages.as_mut()[bytes.len()..].fill(0);
        pages
    }

    /// Returns the capacity of the buffer in bytes.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// Returns the bytes for writing.
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// Reads until the buffer is full or the file ends. `read` may return less than requested; it receives the part to fill
/// and the number of bytes read so far.
pub(crate) fn read_full(
    buffer: &mut [u8],
    mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match read(&mut buffer[done..], done) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Reads exactly `len` bytes, or returns an error if the file ends before.
pub(crate) fn read_exact(file: &dyn DiskFile, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; len];
    read_exact_into(file, offset, &mut buffer)?;
    Ok(buffer)
}

/// Reads exactly as many bytes as the buffer holds, like [`read_exact`].
pub(crate) fn read_exact_into(file: &dyn DiskFile, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    let got = file.read_at(buffer, offset)?;
    if got < buffer.len() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("file ends at offset {}, {} bytes wanted at {offset}", offset + got as u64, buffer.len()),
        ));
    }
    Ok(())
}

/// Returns a function that adds the file's path to an error of the disk.
pub(crate) fn io_error(disk: &dyn Disk, file: &str) -> impl FnOnce(std::io::Error) -> OpenError {
    let path = format!("{}/{file}", disk.path());
    move |source| OpenError::Io { path, source }
}

/// Drops cached contents of a file, so that the next read reads the disk.
pub(crate) fn forget_cached(file: &dyn DiskFile) {
    if !mutant::is_active(Mutant::KeepCached) {
        file.forget_cached();
    }
}
