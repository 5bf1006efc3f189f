//! Live: the one fan-out of appended frames to subscriptions.
//!
//! ```text
//! sources → Ingest::accept ─ append ─┬─> store
//!                                    └─> Fanout (per-stream index) → Tail of the stream
//!                                                 Tail → Subscription windows → Subscriber → Outlet → client
//! ```
//!
//! Append and fan-out run under one lock, [`Live::fanout`], so every subscription sees the rows of a stream in
//! order, and a snapshot taken after a stream was registered splits history from tail at an exact row. A
//! stream that nobody subscribed costs one index lookup a frame, one that many did little more: they gather their
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

/// Events and gaps that wait for a client at most; a client further behind loses the oldest and is told.
const NOTICES: usize = 256;

/// Something every client is told: an event or a gap, as the JSON text of its message.
pub type Notice = Utf8Bytes;

/// The live side of the server.
#[derive(Debug)]
pub struct Live {
    fanout: Mutex<Fanout>,
    notices: broadcast::Sender<Notice>,
    /// Version of the catalog: when it rises, clients match new channels.
    catalog: watch::Sender<u64>,
    counters: Arc<LiveCounters>,
    /// Of a playback: what it jumped to.
    rounds: watch::Sender<Round>,
    /// Of a playback: why it ended.
    over: watch::Sender<Option<String>>,
}

/// What the live side counts since start.
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

/// Who gets the frames of which stream. Ingest holds it over append and fan-out.
#[derive(Debug)]
pub struct Fanout {
    by_stream: Vec<Option<Audience>>,
    /// Those that are to be told of frames, and where the tails end behind them; empty between batches.
    told: Vec<(TailReader, u64)>,
    /// Frames known lost of each subscribed stream when last looked at; empty of a playback.
    lost: HashMap<StreamId, u64>,
    subscriptions: Vec<Arc<Subscription>>,
    /// What came of each stream, by id.
    newest: Vec<NewestFrame>,
    newest_receive: i64,
    /// When frames arrived, and how long after their stamps.
    pub arrivals: Arrivals,
    /// What limits see.
    pub tap: Tap<LimitValue>,
    /// What derived channels see.
    pub derived: Tap<InputValue>,
    /// Frames that reached screens but not the store.
    pub not_recorded: u64,
    /// Values that came since start.
    pub points: u64,
    /// Those of frames seen before.
    pub points_duplicate: u64,
    /// Those of frames refused.
    pub points_rejected: u64,
    /// Of a playback: where it stands, and since when.
    playing: Option<(FramePosition, Round)>,
    /// Rises whenever other streams or channels are wanted.
    interest: u64,
}

/// A frame that is played: a row of a batch.
#[derive(Clone, Copy, Debug)]
pub struct PlayedFrame<'a> {
    /// Its times, row, and whether frames are missing before it.
    pub arrived: Arrived,
    /// Where it was read, and the row in it.
    pub batch: (&'a Batch, usize),
    /// The channels of the batch's columns.
    pub channels: &'a [ChannelIndex],
}

/// What came of a stream since start.
#[derive(Debug, Clone, Copy)]
pub struct NewestFrame {
    /// Newest `receive_time`, nanoseconds since 1970 UTC.
    pub receive_time: i64,
    /// `source_time` of that frame.
    pub source_time: Option<i64>,
    /// Frames, without those that came twice.
    pub frames: u64,
    /// Whether the store refused frames since it took one, other than those whose sender was told.
    pub is_refused: bool,
}

/// Nothing came yet.
const NOTHING: NewestFrame = NewestFrame { receive_time: i64::MIN, source_time: None, frames: 0, is_refused: false };

/// Who gets the frames of a stream.
#[derive(Debug)]
struct Audience {
    readers: Vec<TailReader>,
    tail: Arc<Tail>,
}

impl Audience {
    /// Hands them a frame that came at `now`; `told` gets those that are to be told of it.
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

/// Whether something was received after what was the newest: also by a clock that has been set back meanwhile.
fn is_newer(receive_time: i64, newest: i64) -> bool {
    receive_time >= newest || newest.saturating_sub(receive_time) > LEAP_NS
}

impl Fanout {
    /// Hands appended frames to their subscriptions. `lost` tells how many frames of a stream are known lost.
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
                // What a reduction leaves out is shown all the same.
                Outcome::Stored { row } | Outcome::Reduced { row } => {
                    newest.is_refused = false;
                    Some(*row)
                }
                Outcome::Rejected(Reject::Refused(_)) => {
                    // A sender who was told sends them again.
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
            // A row that a reduction left out is none that can be read again.
            self.tap.add(&frame, row.filter(|_| matches!(outcome, Outcome::Stored { .. })));
            // What a reduction leaves out could not be evaluated again.
            if !matches!(outcome, Outcome::Reduced { .. }) {
                self.derived.add(&frame, row);
            }
            let Some(Some(audience)) = self.by_stream.get(at) else { continue };
            let now_lost = lost(stream);
            let gap = self.lost.insert(stream, now_lost).is_some_and(|before| before < now_lost);
            let texts = Texts::default();
            audience.publish(&audience.tail.fresh((frame, &texts), row, gap), now, &mut self.told);
        }
        // What came together is seen together.
        self.told.drain(..).for_each(|(reader, end)| reader.subscription.told(reader.slot, end, now));
    }

    /// Hands a frame of the record to its subscriptions.
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

    /// Of a playback: all that lies before the place has been played.
    pub fn stand_at(&mut self, place: FramePosition) {
        let round = self.playing.map_or_else(Round::default, |(_, round)| round);
        self.playing = Some((place, round));
    }

    /// Of a playback: it jumps to a time, which is a place. `lost` as in [`Subscription::begin_round`].
    pub fn jump_to(&mut self, at: i64, place: FramePosition, lost: bool) -> Round {
        let number = self.playing.map_or(0, |(_, round)| round.number) + 1;
        let round = Round { number, at };
        self.playing = Some((place, round));
        for subscription in &self.subscriptions {
            subscription.begin_round(round, place, lost);
        }
        round
    }

    /// Rises whenever other streams or channels are wanted.
    pub fn interest(&self) -> u64 {
        self.interest
    }

    /// The subscriptions.
    pub fn subscriptions(&self) -> &[Arc<Subscription>] {
        &self.subscriptions
    }

    /// Whether anybody subscribed the stream.
    pub fn is_subscribed(&self, stream: StreamId) -> bool {
        self.by_stream.get(stream.0 as usize).is_some_and(Option::is_some)
    }

    /// What came of a stream since start, if anything did.
    pub fn newest_of(&self, stream: StreamId) -> Option<NewestFrame> {
        self.newest.get(stream.0 as usize).copied().filter(|newest| newest.receive_time > i64::MIN)
    }

    /// Newest `receive_time` of all streams since start, nanoseconds since 1970 UTC.
    pub fn newest_receive(&self) -> Option<i64> {
        (self.newest_receive > i64::MIN).then_some(self.newest_receive)
    }

    /// The readers of a stream.
    fn audience(&mut self, stream: &Stream) -> &mut Audience {
        let at = stream.id.0 as usize;
        if self.by_stream.len() <= at {
            self.by_stream.resize_with(at + 1, || None);
        }
        let new = || Audience { readers: Vec::new(), tail: Arc::new(Tail::new(stream.clock)) };
        self.by_stream[at].get_or_insert_with(new)
    }

    /// Adds what a subscription found, from this moment on; `next_row` is the stream's.
    fn take_in(&mut self, subscription: &Arc<Subscription>, found: &mut Match, next_row: u64, hold: bool) {
        let playing = self.playing;
        // The row before is not the frame before: who begins now does not hear of those between.
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
    /// Of a playback, which stands at a place: a fan-out of its own, whose clients count among those of `other`.
    pub fn beside(other: &Live, place: FramePosition) -> Live {
        let live = Live { counters: other.counters.clone(), ..Live::default() };
        live.fanout.lock().stand_at(place);
        live
    }

    /// Of a playback: it jumps to a place; what was shown is not part of what comes.
    pub fn jump_to(&self, at: i64, place: FramePosition, lost: bool) -> Round {
        let round = self.fanout.lock().jump_to(at, place, lost);
        self.rounds.send_replace(round);
        round
    }

    /// What it jumped to, and when it does.
    pub fn rounds(&self) -> watch::Receiver<Round> {
        self.rounds.subscribe()
    }

    /// Of a playback: it ended, and why.
    pub fn end(&self, why: &str) {
        self.over.send_replace(Some(why.to_owned()));
    }

    /// Whether it ended.
    pub fn over(&self) -> watch::Receiver<Option<String>> {
        self.over.subscribe()
    }

    /// The fan-out's lock: held by ingest over append and publish.
    pub fn fanout(&self) -> MutexGuard<'_, Fanout> {
        self.fanout.lock()
    }

    /// Counters.
    pub fn counters(&self) -> &LiveCounters {
        &self.counters
    }

    /// Tells every client.
    pub fn notify(&self, notice: String) {
        // Nobody listening is no error.
        let _ = self.notices.send(notice.into());
    }

    /// What [`Live::notify`] tells from now on.
    pub fn notices(&self) -> broadcast::Receiver<Notice> {
        self.notices.subscribe()
    }

    /// Called after each resolve: wakes the clients' matching if the catalog grew.
    pub fn catalog_is(&self, version: u64) {
        self.catalog.send_if_modified(|known| {
            let grown = *known < version;
            *known = version.max(*known);
            grown
        });
    }

    /// The version of the catalog and its changes.
    pub fn catalog(&self) -> watch::Receiver<u64> {
        self.catalog.subscribe()
    }

    /// Registers what was found by [`Subscription::find`], and takes a view at the same moment: rows below each
    /// match's `start_row` are in the view, those from there on reach the subscription's windows; of a playback those
    /// before its place, and those behind. `store` gives the store of this moment; it comes back with the view.
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
                // The first frame that comes may be the one that shows a loss.
                fanout.lost.entry(stream).or_insert_with(|| store.counts(stream).lost);
            }
        }
        (view, store)
    }

    /// Subscriptions with windows not yet sent.
    pub fn windows_waiting(&self) -> u64 {
        let subscriptions = self.fanout.lock().subscriptions.clone();
        subscriptions.iter().filter(|s| s.is_dirty()).count() as u64
    }

    /// Makes a subscription known, before anything is adopted.
    pub fn add(&self, subscription: Arc<Subscription>) {
        self.counters.subscriptions.fetch_add(1, Ordering::Relaxed);
        self.fanout.lock().subscriptions.push(subscription);
    }

    /// Forgets a subscription.
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

    /// The store was reopened in a new epoch: every subscription is told which rows went back. The caller
    /// holds the fan-out's lock over the swap of the store and passes it in. `lost` as in [`Fanout::publish`].
    pub fn rewind(fanout: &mut Fanout, epoch: u32, next_row: impl Fn(StreamId) -> u64, lost: impl Fn(StreamId) -> u64) {
        fanout.lost.iter_mut().for_each(|(stream, before)| *before = lost(*stream));
        fanout.arrivals.clear();
        // What was put aside is judged by the numbers of before; what comes from now on is read from its rows.
        fanout.tap.clear();
        for subscription in &fanout.subscriptions {
            subscription.rewind(epoch, &next_row);
        }
    }
}
