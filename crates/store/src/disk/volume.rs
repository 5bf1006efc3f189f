//! Volumes: a fixed-size range of bytes that holds a whole store. It can be a file, a block device or memory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use super::real::{FILE_MODE, open_file, random_bits, write_in_place};
use super::{Access, DiskFile, Pages};

/// Range of bytes that holds a whole store.
pub(crate) trait Volume: Send + Sync {
    /// Returns the name of the volume for messages.
    fn path(&self) -> String;

    /// Locks the volume for this process until the returned value is dropped. Returns `None` if another process holds
    /// the lock.
    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>>;

    /// Opens the volume for reading and writing.
    fn open(&self, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// Returns the size in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Drops cached contents of the volume.
    fn forget_cached(&self);

    /// Returns a number that differs in a copy of the volume.
    fn identity(&self) -> io::Result<u64>;

    /// Returns 128 random bits.
    fn random(&self) -> io::Result<u128>;
}

/// File or block device.
pub(crate) struct FileVolume {
    path: PathBuf,
}

impl FileVolume {
    pub(crate) fn new(path: &Path) -> FileVolume {
        FileVolume { path: path.to_owned() }
    }
}

/// Returns whether a path names a block device.
pub(crate) fn is_device(path: &Path) -> io::Result<bool> {
    Ok(std::fs::metadata(path)?.file_type().is_block_device())
}

/// Returns the size of a file or device in bytes.
pub(crate) fn size_of(file: &File) -> io::Result<u64> {
    // The metadata of a device gives 0 as its size.
    let mut file = file;
    file.seek(SeekFrom::End(0))
}

impl Volume for FileVolume {
    fn path(&self) -> String {
        self.path.display().to_string()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if is_device(&self.path)? {
            // The kernel refuses a device that is mounted, or that another process has opened in the same way.
            options.custom_flags(rustix::fs::OFlags::EXCL.bits() as i32);
        }
        let file = match options.open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Ok(None),
            other => other?,
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn open(&self, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(open_file(&self.path, OpenOptions::new().read(true).write(true), access)?))
    }

    fn size(&self) -> io::Result<u64> {
        size_of(&File::open(&self.path)?)
    }

    fn forget_cached(&self) {
        if let Ok(file) = File::open(&self.path) {
            // Best effort: there is no other way if the file system ignores it.
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }

    fn identity(&self) -> io::Result<u64> {
        let about = std::fs::metadata(&self.path)?;
        Ok(if about.file_type().is_block_device() { about.rdev() } else { about.ino() })
    }

    fn random(&self) -> io::Result<u128> {
        random_bits()
    }
}

/// Creates a file of exactly this size, allocated and filled with zeros, or overwrites an existing one.
pub(crate) fn allocate(path: &Path, size_bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
    write_in_place(&file);
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size_bytes) {
        // The file system cannot reserve space: writing zeros once allocates it.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            io::copy(&mut io::repeat(0).take(size_bytes), &mut &file)?;
        }
        other => other?,
    }
    file.sync_all()
}

/// Region of memory that holds a store for as long as the region exists. Clones share it.
#[derive(Clone)]
pub struct MemoryRegion {
    bytes: Arc<RwLock<Vec<u8>>>,
    locked: Arc<AtomicBool>,
}

impl std::fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "memory of {} bytes", self.size_bytes())
    }
}

impl MemoryRegion {
    /// Creates a region of zeros.
    pub fn new(size_bytes: usize) -> MemoryRegion {
        MemoryRegion::from_bytes(vec![0; size_bytes])
    }

    /// Creates a region from the result of [`MemoryRegion::to_bytes`], for memory that outlives a process.
    pub fn from_bytes(bytes: Vec<u8>) -> MemoryRegion {
        MemoryRegion { bytes: Arc::new(RwLock::new(bytes)), locked: Arc::default() }
    }

    /// Returns a copy of the current content.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }

    /// Returns the size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.bytes.read().len() as u64
    }

    /// Returns whether all bytes are zero.
    pub(crate) fn is_blank(&self) -> bool {
        self.bytes.read().iter().all(|byte| *byte == 0)
    }
}

/// Guard that unlocks a region.
struct MemoryLock(Arc<AtomicBool>);

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Volume for MemoryRegion {
    fn path(&self) -> String {
        "memory".into()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let taken = self.locked.swap(true, Ordering::AcqRel);
        Ok((!taken).then(|| Box::new(MemoryLock(self.locked.clone())) as Box<dyn Send + Sync>))
    }

    fn open(&self, _access: Access) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(self.clone()))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size_bytes())
    }

    fn forget_cached(&self) {}

    fn identity(&self) -> io::Result<u64> {
        // A copy cannot be distinguished from its original.
        Ok(0)
    }

    fn random(&self) -> io::Result<u128> {
        random_bits()
    }
}

impl DiskFile for MemoryRegion {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.bytes.read();
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let len = buffer.len().min(bytes.len() - from);
        buffer[..len].copy_from_slice(&bytes[from..from + len]);
        Ok(len)
    }

    fn write_at(&self, pages: &Pages, offset: u64) -> io::Result<()> {
        let (mut bytes, pages) = (self.bytes.write(), pages.as_slice());
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let place = from.checked_add(pages.len()).and_then(|end| bytes.get_mut(from..end));
        place.ok_or(io::ErrorKind::StorageFull)?.copy_from_slice(pages);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size_bytes())
    }

    fn truncate(&self, _size_bytes: u64) -> io::Result<u64> {
        Ok(self.size_bytes())
    }
}
