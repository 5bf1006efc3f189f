//! Open segments of blobs: who writes to each, and their recovery.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use super::{CHUNK_HEADER_BYTES, ChunkHeader};
use crate::catalog::group::Group;
use crate::disk::{DiskFile, PAGE_BYTES, Pages};
use crate::model::damage::Damage;
use crate::model::limits::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::segment::SegmentHeader;
use crate::segment::directory::{Segment, file_name};
use crate::segment::file::{Window, invalid};

/// Bytes that are written between syncs, and so the most that a commit waits for.
const SYNC_BYTES: u64 = 1 << 20;
/// Open segment of blobs; its owner may write to it.
pub(crate) struct BlobFile {
    pub(crate) segment: Arc<Segment>,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) generation: u64,
    pub(crate) size_bytes: u64,
    /// Header page, until it is written.
    header: Option<Vec<u8>>,
    /// Offset of the next chunk.
    pub(crate) end: u64,
    /// Bytes written since the last sync.
    unsynced_bytes: u64,
    /// Whether nothing more may be written to it.
    pub(crate) is_full: bool,
}

/// Open segment as found by recovery.
#[derive(Default)]
pub(crate) struct ResumedBlobs {
    /// The file, if more blobs may be written to it.
    pub(crate) file: Option<BlobFile>,
    /// Whether the segment is empty or its file missing.
    pub(crate) is_gone: bool,
    /// Damage found in it.
    pub(crate) damage: Option<Damage>,
}

impl BlobFile {
    /// Begins a segment in a file that was just created.
    pub(crate) fn create(segment: Arc<Segment>, header: SegmentHeader) -> io::Result<BlobFile> {
        let page = header.page().map_err(invalid)?;
        Ok(BlobFile {
            file: segment.file()?,
            segment,
            generation: header.generation,
            size_bytes: header.size_bytes,
            header: Some(page),
            end: PAGE_BYTES as u64,
            unsynced_bytes: 0,
            is_full: false,
        })
    }

    /// Recovers an open segment. Behind the bytes that the checkpoint counts, it is searched for chunks to its end,
    /// so that no chunk is overwritten. Writing continues behind the last one, unless something torn or damaged lies
    /// before it: the segment is then sealed. `header` is the expected content of its header page.
    pub(crate) fn resume(segment: &Arc<Segment>, header: &SegmentHeader) -> io::Result<ResumedBlobs> {
        let mut state = *segment.state.lock();
        let (generation, counted) = (header.generation, state.bytes);
        let damage = |offset, reason: String| Some(Damage { file: file_name(segment.id), offset, reason });
        let file = match segment.file() {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let damage = if state.blocks > 0 { damage(0, "the segment is missing".into()) } else { None };
                return Ok(ResumedBlobs { is_gone: true, damage, ..ResumedBlobs::default() });
            }
            Err(error) => return Err(error),
        };
        crate::disk::forget_cached(&*file);
        let size = file.size()?;
        let mut window = Window::new(&*file, size);
        let found = SegmentHeader::read(window.at(0, PAGE_BYTES)?);
        let mut end = state.bytes.max(PAGE_BYTES as u64);
        let (mut at, mut torn) = (end, false);
        while at + PAGE_BYTES as u64 <= size {
            match ChunkHeader::read(window.at(at, CHUNK_HEADER_BYTES)?) {
                Ok(chunk) if chunk.is_at(at, (segment.id, generation)) && at + chunk.padded_bytes() <= size => {
                    let body = chunk.body(window.at(at, chunk.padded_bytes() as usize)?);
                    torn |= body.is_err() || at > end;
                    at += chunk.padded_bytes();
                    end = at;
                    if let Some(whole) = chunk.whole {
                        state.blocks += 1;
                        state.stored = (state.stored.0.min(whole.stored), state.stored.1.max(whole.stored));
                    }
                }
                _ => at += PAGE_BYTES as u64,
            }
        }
        if end == PAGE_BYTES as u64 {
            // Its number was assigned, and nothing was written.
            return Ok(ResumedBlobs { is_gone: true, ..ResumedBlobs::default() });
        }
        let mut resumed = ResumedBlobs::default();
        if !found.as_ref().is_ok_and(|h| (h.id, h.generation, h.blobs) == (segment.id, generation, true)) {
            // If nothing of a segment was durable, a crash may have left its chunks without the header.
            if counted > 0 {
                let reason =
                    found.map_or_else(|error| error.to_string(), |h| format!("the header of segment {}", h.id));
                resumed.damage = damage(0, reason);
            }
            // Use the size of the file: it may be smaller than usual on a full disk.
            let size_bytes = (size / PAGE_BYTES as u64 * PAGE_BYTES as u64).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
            let header = SegmentHeader { size_bytes, ..header.clone() };
            file.write_at(&Pages::of(&header.page().map_err(invalid)?), 0)?;
        }
        state.bytes = end;
        if torn {
            file.truncate(end)?;
            (state.sealed, state.left) = (true, true);
        } else {
            let (segment, file, size_bytes) = (segment.clone(), file.clone(), size.min(SEGMENT_BYTES_MAX));
            let (header, unsynced_bytes, is_full) = (None, 0, false);
            resumed.file =
                Some(BlobFile { segment, file, generation, size_bytes, header, end, unsynced_bytes, is_full });
        }
        // A killed process may have left data that only the page cache holds.
        file.sync()?;
        *segment.state.lock() = state;
        Ok(resumed)
    }

    /// Returns the bytes of its file.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the bytes left for chunks.
    pub(crate) fn free_bytes(&self) -> u64 {
        if self.is_full { 0 } else { self.size_bytes.saturating_sub(self.end) }
    }

    /// Returns whether there is room for `padded_bytes` of chunks.
    pub(crate) fn fits(&self, padded_bytes: u64) -> bool {
        padded_bytes <= self.free_bytes()
    }

    /// Syncs everything written.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.unsynced_bytes = 0;
        self.file.sync()
    }

    /// Appends a chunk. Returns the bytes written.
    pub(crate) fn put(&mut self, chunk: &Pages) -> io::Result<u64> {
        let mut written = chunk.as_slice().len() as u64;
        if let Some(page) = &self.header {
            self.file.write_at(&Pages::of(page), 0)?;
            written += page.len() as u64;
            self.header = None;
        }
        self.file.write_at(chunk, self.end)?;
        self.end += chunk.as_slice().len() as u64;
        self.unsynced_bytes += written;
        if self.unsynced_bytes >= SYNC_BYTES {
            self.sync()?;
        }
        Ok(written)
    }
}

/// Open segments of blobs.
#[derive(Default)]
pub(crate) struct Blobs {
    /// Segments without a writer.
    pub(crate) idle: BTreeMap<Group, Vec<BlobFile>>,
    /// Number of segments with a writer.
    pub(crate) busy: usize,
    /// File sizes of all open segments, by number.
    pub(crate) sizes: HashMap<u64, u64>,
}

impl Blobs {
    /// Adds a recovered segment.
    pub(crate) fn add(&mut self, file: BlobFile) {
        self.sizes.insert(file.segment.id, file.size_bytes);
        self.idle.entry(file.segment.group).or_default().push(file);
    }

    /// Returns whether a segment is open and has no writer.
    pub(crate) fn is_idle(&self, segment: &Segment) -> bool {
        let idle = self.idle.get(&segment.group);
        idle.is_some_and(|files| files.iter().any(|file| file.segment.id == segment.id))
    }
}
