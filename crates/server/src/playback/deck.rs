//! The player: the clock of a playback, and the frames that it passes to the viewers. It has no threads or clocks of
//! its own; the caller pumps it and supplies the time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use strongback_store::{ChannelIndex, FramePosition, NextFrame, Scan, ScanError, Store, StreamId, View};

use super::replay::Replay;
use super::{ControlCommand, Refused};
use crate::live::Live;

/// Max time of playing before it checks for other work, nanoseconds.
const TURN_NS: i64 = 50_000_000;
/// Interval at which frames are passed on while playing.
const TICK: Duration = Duration::from_millis(10);
/// Interval of checks while not playing.
const IDLE: Duration = Duration::from_millis(100);
/// Min time for which it is reported to be behind, nanoseconds.
const BEHIND_NS: i64 = 1_000_000_000;
/// Age below which received frames may not all be stored yet, nanoseconds.
pub const FOLLOW_NS: i64 = 1_000_000_000;
/// Age at which a view is replaced, nanoseconds; a view is ended after `max_view_s`.
const VIEW_NS: i64 = 20_000_000_000;
/// Interval at which a playback that follows live data takes a view, nanoseconds.
const FOLLOW_VIEW_NS: i64 = 250_000_000;
/// Max time that a loop waits for clients to take pending updates, nanoseconds.
const LOOP_PATIENCE_NS: i64 = 1_000_000_000;
/// Min time between two loops, nanoseconds.
const LOOP_NS: i64 = 100_000_000;
/// Max read errors that are reported.
const TROUBLES_MAX: usize = 100;
/// Max streams named in reports of late frames; further ones are reported without a name.
const LATE_TOLD_MAX: usize = 100;

/// Current time.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Monotonic clock, nanoseconds.
    pub steady: i64,
    /// Wall clock, nanoseconds since 1970 UTC.
    pub wall: i64,
}

/// Lookup of missing frames in a range: their streams, and the `time` before which they are missing.
pub type Gaps = dyn Fn(&Range<i64>) -> Vec<(StreamId, i64)> + Send;

/// Services of the server that a deck uses.
pub struct DeckHost {
    /// Function that returns the current time.
    pub now: Box<dyn Fn() -> Now + Send>,
    /// Function that returns the current store, which may be replaced after a disk failure.
    pub store: Box<dyn Fn() -> Arc<Store> + Send>,
    /// Function that returns the frames known missing within a range: their streams, and the `time` before which they
    /// are missing.
    pub gaps: Box<Gaps>,
}

/// Extent of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepSpan {
    /// Number of frames left.
    Frames(u64),
    /// End of the step, as `time`.
    Until(i64),
}

/// Clock and reader of a playback.
pub struct Deck {
    machine: DeckHost,
    live: Arc<Live>,
    interval: Range<i64>,
    speed: f64,
    paused: bool,
    looped: bool,
    /// `time` up to which everything was played.
    at: i64,
    /// Position of `at` in the order of frames.
    place: FramePosition,
    /// `time` and steady clock from which the clock runs.
    base: (i64, i64),
    step: Option<StepSpan>,
    behind_until: i64,
    /// Steady clock since which it waits at its end to restart, and when it last restarted.
    turning_since: Option<i64>,
    turned: i64,
    round: u64,
    reader: Option<DeckReader>,
    /// Epoch of the store that was read.
    epoch: Option<u32>,
    /// `time` at which the round began.
    began: i64,
    /// While it follows live data: the row below which all were seen, by stream.
    seen: BTreeMap<StreamId, u64>,
    told: Vec<String>,
    /// Read errors that were reported.
    troubles: BTreeSet<String>,
    /// Streams whose late frames were reported, and one that stands for all further ones.
    late: BTreeSet<StreamId>,
}

/// Reader of the stored frames.
struct DeckReader {
    replay: Replay,
    store: Arc<Store>,
    interest: u64,
    /// Steady clock when its view was taken.
    taken: i64,
}

/// Outcome of playing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlayEnd {
    /// Everything due was played.
    All,
    /// Only as much as possible within a turn was played.
    Part,
}

impl Deck {
    /// Creates a deck at `at` within an interval of `time`, nanoseconds since 1970 UTC.
    pub fn new(machine: DeckHost, other: &Live, interval: Range<i64>, at: i64) -> Deck {
        let at = at.clamp(interval.start, interval.end);
        let place = place_of(&interval, at);
        let base = (at, (machine.now)().steady);
        Deck {
            live: Arc::new(Live::beside(other, place)),
            machine,
            interval,
            speed: 1.0,
            paused: false,
            looped: false,
            at,
            place,
            base,
            step: None,
            behind_until: i64::MIN,
            turning_since: None,
            turned: i64::MIN,
            round: 0,
            reader: None,
            epoch: None,
            began: at,
            seen: BTreeMap::new(),
            told: Vec::new(),
            troubles: BTreeSet::new(),
            late: BTreeSet::new(),
        }
    }

    /// Returns the fan-out of its viewers.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Returns the `time` up to which everything was played, nanoseconds since 1970 UTC.
    pub fn at(&self) -> i64 {
        self.at
    }

    /// Returns the interval of `time`, end exclusive.
    pub fn interval(&self) -> &Range<i64> {
        &self.interval
    }

    /// Returns the speed, whether it is paused, and whether it restarts at the end.
    pub fn mode(&self) -> (f64, bool, bool) {
        (self.speed, self.paused, self.looped)
    }

    /// Returns whether it is stopped at its end.
    pub fn is_ended(&self) -> bool {
        self.at >= self.interval.end && !self.looped
    }

    /// Returns whether reading cannot keep up.
    pub fn is_behind(&self) -> bool {
        (self.machine.now)().steady < self.behind_until
    }

    /// Returns the number of jumps so far.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Returns whether a step is in progress.
    pub fn is_stepping(&self) -> bool {
        self.step.is_some()
    }

    /// Returns the current time.
    pub fn now(&self) -> Now {
        (self.machine.now)()
    }

    /// Takes the warnings for the viewers since the last call.
    pub fn take_told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told)
    }

    /// Executes a command. A step is done when [`Deck::is_stepping`] turns false.
    ///
    /// # Errors
    /// Returns why the command is refused.
    pub fn obey(&mut self, wish: &ControlCommand) -> Result<(), Refused> {
        self.step = None;
        match *wish {
            ControlCommand::Play => {
                self.paused = false;
                self.run_from(self.at);
            }
            ControlCommand::Pause => self.pause(),
            ControlCommand::StepFrames(frames) => {
                self.pause();
                if self.wanted().is_empty() {
                    return Err(Refused::Bad("no viewer has subscribed anything: there is no frame to step to".into()));
                }
                self.step = Some(StepSpan::Frames(frames));
            }
            ControlCommand::StepTime(ns) => {
                self.pause();
                self.step = Some(StepSpan::Until(self.at.saturating_add(ns).min(self.interval.end)));
            }
            ControlCommand::Seek(at) => {
                if !(self.interval.start..=self.interval.end).contains(&at) {
                    let Range { start, end } = self.interval;
                    return Err(Refused::Bad(format!("at is {at}, outside of the interval from {start} to {end}")));
                }
                self.jump(at, false);
            }
            ControlCommand::Speed(speed) => {
                let target = self.target();
                self.run_from(target);
                self.speed = speed;
            }
            ControlCommand::Loop(looped) => {
                let at = self.at;
                self.looped = looped;
                self.run_from(at);
            }
            ControlCommand::Interval(from, to) => {
                let interval = from.unwrap_or(self.interval.start)..to.unwrap_or(self.interval.end);
                super::check_interval(&interval)?;
                // While it waited at its end, its clock was stopped.
                self.run_from(self.target());
                self.interval = interval;
                self.reader = None;
                if !(self.interval.start..=self.interval.end).contains(&self.at) {
                    self.jump(self.interval.start, false);
                }
            }
        }
        self.turning_since = None;
        Ok(())
    }

    fn pause(&mut self) {
        self.paused = true;
        self.behind_until = i64::MIN;
    }

    fn run_from(&mut self, at: i64) {
        self.base = (at, self.now().steady);
    }

    /// Returns the `time` of the clock.
    fn target(&self) -> i64 {
        if self.paused {
            return self.at;
        }
        let passed = self.now().steady.saturating_sub(self.base.1).max(0) as f64 * self.speed;
        // Beyond 2^63 a cast saturates.
        self.base.0.saturating_add(passed as i64).clamp(self.at, self.interval.end.max(self.at))
    }

    /// Jumps to another time; windows never span a jump.
    fn jump(&mut self, at: i64, lost: bool) {
        (self.at, self.began) = (at, at);
        self.place = place_of(&self.interval, at);
        self.reader = None;
        self.turning_since = None;
        self.round = self.live.jump_to(at, self.place, lost).number;
        self.run_from(at);
    }

    /// Plays what is due. Returns the time until the next call.
    pub fn pump(&mut self) -> Duration {
        if let Some(step) = self.step {
            return self.step_on(step);
        }
        if self.paused || self.is_ended() {
            return IDLE;
        }
        if self.at >= self.interval.end {
            return self.turn();
        }
        let target = self.target();
        let due = target.min(self.horizon());
        if due < target {
            // It follows live data, so the clock must not run ahead.
            self.run_from(due.max(self.at));
        }
        if due < self.at {
            return IDLE;
        }
        if self.play_to(due) == PlayEnd::Part {
            let now = self.now().steady;
            (self.base, self.behind_until) = ((self.at, now), now + BEHIND_NS);
            return Duration::ZERO;
        }
        if self.at >= self.interval.end && self.looped { Duration::ZERO } else { TICK }
    }

    /// Plays a step, or a part of it.
    fn step_on(&mut self, step: StepSpan) -> Duration {
        let played = match step {
            StepSpan::Until(at) => self.play_to(at.min(self.horizon())),
            StepSpan::Frames(frames) => self.play_frames(frames),
        };
        if played == PlayEnd::All {
            self.step = None;
            return IDLE;
        }
        Duration::ZERO
    }

    /// Restarts from the end once the viewers have taken what was played.
    fn turn(&mut self) -> Duration {
        let now = self.now().steady;
        let since = *self.turning_since.get_or_insert(now);
        let subscriptions = self.live.fanout().subscriptions().to_vec();
        let waits = subscriptions.iter().filter(|subscription| subscription.hurry()).count() > 0;
        if now.saturating_sub(self.turned) < LOOP_NS || (waits && now - since < LOOP_PATIENCE_NS) {
            return TICK;
        }
        self.turned = now;
        self.jump(self.interval.start, true);
        TICK
    }

    /// Returns the `time` up to which all frames are stored.
    fn horizon(&self) -> i64 {
        self.now().wall.saturating_sub(FOLLOW_NS)
    }

    /// Plays frames up to and including a `time`, within the interval.
    fn play_to(&mut self, due: i64) -> PlayEnd {
        let last = self.reach(due);
        let until = self.now().steady + TURN_NS;
        loop {
            match self.next(last) {
                NextFrame::None if !self.pass_to(last) => {}
                NextFrame::None => {
                    self.stand_behind(last);
                    return PlayEnd::All;
                }
                NextFrame::Unsure => {}
                NextFrame::At(place) => self.play_one(place),
            }
            if self.now().steady >= until {
                self.at = self.at.max(self.place.time);
                return PlayEnd::Part;
            }
        }
    }

    /// Plays a number of frames; those of one stream and time count as one.
    fn play_frames(&mut self, frames: u64) -> PlayEnd {
        let last = self.reach(self.horizon());
        let until = self.now().steady + TURN_NS;
        let mut left = frames;
        while left > 0 {
            match self.next(last) {
                NextFrame::None if !self.pass_to(last) => {}
                NextFrame::None => {
                    self.stand_behind(last);
                    left = 0;
                }
                NextFrame::Unsure => {}
                NextFrame::At(place) => {
                    let before = self.place;
                    self.play_one(place);
                    left -= u64::from(self.place != before);
                    self.at = self.at.max(self.place.time);
                }
            }
            if self.now().steady >= until && left > 0 {
                self.step = Some(StepSpan::Frames(left));
                return PlayEnd::Part;
            }
        }
        PlayEnd::All
    }

    /// Returns how far it can play towards `due` with the current view; replaces the view now and then to see more.
    fn reach(&mut self, due: i64) -> i64 {
        let due = due.min(self.interval.end - 1);
        let age = self.now().steady;
        if self.reader.as_ref().is_some_and(|reader| due >= reader.replay.end() && age - reader.taken >= FOLLOW_VIEW_NS)
        {
            self.reader = None;
        }
        due.min(self.reader().replay.end() - 1)
    }

    /// Returns a valid reader, creating one if needed.
    fn reader(&mut self) -> &mut DeckReader {
        let now = self.now();
        let store = (self.machine.store)();
        let is_fit = |reader: &DeckReader| Arc::ptr_eq(&reader.store, &store) && now.steady - reader.taken < VIEW_NS;
        let reader = match self.reader.take().filter(is_fit) {
            Some(reader) => reader,
            None => self.read_anew(store, now),
        };
        self.reader.insert(reader)
    }

    /// Finds the next frame up to and including a `time`.
    fn next(&mut self, last: i64) -> NextFrame {
        self.reader();
        let Some(reader) = &mut self.reader else { return NextFrame::Unsure };
        let next = reader.replay.peek(last);
        let troubles = reader.replay.take_troubles();
        self.tell(troubles);
        next.unwrap_or_else(|error| {
            if !matches!(error, ScanError::ViewTooOld) {
                self.told.push(format!("playback cannot read: {error}"));
            }
            self.reader = None;
            NextFrame::Unsure
        })
    }

    fn read_anew(&mut self, store: Arc<Store>, now: Now) -> DeckReader {
        let view = store.view();
        let epoch = store.epoch();
        let interest = {
            let mut fanout = self.live.fanout();
            if self.epoch.is_some_and(|before| before != epoch) {
                // Some rows were shown but did not become durable before the store was reopened.
                Live::rewind(&mut fanout, epoch, |stream| view.next_row(stream), |_| 0);
                self.late.clear();
            }
            fanout.interest()
        };
        self.epoch = Some(epoch);
        let end = self.interval.end.min(now.wall.saturating_sub(FOLLOW_NS).saturating_add(1));
        let wanted = self.wanted();
        if end < self.interval.end || !self.seen.is_empty() {
            self.note_late(&view, &wanted);
        }
        let mut replay = Replay::new(&view, wanted, self.place, end);
        replay.note_gaps((self.machine.gaps)(&(self.place.time..end)));
        DeckReader { replay, store, interest, taken: now.steady }
    }

    /// Moves the place behind `last`, as no frame is left up to it. Returns false if other channels are wanted by
    /// now, which may have such frames.
    fn pass_to(&mut self, last: i64) -> bool {
        let mut fanout = self.live.fanout();
        if self.reader.as_ref().is_none_or(|reader| reader.interest != fanout.interest()) {
            self.reader = None;
            return false;
        }
        if last > self.place.time {
            self.place = FramePosition::after(last);
            fanout.stand_at(self.place);
        }
        true
    }

    /// Notes that everything up to and including a `time` was played.
    fn stand_behind(&mut self, last: i64) {
        self.at = self.at.max(if last == self.interval.end - 1 { self.interval.end } else { last });
    }

    /// Returns the streams and channels that viewers have subscribed.
    fn wanted(&self) -> Vec<(StreamId, Vec<ChannelIndex>)> {
        let subscriptions = self.live.fanout().subscriptions().to_vec();
        let mut wanted: BTreeMap<StreamId, Vec<ChannelIndex>> = BTreeMap::new();
        for subscription in subscriptions {
            subscription.wants(|stream, channels| wanted.entry(stream).or_default().extend(channels));
        }
        for channels in wanted.values_mut() {
            channels.sort_unstable();
            channels.dedup();
        }
        wanted.into_iter().collect()
    }

    /// Plays the frame at a place with the others of its stream and time, unless other channels are wanted by now.
    fn play_one(&mut self, place: FramePosition) {
        let Some(reader) = &mut self.reader else { return };
        let mut fanout = self.live.fanout();
        if fanout.interest() != reader.interest {
            self.reader = None;
            return;
        }
        let wall = (self.machine.now)().wall;
        let mut played = place;
        let mut whole = true;
        loop {
            reader.replay.take(|frame| {
                played = frame.position();
                fanout.play(frame.stream, &frame.played(), wall);
            });
            let next = loop {
                match reader.replay.peek(place.time) {
                    Ok(NextFrame::Unsure) => {}
                    Ok(next) => break next,
                    Err(_) => {
                        whole = false;
                        break NextFrame::None;
                    }
                }
            };
            match next {
                NextFrame::At(next) if (next.time, next.stream) == (place.time, place.stream) => {}
                _ => break,
            }
        }
        if whole {
            played.row = u64::MAX;
        }
        self.place = played;
        fanout.stand_at(played);
    }

    /// Reports streams with frames that arrived too late, after later ones were played. Skips streams already
    /// reported.
    fn note_late(&mut self, view: &View, wanted: &[(StreamId, Vec<ChannelIndex>)]) {
        let played = self.began.saturating_add(1)..self.place.time;
        let before = std::mem::take(&mut self.seen);
        for (stream, _) in wanted {
            let next = view.next_row(*stream);
            let new = before.get(stream).map_or(next..next, |seen| *seen..next);
            let is_told = self.late.len() > LATE_TOLD_MAX || self.late.contains(stream);
            if !is_told && !new.is_empty() && !played.is_empty() {
                let late = Scan { time: played.clone(), rows: new, batch_rows: 1, ..Scan::all(*stream, Vec::new()) };
                if view.scan(late).any(|batch| batch.is_ok_and(|batch| !batch.is_empty())) {
                    self.tell_late(*stream);
                }
            }
            self.seen.insert(*stream, next);
        }
    }

    fn tell_late(&mut self, stream: StreamId) {
        let of = match self.late.len() {
            LATE_TOLD_MAX.. => "further streams".to_owned(),
            _ => self.name_of(stream),
        };
        if self.late.insert(stream) {
            self.told.push(format!("playback leaves out frames of {of} that came too late to be followed"));
        }
    }

    fn tell(&mut self, troubles: Vec<(StreamId, ScanError)>) {
        for (stream, error) in troubles {
            let name = self.name_of(stream);
            self.tell_once(format!("playback passes over a part of {name}: {error}"));
        }
    }

    fn name_of(&self, stream: StreamId) -> String {
        let catalog = (self.machine.store)().catalog();
        let name = catalog.stream(stream).map(|stream| stream.key.to_string());
        name.unwrap_or_else(|| format!("stream {}", stream.0))
    }

    /// Reports a text once, since every slice and every view that touches a damaged part finds it again.
    fn tell_once(&mut self, text: String) {
        if self.troubles.len() < TROUBLES_MAX && self.troubles.insert(text.clone()) {
            self.told.push(text);
        }
    }
}

/// Returns the place of a playback at a time: after the frames of that time, or before them at the start of the
/// interval.
fn place_of(interval: &Range<i64>, at: i64) -> FramePosition {
    if at <= interval.start || at >= interval.end { FramePosition::before(at) } else { FramePosition::after(at) }
}

#[cfg(test)]
mod tests;
