//! Turnover: segments to begin and finish, checkpoints to write, the log's tail to move.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::append::sequence::UNCOUNTED;
use crate::append::sequence::saved::SavedSequence;
use crate::catalog::encode_stream;
use crate::catalog::group::Group;
use crate::engine::Engine;
use crate::log::checkpoint::{self, Entries, Position};
use crate::log::superblock::{GAPS_APART, SEQUENCES};
use crate::log::{Link, LogPosition};
use crate::model::mutant::{self, Mutant};
use crate::model::stream::StreamId;
use crate::model::trouble;
use crate::segment::directory::{BlockRef, Segment, SegmentState, file_name};
use crate::segment::file::SegmentFile;
use crate::segment::{Beside, LastBlocks, SegmentHeader};
use crate::upkeep::checkpointing::Named;
use crate::upkeep::sealer::Sealer;

/// Streams that a checkpoint notes in one go, with appends kept waiting: some ten microseconds.
pub(crate) const STREAMS_A_LOCK: usize = 256;
/// Min bytes of an entry in a segment's list of newest blocks before it: seldom fewer, mostly about 20.
const LAST_BLOCK_BYTES: usize = 12;

impl Sealer {
    /// Makes sure that a group has an open segment; a new one has at least `least_bytes`.
    pub(crate) fn ensure_segment(&mut self, engine: &Engine, group: Group, least_bytes: u64) -> io::Result<()> {
        if self.sealing.open.contains_key(&group) {
            return Ok(());
        }
        let (segment, header) = self.begin_segment(engine, (group, false), least_bytes)?;
        let reserved_bytes = last_blocks_max(header.size_bytes);
        let open = SegmentFile::create(segment, header, reserved_bytes)?;
        self.sealing.open.insert(group, open);
        Ok(())
    }

    /// Creates a segment of rows or of blobs, of at least `least_bytes`, and records it in the checkpoint.
    pub(crate) fn begin_segment(
        &mut self,
        engine: &Engine,
        (group, blobs): (Group, bool),
        least_bytes: u64,
    ) -> io::Result<(Arc<Segment>, SegmentHeader)> {
        self.name_written(engine)?;
        let made = self.next_file(engine, group, least_bytes)?;
        let id = self.checkpoints.next_segment();
        let state = SegmentState { not_before: self.ages.clock.not_before(), ..SegmentState::default() };
        let segment = Segment::new(self.disk.clone(), id, group, state);
        let segment = Arc::new(if blobs { segment.of_blobs() } else { segment });
        segment.set_file(made.file.clone());
        let header = SegmentHeader {
            origin: engine.origin,
            id,
            generation: engine.space.generation_of(id),
            size_bytes: made.size_bytes,
            created: engine.shared.paces.now(),
            group: engine.writer.lock().groups.name(group),
            blobs,
        };
        let before = engine.shared.segments.load_full();
        self.checkpoints.note_segment(segment.clone());
        self.ages.note_filled(id);
        engine.shared.segments.store(Arc::new(before.with_open(segment.clone())));
        // The checkpoint knows every segment before a block or blob is in it: recovery looks nowhere else.
        if let Err(error) = self.write_checkpoint(engine, Some(id + 1)) {
            engine.shared.segments.store(before);
            self.checkpoints.forget_segment(id);
            // No byte was written to it, and its number is not taken; if that is uncertain, it is recorded as gone.
            if self.checkpoints.is_unnamed() {
                self.checkpoints.note_expired([id]);
            } else if engine.space.fixed.is_some() {
                // Compaction may take the number, and with it the slot.
                self.disk.remove(&file_name(id))?;
            } else {
                self.spare = Some(made);
            }
            return Err(error);
        }
        // Another spare is to be created.
        self.expiry_due = true;
        Ok((segment, header))
    }

    /// Finishes a group's open segment with its footer; the next block begins another. If the disk has no room for the
    /// footer, the segment stays open, and is finished later.
    pub(crate) fn finish_segment(&mut self, engine: &Engine, group: Group) -> io::Result<()> {
        let Some(file) = self.sealing.open.get(&group) else { return Ok(()) };
        // A segment that recovery could not finish has no room kept for this.
        let of_before = file.goes_on().then(|| (file.segment().id, file.reserved_bytes()));
        let covered_to = self.sealing.covered_to.get(&group).copied();
        let last = of_before.map(|(id, room)| self.last_blocks(engine, group, id, room));
        let Some(file) = self.sealing.open.get_mut(&group) else { return Ok(()) };
        match file.finish(Beside { last, ..Beside::default() }) {
            Ok(written) => self.written_bytes += written,
            Err(error) => {
                self.sealing.covered_to.insert(group, covered_to.unwrap_or(0));
                return Err(error);
            }
        }
        let segment = file.segment().clone();
        self.sealing.open.remove(&group);
        self.note_sealed(engine, segment);
        Ok(())
    }

    /// Publishes to readers and the next checkpoint that a segment is sealed.
    pub(crate) fn note_sealed(&mut self, engine: &Engine, segment: Arc<Segment>) {
        self.checkpoints.note_segment(segment.clone());
        self.expiry_due = true;
        let list = engine.shared.segments.load().with_sealed(&segment);
        engine.shared.segments.store(Arc::new(list));
        engine.shared.residents.sealed(&segment);
    }

    /// Returns where the next streams in turn have their newest block before the segment that is being finished, for as
    /// many streams as `room` allows.
    fn last_blocks(&mut self, engine: &Engine, group: Group, finished: u64, room: usize) -> LastBlocks {
        let slots = &engine.shared.slots;
        let from = self.sealing.covered_to.get(&group).copied().unwrap_or(0);
        let mut to = if from < slots.len() { from } else { 0 };
        let mut last = LastBlocks { streams: (to, to), places: Vec::new() };
        while to < slots.len() && last.places.len() * LAST_BLOCK_BYTES < room {
            if let Some(slot) = slots.get(StreamId(to))
                && slot.group == group
            {
                let sealed = slot.sealed.load();
                // Zero: it has no block anywhere.
                if (1..finished).contains(&sealed.newest_segment) {
                    last.places.push((to, sealed.last.map(|block| (sealed.newest_segment, block))));
                }
            }
            to += 1;
        }
        // Entries that do not fit are left to the next segment.
        loop {
            let bytes = last.encode(finished).len();
            if bytes <= room {
                break;
            }
            let keep = last.places.len() * room / bytes;
            to = last.places[keep].0;
            last.places.truncate(keep);
        }
        self.sealing.covered_to.insert(group, to);
        // Streams to come have no block before either.
        last.streams.1 = if to == slots.len() { u32::MAX } else { to };
        last
    }

    /// Writes what changed since the last checkpoint, or everything if that is shorter, and lets the superblock name
    /// it.
    pub(crate) fn write_checkpoint(&mut self, engine: &Engine, next_segment: Option<u64>) -> io::Result<()> {
        self.name_written(engine)?;
        let tail = self.checkpoints.tail();
        self.checkpoint_with(engine, tail, next_segment)
    }

    fn checkpoint_with(&mut self, engine: &Engine, tail: Link, next_segment: Option<u64>) -> io::Result<()> {
        self.name_written(engine)?;
        if self.checkpoints.checkpoint.wants_base() || !self.checkpoint_part(engine, tail, next_segment, false)? {
            // The changes have no room behind the base: the whole state has, in the other place.
            self.checkpoint_part(engine, tail, next_segment, true)?;
        }
        Ok(())
    }

    /// Writes a checkpoint's base or a delta. Returns false if the delta has no room.
    fn checkpoint_part(
        &mut self,
        engine: &Engine,
        tail: Link,
        next_segment: Option<u64>,
        base: bool,
    ) -> io::Result<bool> {
        self.note_told(engine);
        let mut entries = Entries::default();
        let (saved_groups, streams, gaps) = {
            let mut writer = engine.writer.lock();
            let committed = engine.committed.load(Ordering::Acquire);
            let gaps = Unwritten { waiting: writer.gaps.undurable(committed), newest: writer.gaps.newest_id() };
            self.checkpoints.note_streams(writer.streams.take_changed());
            let streams: Vec<u32> =
                if base { (0..writer.streams.len()).collect() } else { self.checkpoints.changed_streams() };
            (writer.groups.to_save(base), streams, gaps)
        };
        saved_groups.iter().for_each(|(_, record)| entries.put(checkpoint::GROUP, record));
        let PutStreams { saved, sequences, is_durable, gaps_apart } =
            put_streams(engine, &streams, &gaps, base, &mut entries);
        if !is_durable {
            // Frames that are saved as seen must be there after a cut. Otherwise one that was lost with the cut, and is
            // sent again, would be taken for a duplicate.
            engine.write_commit(engine.shared.paces.now(), 0).map_err(trouble::of)?;
        }
        let list = base.then(|| engine.shared.segments.load_full());
        let settled = self.settle.without_entry(self.checkpoints.effect());
        let gone = self.checkpoints.put_segments(list.as_deref(), &settled, &mut entries);
        drop(list);
        let checkpoint = &self.checkpoints.checkpoint;
        put_sequences(&sequences, if base { checkpoint.base_room(&entries) } else { None }, &mut entries);
        let next_segment = next_segment.unwrap_or(self.checkpoints.next_segment());
        if self.checkpoints.says_nothing(&entries, tail, next_segment) {
            return Ok(true);
        }
        if !base && !checkpoint.has_room(&entries) {
            return Ok(false);
        }
        let features = if sequences.is_empty() { 0 } else { SEQUENCES } | if gaps_apart { GAPS_APART } else { 0 };
        let named = Named { streams: saved, groups: saved_groups, features };
        let parts = (&entries, named, gone);
        self.written_bytes += self.checkpoints.write(&*self.disk, base, parts, (tail, next_segment))?;
        // Once their gaps have a row, they are saved with its id.
        let unnamed = sequences.iter().filter(|saved| saved.is_unnamed()).map(|saved| saved.stream);
        self.checkpoints.note_streams(unnamed);
        self.name_written(engine)?;
        Ok(true)
    }

    /// Moves the log's tail if that frees at least `least` bytes.
    pub(crate) fn move_tail(&mut self, engine: &Engine, least: u64) -> io::Result<()> {
        crate::upkeep::seal::drop_sealed(engine);
        let link = {
            let mut writer = engine.writer.lock();
            let committed = engine.committed.load(Ordering::Acquire);
            let held = writer.unit.first_held(committed).unwrap_or(LogPosition::END);
            let target = writer.open.first_position().min(held);
            let mut links = engine.links.lock();
            // Keep the last unit that begins at or before the oldest row needed; units behind the newest durable one
            // are not known yet.
            let keep = links.partition_point(|l| l.position <= target);
            if keep == 0 || links[keep - 1].position < writer.unit.tail() + least.max(1) {
                return Ok(());
            }
            links.drain(..keep - 1);
            links[0]
        };
        self.checkpoint_with(engine, link, None)?;
        engine.writer.lock().unit.set_tail(link.position);
        Ok(())
    }

    /// Releases rows from memory that are on disk.
    pub(crate) fn release_rows(&mut self, engine: &Engine, id: u32, block: &BlockRef, segment: u64) {
        let Some(slot) = engine.shared.slots.get(StreamId(id)) else { return };
        let end = block.end_row();
        let channels = slot.stream.load().layout.channels.len();
        let open = slot.open.load_full();
        debug_assert!(
            mutant::is_active(Mutant::SealPastFew)
                || open.chunks.iter().all(|chunk| chunk.end_row() > end || chunk.first_row >= block.first_row),
            "rows of stream {id} below {} would leave memory without a block",
            block.first_row
        );
        let mut valued = vec![false; channels];
        for chunk in open.chunks.iter().filter(|c| c.end_row() <= end) {
            chunk.mark_valued(&mut valued);
        }
        let mut sealed = (**slot.sealed.load()).clone();
        sealed.add(block, segment, valued.into_iter());
        // Before the rows leave memory: a reader that misses them there must find them here.
        slot.sealed.store(Arc::new(sealed));
        drop(open);
        let mut writer = engine.writer.lock();
        let open = slot.open.load_full();
        let (gone, kept): (Vec<_>, Vec<_>) = open.chunks.iter().cloned().partition(|c| c.end_row() <= end);
        // Without rows in memory the next one, which lies behind rows that were lost, if any.
        let next_row = end.max(open.first_row).max(writer.streams[id].next_row);
        let first_row = kept.first().map_or(next_row, |c| c.first_row);
        slot.open.store(Arc::new(crate::append::stream_slot::OpenRows { chunks: kept, first_row }));
        if let Some(tracker) = &mut writer.streams[id].tracker {
            tracker.sealed = gone.iter().fold(tracker.sealed, |before, chunk| chunk.newest_sequence(before));
        }
        let freed: usize = gone.iter().map(|c| c.size_bytes()).sum();
        writer.open.release(freed);
        let dedup = slot.stream.load().clock == crate::model::stream::Clock::Source;
        if dedup {
            let streams = writer.streams.as_mut_slice();
            gone.iter().for_each(|chunk| self.sealing.keep_recent((id, chunk), streams));
        }
        drop(writer);
        // Freed outside the lock, with the last reader.
        drop((gone, open));
        self.checkpoints.note_streams([id]);
    }
}

/// Gaps whose row is not durable yet when a checkpoint begins; those numbered later may wait, too.
struct Unwritten {
    waiting: HashSet<u64>,
    newest: u64,
}

impl Unwritten {
    fn holds(&self, gap: u64) -> bool {
        gap < UNCOUNTED && gap > self.newest || self.waiting.contains(&gap)
    }
}

/// Streams as put into a checkpoint's part.
struct PutStreams {
    /// Stream and serial of each definition.
    saved: Vec<(u32, u32)>,
    /// Sequence states of the streams that have one.
    sequences: Vec<SavedSequence>,
    /// Whether all frames that were seen are durable.
    is_durable: bool,
    /// Whether gap rows are in a group of their own.
    gaps_apart: bool,
}

/// Adds the states of sequences. If room is bounded, each stream gets its share: a state that does not fit loses its
/// lower part, or all of it but the position, so that its frames may be stored twice.
fn put_sequences(sequences: &[SavedSequence], room: Option<usize>, entries: &mut Entries) {
    let mut room = room.unwrap_or(usize::MAX);
    let sequences = if mutant::is_active(Mutant::ForgetSequences) { &[] } else { sequences };
    for (n, saved) in sequences.iter().enumerate() {
        let share = room / (sequences.len() - n);
        let Some(bytes) = saved.encode_within(share.saturating_sub(Entries::HEAD_BYTES)) else { continue };
        room = room.saturating_sub(Entries::HEAD_BYTES + bytes.len());
        entries.put(checkpoint::SEQUENCE, &bytes);
    }
}

/// Adds the definition and the position of streams to a checkpoint's part.
///
/// Appends wait only while the positions of a few streams are noted, never while they are encoded. Changes meanwhile
/// are in the log behind the tail that this checkpoint names, and in the next checkpoint. Positions change only under
/// the lock of the sealer, which the caller holds.
fn put_streams(engine: &Engine, streams: &[u32], gaps: &Unwritten, base: bool, entries: &mut Entries) -> PutStreams {
    let committed = engine.committed.load(Ordering::Acquire);
    let mut put = PutStreams {
        saved: Vec::with_capacity(streams.len()),
        sequences: Vec::new(),
        is_durable: true,
        gaps_apart: false,
    };
    let mut noted = Vec::with_capacity(STREAMS_A_LOCK.min(streams.len()));
    for few in streams.chunks(STREAMS_A_LOCK) {
        {
            let mut writer = engine.writer.lock();
            noted.extend(few.iter().map(|&id| {
                let stream = &mut writer.streams[id];
                let sequence = stream.tracker.as_ref().and_then(|tracker| tracker.sealed);
                if let Some(tracker) = &mut stream.tracker {
                    let saved = SavedSequence::of(id, stream.next_row, tracker, |gap| gaps.holds(gap));
                    put.sequences.push(saved);
                    tracker.unsaved = false;
                    put.is_durable &= stream.dirty <= committed && stream.reducer.is_none();
                }
                (id, stream.slot.stream.load_full(), stream.history.clone(), stream.saved_serial, sequence)
            }));
        }
        for (id, definition, history, saved_serial, sequence) in noted.drain(..) {
            let Some(slot) = engine.shared.slots.get(StreamId(id)) else { continue };
            // A delta repeats the definition only if it is newer; both state what is.
            if base || saved_serial != Some(history.serial) {
                entries.put(checkpoint::STREAM, &encode_stream(&definition, &history, slot.group));
            }
            let sealed = (**slot.sealed.load()).clone();
            let position = Position { stream: id, first_row: slot.open.load().first_row, sequence, sealed };
            entries.put(checkpoint::POSITION, &position.encode());
            put.saved.push((id, history.serial));
            put.gaps_apart |= slot.group == Group::GAPS;
        }
    }
    put
}

/// Returns the max bytes that a segment spends on the places of the newest blocks before it.
pub(crate) fn last_blocks_max(segment_bytes: u64) -> usize {
    segment_bytes as usize / 16
}
