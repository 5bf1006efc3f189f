//! A subscription: which channels it wants, and what it has gathered since its last update.
//!
//! The ingest side adds frames under a short lock; the connection swaps full windows against empty ones and
//! writes JSON outside it. Between two updates everything is merged into one window a stream, so a slow
//! client costs no more memory than a fast one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use strongback_store::{
    CellState, ChannelId, ChannelIndex, ChannelType, Clock, FrameRef, Pattern, Stream, StreamId, StreamKey, Value,
};
use tokio::sync::Notify;

use super::pace::Pace;
use super::place::{Place, Round};
use super::window::StreamWindow;
use crate::json;

/// Channel patterns of one subscription, those without wildcards found by name.
#[derive(Debug, Default)]
pub struct PatternSet {
    /// Patterns by the exact `table.channel` they name.
    exact: HashMap<String, Vec<(usize, Pattern)>>,
    globs: Vec<(usize, Pattern)>,
    texts: Vec<String>,
}

impl PatternSet {
    /// Parses patterns.
    ///
    /// # Errors
    /// The first one that is none.
    pub fn parse(texts: Vec<String>) -> Result<PatternSet, strongback_store::PatternError> {
        let mut set = PatternSet::default();
        for (i, text) in texts.iter().enumerate() {
            let pattern = Pattern::parse(text)?;
            let name = text.split('{').next().unwrap_or_default();
            if name.contains(['*', '?', '\\']) || text.contains("}.") {
                set.globs.push((i, pattern));
            } else {
                set.exact.entry(name.to_owned()).or_default().push((i, pattern));
            }
        }
        set.texts = texts;
        Ok(set)
    }

    /// How many patterns need a comparison with each channel.
    pub fn globs(&self) -> usize {
        self.globs.len()
    }

    /// Their bytes.
    pub fn glob_bytes(&self) -> usize {
        self.globs.iter().map(|(_, pattern)| pattern.as_str().len()).sum()
    }

    /// Whether a channel matches; marks each pattern that does in `used`, if given.
    pub fn matches(&self, key: &StreamKey, channel: &str, used: Option<&mut Vec<bool>>) -> bool {
        let mut hits = Vec::new();
        if !self.exact.is_empty() {
            let name = format!("{}.{channel}", key.table);
            let named = self.exact.get(&name).into_iter().flatten();
            hits.extend(named.filter(|(_, p)| p.matches(key, channel)).map(|(i, _)| *i));
        }
        let Some(used) = used else {
            return !hits.is_empty() || self.globs.iter().any(|(_, p)| p.matches(key, channel));
        };
        hits.extend(self.globs.iter().filter(|(_, p)| p.matches(key, channel)).map(|(i, _)| *i));
        for i in &hits {
            used[*i] = true;
        }
        !hits.is_empty()
    }

    /// The patterns that are not marked.
    pub fn unused(&self, used: &[bool]) -> Vec<&str> {
        self.texts.iter().zip(used).filter(|(_, used)| !**used).map(|(text, _)| text.as_str()).collect()
    }

    /// An empty marking for [`PatternSet::matches`].
    pub fn marks(&self) -> Vec<bool> {
        vec![false; self.texts.len()]
    }
}

/// One stream of a subscription.
#[derive(Debug)]
pub struct Slot {
    /// The stream.
    pub stream: StreamId,
    clock: Clock,
    /// Place in `channels` by channel index of the layout; `NONE` if not wanted.
    places: Vec<u32>,
    /// Channels wanted.
    pub channels: Vec<(ChannelId, ChannelType)>,
    /// Their indexes in the layout.
    indexes: Vec<ChannelIndex>,
    /// Row after the last that the client was told of.
    pub told_row: u64,
    /// Of a playback: the place behind which the window begins while it is held.
    since: Place,
    /// Whether the client knows of the stream.
    announced: bool,
    /// No update leaves while what precedes it is still being read.
    pub held: bool,
    dirty: bool,
    window: StreamWindow,
}

const NONE: u32 = u32::MAX;

impl Slot {
    /// Adds one frame without its cells.
    fn begin(&mut self, frame: &Arrived) {
        let window = &mut self.window;
        window.begin(frame.time, frame.receive_time, frame.row);
        window.gap |= frame.gap;
        if window.channels.len() < self.channels.len() {
            window.channels.resize_with(self.channels.len(), Default::default);
        }
    }

    /// Adds a frame whose cells stand where the layout has them: only those that are wanted are looked at.
    fn add_in_place(&mut self, frame: &Arrived, cells: &FrameRef<'_>) {
        self.begin(frame);
        for (channel, index) in self.window.channels.iter_mut().zip(&self.indexes) {
            if let Some((_, Ok(value))) = cells.cell(index.0 as usize) {
                channel.add(value);
            }
        }
    }

    /// Adds the cells of one frame.
    fn add<'a>(&mut self, frame: &Arrived, cells: impl Iterator<Item = (ChannelIndex, Result<Value<'a>, CellState>)>) {
        self.begin(frame);
        let window = &mut self.window;
        for (index, cell) in cells {
            let place = self.places.get(index.0 as usize).copied().unwrap_or(NONE);
            if let (Some(channel), Ok(value)) = (window.channels.get_mut(place as usize), cell) {
                channel.add(value);
            }
        }
    }

    /// Takes over the layout of a stream, whose channels at `wanted` are new to the subscription.
    fn grow(&mut self, stream: &Stream, wanted: &[u16]) {
        let known = self.places.len();
        self.places.resize(stream.layout.channels.len().max(known), NONE);
        for (place, channel) in self.places.iter().zip(&stream.layout.channels).take(known) {
            if let Some(wanted) = self.channels.get_mut(*place as usize) {
                // Types widen.
                wanted.1 = channel.channel_type;
            }
        }
        for &index in wanted {
            let channel = &stream.layout.channels[index as usize];
            self.places[index as usize] = self.channels.len() as u32;
            self.channels.push((channel.id, channel.channel_type));
            self.indexes.push(ChannelIndex(index));
        }
    }
}

/// A frame on its way into windows, without its cells.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// `time`, nanoseconds since 1970 UTC.
    pub time: i64,
    /// `receive_time`, likewise.
    pub receive_time: i64,
    /// Its row, if it was stored.
    pub row: Option<u64>,
    /// Whether frames are known missing before it.
    pub gap: bool,
}

/// A frame that was just appended.
#[derive(Clone, Copy, Debug)]
pub struct Fresh<'a> {
    /// It.
    pub frame: FrameRef<'a>,
    /// Whether its cells stand where the layout has them: [`FrameRef::is_in_place`].
    pub in_place: bool,
    /// Its row, if it was stored.
    pub row: Option<u64>,
    /// Whether frames are known missing before it.
    pub gap: bool,
}

/// What waits for the connection.
#[derive(Debug, Default)]
pub struct Pending {
    /// Streams of the subscription.
    pub slots: Vec<Slot>,
    by_stream: HashMap<StreamId, u32>,
    dirty: Vec<u32>,
    woken: bool,
    /// Epoch of the rows in the windows.
    pub epoch: u32,
    /// Of a playback: that of what is in the windows.
    pub round: Round,
    /// Updates that a jump took away before the client had them, not yet told.
    pub dropped: u64,
    /// Whether what waits leaves at once, whatever the rate.
    hurried: bool,
    /// Streams whose rows went back, and to which row: the client is told before anything else.
    pub rewound: Vec<(StreamId, u64)>,
    pace: Pace,
}

/// A live subscription of one connection.
#[derive(Debug)]
pub struct Subscription {
    /// The client's number for it.
    pub id: i64,
    /// What it asked for.
    pub patterns: PatternSet,
    pending: Mutex<Pending>,
    /// How many channels of each stream were compared with the patterns, by stream id.
    compared: Mutex<Vec<u16>>,
    wake: Arc<Notify>,
}

/// Channels of a stream that match a subscription and are new to it.
#[derive(Debug)]
pub struct Match {
    /// The stream as matched.
    pub stream: Arc<Stream>,
    /// Indexes of its channels.
    pub channels: Vec<u16>,
    /// Place of the stream in the subscription, once adopted.
    pub slot: u32,
    /// Whether the stream is new to the subscription.
    pub new_stream: bool,
    /// Where the tail begins: rows from here on reach the subscription's windows.
    pub start_row: u64,
    /// Of a playback: rows of this `time` or later reach them, nanoseconds since 1970 UTC.
    pub end_time: i64,
}

/// A stream of a playback that is held.
#[derive(Debug)]
pub struct Held {
    /// Its place in the subscription.
    pub slot: u32,
    /// The stream.
    pub stream: StreamId,
    /// The place behind which its window begins.
    pub since: Place,
    /// Its channels that are wanted.
    pub channels: Vec<(ChannelIndex, ChannelId)>,
}

impl Subscription {
    /// A subscription that gathers nothing yet.
    pub fn new(id: i64, patterns: PatternSet, wake: Arc<Notify>, epoch: u32) -> Self {
        let pending = Mutex::new(Pending { epoch, ..Pending::default() });
        Subscription { id, patterns, pending, compared: Mutex::default(), wake }
    }

    /// What waits; hold the lock for moments only.
    pub fn pending(&self) -> parking_lot::MutexGuard<'_, Pending> {
        self.pending.lock()
    }

    /// The channels of a stream that match and that were not compared before. Only the connection that owns
    /// the subscription calls it, one call at a time, so what it finds stays true until it adopts.
    pub fn find(&self, stream: &Arc<Stream>, mut used: Option<&mut Vec<bool>>) -> Option<Match> {
        let all = stream.layout.channels.len();
        let at = stream.id.0 as usize;
        let compared = {
            let mut compared = self.compared.lock();
            if compared.len() <= at {
                compared.resize(at + 1, 0);
            }
            std::mem::replace(&mut compared[at], all as u16) as usize
        };
        let channels: Vec<u16> = (compared..all)
            .filter(|i| self.patterns.matches(&stream.key, &stream.layout.channels[*i].name, used.as_deref_mut()))
            .map(|i| i as u16)
            .collect();
        if channels.is_empty() {
            return None;
        }
        let slot = self.pending.lock().by_stream.get(&stream.id).copied();
        Some(Match {
            stream: stream.clone(),
            channels,
            slot: slot.unwrap_or(NONE),
            new_stream: slot.is_none(),
            start_row: 0,
            end_time: i64::MAX,
        })
    }

    /// Adds what was found. Called under the fan-out's lock, so that `start_row`, the stream's next row, is
    /// exactly where the windows begin. Held streams gather, and their updates leave after
    /// [`Subscription::release`].
    pub fn adopt(&self, found: &mut Match, start_row: u64, hold: bool) {
        found.start_row = start_row;
        self.take_in(found, start_row, Place::START, hold);
    }

    /// As [`Subscription::adopt`], of a playback that stands at a place: what is played after it reaches the windows.
    pub fn adopt_at(&self, found: &mut Match, place: Place) {
        (found.start_row, found.end_time) = (u64::MAX, place.last_time_of(found.stream.id).saturating_add(1));
        self.take_in(found, 0, place, true);
    }

    fn take_in(&self, found: &mut Match, told_row: u64, since: Place, hold: bool) {
        let mut pending = self.pending.lock();
        let pending = &mut *pending;
        if found.new_stream {
            found.slot = pending.slots.len() as u32;
            pending.by_stream.insert(found.stream.id, found.slot);
            pending.slots.push(Slot {
                stream: found.stream.id,
                clock: found.stream.clock,
                places: Vec::new(),
                channels: Vec::new(),
                indexes: Vec::new(),
                told_row,
                since,
                announced: false,
                held: false,
                dirty: false,
                window: StreamWindow::default(),
            });
        }
        let slot = &mut pending.slots[found.slot as usize];
        slot.grow(&found.stream, &found.channels);
        slot.held |= hold;
    }

    /// Of a playback: its streams, and the channels of each that are wanted.
    pub fn wants(&self, mut each: impl FnMut(StreamId, &mut dyn Iterator<Item = ChannelIndex>)) {
        for slot in &self.pending.lock().slots {
            let wanted = |(index, place): (usize, &u32)| (*place != NONE).then_some(ChannelIndex(index as u16));
            each(slot.stream, &mut slot.places.iter().enumerate().filter_map(wanted));
        }
    }

    /// Of a playback: streams that are held, and what the client must know of them before they are let go.
    pub fn held(&self) -> (Round, Vec<Held>) {
        let pending = self.pending.lock();
        let of = |(at, slot): (usize, &Slot)| Held {
            slot: at as u32,
            stream: slot.stream,
            since: slot.since,
            channels: (0..).zip(&slot.places).filter(|(_, place)| **place != NONE).fold(
                Vec::with_capacity(slot.channels.len()),
                |mut channels, (index, place)| {
                    channels.push((ChannelIndex(index), slot.channels[*place as usize].0));
                    channels
                },
            ),
        };
        (pending.round, pending.slots.iter().enumerate().filter(|(_, slot)| slot.held).map(of).collect())
    }

    /// A playback jumps to a place: what was gathered is not part of what comes, which is held until the client was
    /// told. `lost` says whether windows that wait count as dropped.
    pub fn begin_round(&self, round: Round, place: Place, lost: bool) {
        let mut pending = self.pending.lock();
        let pending = &mut *pending;
        (pending.round, pending.hurried) = (round, false);
        pending.dropped += u64::from(lost && !pending.dirty.is_empty());
        pending.dirty.clear();
        for slot in &mut pending.slots {
            slot.window.clear();
            (slot.held, slot.dirty, slot.since) = (true, false, place);
        }
    }

    /// Lets what waits go at once. Whether anything waits: of streams that are held, until the client was told.
    pub fn hurry(&self) -> bool {
        let mut pending = self.pending.lock();
        let waits = !pending.dirty.is_empty();
        let can_go = pending.dirty.iter().any(|at| !pending.slots[*at as usize].held);
        pending.hurried = waits;
        drop(pending);
        if can_go {
            self.wake.notify_one();
        }
        waits
    }

    /// Takes over widened types of a stream whose channels it has.
    pub fn refresh(&self, stream: &Stream) {
        let mut pending = self.pending.lock();
        let pending = &mut *pending;
        if let Some(&at) = pending.by_stream.get(&stream.id) {
            pending.slots[at as usize].grow(stream, &[]);
        }
    }

    /// Where a channel stands in the windows of its stream.
    pub fn place(&self, slot: u32, channel: u16) -> Option<usize> {
        let pending = self.pending.lock();
        let place = *pending.slots.get(slot as usize)?.places.get(channel as usize)?;
        (place != NONE).then_some(place as usize)
    }

    /// Lets the updates of held streams go, unless a playback jumped since `round`.
    pub fn release(&self, slots: impl IntoIterator<Item = u32>, round: Round) {
        let mut pending = self.pending.lock();
        if pending.round != round {
            return;
        }
        for at in slots {
            let slot = &mut pending.slots[at as usize];
            (slot.held, slot.announced) = (false, true);
        }
        let wake = !pending.dirty.is_empty() && !std::mem::replace(&mut pending.woken, true);
        drop(pending);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Adds a frame of one of its streams. Called under the fan-out's lock, in row order.
    pub fn add(&self, slot: u32, fresh: &Fresh<'_>, now: i64) {
        let head = fresh.frame.head();
        let mut pending = self.pending.lock();
        let at = &mut pending.slots[slot as usize];
        let time = match at.clock {
            Clock::Source => head.source_time.unwrap_or(head.receive_time),
            Clock::Receive => head.receive_time,
        };
        let arrived = Arrived { time, receive_time: head.receive_time, row: fresh.row, gap: fresh.gap };
        if fresh.in_place {
            at.add_in_place(&arrived, &fresh.frame);
        } else {
            at.add(&arrived, fresh.frame.cells());
        }
        self.added(&mut pending, slot, now);
    }

    /// Adds a frame that is played. Called under the fan-out's lock, in the order of playing.
    pub fn play<'a>(
        &self,
        slot: u32,
        frame: &Arrived,
        cells: impl Iterator<Item = (ChannelIndex, Result<Value<'a>, CellState>)>,
        now: i64,
    ) {
        let mut pending = self.pending.lock();
        pending.slots[slot as usize].add(frame, cells);
        self.added(&mut pending, slot, now);
    }

    fn added(&self, pending: &mut Pending, slot: u32, now: i64) {
        let at = &mut pending.slots[slot as usize];
        if !at.dirty {
            at.dirty = true;
            pending.dirty.push(slot);
        }
        pending.pace.frame(now);
        if !at.held && !std::mem::replace(&mut pending.woken, true) {
            self.wake.notify_one();
        }
    }

    /// Puts what was read from the store in front of a held stream's window: what a stream or channel had
    /// before it was matched. `epoch` is that of what was read.
    pub fn put_before(&self, slot: u32, mut earlier: StreamWindow, epoch: u32) {
        let mut pending = self.pending.lock();
        let pending = &mut *pending;
        let at = &mut pending.slots[slot as usize];
        if epoch != pending.epoch {
            // The store was reopened meanwhile, and some of it went back.
            earlier.rewind(at.told_row);
        }
        let later = std::mem::replace(&mut at.window, earlier);
        at.window.append(&later);
        if !at.dirty && !at.window.is_empty() {
            at.dirty = true;
            pending.dirty.push(slot);
        }
    }

    /// The store was reopened: rows at and above those of `next_row` are void.
    pub fn rewind(&self, epoch: u32, next_row: impl Fn(StreamId) -> u64) {
        let mut pending = self.pending.lock();
        let pending = &mut *pending;
        pending.epoch = epoch;
        for slot in &mut pending.slots {
            let next = next_row(slot.stream);
            slot.window.rewind(next);
            if slot.told_row > next {
                pending.rewound.push((slot.stream, next));
                slot.told_row = next;
            }
        }
        if !pending.rewound.is_empty() && !std::mem::replace(&mut pending.woken, true) {
            self.wake.notify_one();
        }
    }

    /// The epoch, and of each stream that the client knows of the row below which it was told all. A stream that it
    /// does not know of yet is left out: its first rows are still to come.
    pub fn position(&self) -> (u32, Vec<(StreamId, u64)>) {
        let pending = self.pending.lock();
        let known = pending.slots.iter().filter(|slot| slot.announced);
        let row = |slot: &Slot| slot.window.rows.map_or(slot.told_row, |(from, _)| from.min(slot.told_row));
        (pending.epoch, known.map(|slot| (slot.stream, row(slot))).collect())
    }

    /// Whether anything waits.
    pub fn is_dirty(&self) -> bool {
        let pending = self.pending.lock();
        !pending.dirty.is_empty() || !pending.rewound.is_empty()
    }

    /// Takes what is due, or says when to look again. Until then frames wake nobody, unless it waits for them.
    pub fn take_due(&self, turn: &Turn, into: &mut Taken) -> Due {
        let mut pending = self.pending.lock();
        let pending = &mut *pending;
        let waits = !pending.rewound.is_empty() || pending.dirty.iter().any(|at| !pending.slots[*at as usize].held);
        if turn.overdue_ns < 0 && !(waits && pending.hurried) && (waits || turn.paced_ns.is_some()) {
            return Due::AtItsTime;
        }
        if !waits {
            pending.woken = false;
            return Due::Nothing;
        }
        if let (Some(period_ns), false, true) = (turn.paced_ns, pending.hurried, pending.rewound.is_empty())
            && let Some(until) = pending.pace.wait_until(turn.now, turn.overdue_ns, period_ns)
        {
            pending.woken = false;
            return Due::After(Duration::from_nanos(until.saturating_sub(turn.now).max(0) as u64));
        }
        pending.take(into);
        pending.woken = turn.paced_ns.is_some();
        Due::Now
    }

    /// Whether what waits leaves at once.
    #[cfg(test)]
    pub fn is_hurried(&self) -> bool {
        self.pending.lock().hurried
    }

    /// Takes what waits, due or not.
    #[cfg(test)]
    pub fn take(&self, into: &mut Taken) {
        let mut pending = self.pending.lock();
        pending.take(into);
        pending.woken = false;
    }
}

impl Pending {
    /// Swaps the full windows against the cleared ones of `into`, whose places are those of the slots.
    fn take(&mut self, into: &mut Taken) {
        self.hurried = false;
        into.dropped = std::mem::take(&mut self.dropped);
        into.epoch = self.epoch;
        into.rewound.append(&mut self.rewound);
        into.filled.clear();
        if into.windows.len() < self.slots.len() {
            into.windows.resize_with(self.slots.len(), Default::default);
        }
        let slots = &mut self.slots;
        self.dirty.retain(|&at| {
            let slot = &mut slots[at as usize];
            if slot.held {
                return true;
            }
            slot.dirty = false;
            let place = &mut into.windows[at as usize];
            std::mem::swap(&mut place.window, &mut slot.window);
            place.channels.clear();
            place.channels.extend_from_slice(&slot.channels);
            place.stream = slot.stream;
            if let Some((_, to)) = place.window.rows {
                slot.told_row = slot.told_row.max(to);
            }
            into.filled.push(at);
            false
        });
    }
}

/// Where a subscription stands in its rhythm.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The server's clock, nanoseconds since 1970 UTC.
    pub now: i64,
    /// How long an update has been due, nanoseconds; negative before its time.
    pub overdue_ns: i64,
    /// The time between updates, nanoseconds, if it is long enough to wait for fresh frames.
    pub paced_ns: Option<i64>,
}

/// What a connection does about a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing: the next frame wakes it.
    Nothing,
    /// Look again when an update is due.
    AtItsTime,
    /// Look again after this time, or when a frame wakes it.
    After(Duration),
    /// Send what was taken.
    Now,
}

/// Windows on their way to the client. Reused between updates.
#[derive(Debug, Default)]
pub struct Taken {
    windows: Vec<TakenWindow>,
    filled: Vec<u32>,
    epoch: u32,
    /// Updates that a jump of a playback took away.
    pub dropped: u64,
    /// Rewinds to tell first.
    pub rewound: Vec<(StreamId, u64)>,
}

/// What came of one stream.
#[derive(Debug)]
pub struct TakenWindow {
    /// The stream.
    pub stream: StreamId,
    /// What came.
    pub window: StreamWindow,
    /// The channels of the window's places.
    pub channels: Vec<(ChannelId, ChannelType)>,
}

impl Default for TakenWindow {
    fn default() -> Self {
        TakenWindow { stream: StreamId(0), window: StreamWindow::default(), channels: Vec::new() }
    }
}

impl Taken {
    /// Whether there is no window to send.
    pub fn is_empty(&self) -> bool {
        self.filled.is_empty()
    }

    /// Epoch of the rows.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Number of windows.
    pub fn len(&self) -> usize {
        self.filled.len()
    }

    /// The newest `time` in the windows, nanoseconds since 1970 UTC.
    pub fn newest(&self) -> Option<i64> {
        self.filled.iter().map(|at| self.windows[*at as usize].window.time.1).max()
    }

    /// Appends the `streams` array of an update in JSON and clears the windows.
    pub fn write_streams(&mut self, out: &mut Vec<u8>, committed: impl Fn(StreamId) -> u64) {
        out.push(b'[');
        let mut first = true;
        self.drain(|place| {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            write_window(out, place, committed(place.stream));
        });
        out.push(b']');
    }

    /// Of these windows.
    #[cfg(test)]
    pub(super) fn of(epoch: u32, windows: Vec<TakenWindow>) -> Taken {
        Taken { filled: (0..windows.len() as u32).collect(), windows, epoch, ..Taken::default() }
    }

    /// Hands over each window, then clears it.
    pub fn drain(&mut self, mut tell: impl FnMut(&TakenWindow)) {
        for at in self.filled.drain(..) {
            let place = &mut self.windows[at as usize];
            tell(place);
            place.window.clear();
        }
    }
}

fn write_window(out: &mut Vec<u8>, place: &TakenWindow, committed: u64) {
    let window = &place.window;
    out.extend_from_slice(b"{\"stream\":");
    json::push_number(out, place.stream.0 as u64);
    match window.rows {
        Some((from, to)) => {
            out.extend_from_slice(b",\"from_row\":");
            json::push_big(out, from);
            out.extend_from_slice(b",\"to_row\":");
            json::push_big(out, to);
        }
        None => out.extend_from_slice(b",\"from_row\":null,\"to_row\":null"),
    }
    out.extend_from_slice(b",\"committed\":");
    json::push_big(out, committed);
    out.extend_from_slice(if window.recorded { b",\"recorded\":true" } else { b",\"recorded\":false" });
    out.extend_from_slice(b",\"time\":[");
    json::push_big(out, window.time.0);
    out.push(b',');
    json::push_big(out, window.time.1);
    out.extend_from_slice(b"],\"receive_time\":");
    json::push_big(out, window.receive_time);
    out.extend_from_slice(if window.gap { b",\"gap\":true" } else { b",\"gap\":false" });
    out.extend_from_slice(b",\"channels\":[");
    let mut first = true;
    for (channel, (id, channel_type)) in window.channels.iter().zip(&place.channels) {
        if channel.count() == 0 {
            continue;
        }
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        out.push(b'[');
        json::push_number(out, id.0 as u64);
        out.push(b',');
        channel.write(out, *channel_type);
        out.push(b']');
    }
    out.extend_from_slice(b"]}");
}

#[cfg(test)]
mod tests;
