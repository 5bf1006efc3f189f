//! The store's face: what sources, live, query and server call.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::append::{REDUCED, Taken, Writer, reserve_bytes};
use crate::checkpoint;
use crate::clock::{Caller, WallClock};
use crate::commit::Committer;
use crate::counts::*;
use crate::directory::{SegmentList, file_name};
use crate::disk::{Access, Disk};
use crate::expiry::{self, Space};
use crate::fixed::disk_of;
use crate::group::Policy;
use crate::inspect::Damage;
use crate::log::{self, Link};
use crate::mutant::{self, Mutant};
use crate::recent_file;
use crate::recovery::{self, LOG_FILE, io_error};
use crate::seal::Sealer;
use crate::shared::Shared;
use crate::stream_slot::SlotTable;
use crate::superblock::{self, Superblock};
use crate::trouble::{is_read_only, passes};
use crate::*;

/// Streams beyond `max_streams` that are the store's own.
const INTERNAL_STREAMS: u32 = 64;

/// The embedded store. Clones share it.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    disk: Arc<dyn Disk>,
    pub(crate) options: StoreOptions,
    pub(crate) origin: u128,
    pub(crate) epoch: u32,
    pub(crate) report: RecoveryReport,
    pub(crate) writer: Mutex<Writer>,
    /// Held by whoever commits.
    pub(crate) log: Mutex<Committer>,
    /// Held by whoever seals, checkpoints and expires.
    pub(crate) sealer: Mutex<Sealer>,
    /// Held, together with others, by whoever writes or syncs a blob; alone by whoever closes the store.
    pub(crate) blob_gate: RwLock<()>,
    /// Where each unit of the log begins, oldest first: where its tail can move to.
    pub(crate) links: Mutex<VecDeque<Link>>,
    pub(crate) log_bytes: u64,
    pub(crate) space: Space,
    pub(crate) max_age_ns: Option<i64>,
    pub(crate) settle_age_ns: i64,
    pub(crate) committed: AtomicU64,
    /// Numbers of commits that a store before this one gave out and never made durable.
    pub(crate) void_commits: Mutex<std::ops::Range<u64>>,
    pub(crate) waiting: Mutex<Option<Refusal>>,
    pub(crate) condition: Condvar,
    /// Being closed, or closed: nobody but who closes it writes any more.
    closed: AtomicBool,
    /// Held by whoever closes it.
    closing: Mutex<()>,
    /// Keeps other processes out until the store is closed or dropped.
    lock: Mutex<Option<Box<dyn Send + Sync>>>,
    /// What tells the folder from another.
    identity: u64,
}

impl Store {
    /// Opens the store of a folder, or makes one; or opens the store of a fixed size that a file or block device holds:
    /// see [`Store::create_fixed`]. `now` is nanoseconds since 1970 UTC.
    ///
    /// # Errors
    /// [`OpenError`]: it is in use, newer, a copy, cut short, damaged, or the disk refuses.
    pub fn open(path: &Path, options: StoreOptions, now: i64) -> Result<Store, OpenError> {
        Store::open_on(disk_of(path)?, options, now)
    }

    /// Opens a store that was there before, as after a failure of its disk: where it is gone, nothing is made in its
    /// place. `origin` says which it is.
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
        let file = match disk.open(superblock::FILE, Access::Log) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(removed()),
            file => file.map_err(io_error(&*disk, superblock::FILE))?,
        };
        match Superblock::read(&*disk, &*file) {
            Ok(found) if found.origin == origin => Store::open_on(disk, options, now),
            Ok(_) => Err(gone("another store was put in the place of the one that was open")),
            Err(OpenError::Damaged { reason, .. }) => {
                Err(gone(&format!("what is there is not the store that was open: {}: {reason}", superblock::FILE)))
            }
            Err(error) => Err(error),
        }
    }

    /// Gives the copy of a store an origin of its own, so that its rows are never taken for the other's.
    /// Returns the new origin.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn adopt(path: &Path) -> Result<u128, OpenError> {
        recovery::adopt(&*disk_of(path)?)
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
        // What a write or sync failed to make durable must not be found by the next opening.
        let opened = opened.inspect_err(|_| disk.forget_cached())?;
        let max_age_ns = options.max_age.map(|age| i64::try_from(age.as_nanos()).unwrap_or(i64::MAX));
        let settle_age_ns = i64::try_from(options.settle_age.as_nanos()).unwrap_or(i64::MAX);
        let max_future_ns = i64::try_from(options.max_future.as_nanos()).unwrap_or(i64::MAX);
        writer.max_future_ns = max_future_ns;
        writer.settle_held(now);
        // What was made room for by an eighth at a time.
        writer.streams.shrink_to_fit();
        let shared = Arc::new(Shared::new(slots, version, space.generation_of(0), now, max_future_ns));
        shared.segments.store(Arc::new(SegmentList::new(opened.segments)));
        let committed = AtomicU64::new(opened.log.link.commit);
        let (origin, identity) = (opened.superblock.now.origin, opened.superblock.now.identity);
        let void_commits = Mutex::new(opened.found_commit + 1..opened.found_commit + 1);
        let newest_stored = shared.segments.load().newest_stored().into_iter().chain(opened.last_commit);
        let clock = WallClock::new(options.clock_confirm, now, newest_stored);
        let mut sealer = Sealer::new(disk.clone(), opened.superblock, opened.checkpoint, opened.spare, clock);
        sealer.groups = opened.open;
        opened.blobs.into_iter().for_each(|file| sealer.blobs.add(file));
        sealer.count_as_of_now(&shared.segments.load_full(), opened.last_commit);
        if let Some(fixed) = space.fixed {
            // What the region has room for, with what names each list.
            sealer.recent_max = (fixed.recent_bytes / 4 * 3).max(256 << 10) as usize;
        }
        for segment in opened.changed_segments {
            if segment.state.lock().sealed {
                shared.residents.sealed(&segment);
            }
            sealer.changed_segments.insert(segment.id, segment);
        }
        sealer.expired = opened.expired;
        sealer.recent.begin(&mut writer.streams);
        sealer.untold = opened.untold;
        let ring_bytes = writer.ring_bytes;
        let clock_leap = sealer.clock.state().newest;
        let inner = Inner {
            shared,
            disk,
            options,
            origin,
            epoch: opened.report.epoch,
            report: RecoveryReport { last_commit: opened.last_commit, clock_leap, ..opened.report },
            writer: Mutex::new(writer),
            log: Mutex::new(Committer::new(opened.log)),
            sealer: Mutex::new(sealer),
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
        Ok(Store { inner: Arc::new(inner) })
    }

    /// Adds what was found damaged before recovery.
    pub(crate) fn add_damage(&mut self, damage: Vec<Damage>) {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.report.damaged.splice(..0, damage);
        }
    }

    /// Takes nothing more: it is read.
    pub(crate) fn into_read_only(self, now: i64) -> Store {
        // What recovery found lost is seen in `strongback.gaps`; where the log has no room for it, in the report alone.
        let _ = self.commit(now);
        self.inner.waiting.lock().get_or_insert(Refusal::Closed);
        self
    }

    /// What opening found.
    pub fn recovery(&self) -> RecoveryReport {
        self.inner.report.clone()
    }

    /// Random id made with the store.
    pub fn origin(&self) -> u128 {
        self.inner.origin
    }

    /// Number of this opening.
    pub fn epoch(&self) -> u32 {
        self.inner.epoch
    }

    /// Returns the version of the catalog now: a counter, whatever the number of streams.
    pub fn catalog_version(&self) -> u64 {
        self.inner.shared.catalog_version.load(Ordering::Acquire)
    }

    /// The streams and channels now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.inner.shared.catalog()
    }

    /// Finds a stream, or makes it, or grows and widens its layout. Returns it, and for each channel of the
    /// spec the index to push its values under (a second column where types conflict). `strongback.` tables
    /// are the store's own.
    ///
    /// # Errors
    /// A name that cannot be, too many streams or channels, or a store that takes nothing.
    pub fn resolve(&self, spec: &StreamSpec, now: i64) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        self.inner.shared.paces.tell(Caller::Append, now);
        if let Some(refusal) = self.inner.poison() {
            return Err(Reject::Refused(refusal));
        }
        self.inner.writer.lock().resolve(spec, false, now)
    }

    /// As [`Store::resolve`], for the program's own tables under `strongback.` (events): they belong to a
    /// retention group that is never the victim.
    ///
    /// # Errors
    /// As [`Store::resolve`].
    pub fn resolve_own(&self, spec: &StreamSpec, now: i64) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        self.inner.shared.paces.tell(Caller::Append, now);
        if let Some(refusal) = self.inner.poison() {
            return Err(Reject::Refused(refusal));
        }
        self.inner.writer.lock().resolve(spec, true, now)
    }

    /// Adds a row to `strongback.gaps` with the next commit, for a loss that only its caller can see (a
    /// kernel's drop counter), and adds it to what its stream lost. The store chooses the `id`.
    pub fn report_gap(&self, gap: Gap) {
        let mut writer = self.inner.writer.lock();
        if let Some(stream) = gap.stream.and_then(|id| writer.streams.get_mut(id as usize)) {
            stream.counts.lost += gap.count;
        }
        writer.gaps.push(gap);
    }

    /// Appends frames: visible to views at once, durable with the next commit. Values are converted exactly
    /// to their channel's type. Never blocks on the disk.
    pub fn append(&self, batch: &FrameBatch, now: i64) -> Appended {
        self.each(batch, now, false, Writer::append)
    }

    /// As [`Store::append`], for callers that offer frames again which found the log full: those are not
    /// counted as received and rejected, so that each frame counts once. Behind one that found the log full no other is
    /// taken, so that what was taken is the beginning of the batch, and frames keep their order.
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
        self.inner.shared.paces.tell(Caller::Append, now);
        let poison = self.inner.poison();
        let mut writer = self.inner.writer.lock();
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
                    let row = writer.streams[frame.head().stream.0 as usize].next_row.saturating_sub(1);
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
        // With nothing that waits, what its frames repeat is in the commit before.
        let commit =
            writer.pending_commit - u64::from(writer.pending.is_empty() && !mutant::is_active(Mutant::NameNextCommit));
        Appended { outcomes, commit: CommitNumber(commit) }
    }

    /// Counts frames of a stream that were rejected before they could be appended.
    pub fn count_rejected(&self, stream: StreamId, frames: u64) {
        if let Some(stream) = self.inner.writer.lock().streams.get_mut(stream.0 as usize) {
            stream.counts.received += frames;
            stream.counts.rejected += frames;
        }
    }

    /// Makes everything appended so far durable. Call it from one thread every `commit_interval_ms` and when
    /// someone waits. Without anything new it returns at once.
    ///
    /// # Errors
    /// [`Refusal::DiskFull`] and [`Refusal::Unwritable`]: the disk refuses for a time; what was appended stays, and the
    /// next commit makes it durable. A failed write or sync poisons the store: close it and open it again.
    pub fn commit(&self, now: i64) -> Result<CommitNumber, Refusal> {
        self.inner.commit(now)
    }

    /// Newest durable commit.
    pub fn committed(&self) -> CommitNumber {
        CommitNumber(self.inner.committed.load(Ordering::Acquire))
    }

    /// Waits on a condition variable until a commit is durable, the store refuses, or the time is over
    /// (false). For threads; async callers use their own watch around `commit`.
    ///
    /// # Errors
    /// The store was poisoned or closed before the commit was durable; also where this is the store that took over from that
    /// one ([`Store::take_over`]): it gives out none of its numbers again.
    pub fn wait_committed(&self, commit: CommitNumber, timeout: Duration) -> Result<bool, Refusal> {
        if self.inner.void_commits.lock().contains(&commit.0) {
            return Err(Refusal::Poisoned("the disk failed before the commit was durable".to_owned()));
        }
        let until = Instant::now() + timeout;
        let mut waiting = self.inner.waiting.lock();
        loop {
            if self.committed() >= commit {
                return Ok(true);
            }
            if let Some(refusal) = &*waiting {
                return Err(refusal.clone());
            }
            if self.inner.condition.wait_until(&mut waiting, until).timed_out() {
                return Ok(self.committed() >= commit);
            }
        }
    }

    /// Next row of a stream that is not yet durable: rows below are final.
    pub fn committed_row(&self, stream: StreamId) -> u64 {
        self.inner.shared.slots.get(stream).map_or(0, |slot| slot.committed_row.load(Ordering::Acquire))
    }

    /// Rows of a stream that were there when this epoch began: what earlier epochs left durable.
    pub fn opened_row(&self, stream: StreamId) -> u64 {
        self.inner.writer.lock().streams.get(stream.0 as usize).map_or(0, |s| s.opened_row)
    }

    /// Seals, checkpoints and expires in slices of about 1 ms; returns whether more is waiting. Call it from
    /// a second thread.
    ///
    /// # Errors
    /// A failed write or sync poisons the store: close it and open it again.
    pub fn maintain(&self, now: i64) -> Result<bool, Refusal> {
        self.tend(now, None)
    }

    /// As [`Store::maintain`], with a steady clock beside `now`: one that nobody sets and that goes on while the system
    /// sleeps, counted from any instant (on Linux `CLOCK_BOOTTIME`). By it leaps of `now` are known for certain, and so
    /// is how long views are held; without it the steps of `now` of up to a minute are taken for time that passed.
    ///
    /// # Errors
    /// As [`Store::maintain`].
    pub fn maintain_at(&self, now: i64, steady: Duration) -> Result<bool, Refusal> {
        self.tend(now, Some(i64::try_from(steady.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// What is made of the clock that [`Store::maintain`] is called with.
    pub fn clock(&self) -> ClockTrust {
        self.inner.sealer.lock().clock.state()
    }

    fn tend(&self, now: i64, steady: Option<i64>) -> Result<bool, Refusal> {
        self.inner.shared.paces.tell(Caller::Upkeep, now);
        steady.into_iter().for_each(|steady| self.inner.shared.paces.tell_steady(steady));
        let mut sealer = self.inner.sealer.lock();
        if let Some(refusal) = self.inner.poison() {
            return Err(refusal);
        }
        sealer.clock.observe(now, steady);
        let (full, held) = {
            let writer = self.inner.writer.lock();
            (writer.disk_full, writer.held.is_some())
        };
        if full && !sealer.has_space(&self.inner) || held && self.inner.disk.is_read_only() {
            return Ok(false);
        }
        match self.inner.check_there().and_then(|()| sealer.slice(&self.inner, now)) {
            Ok(more) => {
                match self.inner.take_again(now) {
                    // The log found no space: what may go goes for it.
                    Err(Refusal::DiskFull) => {
                        return self.inner.pass(&mut sealer, std::io::ErrorKind::StorageFull.into(), now);
                    }
                    Err(Refusal::Unwritable(_)) => return Ok(false),
                    taken => taken?,
                }
                self.inner.writer.lock().disk_full = false;
                sealer.found_room();
                Ok(more)
            }
            Err(error) => self.inner.pass(&mut sealer, error, now),
        }
    }

    /// Rewrites all sealed segments whose blocks are small or poorly packed, however new they are, and returns how many
    /// it put others in the place of. [`Store::maintain`] does it for what is cold, a little at a time. For another
    /// thread: others go on meanwhile.
    ///
    /// # Errors
    /// A failed write or sync poisons the store: close it and open it again.
    pub fn settle(&self, now: i64) -> Result<u64, Refusal> {
        self.inner.shared.paces.tell(Caller::Upkeep, now);
        let before = {
            let mut sealer = self.inner.sealer.lock();
            sealer.look_again();
            sealer.settle.counts.segments
        };
        loop {
            let mut sealer = self.inner.sealer.lock();
            if let Some(refusal) = self.inner.poison() {
                return Err(refusal);
            }
            match sealer.settle_slice(&self.inner, now, true) {
                Ok(true) => {}
                Ok(false) => return Ok(sealer.settle.counts.segments - before),
                // The disk refuses for a time: `maintain` does what is left when it takes again.
                Err(error) if passes(&error) => {
                    sealer.forget_taken();
                    return Ok(sealer.settle.counts.segments - before);
                }
                Err(error) => return Err(self.inner.poisoned(&error)),
            }
        }
    }

    /// Why it takes nothing now, if so.
    pub fn refusal(&self) -> Option<Refusal> {
        if let Some(refusal) = self.inner.poison() {
            return Some(refusal);
        }
        let writer = self.inner.writer.lock();
        if writer.closed {
            Some(Refusal::Closed)
        } else if writer.disk_full {
            Some(Refusal::DiskFull)
        } else if writer.held.is_some() {
            writer.held.clone()
        } else if !writer.is_free(0, 2 * reserve_bytes(writer.ring_bytes) + Writer::held_room(writer.records.bytes)) {
            Some(Refusal::LogFull)
        } else {
            None
        }
    }

    /// Commits, seals, writes a clean checkpoint, and gives the folder free. Further appends are refused.
    /// A poisoned store only gives the folder free, so that it can be opened again; clones may live on.
    ///
    /// Views of it can be read as long as its files are there. What another opening has removed since is an error for
    /// each reader, never an answer without those rows.
    ///
    /// # Errors
    /// The disk failed: what was not committed is lost.
    pub fn close(&self, now: i64) -> Result<(), Refusal> {
        self.inner.shared.paces.tell(Caller::Upkeep, now);
        // Who closes it a second time waits until it is closed.
        let _closing = self.inner.closing.lock();
        // First: whoever gets a lock from now on leaves the disk alone.
        self.inner.closed.store(true, Ordering::Release);
        {
            let mut writer = self.inner.writer.lock();
            writer.flush_gaps(now, true);
            // Of a store that failed, the next opening finds them in the log: a row here would count as lost.
            if self.inner.waiting.lock().is_none() {
                writer.flush_all_held(now);
            }
            writer.closed = true;
        }
        let done = self.inner.write_commit(now, 0).and_then(|_| {
            let mut sealer = self.inner.sealer.lock();
            sealer.clock.observe_last(now);
            match sealer.seal_all(&self.inner) {
                // What could not be sealed is in the log, and comes back with it.
                Err(error) if passes(&error) => sealer.forget_taken(),
                Err(error) => return Err(self.inner.poisoned(&error)),
                Ok(()) => {}
            }
            {
                let mut writer = self.inner.writer.lock();
                // What found no room in a full log does now: it is in the last unit. Nothing else is taken meanwhile.
                writer.closed = false;
                writer.flush_gaps(now, true);
                writer.closed = true;
                if !writer.is_free(writer.pending.len() * 8, 0) {
                    // The log is full of what could not be sealed: the next opening finds it as after a cut.
                    return Ok(());
                }
            }
            let end = match self.inner.write_commit(now, log::CLEAN) {
                // All is in the log or in segments; the next opening reads it as after a cut.
                Err(Refusal::DiskFull | Refusal::Unwritable(_)) => return Ok(()),
                end => end?,
            };
            let disk = &*self.inner.disk;
            match recent_file::save(disk, end.0, &self.inner.writer.lock()) {
                // Without it a frame sent again is stored again; nothing is lost.
                Err(error) if !passes(&error) => Err(self.inner.poisoned(&error)),
                _ => Ok(()),
            }
        });
        let done = match done {
            // Closed before.
            Err(Refusal::Closed) => Ok(()),
            other => other,
        };
        // Nothing is under way on the disk any more once these two are free.
        drop(self.inner.log.lock());
        drop(self.inner.sealer.lock());
        let mut waiting = self.inner.waiting.lock();
        waiting.get_or_insert(Refusal::Closed);
        self.inner.condition.notify_all();
        drop(waiting);
        // Nor is a blob being written.
        drop(self.inner.blob_gate.write());
        // What is gone from now on was not lost: every reader is told that it cannot be read.
        self.inner.shared.residents.close();
        *self.inner.lock.lock() = None;
        done
    }

    /// An immutable snapshot to read from.
    pub fn view(&self) -> View {
        View::new(self.inner.shared.clone())
    }

    /// Counts of a stream.
    pub fn counts(&self, stream: StreamId) -> Counts {
        self.inner.writer.lock().streams.get(stream.0 as usize).map_or_else(Counts::default, |s| s.counts)
    }
}

impl Inner {
    /// Why nothing can be written any more, if so. Asked for while the lock is held under which one writes.
    pub(crate) fn poison(&self) -> Option<Refusal> {
        let refusal = self.waiting.lock().clone();
        refusal.or_else(|| self.closed.load(Ordering::Acquire).then_some(Refusal::Closed))
    }

    /// What may be dropped of each retention group.
    pub(crate) fn policies(&self) -> Vec<Policy> {
        self.writer.lock().groups.policies(self.committed.load(Ordering::Acquire))
    }

    /// After a failed write or sync nothing is written any more: what the disk holds is for recovery to see.
    pub(crate) fn poisoned(&self, error: &std::io::Error) -> Refusal {
        let mut waiting = self.waiting.lock();
        let refusal = waiting.get_or_insert(Refusal::Poisoned(error.to_string())).clone();
        self.condition.notify_all();
        drop(waiting);
        // Recovery must not take for durable what only the cache holds.
        if !mutant::is_active(Mutant::KeepCached) {
            // What a segment that is sealed holds was synced before it was sealed.
            let open = self.shared.segments.load();
            let open = open.lists().flat_map(|(_, segments)| segments.open()).map(|segment| file_name(segment.id));
            let beside = [LOG_FILE, superblock::FILE, recent_file::FILE].into_iter().chain(checkpoint::FILES);
            self.disk.forget_cached_of(&beside.map(str::to_owned).chain(open).collect::<Vec<_>>());
        }
        refusal
    }

    /// What an error of maintenance comes to: one that passes leaves all to be done again, and space is made if there is
    /// none. Says whether to try again at once.
    fn pass(&self, sealer: &mut Sealer, error: std::io::Error, now: i64) -> Result<bool, Refusal> {
        if !passes(&error) {
            return Err(self.poisoned(&error));
        }
        sealer.forget_taken();
        if expiry::is_full(&error) {
            let unit_bytes = if self.writer.lock().held.is_some() { self.log.lock().unit_bytes() } else { 0 };
            let asked = sealer.asked(unit_bytes);
            match sealer.make_room(self, now, asked) {
                Ok(true) => return Ok(true),
                Err(error) if !passes(&error) => return Err(self.poisoned(&error)),
                _ => self.writer.lock().disk_full = true,
            }
        } else if is_read_only(&error) {
            self.writer.lock().held = Some(self.unwritable(&error));
        }
        sealer.held_up = Some(error.to_string());
        Ok(false)
    }

    pub(crate) fn unwritable(&self, error: &std::io::Error) -> Refusal {
        Refusal::Unwritable(format!("{}: {error}", self.disk.path()))
    }

    /// Refuses a folder that is not the one that was opened.
    fn check_there(&self) -> std::io::Result<()> {
        if self.space.fixed.is_some() {
            return Ok(());
        }
        match self.disk.identity(superblock::FILE) {
            Ok(found) if found != self.identity => Err(self.gone()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(self.gone()),
            _ => Ok(()),
        }
    }

    pub(crate) fn gone(&self) -> std::io::Error {
        let what = "was removed or replaced while the store was open; nothing that is written there lasts";
        std::io::Error::other(format!("{} {what}", self.disk.path()))
    }
}
