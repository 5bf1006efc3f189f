//! The evaluation of one derived channel at the frames of one trigger.
//!
//! ```text
//! Idle ── its first trigger came ──> CatchingUp ── the record is read ──> Live
//!                                        └<── frames were missed ──────────┘
//! ```
//! It begins at the first trigger received since its version came into force, or goes on where its newest standing in
//! the record says. What was recorded until then is read, what comes from then on is tapped; the row of each stream at
//! which the one ends and the other begins is the same, so that no frame is missed and none is taken twice.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;
use strongback_query::{Kind, Moment, Outcome, Program, Troubles};
use strongback_store::{ChannelIndex, Clock, Scan, ScanError, Stream, StreamId, View};

use crate::reception::TappedFrame;
use crate::reception::replay::{ByTime, StreamRequest, sighting};
use crate::reception::value::InputValue;

use super::binding::{Binding, Inputs, by_stream};
use super::book::DerivedEntry;
use super::definition::{ALIGN_MS, Definition};
use super::hold::{FIRST, Hold, Key, before, key};
use super::record::{self, Output, Standing, cell_of, label};

/// A frame so far ahead of its reception has no turn: all that comes after it would be late.
const AHEAD_MAX_NS: i64 = 60_000_000_000;

/// A trigger and its result.
pub type Evaluated = (TappedFrame<InputValue>, Outcome);

/// Where an evaluation is.
#[derive(Debug)]
pub enum Stage {
    /// No trigger has come yet.
    Idle,
    /// It reads what was recorded.
    CatchingUp(ByTime),
    /// It evaluates what comes.
    Live,
}

/// What an evaluation counts since its start.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    /// Triggers evaluated.
    pub results: u64,
    /// Frames that came after their turn.
    pub late: u64,
    /// Of those, frames too far ahead of their reception.
    pub ahead: u64,
    /// Evaluations that failed.
    pub failed: u64,
    /// Divisors that were 0.
    pub zero_divisors: u64,
    /// Samples that found no room in a window.
    pub left_out: u64,
}

/// One evaluation.
#[derive(Debug)]
pub struct Instance {
    /// Name of the derived channel.
    pub name: String,
    /// Its version.
    pub version: u32,
    /// The stream that triggers it.
    pub trigger: Arc<Stream>,
    /// How it is named in the store's own tables.
    pub label: String,
    /// Where its results go.
    pub output: Output,
    /// Where it is.
    pub stage: Stage,
    /// What it counts.
    pub counts: Counts,
    /// The newest thing that went wrong, and when.
    pub trouble: Option<(i64, String)>,
    /// Frames that came too late and are not named yet.
    pub late_rows: Vec<(StreamId, u64)>,
    /// Whether it must begin again, and whether from the record alone.
    pub again: Option<Again>,
    /// Newest frame that had its turn.
    pub released: Key,
    /// When the newest of those that had their turn together with it was received.
    received: i64,
    /// Streams it reads, with their channels and the places of those in the expression.
    pub inputs: Inputs,
    /// Layouts of its streams when it was tied to them.
    pub layouts: Vec<(StreamId, u32)>,
    kinds: Vec<Kind>,
    program: Program,
    since: i64,
    /// Row of the trigger from which on all came while its version was in force, whatever the clock said.
    from_row: Option<u64>,
    align_ns: i64,
    hold: Hold,
    /// Results up to here are stored.
    written: Option<Key>,
    /// When the newest of those was evaluated.
    evaluated: i64,
    /// Of each stream, the row from which on it is tapped.
    bounds: HashMap<StreamId, u64>,
    /// While it catches up: what live left out.
    late: HashSet<(StreamId, u64)>,
    /// Frames received from then on may have successors on their way.
    recent: i64,
    /// The first of those.
    tail: Option<Key>,
    /// Whether it can go on from what it remembers.
    has_memory: bool,
    /// Whether the newest frames are to be read from the record.
    overrun: bool,
    /// Where it stands by the record.
    stood: Key,
    /// Whether the record says where it stands, and whether it was to and did not take it.
    has_stood: bool,
    stand_failed: bool,
}

/// Why an evaluation begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Frames were missed; what it remembers holds.
    Missed,
    /// What it remembers is not what was recorded.
    Record,
}

impl Instance {
    /// Of a definition, tied to streams; nothing is read yet.
    pub fn new(entry: &DerivedEntry, definition: &Definition, binding: Binding, output: Output) -> Instance {
        let inputs = by_stream(&binding);
        let align_ms = definition.table.align_ms.unwrap_or(if inputs.len() > 1 { ALIGN_MS } else { 0 });
        Instance {
            name: definition.table.name.clone(),
            version: entry.version,
            label: label(&definition.table.name, entry.version, &binding.trigger.key),
            output,
            stage: Stage::Idle,
            counts: Counts::default(),
            trouble: None,
            late_rows: Vec::new(),
            again: None,
            released: FIRST,
            received: i64::MIN,
            inputs,
            layouts: layouts(&binding),
            kinds: binding.kinds,
            program: binding.program,
            since: entry.since,
            from_row: None,
            align_ns: i64::from(align_ms) * 1_000_000,
            hold: Hold::default(),
            written: None,
            evaluated: i64::MAX,
            bounds: HashMap::new(),
            late: HashSet::new(),
            recent: i64::MAX,
            tail: None,
            has_memory: false,
            overrun: false,
            stood: FIRST,
            has_stood: false,
            stand_failed: false,
            trigger: binding.trigger,
        }
    }

    /// Its trigger appeared while its version was in force: each frame of that counts, also those that came before it was
    /// tied to its inputs.
    pub fn has_appeared(&mut self) {
        self.from_row = Some(0);
    }

    /// The run that its trigger is of, if it is of one.
    pub fn run(&self) -> Option<&str> {
        record::run_of(&self.trigger.key)
    }

    /// Whether it reads the same channels as a binding, of the same kinds.
    pub fn is_tied_as(&self, binding: &Binding) -> bool {
        self.inputs == by_stream(binding) && self.kinds == binding.kinds
    }

    /// What it is called in `/api/derived`.
    pub fn state(&self) -> &'static str {
        match self.stage {
            Stage::Idle => "waiting for its first frame",
            Stage::CatchingUp(_) => "catching up",
            Stage::Live => "live",
        }
    }

    fn wanted(&self, rows: impl Fn(StreamId) -> std::ops::Range<u64>) -> Vec<StreamRequest> {
        self.inputs
            .iter()
            .map(|(stream, channels)| StreamRequest {
                stream: *stream,
                channels: channels.iter().map(|(channel, _)| *channel).collect(),
                rows: rows(*stream),
                every: *stream == self.trigger.id,
            })
            .collect()
    }

    /// Begins, or begins again. `view` was taken when all its streams were tapped: rows from the view's next on are.
    ///
    /// # Errors
    /// A scan that ends early: it is to be tried again.
    pub fn begin(&mut self, view: &View, again: Option<Again>, now: i64) -> std::result::Result<(), ScanError> {
        let before = self.bounds.clone();
        let begun = self.begin_from(view, again, now);
        if begun.is_err() {
            self.bounds = before;
        }
        begun
    }

    fn begin_from(&mut self, view: &View, again: Option<Again>, now: i64) -> std::result::Result<(), ScanError> {
        self.hold.clear();
        self.overrun = false;
        self.tail = None;
        let mut seen = std::mem::take(&mut self.bounds);
        self.bounds = self.inputs.iter().map(|(stream, _)| (*stream, view.next_row(*stream))).collect();
        self.from_row.get_or_insert(view.next_row(self.trigger.id));
        if !(self.has_memory && again == Some(Again::Missed)) {
            self.has_memory = false;
            let newest = self.output.newest(view, self.trigger.id)?;
            (self.written, self.evaluated) =
                (newest.map(|newest| newest.0), newest.map_or(i64::MAX, |newest| newest.1));
            let standing = record::standing(view, &self.label, i64::MAX)?;
            let standing = standing.filter(|standing| self.program.resume(&standing.memory));
            match standing {
                Some(standing) => {
                    (self.released, self.stood) = (standing.released, standing.released);
                    self.has_stood = true;
                    seen = standing.seen.into_iter().collect();
                    // What came after it came while the version was in force.
                    let known = standing.from_row.or_else(|| seen.get(&self.trigger.id).copied());
                    self.from_row = self.from_row.into_iter().chain(known).min();
                }
                None => {
                    let Some(first) = self.first_trigger(view)? else {
                        self.stage = Stage::Idle;
                        self.again = None;
                        return Ok(());
                    };
                    let wanted = self.wanted(|_| 0..u64::MAX);
                    warm(&mut self.program, (&self.kinds, &self.inputs), view, first, &HashSet::new(), wanted)?;
                    self.released = before(first);
                    seen.clone_from(&self.bounds);
                }
            }
        }
        self.late = record::late(view, &self.label)?;
        for (stream, seen) in &seen {
            self.name_unseen(view, *stream, *seen)?;
        }
        let wanted = self.wanted(|stream| 0..self.bounds.get(&stream).copied().unwrap_or(0));
        self.stage = Stage::CatchingUp(ByTime::new(view, wanted, self.released.0, i64::MAX));
        self.recent = now.saturating_sub(self.align_ns.max(1));
        self.has_memory = true;
        self.again = None;
        Ok(())
    }

    /// Whether a frame of the trigger was received since the version came into force: by the clock, or, as that may
    /// have been set back since, by its row.
    fn is_in_force(&self, row: Option<u64>, receive_time: i64) -> bool {
        receive_time >= self.since || row.is_none_or(|row| self.from_row.is_some_and(|from_row| row >= from_row))
    }

    /// The first trigger received since the version came into force.
    fn first_trigger(&self, view: &View) -> std::result::Result<Option<Key>, ScanError> {
        let mut first: Option<Key> = None;
        let scan = Scan { newest_first: true, ..Scan::all(self.trigger.id, Vec::new()) };
        for batch in view.scan(scan) {
            let batch = batch?;
            let mut any = false;
            let in_force = |row: &usize| self.is_in_force(Some(batch.rows[*row]), batch.receive_time[*row]);
            for row in (0..batch.len()).filter(in_force) {
                any = true;
                let key = (batch.time(row), self.trigger.id.0, batch.rows[row]);
                first = Some(first.map_or(key, |first| first.min(key)));
            }
            if !any {
                break;
            }
        }
        Ok(first)
    }

    /// Names frames of a stream that came too late while nobody looked.
    fn name_unseen(&mut self, view: &View, stream: StreamId, seen: u64) -> std::result::Result<(), ScanError> {
        let rows = seen..self.bounds.get(&stream).copied().unwrap_or(seen);
        if rows.is_empty() {
            return Ok(());
        }
        let Some((_, channels)) = self.inputs.iter().find(|(of, _)| *of == stream) else { return Ok(()) };
        let channels: Vec<ChannelIndex> = channels.iter().map(|(channel, _)| *channel).collect();
        // What came after results of its successors were stored is late, although they are evaluated again.
        let end = self.written.unwrap_or(self.released).max(self.released);
        let time = i64::MIN..end.0.saturating_add(1);
        for batch in view.scan(Scan { rows, time, ..Scan::all(stream, channels.clone()) }) {
            let batch = batch?;
            for row in 0..batch.len() {
                let frame: TappedFrame<InputValue> = sighting(&batch, &channels, row);
                let counts = stream == self.trigger.id || !frame.readings.is_empty();
                let is_late = key(&frame) <= self.released || key(&frame) <= end && frame.receive_time > self.evaluated;
                if counts && is_late && self.late.insert((stream, batch.rows[row])) {
                    self.counts.late += 1;
                    self.late_rows.push((stream, batch.rows[row]));
                }
            }
        }
        Ok(())
    }

    /// Takes a frame that came.
    pub fn take(&mut self, now: i64, frame: &TappedFrame<InputValue>) {
        let Some((_, channels)) = self.inputs.iter().find(|(stream, _)| *stream == frame.stream) else { return };
        if let (Some(row), false, Some(bound)) = (frame.row, self.overrun, self.bounds.get_mut(&frame.stream)) {
            if row < *bound {
                return;
            }
            *bound = row + 1;
        }
        let is_trigger = frame.stream == self.trigger.id;
        let brings = |(channel, _): &(ChannelIndex, usize)| frame.readings.iter().any(|(of, _)| of == channel);
        if !is_trigger && !channels.iter().any(brings) {
            return;
        }
        if let Stage::Idle = self.stage {
            if is_trigger && frame.row.is_some() && self.is_in_force(frame.row, frame.receive_time) {
                self.again = Some(Again::Record);
            }
            return;
        }
        match frame.row {
            // It is shown, and what was recorded is returned to as soon as that can be.
            None => self.again = Some(Again::Record),
            Some(_) if self.overrun => return,
            Some(_) => {}
        }
        let ahead = frame.time.saturating_sub(frame.receive_time) > AHEAD_MAX_NS;
        if ahead || key(frame) <= self.released {
            self.counts.late += 1;
            self.counts.ahead += u64::from(ahead);
            self.late_rows.extend(frame.row.map(|row| (frame.stream, row)));
            if ahead {
                let text = format!("a frame of stream {} is more than a minute ahead of its reception", frame.stream.0);
                self.trouble = Some((now, text));
            }
            return;
        }
        if self.hold.is_full() {
            self.miss();
            return;
        }
        self.hold.push(now, frame.clone());
    }

    /// Frames are missed from now on: they are read from the record when it begins again.
    pub fn miss(&mut self) {
        if !matches!(self.stage, Stage::Idle) {
            self.hold.clear();
            self.overrun = true;
            self.again.get_or_insert(Again::Missed);
        }
    }

    /// The place from which on results of it may still come, if any may.
    pub fn pending(&self) -> Option<i64> {
        match self.stage {
            Stage::Idle => self.again.map(|_| i64::MIN),
            Stage::CatchingUp(_) => Some(self.released.0),
            Stage::Live if self.overrun => Some(self.released.0),
            Stage::Live => self.hold.first().map(|first| first.0),
        }
    }

    /// Moves all instants of reception by `by_ns`: the clock was set by that.
    pub fn leap(&mut self, by_ns: i64) {
        self.hold.leap(by_ns);
        self.recent = self.recent.saturating_add(by_ns);
    }

    /// The instant at which results are recorded that are made at `now`. Frames may have been received since that was
    /// looked up: recorded before them, their own results would make them look late to the next start.
    pub fn recorded_at(&self, now: i64) -> i64 {
        now.max(self.received)
    }

    /// Evaluates what is due: nothing from `limit` on, as results of others that it needs may come there. `align` says
    /// whether frames are held back.
    ///
    /// # Errors
    /// A scan that ends early: it is tried again at the next turn.
    pub fn turn(
        &mut self,
        view: impl FnOnce() -> View,
        now: i64,
        limit: Option<Key>,
        align: bool,
    ) -> std::result::Result<Vec<Evaluated>, ScanError> {
        let align_ns = if align { self.align_ns } else { 0 };
        let frames = match &mut self.stage {
            Stage::Idle => return Ok(Vec::new()),
            Stage::Live => self.hold.release(now, align_ns, limit),
            Stage::CatchingUp(replay) => {
                let is_half_full = self.hold.is_half_full();
                let frames = if is_half_full { Vec::new() } else { replay.slice::<InputValue>(&view())? };
                for frame in frames {
                    let place = key(&frame);
                    let left_out = frame.row.is_some_and(|row| self.late.contains(&(frame.stream, row)));
                    let ahead = frame.time.saturating_sub(frame.receive_time) > AHEAD_MAX_NS;
                    if place <= self.released || left_out || ahead {
                        continue;
                    }
                    // The newest may have successors on their way; the others have waited long enough.
                    let is_recent = self.tail.is_some() || frame.receive_time > self.recent;
                    if is_recent {
                        self.tail.get_or_insert(place);
                    }
                    self.hold.push(if is_recent { now } else { now.saturating_sub(align_ns) }, frame);
                }
                let (at, is_over) = (replay.at(), replay.is_over());
                // Without room for more none can be waited for.
                let end = self.tail.filter(|_| !is_half_full).map_or(before((at, 0, 0)), before);
                let end = limit.map_or(end, |limit| end.min(before(limit)));
                if is_over {
                    self.stage = Stage::Live;
                    self.late = HashSet::new();
                }
                self.hold.release_to(end)
            }
        };
        Ok(self.evaluate(frames, now))
    }

    fn evaluate(&mut self, frames: Vec<TappedFrame<InputValue>>, now: i64) -> Vec<Evaluated> {
        let Some(last) = frames.last() else { return Vec::new() };
        self.released = key(last);
        self.received = frames.iter().map(|frame| frame.receive_time).max().unwrap_or(i64::MIN);
        let gives = |frame: &TappedFrame<InputValue>| {
            let is_trigger = frame.stream == self.trigger.id && self.is_in_force(frame.row, frame.receive_time);
            is_trigger && self.written.is_none_or(|written| key(frame) > written)
        };
        let moments: Vec<Moment> =
            frames.iter().map(|frame| moment(frame, &self.inputs, &self.kinds, gives(frame))).collect();
        let mut outcomes = Vec::new();
        let troubles = self.program.evaluate(&moments, &mut outcomes);
        note(&mut self.counts, &mut self.trouble, troubles, now);
        self.counts.results += outcomes.len() as u64;
        let triggers = frames.into_iter().zip(moments).filter(|(_, moment)| moment.is_trigger);
        triggers.map(|(frame, _)| frame).zip(outcomes).collect()
    }

    /// Where it stands, if that is news to the record.
    pub fn standing(&self) -> Option<Standing> {
        if self.released == self.stood || self.released == FIRST || self.again == Some(Again::Record) {
            return None;
        }
        let seen = self.bounds.iter().map(|(stream, bound)| (*stream, *bound)).collect();
        Some(Standing { released: self.released, seen, memory: self.program.memory(), from_row: self.from_row })
    }

    /// Notes that the record took where it stands, or that it did not: then that is news still.
    pub fn note_standing(&mut self, is_recorded: bool) {
        self.stand_failed = !is_recorded;
        if is_recorded {
            (self.stood, self.has_stood) = (self.released, true);
        }
    }

    /// Whether the record is to say where it stands at once, as it does not yet. What failed waits for its turn, and no
    /// result waits for that.
    pub fn stands_first(&self) -> bool {
        !self.has_stood && !self.stand_failed
    }

    /// Lets its standing be news again, wherever it stands.
    pub fn stand_again(&mut self) {
        self.stood = FIRST;
    }

    /// Whether a stream's `time` is its source's.
    pub fn is_source_clock(stream: &Stream) -> bool {
        stream.clock == Clock::Source
    }
}

/// The layouts of the streams of a binding.
pub fn layouts(binding: &Binding) -> Vec<(StreamId, u32)> {
    let of = |stream: &Arc<Stream>| (stream.id, stream.layout.version);
    std::iter::once(of(&binding.trigger)).chain(binding.inputs.iter().map(|(stream, _)| of(stream))).collect()
}

/// Adds what went wrong.
pub fn note(counts: &mut Counts, trouble: &mut Option<(i64, String)>, troubles: Troubles, now: i64) {
    counts.failed += troubles.failed;
    counts.zero_divisors += troubles.zero_divisors;
    counts.left_out += troubles.left_out;
    if let Some(why) = troubles.why {
        *trouble = Some((now, why));
    } else if troubles.left_out > 0 {
        *trouble = Some((now, "a window has more samples than it has room for: its oldest are left out".to_owned()));
    } else if troubles.zero_divisors > 0 {
        *trouble = Some((now, "division by zero: those results have no value".to_owned()));
    }
}

/// A frame as the program sees it.
pub fn moment(frame: &TappedFrame<InputValue>, inputs: &Inputs, kinds: &[Kind], is_trigger: bool) -> Moment {
    let mut cells = Vec::new();
    for (_, channels) in inputs.iter().filter(|(stream, _)| *stream == frame.stream) {
        for (channel, place) in channels {
            let seen = frame.readings.iter().find(|(of, _)| of == channel);
            cells.extend(seen.and_then(|(_, seen)| Some((*place, seen.clone().into_kind(kinds[*place])?))));
        }
    }
    Moment { time: frame.time, is_trigger, cells }
}

/// Lets a program know what was before its first frame: the newest value of each channel, and what its windows had.
///
/// # Errors
/// A scan that ends early.
pub fn warm(
    program: &mut Program,
    (kinds, inputs): (&[Kind], &Inputs),
    view: &View,
    first: Key,
    late: &HashSet<(StreamId, u64)>,
    wanted: Vec<StreamRequest>,
) -> std::result::Result<(), ScanError> {
    let from = first.0.saturating_sub(program.span_ns());
    for (stream, channels) in inputs {
        let columns: Vec<ChannelIndex> = channels.iter().map(|(channel, _)| *channel).collect();
        let cells = view.state_at(*stream, from.saturating_sub(1), &columns)?;
        for ((_, place), cell) in channels.iter().zip(cells) {
            let Some(cell) = cell else { continue };
            if let Some(value) = cell.value.as_ref().and_then(|value| cell_of(value.as_value(), kinds[*place])) {
                program.begin(*place, value, cell.time);
            }
        }
    }
    let mut replay = ByTime::new(view, wanted, from, first.0);
    while !replay.is_over() {
        let frames = replay.slice::<InputValue>(view)?;
        let earlier = frames.iter().filter(|frame| key(frame) < first);
        let earlier = earlier.filter(|frame| frame.row.is_none_or(|row| !late.contains(&(frame.stream, row))));
        let moments: Vec<Moment> = earlier.map(|frame| moment(frame, inputs, kinds, false)).collect();
        program.evaluate(&moments, &mut Vec::new());
    }
    Ok(())
}
