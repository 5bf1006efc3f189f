//! A disk that is read and never written: writes stay in memory, page by page, over the original files.
//!
//! With it, a store that is on read-only media, or that must not change, opens as any other does, recovery included.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::layout::{COPIES, FirstPageState, Regions};
use crate::disk::names;
use crate::disk::real::random_bits;
use crate::disk::volume::{Volume, size_of};
use crate::disk::{Access, Disk, DiskFile, PAGE_BYTES, Pages, read_full};
use crate::log::superblock::{self, Superblock};

const PAGE: u64 = PAGE_BYTES as u64;

fn read_only() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "opened to read")
}

/// File that is read in place.
pub(crate) struct ReadFile(pub(crate) File);

impl DiskFile for ReadFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        read_full(buffer, |part, done| self.0.read_at(part, offset + done as u64))
    }

    fn write_at(&self, _bytes: &Pages, _offset: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        size_of(&self.0)
    }

    fn truncate(&self, _size_bytes: u64) -> io::Result<u64> {
        Err(read_only())
    }
}

/// Data written over a file.
#[derive(Debug, Default)]
struct Written {
    /// Current size.
    size_bytes: u64,
    /// Bytes of the underlying file that are still valid.
    base_bytes: u64,
    pages: HashMap<u64, Box<[u8]>>,
}

/// File, together with the data written over it.
struct OverlayFile {
    base: Option<Arc<dyn DiskFile>>,
    written: Arc<Mutex<Written>>,
}

impl OverlayFile {
    /// Returns the current content of a page.
    fn page(&self, written: &Written, number: u64) -> io::Result<Box<[u8]>> {
        if let Some(page) = written.pages.get(&number) {
            return Ok(page.clone());
        }
        let mut page = vec![0; PAGE_BYTES].into_boxed_slice();
        let len = written.base_bytes.saturating_sub(number * PAGE).min(PAGE) as usize;
        if let Some(base) = &self.base {
            base.read_at(&mut page[..len], number * PAGE)?;
        }
        Ok(page)
    }
}

impl DiskFile for OverlayFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let written = self.written.lock();
        let len = (buffer.len() as u64).min(written.size_bytes.saturating_sub(offset)) as usize;
        let buffer = &mut buffer[..len];
        let below = written.base_bytes.saturating_sub(offset).min(len as u64) as usize;
        buffer[below..].fill(0);
        if let (Some(base), true) = (&self.base, below > 0) {
            let read = base.read_at(&mut buffer[..below], offset)?;
            if read < below {
                buffer[read..below].fill(0);
            }
        }
        if len > 0 && !written.pages.is_empty() {
            for number in offset / PAGE..=(offset + len as u64 - 1) / PAGE {
                let Some(page) = written.pages.get(&number) else { continue };
                let begins = number * PAGE;
                let from = begins.max(offset);
                let to = (begins + PAGE).min(offset + len as u64);
                let within = (from - begins) as usize..(to - begins) as usize;
                buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(&page[within]);
            }
        }
        Ok(len)
    }

    fn write_at(&self, bytes: &Pages, offset: u64) -> io::Result<()> {
        let bytes = bytes.as_slice();
        let end = offset.checked_add(bytes.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
        let mut written = self.written.lock();
        let mut at = offset;
        while at < end {
            let number = at / PAGE;
            let within = (at - number * PAGE) as usize;
            let len = (PAGE_BYTES - within).min((end - at) as usize);
            let from = (at - offset) as usize;
            let mut page = self.page(&written, number)?;
            page[within..within + len].copy_from_slice(&bytes[from..from + len]);
            written.pages.insert(number, page);
            at += len as u64;
        }
        written.size_bytes = written.size_bytes.max(end);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.written.lock().size_bytes)
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<u64> {
        let mut written = self.written.lock();
        let last = size_bytes / PAGE;
        if !size_bytes.is_multiple_of(PAGE) && size_bytes < written.size_bytes {
            let mut page = self.page(&written, last)?;
            page[(size_bytes % PAGE) as usize..].fill(0);
            written.pages.insert(last, page);
        }
        written.pages.retain(|number, _| number * PAGE < size_bytes);
        written.base_bytes = written.base_bytes.min(size_bytes);
        written.size_bytes = size_bytes;
        Ok(size_bytes)
    }
}

/// Files that are read and never written.
pub(crate) trait ReadFiles: Send + Sync {
    /// Returns the path of the folder, file or device for messages.
    fn path(&self) -> String;

    /// Keeps writers out until the returned value is dropped. Returns `None` if there is a writer.
    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>>;

    /// Opens a file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Returns names and sizes of all files.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Returns the size of the file system and its free space, in bytes.
    fn space(&self) -> io::Result<(u64, u64)>;
}

/// Takes shared locks that a writer would take exclusively. Returns `None` if a writer has one.
fn share(paths: impl Iterator<Item = PathBuf>) -> io::Result<Option<Vec<File>>> {
    let mut locks = Vec::new();
    for path in paths {
        let file = match File::open(&path) {
            Ok(file) => file,
            // No writer was ever here.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        match file.try_lock_shared() {
            Ok(()) => locks.push(file),
            Err(std::fs::TryLockError::WouldBlock) => return Ok(None),
            // A file system without locks cannot keep writers out.
            Err(std::fs::TryLockError::Error(_)) => {}
        }
    }
    Ok(Some(locks))
}

/// Folder that is read.
pub(crate) struct ReadFolder(pub(crate) PathBuf);

impl ReadFiles for ReadFolder {
    fn path(&self) -> String {
        self.0.display().to_string()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let names = ["lock", names::SUPERBLOCK, names::LOG];
        let locks = share(names.iter().map(|name| self.0.join(name)))?;
        Ok(locks.map(|locks| Box::new(locks) as Box<dyn Send + Sync>))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(ReadFile(File::open(self.0.join(name))?)))
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.0)? {
            let entry = entry?;
            let about = entry.metadata()?;
            if let (true, Some(name)) = (about.is_file(), entry.file_name().to_str()) {
                files.push((name.to_owned(), about.len()));
            }
        }
        Ok(files)
    }

    fn space(&self) -> io::Result<(u64, u64)> {
        let s = rustix::fs::statvfs(&self.0)?;
        Ok((s.f_blocks * s.f_frsize, s.f_bavail * s.f_frsize))
    }
}

/// Folder of files, together with the data written over them.
pub(crate) struct Overlay {
    files: Arc<dyn ReadFiles>,
    /// Files that were opened or created.
    written: Mutex<HashMap<String, Arc<Mutex<Written>>>>,
    /// Files whose underlying content is no longer valid.
    replaced: Mutex<HashSet<String>>,
}

impl Overlay {
    pub(crate) fn new(files: Arc<dyn ReadFiles>) -> Overlay {
        Overlay { files, written: Mutex::default(), replaced: Mutex::default() }
    }
}

impl Disk for Overlay {
    fn path(&self) -> String {
        self.files.path()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.files.lock()
    }

    fn open(&self, name: &str, _access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut written = self.written.lock();
        if self.replaced.lock().contains(name) {
            let written = written.get(name).ok_or(io::ErrorKind::NotFound)?.clone();
            return Ok(Arc::new(OverlayFile { base: None, written }));
        }
        let base = self.files.open(name)?;
        let written = match written.get(name) {
            Some(written) => written.clone(),
            None => {
                let size_bytes = base.size()?;
                let new = Written { size_bytes, base_bytes: size_bytes, pages: HashMap::new() };
                written.entry(name.to_owned()).or_insert(Arc::new(Mutex::new(new))).clone()
            }
        };
        Ok(Arc::new(OverlayFile { base: Some(base), written }))
    }

    fn create(&self, name: &str, size_bytes: u64, _access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let new = Arc::new(Mutex::new(Written { size_bytes, ..Written::default() }));
        let mut written = self.written.lock();
        self.replaced.lock().insert(name.to_owned());
        written.insert(name.to_owned(), new.clone());
        Ok(Arc::new(OverlayFile { base: None, written: new }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut written = self.written.lock();
        let had = written.remove(name).is_some();
        let replaced = !self.replaced.lock().insert(name.to_owned());
        if had || !replaced && self.files.open(name).is_ok() { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let (written, replaced) = (self.written.lock(), self.replaced.lock());
        let mut files = self.files.list()?;
        files.retain(|(name, _)| !replaced.contains(name) && !written.contains_key(name));
        files.extend(written.iter().map(|(name, written)| (name.clone(), written.lock().size_bytes)));
        Ok(files)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn forget_cached(&self) {}

    fn space(&self) -> io::Result<(u64, u64)> {
        self.files.space()
    }

    fn identity(&self, name: &str) -> io::Result<u64> {
        // Returns the identity in the superblock: a copy that is never written need not differ from its original.
        Ok(self.open(name, Access::Buffered).ok().and_then(|file| identity_in(&*file, 0)).unwrap_or(0))
    }

    fn random(&self) -> io::Result<u128> {
        random_bits()
    }
}

/// Returns the identity in the newest superblock at an offset.
fn identity_in(file: &dyn DiskFile, offset: u64) -> Option<u64> {
    let mut newest: Option<Superblock> = None;
    for copy in 0..2 {
        let mut page = vec![0; PAGE_BYTES];
        let read = file.read_at(&mut page, offset + copy * PAGE).ok()?;
        if let superblock::SuperblockState::Valid(found) = Superblock::decode(&page[..read])
            && newest.is_none_or(|newest| found.generation > newest.generation)
        {
            newest = Some(found);
        }
    }
    newest.map(|found| found.identity)
}

/// File or device of a fixed size, read in place, together with the data written over it.
pub(crate) struct OverlayVolume {
    path: PathBuf,
    written: Arc<Mutex<Written>>,
}

impl OverlayVolume {
    pub(crate) fn new(path: &Path) -> io::Result<OverlayVolume> {
        let size_bytes = size_of(&File::open(path)?)?;
        let written = Written { size_bytes, base_bytes: size_bytes, pages: HashMap::new() };
        Ok(OverlayVolume { path: path.to_owned(), written: Arc::new(Mutex::new(written)) })
    }
}

impl Volume for OverlayVolume {
    fn path(&self) -> String {
        self.path.display().to_string()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let locks = share(std::iter::once(self.path.clone()))?;
        Ok(locks.map(|locks| Box::new(locks) as Box<dyn Send + Sync>))
    }

    fn open(&self, _access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let base: Arc<dyn DiskFile> = Arc::new(ReadFile(File::open(&self.path)?));
        Ok(Arc::new(OverlayFile { base: Some(base), written: self.written.clone() }))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.written.lock().size_bytes)
    }

    fn forget_cached(&self) {}

    fn identity(&self) -> io::Result<u64> {
        let file = self.open(Access::Buffered)?;
        for offset in COPIES {
            let mut page = vec![0; PAGE_BYTES];
            let read = file.read_at(&mut page, offset)?;
            if let FirstPageState::Valid(layout) = Regions::read(&page[..read]) {
                return Ok(identity_in(&*file, layout.superblock_offset).unwrap_or(0));
            }
        }
        Ok(0)
    }

    fn random(&self) -> io::Result<u128> {
        random_bits()
    }
}
