//! Live: the one fan-out of appended frames to subscriptions.
//!
//! ```text
//! sources → Ingest::accept ─ append ─┬─> store
//!                                    └─> Fanout (per-stream index) → Tail of the stream
//!                                                 Tail → Subscription windows → Subscriber → Outlet → client
//! ```
//!
//! Append and fan-out run under one lock, [`Live::fanout`], so every subscription sees the rows of a stream in order,
//! and a snapshot taken after a stream was registered splits history from tail at an exact row. A stream without
//! subscribers costs one index lookup per frame. A stream with many costs little more, because clients gather their
//! windows on their own threads. The lock is never held while JSON is written, blocks are read, or patterns are
//! matched.

pub mod binary;
pub mod cell_notes;
pub mod heartbeat;
pub mod history;
pub mod listed;
pub mod outgoing;
pub mod outlet;
pub mod pace;
pub mod resume;
pub mod round;
pub mod seats;
pub mod slot;
pub mod snapshot;
pub mod subscription;
pub mod sum;
pub mod tail;
pub mod texts;
pub mod unplaced;
pub mod window;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::ws::Utf8Bytes;
use parking_lot::{Mutex, MutexGuard};
use strongback_store::{
    Appended, Batch, ChannelIndex, FrameBatch, FramePosition, Outcome, Reject, Store, Stream, StreamId, View,
};
use tokio::sync::{broadcast, watch};

use crate::process::clock::LEAP_NS;
use crate::reception::arrival::Arrivals;
use crate::reception::tap::Tap;
use crate::reception::value::{InputValue, LimitValue};

use round::Round;
use subscription::{Match, Subscription};
use tail::{Arrived, Fresh, Refusal, Tail, TailReader};
use texts::Texts;

/// Max notices (events and gaps) pending for a client. A client that lags further loses the oldest and is notified.
const NOTICES: usize = 256;

/// Notice to every client: an event or a gap, as the JSON text of its message.
pub type Notice = Utf8Bytes;

/// Live side of the server: fan-out, notices and counters.
#[derive(Debug)]
pub struct Live {
    fanout: Mutex<Fanout>,
    notices: broadcast::Sender<Notice>,
    /// Version of the catalog: when it rises, clients match new channels.
    catalog: watch::Sender<u64>,
    counters: Arc<LiveCounters>,
    /// Playback only: the current round, sent on each jump.
    rounds: watch::Sender<Round>,
    /// Playback only: the reason why it ended; `None` while it runs.
    over: watch::Sender<Option<String>>,
}

/// Counters of the live side since start.
#[derive(Debug, Default)]
pub struct LiveCounters {
    /// Connected clients.
    pub clients: AtomicU64,
    /// Subscriptions.
    pub subscriptions: AtomicU64,
    /// Updates sent.
    pub updates: AtomicU64,
    /// Updates merged because a client was slow.
    pub conflated: AtomicU64,
    /// Notices and windows that a client lost.
    pub dropped: AtomicU64,
    /// Channels over all subscriptions.
    pub channels: AtomicU64,
}

/// Audience of each stream, and counters of frames received. Ingest holds its lock over append and fan-out.
#[derive(Debug)]
pub struct Fanout {
    by_stream: Vec<Option<Audience>>,
    /// Readers to notify of new frames, with the end of each one's tail; empty between batches.
    told: Vec<(TailReader, u64)>,
    /// Frames known lost of each subscribed stream when last checked; empty in a playback.
    lost: HashMap<StreamId, u64>,
    subscriptions: Vec<Arc<Subscription>>,
    /// Newest frame of each stream, by stream id.
    newest: Vec<NewestFrame>,
    newest_receive: i64,
    /// Arrival times of frames, and their delays after their stamps.
    pub arrivals: Arrivals,
    /// Values for limits.
    pub tap: Tap<LimitValue>,
    /// Values for derived channels.
    pub derived: Tap<InputValue>,
    /// Frames shown live but not stored.
    pub not_recorded: u64,
    /// Values received since start.
    pub points: u64,
    /// Values in duplicate frames.
    pub points_duplicate: u64,
    /// Values in rejected frames.
    pub points_rejected: u64,
    /// Playback only: its current place and round.
    playing: Option<(FramePosition, Round)>,
    /// Counter that rises whenever the set of wanted streams or channels changes.
    interest: u64,
}

/// Frame of a playback: a row of a batch.
#[derive(Clone, Copy, Debug)]
pub struct PlayedFrame<'a> {
    /// Times and row of the frame, and whether frames are missing before it.
    pub arrived: Arrived,
    /// Batch that holds the frame, and its row in the batch.
    pub batch: (&'a Batch, usize),
    /// Channels of the batch's columns.
    pub channels: &'a [ChannelIndex],
}

/// Newest frame of a stream since start, and what was counted.
#[derive(Debug, Clone, Copy)]
pub struct NewestFrame {
    /// Newest `receive_time`, nanoseconds since 1970 UTC.
    pub receive_time: i64,
    /// `source_time` of that frame.
    pub source_time: Option<i64>,
    /// Frames received, without duplicates.
    pub frames: u64,
    /// Whether the store refused frames since it last accepted one, not counting those whose sender was told.
    pub is_refused: bool,
}

/// Initial state: no frame received yet.
const NOTHING: NewestFrame = NewestFrame { receive_time: i64::MIN, source_time: None, frames: 0, is_refused: false };

/// Readers of a stream, and the tail that they read.
#[derive(Debug)]
struct Audience {
    readers: Vec<TailReader>,
    tail: Arc<Tail>,
}

impl Audience {
    /// Publishes a frame that arrived at `now`; appends the readers to notify to `told`.
    fn publish(&self, fresh: &Fresh<'_>, now: i64, told: &mut Vec<(TailReader, u64)>) {
        let mut pushed = self.tail.push(fresh, now, self.readers.len(), told);
        if pushed == Err(Refusal::Full) {
            for reader in &self.readers {
                reader.subscription.catch_up(reader.slot);
            }
            self.tail.clear();
            pushed = self.tail.push(fresh, now, self.readers.len(), told);
        }
        if pushed.is_err() {
            self.tail.passed(now);
            self.readers.iter().for_each(|reader| reader.subscription.add(reader.slot, fresh));
        }
    }
}

impl Default for Fanout {
    fn default() -> Self {
        Fanout {
            by_stream: Vec::new(),
            told: Vec::new(),
            lost: HashMap::new(),
            subscriptions: Vec::new(),
            newest: Vec::new(),
            newest_receive: i64::MIN,
            arrivals: Arrivals::default(),
            tap: Tap::default(),
            derived: Tap::default(),
            not_recorded: 0,
            points: 0,
            points_duplicate: 0,
            points_rejected: 0,
            playing: None,
            interest: 0,
        }
    }
}

/// Returns whether a frame is newer than the newest so far, or the clock was set back by more than `LEAP_NS`.
fn is_newer(receive_time: i64, newest: i64) -> bool {
    receive_time >= newest || newest.saturating_sub(receive_time) > LEAP_NS
}

impl Fanout {
    /// Publishes appended frames to their subscriptions. `lost` returns how many frames of a stream are known lost.
    pub fn publish(&mut self, batch: &FrameBatch, appended: &Appended, now: i64, lost: impl Fn(StreamId) -> u64) {
        for (frame, outcome) in batch.frames().zip(&appended.outcomes) {
            let points = frame.len() as u64;
            self.points += points;
            let head = frame.head();
            let at = head.stream.0 as usize;
            if self.newest.len() <= at {
                self.newest.resize(at + 1, NOTHING);
            }
            let newest = &mut self.newest[at];
            newest.frames += u64::from(!matches!(outcome, Outcome::Duplicate));
            if is_newer(head.receive_time, newest.receive_time) {
                (newest.receive_time, newest.source_time) = (head.receive_time, head.source_time);
            }
            if is_newer(head.receive_time, self.newest_receive) {
                self.newest_receive = head.receive_time;
            }
            let row = match outcome {
                // Frames dropped by a lossy reduction are still shown.
                Outcome::Stored { row } | Outcome::Reduced { row } => {
                    newest.is_refused = false;
                    Some(*row)
                }
                Outcome::Rejected(Reject::Refused(_)) => {
                    // A sender that was told sends the frame again.
                    newest.is_refused |= !batch.is_answered();
                    self.not_recorded += 1;
                    self.points_rejected += points;
                    None
                }
                Outcome::Duplicate => {
                    self.points_duplicate += points;
                    continue;
                }
                Outcome::Rejected(_) => {
                    self.points_rejected += points;
                    continue;
                }
            };
            let stream = head.stream;
            self.arrivals.frame(stream, head.receive_time, head.source_time, now);
            // The row of a frame dropped by a reduction cannot be read again.
            self.tap.add(&frame, row.filter(|_| matches!(outcome, Outcome::Stored { .. })));
            // Derived values of a frame dropped by a reduction could not be computed again.
            if !matches!(outcome, Outcome::Reduced { .. }) {
                self.derived.add(&frame, row);
            }
            let Some(Some(audience)) = self.by_stream.get(at) else { continue };
            let now_lost = lost(stream);
            let gap = self.lost.insert(stream, now_lost).is_some_and(|before| before < now_lost);
            let texts = Texts::default();
            audience.publish(&audience.tail.fresh((frame, &texts), row, gap), now, &mut self.told);
        }
        // Notify after the batch, so that frames that arrive together are shown together.
        self.told.drain(..).for_each(|(reader, end)| reader.subscription.told(reader.slot, end, now));
    }

    /// Publishes a stored frame to its subscriptions.
    pub fn play(&mut self, stream: StreamId, frame: &PlayedFrame<'_>, now: i64) {
        let (batch, row) = frame.batch;
        self.points += batch.columns.len() as u64;
        let Some(Some(audience)) = self.by_stream.get(stream.0 as usize) else { return };
        let texts = Texts::default();
        for reader in &audience.readers {
            let cells = frame.channels.iter().zip(&batch.columns).map(|(channel, column)| (*channel, column.cell(row)));
            reader.subscription.play(reader.slot, &frame.arrived, (cells, &texts), now);
        }
    }

    /// Sets the place of a playback. Everything before it has been played.
    pub fn stand_at(&mut self, place: FramePosition) {
        let round = self.playing.map_or_else(Round::default, |(_, round)| round);
        self.playing = Some((place, round));
    }

    /// Jumps to a time of a playback, whose place is `place`. `lost` as in [`Subscription::begin_round`].
    pub fn jump_to(&mut self, at: i64, place: FramePosition, lost: bool) -> Round {
        let number = self.playing.map_or(0, |(_, round)| round.number) + 1;
        let round = Round { number, at };
        self.playing = Some((place, round));
        for subscription in &self.subscriptions {
            subscription.begin_round(round, place, lost);
        }
        round
    }

    /// Returns a counter that rises whenever the set of wanted streams or channels changes.
    pub fn interest(&self) -> u64 {
        self.interest
    }

    /// Returns the subscriptions.
    pub fn subscriptions(&self) -> &[Arc<Subscription>] {
        &self.subscriptions
    }

    /// Returns whether the stream has a subscriber.
    pub fn is_subscribed(&self, stream: StreamId) -> bool {
        self.by_stream.get(stream.0 as usize).is_some_and(Option::is_some)
    }

    /// Returns the newest frame of a stream since start, or `None` if there was none.
    pub fn newest_of(&self, stream: StreamId) -> Option<NewestFrame> {
        self.newest.get(stream.0 as usize).copied().filter(|newest| newest.receive_time > i64::MIN)
    }

    /// Returns the newest `receive_time` of all streams since start, nanoseconds since 1970 UTC.
    pub fn newest_receive(&self) -> Option<i64> {
        (self.newest_receive > i64::MIN).then_some(self.newest_receive)
    }

    /// Returns the audience of a stream; creates it if it is missing.
    fn audience(&mut self, stream: &Stream) -> &mut Audience {
        let at = stream.id.0 as usize;
        if self.by_stream.len() <= at {
            self.by_stream.resize_with(at + 1, || None);
        }
        let new = || Audience { readers: Vec::new(), tail: Arc::new(Tail::new(stream.clock)) };
        self.by_stream[at].get_or_insert_with(new)
    }

    /// Adds a match to a subscription, effective from now on. `next_row` is the next row of the stream.
    fn take_in(&mut self, subscription: &Arc<Subscription>, found: &mut Match, next_row: u64, hold: bool) {
        let playing = self.playing;
        // Refused frames have no row: a new reader would not learn of those after the last row.
        found.lacks_before = self.newest_of(found.stream.id).is_some_and(|newest| newest.is_refused);
        let audience = self.audience(&found.stream);
        match playing {
            None => subscription.adopt(found, next_row, hold, audience.tail.clone()),
            Some((place, _)) => subscription.adopt_at(found, place),
        }
        if found.new_stream {
            let reader = TailReader { subscription: subscription.clone(), slot: found.slot };
            audience.tail.wait(reader.clone());
            audience.readers.push(reader);
        }
    }
}

impl Default for Live {
    fn default() -> Self {
        Live {
            fanout: Mutex::default(),
            notices: broadcast::Sender::new(NOTICES),
            catalog: watch::Sender::new(0),
            counters: Arc::default(),
            rounds: watch::Sender::default(),
            over: watch::Sender::new(None),
        }
    }
}

impl Live {
    /// Creates the live side of a playback at `place`. Its clients count among those of `other`.
    pub fn beside(other: &Live, place: FramePosition) -> Live {
        let live = Live { counters: other.counters.clone(), ..Live::default() };
        live.fanout.lock().stand_at(place);
        live
    }

    /// Jumps to a place of a playback. Windows never span a jump. `lost` as in [`Subscription::begin_round`].
    pub fn jump_to(&self, at: i64, place: FramePosition, lost: bool) -> Round {
        let round = self.fanout.lock().jump_to(at, place, lost);
        self.rounds.send_replace(round);
        round
    }

    /// Returns a receiver of the current round and of later ones.
    pub fn rounds(&self) -> watch::Receiver<Round> {
        self.rounds.subscribe()
    }

    /// Ends a playback, and tells clients the reason.
    pub fn end(&self, why: &str) {
        self.over.send_replace(Some(why.to_owned()));
    }

    /// Returns a receiver of the reason why the playback ended; `None` while it runs.
    pub fn over(&self) -> watch::Receiver<Option<String>> {
        self.over.subscribe()
    }

    /// Locks the fan-out; ingest holds the lock over append and publish.
    pub fn fanout(&self) -> MutexGuard<'_, Fanout> {
        self.fanout.lock()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &LiveCounters {
        &self.counters
    }

    /// Sends a notice to every client.
    pub fn notify(&self, notice: String) {
        // Having no receivers is not an error.
        let _ = self.notices.send(notice.into());
    }

    /// Returns a receiver of the notices that [`Live::notify`] sends from now on.
    pub fn notices(&self) -> broadcast::Receiver<Notice> {
        self.notices.subscribe()
    }

    /// Sets the version of the catalog, after each resolve. Wakes the clients' matching if it rose.
    pub fn catalog_is(&self, version: u64) {
        self.catalog.send_if_modified(|known| {
            let grown = *known < version;
            *known = version.max(*known);
            grown
        });
    }

    /// Returns a receiver of the catalog's version.
    pub fn catalog(&self) -> watch::Receiver<u64> {
        self.catalog.subscribe()
    }

    /// Registers what [`Subscription::find`] found, and takes a view at the same moment. Rows below each match's
    /// `start_row` are in the view; rows from there on reach the subscription's windows. In a playback the split is
    /// at its place. `store` returns the current store, which is returned with the view.
    pub fn adopt(
        &self,
        subscription: &Arc<Subscription>,
        found: &mut [Match],
        hold: bool,
        store: impl FnOnce() -> Arc<Store>,
    ) -> (View, Arc<Store>) {
        let channels: usize = found.iter().map(|f| f.channels.len()).sum();
        self.counters.channels.fetch_add(channels as u64, Ordering::Relaxed);
        let mut fanout = self.fanout.lock();
        let store = store();
        let view = store.view();
        {
            let mut pending = subscription.pending();
            (pending.epoch, pending.round) =
                (store.epoch(), fanout.playing.map_or_else(Round::default, |(_, round)| round));
        }
        fanout.interest += 1;
        for found in found {
            let stream = found.stream.id;
            fanout.take_in(subscription, found, view.next_row(stream), hold);
            if fanout.playing.is_none() {
                // Even the first frame may show a loss, so remember the count now.
                fanout.lost.entry(stream).or_insert_with(|| store.counts(stream).lost);
            }
        }
        (view, store)
    }

    /// Returns the number of subscriptions with pending windows.
    pub fn windows_waiting(&self) -> u64 {
        let subscriptions = self.fanout.lock().subscriptions.clone();
        subscriptions.iter().filter(|s| s.is_dirty()).count() as u64
    }

    /// Registers a subscription, before anything is adopted.
    pub fn add(&self, subscription: Arc<Subscription>) {
        self.counters.subscriptions.fetch_add(1, Ordering::Relaxed);
        self.fanout.lock().subscriptions.push(subscription);
    }

    /// Removes a subscription.
    pub fn remove(&self, subscription: &Arc<Subscription>) {
        let (streams, channels): (Vec<StreamId>, u64) = {
            let pending = subscription.pending();
            (
                pending.slots.iter().map(|s| s.stream).collect(),
                pending.slots.iter().map(|s| s.channels.len() as u64).sum(),
            )
        };
        self.counters.subscriptions.fetch_sub(1, Ordering::Relaxed);
        self.counters.channels.fetch_sub(channels, Ordering::Relaxed);
        let mut fanout = self.fanout.lock();
        fanout.interest += 1;
        fanout.subscriptions.retain(|s| !Arc::ptr_eq(s, subscription));
        for stream in streams {
            let Some(place @ Some(_)) = fanout.by_stream.get_mut(stream.0 as usize) else { continue };
            if let Some(audience) = place {
                audience.tail.forget(subscription);
                audience.readers.retain(|reader| !Arc::ptr_eq(&reader.subscription, subscription));
            }
            if place.as_ref().is_some_and(|audience| audience.readers.is_empty()) {
                *place = None;
                fanout.lost.remove(&stream);
            }
        }
    }

    /// Tells every subscription which rows went back, after the store was reopened in a new epoch. The caller holds
    /// the fan-out's lock over the swap of the store and passes it in. `lost` as in [`Fanout::publish`].
    pub fn rewind(fanout: &mut Fanout, epoch: u32, next_row: impl Fn(StreamId) -> u64, lost: impl Fn(StreamId) -> u64) {
        fanout.lost.iter_mut().for_each(|(stream, before)| *before = lost(*stream));
        fanout.arrivals.clear();
        // Frames already tapped are judged by their old numbers; later ones are read from their rows.
        fanout.tap.clear();
        for subscription in &fanout.subscriptions {
            subscription.rewind(epoch, &next_row);
        }
    }
}
