//! Subscriptions: the channels that each wants, and the values since its last update.
//!
//! When an update is due, the connection reads on in the tails of its streams: it takes stream after stream, with a
//! short lock for each, and writes it outside the lock. Updates that it does not collect are merged into one window
//! per stream, so a slow client takes no more memory than a fast one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use strongback_store::{
    CellState, ChannelId, ChannelIndex, FramePosition, Pattern, Steps, Stream, StreamId, StreamList, TooCostly, Value,
};
use tokio::sync::Notify;

use super::pace::Rhythm;
use super::round::Round;
use super::slot::Slot;
use super::tail::{Arrived, Fresh, Tail};
use super::texts::Texts;
use super::unplaced::Unplaced;
use super::window::{StreamWindow, TakenWindow};

/// Channel patterns of one subscription. Those without wildcards are looked up by name.
#[derive(Debug, Default)]
pub struct PatternSet {
    /// Patterns by the exact `table.channel` they name.
    exact: HashMap<String, Vec<(usize, Pattern)>>,
    /// Patterns with wildcards, each once, with its positions among the texts.
    globs: Vec<(Pattern, Vec<usize>)>,
    texts: Vec<String>,
}

impl PatternSet {
    /// Parses patterns.
    ///
    /// # Errors
    /// Returns the error of the first invalid pattern.
    pub fn parse(texts: Vec<String>) -> Result<PatternSet, strongback_store::PatternError> {
        let mut set = PatternSet::default();
        let mut known: HashMap<&str, usize> = HashMap::new();
        for (i, text) in texts.iter().enumerate() {
            let pattern = Pattern::parse(text)?;
            let name = text.split('{').next().unwrap_or_default();
            if name.contains(['*', '?', '\\']) || text.contains("}.") {
                let at = *known.entry(text).or_insert(set.globs.len());
                match set.globs.get_mut(at) {
                    Some((_, places)) => places.push(i),
                    None => set.globs.push((pattern, vec![i])),
                }
            } else {
                set.exact.entry(name.to_owned()).or_default().push((i, pattern));
            }
        }
        set.texts = texts;
        Ok(set)
    }

    /// Returns the number of patterns that must be compared with each channel.
    pub fn globs(&self) -> usize {
        self.globs.len()
    }

    /// Returns the bytes of the patterns with wildcards.
    pub fn glob_bytes(&self) -> usize {
        self.globs.iter().map(|(pattern, _)| pattern.as_str().len()).sum()
    }

    /// Returns the bytes of all its patterns.
    pub fn size_bytes(&self) -> usize {
        self.texts.iter().map(String::len).sum()
    }

    /// Returns the matching channels of a stream, from index `from` on. Marks each matching pattern in `used`, if
    /// given.
    ///
    /// # Errors
    /// Returns an error if the steps are used up.
    fn matching(
        &self,
        stream: &Stream,
        from: usize,
        mut used: Option<&mut Vec<bool>>,
        steps: &mut Steps,
    ) -> Result<Vec<u16>, TooCostly> {
        let key = &stream.key;
        // Tags are the same for all channels of the stream.
        let mut taken = self.globs.len() as u64;
        let globs: Vec<(bool, &(Pattern, Vec<usize>))> =
            self.globs.iter().map(|glob| (glob.0.matches_tags_in(key, &mut taken), glob)).collect();
        steps.take(taken)?;
        let mut found = Vec::new();
        for (index, channel) in stream.layout.channels.iter().enumerate().skip(from) {
            let mut is_found = false;
            if !self.exact.is_empty() {
                let name = format!("{}.{}", key.table, channel.name);
                let named = self.exact.get(&name).into_iter().flatten();
                for (place, _) in named.filter(|(_, pattern)| pattern.matches(key, &channel.name)) {
                    is_found = true;
                    used.iter_mut().for_each(|used| used[*place] = true);
                }
            }
            for (fits, (pattern, places)) in &globs {
                if is_found && used.is_none() {
                    break;
                }
                let mut taken = 1;
                let matches = *fits && pattern.matches_name(key, &channel.name, &mut taken);
                steps.take(taken)?;
                if matches || pattern.names(key, &channel.name) {
                    is_found = true;
                    used.iter_mut().for_each(|used| places.iter().for_each(|place| used[*place] = true));
                }
            }
            if is_found {
                found.push(index as u16);
            }
        }
        Ok(found)
    }

    /// Returns the patterns that are not marked.
    pub fn unused(&self, used: &[bool]) -> Vec<&str> {
        self.texts.iter().zip(used).filter(|(_, used)| !**used).map(|(text, _)| text.as_str()).collect()
    }

    /// Returns an empty marking for [`PatternSet::matches`].
    pub fn marks(&self) -> Vec<bool> {
        vec![false; self.texts.len()]
    }
}

/// Updates pending for the connection.
#[derive(Debug, Default)]
pub struct Pending {
    /// Streams of the subscription.
    pub slots: Vec<Slot>,
    by_stream: HashMap<StreamId, u32>,
    dirty: Vec<u32>,
    /// Epoch of the rows in the windows.
    pub epoch: u32,
    /// Playback only: round of the data in the windows.
    pub round: Round,
    /// Updates discarded by a jump before the client got them, not yet reported.
    pub dropped: u64,
    /// Whether pending updates are sent at once, whatever the rate.
    hurried: bool,
    /// Streams whose rows went back, and to which row. The client is told of these first.
    pub rewound: Vec<(StreamId, u64)>,
    /// Buffer for notifications of tails; empty between polls.
    heard: Vec<(u32, u64)>,
}

/// Notifications of tails since the connection polled. Locked only for moments, so that a thread filling tails does
/// not wait for a connection that reads them.
#[derive(Debug, Default)]
struct TailNews {
    /// Positions of streams that have a frame, with the ends of their tails.
    streams: Vec<(u32, u64)>,
    /// Whether the connection was woken since it went to sleep.
    woken: bool,
    /// Arrival of the first frame since pending updates were last taken, nanoseconds since 1970 UTC.
    since: Option<i64>,
}

/// Live subscription of one connection.
#[derive(Debug)]
pub struct Subscription {
    /// Client's number for the subscription.
    pub id: i64,
    /// Patterns of the wanted channels.
    pub patterns: PatternSet,
    pending: Mutex<Pending>,
    /// Locked after `pending` if both are locked.
    told: Mutex<TailNews>,
    /// Streams already compared with the patterns, with their channels. The next search covers only changes since.
    looked: Mutex<StreamList>,
    /// Matching channels for which there was no room.
    unplaced: Mutex<Unplaced>,
    wake: Arc<Notify>,
}

/// Channels of a stream that match a subscription and are new to it.
#[derive(Clone, Debug)]
pub struct Match {
    /// Stream at the time of the match.
    pub stream: Arc<Stream>,
    /// Indexes of the matching channels.
    pub channels: Vec<u16>,
    /// Position of the stream in the subscription, once adopted.
    pub slot: u32,
    /// Whether the stream is new to the subscription.
    pub new_stream: bool,
    /// Start of the tail: rows from here on reach the subscription's windows.
    pub start_row: u64,
    /// Playback only: start of the tail by `time`, nanoseconds since 1970 UTC.
    pub end_time: i64,
    /// Whether frames are known missing between the row before and the first frame of the tail.
    pub lacks_before: bool,
}

/// Held stream of a playback.
#[derive(Debug)]
pub struct HeldStream {
    /// Position of the stream in the subscription.
    pub slot: u32,
    /// Id of the stream.
    pub stream: StreamId,
    /// Place after which its window begins.
    pub since: FramePosition,
    /// Wanted channels of the stream.
    pub channels: Vec<(ChannelIndex, ChannelId)>,
}

impl Subscription {
    /// Creates a subscription without channels.
    pub fn new(id: i64, patterns: PatternSet, wake: Arc<Notify>, epoch: u32) -> Self {
        let pending = Mutex::new(Pending { epoch, ..Pending::default() });
        let (told, looked, unplaced) = (Mutex::default(), Mutex::default(), Mutex::default());
        Subscription { id, patterns, pending, told, looked, unplaced, wake }
    }

    /// Locks the pending updates; hold the lock for moments only.
    pub fn pending(&self) -> parking_lot::MutexGuard<'_, Pending> {
        self.pending.lock()
    }

    /// Finds matching channels among those that are new since the last search, and extends the windows of streams
    /// that changed. Looks only at streams that changed.
    ///
    /// # Errors
    /// Returns an error if the comparisons take too many steps. Streams skipped then are not searched later.
    pub fn find_new(
        &self,
        streams: &StreamList,
        mut used: Option<&mut Vec<bool>>,
        mut steps: Steps,
    ) -> Result<Vec<Match>, TooCostly> {
        let looked = std::mem::replace(&mut *self.looked.lock(), streams.clone());
        let mut found = Vec::new();
        for stream in streams.changed_since(&looked) {
            let compared = looked.get(stream.id.0 as usize).map_or(0, |before| before.layout.channels.len());
            match self.find(stream, compared, used.as_deref_mut(), &mut steps)? {
                Some(new) => found.push(new),
                None => self.refresh(stream),
            }
        }
        Ok(found)
    }

    /// Keeps matches for which there is no room. Returns whether some could not be kept and the client does not know
    /// yet.
    pub fn keep(&self, left: &[Match]) -> bool {
        // Known channels of these streams may have wider types now.
        left.iter().for_each(|found| self.refresh(&found.stream));
        let mut unplaced = self.unplaced.lock();
        let not_kept = left.iter().filter(|found| !unplaced.keep(&found.stream, &found.channels)).count();
        not_kept > 0 && unplaced.tell_more()
    }

    /// Removes and returns the kept matches, with the streams as they are now.
    pub fn take_kept(&self, streams: &StreamList) -> Vec<Match> {
        let kept = self.unplaced.lock().take(streams);
        kept.into_iter().map(|(stream, channels)| self.match_of(stream, channels)).collect()
    }

    /// Returns the number of channels of the smallest kept match.
    pub fn fewest_kept(&self) -> Option<u64> {
        self.unplaced.lock().fewest()
    }

    /// Returns the matching channels of a stream, except the first `compared` ones, which were compared before.
    /// Called only by the connection that owns the subscription, one call at a time, so the result stays valid until
    /// adopted.
    ///
    /// # Errors
    /// Returns an error if the steps are used up.
    pub fn find(
        &self,
        stream: &Arc<Stream>,
        compared: usize,
        used: Option<&mut Vec<bool>>,
        steps: &mut Steps,
    ) -> Result<Option<Match>, TooCostly> {
        let channels = self.patterns.matching(stream, compared, used, steps)?;
        if channels.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.match_of(stream.clone(), channels)))
    }

    /// Creates a match of channels of a stream that are new to the subscription, as of now.
    pub fn match_of(&self, stream: Arc<Stream>, channels: Vec<u16>) -> Match {
        let slot = self.pending.lock().by_stream.get(&stream.id).copied();
        Match {
            stream,
            channels,
            slot: slot.unwrap_or(u32::MAX),
            new_stream: slot.is_none(),
            start_row: 0,
            end_time: i64::MAX,
            lacks_before: false,
        }
    }

    /// Returns the bytes by which its tables grow with these matches.
    pub fn table_bytes(&self, found: &[Match]) -> usize {
        let pending = self.pending.lock();
        let of = |found: &Match| Slot::table_bytes(pending.slots.get(found.slot as usize), &found.channels);
        found.iter().map(of).sum()
    }

    /// Adds a match. Called under the fan-out's lock, so that `start_row`, the stream's next row, is exactly where
    /// the windows begin; their frames come from `tail`. Held streams gather frames, and their updates are sent after
    /// [`Subscription::release`].
    pub fn adopt(&self, found: &mut Match, start_row: u64, hold: bool, tail: Arc<Tail>) {
        found.start_row = start_row;
        let lacks_before = found.lacks_before;
        self.take_in(found, hold, |stream| {
            let slot = Slot::new(stream, start_row, FramePosition::START, Some(tail));
            slot.lacks_before.set(lacks_before);
            slot
        });
    }

    /// Adds a match as [`Subscription::adopt`] does, in a playback at `place`. Frames played after it reach the
    /// windows.
    pub fn adopt_at(&self, found: &mut Match, place: FramePosition) {
        (found.start_row, found.end_time) = (u64::MAX, place.last_time_of(found.stream.id).saturating_add(1));
        self.take_in(found, true, |stream| Slot::new(stream, 0, place, None));
        // The client gets the state of all channels of the stream, as of now.
        if let Some(slot) = self.pending.lock().slots.get_mut(found.slot as usize) {
            slot.since = place;
        }
    }

    fn take_in(&self, found: &mut Match, hold: bool, new: impl FnOnce(StreamId) -> Slot) {
        let mut pending = self.pending.lock();
        let pending = &mut *pending;
        if found.new_stream {
            found.slot = pending.slots.len() as u32;
            pending.by_stream.insert(found.stream.id, found.slot);
            pending.slots.push(new(found.stream.id));
        }
        let slot = &mut pending.slots[found.slot as usize];
        slot.grow(&found.stream, &found.channels);
        slot.held |= hold;
    }

    /// Calls `each` with each stream of a playback and its wanted channels.
    pub fn wants(&self, mut each: impl FnMut(StreamId, &mut dyn Iterator<Item = ChannelIndex>)) {
        for slot in &self.pending.lock().slots {
            each(slot.stream, &mut slot.wanted().map(|(index, _)| index));
        }
    }

    /// Returns the round of a playback and its held streams, whose state the client needs before they are released.
    pub fn held(&self) -> (Round, Vec<HeldStream>) {
        let pending = self.pending.lock();
        let of = |(at, slot): (usize, &Slot)| HeldStream {
            slot: at as u32,
            stream: slot.stream,
            since: slot.since,
            channels: slot.wanted().collect(),
        };
        (pending.round, pending.slots.iter().enumerate().filter(|(_, slot)| slot.held).map(of).collect())
    }

    /// Begins a round of a playback at `place` after a jump. Discards all windows and holds all streams until the
    /// client has the new state. `lost` tells whether pending windows count as dropped.
    pub fn begin_round(&self, round: Round, place: FramePosition, lost: bool) {
        let mut pending = self.pending.lock();
        let pending = &mut *pending;
        (pending.round, pending.hurried) = (round, false);
        pending.dropped += u64::from(lost && self.has_untaken(pending));
        pending.dirty.clear();
        for slot in &mut pending.slots {
            slot.window.clear();
            (slot.held, slot.dirty, slot.since) = (true, false, place);
        }
    }

    /// Returns whether any stream has frames that the connection has not taken: it may not have heard of them yet, and of
    /// an update that it has begun it takes one stream after the other.
    fn has_untaken(&self, pending: &Pending) -> bool {
        pending.slots.iter().any(|slot| slot.dirty) || !self.told.lock().streams.is_empty()
    }

    /// Sends pending updates at once. Returns whether there are any, including those of held streams, which wait for
    /// release.
    pub fn hurry(&self) -> bool {
        let mut pending = self.pending.lock();
        let waits = self.has_untaken(&pending);
        let is_unheard = !self.told.lock().streams.is_empty();
        let can_go = is_unheard || pending.dirty.iter().any(|at| !pending.slots[*at as usize].held);
        pending.hurried = waits;
        drop(pending);
        if can_go {
            self.wake.notify_one();
        }
        waits
    }

    /// Applies widened types of a stream whose channels it has.
    pub fn refresh(&self, stream: &Stream) {
        let mut pending = self.pending.lock();
        let pending = &mut *pending;
        if let Some(&at) = pending.by_stream.get(&stream.id) {
            pending.slots[at as usize].grow(stream, &[]);
        }
    }

    /// Returns the position of a channel in the windows of its stream.
    pub fn place(&self, slot: u32, channel: u16) -> Option<usize> {
        self.pending.lock().slots.get(slot as usize)?.place(channel)
    }

    /// Releases the updates of held streams, unless a playback jumped since `round`.
    pub fn release(&self, slots: impl IntoIterator<Item = u32>, round: Round) {
        let mut pending = self.pending.lock();
        if pending.round != round {
            return;
        }
        for at in slots {
            let slot = &mut pending.slots[at as usize];
            (slot.held, slot.announced) = (false, true);
        }
        if !pending.dirty.is_empty() {
            self.wake();
        }
    }

    fn wake(&self) {
        if !std::mem::replace(&mut self.told.lock().woken, true) {
            self.wake.notify_one();
        }
    }

    /// Notes that a tail, which now ends at `end`, got the frame for which the stream at a position waited. Called at
    /// `now` under the fan-out's lock.
    pub fn told(&self, slot: u32, end: u64, now: i64) {
        let mut told = self.told.lock();
        told.streams.push((slot, end));
        told.since.get_or_insert(now);
        if !std::mem::replace(&mut told.woken, true) {
            drop(told);
            self.wake.notify_one();
        }
    }

    /// Processes the notifications of tails.
    fn hear(self: &Arc<Self>, pending: &mut Pending) {
        let mut heard = std::mem::take(&mut pending.heard);
        std::mem::swap(&mut self.told.lock().streams, &mut heard);
        for (slot, end) in heard.drain(..) {
            let at = &mut pending.slots[slot as usize];
            at.waiting = false;
            if at.dirty {
                continue;
            }
            if at.next >= end {
                // The frame was already sent with an earlier update.
                at.catch_up(Some((self, slot)));
                if at.window.is_empty() {
                    continue;
                }
            }
            at.dirty = true;
            pending.dirty.push(slot);
        }
        pending.heard = heard;
    }

    /// Notes that pending updates are being taken. Returns when the first of their frames arrived. If `paced`, frames
    /// do not wake the connection until its next due time.
    fn leave(&self, paced: bool) -> Option<i64> {
        let mut told = self.told.lock();
        let since = told.since.take();
        let waits = !told.streams.is_empty();
        told.woken = paced || waits;
        drop(told);
        if waits && !paced {
            self.wake.notify_one();
        }
        since
    }

    /// Returns whether the connection may sleep, as no notification arrived since [`Subscription::hear`].
    fn sleep(&self) -> bool {
        let mut told = self.told.lock();
        told.woken = !told.streams.is_empty();
        !told.woken
    }

    /// Reads to the end of a full tail. Called under the fan-out's lock.
    pub fn catch_up(&self, slot: u32) {
        self.pending.lock().slots[slot as usize].catch_up(None);
    }

    /// Adds a frame that does not fit into a tail. Called under the fan-out's lock, in row order.
    pub fn add(&self, slot: u32, fresh: &Fresh<'_>) {
        let mut pending = self.pending.lock();
        let at = &mut pending.slots[slot as usize];
        at.catch_up(None);
        at.add(fresh);
        self.filled(&mut pending, slot);
    }

    /// Adds a frame of a playback. Called under the fan-out's lock, in playing order.
    pub fn play<'a>(
        &self,
        slot: u32,
        frame: &Arrived,
        cells: (impl Iterator<Item = (ChannelIndex, Result<Value<'a>, CellState>)>, &Texts),
        now: i64,
    ) {
        let mut pending = self.pending.lock();
        let at = &mut pending.slots[slot as usize];
        at.add_cells(frame, cells);
        at.pace.frame(now);
        self.filled(&mut pending, slot);
    }

    fn filled(&self, pending: &mut Pending, slot: u32) {
        let at = &mut pending.slots[slot as usize];
        if !at.dirty {
            at.dirty = true;
            pending.dirty.push(slot);
        }
        if !at.held {
            self.wake();
        }
    }

    /// Puts rows read from the store in front of a held stream's window: what a stream or channel had before it was
    /// matched. `epoch` is that of the rows.
    pub fn put_before(&self, slot: u32, mut earlier: StreamWindow, epoch: u32) {
        let mut pending = self.pending.lock();
        let pending = &mut *pending;
        let at = &mut pending.slots[slot as usize];
        if epoch != pending.epoch {
            // The store was reopened in the meantime, and some of the rows went back.
            earlier.rewind(at.told_row);
        }
        let later = std::mem::replace(&mut at.window, earlier);
        at.window.append(&later);
        if !at.dirty && !at.window.is_empty() {
            at.dirty = true;
            pending.dirty.push(slot);
        }
    }

    /// Applies a reopening of the store: rows at and above those of `next_row` are void.
    pub fn rewind(&self, epoch: u32, next_row: impl Fn(StreamId) -> u64) {
        let mut pending = self.pending.lock();
        let pending = &mut *pending;
        pending.epoch = epoch;
        for slot in &mut pending.slots {
            let next = next_row(slot.stream);
            slot.catch_up(None);
            slot.window.rewind(next);
            if slot.told_row > next {
                pending.rewound.push((slot.stream, next));
                slot.told_row = next;
            }
        }
        if !pending.rewound.is_empty() {
            self.wake();
        }
    }

    /// Returns the epoch and, for each stream that the client knows, the row below which it was told everything.
    /// Streams not yet announced are left out, as their first rows are still to be sent.
    pub fn position(&self) -> (u32, Vec<(StreamId, u64)>) {
        let pending = self.pending.lock();
        let known = pending.slots.iter().filter(|slot| slot.announced);
        let row = |slot: &Slot| slot.window.rows.map_or(slot.told_row, |(from, _)| from.min(slot.told_row));
        (pending.epoch, known.map(|slot| (slot.stream, row(slot))).collect())
    }

    /// Returns whether any update is pending.
    pub fn is_dirty(&self) -> bool {
        let pending = self.pending.lock();
        !pending.dirty.is_empty() || !pending.rewound.is_empty() || !self.told.lock().streams.is_empty()
    }

    /// Begins to take the update if it is due, or returns when to look again. Until then frames do not wake the
    /// connection, unless it waits for them.
    pub fn take_due(self: &Arc<Self>, turn: &UpdateTurn, into: &mut TakenUpdate) -> Due {
        let mut pending = self.pending.lock();
        let pending = &mut *pending;
        loop {
            self.hear(pending);
            let waits = !pending.rewound.is_empty() || pending.dirty.iter().any(|at| !pending.slots[*at as usize].held);
            if turn.overdue_ns < 0 && !(waits && pending.hurried) && (waits || turn.paced_ns.is_some()) {
                return Due::AtItsTime;
            }
            let due = match turn.paced_ns {
                _ if !waits => Due::Nothing,
                Some(period_ns) if !pending.hurried && pending.rewound.is_empty() => {
                    match pending.wait_until(turn, period_ns) {
                        Some(until) => {
                            pending.catch_up(self);
                            Due::After(Duration::from_nanos(until.saturating_sub(turn.now).max(0) as u64))
                        }
                        None => Due::Now,
                    }
                }
                _ => Due::Now,
            };
            if due == Due::Now {
                pending.begin(into);
                let waited_ns = self.leave(turn.paced_ns.is_some()).map_or(0, |since| turn.now.saturating_sub(since));
                into.missed =
                    turn.paced_ns.map_or(0, |period_ns| turn.overdue_ns.min(waited_ns).max(0) / period_ns) as u64;
                return due;
            }
            if self.sleep() {
                return due;
            }
        }
    }

    /// Returns whether pending updates are sent at once.
    #[cfg(test)]
    pub fn is_hurried(&self) -> bool {
        self.pending.lock().hurried
    }

    /// Begins to take pending updates, due or not.
    #[cfg(test)]
    pub fn begin(self: &Arc<Self>, into: &mut TakenUpdate) {
        let mut pending = self.pending.lock();
        self.hear(&mut pending);
        pending.begin(into);
        self.leave(false);
    }

    /// Passes each window of the update begun to `tell`.
    pub fn take(self: &Arc<Self>, taken: &mut TakenUpdate, mut tell: impl FnMut(&TakenWindow)) {
        for at in taken.due.drain(..) {
            let mut pending = self.pending.lock();
            let is_of_before = pending.epoch != taken.epoch;
            let slot = &mut pending.slots[at as usize];
            // In the meantime the slot was held (a playback jumped or channels were added), or the store was
            // reopened; the client must be told of that first.
            if slot.held || !slot.dirty || is_of_before {
                if slot.dirty {
                    pending.dirty.push(at);
                }
                continue;
            }
            slot.take(&mut taken.window, (self, at));
            drop(pending);
            if !taken.window.window.is_empty() {
                tell(&taken.window);
            }
        }
    }
}

impl Pending {
    /// Returns until when pending updates wait for a frame that is about to arrive, or `None` if they do not wait.
    fn wait_until(&self, turn: &UpdateTurn, period_ns: i64) -> Option<i64> {
        let mut until: Option<i64> = None;
        for at in self.dirty.iter().filter(|at| !self.slots[**at as usize].held) {
            match self.slots[*at as usize].pace().rhythm(turn.now, turn.overdue_ns, period_ns) {
                Rhythm::Came => return None,
                Rhythm::Unknown => {}
                Rhythm::Until(time) => until = Some(until.map_or(time, |until| until.min(time))),
            }
        }
        until
    }

    /// Reads on, so that the next frame of a pending stream wakes the connection.
    fn catch_up(&mut self, subscription: &Arc<Subscription>) {
        for at in &self.dirty {
            let slot = &mut self.slots[*at as usize];
            if !slot.held {
                slot.catch_up(Some((subscription, *at)));
            }
        }
    }

    fn begin(&mut self, into: &mut TakenUpdate) {
        self.hurried = false;
        into.dropped += std::mem::take(&mut self.dropped);
        into.epoch = self.epoch;
        into.rewound.append(&mut self.rewound);
        let slots = &self.slots;
        into.due.extend(self.dirty.extract_if(.., |at| !slots[*at as usize].held));
    }
}

/// Timing of a subscription's next update.
#[derive(Clone, Copy, Debug)]
pub struct UpdateTurn {
    /// The server's clock, nanoseconds since 1970 UTC.
    pub now: i64,
    /// Time since an update became due, nanoseconds; negative before.
    pub overdue_ns: i64,
    /// Time between updates, nanoseconds, if it is long enough to wait for fresh frames.
    pub paced_ns: Option<i64>,
}

/// Next action of a connection for a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Sleep; the next frame wakes it.
    Nothing,
    /// Look again when an update is due.
    AtItsTime,
    /// Look again after this time, or when a frame wakes it.
    After(Duration),
    /// Take and send pending updates.
    Now,
}

/// Update on its way to the client. Reused between updates.
#[derive(Debug, Default)]
pub struct TakenUpdate {
    /// Positions of streams whose windows are still to be taken.
    due: Vec<u32>,
    /// Epoch of the rows.
    pub epoch: u32,
    /// Updates discarded by a jump of a playback.
    pub dropped: u64,
    /// Rewinds to report first.
    pub rewound: Vec<(StreamId, u64)>,
    /// Updates that were due and are merged into this one, because the connection was late.
    pub missed: u64,
    /// Window of the stream being sent.
    window: TakenWindow,
}

#[cfg(test)]
mod tests;
