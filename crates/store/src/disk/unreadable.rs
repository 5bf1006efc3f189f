//! Pages that a disk can no longer read: a bad sector, or one that fails the disk's own checksum. Recovery and repair
//! continue reading after them.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{DiskFile, PAGE_BYTES, Pages};
use crate::model::trouble::is_unreadable;

/// Byte that replaces unreadable bytes: no checksum of a page filled with it is valid.
const FILLER: u8 = 0xFF;

/// Reads until the buffer is full or the file ends, with `read` at offsets. Pages that cannot be read are passed to
/// `tell` and filled with bytes that match no checksum. Returns the number of bytes available.
///
/// # Errors
/// All other errors of `read`.
pub(crate) fn read_around(
    buffer: &mut [u8],
    offset: u64,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    mut tell: impl FnMut(u64, &io::Error),
) -> io::Result<usize> {
    match read(buffer, offset) {
        Err(error) if is_unreadable(&error) => {}
        read => return read,
    }
    let mut done = 0;
    while done < buffer.len() {
        let at = offset + done as u64;
        let page = at / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        let len = (PAGE_BYTES - (at - page) as usize).min(buffer.len() - done);
        let part = &mut buffer[done..done + len];
        match read(part, at) {
            Ok(count) if count < len => return Ok(done + count),
            Ok(_) => {}
            Err(error) if is_unreadable(&error) => {
                tell(page, &error);
                part.fill(FILLER);
            }
            Err(error) => return Err(error),
        }
        done += len;
    }
    Ok(done)
}

/// Unreadable pages found so far: file, offset and reason, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadablePages(Arc<Mutex<Vec<(String, u64, String)>>>);

impl UnreadablePages {
    fn note(&self, file: &str, page: u64, error: &io::Error) {
        let mut pages = self.0.lock();
        if !pages.iter().any(|(of, at, _)| (of.as_str(), *at) == (file, page)) {
            pages.push((file.to_owned(), page, error.to_string()));
        }
    }

    /// Returns and clears the pages found so far.
    pub(crate) fn take(&self) -> Vec<(String, u64, String)> {
        std::mem::take(&mut self.0.lock())
    }

    /// Wraps a file so that unreadable pages are noted and filled. It ends at its size.
    pub(crate) fn around(&self, name: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let (name, pages) = (name.to_owned(), self.clone());
        let read = move |file: &dyn DiskFile, buffer: &mut [u8], offset: u64| {
            let tell = |page, error: &io::Error| pages.note(&name, page, error);
            let done = read_around(buffer, offset, |part, at| file.read_at(part, at), tell)?;
            // An unreadable last page must not extend the file.
            let left = file.size()?.saturating_sub(offset);
            Ok(done.min(usize::try_from(left).unwrap_or(usize::MAX)))
        };
        Arc::new(ReadBy { file, read })
    }
}

/// File with a custom read function.
pub(crate) struct ReadBy<R> {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) read: R,
}

impl<R: Fn(&dyn DiskFile, &mut [u8], u64) -> io::Result<usize> + Send + Sync> DiskFile for ReadBy<R> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        (self.read)(&*self.file, buffer, offset)
    }

    fn write_at(&self, bytes: &Pages, offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<u64> {
        self.file.truncate(size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads three pages: the second is bad and the third ends early.
    fn read(part: &mut [u8], at: u64) -> io::Result<usize> {
        let (page, end) = (PAGE_BYTES as u64, 2 * PAGE_BYTES as u64 + 10);
        let count = (part.len() as u64).min(end.saturating_sub(at)) as usize;
        if at < 2 * page && at + count as u64 > page {
            return Err(io::Error::from_raw_os_error(5));
        }
        part[..count].fill(1);
        Ok(count)
    }

    #[test]
    fn what_lies_before_and_behind_a_bad_page_is_read() {
        let mut told = Vec::new();
        let mut bytes = vec![0; 4 * PAGE_BYTES];
        let count = read_around(&mut bytes, 100, read, |page, _| told.push(page)).unwrap();
        assert_eq!((count, told), (2 * PAGE_BYTES + 10 - 100, vec![PAGE_BYTES as u64]));
        let bad = PAGE_BYTES - 100..2 * PAGE_BYTES - 100;
        assert!(bytes[bad.clone()].iter().all(|byte| *byte == FILLER));
        assert!(bytes[..bad.start].iter().chain(&bytes[bad.end..count]).all(|byte| *byte == 1));
    }

    #[test]
    fn other_errors_stay_errors() {
        let refused = |_: &mut [u8], _| Err::<usize, _>(io::Error::from_raw_os_error(24));
        let error = read_around(&mut [0; 10], 0, refused, |_, _| {}).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(24));
    }
}
