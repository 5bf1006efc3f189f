//! Evaluation of one derived channel at the frames of one trigger.
//!
//! ```text
//! Idle ── first trigger received ──> CatchingUp ── stored data read ──> Live
//!                                        └<── frames missed ─────────────┘
//! ```
//! An evaluation begins at the first trigger received since its version came into force, or continues from its newest
//! stored standing. Frames recorded until then are read, and later ones are tapped. For each stream, reading ends at
//! the row at which tapping begins, so that no frame is missed or taken twice.

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
use super::record::{self, EarlierResults, Newest, Output, Standing, cell_of, label};

/// Max time by which a frame may be ahead of its reception, nanoseconds. A frame further ahead gets no turn, since
/// all frames after it would be late.
const AHEAD_MAX_NS: i64 = 60_000_000_000;
/// Max time before a version came into force at which a frame was received that the version before held back.
const CARRIED_NS: i64 = 60_000_000_000;

/// Trigger with its result.
pub type Evaluated = (TappedFrame<InputValue>, Outcome);

/// Stage of an evaluation.
#[derive(Debug)]
pub enum Stage {
    /// Waiting for the first trigger.
    Idle,
    /// Reading stored frames.
    CatchingUp(ByTime),
    /// Evaluating live frames.
    Live,
}

/// Counters of an evaluation since its start.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    /// Triggers evaluated.
    pub results: u64,
    /// Frames that arrived after their turn.
    pub late: u64,
    /// Late frames that were too far ahead of their reception.
    pub ahead: u64,
    /// Evaluations that failed.
    pub failed: u64,
    /// Divisions by zero.
    pub zero_divisors: u64,
    /// Samples that did not fit into a window.
    pub left_out: u64,
}

/// Evaluation of a derived channel for one trigger.
#[derive(Debug)]
pub struct Instance {
    /// Name of the derived channel.
    pub name: String,
    /// Version of the derived channel.
    pub version: u32,
    /// Trigger stream.
    pub trigger: Arc<Stream>,
    /// Name of the evaluation in the store's own tables.
    pub label: String,
    /// Result stream.
    pub output: Output,
    /// Current stage.
    pub stage: Stage,
    /// Counters.
    pub counts: Counts,
    /// Time and text of the latest problem.
    pub trouble: Option<(i64, String)>,
    /// Late frames that are not recorded yet.
    pub late_rows: Vec<(StreamId, u64)>,
    /// Reason to begin again, if it must.
    pub again: Option<Again>,
    /// Newest frame that had its turn.
    pub released: Key,
    /// Newest receive time of the frames that had their turn together with it.
    received: i64,
    /// Streams it reads, with their channels and the positions of those in the expression.
    pub inputs: Inputs,
    /// Layout versions of its streams when its inputs were resolved.
    pub layouts: Vec<(StreamId, u32)>,
    kinds: Vec<Kind>,
    program: Program,
    since: i64,
    /// Results of the version before, and the newest of them.
    earlier: Option<EarlierResults>,
    newest_before: Option<Newest>,
    /// Row of the trigger from which on all frames arrived while its version was in force, whatever the clock said.
    from_row: Option<u64>,
    align_ns: i64,
    hold: Hold,
    /// Place up to which results are stored.
    written: Option<Key>,
    /// Time at which the newest stored result was evaluated.
    evaluated: i64,
    /// Row from which on each stream is tapped.
    bounds: HashMap<StreamId, u64>,
    /// Frames that live left out; used while catching up.
    late: HashSet<(StreamId, u64)>,
    /// Receive time from which on stored frames may be followed by others in transit.
    recent: i64,
    /// Place of the first of those frames.
    tail: Option<Key>,
    /// Whether it can continue from its memory.
    has_memory: bool,
    /// Whether the newest frames must be read from stored data.
    overrun: bool,
    /// Place of its newest stored standing.
    stood: Key,
    /// Whether a standing is stored, and whether storing one failed.
    has_stood: bool,
    stand_failed: bool,
}

/// Reason why an evaluation begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Missed frames; its memory is still valid.
    Missed,
    /// Memory that does not match stored data.
    Record,
}

impl Instance {
    /// Creates the evaluation of a definition with resolved inputs; nothing is read yet.
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
            earlier: EarlierResults::before(entry.version, definition, &binding.trigger.key),
            newest_before: None,
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

    /// Notes that its trigger appeared while its version was in force. Each frame of it counts, including those from
    /// before its inputs were resolved.
    pub fn has_appeared(&mut self) {
        self.from_row = Some(0);
    }

    /// Returns the run that its trigger belongs to, if any.
    pub fn run(&self) -> Option<&str> {
        record::run_of(&self.trigger.key)
    }

    /// Returns whether it reads the same channels as a binding, of the same kinds.
    pub fn is_tied_as(&self, binding: &Binding) -> bool {
        self.inputs == by_stream(binding) && self.kinds == binding.kinds
    }

    /// Returns its state for `/api/derived`.
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

    /// Begins, or begins again. `view` must be taken when all its streams are tapped: rows from the view's next row
    /// on come from the tap.
    ///
    /// # Errors
    /// Returns an error if a scan ends early; it must be tried again.
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
        if let Some(earlier) = &self.earlier {
            self.newest_before = earlier.newest(view, self.trigger.id)?;
        }
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
                    // Frames after it arrived while the version was in force.
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

    /// Returns whether a frame of the trigger was received since the version came into force: by the clock or, since
    /// that may have been set back, by its row. A frame from shortly before is in force as well if the version before
    /// has no result for it, because it was still held back, and one from after is not if that has a result for it.
    fn is_in_force(&self, place: Key, row: Option<u64>, receive_time: i64) -> bool {
        if row.is_none_or(|row| self.from_row.is_some_and(|from_row| row >= from_row)) {
            return true;
        }
        match self.newest_before {
            None => receive_time >= self.since,
            Some((newest, evaluated)) => {
                let has_result = place <= newest && receive_time <= evaluated;
                receive_time >= self.since.saturating_sub(CARRIED_NS) && !has_result
            }
        }
    }

    /// Returns the first trigger received since the version came into force.
    fn first_trigger(&self, view: &View) -> std::result::Result<Option<Key>, ScanError> {
        let mut first: Option<Key> = None;
        let scan = Scan { newest_first: true, ..Scan::all(self.trigger.id, Vec::new()) };
        for batch in view.scan(scan) {
            let batch = batch?;
            let mut any = false;
            let key_of = |row: usize| (batch.time(row), self.trigger.id.0, batch.rows[row]);
            let in_force =
                |row: &usize| self.is_in_force(key_of(*row), Some(batch.rows[*row]), batch.receive_time[*row]);
            for row in (0..batch.len()).filter(in_force) {
                any = true;
                let key = key_of(row);
                first = Some(first.map_or(key, |first| first.min(key)));
            }
            if !any {
                break;
            }
        }
        Ok(first)
    }

    /// Notes frames of a stream that arrived too late while it was not tapped.
    fn name_unseen(&mut self, view: &View, stream: StreamId, seen: u64) -> std::result::Result<(), ScanError> {
        let rows = seen..self.bounds.get(&stream).copied().unwrap_or(seen);
        if rows.is_empty() {
            return Ok(());
        }
        let Some((_, channels)) = self.inputs.iter().find(|(of, _)| *of == stream) else { return Ok(()) };
        let channels: Vec<ChannelIndex> = channels.iter().map(|(channel, _)| *channel).collect();
        // Frames that arrived after results of their successors were stored are late, although those are evaluated
        // again.
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

    /// Takes a received frame.
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
            if is_trigger && frame.row.is_some() && self.is_in_force(key(frame), frame.row, frame.receive_time) {
                self.again = Some(Again::Record);
            }
            return;
        }
        match frame.row {
            // Evaluate the frame for display, and use stored data again as soon as possible.
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

    /// Notes that frames are missed from now on; they are read from stored data when it begins again.
    pub fn miss(&mut self) {
        if !matches!(self.stage, Stage::Idle) {
            self.hold.clear();
            self.overrun = true;
            self.again.get_or_insert(Again::Missed);
        }
    }

    /// Returns the `time` from which on it may still give results, or `None` if none are pending.
    pub fn pending(&self) -> Option<i64> {
        match self.stage {
            Stage::Idle => self.again.map(|_| i64::MIN),
            Stage::CatchingUp(_) => Some(self.released.0),
            Stage::Live if self.overrun => Some(self.released.0),
            Stage::Live => self.hold.first().map(|first| first.0),
        }
    }

    /// Shifts all instants of reception by `by_ns`, because the clock was set by that much.
    pub fn leap(&mut self, by_ns: i64) {
        self.hold.leap(by_ns);
        self.recent = self.recent.saturating_add(by_ns);
    }

    /// Returns the receive time for results computed at `now`. Frames may have been received since `now` was read;
    /// results with an earlier receive time would make them look late at the next start.
    pub fn recorded_at(&self, now: i64) -> i64 {
        now.max(self.received)
    }

    /// Evaluates what is due, but nothing from `limit` on, where results that it depends on may still arrive. `align`
    /// tells whether frames are held back.
    ///
    /// # Errors
    /// Returns an error if a scan ends early; it is tried again at the next turn.
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
                    // The newest may be followed by others in transit; the rest have waited long enough.
                    let is_recent = self.tail.is_some() || frame.receive_time > self.recent;
                    if is_recent {
                        self.tail.get_or_insert(place);
                    }
                    self.hold.push(if is_recent { now } else { now.saturating_sub(align_ns) }, frame);
                }
                let (at, is_over) = (replay.at(), replay.is_over());
                // If there is no space for more, do not wait for any.
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
            let is_trigger =
                frame.stream == self.trigger.id && self.is_in_force(key(frame), frame.row, frame.receive_time);
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

    /// Returns its standing, if it is new and matches stored data.
    pub fn standing(&self) -> Option<Standing> {
        if self.released == self.stood || self.released == FIRST || self.again == Some(Again::Record) {
            return None;
        }
        let seen = self.bounds.iter().map(|(stream, bound)| (*stream, *bound)).collect();
        Some(Standing { released: self.released, seen, memory: self.program.memory(), from_row: self.from_row })
    }

    /// Notes whether its standing was stored; if not, it remains new.
    pub fn note_standing(&mut self, is_recorded: bool) {
        self.stand_failed = !is_recorded;
        if is_recorded {
            (self.stood, self.has_stood) = (self.released, true);
        }
    }

    /// Returns whether its first standing must be stored at once. If that failed, it waits for the regular interval,
    /// and results do not wait for it.
    pub fn stands_first(&self) -> bool {
        !self.has_stood && !self.stand_failed
    }

    /// Makes its standing count as new, even if it is unchanged.
    pub fn stand_again(&mut self) {
        self.stood = FIRST;
    }

    /// Returns whether a stream's `time` is its source's.
    pub fn is_source_clock(stream: &Stream) -> bool {
        stream.clock == Clock::Source
    }
}

/// Returns the layout versions of the streams of a binding.
pub fn layouts(binding: &Binding) -> Vec<(StreamId, u32)> {
    let of = |stream: &Arc<Stream>| (stream.id, stream.layout.version);
    std::iter::once(of(&binding.trigger)).chain(binding.inputs.iter().map(|(stream, _)| of(stream))).collect()
}

/// Adds problems to the counters, and keeps the latest one.
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

/// Converts a frame to the form that the program takes.
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

/// Initializes a program with the state before its first frame: the newest value of each channel, and the content of
/// its windows.
///
/// # Errors
/// Returns an error if a scan ends early.
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
