//! Volumes: one run of bytes of a fixed size that holds a whole store: a file, a block device, or memory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use super::real::{FILE_MODE, open_file, random_bits, write_in_place};
use super::{Access, DiskFile, Pages};

/// One run of bytes that holds a whole store.
pub(crate) trait Volume: Send + Sync {
    /// As messages name it.
    fn path(&self) -> String;

    /// Takes it for this process until the returned value is dropped; none: another has it.
    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>>;

    /// Opens it to read and write.
    fn open(&self, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// Its size in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Lets go of what is cached of it.
    fn forget_cached(&self);

    /// What tells it from a copy.
    fn identity(&self) -> io::Result<u64>;

    /// 128 random bits.
    fn random(&self) -> io::Result<u128>;
}

/// A file or a block device.
pub(crate) struct FileVolume {
    path: PathBuf,
}

impl FileVolume {
    pub(crate) fn new(path: &Path) -> FileVolume {
        FileVolume { path: path.to_owned() }
    }
}

/// Whether a path names a block device.
pub(crate) fn is_device(path: &Path) -> io::Result<bool> {
    Ok(std::fs::metadata(path)?.file_type().is_block_device())
}

/// Bytes of a file or device.
pub(crate) fn size_of(file: &File) -> io::Result<u64> {
    // What a device's metadata says of its size is 0.
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
            // The kernel refuses a device that is mounted, or that another claims in the same way.
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
            // A hint only: a file system that ignores it leaves no other way.
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

/// Makes a file of exactly this size, all of it allocated and zeros, or empties one that is there.
pub(crate) fn allocate(path: &Path, size_bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
    write_in_place(&file);
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size_bytes) {
        // The file system cannot reserve: written once, it is there.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            io::copy(&mut io::repeat(0).take(size_bytes), &mut &file)?;
        }
        other => other?,
    }
    file.sync_all()
}

/// A region of memory that holds a store: it lasts as long as the region does. Clones share it.
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
    /// So many bytes, all zeros.
    pub fn new(size_bytes: usize) -> MemoryRegion {
        MemoryRegion::from_bytes(vec![0; size_bytes])
    }

    /// A region with this content: what [`MemoryRegion::to_bytes`] gave, from memory that outlives a process.
    pub fn from_bytes(bytes: Vec<u8>) -> MemoryRegion {
        MemoryRegion { bytes: Arc::new(RwLock::new(bytes)), locked: Arc::default() }
    }

    /// Its content now.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }

    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.bytes.read().len() as u64
    }

    /// Whether nothing was ever written to it.
    pub(crate) fn is_blank(&self) -> bool {
        self.bytes.read().iter().all(|byte| *byte == 0)
    }
}

/// Gives a region free.
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
        // A copy cannot be told from what it is a copy of.
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
