//! Segments that blobs are written to: who has which, and what recovery finds of them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use super::{CHUNK_HEADER_BYTES, ChunkHeader};
use crate::directory::{Segment, file_name};
use crate::disk::{DiskFile, PAGE_BYTES, Pages};
use crate::group::Group;
use crate::inspect::Damage;
use crate::limits::{MAX_BLOB_WRITERS, MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES};
use crate::seal::Sealer;
use crate::segment::SegmentHeader;
use crate::segment_file::{Window, invalid};
use crate::store::Inner;
use crate::trouble::passes;

/// A segment with less room than this part of it gets no other blob.
const FREE_PART: u64 = 16;
/// Bytes that are written between syncs: a commit never waits behind more of them.
const SYNC_BYTES: u64 = 1 << 20;
/// Segments of which one may have a writer.
const SEGMENTS_A_WRITER: u64 = 8;

/// An open segment of blobs: whoever has it may write to it.
pub(crate) struct BlobFile {
    pub(crate) segment: Arc<Segment>,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) generation: u64,
    size_bytes: u64,
    /// The header page, until it is written.
    header: Option<Vec<u8>>,
    /// Where the next chunk goes.
    pub(crate) end: u64,
    /// Bytes written since the last sync.
    unsynced_bytes: u64,
    /// Nothing more is to be written to it.
    pub(crate) is_full: bool,
}

/// What recovery finds of a segment that was open.
#[derive(Default)]
pub(crate) struct Resumed {
    /// It, if blobs may be written to it.
    pub(crate) file: Option<BlobFile>,
    /// Whether there is nothing, not even a file.
    pub(crate) is_gone: bool,
    /// What is not as it was written.
    pub(crate) damage: Option<Damage>,
}

impl BlobFile {
    /// Begins a segment whose file was just made.
    fn create(segment: Arc<Segment>, header: SegmentHeader) -> io::Result<BlobFile> {
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

    /// Takes back, in recovery, a segment that was open. Behind the bytes that the checkpoint counts it is searched for
    /// chunks to its end, so that nothing is written over one. It goes on behind the last; where something torn or
    /// damaged lies before that, it is sealed as it is. `header` is what its header page says, or should.
    pub(crate) fn resume(segment: &Arc<Segment>, header: &SegmentHeader) -> io::Result<Resumed> {
        let mut state = *segment.state.lock();
        let (generation, counted) = (header.generation, state.bytes);
        let damage = |offset, reason: String| Some(Damage { file: file_name(segment.id), offset, reason });
        let file = match segment.file() {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let damage = if state.blocks > 0 { damage(0, "the segment is missing".into()) } else { None };
                return Ok(Resumed { is_gone: true, damage, ..Resumed::default() });
            }
            Err(error) => return Err(error),
        };
        crate::recovery::forget_cached(&*file);
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
            // Its number was taken, and nothing came.
            return Ok(Resumed { is_gone: true, ..Resumed::default() });
        }
        let mut resumed = Resumed::default();
        if !found.as_ref().is_ok_and(|h| (h.id, h.generation, h.blobs) == (segment.id, generation, true)) {
            // Of a segment of which nothing was durable, a cut may have left the chunks without it.
            if counted > 0 {
                let reason =
                    found.map_or_else(|error| error.to_string(), |h| format!("the header of segment {}", h.id));
                resumed.damage = damage(0, reason);
            }
            // Its size is that of the file: a full disk makes them smaller.
            let size_bytes = (size / PAGE_BYTES as u64 * PAGE_BYTES as u64).clamp(MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES);
            let header = SegmentHeader { size_bytes, ..header.clone() };
            file.write_at(&Pages::of(&header.page().map_err(invalid)?), 0)?;
        }
        state.bytes = end;
        if torn {
            file.truncate(end)?;
            (state.sealed, state.left) = (true, true);
        } else {
            let (segment, file, size_bytes) = (segment.clone(), file.clone(), size.min(MAX_SEGMENT_BYTES));
            let (header, unsynced_bytes, is_full) = (None, 0, false);
            resumed.file =
                Some(BlobFile { segment, file, generation, size_bytes, header, end, unsynced_bytes, is_full });
        }
        // A process that was killed may have left what only the cache holds.
        file.sync()?;
        *segment.state.lock() = state;
        Ok(resumed)
    }

    /// Bytes of its file.
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes that chunks may still take.
    fn free_bytes(&self) -> u64 {
        if self.is_full { 0 } else { self.size_bytes.saturating_sub(self.end) }
    }

    /// Whether so many bytes of chunks have room.
    pub(super) fn fits(&self, padded_bytes: u64) -> bool {
        padded_bytes <= self.free_bytes()
    }

    /// Makes all that was written durable.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.unsynced_bytes = 0;
        self.file.sync()
    }

    /// Writes a chunk behind the others; returns the bytes written.
    pub(super) fn put(&mut self, chunk: &Pages) -> io::Result<u64> {
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

/// The open segments of blobs.
#[derive(Default)]
pub(crate) struct Blobs {
    /// Those that no blob is being written to.
    idle: BTreeMap<Group, Vec<BlobFile>>,
    /// How many have a writer.
    busy: usize,
    /// Sizes of the files of all that are open, by number.
    sizes: HashMap<u64, u64>,
}

impl Blobs {
    /// Takes in what recovery found.
    pub(crate) fn add(&mut self, file: BlobFile) {
        self.sizes.insert(file.segment.id, file.size_bytes);
        self.idle.entry(file.segment.group).or_default().push(file);
    }

    /// Whether it is open and has no writer.
    pub(crate) fn is_idle(&self, segment: &Segment) -> bool {
        let idle = self.idle.get(&segment.group);
        idle.is_some_and(|files| files.iter().any(|file| file.segment.id == segment.id))
    }
}

/// How many blobs may be written at a time: rows must find segments too.
pub(super) fn writers_max(store: &Inner) -> usize {
    let segments = store.space.max_bytes / store.space.segment_bytes.max(1);
    ((segments / SEGMENTS_A_WRITER) as usize).clamp(1, MAX_BLOB_WRITERS)
}

impl Sealer {
    /// An open segment of a group with room for so many bytes of chunks; none: too many are being written to.
    pub(super) fn take_blobs(&mut self, store: &Inner, group: Group, padded: u64) -> io::Result<Option<BlobFile>> {
        if self.blobs.busy >= writers_max(store) {
            return Ok(None);
        }
        let idle = self.blobs.idle.entry(group).or_default();
        let file = match idle.iter().position(|file| file.fits(padded)) {
            Some(at) => idle.swap_remove(at),
            None => self.new_blobs(store, group, padded)?,
        };
        self.blobs.busy += 1;
        Ok(Some(file))
    }

    /// Another one, in the place of one that its writer gives back, with room for `padded` bytes of chunks.
    pub(super) fn new_blobs(&mut self, store: &Inner, group: Group, padded: u64) -> io::Result<BlobFile> {
        let wanted = (padded + PAGE_BYTES as u64).max(store.space.least_segment());
        let (segment, header) = self.begin_segment(store, (group, true), wanted.min(store.space.segment_bytes))?;
        let file = BlobFile::create(segment, header)?;
        self.blobs.sizes.insert(file.segment.id, file.size_bytes);
        Ok(file)
    }

    /// Takes a segment back from its writer, `finished` with a whole blob more at this instant.
    pub(super) fn give_blobs(&mut self, store: &Inner, file: BlobFile, finished: Option<i64>) -> io::Result<()> {
        self.blobs.busy -= 1;
        self.put_back(store, file, finished)
    }

    /// As [`Sealer::give_blobs`], for a writer that goes on with another one.
    pub(super) fn put_back(&mut self, store: &Inner, file: BlobFile, finished: Option<i64>) -> io::Result<()> {
        let mut state = file.segment.state.lock();
        if let Some(stored) = finished {
            // The sync covered what writers before left unfinished, too.
            state.bytes = file.end;
            state.blocks += 1;
            state.stored = (state.stored.0.min(stored), state.stored.1.max(stored));
        }
        drop(state);
        self.changed_segments.insert(file.segment.id, file.segment.clone());
        if finished.is_some() {
            self.note_filled(file.segment.place());
        }
        let group = file.segment.group;
        self.blobs.add(file);
        self.seal_spent(store, group)
    }

    /// Seals those that wait for a blob and will hardly get one: one waits, that with the most room. What the disk refuses
    /// for a time is sealed later: the blobs in it are whole and durable.
    fn seal_spent(&mut self, store: &Inner, group: Group) -> io::Result<()> {
        let idle = self.blobs.idle.entry(group).or_default();
        idle.sort_by_key(|file| std::cmp::Reverse(file.free_bytes()));
        let worth = |file: &BlobFile| file.free_bytes() >= (file.size_bytes / FREE_PART).max(PAGE_BYTES as u64);
        let keep = usize::from(idle.first().is_some_and(worth));
        let spent = idle.split_off(keep);
        self.seal_each(store, spent).or_else(|error| if passes(&error) { Ok(()) } else { Err(error) })
    }

    /// Seals what the disk refused to seal before.
    pub(crate) fn seal_left(&mut self, store: &Inner) -> io::Result<()> {
        let groups: Vec<Group> = self.blobs.idle.iter().filter(|(_, idle)| !idle.is_empty()).map(|(g, _)| *g).collect();
        groups.into_iter().try_for_each(|group| self.seal_spent(store, group))
    }

    /// Seals segments of blobs. Those that the disk refuses wait as before.
    fn seal_each(&mut self, store: &Inner, files: Vec<BlobFile>) -> io::Result<()> {
        let mut refused = Ok(());
        for file in files {
            if let Err(error) = self.seal_blobs(store, &file) {
                self.blobs.add(file);
                refused = Err(error);
            }
        }
        refused
    }

    /// Seals a segment of blobs: nothing is written to it any more, and what is behind its last blob is given back.
    fn seal_blobs(&mut self, store: &Inner, file: &BlobFile) -> io::Result<()> {
        let BlobFile { segment, file, .. } = file;
        let end = segment.state.lock().bytes.max(PAGE_BYTES as u64);
        file.truncate(end)?;
        let mut state = segment.state.lock();
        (state.sealed, state.bytes) = (true, end);
        drop(state);
        self.blobs.sizes.remove(&segment.id);
        self.note_sealed(store, segment.clone());
        Ok(())
    }

    /// Seals open ones without a writer that a test picks.
    pub(crate) fn seal_idle(&mut self, store: &Inner, pick: impl Fn(&Segment) -> bool) -> io::Result<()> {
        let mut picked = Vec::new();
        for files in self.blobs.idle.values_mut() {
            picked.extend(files.extract_if(.., |file| pick(&file.segment)));
        }
        self.seal_each(store, picked)
    }

    /// Bytes of the files of open ones behind what is written.
    pub(crate) fn blobs_ahead_bytes(&self, store: &Inner) -> u64 {
        let list = store.shared.segments.load();
        let open = list.blob_groups().flat_map(|(_, segments)| segments.open());
        let size = |segment: &Segment| self.blobs.sizes.get(&segment.id).copied().unwrap_or(store.space.segment_bytes);
        open.map(|segment| size(segment).saturating_sub(segment.state.lock().bytes)).sum()
    }
}
