//! Limits and alarms: detection of values that are too low, too high, wrong or too old, and notification of people.
//!
//! ```text
//! Fanout::publish ─> tap: readings of the channels under limits        one lookup per frame
//! each 10 ms      ─> order: by reception, held back by 20 ms or more   on its own thread, here
//!                 ─> judge ─> machine: changes of level                pure; over the past as well (past)
//!                 ─> book: raised, acknowledged, cleared, shelved ─> strongback.alarms, screens, log, webhooks
//! ```
//!
//! A limit judges all received frames, stored or not: a failed disk silences no alarm.

pub mod book;
mod counters;
pub mod history;
pub mod judge;
pub mod machine;
pub mod past;
pub mod rate;
pub mod rule;
mod start;
mod steps;
mod unmatched;
pub mod words;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use serde_json::json;
use strongback_store::{Catalog, Clock, Reject, Scan, ScanError, Store, StreamId};
use tokio::sync::watch;

use crate::alarms::webhook::Webhooks;
use crate::ingest::{Ingest, Ticket};
use crate::process::clock;
use crate::process::clock::{LEAP_NS, Leaps};
use crate::reception::order::Order;
use crate::reception::{replay, turns};
use crate::sources::ledger::Ledger;

pub use counters::LimitCounters;

use book::{ActError, Alarm, AlarmList, AlarmStep, BothClocks, StepKind, StepTaken};
use judge::{Judge, LimitFrame, Verdict};
use rule::Rule;
use steps::PendingSteps;
use unmatched::Unmatched;

/// Min time for which frames are held back, so that frames from different paths are judged in the order of reception.
pub const ALIGN_NS: i64 = 20_000_000;
/// Time for which the last sample of a packet is held back at least. Those before it were received earlier.
const AFTER_PACKET_NS: i64 = 10_000_000;
/// Max rows of a stream that are read because they arrived before its limits were known.
const CATCH_UP_ROWS: u64 = 65_536;
/// Max late frames pending while the store refuses them.
const LATE_MAX: usize = 10_000;
/// Time between two events that report late frames: if some were not judged, and if all were.
const TELL_EACH_NS: i64 = 60_000_000_000;
const TELL_LATE_EACH_NS: i64 = 3_600_000_000_000;
/// Time between two marks of what was judged: while values arrive, and while none do.
const MARK_EACH_NS: i64 = 1_000_000_000;
const MARK_IDLE_NS: i64 = 60_000_000_000;
/// Interval of checks for shelves whose time is over.
const SWEEP_EACH_NS: i64 = 1_000_000_000;

/// Limits and alarms of a server.
#[derive(Debug)]
pub struct Limits {
    rules: Arc<[Rule]>,
    /// Time for which frames are held back.
    align_ns: i64,
    book: Mutex<AlarmList>,
    /// Steps that are not durable yet. Locked after the book.
    steps: Mutex<PendingSteps>,
    /// State in which an earlier opening of the store left off.
    left: Mutex<Option<start::LeftOff>>,
    /// Webhooks that receive alarms.
    pub webhooks: Webhooks,
    /// Counters.
    pub counters: LimitCounters,
}

/// Reason why an action on an alarm failed.
#[derive(Debug, thiserror::Error)]
pub enum ActFailure {
    /// Action that is not possible.
    #[error(transparent)]
    Act(#[from] ActError),
    /// Refusal by the store.
    #[error(transparent)]
    Refused(#[from] Reject),
}

/// State of the limits' thread.
#[derive(Debug)]
struct LimitThread {
    judge: Judge,
    order: Order<LimitFrame>,
    clock: Leaps,
    /// Catalog that was adopted.
    catalog: Option<Arc<Catalog>>,
    /// Number of reopenings of the store when its numbers were read, and the time since then.
    reopenings: u64,
    since: i64,
    /// Whether the streams present at the start were adopted.
    is_started: bool,
    /// Row of each stream up to which frames were seen when its limits were last adopted.
    seen: HashMap<StreamId, u64>,
    /// Rows with a turn other than their reception, not recorded yet.
    late: Vec<history::Late>,
    /// Numbers of late and of unjudged frames since the last report.
    not_told: (u64, u64),
    told_at: i64,
    swept_at: i64,
    unmatched: Unmatched,
    /// Time of the last mark, and the number of frames judged by then.
    marked: (i64, u64),
}

impl Limits {
    /// Creates limits with these rules. `packet_span_ns` is the longest time between the first and the last sample of a
    /// packet.
    pub fn new(rules: Vec<Rule>, webhooks: Webhooks, packet_span_ns: i64) -> Self {
        Limits {
            rules: rules.into(),
            align_ns: ALIGN_NS.max(packet_span_ns.saturating_add(AFTER_PACKET_NS)),
            book: Mutex::default(),
            steps: Mutex::default(),
            left: Mutex::default(),
            webhooks,
            counters: LimitCounters::default(),
        }
    }

    /// Returns the rules.
    pub fn rules(&self) -> &Arc<[Rule]> {
        &self.rules
    }

    /// Loads the alarms from the rows of `strongback.alarms`.
    ///
    /// # Errors
    /// Returns an error if a scan ends early; what was read until then is kept.
    pub fn load(&self, store: &Store) -> Result<(), ScanError> {
        self.load_at(store, clock::both())
    }

    fn load_at(&self, store: &Store, clocks: BothClocks) -> Result<(), ScanError> {
        let mut book = self.book.lock();
        let view = store.view();
        let mut left = history::mark(&view).map(|mark| mark.map(start::LeftOff::at)).unwrap_or_else(|error| {
            tracing::error!(%error, "where limits left off cannot be read");
            None
        });
        // Steps reported before are not reported again.
        let next = history::steps(&view, |step| {
            book.take(step);
            left.iter_mut().for_each(|left| left.note(step));
        });
        book.go_on(clocks);
        *self.left.lock() = left;
        self.steps.lock().number_from(next?);
        Ok(())
    }

    /// Returns the alarms that are not over, worst first.
    pub fn alarms(&self) -> Vec<Alarm> {
        self.book.lock().list()
    }

    /// Acts on an alarm: applies and appends the step that `act` creates. Wait for the ticket before confirming it.
    ///
    /// # Errors
    /// Returns an error if the action is not possible, or the store refuses it.
    pub fn act(
        &self,
        ingest: &Ingest,
        act: impl FnOnce(&AlarmList, i64) -> Result<AlarmStep, ActError>,
    ) -> Result<Ticket, ActFailure> {
        self.act_at(ingest, clock::both(), act)
    }

    fn act_at(
        &self,
        ingest: &Ingest,
        clocks: BothClocks,
        act: impl FnOnce(&AlarmList, i64) -> Result<AlarmStep, ActError>,
    ) -> Result<Ticket, ActFailure> {
        let mut book = self.book.lock();
        let step = act(&book, clocks.0)?;
        // The steps that it refers to must come before it in stored data, too.
        let mut steps = self.steps.lock();
        self.record_steps(&mut steps, ingest, None)?;
        let ticket = steps.record_one(ingest, &step)?;
        drop(steps);
        let taken = book.take_at(&step, clocks);
        self.notify(ingest, &book, &step, taken);
        Ok(ticket)
    }

    /// Starts the thread of the limits. It judges what was recorded but not judged yet, and everything appended from
    /// now on. It ends with `stopping`, which must be set only once nothing is appended any more.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(
        self: Arc<Self>,
        ingest: Arc<Ingest>,
        ledger: Arc<Ledger>,
        stopping: watch::Receiver<bool>,
    ) -> std::io::Result<JoinHandle<()>> {
        let mut work = self.begin(&ingest, &clock::both);
        turns::start("limits", stopping, move |stop| {
            self.turn(&mut work, &ingest, &ledger, &clock::both, if stop { 0 } else { self.align_ns });
        })
    }

    /// Adopts all existing streams, and continues where limits left off.
    fn begin(&self, ingest: &Ingest, clocks: &dyn Fn() -> BothClocks) -> LimitThread {
        let now = clocks().0;
        let mut work = LimitThread {
            judge: Judge::new(self.rules.clone()),
            order: Order::default(),
            clock: Leaps::default(),
            catalog: None,
            reopenings: ingest.reopenings(),
            since: now,
            is_started: false,
            seen: HashMap::new(),
            late: Vec::new(),
            not_told: (0, 0),
            told_at: i64::MIN,
            swept_at: i64::MIN,
            unmatched: Unmatched::new(now),
            marked: (i64::MIN, 0),
        };
        self.adopt(&mut work, ingest, clocks);
        work.is_started = true;
        work
    }

    /// Handles a reopened store: judges earlier frames by their old numbers, and keeps the state of channels under
    /// the new ones.
    fn reopened(&self, work: &mut LimitThread, ingest: &Ingest, clocks: &dyn Fn() -> BothClocks) {
        work.reopenings = ingest.reopenings();
        // Nothing was tapped since the store was replaced.
        let (seen, lost, nameless) = ingest.live().fanout().tap.take();
        let now = clocks().0;
        self.count_unjudged(work, lost.len() as u64 + nameless);
        seen.into_iter().for_each(|frame| self.hold(work, frame, now));
        self.judge_all(work);
        // These rows may belong to other frames now.
        work.late.clear();
        work.judge.forget_numbers();
        (work.catalog, work.since) = (None, now);
        work.seen.clear();
        self.adopt(work, ingest, clocks);
    }

    fn count_unjudged(&self, work: &mut LimitThread, frames: u64) {
        self.counters.unjudged.fetch_add(frames, Relaxed);
        work.not_told.1 += frames;
    }

    /// Judges all frames held back.
    fn judge_all(&self, work: &mut LimitThread) {
        while let Some(frame) = work.order.pop() {
            self.counters.judged.fetch_add(1, Relaxed);
            work.judge.frame(&frame);
        }
        work.order = Order::default();
    }

    /// Adopts new streams and channels.
    fn adopt(&self, work: &mut LimitThread, ingest: &Ingest, clocks: &dyn Fn() -> BothClocks) {
        let store = ingest.store();
        if work.catalog.as_ref().is_some_and(|looked| looked.version == store.catalog_version()) {
            return;
        }
        let catalog = store.catalog();
        let looked = work.catalog.replace(catalog.clone()).unwrap_or_default();
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
        // Read after the view, which has no row that was received later.
        let clocks = clocks();
        if !work.is_started {
            return self.go_on(work, ingest, (&view, &found), clocks);
        }
        for (stream, channels, before) in found {
            let next = view.next_row(stream.id);
            // All rows since the store was opened, unless they were tapped.
            let from = work.seen.insert(stream.id, next).unwrap_or_else(|| store.opened_row(stream.id));
            if from >= next {
                continue;
            }
            // Rows that arrived before they were tapped.
            let new = channels[before..].to_vec();
            let rows = from.max(next.saturating_sub(CATCH_UP_ROWS))..next;
            self.count_unjudged(work, rows.start - from);
            for batch in view.scan(Scan { rows, ..Scan::all(stream.id, new.clone()) }) {
                match batch {
                    Ok(batch) => replay::sightings(&batch, &new).for_each(|frame| self.hold(work, frame, clocks.0)),
                    Err(error) => {
                        tracing::error!(%error, "rows of {} were not judged", stream.key);
                        break;
                    }
                }
            }
        }
    }

    /// Judges all frames held back, and continues by the clock, which was set by `by_ns`.
    fn leap(&self, work: &mut LimitThread, by_ns: i64) {
        self.judge_all(work);
        work.judge.leap(by_ns);
        (work.told_at, work.swept_at) = (i64::MIN, i64::MIN);
    }

    /// Queues a frame at its turn, and notes it as late if its turn is over.
    fn hold(&self, work: &mut LimitThread, mut frame: LimitFrame, now: i64) {
        if frame.receive_time.saturating_sub(now) > LEAP_NS {
            // Stamped by a clock that was ahead and has since been set back.
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

    /// Judges frames received until `align_ns` ago.
    fn turn(
        &self,
        work: &mut LimitThread,
        ingest: &Ingest,
        ledger: &Ledger,
        read_clocks: &dyn Fn() -> BothClocks,
        align_ns: i64,
    ) {
        let clocks = read_clocks();
        if let Some(by_ns) = work.clock.look(clocks) {
            self.leap(work, by_ns);
        }
        if work.reopenings != ingest.reopenings() {
            self.reopened(work, ingest, read_clocks);
        }
        self.adopt(work, ingest, read_clocks);
        let (seen, lost, nameless) = ingest.live().fanout().tap.take();
        // Read after the tap, which has no frame that was received later.
        let now = read_clocks().0;
        self.count_unjudged(work, lost.len() as u64 + nameless);
        work.late.extend(lost.into_iter().filter_map(|(stream, row)| Some((stream, row?, None))));
        seen.into_iter().for_each(|frame| self.hold(work, frame, now));
        let watermark = clocks.0.saturating_sub(align_ns);
        while let Some(frame) = work.order.pop_before(watermark) {
            self.counters.judged.fetch_add(1, Relaxed);
            work.judge.frame(&frame);
        }
        let verdicts = work.judge.pass(watermark);
        self.tell(ingest, verdicts, clocks);
        self.record(work, ingest, (now, watermark), align_ns == 0);
        if now.saturating_sub(work.swept_at) >= SWEEP_EACH_NS {
            work.swept_at = now;
            self.sweep(ingest, clocks);
            let unmatched = work.unmatched.look(&self.rules, work.catalog.as_deref(), now);
            unmatched.iter().for_each(|event| ledger.record_or_say(ingest, event));
        }
        self.tell_late(work, ingest, ledger, now);
    }

    /// Ends shelves whose time is over. Screens know the end by the wall clock, and are told if it ends earlier than
    /// that.
    fn sweep(&self, ingest: &Ingest, clocks: BothClocks) {
        let mut book = self.book.lock();
        for (channel, rule) in book.pass(clocks) {
            let alarm = book.get(&rule, &channel);
            Self::show(ingest, (&rule, &channel, "unshelved"), clocks.0, false, alarm);
        }
    }

    /// Applies changes to the alarm list, and reports them.
    fn tell(&self, ingest: &Ingest, verdicts: Vec<Verdict>, clocks: BothClocks) {
        if verdicts.is_empty() {
            return;
        }
        let mut book = self.book.lock();
        let mut steps = self.steps.lock();
        for step in verdicts.into_iter().map(AlarmStep::of) {
            let taken = book.take_at(&step, clocks);
            self.notify(ingest, &book, &step, taken);
            steps.push(step);
        }
    }

    /// Records the pending steps and the mark up to which everything was judged; without steps, the mark is recorded
    /// at intervals. Frames after the mark are judged at the next start.
    fn record(&self, work: &mut LimitThread, ingest: &Ingest, (now, watermark): (i64, i64), is_last: bool) {
        let judged = self.counters.judged.load(Relaxed);
        let each = if judged == work.marked.1 { MARK_IDLE_NS } else { MARK_EACH_NS };
        let is_due = is_last || now.saturating_sub(work.marked.0) >= each;
        let mut steps = self.steps.lock();
        steps.look(ingest);
        if steps.are_appended() && !is_due {
            return;
        }
        if ingest.refusal().is_some() {
            self.counters.unrecorded.fetch_add(steps.drop_excess() as u64, Relaxed);
            return;
        }
        let mark = history::Mark { judged_until: watermark, since: work.since };
        if self.record_steps(&mut steps, ingest, Some(mark)).is_ok() {
            work.marked = (now, judged);
        }
    }

    /// Records the pending steps; counts those that the store refuses for good.
    ///
    /// # Errors
    /// Returns an error if the store refuses them for now; they stay pending.
    fn record_steps(
        &self,
        steps: &mut PendingSteps,
        ingest: &Ingest,
        mark: Option<history::Mark>,
    ) -> Result<(), Reject> {
        let refused = steps.record(ingest, mark)?;
        self.counters.unrecorded.fetch_add(refused as u64, Relaxed);
        Ok(())
    }

    /// Records which frames were late, and reports it.
    fn tell_late(&self, work: &mut LimitThread, ingest: &Ingest, ledger: &Ledger, now: i64) {
        if !work.late.is_empty() && ingest.refusal().is_none() {
            if let Err(error) = history::record_late(ingest, &work.late, None, now) {
                tracing::warn!("{} rows are not in strongback.late: {error}", work.late.len());
            }
            work.late.clear();
        }
        work.late.truncate(LATE_MAX);
        let tell_each_ns = if work.not_told.1 > 0 { TELL_EACH_NS } else { TELL_LATE_EACH_NS };
        if work.not_told == (0, 0) || now.saturating_sub(work.told_at) < tell_each_ns {
            return;
        }
        let (late, unjudged) = std::mem::take(&mut work.not_told);
        work.told_at = now;
        let align = self.align_ns / 1_000_000;
        let text = format!(
            "frames that reached the limits later than {align} ms after their reception: {late}; not judged at all: \
             {unjudged}; this machine is too busy"
        );
        let level = if unjudged > 0 { "warning" } else { "info" };
        ledger.record_or_say(ingest, &words::event(now, level, text));
    }

    /// Reports a step to screens, log and webhooks.
    fn notify(&self, ingest: &Ingest, book: &AlarmList, step: &AlarmStep, taken: StepTaken) {
        let alarm = book.get(&step.rule, &step.channel);
        if taken.is_heard {
            tracing::warn!(limit = &*step.rule, "{step}");
        } else {
            tracing::info!(limit = &*step.rule, shelved = taken.is_shelved, "{step}");
        }
        // Actions of people on a shelved alarm are sent all the same.
        if !taken.is_shelved || !matches!(step.kind, StepKind::Level { .. }) {
            self.webhooks.offer(step, taken.worst, alarm);
        }
        let of = (&*step.rule, &*step.channel, step.kind.name());
        Self::show(ingest, of, step.time, taken.is_heard, alarm);
    }

    /// Reports a step to screens: its limit, channel and name, its time, and the alarm after it.
    fn show(
        ingest: &Ingest,
        (rule, channel, step): (&str, &str, &str),
        time: i64,
        is_heard: bool,
        alarm: Option<&Alarm>,
    ) {
        let message = json!({
            "type": "alarm",
            "limit": rule,
            "channel": channel,
            "step": step,
            "time": time.to_string(),
            "heard": is_heard,
            "alarm": alarm,
        });
        ingest.live().notify(message.to_string());
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use strongback_sources::Sink;
    use strongback_store::{ChannelSpec, FaultDisk, FrameBatch, FrameHead, StoreOptions, StreamKey, StreamSpec, Value};

    use super::rule::tests::all;
    use super::*;
    use crate::ingest::opening::Opening;
    use crate::live::Live;

    pub(crate) const MS: i64 = 1_000_000;
    pub(crate) const S: i64 = 1_000 * MS;
    const T0: i64 = 1_780_000_000 * S;

    pub(crate) const RULES: &str = r#"
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
        [[limit]]
        name = "high b"
        channels = ["b.x"]
        critical = { high = 10 }
        [[limit]]
        name = "stale b"
        channels = ["b.x"]
        stale_ms = 1000
    "#;

    /// Limits of a server over a few channels, with its two clocks.
    pub(crate) struct Rig {
        pub(crate) limits: Limits,
        work: LimitThread,
        pub(crate) ingest: Arc<Ingest>,
        ledger: Ledger,
        pub(crate) steady: i64,
        off: i64,
        pub(crate) disk: FaultDisk,
        pub(crate) text: &'static str,
    }

    impl Rig {
        pub(crate) fn new() -> Rig {
            Rig::on(RULES, FaultDisk::new(1), 0)
        }

        pub(crate) fn on(text: &'static str, disk: FaultDisk, steady: i64) -> Rig {
            Rig::at(text, disk, (steady, 0))
        }

        /// Creates a rig with a steady clock, and a wall clock that differs by `off`.
        fn at(text: &'static str, disk: FaultDisk, (steady, off): (i64, i64)) -> Rig {
            let (live, on) = (Arc::new(Live::default()), disk.clone());
            let options = || StoreOptions { log_bytes: 16 << 20, ..StoreOptions::default() };
            let mut opening = Opening::new(move |now| on.open_store(options(), now));
            opening.reopen_waits = vec![Duration::ZERO; 3];
            let ingest = Ingest::open_by(opening, PathBuf::from("disk"), Vec::new(), live);
            let ingest = Arc::new(ingest.expect("a store"));
            let webhooks = Webhooks::new(Vec::new(), 1, 1).expect("none");
            let limits = Limits::new(all(text).to_vec(), webhooks, 0);
            let clocks = (T0 + steady + off, Duration::from_nanos(steady.unsigned_abs()));
            limits.load_at(&ingest.store(), clocks).expect("alarms");
            let work = limits.begin(&ingest, &|| clocks);
            Rig { limits, work, ingest, ledger: Ledger::default(), steady, off, disk, text }
        }

        pub(crate) fn now(&self) -> i64 {
            T0 + self.steady + self.off
        }

        fn clocks(&self) -> BothClocks {
            (self.now(), Duration::from_nanos(self.steady.unsigned_abs()))
        }

        /// Sends a value of a channel, received now.
        pub(crate) fn send(&self, table: &str, channel: &str, value: Value<'_>) {
            self.send_all(table, channel, [value]);
        }

        /// Sends values of a channel at once.
        pub(crate) fn send_all<'v>(&self, table: &str, channel: &str, values: impl IntoIterator<Item = Value<'v>>) {
            self.send_at(table, channel, (self.now()..).zip(values));
        }

        /// Sends values of a channel, each with the time of its reception.
        fn send_at<'v>(&self, table: &str, channel: &str, values: impl IntoIterator<Item = (i64, Value<'v>)>) {
            let mut values = values.into_iter().peekable();
            let Some(kind) = values.peek().map(|(_, value)| value.channel_type()) else { return };
            let spec = StreamSpec {
                key: StreamKey::new(table, []),
                source: "test".to_owned(),
                clock: Clock::Source,
                expected_period_ns: None,
                sequence_modulus: None,
                channels: vec![ChannelSpec::new(channel, kind)],
            };
            let (stream, channels) = self.ingest.resolve(&spec).expect("a stream");
            let mut batch = FrameBatch::new();
            for (receive_time, value) in values {
                batch.begin(FrameHead { stream: stream.id, receive_time, source_time: None, sequence: None });
                batch.push(channels[0], value);
                batch.end();
            }
            let _ = self.ingest.accept(&batch);
        }

        /// Sends a value every 20 ms for `span`, if one is given, and takes turns as the server does.
        pub(crate) fn pass(&mut self, span: i64, value: Option<f64>) {
            for turn in 0..span / (10 * MS) {
                if let Some(value) = value.filter(|_| turn % 2 == 0) {
                    self.send("a", "x", Value::F64(value));
                }
                self.steady += 10 * MS;
                let clocks = self.clocks();
                let align_ns = self.limits.align_ns;
                self.limits.turn(&mut self.work, &self.ingest, &self.ledger, &|| clocks, align_ns);
            }
        }

        /// Returns the limits with a raised alarm.
        pub(crate) fn alarms(&self) -> Vec<String> {
            let raised = self.limits.alarms().into_iter().filter(|alarm| alarm.state == "raised");
            let name = |alarm| json!(alarm)["limit"].as_str().unwrap_or_default().to_owned();
            let mut names: Vec<String> = raised.map(name).collect();
            names.sort_unstable();
            names
        }

        fn is_shelved(&self) -> bool {
            self.limits.alarms().iter().any(|alarm| !json!(alarm)["shelved"].is_null())
        }
    }

    #[test]
    fn alarms_are_raised_and_cleared_whenever_the_clock_is_set() {
        for by in [-7_200 * S, 7_200 * S, -36_500 * 86_400 * S, -300 * MS] {
            let mut rig = Rig::new();
            rig.pass(S, Some(1.0));
            assert_eq!(rig.alarms(), [""; 0]);
            // The clock is set, and in the next round set back; the last frames before that have stamps of the old
            // clock.
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

    #[test]
    fn who_acknowledges_is_recorded_behind_what_is_acknowledged() {
        let mut rig = Rig::new();
        rig.pass(S, Some(1.0));
        // Judged and reported, but not recorded yet.
        rig.send("a", "x", Value::F64(99.0));
        let now = rig.now();
        let (seen, ..) = rig.ingest.live().fanout().tap.take();
        for frame in seen {
            rig.limits.hold(&mut rig.work, frame, now);
        }
        rig.limits.judge_all(&mut rig.work);
        let verdicts = rig.work.judge.take();
        rig.limits.tell(&rig.ingest, verdicts, rig.clocks());
        assert_eq!(rig.alarms(), ["high"]);
        let known = |book: &AlarmList, now| book.acknowledge(("high", "a.x"), ("Ada", ""), now);
        rig.limits.act(&rig.ingest, known).expect("acknowledged");
        rig.pass(100 * MS, Some(99.0));
        assert!(rig.limits.steps.lock().are_appended());
        let again = Limits::new(all(RULES).to_vec(), Webhooks::new(Vec::new(), 1, 1).expect("none"), 0);
        again.load(&rig.ingest.store()).expect("alarms");
        assert_eq!(again.alarms().iter().map(|alarm| alarm.state).collect::<Vec<_>>(), ["acknowledged"]);
    }

    #[test]
    fn the_samples_of_a_long_packet_are_not_late() {
        let mut rig = Rig::new();
        rig.limits.align_ns = Limits::new(Vec::new(), Webhooks::new(Vec::new(), 1, 1).expect("none"), 99 * MS).align_ns;
        rig.pass(S, Some(1.0));
        rig.steady += 99 * MS;
        // Counted back from the reception of the packet.
        let received = rig.now();
        let values = (0..100).map(|sample| (received - (99 - sample) * MS, Value::F64(1.0)));
        rig.send_at("a", "x", values);
        rig.pass(S, None);
        assert_eq!(rig.limits.counters.late.load(Relaxed), 0);
    }

    /// Creates a rig with an alarm that was just shelved for a minute.
    fn shelved() -> Rig {
        let mut rig = Rig::new();
        rig.pass(S, Some(1.0));
        rig.pass(100 * MS, Some(99.0));
        let shelve = |book: &AlarmList, now| book.shelve(("high", "a.x"), ("Ada", ""), 60 * S, now);
        rig.limits.act_at(&rig.ingest, rig.clocks(), shelve).expect("shelved");
        assert!(rig.is_shelved());
        rig
    }

    #[test]
    fn a_shelf_ends_when_it_has_lasted_as_long_as_was_said_though_the_clock_is_set_back() {
        let mut rig = shelved();
        let mut notices = rig.ingest.live().notices();
        rig.off = -7_200 * S;
        rig.pass(S, None);
        rig.steady += 58 * S;
        rig.pass(500 * MS, None);
        assert!(rig.is_shelved());
        rig.pass(2 * S, None);
        assert!(!rig.is_shelved());
        // Screens, which know the end by the wall clock, are told.
        let told = std::iter::from_fn(|| notices.try_recv().ok());
        let unshelved = told.filter(|notice| notice.as_str().contains(r#""step":"unshelved""#));
        assert_eq!(unshelved.count(), 1);
    }

    #[test]
    fn a_shelf_ends_at_once_when_the_clock_is_set_forward_past_its_end() {
        let mut rig = shelved();
        rig.off = 59 * S;
        rig.pass(500 * MS, None);
        assert!(rig.is_shelved());
        rig.off = 7_200 * S;
        rig.pass(20 * MS, None);
        assert!(!rig.is_shelved());
        // The shelf does not return with the clock.
        rig.off = 0;
        rig.pass(20 * MS, None);
        assert!(!rig.is_shelved());
    }

    #[test]
    fn a_shelf_lasts_no_longer_than_was_said_after_a_start_with_the_clock_behind() {
        for is_set_right in [false, true] {
            let rig = shelved();
            rig.ingest.store().commit(rig.now()).expect("committed");
            // The machine started 5 s ago, with its clock an hour behind.
            let (disk, off) = (rig.disk.after_kill(), rig.steady - 3_605 * S);
            drop(rig);
            let mut rig = Rig::at(RULES, disk, (5 * S, off));
            assert!(rig.is_shelved());
            rig.pass(S, None);
            if is_set_right {
                rig.off += 7_200 * S;
                rig.pass(20 * MS, None);
                assert!(!rig.is_shelved());
                continue;
            }
            rig.steady += 58 * S;
            rig.pass(500 * MS, None);
            assert!(rig.is_shelved());
            rig.pass(2 * S, None);
            assert!(!rig.is_shelved());
        }
    }
}
