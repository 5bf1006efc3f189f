//! A follower: a thread that brings committed frames to a target.
//!
//! ```text
//! store ─ committed rows after the position ─> Backlog ─ Delivery ─> Target
//!                          position <──────────────── durable there ──┘
//! ```
//!
//! | what happens | what the follower does |
//! |---|---|
//! | the target takes nothing | tries again for ever, with growing pauses |
//! | the target takes nothing of some streams | delivers the others, and tries these again with growing pauses |
//! | the target rejects a delivery | halves it until a single frame is rejected, and notes that frame |
//! | 200 frames of a stream are rejected one after the other | takes it for a fault of the table, and tries again |
//! | rows expired or are damaged | passes over them, and reports them |
//! | it is stopped or killed | continues from its position; what was sent since comes again, and the target knows it |

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use strongback_store::{CommitNumber, Pattern, Scan, Store, StreamId, TooCostly, let_run};

use crate::backlog::{Backlog, Read, Skipped};
use crate::backoff::{Backoff, Pauses};
use crate::delivery::{Delivery, StreamFrames};
use crate::position::{Positions, PositionsError};
use crate::quarantine::{Quarantine, shortened};
use crate::status::{State, Status};
use crate::target::{Target, TargetError};

/// Max time that a follower which is dropped waits for the delivery under way.
const STOP: Duration = Duration::from_secs(2);
/// Max time between two saves of positions while frames are delivered.
const SAVE: Duration = Duration::from_secs(1);
/// Max time that an idle follower waits for a commit before it looks at its commands.
const IDLE: Duration = Duration::from_millis(100);
/// Period after which frames that gather are counted again.
const GATHERING: Duration = Duration::from_secs(1);
/// Period over which the rate is measured.
const RATE: Duration = Duration::from_secs(5);
/// Frames of a stream rejected one after the other that are taken for a fault of its table.
const REJECTED_MAX: u32 = 200;

/// Options of a follower.
#[derive(Clone, Debug)]
pub struct FollowerOptions {
    /// Name, which is part of the names of its files.
    pub name: String,
    /// Channels that it delivers.
    pub patterns: Vec<Pattern>,
    /// Folder of its files, which must exist.
    pub folder: PathBuf,
    /// Whether a new follower delivers only frames that are received after it was made.
    pub from_now: bool,
    /// Max number of frames in a delivery.
    pub delivery_frames: usize,
    /// Approximate max size of a delivery in memory, in bytes.
    pub delivery_bytes: usize,
    /// Time between two deliveries if all of the backlog fits into one.
    pub interval: Duration,
    /// Max time for which frames wait until a delivery is full, for a target that is better off with large ones.
    pub gather: Duration,
    /// Max bytes sent per second.
    pub max_bytes_per_s: Option<u64>,
    /// Pauses between attempts.
    pub pauses: Pauses,
    /// Whether it is paused from the start.
    pub is_paused: bool,
}

/// Something that people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Rows that were not delivered because they are no longer stored.
    Skipped(Skipped),
    /// A frame that the target rejects.
    Rejected {
        /// Stream of the frame.
        stream: StreamId,
        /// Row of the frame.
        row: u64,
        /// Reason that the target gives.
        reason: String,
    },
    /// Deliveries fail, of all streams, or of one.
    Failing {
        /// Stream, if others are delivered.
        stream: Option<StreamId>,
        /// Reason.
        reason: String,
    },
    /// Deliveries that failed succeed again.
    Recovered {
        /// Stream, if others were delivered.
        stream: Option<StreamId>,
    },
}

/// Receiver of notes. It is called on the follower's thread.
pub type Notes = dyn Fn(Note) + Send + Sync;

/// A running follower. It is stopped when dropped.
pub struct Follower {
    control: Arc<Control>,
    /// Whether the target recognises frames that are delivered again.
    can_go_back: bool,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("status", &self.status()).finish()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Run,
    Pause,
    Stop,
}

/// What others ask of a follower.
struct Asked {
    command: Command,
    /// Whether it is to try again without waiting.
    at_once: bool,
    /// Time from which it is to deliver again.
    from_time: Option<i64>,
}

struct Control {
    asked: Mutex<Asked>,
    changed: Condvar,
    status: Mutex<Status>,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

impl Control {
    /// Waits until the time has passed, or something is asked. Returns whether somebody is in a hurry.
    fn wait(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut asked = self.asked.lock();
        let is_quiet = |asked: &Asked| asked.command == Command::Run && !asked.at_once;
        while is_quiet(&asked) && !self.changed.wait_until(&mut asked, until).timed_out() {}
        std::mem::take(&mut asked.at_once)
    }

    fn command(&self) -> Command {
        self.asked.lock().command
    }

    fn set(&self, command: Command) {
        let mut asked = self.asked.lock();
        // A stop is final.
        if asked.command != Command::Stop {
            asked.command = command;
        }
        asked.at_once = true;
        self.changed.notify_all();
    }
}

impl Follower {
    /// Starts a follower.
    ///
    /// # Errors
    /// Returns an error if its positions cannot be used, or no thread can be started.
    pub fn start(
        store: Store,
        target: Box<dyn Target>,
        options: FollowerOptions,
        notes: Arc<Notes>,
    ) -> Result<Follower, PositionsError> {
        let (positions, found) = Positions::open(&options.folder, &options.name, store.origin())?;
        let status = Mutex::new(Status { gather_s: options.gather.as_secs_f64(), ..Status::default() });
        let first = if options.is_paused { Command::Pause } else { Command::Run };
        let control = Arc::new(Control {
            asked: Mutex::new(Asked { command: first, at_once: false, from_time: None }),
            changed: Condvar::new(),
            status,
            has_ended: Mutex::new(false),
            ended: Condvar::new(),
        });
        let backlog = Backlog::new(
            store.clone(),
            options.patterns.clone(),
            (options.delivery_frames.max(1), options.delivery_bytes.max(1)),
            target.counts_repeats(),
        );
        let backoff = Backoff::new(options.pauses);
        let quarantine = Quarantine::new(&options.folder, &options.name);
        let can_go_back = target.recognises_frames();
        let mut worker = Worker {
            store,
            target,
            begins_now: options.from_now && !found,
            options,
            notes,
            control: control.clone(),
            positions,
            backlog,
            quarantine,
            is_open: false,
            gathering_since: None,
            is_hurried: false,
            is_failing: false,
            backoff,
            suspended: HashMap::new(),
            rejected_in_row: HashMap::new(),
            saved: Instant::now(),
            sent_until: Instant::now(),
            rate_since: (Instant::now(), 0),
        };
        let name = format!("follow {}", worker.options.name);
        let file = worker.options.name.clone();
        let thread = std::thread::Builder::new().name(name).spawn(move || worker.run());
        let thread = thread.map_err(|source| PositionsError::Io { file, source })?;
        Ok(Follower { control, can_go_back, thread: Some(thread) })
    }

    /// Returns its state and counters.
    pub fn status(&self) -> Status {
        self.control.status.lock().clone()
    }

    /// Pauses it once the delivery under way has ended.
    pub fn pause(&self) {
        self.control.set(Command::Pause);
    }

    /// Lets a paused follower continue, and one that waits try again at once.
    pub fn resume(&self) {
        self.control.set(Command::Run);
    }

    /// Lets it deliver again what it has delivered, from the first frame of each stream with this `time` or a later one.
    /// Returns false if its target would have these frames twice.
    pub fn backfill(&self, time: i64) -> bool {
        if self.can_go_back {
            let mut asked = self.control.asked.lock();
            asked.from_time = Some(asked.from_time.map_or(time, |other| other.min(time)));
            asked.at_once = true;
            self.control.changed.notify_all();
        }
        self.can_go_back
    }

    /// Asks it to stop once the delivery under way has ended.
    pub fn request_stop(&self) {
        self.control.set(Command::Stop);
    }

    /// Stops it, and waits until it has ended, but not longer than a time. Returns whether it has ended.
    pub fn stop(&mut self, patience: Duration) -> bool {
        self.request_stop();
        let until = Instant::now() + patience;
        let mut has_ended = self.control.has_ended.lock();
        while !*has_ended && !self.control.ended.wait_until(&mut has_ended, until).timed_out() {}
        let is_over = *has_ended;
        drop(has_ended);
        if let Some(thread) = self.thread.take() {
            match is_over {
                // A panic has been reported by its thread.
                true => drop(thread.join()),
                // A target that does not answer must not delay a stop.
                false => let_run(thread),
            }
        }
        is_over
    }
}

/// Notes the end of a thread, also by a panic.
struct Ending(Arc<Control>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.status.lock().state = State::Stopped;
        *self.0.has_ended.lock() = true;
        self.0.ended.notify_all();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop(STOP);
    }
}

/// A stream whose delivery failed while others went on.
struct Suspended {
    until: Instant,
    backoff: Backoff,
    /// Receive time of its oldest frame that is not delivered.
    oldest: Option<i64>,
}

struct Worker {
    store: Store,
    target: Box<dyn Target>,
    options: FollowerOptions,
    notes: Arc<Notes>,
    control: Arc<Control>,
    positions: Positions,
    /// Whether streams that are there already begin with what comes next.
    begins_now: bool,
    backlog: Backlog,
    quarantine: Quarantine,
    is_open: bool,
    /// Receive time of the oldest frame that gathers.
    gathering_since: Option<i64>,
    /// Whether the next delivery is not to wait for more frames.
    is_hurried: bool,
    is_failing: bool,
    backoff: Backoff,
    suspended: HashMap<StreamId, Suspended>,
    /// Frames of a stream rejected since the last that was delivered.
    rejected_in_row: HashMap<StreamId, u32>,
    saved: Instant,
    /// Time until which the bytes sent so far take up the bandwidth.
    sent_until: Instant,
    /// Start of the period over which the rate is measured, and the frames delivered before.
    rate_since: (Instant, u64),
}

impl Worker {
    fn run(&mut self) {
        let _ending = Ending(self.control.clone());
        loop {
            match self.control.command() {
                Command::Stop => break,
                Command::Pause => {
                    self.save();
                    self.status(|status| status.state = State::Paused);
                    let mut asked = self.control.asked.lock();
                    while asked.command == Command::Pause {
                        self.control.changed.wait(&mut asked);
                    }
                    continue;
                }
                Command::Run => {}
            }
            let from_time = self.control.asked.lock().from_time.take();
            if let Some(time) = from_time
                && let Err(error) = self.go_back(time)
            {
                // Asked again, unless another time was asked for meanwhile.
                self.control.asked.lock().from_time.get_or_insert(time);
                let pause = self.failed(&error);
                self.is_hurried |= self.control.wait(pause);
                continue;
            }
            let pause = match self.round() {
                Ok(pause) => pause,
                Err(error) => self.failed(&error),
            };
            self.is_hurried |= self.control.wait(pause);
        }
        self.save();
    }

    /// Sets the positions back to the first frames with a time or a later one.
    fn go_back(&mut self, time: i64) -> Result<(), TargetError> {
        self.begin()?;
        let streams: Vec<StreamId> =
            self.backlog.streams().map_err(too_costly)?.iter().map(|(stream, _)| stream.id).collect();
        let view = self.store.view().with_excluded();
        for stream in streams {
            let mut scan = Scan::all(stream, Vec::new());
            (scan.time, scan.batch_rows) = (time..i64::MAX, 1);
            let first = view.scan(scan).filter_map(Result::ok).find_map(|batch| batch.rows.first().copied());
            let next = self.positions.of(stream).next_row;
            if let Some(first) = first.filter(|first| *first < next) {
                self.positions.advance(stream, first);
            }
        }
        self.save();
        Ok(())
    }

    fn status(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.control.status.lock());
    }

    /// Notes that an attempt failed, and returns the pause before the next.
    fn failed(&mut self, error: &TargetError) -> Duration {
        if matches!(error, TargetError::Unavailable(_) | TargetError::Moved(_)) {
            self.is_open = false;
        }
        let reason = shortened(&error.to_string()).to_owned();
        self.status(|status| {
            status.state = State::Retrying;
            status.failed_attempts += 1;
            status.last_error = Some((reason.clone(), now_ns()));
        });
        if !self.is_failing {
            self.is_failing = true;
            (self.notes)(Note::Failing { stream: None, reason });
        }
        self.save();
        self.backoff.next()
    }

    /// Delivers once, and returns the pause before the next delivery.
    fn round(&mut self) -> Result<Duration, TargetError> {
        self.measure();
        self.begin()?;
        if let Err(error) = self.open() {
            // People want to know how much waits, also if nothing was ever delivered.
            self.read()?;
            return Err(error);
        }
        if let Some(pause) = self.gather()? {
            self.recovered();
            self.save_if_due();
            return Ok(pause);
        }
        let (commit, now) = (self.store.committed(), Instant::now());
        let Read { delivery, skipped, is_full, .. } = self.read()?;
        if delivery.is_empty() {
            self.is_hurried = false;
            self.pass_over(skipped);
            self.recovered();
            self.save_if_due();
            // Ends early if there is a newer commit than the one before the backlog was read.
            let suspended = self.suspended.values().map(|stream| stream.until.saturating_duration_since(now)).min();
            let idle = suspended.map_or(IDLE, |suspended| suspended.min(IDLE));
            let waited = self.store.wait_committed(CommitNumber(commit.0 + 1), idle);
            return Ok(waited.map_or(idle, |_| Duration::ZERO));
        }
        let frames = delivery.frames() as u64;
        let delivered = self.deliver(delivery);
        self.pass_over(skipped);
        delivered?;
        self.recovered();
        self.save_if_due();
        self.status(|status| {
            status.behind_frames = status.behind_frames.saturating_sub(frames);
            if status.behind_frames == 0 {
                status.oldest_undelivered_ns = None;
            }
        });
        if !is_full {
            (self.gathering_since, self.is_hurried) = (None, false);
        }
        let bandwidth = self.sent_until.saturating_duration_since(Instant::now());
        Ok(if is_full { bandwidth } else { self.options.interval.max(bandwidth) })
    }

    /// Returns the pause after which to look again, while frames gather for a delivery.
    fn gather(&mut self) -> Result<Option<Duration>, TargetError> {
        if self.options.gather.is_zero() || self.is_hurried {
            return Ok(None);
        }
        let (frames, is_full) = self.backlog.waiting(&self.positions).map_err(too_costly)?;
        if frames == 0 || is_full {
            return Ok(None);
        }
        self.status(|status| status.behind_frames = frames);
        let now = now_ns();
        let since = match self.gathering_since {
            Some(since) => since,
            None => self.read()?.oldest.unwrap_or(now),
        };
        // A clock that was set back must not stretch the time.
        let since = *self.gathering_since.insert(since.min(now));
        let rest = self.options.gather.saturating_sub(Duration::from_nanos(now.abs_diff(since)));
        Ok((!rest.is_zero()).then(|| rest.min(GATHERING)))
    }

    /// Reads what is to be delivered next, and notes how much waits.
    fn read(&mut self) -> Result<Read, TargetError> {
        let (suspended, now) = (&self.suspended, Instant::now());
        let is_suspended = |stream| suspended.get(&stream).is_some_and(|stream: &Suspended| stream.until > now);
        let mut read = self.backlog.read(&self.positions, &is_suspended).map_err(too_costly)?;
        let streams = self.backlog.streams().map_err(too_costly)?.len() as u64;
        let oldest = suspended.values().filter_map(|stream| stream.oldest).chain(read.oldest).min();
        self.status(|status| {
            (status.streams, status.behind_frames) = (streams, read.behind_frames);
            status.oldest_undelivered_ns = oldest.filter(|_| read.behind_frames > 0);
            if let Some(trouble) = read.trouble.take() {
                status.last_error = Some((trouble, now_ns()));
            }
        });
        Ok(read)
    }

    /// Notes where a new follower begins.
    fn begin(&mut self) -> Result<(), TargetError> {
        if self.begins_now {
            let streams: Vec<StreamId> =
                self.backlog.streams().map_err(too_costly)?.iter().map(|(stream, _)| stream.id).collect();
            for stream in streams {
                self.positions.begin(stream, self.store.committed_row(stream));
            }
            let unsaved = |error| TargetError::Unavailable(format!("the positions cannot be saved: {error}"));
            self.positions.save().map_err(unsaved)?;
            self.begins_now = false;
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(), TargetError> {
        if self.is_open {
            return Ok(());
        }
        if let Some(there) = self.target.open()? {
            for (stream, _) in self.backlog.streams().map_err(too_costly)? {
                // Its positions count: it may have been restored from a backup.
                let row = there.get(&stream.id).copied().unwrap_or(self.positions.of(stream.id).from_row);
                self.positions.advance(stream.id, row.min(self.store.committed_row(stream.id)));
            }
        }
        self.is_open = true;
        Ok(())
    }

    /// Measures the rate of deliveries, once a period.
    fn measure(&mut self) {
        let (since, before) = self.rate_since;
        if since.elapsed() < RATE {
            return;
        }
        let mut status = self.control.status.lock();
        status.frames_per_s = (status.delivered_frames - before) as f64 / since.elapsed().as_secs_f64();
        self.rate_since = (Instant::now(), status.delivered_frames);
    }

    fn recovered(&mut self) {
        self.backoff.reset();
        self.status(|status| status.state = State::Following);
        if std::mem::take(&mut self.is_failing) {
            (self.notes)(Note::Recovered { stream: None });
        }
    }

    fn pass_over(&mut self, skipped: Vec<Skipped>) {
        for skipped in skipped {
            let next = self.positions.of(skipped.stream).next_row;
            if next == skipped.rows.start {
                self.positions.advance(skipped.stream, skipped.rows.end);
            } else if next < skipped.rows.end {
                // Frames before were not delivered. They are read again, and these rows with them.
                continue;
            }
            self.status(|status| status.skipped_frames += skipped.rows.end - skipped.rows.start);
            (self.notes)(Note::Skipped(skipped));
        }
    }

    /// Delivers all frames, without those that are rejected and the streams that fail.
    fn deliver(&mut self, delivery: Delivery) -> Result<(), TargetError> {
        let mut waiting = vec![delivery];
        while let Some(delivery) = waiting.pop() {
            if delivery.is_empty() {
                continue;
            }
            if self.control.command() == Command::Stop {
                return Ok(());
            }
            match self.target.deliver(&delivery) {
                Ok(delivered) => {
                    for part in &delivery.parts {
                        self.rejected_in_row.remove(&part.id());
                    }
                    self.delivered(&delivery);
                    self.status(|status| {
                        status.deliveries += 1;
                        status.delivered_frames += delivery.frames() as u64;
                        status.sent_bytes += delivered.bytes;
                        status.altered_values += delivered.altered_values;
                    });
                    if let Some(most) = self.options.max_bytes_per_s {
                        let taken = Duration::from_secs_f64(delivered.bytes as f64 / most.max(1) as f64);
                        self.sent_until = self.sent_until.max(Instant::now()) + taken;
                    }
                }
                Err(TargetError::Rejected(reason)) => match delivery.parts.as_slice() {
                    [frame] if frame.batch.len() == 1 => {
                        let stream = frame.id();
                        if self.rejected_in_row.get(&stream).is_some_and(|rejected| *rejected >= REJECTED_MAX) {
                            let reason = format!("{REJECTED_MAX} frames in a row are rejected: {reason}");
                            self.suspend(&[stream], &delivery, &reason);
                            waiting.iter_mut().for_each(|later| *later = std::mem::take(later).without(&[stream]));
                            continue;
                        }
                        self.reject(frame, &reason)?;
                        self.delivered(&delivery);
                    }
                    _ => {
                        let (first, second) = delivery.halves();
                        waiting.push(second);
                        waiting.push(first);
                    }
                },
                Err(TargetError::Streams { streams, reason }) if !streams.is_empty() => {
                    self.suspend(&streams, &delivery, &reason);
                    waiting.iter_mut().for_each(|later| *later = std::mem::take(later).without(&streams));
                    waiting.push(delivery.without(&streams));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Moves the positions behind the frames of a delivery.
    fn delivered(&mut self, delivery: &Delivery) {
        for part in &delivery.parts {
            self.positions.advance(part.id(), part.rows().end);
            if self.suspended.remove(&part.id()).is_some() {
                (self.notes)(Note::Recovered { stream: Some(part.id()) });
            }
        }
        let suspended = self.suspended.len() as u64;
        self.status(|status| status.suspended_streams = suspended);
    }

    fn reject(&mut self, frame: &StreamFrames, reason: &str) -> Result<(), TargetError> {
        let failed = |error| TargetError::Unavailable(format!("a rejected frame cannot be noted: {error}"));
        self.quarantine.add(frame, reason, now_ns()).map_err(failed)?;
        *self.rejected_in_row.entry(frame.id()).or_default() += 1;
        self.status(|status| status.rejected_frames += 1);
        let (reason, row) = (shortened(reason).to_owned(), frame.rows().start);
        (self.notes)(Note::Rejected { stream: frame.id(), row, reason });
        Ok(())
    }

    fn suspend(&mut self, streams: &[StreamId], delivery: &Delivery, reason: &str) {
        for stream in streams {
            let parts = delivery.parts.iter().filter(|part| part.id() == *stream);
            let oldest = parts.flat_map(|part| part.batch.receive_time.iter().copied()).min();
            let is_new = !self.suspended.contains_key(stream);
            let entry = self.suspended.entry(*stream);
            let backoff = Backoff::new(self.options.pauses);
            let stopped = entry.or_insert_with(|| Suspended { until: Instant::now(), backoff, oldest });
            stopped.until = Instant::now() + stopped.backoff.next();
            if is_new {
                let reason = shortened(reason).to_owned();
                (self.notes)(Note::Failing { stream: Some(*stream), reason });
            }
        }
        let suspended = self.suspended.len() as u64;
        self.status(|status| {
            status.failed_attempts += 1;
            status.suspended_streams = suspended;
            status.last_error = Some((shortened(reason).to_owned(), now_ns()));
        });
    }

    fn save_if_due(&mut self) {
        if self.saved.elapsed() >= SAVE {
            self.save();
        }
    }

    /// Saves the positions. If that fails, frames may come again after a restart, and the target knows them.
    fn save(&mut self) {
        self.saved = Instant::now();
        if let Err(error) = self.positions.save() {
            let text = format!("the positions cannot be saved: {error}");
            self.status(|status| status.last_error = Some((text, now_ns())));
        }
    }
}

fn too_costly(_: TooCostly) -> TargetError {
    TargetError::Unavailable("comparing the patterns with the names of all channels takes too long".to_owned())
}

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as i64)
}
