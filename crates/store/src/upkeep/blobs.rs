//! Open segments of blobs: which writer gets one, and when it is sealed.

use std::io;

use crate::blob::file::BlobFile;
use crate::catalog::group::Group;
use crate::disk::PAGE_BYTES;
use crate::engine::Engine;
use crate::model::limits::BLOB_WRITERS_MAX;
use crate::model::trouble::passes;
use crate::segment::directory::Segment;
use crate::upkeep::sealer::Sealer;

/// Divisor of a segment's size: with less room than that part, it gets no other blob.
const FREE_PART: u64 = 16;
/// Number of segments of which one may have a writer.
const SEGMENTS_A_WRITER: u64 = 8;

/// Returns how many blobs may be written at a time: rows must find segments, too.
pub(crate) fn writers_max(engine: &Engine) -> usize {
    let segments = engine.space.max_bytes / engine.space.segment_bytes.max(1);
    ((segments / SEGMENTS_A_WRITER) as usize).clamp(1, BLOB_WRITERS_MAX)
}

impl Sealer {
    /// Takes an open segment of a group with room for `padded` bytes of chunks, or returns `None` if too many are being
    /// written to.
    pub(crate) fn take_blobs(&mut self, engine: &Engine, group: Group, padded: u64) -> io::Result<Option<BlobFile>> {
        if self.blobs.busy >= writers_max(engine) {
            return Ok(None);
        }
        let idle = self.blobs.idle.entry(group).or_default();
        let file = match idle.iter().position(|file| file.fits(padded)) {
            Some(at) => idle.swap_remove(at),
            None => self.new_blobs(engine, group, padded)?,
        };
        self.blobs.busy += 1;
        Ok(Some(file))
    }

    /// Creates a segment with room for `padded` bytes of chunks.
    pub(crate) fn new_blobs(&mut self, engine: &Engine, group: Group, padded: u64) -> io::Result<BlobFile> {
        let wanted = (padded + PAGE_BYTES as u64).max(engine.space.least_segment());
        let (segment, header) = self.begin_segment(engine, (group, true), wanted.min(engine.space.segment_bytes))?;
        let file = BlobFile::create(segment, header)?;
        self.blobs.sizes.insert(file.segment.id, file.size_bytes);
        Ok(file)
    }

    /// Takes a segment back from its writer. `finished` is the instant at which a whole blob was finished in it, if one
    /// was.
    pub(crate) fn give_blobs(&mut self, engine: &Engine, file: BlobFile, finished: Option<i64>) -> io::Result<()> {
        self.blobs.busy -= 1;
        self.put_back(engine, file, finished)
    }

    /// Takes a segment back like [`Sealer::give_blobs`], from a writer that continues in another one.
    pub(crate) fn put_back(&mut self, engine: &Engine, file: BlobFile, finished: Option<i64>) -> io::Result<()> {
        let mut state = file.segment.state.lock();
        if let Some(stored) = finished {
            // The sync also covered what earlier writers left unfinished.
            state.bytes = file.end;
            state.blocks += 1;
            state.stored = (state.stored.0.min(stored), state.stored.1.max(stored));
        }
        drop(state);
        self.checkpoints.note_segment(file.segment.clone());
        if finished.is_some() {
            self.ages.note_filled(file.segment.place());
        }
        let group = file.segment.group;
        self.blobs.add(file);
        self.seal_spent(engine, group)
    }

    /// Seals idle segments that will hardly get another blob; the one with the most room stays. A segment that the disk
    /// refuses to seal for a time is sealed later: the blobs in it are whole and durable.
    fn seal_spent(&mut self, engine: &Engine, group: Group) -> io::Result<()> {
        let idle = self.blobs.idle.entry(group).or_default();
        idle.sort_by_key(|file| std::cmp::Reverse(file.free_bytes()));
        let worth = |file: &BlobFile| file.free_bytes() >= (file.size_bytes / FREE_PART).max(PAGE_BYTES as u64);
        let keep = usize::from(idle.first().is_some_and(worth));
        let spent = idle.split_off(keep);
        self.seal_each(engine, spent).or_else(|error| if passes(&error) { Ok(()) } else { Err(error) })
    }

    /// Seals segments that the disk refused to seal before.
    pub(crate) fn seal_left(&mut self, engine: &Engine) -> io::Result<()> {
        let groups: Vec<Group> = self.blobs.idle.iter().filter(|(_, idle)| !idle.is_empty()).map(|(g, _)| *g).collect();
        groups.into_iter().try_for_each(|group| self.seal_spent(engine, group))
    }

    /// Seals segments of blobs. Those that the disk refuses wait as before.
    fn seal_each(&mut self, engine: &Engine, files: Vec<BlobFile>) -> io::Result<()> {
        let mut refused = Ok(());
        for file in files {
            if let Err(error) = self.seal_blobs(engine, &file) {
                self.blobs.add(file);
                refused = Err(error);
            }
        }
        refused
    }

    /// Seals a segment of blobs: nothing more is written to it, and the space behind its last blob is given back.
    fn seal_blobs(&mut self, engine: &Engine, file: &BlobFile) -> io::Result<()> {
        let BlobFile { segment, file, .. } = file;
        let end = segment.state.lock().bytes.max(PAGE_BYTES as u64);
        file.truncate(end)?;
        let mut state = segment.state.lock();
        (state.sealed, state.bytes) = (true, end);
        drop(state);
        self.blobs.sizes.remove(&segment.id);
        self.note_sealed(engine, segment.clone());
        Ok(())
    }

    /// Seals the open segments without a writer that `pick` selects.
    pub(crate) fn seal_idle(&mut self, engine: &Engine, pick: impl Fn(&Segment) -> bool) -> io::Result<()> {
        let mut picked = Vec::new();
        for files in self.blobs.idle.values_mut() {
            picked.extend(files.extract_if(.., |file| pick(&file.segment)));
        }
        self.seal_each(engine, picked)
    }

    /// Returns the bytes in the files of open segments behind what is written.
    pub(crate) fn blobs_ahead_bytes(&self, engine: &Engine) -> u64 {
        let list = engine.shared.segments.load();
        let open = list.blob_groups().flat_map(|(_, segments)| segments.open());
        let size = |segment: &Segment| self.blobs.sizes.get(&segment.id).copied().unwrap_or(engine.space.segment_bytes);
        open.map(|segment| size(segment).saturating_sub(segment.state.lock().bytes)).sum()
    }
}
