//! The store's interface, which sources, live, query and server call.

pub(crate) mod blob_writer;
pub(crate) mod figures;
pub(crate) mod fixed;
pub(crate) mod runs;
pub(crate) mod succession;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::append::ledger::GapCause;
use crate::append::recent_file;
use crate::append::stream_slot::SlotTable;
use crate::append::{REDUCED, Taken, Writer};
use crate::disk::io_error;
use crate::disk::names;
use crate::disk::space::Space;
use crate::disk::{Access, Disk};
use crate::engine::Engine;
use crate::engine::commit::Committer;
use crate::log;
use crate::log::superblock::Superblock;
use crate::model::clock::{Caller, WallClock};
use crate::model::counts::*;
use crate::model::damage::Damage;
use crate::model::mutant::{self, Mutant};
use crate::model::trouble::{is_full, is_read_only, passes};
use crate::open::{create, recovery};
use crate::read::shared::Shared;
use crate::segment::directory::SegmentList;
use crate::store::fixed::disk_of;
use crate::upkeep::sealer::Sealer;
use crate::*;

/// Number of the store's own streams that may exist beyond `max_streams`.
const INTERNAL_STREAMS: u32 = 64;

/// The embedded store. Clones share it.
#[derive(Clone)]
pub struct Store {
    pub(crate) engine: Arc<Engine>,
    /// State of upkeep, locked by the caller that seals, checkpoints or expires.
    pub(crate) sealer: Arc<Mutex<Sealer>>,
}

impl Store {
    /// Opens the store of a folder, or creates one; or opens the store of a fixed size that a file or block device
    /// holds: see [`Store::create_fixed`]. `now` is nanoseconds since 1970 UTC.
    ///
    /// # Errors
    /// [`OpenError`]: it is in use, newer, a copy, cut short, damaged, or the disk refuses.
    pub fn open(path: &Path, options: StoreOptions, now: i64) -> Result<Store, OpenError> {
        Store::open_on(disk_of(path)?, options, now)
    }

    /// Opens a store again, as after a failure of its disk. If it is gone, none is created in its place. `origin` says
    /// which it is.
    ///
    /// # Errors
    /// As [`Store::open`]; [`OpenError::Gone`]: there is no store, or another one.
    pub fn reopen(path: &Path, origin: u128, options: StoreOptions, now: i64) -> Result<Store, OpenError> {
        let gone = |reason: &str| OpenError::Gone { path: path.display().to_string(), reason: reason.to_owned() };
        let removed = || gone("the store was removed while it was open, or another disk is mounted there");
        if !path.exists() {
            return Err(removed());
        }
        let disk = disk_of(path)?;
        let file = match disk.open(names::SUPERBLOCK, Access::Log) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(removed()),
            file => file.map_err(io_error(&*disk, names::SUPERBLOCK))?,
        };
        match Superblock::read(&*disk, &*file) {
            Ok(found) if found.origin == origin => Store::open_on(disk, options, now),
            Ok(_) => Err(gone("another store was put in the place of the one that was open")),
            Err(OpenError::Damaged { reason, .. }) => {
                Err(gone(&format!("what is there is not the store that was open: {}: {reason}", names::SUPERBLOCK)))
            }
            Err(error) => Err(error),
        }
    }

    /// Gives the copy of a store an origin of its own, so that its rows are never taken for those of the other. Returns
    /// the new origin.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn adopt(path: &Path) -> Result<u128, OpenError> {
        create::adopt(&*disk_of(path)?)
    }

    /// Opens the store of any disk.
    pub(crate) fn open_on(disk: Arc<dyn Disk>, mut options: StoreOptions, now: i64) -> Result<Store, OpenError> {
        let lock = disk.lock().map_err(io_error(&*disk, "lock"))?;
        let Some(lock) = lock else { return Err(OpenError::InUse { path: disk.path() }) };
        if let Some(layout) = disk.layout() {
            options.max_streams = options.max_streams.min(layout.max_streams);
            if options.retention.is_empty() {
                options.retention.clone_from(&layout.groups);
            }
        }
        let slots = Arc::new(SlotTable::new(options.max_streams.saturating_add(INTERNAL_STREAMS)));
        let version = Arc::new(AtomicU64::new(1));
        let mut writer = Writer::new(slots.clone(), options.max_streams, version.clone());
        let space = match disk.layout() {
            Some(layout) => Space::fixed(layout),
            None => Space::of(&options, disk.space().map_err(io_error(&*disk, ""))?.0),
        };
        let opened = recovery::open(&disk, &options, &space, &mut writer, now);
        // Data that a failed write or sync did not make durable must not be found by the next opening.
        let opened = opened.inspect_err(|_| disk.forget_cached())?;
        let max_age_ns = options.max_age.map(|age| i64::try_from(age.as_nanos()).unwrap_or(i64::MAX));
        let settle_age_ns = i64::try_from(options.settle_age.as_nanos()).unwrap_or(i64::MAX);
        let max_future_ns = i64::try_from(options.max_future.as_nanos()).unwrap_or(i64::MAX);
        writer.begin(max_future_ns, now);
        let shared = Arc::new(Shared::new(slots, version, space.generation_of(0), now, max_future_ns));
        shared.segments.store(Arc::new(SegmentList::new(opened.segments)));
        let committed = AtomicU64::new(opened.log.link.commit);
        let (origin, identity) = (opened.superblock.now.origin, opened.superblock.now.identity);
        let void_commits = Mutex::new(opened.found_commit + 1..opened.found_commit + 1);
        let newest_stored = shared.segments.load().newest_stored().into_iter().chain(opened.last_commit);
        let clock = WallClock::new(options.clock_confirm, now, newest_stored);
        let mut sealer = Sealer::new(disk.clone(), opened.superblock, opened.checkpoint, opened.spare, clock);
        sealer.sealing.open = opened.open;
        sealer.sealing.damage_end = opened.log_damage.passed_to;
        opened.blobs.into_iter().for_each(|file| sealer.blobs.add(file));
        sealer.ages.count_as_of_now(&shared.segments.load_full(), opened.last_commit);
        if let Some(fixed) = space.fixed {
            // The rest of the region is for the heads of the lists.
            sealer.sealing.set_recent_max((fixed.recent_bytes / 4 * 3).max(256 << 10) as usize);
        }
        for segment in opened.changed_segments {
            if segment.state.lock().sealed {
                shared.residents.sealed(&segment);
            }
            sealer.checkpoints.note_segment(segment);
        }
        sealer.checkpoints.note_expired(opened.expired);
        sealer.sealing.begin_recent(writer.streams.as_mut_slice());
        sealer.untold = opened.untold;
        let ring_bytes = writer.unit.ring_bytes();
        let clock_leap = sealer.ages.clock.state().newest;
        let engine = Engine {
            shared,
            disk,
            options,
            origin,
            epoch: opened.report.epoch,
            report: RecoveryReport { last_commit: opened.last_commit, clock_leap, ..opened.report },
            writer: Mutex::new(writer),
            log: Mutex::new(Committer::new(opened.log)),
            blob_gate: RwLock::new(()),
            links: Mutex::new(opened.links),
            log_bytes: ring_bytes,
            space,
            max_age_ns,
            settle_age_ns,
            committed,
            void_commits,
            waiting: Mutex::new(None),
            condition: Condvar::new(),
            closed: AtomicBool::new(false),
            closing: Mutex::new(()),
            lock: Mutex::new(Some(lock)),
            identity,
        };
        let store = Store { engine: Arc::new(engine), sealer: Arc::new(Mutex::new(sealer)) };
        if !store.engine.report.damaged.is_empty() && !mutant::is_active(Mutant::TellDamageLate) {
            let disk = &*store.engine.disk;
            store.note_damage(now).inspect_err(|_| disk.forget_cached()).map_err(io_error(disk, ""))?;
        }
        Ok(store)
    }

    /// Makes what an opening found to be damaged part of a checkpoint: a kill must not let the next one count on it, nor
    /// on rows of damaged segments that the log brought back. Rows of `strongback.gaps` tell of it first, as the next
    /// opening will not find it; a small log has no room set aside for them, and takes them now if it is not full.
    ///
    /// # Errors
    /// The disk failed. If it only refuses for a time, upkeep tries again.
    fn note_damage(&self, now: i64) -> std::io::Result<()> {
        let mut writer = self.engine.writer.lock();
        let is_untold = writer.gaps.has(GapCause::Damaged);
        if is_untold {
            writer.flush_gaps(now, true);
        }
        drop(writer);
        if is_untold {
            match self.commit(now) {
                Err(Refusal::Poisoned(reason)) => return Err(std::io::Error::other(reason)),
                Err(_) => return Ok(()),
                Ok(_) => {}
            }
        }
        let mut sealer = self.sealer.lock();
        match sealer.write_checkpoint(&self.engine, None) {
            Err(error) if passes(&error) => {
                let _ = self.pass(&mut sealer, error, now);
                Ok(())
            }
            done => done,
        }
    }

    /// Adds damage that was found before recovery.
    pub(crate) fn add_damage(&mut self, damage: Vec<Damage>) {
        if let Some(engine) = Arc::get_mut(&mut self.engine) {
            engine.report.damaged.splice(..0, damage);
        }
    }

    /// Commits, then refuses all writes, for a store that is only read.
    pub(crate) fn into_read_only(self, now: i64) -> Store {
        // Losses that recovery found are in `strongback.gaps`; if the log has no room for them, in the report alone.
        let _ = self.commit(now);
        self.engine.waiting.lock().get_or_insert(Refusal::Closed);
        self
    }

    /// Returns what opening found.
    pub fn recovery(&self) -> RecoveryReport {
        self.engine.report.clone()
    }

    /// Returns the random id made with the store.
    pub fn origin(&self) -> u128 {
        self.engine.origin
    }

    /// Returns the number of this opening.
    pub fn epoch(&self) -> u32 {
        self.engine.epoch
    }

    /// Returns the current version of the catalog: a counter, read at the same cost whatever the number of streams.
    pub fn catalog_version(&self) -> u64 {
        self.engine.shared.catalog_version.load(Ordering::Acquire)
    }

    /// Returns the current streams and channels.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.engine.shared.catalog()
    }

    /// Finds a stream or creates it, adding channels and widening their types as needed. Returns the stream and, for
    /// each channel of `spec`, the index to push its values under; where types conflict that is a second column. Tables
    /// that begin with `strongback.` are reserved for the store.
    ///
    /// # Errors
    /// If a name is invalid, there are too many streams or channels, or the store refuses writes.
    pub fn resolve(&self, spec: &StreamSpec, now: i64) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        self.engine.shared.paces.tell(Caller::Append, now);
        if let Some(refusal) = self.engine.poison() {
            return Err(Reject::Refused(refusal));
        }
        self.engine.writer.lock().resolve(spec, false, now)
    }

    /// Resolves a spec like [`Store::resolve`], for the program's own tables under `strongback.` (events). They belong
    /// to a retention group that is never dropped for others.
    ///
    /// # Errors
    /// As [`Store::resolve`].
    pub fn resolve_own(&self, spec: &StreamSpec, now: i64) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        self.engine.shared.paces.tell(Caller::Append, now);
        if let Some(refusal) = self.engine.poison() {
            return Err(Reject::Refused(refusal));
        }
        self.engine.writer.lock().resolve(spec, true, now)
    }

    /// Records a loss that only the caller can see, such as a kernel's drop counter: adds a row to `strongback.gaps`
    /// with the next commit, and adds to the lost frames of its stream. The store chooses the `id`.
    pub fn report_gap(&self, gap: Gap) {
        let mut writer = self.engine.writer.lock();
        if let Some(stream) = gap.stream.and_then(|id| writer.streams.get_mut(id)) {
            stream.counts.lost += gap.count;
        }
        writer.gaps.push(gap);
    }

    /// Appends frames. They are visible to new views at once and durable with the next commit. Values are converted
    /// exactly to the type of their channel. Never waits for the disk.
    pub fn append(&self, batch: &FrameBatch, now: i64) -> Appended {
        self.each(batch, now, false, Writer::append)
    }

    /// Appends frames for a caller that retries those rejected because the log was full. Such rejections are not
    /// counted, so each frame counts once. After the first one the rest of the batch is rejected as well, so the
    /// accepted frames are a prefix of the batch and keep their order.
    pub fn offer(&self, batch: &FrameBatch, now: i64) -> Appended {
        self.each(batch, now, true, Writer::offer)
    }

    fn each(
        &self,
        batch: &FrameBatch,
        now: i64,
        in_order: bool,
        take: impl Fn(&mut Writer, &FrameRef<'_>, i64, bool) -> Taken,
    ) -> Appended {
        self.engine.shared.paces.tell(Caller::Append, now);
        let poison = self.engine.poison();
        let mut writer = self.engine.writer.lock();
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut is_full = false;
        for frame in batch.frames() {
            if is_full {
                outcomes.push(Outcome::Rejected(Reject::Refused(Refusal::LogFull)));
                continue;
            }
            let taken = match &poison {
                None => take(&mut writer, &frame, now, batch.is_answered()),
                Some(refusal) => writer.refuse(&frame, refusal.clone(), batch.is_answered()),
            };
            match taken {
                Ok(Some(REDUCED)) => {
                    let row = writer.streams[frame.head().stream.0].next_row.saturating_sub(1);
                    outcomes.push(Outcome::Reduced { row });
                }
                Ok(Some(row)) => outcomes.push(Outcome::Stored { row }),
                Ok(None) => outcomes.push(Outcome::Duplicate),
                Err(reject) => {
                    is_full = in_order && *reject == Reject::Refused(Refusal::LogFull);
                    outcomes.push(Outcome::Rejected(*reject));
                }
            }
        }
        // If no record is pending, the frames that these repeat are in the commit before.
        let commit =
            if mutant::is_active(Mutant::NameNextCommit) { writer.unit.number() } else { writer.unit.newest_commit() };
        Appended { outcomes, commit: CommitNumber(commit) }
    }

    /// Counts frames of a stream that the caller rejected.
    pub fn count_rejected(&self, stream: StreamId, frames: u64) {
        if let Some(stream) = self.engine.writer.lock().streams.get_mut(stream.0) {
            stream.counts.received += frames;
            stream.counts.rejected += frames;
        }
    }

    /// Makes everything appended so far durable. Call it from one thread, at a fixed interval and whenever a caller
    /// waits for durability. Returns at once if nothing is new.
    ///
    /// # Errors
    /// [`Refusal::DiskFull`] and [`Refusal::Unwritable`] are temporary: appended frames are kept, and a later commit
    /// makes them durable. After a failed write or sync the store refuses everything; close it and open it again.
    pub fn commit(&self, now: i64) -> Result<CommitNumber, Refusal> {
        self.engine.commit(now)
    }

    /// Returns the newest durable commit.
    pub fn committed(&self) -> CommitNumber {
        CommitNumber(self.engine.committed.load(Ordering::Acquire))
    }

    /// Waits until a commit is durable, the store refuses, or the time is over (false). Blocks the thread on a
    /// condition variable; async callers use their own watch around `commit`.
    ///
    /// # Errors
    /// The store was poisoned or closed before the commit was durable, or this store took over from such a one
    /// ([`Store::take_over`]): it gives out none of its numbers again.
    pub fn wait_committed(&self, commit: CommitNumber, timeout: Duration) -> Result<bool, Refusal> {
        if self.engine.void_commits.lock().contains(&commit.0) {
            return Err(Refusal::Poisoned("the disk failed before the commit was durable".to_owned()));
        }
        let until = Instant::now() + timeout;
        let mut waiting = self.engine.waiting.lock();
        loop {
            if self.committed() >= commit {
                return Ok(true);
            }
            if let Some(refusal) = &*waiting {
                return Err(refusal.clone());
            }
            if self.engine.condition.wait_until(&mut waiting, until).timed_out() {
                return Ok(self.committed() >= commit);
            }
        }
    }

    /// Returns the next row of a stream that is not yet durable; rows below it are final.
    pub fn committed_row(&self, stream: StreamId) -> u64 {
        self.engine.shared.slots.get(stream).map_or(0, |slot| slot.committed_row.load(Ordering::Acquire))
    }

    /// Returns the number of rows that a stream had when this epoch began: those that earlier epochs left durable.
    pub fn opened_row(&self, stream: StreamId) -> u64 {
        self.engine.writer.lock().streams.get(stream.0).map_or(0, |s| s.opened_row)
    }

    /// Seals, checkpoints and expires in slices of about 1 ms. Returns whether more is waiting. Call it from a second
    /// thread.
    ///
    /// # Errors
    /// A failed write or sync poisons the store: close it and open it again.
    pub fn maintain(&self, now: i64) -> Result<bool, Refusal> {
        self.tend(now, None)
    }

    /// Maintains like [`Store::maintain`], with a steady clock beside `now`: one that nobody sets and that continues
    /// while the system sleeps, counted from any instant (on Linux `CLOCK_BOOTTIME`). With it, leaps of `now` are known
    /// for certain, and so is how long views are held; without it, steps of `now` of up to a minute are taken for time
    /// that passed.
    ///
    /// # Errors
    /// As [`Store::maintain`].
    pub fn maintain_at(&self, now: i64, steady: Duration) -> Result<bool, Refusal> {
        self.tend(now, Some(i64::try_from(steady.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// Returns how far the clock that [`Store::maintain`] is called with is trusted.
    pub fn clock(&self) -> ClockTrust {
        self.sealer.lock().ages.clock.state()
    }

    fn tend(&self, now: i64, steady: Option<i64>) -> Result<bool, Refusal> {
        self.engine.shared.paces.tell(Caller::Upkeep, now);
        steady.into_iter().for_each(|steady| self.engine.shared.paces.tell_steady(steady));
        let mut sealer = self.sealer.lock();
        if let Some(refusal) = self.engine.poison() {
            return Err(refusal);
        }
        sealer.ages.clock.observe(now, steady);
        let (full, held) = {
            let writer = self.engine.writer.lock();
            (writer.gate.is_disk_full(), writer.gate.is_held())
        };
        if full && !sealer.has_space(&self.engine) || held && self.engine.disk.is_read_only() {
            return Ok(false);
        }
        match self.engine.check_there().and_then(|()| sealer.slice(&self.engine, now)) {
            Ok(more) => {
                match self.engine.take_again(now) {
                    // The log found no space: drop for it what may be dropped.
                    Err(Refusal::DiskFull) => {
                        return self.pass(&mut sealer, std::io::ErrorKind::StorageFull.into(), now);
                    }
                    Err(Refusal::Unwritable(_)) => return Ok(false),
                    taken => taken?,
                }
                self.engine.writer.lock().gate.set_disk_full(false);
                sealer.shortage.end();
                Ok(more)
            }
            Err(error) => self.pass(&mut sealer, error, now),
        }
    }

    /// Rewrites all sealed segments whose blocks are small or poorly packed, however new they are. Returns how many it
    /// replaced. [`Store::maintain`] does this for cold ones, a little at a time. Call it from another thread: other
    /// calls continue meanwhile.
    ///
    /// # Errors
    /// A failed write or sync poisons the store: close it and open it again.
    pub fn settle(&self, now: i64) -> Result<u64, Refusal> {
        self.engine.shared.paces.tell(Caller::Upkeep, now);
        let before = {
            let mut sealer = self.sealer.lock();
            sealer.look_again();
            sealer.settle.counts.segments
        };
        loop {
            let mut sealer = self.sealer.lock();
            if let Some(refusal) = self.engine.poison() {
                return Err(refusal);
            }
            match sealer.settle_slice(&self.engine, now, true) {
                Ok(true) => {}
                Ok(false) => return Ok(sealer.settle.counts.segments - before),
                // The disk refuses for a time: `maintain` does the rest when it accepts writes again.
                Err(error) if passes(&error) => {
                    sealer.sealing.forget_taken();
                    return Ok(sealer.settle.counts.segments - before);
                }
                Err(error) => return Err(self.engine.poisoned(&error)),
            }
        }
    }

    /// Returns why frames are refused now, or `None`.
    pub fn refusal(&self) -> Option<Refusal> {
        if let Some(refusal) = self.engine.poison() {
            return Some(refusal);
        }
        let writer = self.engine.writer.lock();
        let log_full = || (!writer.unit.is_log_free()).then_some(Refusal::LogFull);
        writer.gate.refusal().or_else(log_full)
    }

    /// Commits, seals, writes a clean checkpoint, and releases the folder. Further appends are refused. A poisoned
    /// store only releases the folder, so that it can be opened again; clones may live on.
    ///
    /// Views of it can be read as long as its files are there. If another opening has removed some since, each reader
    /// gets an error, never an answer without those rows.
    ///
    /// # Errors
    /// The disk failed: what was not committed is lost.
    pub fn close(&self, now: i64) -> Result<(), Refusal> {
        self.engine.shared.paces.tell(Caller::Upkeep, now);
        // A second caller waits until the store is closed.
        let _closing = self.engine.closing.lock();
        // Set first: a caller that gets a lock from now on leaves the disk alone.
        self.engine.closed.store(true, Ordering::Release);
        {
            let mut writer = self.engine.writer.lock();
            writer.flush_gaps(now, true);
            // If the store failed, the next opening finds them in the log: a row here would count as lost.
            if self.engine.waiting.lock().is_none() {
                writer.flush_all_held(now);
            }
            writer.gate.set_closed(true);
        }
        let done = self.engine.write_commit(now, 0).and_then(|_| {
            let mut sealer = self.sealer.lock();
            sealer.ages.clock.observe_last(now);
            match sealer.seal_all(&self.engine) {
                // Rows that could not be sealed are in the log, and come back with it.
                Err(error) if passes(&error) => sealer.sealing.forget_taken(),
                Err(error) => return Err(self.engine.poisoned(&error)),
                Ok(()) => {}
            }
            {
                let mut writer = self.engine.writer.lock();
                // Gap rows that found no room in a full log find it now, in the last unit. Nothing else is accepted
                // meanwhile.
                writer.gate.set_closed(false);
                writer.flush_gaps(now, true);
                writer.gate.set_closed(true);
                if !writer.unit.fits(0, 0) {
                    // The log is full of rows that could not be sealed: the next opening finds it as after a cut.
                    return Ok(());
                }
            }
            let end = match self.engine.write_commit(now, log::CLEAN) {
                // All is in the log or in segments; the next opening reads it as after a cut.
                Err(Refusal::DiskFull | Refusal::Unwritable(_)) => return Ok(()),
                end => end?,
            };
            let disk = &*self.engine.disk;
            match recent_file::save(disk, end.0, &self.engine.writer.lock()) {
                // Without it a frame sent again is stored again; nothing is lost.
                Err(error) if !passes(&error) => Err(self.engine.poisoned(&error)),
                _ => Ok(()),
            }
        });
        let done = match done {
            // Closed before.
            Err(Refusal::Closed) => Ok(()),
            other => other,
        };
        // Once these two locks are free, nothing is under way on the disk any more.
        drop(self.engine.log.lock());
        drop(self.sealer.lock());
        let mut waiting = self.engine.waiting.lock();
        waiting.get_or_insert(Refusal::Closed);
        self.engine.condition.notify_all();
        drop(waiting);
        // Nor is a blob being written.
        drop(self.engine.blob_gate.write());
        // A file that is gone from now on was not lost: every reader gets an error that it cannot be read.
        self.engine.shared.residents.close();
        *self.engine.lock.lock() = None;
        done
    }

    /// Returns an immutable snapshot to read from, without the values that are left out.
    pub fn view(&self) -> View {
        View::of_default(self.engine.shared.clone())
    }

    /// Sets the values that views taken from now on leave out, in place of those set before. Nothing stored is changed,
    /// and an opening of the store begins without any.
    pub fn exclude(&self, excluded: Excluded) {
        self.engine.shared.excluded.store(Arc::new(excluded));
    }

    /// Returns the counts of a stream.
    pub fn counts(&self, stream: StreamId) -> Counts {
        self.engine.writer.lock().streams.get(stream.0).map_or_else(Counts::default, |s| s.counts)
    }

    /// Handles an error of maintenance. After a temporary one, the work is done again later, and space is freed if
    /// there is none. Returns whether to try again at once.
    fn pass(&self, sealer: &mut Sealer, error: std::io::Error, now: i64) -> Result<bool, Refusal> {
        if !passes(&error) {
            return Err(self.engine.poisoned(&error));
        }
        sealer.sealing.forget_taken();
        if is_full(&error) {
            let unit_bytes =
                if self.engine.writer.lock().gate.is_held() { self.engine.log.lock().unit_bytes() } else { 0 };
            let asked = sealer.asked(unit_bytes);
            match sealer.make_room(&self.engine, now, asked) {
                Ok(true) => return Ok(true),
                Err(error) if !passes(&error) => return Err(self.engine.poisoned(&error)),
                _ => {
                    self.engine.writer.lock().gate.set_disk_full(true);
                }
            }
        } else if is_read_only(&error) {
            self.engine.writer.lock().gate.hold(self.engine.unwritable(&error));
        }
        sealer.shortage.hold_up(error.to_string());
        Ok(false)
    }
}
