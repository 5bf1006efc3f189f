//! Compaction (settle): small and poorly packed blocks of cold segments become large ones, in the background.
//!
//! ```text
//!  neighbours, sealed, cold ─> judged ─> rewritten ─> read back and compared ─> checkpoint ─> the old ones go
//! ```
//! Invariants: a checkpoint names the new segment and drops the old ones in one step, and only after every row was read
//! back and found equal. Until then the number of the new one is recorded as gone: a power cut leaves the old ones, and
//! nothing beside them. The new one takes the place of the last of the old ones, and stands for all their numbers. It
//! is not compacted again, so that a row is rewritten at most once. A segment that cannot be read is left where it is.
//! Compaction never takes space that rows need: it gives up first.

mod rows;
pub(crate) mod work;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use self::work::{Done, Room, Stop, Work};
use crate::disk::Access;
use crate::engine::Engine;
use crate::model::mutant::{self, Mutant};
use crate::model::refusal::ScanError;
use crate::model::trouble::is_full;
use crate::model::trouble::passes;
use crate::segment::SegmentHeader;
use crate::segment::directory::{Segment, SegmentState, file_name};
use crate::segment::file::SegmentFile;
use crate::upkeep::checkpointing::Effect;
use crate::upkeep::sealer::{Replaced, Sealer, Spare};
use crate::upkeep::turnover::last_blocks_max;

/// Max segments that become one.
const RUN_SEGMENTS: usize = 16;
/// Max bytes of segments that are looked at together, as a multiple of a full one.
const RUN_FULL: u64 = 4;
/// Nanoseconds to wait before looking again if nothing was found, and after the disk was full.
const LOOK_NS: i64 = 10_000_000_000;
const FULL_NS: i64 = 60_000_000_000;
/// Min slots of a store in which one is kept for compaction.
const SLOTS_MIN: u64 = 16;

impl Sealer {
    /// Returns whether a slot is kept free for compaction.
    pub(crate) fn keeps_slot(&self, engine: &Engine) -> bool {
        let fixed = engine.space.fixed.is_some_and(|fixed| fixed.slots >= SLOTS_MIN);
        fixed && engine.options.settle && self.settle.under_way.is_none()
    }

    /// Does about 1 ms of work on cold segments, or with `at_once` on all sealed ones. Returns whether more is waiting.
    pub(crate) fn settle_slice(&mut self, engine: &Engine, now: i64, at_once: bool) -> io::Result<bool> {
        self.remove_replaced(engine, now, false)?;
        if engine.space.fixed.is_some_and(|fixed| fixed.slots < SLOTS_MIN) {
            return Ok(false);
        }
        let Some(mut work) = self.settle.work.take() else {
            if !at_once && self.settle.look_at.is_some_and(|at| (1..=FULL_NS).contains(&at.saturating_sub(now))) {
                return Ok(false);
            }
            self.settle.work = self.choose(engine, now, at_once).map(Box::new);
            if self.settle.work.is_none() {
                self.settle.look_at = Some(now.saturating_add(LOOK_NS.min(engine.settle_age_ns)));
            }
            return Ok(self.settle.work.is_some());
        };
        match self.settle_step(engine, &mut work, now) {
            Ok(true) => {
                self.settle.work = Some(work);
                Ok(true)
            }
            Ok(false) => Ok(true),
            Err(stop) => self.give_up(engine, work, stop, now, at_once),
        }
    }

    /// Returns a run of cold neighbours that were not looked at yet, as long as it can get.
    fn choose(&self, engine: &Engine, now: i64, at_once: bool) -> Option<Work> {
        let full = engine.space.segment_bytes;
        let policies = engine.policies();
        let list = engine.shared.segments.load_full();
        for (group, segments) in list.groups() {
            // A joined segment goes only when its newest row is too old.
            let age = policies[group.0 as usize].max_age_ns.or(engine.max_age_ns);
            let span = age.map_or(i64::MAX, |age| age / 8);
            let mut run: Vec<(Arc<Segment>, SegmentState)> = Vec::new();
            let ripe = |run: &[(Arc<Segment>, SegmentState)]| {
                let bytes: u64 = run.iter().map(|(_, state)| state.bytes).sum();
                !run.is_empty() && (at_once || bytes >= full / 8 * 7 * if engine.space.fixed.is_some() { 2 } else { 1 })
            };
            let work = |run: Vec<(Arc<Segment>, SegmentState)>| {
                let sources = run.into_iter().map(|(segment, _)| segment).collect();
                Some(Work::new(group, sources, engine.shared.clone()))
            };
            for (segment, _) in segments.sealed() {
                let state = *segment.state.lock();
                let cold = at_once || state.stored.1 < now.saturating_sub(engine.settle_age_ns);
                if !cold {
                    break;
                }
                let bytes: u64 = run.iter().map(|(_, state)| state.bytes).sum();
                let first = run.first().map_or(state.stored.0, |(_, state)| state.stored.0);
                let fresh = !segment.is_settled() && !state.left && !self.settle.passed.contains(&segment.id);
                let joins = run.len() < RUN_SEGMENTS
                    && bytes + state.bytes <= full * RUN_FULL
                    && state.stored.1.saturating_sub(first) <= span;
                let ends = !fresh || !joins;
                if ends && !run.is_empty() {
                    // The run cannot get longer.
                    return work(run);
                }
                if fresh {
                    run.push((segment.clone(), state));
                }
            }
            if ripe(&run) {
                return work(run);
            }
        }
        None
    }

    fn room(&self, engine: &Engine) -> Room {
        let segment_bytes = engine.space.segment_bytes;
        let reserved_bytes = last_blocks_max(segment_bytes);
        Room { segment_bytes, reserved_bytes, by_slots: engine.space.fixed.is_some() }
    }

    /// Does a slice of a run. Returns false if the run is done.
    fn settle_step(&mut self, engine: &Engine, work: &mut Work, now: i64) -> Result<bool, Stop> {
        let room = self.room(engine);
        let residents = &engine.shared.residents;
        match work.slice(&room, &mut self.settle.encoder, residents)? {
            Done::Going => Ok(true),
            Done::Judged => {
                let file = self.begin_settled(engine, work)?;
                work.begin_output(file);
                Ok(true)
            }
            Done::Written => {
                let (written, of_writer) = work.finish_output(&room)?;
                self.count_written(written);
                // Nothing that the writer knows is trusted: this segment reads its footer from the disk.
                let disk = self.disk.clone();
                let state = work.aged_as_sources(*of_writer.state.lock());
                let new = Segment::standing_for(of_writer.places, disk, of_writer.id, work.group, state);
                new.file()?.forget_cached();
                new.close_file();
                work.begin_comparing(Arc::new(new), residents)?;
                Ok(true)
            }
            Done::Compared => {
                self.install(engine, work, now)?;
                Ok(false)
            }
        }
    }

    /// Creates the file of a new segment. From here on its number is taken, and a checkpoint records it as gone.
    fn begin_settled(&mut self, engine: &Engine, work: &Work) -> Result<SegmentFile, Stop> {
        let full = || Stop::Disk(io::ErrorKind::StorageFull.into());
        self.name_written(engine)?;
        let id = self.checkpoints.next_segment();
        let size_bytes = engine.space.segment_bytes;
        let fixed = engine.space.fixed.is_some();
        let file = if fixed {
            self.disk.create(&file_name(id), size_bytes, Access::Buffered)?
        } else {
            // The spare is taken only if there is room for another.
            if self.used_bytes(engine) + size_bytes > engine.space.max_bytes {
                return Err(full());
            }
            self.spare.take_if(|spare| spare.size_bytes == size_bytes).ok_or_else(full)?.file
        };
        let sources = &work.sources;
        let places = (sources[0].places.0, sources[sources.len() - 1].places.1);
        let segment = Segment::standing_for(places, self.disk.clone(), id, work.group, SegmentState::default());
        segment.set_file(file.clone());
        let header = SegmentHeader {
            origin: engine.origin,
            id,
            generation: engine.space.generation_of(id),
            size_bytes,
            created: engine.shared.paces.now(),
            group: engine.writer.lock().groups.name(work.group),
            blobs: false,
        };
        let created = SegmentFile::create(Arc::new(segment), header, self.room(engine).reserved_bytes)?;
        self.settle.under_way = Some(id);
        if let Err(error) = self.write_checkpoint(engine, Some(id + 1)) {
            // No byte was written to it, and its number is not taken; if that is uncertain, it is recorded as gone.
            self.settle.under_way = None;
            if self.checkpoints.is_unnamed() {
                self.checkpoints.note_expired([id]);
            } else if fixed {
                self.disk.remove(&file_name(id))?;
            } else {
                self.spare = Some(Spare { file, size_bytes });
            }
            return Err(error.into());
        }
        if !fixed {
            self.make_spare(engine)?;
            if self.spare.is_none() {
                return Err(full());
            }
        }
        Ok(created)
    }

    /// Replaces the old segments by the new one.
    fn install(&mut self, engine: &Engine, work: &mut Work, now: i64) -> Result<(), Stop> {
        // What is named only now may drop some of the old ones.
        self.name_written(engine)?;
        let list = engine.shared.segments.load_full();
        let are_there = work.sources.iter().all(|segment| list.holds(segment));
        let Some(new) = work.compared().filter(|_| are_there) else { return Err(Stop::Gone) };
        if mutant::is_active(Mutant::ReplaceEarly) {
            self.put_into_force(engine, Effect::Replace { old: work.sources.clone(), new: new.clone(), since: now });
        }
        self.checkpoints.set_effect(Effect::Replace { old: work.sources.clone(), new, since: now });
        let done = self.write_checkpoint(engine, None);
        self.checkpoints.set_effect(Effect::Nothing);
        match done {
            // The disk may have either superblock: all segments stay until the same one is written.
            Err(error) if self.checkpoints.is_unnamed() && passes(&error) => {
                self.settle.under_way = None;
                Ok(())
            }
            Err(error) => Err(error.into()),
            Ok(()) => Ok(()),
        }
    }

    /// Notes that a checkpoint has a segment in the place of others, whose files are removed when they have no readers.
    pub(crate) fn note_replaced(&mut self, engine: &Engine, old: &[Arc<Segment>], new: &Arc<Segment>, since: i64) {
        self.ages.join_filled(old, new);
        let (mut bytes, fixed) = (0, engine.space.fixed.is_some());
        for segment in old {
            let of_segment = segment.state.lock().bytes;
            bytes += of_segment;
            self.checkpoints.forget_segment(segment.id);
            if fixed {
                // A reader has the slot's bytes until another segment gets the slot.
                let _ = segment.file();
                segment.expired.store(true, Ordering::Release);
            }
            self.settle.replaced.push(Replaced {
                id: segment.id,
                bytes: if fixed { 0 } else { of_segment },
                segment: Arc::downgrade(segment),
                since,
            });
        }
        if self.settle.under_way == Some(new.id) {
            self.settle.under_way = None;
        }
        self.settle.counts.segments += old.len() as u64;
        self.settle.counts.saved_bytes += bytes.saturating_sub(new.state.lock().bytes);
    }

    /// Removes replaced segments: those that no view reads any more, or for too long; all of a fixed size; or all.
    /// Returns whether any was removed.
    fn remove_replaced(&mut self, engine: &Engine, now: i64, all: bool) -> io::Result<bool> {
        if self.settle.replaced.is_empty() {
            return Ok(false);
        }
        let fixed = engine.space.fixed.is_some();
        let over = |replaced: &Replaced| {
            // Also after a leap of the clock, either way.
            let age = i64::try_from(now.abs_diff(replaced.since)).unwrap_or(i64::MAX);
            all || fixed || replaced.segment.strong_count() == 0 || age > engine.shared.max_view_ns
        };
        let mut gone = Vec::new();
        let mut at = 0;
        while let Some(replaced) = self.settle.replaced.get(at) {
            if !over(replaced) {
                at += 1;
                continue;
            }
            if let Some(segment) = replaced.segment.upgrade() {
                segment.expired.store(true, Ordering::Release);
            }
            gone.push(self.settle.replaced.remove(at).id);
        }
        if gone.is_empty() {
            return Ok(false);
        }
        self.remove_now(&gone)?;
        Ok(!gone.iter().any(|id| self.checkpoints.is_gone(*id)))
    }

    /// Removes the files of gone segments. Those that the disk refuses to remove for a time are removed with the next
    /// checkpoint, which records again that they are gone; nothing else is dropped for them.
    fn remove_now(&mut self, gone: &[u64]) -> io::Result<()> {
        self.expiry_due = true;
        self.checkpoints.note_gone(gone);
        self.remove_gone()
    }

    /// Frees all space that compaction has. Returns false if it had none, or if the disk refuses to remove it yet. A
    /// run under way begins again, later.
    pub(crate) fn free_settle(&mut self, engine: &Engine, now: i64) -> io::Result<bool> {
        let under_way = self.settle.under_way;
        if let Some(work) = self.settle.work.take() {
            self.give_up(engine, work, Stop::Disk(io::ErrorKind::StorageFull.into()), now, true)?;
        }
        let is_gone = |id: u64| self.settle.under_way.is_none() && !self.checkpoints.is_gone(id);
        let freed = under_way.is_some_and(is_gone);
        Ok(self.remove_replaced(engine, now, true)? || freed)
    }

    /// Ends a run without its segment, and notes why. Returns whether there may be others.
    fn give_up(
        &mut self,
        engine: &Engine,
        mut work: Box<Work>,
        stop: Stop,
        now: i64,
        at_once: bool,
    ) -> io::Result<bool> {
        let stop = match stop {
            Stop::Disk(error) if !passes(&error) => return Err(error),
            stop => stop,
        };
        self.count_written(work.wasted_bytes());
        if let Some(id) = self.settle.under_way.take() {
            if let Some(new) = work.compared() {
                engine.shared.residents.forget(&[new]);
            }
            self.remove_now(&[id])?;
        }
        let alone = work.sources.len();
        match stop {
            Stop::Gone | Stop::Unread(rows::Unread { why: ScanError::Expired, .. }) => {}
            Stop::NotWorthIt => self.leave(&work.sources, at_once),
            Stop::NoRoom => {
                let least = if engine.space.fixed.is_some() { 2 } else { 1 };
                if work.try_fewer(least) {
                    self.settle.work = Some(work);
                } else {
                    self.leave(&work.sources, at_once);
                }
            }
            Stop::Unread(rows::Unread { source, why }) if source < alone => {
                self.fail(&work.sources[source..=source], why.to_string());
            }
            Stop::Unread(rows::Unread { why, .. }) => self.fail(&work.sources, format!("what was written: {why}")),
            Stop::Differs(what) => self.fail(&work.sources, format!("what was written differs: {what}")),
            Stop::Disk(error) => {
                self.settle.look_at = Some(now.saturating_add(FULL_NS));
                return if is_full(&error) { Ok(false) } else { Err(error) };
            }
        }
        Ok(true)
    }

    /// Counts bytes that compaction wrote, among all that the store wrote and in its own count.
    fn count_written(&mut self, bytes: u64) {
        self.written_bytes += bytes;
        self.settle.counts.written_bytes += bytes;
    }

    /// Passes segments over until the next opening, and notes why.
    fn fail(&mut self, segments: &[Arc<Segment>], why: String) {
        self.settle.counts.failed += segments.len() as u64;
        self.settle.counts.failure = Some(why);
        self.settle.passed.extend(segments.iter().map(|segment| segment.id));
    }

    /// Notes that segments stay as they are. For those that were cold long enough to have all their neighbours this is
    /// final: the next checkpoint records it.
    fn leave(&mut self, segments: &[Arc<Segment>], at_once: bool) {
        for segment in segments.iter().filter(|segment| !segment.expired.load(Ordering::Acquire)) {
            if at_once {
                self.settle.passed.insert(segment.id);
            } else {
                segment.state.lock().left = true;
                self.checkpoints.note_segment(segment.clone());
            }
        }
    }

    /// Forgets which segments were passed over since the store was opened, so that they are looked at again.
    pub(crate) fn look_again(&mut self) {
        self.settle.passed.clear();
    }
}
