//! Store in a folder of a real file system.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, StatxFlags, statx};

use super::{Access, Disk, DiskFile, PAGE_BYTES, Pages, read_full};
use crate::model::trouble::is_out_of_descriptors;

/// Number of descriptors kept in reserve for when the process has no other left.
const KEPT: usize = 2;

/// Mode of created folders: stored data is readable by its owner only. Existing folders keep their mode.
const FOLDER_MODE: u32 = 0o700;
/// Mode of created files.
pub(super) const FILE_MODE: u32 = 0o600;

/// Folder of a real file system.
pub(crate) struct RealDisk {
    dir: PathBuf,
    /// Handle of the folder, kept open so that its names can be synced even if no descriptor is left.
    handle: File,
    kept: Mutex<Vec<File>>,
}

impl RealDisk {
    /// Opens a folder, and creates it if it does not exist.
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        make_folders(dir)?;
        let handle = File::open(dir)?;
        let disk = RealDisk { dir: dir.to_owned(), handle, kept: Mutex::default() };
        disk.keep_descriptors();
        Ok(disk)
    }

    fn open_with(&self, name: &str, options: &mut OpenOptions, access: Access) -> io::Result<RealFile> {
        let path = self.dir.join(name);
        loop {
            match open_file(&path, options, access) {
                // One of the reserved descriptors was released: try again.
                Err(error) if is_out_of_descriptors(&error) && self.kept.lock().pop().is_some() => {}
                opened => return opened,
            }
        }
    }

    /// Fills the reserve of descriptors, as far as possible.
    fn keep_descriptors(&self) {
        let mut kept = self.kept.lock();
        while kept.len() < KEPT
            && let Ok(one) = self.handle.try_clone()
        {
            kept.push(one);
        }
    }
}

/// Creates a folder and its parents, and makes their names durable.
fn make_folders(dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> =
        dir.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(dir)?;
    for made in missing.into_iter().rev() {
        let above = made.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match File::open(above).and_then(|above| above.sync_all()) {
            // A folder that may not be read cannot be synced either.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Opens a file. For [`Access::Log`], opens it a second time to bypass the page cache, if possible.
pub(super) fn open_file(path: &Path, options: &mut OpenOptions, access: Access) -> io::Result<RealFile> {
    let buffered = options.open(path)?;
    if access == Access::Log {
        // Open a second time, so that `create` and `truncate` take effect only once. Some file systems (tmpfs,
        // overlays) refuse direct I/O at open, others only at the first write. The flags are from libc because rustix's
        // `DSYNC` is `O_SYNC` on Linux, which also writes the time of the write: one more write to the file system's
        // journal for each unit.
        match OpenOptions::new().write(true).custom_flags(libc::O_DIRECT | libc::O_DSYNC).open(path) {
            Ok(direct) => return Ok(RealFile::new(buffered, Some(direct))),
            Err(error) if is_out_of_descriptors(&error) => return Err(error),
            Err(_) => {}
        }
    }
    Ok(RealFile::new(buffered, None))
}

/// Disables copy on write for an empty file (btrfs), so that pages are overwritten in place: a copy needs space, and a
/// full disk has none. Such a file has no checksums but ours.
pub(super) fn write_in_place(file: &File) {
    // Most file systems refuse the flag, and do not need it.
    let _ = rustix::fs::ioctl_getflags(file)
        .and_then(|flags| rustix::fs::ioctl_setflags(file, flags | rustix::fs::IFlags::NOCOW));
}

/// Returns 128 bits of the system's random numbers.
pub(crate) fn random_bits() -> io::Result<u128> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}

impl Disk for RealDisk {
    fn path(&self) -> String {
        self.dir.display().to_string()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).open(self.dir.join("lock"))?;
        // An empty file is easily removed by hand, so the folder itself is locked too where possible.
        let handle = self.handle.try_clone()?;
        for (what, must) in [(&file, true), (&handle, false)] {
            match what.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) if must => return Err(error),
                Err(TryLockError::Error(_)) => {}
            }
        }
        Ok(Some(Box::new(FolderLock { handle, _file: file })))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.open_with(name, OpenOptions::new().read(true).write(true), access)?;
        Ok(Arc::new(file))
    }

    fn create(&self, name: &str, size_bytes: u64, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(FILE_MODE);
        let file = self.open_with(name, &mut options, access)?;
        if access == Access::Log {
            write_in_place(&file.buffered);
        }
        if size_bytes > 0 {
            let flags = rustix::fs::FallocateFlags::empty();
            match rustix::fs::fallocate(&file.buffered, flags, 0, size_bytes) {
                Ok(()) => {}
                // The file system cannot reserve space: set the size only. A full disk then fails the write.
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => file.buffered.set_len(size_bytes)?,
                Err(error) => {
                    // Do not leave a partial file behind. The caller must see the error of the reservation.
                    let _ = std::fs::remove_file(self.dir.join(name));
                    return Err(error.into());
                }
            }
        }
        Ok(Arc::new(file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.dir.join(name))
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            let about = entry.metadata()?;
            if let (true, Some(name)) = (about.is_file(), entry.file_name().to_str()) {
                files.push((name.to_owned(), about.len()));
            }
        }
        Ok(files)
    }

    fn sync(&self) -> io::Result<()> {
        self.keep_descriptors();
        self.handle.sync_all()
    }

    fn forget_cached(&self) {
        let names: Vec<String> = self.list().unwrap_or_default().into_iter().map(|(name, _)| name).collect();
        self.forget_cached_of(&names);
    }

    fn forget_cached_of(&self, names: &[String]) {
        for name in names {
            if let Ok(file) = File::open(self.dir.join(name)) {
                // Best effort: there is no other way if the file system ignores it.
                let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
            }
        }
    }

    fn space(&self) -> io::Result<(u64, u64)> {
        let s = rustix::fs::statvfs(&self.dir)?;
        Ok((s.f_blocks * s.f_frsize, s.f_bavail * s.f_frsize))
    }

    fn is_read_only(&self) -> bool {
        rustix::fs::fstatvfs(&self.handle).is_ok_and(|s| s.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
    }

    fn identity(&self, name: &str) -> io::Result<u64> {
        Ok(std::fs::metadata(self.dir.join(name))?.ino())
    }

    fn random(&self) -> io::Result<u128> {
        random_bits()
    }
}

/// Guard that unlocks a folder.
struct FolderLock {
    /// Handle whose lock is shared with other descriptors of the folder that outlive it, so it is unlocked explicitly.
    handle: File,
    _file: File,
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // An error cannot be handled: the lock ends with the process.
        let _ = self.handle.unlock();
    }
}

/// Open file. For [`Access::Log`] it has a second handle that bypasses the page cache, if the file system allows it.
pub(super) struct RealFile {
    buffered: File,
    direct: Option<File>,
    /// Whether the page cache was synced since the file was opened. A process that was killed may have left data there.
    is_synced: AtomicBool,
}

impl RealFile {
    fn new(buffered: File, direct: Option<File>) -> RealFile {
        RealFile { buffered, direct, is_synced: AtomicBool::new(false) }
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        read_full(buffer, |part, done| self.buffered.read_at(part, offset + done as u64))
    }

    fn write_at(&self, bytes: &Pages, offset: u64) -> io::Result<()> {
        let bytes = bytes.as_slice();
        match &self.direct {
            Some(direct) => {
                debug_assert!(bytes.len().is_multiple_of(PAGE_BYTES) && offset.is_multiple_of(PAGE_BYTES as u64));
                match direct.write_all_at(bytes, offset) {
                    // Refused for its alignment, or altogether (EINVAL): use the page cache and one sync instead.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                        self.buffered.write_all_at(bytes, offset)?;
                        self.buffered.sync_data()
                    }
                    other => other,
                }
            }
            None => self.buffered.write_all_at(bytes, offset),
        }
    }

    fn sync(&self) -> io::Result<()> {
        // Writes through the direct handle were durable when they returned, and so were those that it refused.
        if self.direct.is_some() && self.is_synced.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.buffered.sync_data()?;
        self.is_synced.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.buffered.metadata()?.len())
    }

    fn forget_cached(&self) {
        // Best effort: a file system that ignores it returns cached data.
        let _ = rustix::fs::fadvise(&self.buffered, 0, None, rustix::fs::Advice::DontNeed);
    }

    fn is_linked(&self) -> bool {
        // Request nothing but the link count. Asking for the modification time as well makes Linux 6.13 and later store
        // a fine-grained time with the next write, where writes within a tick share one.
        let about = statx(&self.buffered, c"", AtFlags::EMPTY_PATH, StatxFlags::NLINK);
        match about {
            Ok(about) => about.stx_nlink > 0,
            Err(_) => self.buffered.metadata().is_ok_and(|about| about.nlink() > 0),
        }
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<u64> {
        self.buffered.set_len(size_bytes)?;
        Ok(size_bytes)
    }
}
