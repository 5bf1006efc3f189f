//! Limits and alarms: what is too low, too high, in a wrong state or too old, and who knows of it.
//!
//! ```text
//! Fanout::publish ─> tap: readings of the channels under limits        a look-up a frame
//! each 10 ms      ─> order: by reception, held back by ALIGN_NS        a thread of its own, here
//!                 ─> judge ─> machine: changes of level                pure; over the past as well (past)
//!                 ─> book: raised, acknowledged, cleared, shelved ─> strongback.alarms, screens, log, webhooks
//! ```
//!
//! A limit judges what came, stored or not: a failed disk silences no alarm.

pub mod book;
pub mod history;
pub mod judge;
pub mod machine;
pub mod past;
pub mod rate;
pub mod rule;
pub mod words;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use strongback_query::{EventOrigin, EventRow};
use strongback_store::{Catalog, Clock, Reject, Scan, ScanError, Store, StreamId};
use tokio::sync::watch;

use crate::clock::{self, LEAP_NS, Leaps, now_ns};
use crate::ingest::{Ingest, Ticket};
use crate::ledger::Ledger;
use crate::reception::order::Order;
use crate::reception::{replay, turns};
use crate::webhook::Webhooks;

use book::{ActError, Alarm, Book, Step, StepKind, Taken};
use judge::{Judge, Sighting};
use rule::Rule;

/// How long frames are held back, so that what came over different ways is judged in the order of reception.
pub const ALIGN_NS: i64 = 20_000_000;
/// Rows of a stream that are read, at most, because they came before its limits were known.
const CATCH_UP_ROWS: u64 = 65_536;
/// Steps that wait for a store that refuses, at most.
const WAITING_MAX: usize = 10_000;
/// Time between two events that say that frames came late.
const TELL_EACH_NS: i64 = 60_000_000_000;
/// Time between two looks for shelves whose time is over.
const SWEEP_EACH_NS: i64 = 1_000_000_000;

/// Limits and alarms of a server.
#[derive(Debug)]
pub struct Limits {
    rules: Arc<[Rule]>,
    book: Mutex<Book>,
    /// Number of the next step.
    next_number: AtomicU64,
    /// Who is told of alarms over HTTP.
    pub webhooks: Webhooks,
    /// What counts.
    pub counters: LimitCounters,
}

/// What limits count since start.
#[derive(Debug, Default)]
pub struct LimitCounters {
    /// Channels under limits, each limit counted.
    pub channels: AtomicU64,
    /// Frames judged.
    pub judged: AtomicU64,
    /// Frames judged after their turn.
    pub late: AtomicU64,
    /// Frames that found no room.
    pub unjudged: AtomicU64,
    /// Steps that the store refused for good.
    pub unrecorded: AtomicU64,
}

/// Why someone's word about an alarm did not count.
#[derive(Debug, thiserror::Error)]
pub enum ActFailure {
    /// It makes no sense.
    #[error(transparent)]
    Act(#[from] ActError),
    /// The store refused it.
    #[error(transparent)]
    Refused(#[from] Reject),
}

/// What the thread of the limits keeps.
#[derive(Debug)]
struct Work {
    judge: Judge,
    order: Order<Sighting>,
    clock: Leaps,
    /// The catalog that was looked at.
    catalog: Option<Arc<Catalog>>,
    /// Opening of the store that numbers are of.
    reopenings: u64,
    /// Row of each stream up to which its frames were seen when its limits were last looked at.
    seen: HashMap<StreamId, u64>,
    /// Steps that are not recorded yet, with their numbers.
    waiting: Vec<(u64, Step)>,
    /// Rows that had another turn than that of their reception, not recorded yet.
    late: Vec<history::Late>,
    /// How many came late and how many were not judged since that was told.
    not_told: (u64, u64),
    told_at: i64,
    swept_at: i64,
}

impl Limits {
    /// Limits by these rules.
    pub fn new(rules: Vec<Rule>, webhooks: Webhooks) -> Self {
        Limits {
            rules: rules.into(),
            book: Mutex::default(),
            next_number: AtomicU64::new(0),
            webhooks,
            counters: LimitCounters::default(),
        }
    }

    /// The rules.
    pub fn rules(&self) -> &Arc<[Rule]> {
        &self.rules
    }

    /// Takes the book as the rows of `strongback.alarms` tell it.
    ///
    /// # Errors
    /// A scan that ends early; what was read until then is kept.
    pub fn load(&self, store: &Store) -> Result<(), ScanError> {
        let mut book = self.book.lock();
        // What was reported before is not reported again.
        let next = history::steps(&store.view(), |step| _ = book.take(step));
        book.pass(now_ns());
        self.next_number.store(next?, Relaxed);
        Ok(())
    }

    /// Alarms that are not over, worst first.
    pub fn alarms(&self) -> Vec<Alarm> {
        self.book.lock().list()
    }

    /// Someone acts on an alarm: the step that `act` makes is taken and appended; wait for the ticket before you say so.
    ///
    /// # Errors
    /// It makes no sense, or the store refuses it.
    pub fn act(
        &self,
        ingest: &Ingest,
        act: impl FnOnce(&Book, i64) -> Result<Step, ActError>,
    ) -> Result<Ticket, ActFailure> {
        let mut book = self.book.lock();
        let step = act(&book, now_ns())?;
        let numbered = (self.next_number.fetch_add(1, Relaxed), step);
        let ticket = history::record(ingest, std::slice::from_ref(&numbered))?;
        let step = numbered.1;
        let taken = book.take(&step);
        self.notify(ingest, &book, &step, taken);
        Ok(ticket)
    }

    /// Starts the thread of the limits: what is appended from now on is judged. It ends when the server stops.
    ///
    /// # Errors
    /// No thread.
    pub fn start(
        self: Arc<Self>,
        ingest: Arc<Ingest>,
        ledger: Arc<Ledger>,
        stopping: watch::Receiver<bool>,
    ) -> std::io::Result<JoinHandle<()>> {
        let mut work = self.begin(&ingest, now_ns());
        turns::start("limits", stopping, move |stop| {
            self.turn(&mut work, &ingest, &ledger, clock::both(), if stop { 0 } else { ALIGN_NS });
        })
    }

    /// Looks at all streams there are; frames count from now on.
    fn begin(&self, ingest: &Ingest, now: i64) -> Work {
        let mut work = Work {
            judge: Judge::new(self.rules.clone()),
            order: Order::default(),
            clock: Leaps::default(),
            catalog: None,
            reopenings: ingest.reopenings(),
            seen: HashMap::new(),
            waiting: Vec::new(),
            late: Vec::new(),
            not_told: (0, 0),
            told_at: i64::MIN,
            swept_at: i64::MIN,
        };
        ingest.live().fanout().tap.clear();
        self.adopt(&mut work, ingest, now);
        work
    }

    /// Looks at streams and channels that are new.
    fn adopt(&self, work: &mut Work, ingest: &Ingest, now: i64) {
        let store = ingest.store();
        if work.catalog.as_ref().is_some_and(|looked| looked.version == store.catalog_version()) {
            return;
        }
        let catalog = store.catalog();
        // At a start, limits go on from where they were told to be.
        let looked = work.catalog.replace(catalog.clone());
        let at_start = looked.is_none();
        let looked = looked.unwrap_or_default();
        let mut found = Vec::new();
        let changed = || catalog.streams.changed_since(&looked.streams).filter(|stream| stream.source != "internal");
        changed().for_each(|stream| work.judge.note(stream));
        for stream in changed() {
            let told = |rule: &str, channel: &str| self.book.lock().told(rule, channel);
            if let Some((channels, before)) = work.judge.adopt(stream, told) {
                found.push((stream.clone(), channels, before));
            }
        }
        if found.is_empty() {
            return;
        }
        let (channels, left_out) = work.judge.counts();
        self.counters.channels.store(channels as u64, Relaxed);
        if left_out > 0 {
            tracing::error!("{left_out} channels are under no limit: there is room for {}", judge::MACHINES_MAX);
        }
        let view = {
            let mut fanout = ingest.live().fanout();
            for (stream, channels, _) in &found {
                fanout.tap.want(stream.id, stream.clock == Clock::Source, channels, false);
            }
            ingest.store().view()
        };
        for (stream, channels, before) in found {
            let next = view.next_row(stream.id);
            let from = work.seen.insert(stream.id, next).unwrap_or(if at_start { next } else { 0 });
            if from >= next {
                continue;
            }
            // What came before anybody asked for it.
            let new = channels[before..].to_vec();
            let rows = from.max(next.saturating_sub(CATCH_UP_ROWS))..next;
            for batch in view.scan(Scan { rows, ..Scan::all(stream.id, new.clone()) }) {
                match batch {
                    Ok(batch) => replay::sightings(&batch, &new).for_each(|frame| self.hold(work, frame, now)),
                    Err(error) => {
                        tracing::error!(%error, "rows of {} were not judged", stream.key);
                        break;
                    }
                }
            }
        }
    }

    /// Judges all that is held, and goes on by the clock, which was set by `by_ns`.
    fn leap(&self, work: &mut Work, by_ns: i64) {
        while let Some(frame) = work.order.pop() {
            self.counters.judged.fetch_add(1, Relaxed);
            work.judge.frame(&frame);
        }
        work.order = Order::default();
        work.judge.leap(by_ns);
        (work.told_at, work.swept_at) = (i64::MIN, i64::MIN);
    }

    /// Puts a frame where its turn is, and notes one whose turn is over.
    fn hold(&self, work: &mut Work, mut frame: Sighting, now: i64) {
        if frame.receive_time.saturating_sub(now) > LEAP_NS {
            // By a clock that was ahead and has been set back since.
            work.late.extend(frame.row.map(|row| (frame.stream, row, Some(now))));
            frame.time = if frame.time == frame.receive_time { now } else { frame.time };
            frame.receive_time = now;
        }
        let turn = work.order.turn(frame.receive_time);
        if turn > frame.receive_time {
            self.counters.late.fetch_add(1, Relaxed);
            work.not_told.0 += 1;
            work.late.extend(frame.row.map(|row| (frame.stream, row, Some(turn))));
            frame.receive_time = turn;
        }
        work.order.push(turn, frame.stream, frame.row, frame);
    }

    /// Judges what came until `align_ns` ago.
    fn turn(&self, work: &mut Work, ingest: &Ingest, ledger: &Ledger, (now, steady): (i64, Duration), align_ns: i64) {
        if let Some(by_ns) = work.clock.look((now, steady)) {
            self.leap(work, by_ns);
        }
        if work.reopenings != ingest.reopenings() {
            let waiting = std::mem::take(&mut work.waiting);
            let clock = std::mem::take(&mut work.clock);
            *work = Work { waiting, clock, ..self.begin(ingest, now) };
        }
        self.adopt(work, ingest, now);
        let (seen, lost) = ingest.live().fanout().tap.take();
        self.counters.unjudged.fetch_add(lost.len() as u64, Relaxed);
        work.not_told.1 += lost.len() as u64;
        work.late.extend(lost.into_iter().filter_map(|(stream, row)| Some((stream, row?, None))));
        seen.into_iter().for_each(|frame| self.hold(work, frame, now));
        let watermark = now.saturating_sub(align_ns);
        while let Some(frame) = work.order.pop_before(watermark) {
            self.counters.judged.fetch_add(1, Relaxed);
            work.judge.frame(&frame);
        }
        let steps: Vec<Step> = work.judge.pass(watermark).into_iter().map(Step::of).collect();
        if !steps.is_empty() {
            let mut book = self.book.lock();
            for step in &steps {
                let taken = book.take(step);
                self.notify(ingest, &book, step, taken);
            }
        }
        work.waiting.extend(steps.into_iter().map(|step| (self.next_number.fetch_add(1, Relaxed), step)));
        self.record(work, ingest);
        if now.saturating_sub(work.swept_at) >= SWEEP_EACH_NS {
            work.swept_at = now;
            self.book.lock().pass(now);
        }
        Self::tell_late(work, ingest, ledger, now);
    }

    fn record(&self, work: &mut Work, ingest: &Ingest) {
        if work.waiting.is_empty() || ingest.refusal().is_some() {
            let over = work.waiting.len().saturating_sub(WAITING_MAX);
            if over > 0 {
                self.counters.unrecorded.fetch_add(over as u64, Relaxed);
                work.waiting.drain(..over);
            }
            return;
        }
        match history::record(ingest, &work.waiting) {
            Ok(_) => work.waiting.clear(),
            Err(Reject::Refused(_)) => {}
            Err(error) => {
                tracing::error!(%error, "{} steps of alarms cannot be recorded", work.waiting.len());
                self.counters.unrecorded.fetch_add(work.waiting.len() as u64, Relaxed);
                work.waiting.clear();
            }
        }
    }

    /// Records which frames came late, and says so.
    fn tell_late(work: &mut Work, ingest: &Ingest, ledger: &Ledger, now: i64) {
        if !work.late.is_empty() && ingest.refusal().is_none() {
            if let Err(error) = history::record_late(ingest, &work.late, None, now) {
                tracing::warn!("{} rows are not in strongback.late: {error}", work.late.len());
            }
            work.late.clear();
        }
        work.late.truncate(WAITING_MAX);
        if work.not_told == (0, 0) || now.saturating_sub(work.told_at) < TELL_EACH_NS {
            return;
        }
        let (late, unjudged) = std::mem::take(&mut work.not_told);
        work.told_at = now;
        let align = ALIGN_NS / 1_000_000;
        let text = format!(
            "frames that reached the limits later than {align} ms after their reception: {late}; not judged at all: \
             {unjudged}; this machine is too busy"
        );
        let level = if unjudged > 0 { "warning" } else { "info" };
        let event = EventRow {
            time_ns: now,
            level: level.to_owned(),
            source: "limits".to_owned(),
            text,
            origin: EventOrigin::Server,
        };
        ledger.record_or_say(ingest, &event);
    }

    /// Tells screens, log and webhooks of a step.
    fn notify(&self, ingest: &Ingest, book: &Book, step: &Step, taken: Taken) {
        let alarm = book.get(&step.rule, &step.channel);
        if taken.is_heard {
            tracing::warn!(limit = &*step.rule, "{step}");
        } else {
            tracing::info!(limit = &*step.rule, shelved = taken.is_shelved, "{step}");
        }
        // What people say of a shelved alarm is no noise.
        if !taken.is_shelved || !matches!(step.kind, StepKind::Level { .. }) {
            self.webhooks.offer(step, taken.worst, alarm);
        }
        let message = json!({
            "type": "alarm",
            "limit": step.rule,
            "channel": step.channel,
            "step": step.kind.name(),
            "time": step.time.to_string(),
            "heard": taken.is_heard,
            "alarm": alarm,
        });
        ingest.live().notify(message.to_string());
    }
}

#[cfg(test)]
mod tests {
    use strongback_sources::Sink;
    use strongback_store::{
        ChannelSpec, ChannelType, FrameBatch, FrameHead, StoreOptions, StreamKey, StreamSpec, Value,
    };

    use super::rule::tests::all;
    use super::*;
    use crate::live::Live;

    const MS: i64 = 1_000_000;
    const S: i64 = 1_000 * MS;
    const T0: i64 = 1_780_000_000 * S;

    /// A server's limits over one channel, and its two clocks.
    struct Rig {
        limits: Limits,
        work: Work,
        ingest: Arc<Ingest>,
        ledger: Ledger,
        steady: i64,
        off: i64,
        _folder: tempfile::TempDir,
    }

    impl Rig {
        fn new() -> Rig {
            let text = r#"
                [[limit]]
                name = "high"
                channels = ["a.x"]
                critical = { high = 10 }
                [[limit]]
                name = "persists"
                channels = ["a.x"]
                warning = { high = 10 }
                persist_ms = 500
                [[limit]]
                name = "stale"
                channels = ["a.x"]
                stale_ms = 1000
            "#;
            let folder = tempfile::tempdir().expect("a folder");
            let live = Arc::new(Live::default());
            let ingest = Ingest::open(folder.path().to_owned(), StoreOptions::default(), Vec::new(), live);
            let ingest = Arc::new(ingest.expect("a store"));
            let webhooks = Webhooks::new(Vec::new(), 1, 1).expect("none");
            let limits = Limits::new(all(text).to_vec(), webhooks);
            let work = limits.begin(&ingest, T0);
            Rig { limits, work, ingest, ledger: Ledger::default(), steady: 0, off: 0, _folder: folder }
        }

        fn now(&self) -> i64 {
            T0 + self.steady + self.off
        }

        /// Sends a value each 20 ms for so long, or none, and looks as the server does.
        fn pass(&mut self, span: i64, value: Option<f64>) {
            let spec = StreamSpec {
                key: StreamKey::new("a", []),
                source: "test".to_owned(),
                clock: Clock::Source,
                expected_period_ns: None,
                sequence_modulus: None,
                channels: vec![ChannelSpec::new("x", ChannelType::F64)],
            };
            let (stream, channels) = self.ingest.resolve(&spec).expect("a stream");
            for turn in 0..span / (10 * MS) {
                if let Some(value) = value.filter(|_| turn % 2 == 0) {
                    let mut batch = FrameBatch::new();
                    let receive_time = self.now();
                    batch.begin(FrameHead { stream: stream.id, receive_time, source_time: None, sequence: None });
                    batch.push(channels[0], Value::F64(value));
                    batch.end();
                    let _ = self.ingest.accept(&batch);
                }
                self.steady += 10 * MS;
                let clocks = (self.now(), Duration::from_nanos(self.steady.unsigned_abs()));
                self.limits.turn(&mut self.work, &self.ingest, &self.ledger, clocks, ALIGN_NS);
            }
        }

        /// Limits whose alarm is raised.
        fn alarms(&self) -> Vec<String> {
            let raised = self.limits.alarms().into_iter().filter(|alarm| alarm.state == "raised");
            let name = |alarm| json!(alarm)["limit"].as_str().unwrap_or_default().to_owned();
            let mut names: Vec<String> = raised.map(name).collect();
            names.sort_unstable();
            names
        }
    }

    #[test]
    fn alarms_are_raised_and_cleared_whenever_the_clock_is_set() {
        for by in [-7_200 * S, 7_200 * S, -36_500 * 86_400 * S, -300 * MS] {
            let mut rig = Rig::new();
            rig.pass(S, Some(1.0));
            assert_eq!(rig.alarms(), [""; 0]);
            // Set once, and for the next round back again; the last frames before are stamped by the clock as it was.
            for off in [by, 0] {
                rig.off = off;
                rig.pass(S, Some(1.0));
                assert_eq!(rig.alarms(), [""; 0], "{by} {off}");
                rig.pass(2 * S, Some(99.0));
                assert_eq!(rig.alarms(), ["high", "persists"], "{by} {off}");
                assert!(rig.work.order.len() < 100, "{} frames are held", rig.work.order.len());
                rig.pass(2 * S, None);
                assert_eq!(rig.alarms(), ["high", "persists", "stale"], "{by} {off}");
            }
            assert_eq!(rig.limits.counters.unjudged.load(Relaxed), 0);
        }
    }
}
