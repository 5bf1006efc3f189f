//! A disk in memory for stores of many thousand segments: of each page it keeps what is not zero, and it counts
//! reads by kind of file. It never fails.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::{Access, Disk, DiskFile, PAGE_BYTES, Pages};

/// Zeros that are worth a run of their own.
const GAP_BYTES: usize = 16;

/// Reads and bytes read by kind of file.
pub(super) type Reads = BTreeMap<&'static str, (u64, u64)>;

/// A folder in memory. Clones share it.
#[derive(Clone, Default)]
pub(super) struct SparseDisk {
    files: Arc<Mutex<BTreeMap<String, Arc<Mutex<Content>>>>>,
    pub(super) reads: Arc<Mutex<Reads>>,
    /// Open files; a handle has a copy of it.
    handles: Arc<()>,
}

#[derive(Default)]
struct Content {
    size: u64,
    /// Pages that are not zero: runs of offset, length, bytes.
    pages: BTreeMap<u64, Box<[u8]>>,
}

fn pack(page: &[u8]) -> Box<[u8]> {
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(start) = page[at..].iter().position(|b| *b != 0).map(|n| at + n) {
        let zeros = |end: &usize| page[*end..].iter().take(GAP_BYTES).all(|b| *b == 0);
        at = (start..page.len()).find(zeros).unwrap_or(page.len());
        out.extend((start as u16).to_le_bytes());
        out.extend(((at - start) as u16).to_le_bytes());
        out.extend(&page[start..at]);
    }
    out.into()
}

fn unpack(mut runs: &[u8], page: &mut [u8]) {
    page.fill(0);
    while let Some((head, rest)) = runs.split_at_checked(4) {
        let (start, len) = (u16::from_le_bytes([head[0], head[1]]), u16::from_le_bytes([head[2], head[3]]));
        let (bytes, rest) = rest.split_at(len.into());
        page[start.into()..usize::from(start) + bytes.len()].copy_from_slice(bytes);
        runs = rest;
    }
}

impl SparseDisk {
    fn handle(&self, name: &str, content: &Arc<Mutex<Content>>) -> Arc<dyn DiskFile> {
        let kind = ["superblock", "log", "checkpoint", "segment"].into_iter().find(|kind| name.starts_with(kind));
        Arc::new(SparseFile {
            kind: kind.unwrap_or("other"),
            content: content.clone(),
            reads: self.reads.clone(),
            _open: self.handles.clone(),
        })
    }

    /// Files that are open, by handles.
    pub(super) fn open_files(&self) -> usize {
        Arc::strong_count(&self.handles)
    }
}

impl Disk for SparseDisk {
    fn path(&self) -> String {
        "memory".into()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        Ok(Some(Box::new(())))
    }

    fn open(&self, name: &str, _access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let files = self.files.lock();
        files.get(name).map(|content| self.handle(name, content)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&self, name: &str, size_bytes: u64, _access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let content = Arc::new(Mutex::new(Content { size: size_bytes, pages: BTreeMap::new() }));
        self.files.lock().insert(name.to_owned(), content.clone());
        Ok(self.handle(name, &content))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.lock().remove(name).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        Ok(self.files.lock().iter().map(|(name, content)| (name.clone(), content.lock().size)).collect())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn forget_cached(&self) {}

    fn space(&self) -> io::Result<(u64, u64)> {
        Ok((1 << 40, 1 << 40))
    }

    fn identity(&self, _name: &str) -> io::Result<u64> {
        Ok(7)
    }

    fn random(&self) -> io::Result<u128> {
        Ok(11)
    }
}

struct SparseFile {
    kind: &'static str,
    content: Arc<Mutex<Content>>,
    reads: Arc<Mutex<Reads>>,
    _open: Arc<()>,
}

impl DiskFile for SparseFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = self.content.lock();
        let len = (buffer.len() as u64).min(content.size.saturating_sub(offset)) as usize;
        let mut page = [0; PAGE_BYTES];
        let mut done = 0;
        while done < len {
            let at = offset as usize + done;
            match content.pages.get(&((at / PAGE_BYTES) as u64)) {
                Some(runs) => unpack(runs, &mut page),
                None => page.fill(0),
            }
            let part = &page[at % PAGE_BYTES..];
            let count = part.len().min(len - done);
            buffer[done..done + count].copy_from_slice(&part[..count]);
            done += count;
        }
        let mut reads = self.reads.lock();
        // The last page alone: the first look at a sealed segment's footer.
        let is_trailer = self.kind == "segment" && len == PAGE_BYTES && offset + len as u64 == content.size;
        let kind = if is_trailer { "trailer" } else { self.kind };
        let (count, bytes) = reads.entry(kind).or_default();
        (*count, *bytes) = (*count + 1, *bytes + len as u64);
        Ok(len)
    }

    fn write_at(&self, bytes: &Pages, offset: u64) -> io::Result<()> {
        assert!(offset.is_multiple_of(PAGE_BYTES as u64), "aligned writes");
        let mut content = self.content.lock();
        content.size = content.size.max(offset + bytes.as_slice().len() as u64);
        for (n, page) in bytes.as_slice().chunks(PAGE_BYTES).enumerate() {
            let (number, packed) = (offset / PAGE_BYTES as u64 + n as u64, pack(page));
            if packed.is_empty() {
                content.pages.remove(&number);
            } else {
                content.pages.insert(number, packed);
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.content.lock().size)
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<u64> {
        let mut content = self.content.lock();
        content.size = size_bytes;
        content.pages.retain(|number, _| number * (PAGE_BYTES as u64) < size_bytes);
        Ok(size_bytes)
    }
}
