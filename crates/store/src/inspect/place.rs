//! Location of the data: files of a folder, or parts of a store of a fixed size.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Inspection;
use crate::disk::layout::{COPIES, FIRST_PAGE, FirstPageState, Regions};
use crate::disk::names;
use crate::disk::unreadable::read_around;
use crate::disk::volume::size_of;
use crate::disk::{PAGE_BYTES, read_full};

/// Store that is read without opening it.
pub(super) enum StorePlace {
    Folder(PathBuf),
    Fixed(Arc<File>, Box<Regions>),
}

/// File of a folder, or the corresponding part of a fixed size.
pub(super) struct StoreFile {
    file: Arc<File>,
    start: u64,
    pub(super) size: u64,
}

impl StoreFile {
    /// Reads up to `len` bytes at an offset, up to the end. A page that cannot be read is replaced by bytes that
    /// match no checksum, so the caller finds damage.
    pub(super) fn read_at<'b>(&self, bytes: &'b mut Vec<u8>, offset: u64, len: usize) -> io::Result<&'b [u8]> {
        bytes.resize((len as u64).min(self.size.saturating_sub(offset)) as usize, 0);
        let read =
            |part: &mut [u8], at| read_full(part, |rest, done| self.file.read_at(rest, self.start + at + done as u64));
        let have = read_around(bytes, offset, read, |_, _| {})?;
        bytes.truncate(have);
        Ok(bytes)
    }
}

impl StorePlace {
    pub(super) fn open(path: &Path, found: &mut Inspection) -> io::Result<StorePlace> {
        if std::fs::metadata(path)?.is_dir() {
            return Ok(StorePlace::Folder(path.to_owned()));
        }
        let file = Arc::new(File::open(path)?);
        let size = size_of(&file)?;
        let (whole, mut bytes, mut valid) = (StoreFile { file: file.clone(), start: 0, size }, Vec::new(), None);
        let mut wrong = Vec::new();
        for offset in COPIES {
            match Regions::read(whole.read_at(&mut bytes, offset, PAGE_BYTES)?) {
                FirstPageState::Valid(layout) => valid = valid.or(Some(layout)),
                FirstPageState::Newer(what) => wrong.push((offset, format!("{what}: written by a newer version"))),
                FirstPageState::Damaged(reason) => wrong.push((offset, reason)),
                FirstPageState::Nothing => wrong.push((offset, "not the first page of a store".to_owned())),
            }
        }
        let Some(layout) = valid else {
            let reasons: Vec<String> =
                wrong.into_iter().map(|(offset, reason)| format!("offset {offset}: {reason}")).collect();
            let reason = format!("{}: not a store of a fixed size: {}", path.display(), reasons.join("; "));
            return Err(io::Error::new(io::ErrorKind::NotFound, reason));
        };
        wrong.into_iter().for_each(|(offset, reason)| found.damaged(FIRST_PAGE, offset, reason));
        if size < layout.size_bytes {
            found.damaged(
                FIRST_PAGE,
                size,
                format!("made with {} bytes, and only {size} are there", layout.size_bytes),
            );
        }
        Ok(StorePlace::Fixed(file, Box::new(layout)))
    }

    /// Returns the names of the files of a folder, or of the parts that every fixed size has.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let StorePlace::Folder(folder) = self else {
            return Ok([names::SUPERBLOCK, names::LOG, names::CHECKPOINTS[0], names::CHECKPOINTS[1]]
                .map(str::to_owned)
                .into());
        };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// Returns a file by its name.
    pub(super) fn part(&self, name: &str) -> io::Result<StoreFile> {
        match self {
            StorePlace::Folder(folder) => {
                let file = File::open(folder.join(name))?;
                Ok(StoreFile { size: file.metadata()?.len(), file: Arc::new(file), start: 0 })
            }
            StorePlace::Fixed(file, layout) => {
                let (start, size) = layout.region(name).ok_or(io::ErrorKind::NotFound)?;
                Ok(StoreFile { file: file.clone(), start, size })
            }
        }
    }

    /// Returns a slot, or `None` if there are no slots or too few.
    pub(super) fn slot(&self, slot: u32) -> Option<StoreFile> {
        let StorePlace::Fixed(file, layout) = self else { return None };
        let start = layout.slots_offset + u64::from(slot) * layout.segment_bytes;
        (slot < layout.slots).then(|| StoreFile { file: file.clone(), start, size: layout.segment_bytes })
    }
}
