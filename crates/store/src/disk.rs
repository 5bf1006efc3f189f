//! The one way to bytes that survive: every read and write of the engine goes through [`Disk`].
//!
//! Files are named without a path: a store lives in one folder ([`real`]), or in one [`volume`] of a fixed size, in
//! which [`fixed`] gives each file its place. For the tests `fault` keeps a live and a durable image and cuts between
//! any two writes.

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

/// Unit of alignment of every write that must be durable by itself.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The folder of a store.
pub(crate) trait Disk: Send + Sync {
    /// The folder as messages name it.
    fn path(&self) -> String;

    /// Takes the folder for this process until the returned value is dropped; none: another has it.
    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>>;

    /// Opens an existing file to read and write.
    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// Makes a file of a size whose bytes are allocated and read as zeros, or empties an existing one.
    fn create(&self, name: &str, size_bytes: u64, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// Removes a file. Durable after [`Disk::sync`].
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Names and sizes of all files.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Makes names durable.
    fn sync(&self) -> io::Result<()>;

    /// Lets go of what is cached of the files, as far as that can be had: after a failed sync the cache shows
    /// what the disk does not hold and no later sync writes.
    fn forget_cached(&self);

    /// As [`Disk::forget_cached`], of some of the files alone.
    fn forget_cached_of(&self, _names: &[String]) {
        self.forget_cached();
    }

    /// Size of the file system in bytes, and what of it is free to this process.
    fn space(&self) -> io::Result<(u64, u64)>;

    /// Whether the file system says that it can be read only.
    fn is_read_only(&self) -> bool {
        false
    }

    /// What tells a file from a copy of it: its inode.
    fn identity(&self, name: &str) -> io::Result<u64>;

    /// 128 random bits.
    fn random(&self) -> io::Result<u128>;

    /// Where everything lies, if the size is fixed: then nothing grows, and files that come and go have slots.
    fn layout(&self) -> Option<&Regions> {
        None
    }

    /// The slot of a file, where files have slots.
    fn slot_of(&self, _name: &str) -> Option<u32> {
        None
    }

    /// Says, at opening, that a file has a slot. False: there is no such slot, or another has it.
    fn put_into_slot(&self, _name: &str, _slot: u32) -> bool {
        false
    }

    /// Slots that no file has.
    fn free_slots(&self) -> u64 {
        0
    }
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Page-aligned writes, each durable once `sync` returned: past the page cache where that works.
    Log,
    /// Through the page cache.
    Buffered,
}

/// An open file of a [`Disk`].
pub(crate) trait DiskFile: Send + Sync {
    /// Reads from an offset until the buffer is full or the file ends; returns how many bytes it read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all bytes at an offset. For [`Access::Log`] both are multiples of [`PAGE_BYTES`].
    fn write_at(&self, bytes: &Pages, offset: u64) -> io::Result<()>;

    /// Makes all finished writes of this file durable.
    fn sync(&self) -> io::Result<()>;

    /// Size in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Lets go of what is cached of it, as far as that can be had: the next read is of the disk.
    fn forget_cached(&self) {}

    /// Whether it has a name still: what is written to one without goes when it is closed.
    fn is_linked(&self) -> bool {
        true
    }

    /// Sets the size in bytes, where files have sizes of their own; a larger one reads as zeros. Returns the size
    /// that it has.
    fn truncate(&self, size_bytes: u64) -> io::Result<u64>;
}

/// Bytes at a page-aligned address, which writes past the page cache need. Kept and reused.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Pages {
    /// Room for this many bytes, content unspecified but initialised; keeps its memory if it suffices.
    pub(crate) fn resize(&mut self, len: usize) {
        if self.bytes.len() < len + PAGE_BYTES {
            self.bytes = vec![0; len + PAGE_BYTES];
            let address = self.bytes.as_ptr() as usize;
            self.start = address.next_multiple_of(PAGE_BYTES) - address;
        }
        self.len = len;
    }

    /// These bytes, padded with zeros to whole pages.
    pub(crate) fn of(bytes: &[u8]) -> Pages {
        let mut pages = Pages::default();
        pages.resize(bytes.len().next_multiple_of(PAGE_BYTES));
        pages.as_mut()[..bytes.len()].copy_from_slice(bytes);
        pages.as_mut()[bytes.len()..].fill(0);
        pages
    }

    /// Bytes of memory that it holds.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// The bytes, to change.
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// Reads until the buffer is full or the file ends, however little a call of `read` gives: it is given what is to be
/// filled and how many bytes came before.
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

/// Reads exactly `len` bytes or says that the file ends before.
pub(crate) fn read_exact(file: &dyn DiskFile, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; len];
    read_exact_into(file, offset, &mut buffer)?;
    Ok(buffer)
}

/// As [`read_exact`], into memory that is there.
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

/// Names the file in an error of the disk.
pub(crate) fn io_error(disk: &dyn Disk, file: &str) -> impl FnOnce(std::io::Error) -> OpenError {
    let path = format!("{}/{file}", disk.path());
    move |source| OpenError::Io { path, source }
}

/// Lets the next read of a file be of the disk.
pub(crate) fn forget_cached(file: &dyn DiskFile) {
    if !mutant::is_active(Mutant::KeepCached) {
        file.forget_cached();
    }
}
