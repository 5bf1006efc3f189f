//! Ingest: frames from sources are appended, shown live at once, and made durable by the commit thread.
//!
//! Append and fan-out run under the fan-out's lock (see [`crate::live`]). Three things never wait for the disk:
//! append, fan-out, and a UDP source. A caller that needs an acknowledgement takes a [`Ticket`] and waits for it.
//! That wakes the commit thread, so the wait lasts one commit rather than a commit interval.
//!
//! A failed disk poisons the store. The commit thread then reopens it through recovery, in a new epoch. Meanwhile
//! frames are still shown, marked `recorded = false`, and subscribers are told which rows went back. If that fails
//! three times, the server ends with its own exit code. If its folder is missing or the system has no file
//! descriptors left, it reports that and keeps waiting, since a restart would not help.

pub mod opening;
pub mod records;
pub mod retention;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::{Condvar, Mutex};
use strongback_sources::sink::Sink;
use strongback_store::{
    Appended, BlobError, BlobRef, ChannelIndex, ClockLeap, CommitNumber, FrameBatch, OpenError, Outcome, Pattern,
    Refusal, Reject, Store, StoreOptions, Stream, StreamId, StreamSpec,
};
use tokio::sync::watch;

use crate::ingest::opening::Opening;
use crate::live::Live;
use crate::process::clock::{now_ns, steady};
use crate::process::latency::Latencies;

/// Max wait of a source for a commit, so that it notices a shutdown.
const DURABLE_WAIT: Duration = Duration::from_secs(30);
/// Interval of checks whether there was nothing to commit.
const DURABLE_LOOK: Duration = Duration::from_millis(2);
/// Time for which frames are offered again while the log is full and none is accepted: the log's tail may have to be
/// sealed first.
const FULL_LOG_WAIT: Duration = Duration::from_secs(10);
/// Pause before frames are offered again when a commit alone did not make room.
const FULL_LOG_PAUSE: Duration = Duration::from_millis(5);
/// Wait before an attempt to reopen the store that does not count: see [`OpenError::passes`].
const PATIENT_WAIT: Duration = Duration::from_secs(1);
/// Uncounted attempts per line in the log.
const ATTEMPTS_A_LINE: u64 = 60;
/// Pause of the maintenance thread when it has no work.
const MAINTAIN_PAUSE: Duration = Duration::from_millis(20);

/// Configured properties of channels whose source does not define them.
#[derive(Clone, Debug)]
pub struct ChannelNote {
    /// Channels that the note applies to.
    pub pattern: Pattern,
    /// Unit, unless the source defines one.
    pub unit: String,
    /// Description, unless the source defines one.
    pub description: String,
    /// Nominal time between frames, unless the source defines one.
    pub expected_period_ns: Option<i64>,
}

/// Newest durable commit, and why there is none newer.
#[derive(Clone, Debug, PartialEq)]
struct DurableCommit {
    generation: u64,
    commit: CommitNumber,
    /// Newest successful round of the commit thread. Frames appended before it began are durable, even if it found
    /// nothing to commit and so has no commit number.
    round: u64,
    refusal: Option<Refusal>,
}

/// Acknowledgement to wait for: see [`Ingest::durable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    generation: u64,
    commit: CommitNumber,
}

/// What is known of the frames of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketState {
    /// They are not durable yet.
    Waiting,
    /// They are durable.
    Durable,
    /// The store was reopened before they were known to be durable: they may be lost.
    Unknown,
}

/// Number of an opening of the store: see [`Ingest::generation_now`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u64);

impl Generation {
    /// Returns the acknowledgement to wait for. Take the generation *before* the append, so that a commit number of
    /// an earlier opening is not mistaken for one of a later opening.
    pub fn ticket(self, commit: CommitNumber) -> Ticket {
        Ticket { generation: self.0, commit }
    }
}

/// Error that ends the server.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the store could not be reopened after the disk failed: {0}")]
pub struct StoreLost(pub String);

/// Reason why the store was not reopened.
enum NotOpened {
    /// Failure that may pass: the disk has no known fault.
    ForNow(String),
    /// Failure of the disk, or of the data on it.
    Failed(String),
}

impl From<OpenError> for NotOpened {
    fn from(error: OpenError) -> NotOpened {
        match error.passes() {
            true => NotOpened::ForNow(error.to_string()),
            false => NotOpened::Failed(error.to_string()),
        }
    }
}

#[derive(Debug, Default)]
struct Bell {
    wanted: bool,
    stop: bool,
}

/// Ingest path: store, then live.
pub struct Ingest {
    store: ArcSwap<Store>,
    dir: PathBuf,
    opening: Opening,
    live: Arc<Live>,
    notes: Vec<ChannelNote>,
    generation: AtomicU64,
    /// Number of reopenings, sent when the store was reopened.
    reopened: watch::Sender<u64>,
    /// Rounds that the commit thread began.
    rounds: AtomicU64,
    durable: watch::Sender<DurableCommit>,
    bell: Mutex<Bell>,
    rung: Condvar,
    commit_latency: Latencies,
    commit_histogram: prometheus::Histogram,
    /// Reason why the store cannot be reopened for now.
    trouble: ArcSwapOption<String>,
    lost: watch::Sender<Option<StoreLost>>,
    /// Number of clock leaps that were returned.
    leaps_told: AtomicU64,
}

impl std::fmt::Debug for Ingest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ingest").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Logs the damage found by opening; the rows lost with it are in `strongback.gaps`.
fn report_damage(store: &Store, dir: &Path) {
    let recovery = store.recovery();
    for damage in &recovery.damaged {
        let (file, offset) = (dir.join(&damage.file), damage.offset);
        tracing::error!("{}, offset {offset}: {}: damaged since it was written", file.display(), damage.reason);
    }
    if !recovery.damaged.is_empty() {
        tracing::error!(
            "rows known to be lost with all that is damaged: {}; strongback.gaps has their streams and times, and the \
             times of commits whose rows nothing names",
            recovery.lost_rows
        );
    }
}

impl Ingest {
    /// Opens the store of a folder.
    ///
    /// # Errors
    /// Returns the errors of [`Store::open`].
    pub fn open(
        dir: PathBuf,
        options: StoreOptions,
        notes: Vec<ChannelNote>,
        live: Arc<Live>,
    ) -> Result<Ingest, OpenError> {
        Ingest::open_by(Opening::of_folder(dir.clone(), options), dir, notes, live)
    }

    /// Opens a store. `dir` is its location in messages.
    ///
    /// # Errors
    /// Returns the errors of [`Store::open`].
    pub fn open_by(
        opening: Opening,
        dir: PathBuf,
        notes: Vec<ChannelNote>,
        live: Arc<Live>,
    ) -> Result<Ingest, OpenError> {
        let store = opening.open(now_ns())?;
        report_damage(&store, &dir);
        let durable = DurableCommit { generation: 0, commit: store.committed(), round: 0, refusal: None };
        live.catalog_is(store.catalog_version());
        let histogram = prometheus::HistogramOpts::new(
            "strongback_commit_latency_seconds",
            "Time of a commit from its start to durable.",
        )
        .buckets(prometheus::exponential_buckets(50e-6, 2.0, 16).unwrap_or_default());
        let commit_histogram = prometheus::Histogram::with_opts(histogram)
            .unwrap_or_else(|e| unreachable!("the histogram's name and buckets are constants: {e}"));
        Ok(Ingest {
            store: ArcSwap::from_pointee(store),
            dir,
            opening,
            live,
            notes,
            generation: AtomicU64::new(0),
            leaps_told: AtomicU64::new(0),
            reopened: watch::Sender::new(0),
            rounds: AtomicU64::new(0),
            durable: watch::Sender::new(durable),
            bell: Mutex::default(),
            rung: Condvar::new(),
            commit_latency: Latencies::new(1200),
            commit_histogram,
            trouble: ArcSwapOption::empty(),
            lost: watch::Sender::new(None),
        })
    }

    /// Returns the current store. Call this for each use, since reopening after a disk failure replaces the store.
    pub fn store(&self) -> Arc<Store> {
        self.store.load_full()
    }

    /// Returns the folder of the store.
    pub fn dir(&self) -> &std::path::Path {
        &self.dir
    }

    /// Returns the live side.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Returns the latencies of the newest commits.
    pub fn commit_latency(&self) -> &Latencies {
        &self.commit_latency
    }

    /// Returns the latencies of all commits, for metrics.
    pub fn commit_histogram(&self) -> &prometheus::Histogram {
        &self.commit_histogram
    }

    /// Returns a receiver that becomes `Some` when the store is lost and the server must end.
    pub fn lost(&self) -> watch::Receiver<Option<StoreLost>> {
        self.lost.subscribe()
    }

    /// Returns a receiver that changes when the store was reopened after a disk failure.
    pub fn reopened(&self) -> watch::Receiver<u64> {
        self.reopened.subscribe()
    }

    /// Returns how often the store was reopened after a disk failure.
    pub fn reopenings(&self) -> u64 {
        *self.reopened.borrow()
    }

    /// Returns the newest leap of this machine's clock, unless it was returned before.
    pub fn new_clock_leap(&self) -> Option<ClockLeap> {
        let clock = self.store.load().clock();
        // A reopened store counts from 0.
        let told = self.leaps_told.swap(clock.leaps, Ordering::AcqRel);
        clock.newest.filter(|_| clock.leaps != told)
    }

    /// Returns why nothing is recorded now, or `None` if it is.
    pub fn refusal(&self) -> Option<Refusal> {
        match self.trouble.load_full() {
            Some(why) => Some(Refusal::Unwritable((*why).clone())),
            None => self.store.load().refusal(),
        }
    }

    /// Returns the state of recording for `/api/health` and heartbeats: `recording`, `disk full`, `not recording`.
    pub fn recording(&self) -> &'static str {
        match self.refusal() {
            None | Some(Refusal::LogFull) => "recording",
            Some(Refusal::DiskFull) => "disk full",
            Some(_) => "not recording",
        }
    }

    /// Returns the opening of the store to which commits of frames appended from now on belong.
    pub fn generation_now(&self) -> Generation {
        Generation(self.generation.load(Ordering::Acquire))
    }

    /// Finds or creates one of the store's own streams.
    ///
    /// # Errors
    /// Returns the errors of [`Store::resolve`].
    pub fn resolve_own(&self, spec: &StreamSpec) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        let store = self.store.load();
        let resolved = store.resolve_own(spec, now_ns())?;
        self.live.catalog_is(store.catalog_version());
        Ok(resolved)
    }

    /// Waits until the commit of a ticket is durable. Wakes the commit thread.
    ///
    /// # Errors
    /// Returns an error if the store refused it, or was reopened in the meantime: the frames may be lost, and must be
    /// sent again.
    pub async fn durable(&self, ticket: Ticket) -> Result<(), Refusal> {
        let mut durable = self.durable.subscribe();
        let begun = self.rounds.load(Ordering::SeqCst);
        if durable.borrow_and_update().commit < ticket.commit {
            self.ring();
        }
        let done = |d: &DurableCommit| d.commit >= ticket.commit || d.round > begun;
        let settled = |d: &DurableCommit| d.generation != ticket.generation || done(d) || d.refusal.is_some();
        let Ok(now) = durable.wait_for(settled).await else { return Err(Refusal::Closed) };
        if now.generation != ticket.generation {
            return Err(Refusal::Poisoned("the store was reopened before the commit".to_owned()));
        }
        match &now.refusal {
            Some(refusal) if !done(&now) => Err(refusal.clone()),
            _ => Ok(()),
        }
    }

    /// Returns what is known of the frames of a ticket, without waiting.
    pub fn state_of(&self, ticket: Ticket) -> TicketState {
        let durable = self.durable.borrow();
        match durable.generation == ticket.generation {
            false => TicketState::Unknown,
            true if durable.commit >= ticket.commit => TicketState::Durable,
            true => TicketState::Waiting,
        }
    }

    /// Requests a commit at once.
    pub fn ring(&self) {
        let mut bell = self.bell.lock();
        bell.wanted = true;
        self.rung.notify_all();
    }

    /// Ends the commit and maintenance threads; the caller then closes the store.
    pub fn stop(&self) {
        let mut bell = self.bell.lock();
        bell.stop = true;
        self.rung.notify_all();
    }

    /// Runs the commit thread: commits every `interval`, and at once when requested.
    pub fn run_commits(&self, interval: Duration) {
        // Attempts to reopen the store since frames last became durable.
        let mut attempts = 0;
        loop {
            {
                let mut bell = self.bell.lock();
                let until = Instant::now() + interval;
                while !bell.wanted && !bell.stop {
                    if self.rung.wait_until(&mut bell, until).timed_out() {
                        break;
                    }
                }
                if bell.stop {
                    return;
                }
                bell.wanted = false;
            }
            match self.commit() {
                Ok(true) => attempts = 0,
                Err(Refusal::Poisoned(reason)) => {
                    if let Err(lost) = self.reopen(&reason, &mut attempts) {
                        tracing::error!("{lost}");
                        self.lost.send_replace(Some(lost));
                        return;
                    }
                }
                Ok(false) | Err(_) => {}
            }
        }
    }

    /// Runs the maintenance thread: seals, checkpoints and expires.
    pub fn run_maintenance(&self) {
        let mut was_full = false;
        loop {
            let store = self.store.load_full();
            // The commit thread handles refusals: it reopens the store and reports.
            let more = store.maintain_at(now_ns(), steady()).unwrap_or(false);
            let full = store.refusal() == Some(Refusal::DiskFull);
            if full != was_full {
                was_full = full;
                match full {
                    true => tracing::error!("not recording: disk full; live goes on"),
                    false => tracing::warn!("recording again: there is space on the disk"),
                }
            }
            drop(store);
            let mut bell = self.bell.lock();
            if !bell.stop && !more {
                self.rung.wait_for(&mut bell, MAINTAIN_PAUSE);
            }
            if bell.stop {
                return;
            }
        }
    }

    /// Commits once. Returns whether anything became durable.
    fn commit(&self) -> Result<bool, Refusal> {
        let store = self.store.load_full();
        let before = store.committed();
        let round = self.rounds.fetch_add(1, Ordering::SeqCst) + 1;
        let start = Instant::now();
        let result = store.commit(now_ns());
        let took = start.elapsed();
        // Waiters for a round must be notified even if it committed nothing.
        let waited = self.durable.receiver_count() > 0;
        self.durable.send_if_modified(|durable| {
            let refusal = result.as_ref().err().cloned();
            let commit = result.as_ref().copied().unwrap_or(durable.commit);
            let changed = durable.commit != commit || durable.refusal != refusal;
            if refusal != durable.refusal {
                match &refusal {
                    Some(refusal) => tracing::error!("not recording: {refusal}; live goes on"),
                    None => tracing::warn!("recording again"),
                }
            }
            durable.commit = commit;
            if refusal.is_none() {
                durable.round = round;
            }
            durable.refusal = refusal;
            changed || waited
        });
        let commit = result?;
        // If there was nothing new, there was no commit to measure.
        if commit != before {
            self.commit_latency.add(took);
            self.commit_histogram.observe(took.as_secs_f64());
        }
        Ok(commit != before)
    }

    /// Reopens the poisoned store and swaps it in. Gives up once all waits are used.
    fn reopen(&self, reason: &str, attempts: &mut usize) -> Result<(), StoreLost> {
        let old = self.store.load_full();
        // Releases the folder; a poisoned store has nothing left to write.
        let _ = old.close(now_ns());
        let mut why = reason.to_owned();
        let mut patient = 0;
        while let Some(wait) = self.opening.reopen_waits.get(*attempts) {
            let wait = if patient > 0 { PATIENT_WAIT } else { *wait };
            if self.is_stopped_within(wait) {
                return Ok(());
            }
            match self.open_again(&old) {
                Ok(()) => {
                    // The attempt counts until something was committed: a disk that opens may still refuse writes.
                    *attempts += 1;
                    self.trouble.store(None);
                    return Ok(());
                }
                Err(NotOpened::ForNow(error)) => {
                    if patient % ATTEMPTS_A_LINE == 0 {
                        tracing::error!("not recording, live goes on: {error}");
                    }
                    patient += 1;
                    self.durable.send_modify(|durable| durable.refusal = Some(Refusal::Unwritable(error.clone())));
                    self.trouble.store(Some(Arc::new(error)));
                }
                Err(NotOpened::Failed(error)) => {
                    *attempts += 1;
                    patient = 0;
                    tracing::error!("attempt {attempts} to open the store again failed: {error}");
                    why = error;
                }
            }
        }
        Err(StoreLost(why))
    }

    fn open_again(&self, old: &Store) -> Result<(), NotOpened> {
        let store = self.opening.reopen(old.origin(), now_ns())?;
        self.swap(old, store).map_err(NotOpened::Failed)
    }

    /// Waits up to `wait`. Returns whether the server is stopping.
    fn is_stopped_within(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut bell = self.bell.lock();
        while !bell.stop && !self.rung.wait_until(&mut bell, until).timed_out() {}
        bell.stop
    }

    /// Replaces the store with a reopened one.
    fn swap(&self, old: &Store, store: Store) -> Result<(), String> {
        report_damage(&store, &self.dir);
        let recovery = store.recovery();
        // Data that could no longer be sealed may fill the log, and taking over needs room there.
        while store.refusal() == Some(Refusal::LogFull) && store.maintain(now_ns()).map_err(|e| e.to_string())? {}
        let mut fanout = self.live.fanout();
        // Under the fan-out's lock no frame can be refused after the old store's counts were read.
        let lost = store.take_over(old, now_ns()).map_err(|e| e.to_string())?;
        let view = store.view();
        let lost_of = |stream| store.counts(stream).lost;
        Live::rewind(&mut fanout, store.epoch(), |stream| view.next_row(stream), lost_of);
        drop(view);
        let commit = store.committed();
        self.store.store(Arc::new(store));
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        self.durable.send_replace(DurableCommit {
            generation,
            commit,
            round: self.rounds.load(Ordering::Acquire),
            refusal: None,
        });
        self.reopened.send_replace(generation);
        drop(fanout);
        tracing::error!(
            epoch = recovery.epoch,
            frames = recovery.frames,
            lost,
            "the store was reopened after the disk failed; frames since its last commit are lost"
        );
        Ok(())
    }

    fn annotate(&self, spec: &StreamSpec) -> Option<StreamSpec> {
        if self.notes.is_empty() {
            return None;
        }
        let mut annotated: Option<StreamSpec> = None;
        for (i, channel) in spec.channels.iter().enumerate() {
            let Some(note) = self.notes.iter().find(|n| n.pattern.matches(&spec.key, &channel.name)) else { continue };
            let spec = annotated.get_or_insert_with(|| spec.clone());
            let at = &mut spec.channels[i];
            if at.unit.is_empty() {
                at.unit.clone_from(&note.unit);
            }
            if at.description.is_empty() {
                at.description.clone_from(&note.description);
            }
            spec.expected_period_ns = spec.expected_period_ns.or(note.expected_period_ns);
        }
        annotated
    }
}

/// Merges the outcomes of frames offered again into their positions.
fn merge(whole: Option<Appended>, again: Appended, places: &[usize]) -> Appended {
    let Some(mut whole) = whole else { return again };
    for (place, outcome) in places.iter().zip(again.outcomes) {
        whole.outcomes[*place] = outcome;
    }
    whole.commit = whole.commit.max(again.commit);
    whole
}

/// Runs a blocking wait. On a thread of the async runtime, lets another thread take over its tasks.
fn blocking(wait: impl FnOnce()) {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        _ => wait(),
    }
}

impl Sink for Ingest {
    fn resolve(&self, spec: &StreamSpec) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        let annotated = self.annotate(spec);
        let store = self.store.load();
        let resolved = store.resolve(annotated.as_ref().unwrap_or(spec), now_ns())?;
        self.live.catalog_is(store.catalog_version());
        Ok(resolved)
    }

    fn put_blob(&self, stream: StreamId, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        let mut writer = self.store.load().blob(stream)?;
        writer.expect(bytes.len() as u64)?;
        writer.write(bytes)?;
        writer.finish(now_ns())
    }

    fn accept(&self, batch: &FrameBatch) -> Appended {
        let now = now_ns();
        let mut fanout = self.live.fanout();
        let store = self.store.load();
        let appended = store.append(batch, now);
        fanout.publish(batch, &appended, now, |stream| store.counts(stream).lost);
        drop(fanout);
        let makes_room =
            |o: &Outcome| matches!(o, Outcome::Rejected(Reject::Refused(Refusal::LogFull | Refusal::Poisoned(_))));
        if appended.outcomes.iter().any(makes_room) {
            self.ring();
        }
        appended
    }

    fn accept_waiting(&self, batch: &FrameBatch) -> Appended {
        let is_full = |o: &Outcome| matches!(o, Outcome::Rejected(Reject::Refused(Refusal::LogFull)));
        let mut whole: Option<Appended> = None;
        let mut rest = FrameBatch::new();
        rest.set_answered(batch.is_answered());
        let mut places: Vec<usize> = Vec::new();
        let mut progress = Instant::now();
        loop {
            let offered = if whole.is_none() { batch } else { &rest };
            let now = now_ns();
            let mut fanout = self.live.fanout();
            let store = self.store.load();
            let last = progress.elapsed() > FULL_LOG_WAIT;
            let appended = if last { store.append(offered, now) } else { store.offer(offered, now) };
            let full: Vec<usize> = (0..offered.len()).filter(|i| is_full(&appended.outcomes[*i])).collect();
            if full.len() < offered.len() {
                progress = Instant::now();
            }
            if full.is_empty() || last {
                fanout.publish(offered, &appended, now, |stream| store.counts(stream).lost);
                drop(fanout);
                return merge(whole, appended, &places);
            }
            // Publish accepted frames now; publish the rest when they are accepted.
            let (mut taken, mut next, mut next_places) = (FrameBatch::new(), FrameBatch::new(), Vec::new());
            next.set_answered(batch.is_answered());
            let mut outcomes = Vec::new();
            for (i, outcome) in appended.outcomes.iter().enumerate() {
                if is_full(outcome) {
                    next.copy(&offered.frame(i));
                    next_places.push(places.get(i).copied().unwrap_or(i));
                } else {
                    taken.copy(&offered.frame(i));
                    outcomes.push(outcome.clone());
                }
            }
            let shown = Appended { outcomes, commit: appended.commit };
            fanout.publish(&taken, &shown, now, |stream| store.counts(stream).lost);
            drop(fanout);
            let commit = appended.commit;
            whole = Some(merge(whole, appended, &places));
            (rest, places) = (next, next_places);
            blocking(|| {
                // A refusal appears again at the next offer.
                let _ = self.wait_durable(commit);
                if progress.elapsed() > FULL_LOG_PAUSE {
                    std::thread::sleep(FULL_LOG_PAUSE);
                }
            });
        }
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn wait_durable(&self, commit: CommitNumber) -> Result<(), Refusal> {
        let begun = self.rounds.load(Ordering::SeqCst);
        let generation = self.generation.load(Ordering::Acquire);
        let store = self.store.load_full();
        let until = Instant::now() + DURABLE_WAIT;
        self.ring();
        loop {
            // The number is valid for this opening only; in the next one it names another commit.
            if store.wait_committed(commit, DURABLE_LOOK)? {
                return Ok(());
            }
            let durable = self.durable.borrow();
            if durable.generation != generation {
                return Err(Refusal::Poisoned("the store was reopened before the commit".to_owned()));
            }
            if durable.round > begun {
                return Ok(());
            }
            if let Some(refusal) = &durable.refusal {
                return Err(refusal.clone());
            }
            if Instant::now() > until {
                return Err(Refusal::Poisoned("no commit within 30 s".to_owned()));
            }
        }
    }

    fn count_rejected(&self, stream: StreamId, frames: u64) {
        self.store.load().count_rejected(stream, frames);
    }
}
