//! Lossy append: which frames of a stream get a row, and what their rows hold.
//!
//! ```text
//!  frame ─> late? ─> its values to channels beside ──────────────────────────────────────────┐
//!        └> lanes: anything outside its bound? ── yes ─> [held frame, if it ends a line] ─> row ─> log and chunk
//!                                              └─ no ──> held: the newest such, no row, counted as reduced
//! ```
//! Invariant: the values and unknown cells of a channel with a reduction ascend in `time` from row to row.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::Reject;
use crate::append::held::{self, Held, HeldHead};
use crate::append::lane::{LossyChannel, Offer};
use crate::append::sequence::Seen;
use crate::append::{StreamWriter, Taken, Writer};
use crate::bytes::{Cursor, RecordError};
use crate::log::LogPosition;
use crate::log::record;
use crate::model::frame::{FrameBatch, FrameHead, FrameRef};
use crate::model::mutant::{self, Mutant};
use crate::model::reduction::Reduction;
use crate::model::row::{RowScratch, RowShape, is_time};
use crate::model::stream::{Channel, ChannelIndex, ChannelSpec, Layout, StreamSpec};
use crate::model::value::{CellState, Value};

/// Newest frames of a stream with a source clock among which one that is sent twice is recognized.
const RECENT_MAX: usize = 4096;
/// Word of states in which every cell is absent.
const ABSENT_WORD: u64 = 0x5555_5555_5555_5555;

/// State of a stream with reductions on the append side.
#[derive(Debug)]
pub(crate) struct Reducer {
    lanes: Vec<LossyChannel>,
    /// Bits of the state words that belong to channels without a reduction.
    plain: Vec<u64>,
    /// Newest `time` that was taken in order.
    newest: i64,
    pub(crate) held: Option<Arc<Held>>,
    /// Whether the held frame is from the log, so that the rows before it are unknown.
    recovered: bool,
    /// Row of the held frame that recovery found; no counter includes it.
    uncounted: Option<u64>,
    /// Position of the unit with its newest record, then those of earlier records with the commits that replaced them.
    logged: Option<LogPosition>,
    before: VecDeque<(LogPosition, u64)>,
    /// Commit under way that has the record of the held frame, and the place and length of that record in words.
    written: Option<(u64, (usize, usize))>,
    /// Newest commits, which may not be durable yet: number, frames left out, and the min and max `time` of those.
    left_out: VecDeque<(u64, u64, (i64, i64))>,
    /// Hashes of the newest frames, for streams whose `time` is the source time.
    recent: VecDeque<u64>,
    /// Channels with a reduction, ascending, with the channels for their late values, as far as these were needed.
    late: Vec<(ChannelIndex, ChannelIndex)>,
    /// Scratch row for the held frame.
    row: RowScratch,
    /// Whether each lane leaves out the frame under way.
    leaves: Vec<bool>,
}

impl Reducer {
    /// Makes the state for a layout, or returns `None` if none of its channels has a reduction. `newest` is the
    /// stream's newest `time`.
    pub(crate) fn new(layout: &Layout, shape: &RowShape, newest: i64) -> Option<Box<Reducer>> {
        let mut plain = vec![0; shape.fields.len().div_ceil(32)];
        let mut lanes = Vec::new();
        for (channel, (field, known)) in shape.fields.iter().zip(&layout.channels).enumerate() {
            match known.reduction {
                Reduction::None => plain[channel / 32] |= 3 << (channel % 32 * 2),
                reduction => lanes.push(LossyChannel::new(channel, *field, reduction)),
            }
        }
        (!lanes.is_empty()).then(|| {
            Box::new(Reducer {
                lanes,
                plain,
                newest,
                held: None,
                recovered: false,
                uncounted: None,
                logged: None,
                before: VecDeque::new(),
                written: None,
                left_out: VecDeque::new(),
                recent: VecDeque::new(),
                late: Vec::new(),
                row: RowScratch::default(),
                leaves: Vec::new(),
            })
        })
    }

    /// Returns whether the frame of a row is a held frame that recovery found, so that no counter includes it.
    pub(crate) fn is_uncounted(&self, row: u64) -> bool {
        self.uncounted == Some(row)
    }

    /// Returns the held frame found by recovery that is to get this row, if any.
    pub(crate) fn found_held(&self, row: u64) -> Option<&Held> {
        self.held.as_deref().filter(|held| self.recovered && held.row == row)
    }

    /// Returns whether a frame of this `time` comes after one of a later time.
    pub(crate) fn is_late(&self, time: i64) -> bool {
        time < self.newest
    }

    /// Counts a frame that gets no row in the commit under way.
    fn note_left_out(&mut self, commit: u64, time: i64) {
        // The commit before the one under way may not be durable yet.
        while self.left_out.pop_front_if(|(of, ..)| *of + 2 <= commit).is_some() {}
        match self.left_out.back_mut() {
            Some((of, frames, (from, to))) if *of == commit => {
                *frames += 1;
                (*from, *to) = ((*from).min(time), (*to).max(time));
            }
            _ => self.left_out.push_back((commit, 1, (time, time))),
        }
    }

    /// Uncounts the held frame, which gets a row after all.
    fn note_stored(&mut self) {
        let held_in = self.written.map(|(commit, _)| commit);
        if let Some((_, frames, _)) = self.left_out.iter_mut().find(|(commit, ..)| Some(*commit) == held_in) {
            *frames = frames.saturating_sub(1);
        }
    }

    /// Returns the number of frames without a row that are not durable with the commit `committed`, and their min and
    /// max `time`.
    pub(crate) fn undurable(&self, committed: u64) -> Option<(u64, (i64, i64))> {
        let since = self.left_out.iter().filter(|(commit, frames, _)| *commit > committed && *frames > 0);
        since
            .map(|&(_, frames, time)| (frames, time))
            .reduce(|(a, of), (b, time)| (a + b, (of.0.min(time.0), of.1.max(time.1))))
    }

    /// Returns whether a row has content for a channel without a reduction.
    fn has_plain(&self, shape: &RowShape, words: &[u64]) -> bool {
        words[shape.states..].iter().zip(&self.plain).any(|(word, plain)| (word ^ ABSENT_WORD) & plain != 0)
    }
}

/// Returns the `time` of a frame.
fn time_of(head: &FrameHead, source_clock: bool) -> i64 {
    match head.source_time {
        Some(time) if source_clock => time,
        _ => head.receive_time,
    }
}

/// Returns whether a frame's source time is more than `max_future_ns` ahead of its reception.
fn is_future(head: &FrameHead, source_clock: bool, max_future_ns: i64) -> bool {
    source_clock && head.source_time.is_some_and(|time| time.saturating_sub(head.receive_time) > max_future_ns)
}

/// Hashes a frame's `time` and all its cells.
fn hash_of(frame: &FrameRef<'_>, time: i64) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = foldhash::fast::FixedState::with_seed(7).build_hasher();
    hasher.write_i64(time);
    for (channel, cell) in frame.cells() {
        hasher.write_u16(channel.0);
        match cell {
            Ok(Value::String(text)) => {
                hasher.write_u8(200);
                hasher.write(text.as_bytes());
            }
            Ok(Value::Array(array)) => {
                hasher.write_u8(201);
                hasher.write(array.bytes());
            }
            Ok(Value::Blob(blob)) => {
                hasher.write_u8(202);
                hasher.write(&blob.bytes());
            }
            Ok(value) => {
                hasher.write_u8(value.channel_type().code());
                hasher.write_u64(value.bits());
            }
            Err(state) => hasher.write_u8(100 + state as u8),
        }
    }
    hasher.finish()
}

impl StreamWriter {
    /// Replaces the reducer of a stream whose definition changed. The next values offered are stored.
    pub(super) fn renew_reducer(&mut self) {
        let definition = self.slot.stream.load();
        let before = self.reducer.take();
        let newest = before.as_ref().map_or_else(|| self.slot.newest_time(), |r| r.newest);
        self.reducer = Reducer::new(&definition.layout, &self.shape, newest);
        if let (Some(reducer), Some(before)) = (&mut self.reducer, before) {
            let Reducer { held, recovered, uncounted, logged, before, written, left_out, recent, .. } = *before;
            (reducer.held, reducer.recovered, reducer.uncounted) = (held, recovered, uncounted);
            (reducer.logged, reducer.before, reducer.written) = (logged, before, written);
            (reducer.left_out, reducer.recent) = (left_out, recent);
        }
    }
}

impl Writer {
    /// Handles a frame of a stream with reductions that is a duplicate or late, and returns its outcome as `try_append`
    /// does. Returns `None` if it is to be appended like any other.
    #[inline(never)]
    pub(crate) fn take_late(&mut self, frame: &FrameRef<'_>, now: i64) -> Option<Taken> {
        let head = frame.head();
        let max_future_ns = self.max_future_ns;
        let stream = self.streams.get_mut(head.stream.0)?;
        let source_clock = stream.source_clock;
        let reducer = stream.reducer.as_mut()?;
        let time = time_of(&head, source_clock);
        if source_clock && head.sequence.is_none() && time <= reducer.newest {
            let hash = hash_of(frame, time);
            if reducer.recent.contains(&hash) {
                stream.counts.duplicate += 1;
                return Some(Ok(None));
            }
        }
        if !reducer.is_late(time) && !is_future(&head, source_clock, max_future_ns) {
            return None;
        }
        let is_reduced = |channel: ChannelIndex| {
            reducer.lanes.binary_search_by_key(&usize::from(channel.0), |lane| lane.channel).is_ok()
        };
        if !frame.cells().any(|(channel, _)| is_reduced(channel)) {
            return None;
        }
        // What is going to be refused or dropped adds no channel.
        let is_time = is_time(head.receive_time) && head.source_time.is_none_or(is_time);
        let is_seen = || {
            let (tracker, wire) = stream.tracker.as_ref().zip(head.sequence)?;
            Some(tracker.judge(wire, head.receive_time, head.source_time).seen == Seen::Duplicate)
        };
        if !is_time || is_seen() == Some(true) {
            return None;
        }
        let mut batch = FrameBatch::new();
        if let Err(reject) = self.beside(frame, now, &mut batch) {
            return Some(Err(Box::new(reject)));
        }
        Some(self.try_append(&batch.frame(0), now))
    }

    /// Fills `batch` with the frame, moving values of channels with a reduction to `_late` channels, which it creates.
    fn beside(&mut self, frame: &FrameRef<'_>, now: i64, batch: &mut FrameBatch) -> Result<(), Reject> {
        let head = frame.head();
        let id = head.stream.0;
        let definition = self.streams[id].slot.stream.load_full();
        let channels = &definition.layout.channels;
        let is_reduced = |index: ChannelIndex| {
            channels.get(index.0 as usize).is_some_and(|channel| channel.reduction != Reduction::None)
        };
        let known = self.streams[id].reducer.as_ref().map_or(&[][..], |reducer| &reducer.late);
        let beside = |late: &[(ChannelIndex, ChannelIndex)], index: ChannelIndex| {
            late.binary_search_by_key(&index, |(of, _)| *of).ok().map(|at| late[at].1)
        };
        let mut reduced: Vec<ChannelIndex> = frame.cells().map(|(index, _)| index).filter(|i| is_reduced(*i)).collect();
        if reduced.iter().any(|index| beside(known, *index).is_none()) {
            reduced.sort_unstable();
            reduced.dedup();
            self.add_late(id, &reduced, now)?;
        }
        let late = self.streams[id].reducer.as_ref().map_or(&[][..], |reducer| &reducer.late);
        batch.begin(head);
        for (index, cell) in frame.cells() {
            let to = beside(late, index).unwrap_or(index);
            debug_assert!(to != index || !is_reduced(index), "a late value has a channel of its own");
            match cell {
                Ok(value) => batch.push(to, value),
                Err(state) => batch.push_state(to, state),
            }
        }
        batch.end();
        Ok(())
    }

    /// Finds or creates the `_late` channels of channels with a reduction, which ascend.
    fn add_late(&mut self, id: u32, of: &[ChannelIndex], now: i64) -> Result<(), Reject> {
        let definition = self.streams[id].slot.stream.load_full();
        let channels = &definition.layout.channels;
        let by_name: HashMap<&str, &Channel> = channels.iter().map(|c| (c.source_name.as_str(), c)).collect();
        let mut spec = StreamSpec {
            key: definition.key.clone(),
            source: definition.source.clone(),
            clock: definition.clock,
            expected_period_ns: definition.expected_period_ns,
            sequence_modulus: definition.sequence_modulus,
            channels: Vec::new(),
        };
        for channel in of.iter().map(|index| &channels[index.0 as usize]) {
            let description = format!("values of {} that came late", channel.name);
            let mut name = format!("{}_late", channel.source_name);
            while by_name.get(name.as_str()).is_some_and(|other| other.description != description) {
                name.push_str("_late");
            }
            spec.channels.push(ChannelSpec {
                unit: channel.unit.clone(),
                description,
                ..ChannelSpec::new(name, channel.channel_type)
            });
        }
        let (_, found) = self.resolve(&spec, true, now)?;
        // If a channel is new, the reducer is, too.
        if let Some(reducer) = self.streams[id].reducer.as_mut() {
            reducer.late.retain(|(channel, _)| of.binary_search(channel).is_err());
            reducer.late.extend(of.iter().copied().zip(found));
            reducer.late.sort_unstable();
        }
        Ok(())
    }

    /// Judges the scratch row of a stream with reductions. Returns true if it is held and gets no row. Otherwise its
    /// row keeps only what must be stored, and the held frame's row precedes it if that ends a line.
    #[inline(never)]
    pub(crate) fn reduce(&mut self, frame: &FrameRef<'_>, now: i64) -> bool {
        let head = frame.head();
        let id = head.stream.0;
        let stream = &mut self.streams[id];
        let time = time_of(&head, stream.source_clock);
        let shape = stream.shape.clone();
        let Some(mut reducer) = stream.reducer.take() else { return false };
        let mut row = std::mem::take(&mut self.scratch);
        if reducer.is_late(time) || is_future(&head, stream.source_clock, self.max_future_ns) {
            // The frame has no value of a channel with a reduction, and takes the row that the held frame was to get:
            // store that first.
            self.store_held(id, &mut reducer, now, |_| true);
            self.scratch = row;
            self.streams[id].reducer = Some(reducer);
            return false;
        }
        if stream.source_clock && head.sequence.is_none() {
            if reducer.recent.len() == RECENT_MAX {
                reducer.recent.pop_front();
            }
            reducer.recent.push_back(hash_of(frame, time));
        }
        // Store the held frame first if this one could not be read back without it.
        let ends = |lane: &LossyChannel| {
            lane.needs_held(Offer::of(&shape, &row.words, &row.text, lane.channel, lane.field), time)
        };
        if reducer.held.is_some() && (reducer.recovered || reducer.lanes.iter().any(ends)) {
            let ending: Vec<bool> = reducer.lanes.iter().map(|lane| reducer.recovered || ends(lane)).collect();
            self.store_held(id, &mut reducer, now, |lane| ending[lane]);
        }
        let mut leaves = std::mem::take(&mut reducer.leaves);
        leaves.clear();
        for lane in &mut reducer.lanes {
            let offer = Offer::of(&shape, &row.words, &row.text, lane.channel, lane.field);
            leaves.push(offer != Offer::Absent && lane.leaves_out(offer, time));
        }
        let offered =
            |lane: &LossyChannel| Offer::of(&shape, &row.words, &row.text, lane.channel, lane.field) != Offer::Absent;
        let outside = reducer.lanes.iter().zip(&leaves).any(|(lane, leaves)| !leaves && offered(lane));
        // Hold no more than the log can keep room for.
        let crowded = || {
            let size = held::record_bytes(row.words.len(), row.text.len());
            reducer.held.is_none() && self.unit.is_crowded(size)
        };
        let plain = reducer.has_plain(&shape, &row.words);
        let store = outside || plain || !leaves.contains(&true) || crowded();
        reducer.newest = time;
        if store {
            let ordinal = self.streams[id].next_row;
            let mut cut_text = false;
            for (lane, leaves) in reducer.lanes.iter_mut().zip(&leaves) {
                let offer = Offer::of(&shape, &row.words, &row.text, lane.channel, lane.field);
                if *leaves && !lane.joins(ordinal) {
                    cut_text |= matches!(offer, Offer::Value(_, text) if !text.is_empty());
                    row.leave_out(&shape, lane.channel);
                } else {
                    lane.store(offer, time, ordinal);
                }
            }
            if cut_text {
                row.compact_text(&shape);
            }
            self.drop_held(id, &mut reducer);
        } else {
            let stream = &mut self.streams[id];
            stream.counts.reduced += 1;
            reducer.note_left_out(self.unit.number(), time);
            let held = Arc::new(Held {
                row: stream.next_row,
                shape,
                shape_number: stream.shape_number,
                source_clock: stream.source_clock,
                words: row.words.as_slice().into(),
                text: row.text.as_slice().into(),
            });
            self.hold(id, &mut reducer, held);
        }
        (self.scratch, reducer.leaves) = (row, leaves);
        self.streams[id].reducer = Some(reducer);
        !store
    }

    /// Holds a frame: shows it to readers, and puts its record into the pending unit.
    fn hold(&mut self, id: u32, reducer: &mut Reducer, held: Arc<Held>) {
        let commit = self.unit.number();
        let at = reducer.written.filter(|(of, _)| *of == commit).map(|(_, at)| at);
        if !mutant::is_active(Mutant::ForgetHeld) {
            let written = self.unit.put_held(id, &held, at);
            reducer.written = Some((commit, written));
        }
        let head = self.unit.head();
        let records = &mut self.unit.held;
        if let Some(before) = &reducer.held {
            records.give_up_room(before);
        }
        records.keep_room(&held);
        if reducer.logged != Some(head) {
            // The commit before the one under way may not be durable yet.
            while let Some((position, _)) = reducer.before.pop_front_if(|(_, until)| *until + 2 <= commit) {
                records.forget(id, position);
            }
            reducer.before.extend(reducer.logged.map(|position| (position, commit)));
        }
        records.place(id, head, reducer.logged, commit);
        reducer.logged = Some(head);
        self.streams[id].slot.held.store(Some(held.clone()));
        (reducer.held, reducer.recovered) = (Some(held), false);
    }

    /// Drops the held frame. Its record is needed until the commit under way is durable.
    fn drop_held(&mut self, id: u32, reducer: &mut Reducer) {
        let Some(held) = reducer.held.take() else { return };
        reducer.recovered = false;
        // The record of the next one goes behind the rows and the shape that are written until then.
        reducer.written = None;
        self.unit.held.give_up_room(&held);
        if let Some(position) = reducer.logged {
            self.unit.held.replace(id, position, self.unit.number());
        }
    }

    /// Gives the held frame its row. Lanes for which `ends` is true, or that are old, keep their values; the others are
    /// unchanged.
    fn store_held(&mut self, id: u32, reducer: &mut Reducer, now: i64, ends: impl Fn(usize) -> bool) {
        let Some(held) = reducer.held.clone() else { return };
        let recovered = reducer.recovered;
        let (time, ordinal) = (held.time(), self.streams[id].next_row);
        let mut row = std::mem::take(&mut reducer.row);
        row.words.clear();
        row.words.extend_from_slice(&held.words);
        row.text.clear();
        row.text.extend_from_slice(&held.text);
        row.points = held.points();
        // A frame of the log may be older than the shape in a checkpoint, and the lanes know only the fields of the
        // latter. Such a frame is stored whole. No lane has stored anything yet, so the next values offered are stored,
        // too.
        let same_shape = held.shape_number == self.streams[id].shape_number;
        for (n, lane) in reducer.lanes.iter_mut().enumerate().filter(|_| same_shape) {
            let offer = Offer::of(&held.shape, &held.words, &held.text, lane.channel, lane.field);
            if ends(n) || lane.is_old(ordinal) {
                lane.store(offer, time, ordinal);
            } else if offer != Offer::Absent {
                row.leave_out(&held.shape, lane.channel);
            }
        }
        row.compact_text(&held.shape);
        let points = u64::from(row.points);
        std::mem::swap(&mut self.scratch, &mut row);
        let text = self.scratch.text.len();
        let size = record::frame_bytes(self.scratch.words.len(), text);
        debug_assert!(size <= held.record_bytes(), "a row of a held frame needs the room kept for it");
        let mut words = std::mem::take(&mut self.scratch.words);
        let mut texts = std::mem::take(&mut self.scratch.text);
        let dirty = &mut self.streams[id].dirty;
        self.unit.put_frame((id, held.shape_number), (ordinal, held.source_clock), (&words, &texts), dirty);
        self.restore(id, (held.shape_number, held.source_clock), &mut words, &mut texts, now);
        std::mem::swap(&mut self.scratch, &mut row);
        reducer.row = row;
        let stream = &mut self.streams[id];
        if recovered {
            reducer.uncounted = Some(ordinal);
        } else {
            reducer.note_stored();
            stream.counts.reduced = stream.counts.reduced.saturating_sub(1);
            stream.counts.stored += 1;
            stream.counts.points += points;
        }
        self.drop_held(id, reducer);
    }

    /// Gives the held frame of a stream its row, as it is. Returns false if the log has no room for it and `reserve`.
    pub(crate) fn flush_held(&mut self, id: u32, reserve: u64, now: i64) -> bool {
        let Some(stream) = self.streams.get(id) else { return true };
        let Some(held) = stream.reducer.as_ref().and_then(|r| r.held.clone()) else { return true };
        if !self.unit.fits(held.record_bytes(), reserve) {
            return false;
        }
        let Some(mut reducer) = self.streams[id].reducer.take() else { return true };
        self.store_held(id, &mut reducer, now, |_| true);
        self.streams[id].reducer = Some(reducer);
        true
    }

    /// Gives every held frame its row, for a clean end. Those that find no room stay in the log.
    pub(crate) fn flush_all_held(&mut self, now: i64) {
        for id in 0..self.streams.len() {
            if !self.flush_held(id, 0, now) {
                return;
            }
        }
    }

    /// Restores a held frame from the log; it is valid if no row follows.
    ///
    /// # Errors
    /// If a field is cut, or the record does not fit what came before.
    pub(crate) fn restore_held(&mut self, t: &mut Cursor<'_>) -> Result<(), RecordError> {
        let head = HeldHead::read(t)?;
        let shape = self.streams.shape_of(head.stream, head.shape_number)?;
        let stream = self.streams.known(head.stream)?;
        let source_clock = record::is_source_clock(head.clock)?.unwrap_or(stream.source_clock);
        let held = Held::read(head, shape, source_clock, t)?;
        if held.shape.has_sequence {
            stream.restore_sequence(&held.words, held.row, source_clock, false);
        }
        // The definition that gives a stream its first reduction precedes its first held frame in the log, and no
        // definition takes the last one away. Nothing is held for a stream without any, as only a forged log has it.
        if let Some(reducer) = &mut stream.reducer {
            reducer.held = Some(Arc::new(held));
            reducer.recovered = true;
            reducer.logged = Some(self.unit.head());
        }
        Ok(())
    }

    /// Returns the bytes of the rows of the valid held frames found in the log.
    pub(crate) fn found_held_bytes(&self) -> usize {
        let of = |(_, stream): (u32, &StreamWriter)| {
            let held = stream.reducer.as_ref()?.held.as_ref()?;
            (held.row == stream.next_row).then(|| held.record_bytes())
        };
        self.streams.iter().filter_map(of).sum()
    }

    /// Decides, after the log was read, which held frames are valid, and sets the newest `time` of each stream.
    pub(super) fn settle_held(&mut self, now: i64) {
        let latest = now.saturating_add(self.max_future_ns);
        for (id, stream) in self.streams.iter_mut() {
            let Some(reducer) = &mut stream.reducer else { continue };
            // A row whose clock ran ahead must not make the rows to come late.
            reducer.newest = stream.slot.newest_time().min(latest);
            reducer.held = reducer.held.take().filter(|held| held.row == stream.next_row);
            reducer.recovered = reducer.held.is_some();
            match (&reducer.held, reducer.logged) {
                (Some(held), Some(position)) => {
                    reducer.newest = reducer.newest.max(held.time());
                    self.unit.held.keep_room(held);
                    self.unit.held.place(id, position, None, 0);
                    stream.slot.held.store(Some(held.clone()));
                }
                _ => reducer.logged = None,
            }
        }
    }
}

impl RowScratch {
    /// Marks a cell as unchanged: its value is within its bound.
    fn leave_out(&mut self, shape: &RowShape, channel: usize) {
        self.set_state(shape, channel, CellState::Unchanged as u8);
    }
}
