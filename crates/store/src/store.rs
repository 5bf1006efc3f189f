//! The store's face: what sources, live, query and server call.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::append::{REDUCED, Taken, Writer, reserve_bytes};
use crate::counts::*;
use crate::directory::{Segment, SegmentList};
use crate::disk::Disk;
use crate::expiry::{self, Space};
use crate::fixed::disk_of;
use crate::group::Policy;
use crate::log::{self, Link, LogWriter};
use crate::mutant::{self, Mutant};
use crate::recent_file;
use crate::recovery::{self, io_error};
use crate::seal::Sealer;
use crate::shared::Shared;
use crate::stream_slot::SlotTable;
use crate::view::advance;
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
    waiting: Mutex<Option<Refusal>>,
    condition: Condvar,
    /// Keeps other processes out until the store is closed or dropped.
    lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

/// What commits use, besides the log's end: buffers swapped with those of the append side.
pub(crate) struct Committer {
    pub(crate) log: LogWriter,
    records: Vec<u64>,
    dirty: Vec<u32>,
    rows: Vec<(u32, u64)>,
    commits: u64,
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
        let shared = Arc::new(Shared::new(slots, version, space.generation_of(0), now, max_future_ns));
        shared.segments.store(Arc::new(SegmentList::new(opened.segments)));
        let committed = AtomicU64::new(opened.log.link.commit);
        let origin = opened.superblock.now.origin;
        let mut sealer = Sealer::new(disk.clone(), opened.superblock, opened.checkpoint, opened.spare);
        sealer.groups = opened.open;
        opened.blobs.into_iter().for_each(|file| sealer.blobs.add(file));
        if let Some(fixed) = space.fixed {
            // What the region has room for, with what names each list.
            sealer.recent_max = (fixed.recent_bytes / 4 * 3).max(256 << 10) as isize;
        }
        for segment in opened.changed_segments {
            if segment.state.lock().sealed {
                shared.residents.sealed(&segment);
            }
            sealer.changed_segments.insert(segment.id, segment);
        }
        sealer.expired = opened.expired;
        for (stream, bytes) in opened.recent {
            sealer.recent_bytes += bytes as isize;
            sealer.recent_order.push_back(stream);
        }
        let ring_bytes = writer.ring_bytes;
        let inner = Inner {
            shared,
            disk,
            options,
            origin,
            epoch: opened.report.epoch,
            report: RecoveryReport { last_commit: opened.last_commit, ..opened.report },
            writer: Mutex::new(writer),
            log: Mutex::new(Committer {
                log: opened.log,
                records: Vec::new(),
                dirty: Vec::new(),
                rows: Vec::new(),
                commits: 0,
            }),
            sealer: Mutex::new(sealer),
            blob_gate: RwLock::new(()),
            links: Mutex::new(opened.links),
            log_bytes: ring_bytes,
            space,
            max_age_ns,
            settle_age_ns,
            committed,
            waiting: Mutex::new(None),
            condition: Condvar::new(),
            lock: Mutex::new(Some(lock)),
        };
        Ok(Store { inner: Arc::new(inner) })
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
        advance(&self.inner.shared.now, now);
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
        advance(&self.inner.shared.now, now);
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
        self.each(batch, now, Writer::append)
    }

    /// As [`Store::append`], for callers that offer frames again which found the log full: those are not
    /// counted as received and rejected, so that each frame counts once.
    pub fn offer(&self, batch: &FrameBatch, now: i64) -> Appended {
        self.each(batch, now, Writer::offer)
    }

    fn each(
        &self,
        batch: &FrameBatch,
        now: i64,
        take: impl Fn(&mut Writer, &FrameRef<'_>, i64, bool) -> Taken,
    ) -> Appended {
        advance(&self.inner.shared.now, now);
        let poison = self.inner.poison();
        let mut writer = self.inner.writer.lock();
        let mut outcomes = Vec::with_capacity(batch.len());
        for frame in batch.frames() {
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
                Err(reject) => outcomes.push(Outcome::Rejected(*reject)),
            }
        }
        Appended { outcomes, commit: CommitNumber(writer.pending_commit) }
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
    /// A failed write or sync poisons the store: close it and open it again.
    pub fn commit(&self, now: i64) -> Result<CommitNumber, Refusal> {
        self.inner.commit(now, 0)
    }

    /// Newest durable commit.
    pub fn committed(&self) -> CommitNumber {
        CommitNumber(self.inner.committed.load(Ordering::Acquire))
    }

    /// Waits on a condition variable until a commit is durable, the store refuses, or the time is over
    /// (false). For threads; async callers use their own watch around `commit`.
    ///
    /// # Errors
    /// The store was poisoned or closed before the commit was durable.
    pub fn wait_committed(&self, commit: CommitNumber, timeout: Duration) -> Result<bool, Refusal> {
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
        advance(&self.inner.shared.now, now);
        let mut sealer = self.inner.sealer.lock();
        if let Some(refusal) = self.inner.poison() {
            return Err(refusal);
        }
        if self.inner.writer.lock().disk_full && !sealer.has_space(&self.inner) {
            return Ok(false);
        }
        let done = sealer.slice(&self.inner, now);
        match done {
            Ok(more) => {
                self.inner.writer.lock().disk_full = false;
                Ok(more)
            }
            Err(error) if expiry::is_full(&error) => {
                sealer.forget_taken();
                self.inner.writer.lock().disk_full = true;
                Ok(false)
            }
            Err(error) => Err(self.inner.poisoned(&error)),
        }
    }

    /// Rewrites all sealed segments whose blocks are small or poorly packed, however new they are, and returns how many
    /// it put others in the place of. [`Store::maintain`] does it for what is cold, a little at a time. For another
    /// thread: others go on meanwhile.
    ///
    /// # Errors
    /// A failed write or sync poisons the store: close it and open it again.
    pub fn settle(&self, now: i64) -> Result<u64, Refusal> {
        advance(&self.inner.shared.now, now);
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
        } else if !writer.is_free(0, 2 * reserve_bytes(writer.ring_bytes)) {
            Some(Refusal::LogFull)
        } else {
            None
        }
    }

    /// Commits, seals, writes a clean checkpoint, and gives the folder free. Further appends are refused.
    /// A poisoned store only gives the folder free, so that it can be opened again; clones may live on.
    ///
    /// # Errors
    /// The disk failed: what was not committed is lost.
    pub fn close(&self, now: i64) -> Result<(), Refusal> {
        advance(&self.inner.shared.now, now);
        {
            let mut writer = self.inner.writer.lock();
            writer.flush_gaps(now, true);
            writer.flush_all_held(now);
            writer.closed = true;
        }
        let done = self.inner.commit(now, 0).and_then(|_| {
            let mut sealer = self.inner.sealer.lock();
            match sealer.seal_all(&self.inner) {
                // What could not be sealed is in the log, and comes back with it.
                Err(error) if expiry::is_full(&error) => sealer.forget_taken(),
                Err(error) => return Err(self.inner.poisoned(&error)),
                Ok(()) => {}
            }
            if !self.inner.writer.lock().is_free(0, 0) {
                // The log is full of what could not be sealed: the next opening finds it as after a cut.
                return Ok(());
            }
            let end = self.inner.commit(now, log::CLEAN)?;
            let disk = &*self.inner.disk;
            match recent_file::save(disk, end.0, &self.inner.writer.lock()) {
                // Without it a frame sent again is stored again; nothing is lost.
                Err(error) if !expiry::is_full(&error) => Err(self.inner.poisoned(&error)),
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

    /// Sizes and counters.
    pub fn stats(&self) -> StoreStats {
        let (commits, log_written) = {
            let log = self.inner.log.lock();
            (log.commits, log.log.written_bytes)
        };
        let (sealer_written, disk_bytes, settle) = {
            let sealer = self.inner.sealer.lock();
            (sealer.written_bytes, sealer.used_bytes(&self.inner), sealer.settle.counts.clone())
        };
        let (sums, blobs) = self.inner.shared.segments.load().sums();
        let writer = self.inner.writer.lock();
        StoreStats {
            disk_bytes,
            segments: sums.segments + blobs.segments,
            block_bytes: sums.bytes,
            block_points: sums.points,
            blob_bytes: blobs.bytes,
            open_bytes: writer.open_bytes as u64,
            log_used_bytes: writer.head - writer.tail,
            log_bytes: writer.ring_bytes,
            commits,
            written_bytes: log_written + sealer_written,
            log_written_bytes: log_written,
            blocks_decoded: self.inner.shared.blocks_decoded.load(Ordering::Relaxed),
            settled_segments: settle.segments,
            settle_written_bytes: settle.written_bytes,
            settle_saved_bytes: settle.saved_bytes,
            settle_failed: settle.failed,
            settle_failure: settle.failure,
            streams: writer.streams.len() as u64,
            channels: writer.channels as u64,
        }
    }

    /// Segments, oldest first.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let list = self.inner.shared.segments.load_full();
        let writer = self.inner.writer.lock();
        let range = |(a, b): (i64, i64)| (a <= b).then_some((a, b));
        let info = |segment: &Arc<Segment>| {
            let state = *segment.state.lock();
            SegmentInfo {
                id: segment.id,
                settled: segment.is_settled(),
                blobs: segment.blobs,
                sealed: state.sealed,
                group: writer.groups.name(segment.group),
                size_bytes: state.bytes,
                blocks: state.blocks,
                time: range(state.time),
                stored: range(state.stored),
            }
        };
        let mut segments: Vec<&Arc<Segment>> = list.iter().collect();
        segments.sort_unstable_by_key(|segment| segment.place());
        segments.into_iter().map(info).collect()
    }
}

impl Inner {
    /// Why nothing can be written any more, if so.
    pub(crate) fn poison(&self) -> Option<Refusal> {
        self.waiting.lock().clone()
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
            self.disk.forget_cached();
        }
        refusal
    }

    fn commit(&self, now: i64, flags: u32) -> Result<CommitNumber, Refusal> {
        advance(&self.shared.now, now);
        // One commit at a time; who waits here finds its frames in the next unit, with those of others.
        let mut log = self.log.lock();
        if let Some(refusal) = self.poison() {
            return Err(refusal);
        }
        let Committer { log, records, dirty, rows, commits } = &mut *log;
        let number = {
            let mut writer = self.writer.lock();
            writer.flush_gaps(now, false);
            if writer.pending.is_empty() && flags == 0 {
                return Ok(CommitNumber(self.committed.load(Ordering::Acquire)));
            }
            records.clear();
            dirty.clear();
            rows.clear();
            std::mem::swap(&mut writer.pending, records);
            std::mem::swap(&mut writer.dirty, dirty);
            rows.extend(dirty.iter().map(|&id| (id, writer.streams[id as usize].next_row)));
            let number = writer.pending_commit;
            writer.pending_commit += 1;
            writer.head += log::unit_bytes(records.len() * 8);
            // Gap rows that found the unit full go first into the next one.
            writer.flush_gaps(now, false);
            number
        };
        if mutant::is_active(Mutant::AcknowledgeEarly) {
            self.publish(rows, number);
        }
        // The acknowledgement comes after the sync: nothing below this line may move above it.
        if let Err(error) = log.write_unit(records, self.epoch, flags, now) {
            return Err(self.poisoned(&error));
        }
        debug_assert_eq!(number, log.link.commit);
        *commits += 1;
        self.links.lock().push_back(log.link);
        self.publish(rows, number);
        if records.capacity() > 4 << 20 {
            *records = Vec::new();
        }
        Ok(CommitNumber(number))
    }

    /// Says that a commit is durable.
    fn publish(&self, rows: &[(u32, u64)], number: u64) {
        for &(id, row) in rows {
            if let Some(slot) = self.shared.slots.get(StreamId(id)) {
                slot.committed_row.store(row, Ordering::Release);
            }
        }
        let waiting = self.waiting.lock();
        self.committed.store(number, Ordering::Release);
        self.condition.notify_all();
        drop(waiting);
    }
}
