//! One live client and its subscriptions, over any kind of connection.
//!
//! A client has one task. It waits for whichever comes first: a message of the client, frames for one of its
//! subscriptions, a heartbeat, an event or gap, new channels, a finished read. While the client takes no bytes the task
//! waits in the send; its windows merge meanwhile, and the next update reports how many updates were merged. Blocking
//! work (matching, history) runs on a matcher thread, one job at a time, and the client's messages wait for it: a
//! client that floods delays only itself.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::extract::ws::Utf8Bytes;
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt};
use serde::Deserialize;
use strongback_store::{Store, StreamId};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::aside::{Aside, Asides};
use super::backlog::PART_BYTES;
use super::begin::{
    self, Active, Begin, CLIENT_CHANNELS_MAX, Done, SPACING, Subscribe, SubscribeRequest, Surroundings,
};
use super::scene::Scene;
use crate::live::binary;
use crate::live::binary::UpdateHead;
use crate::live::heartbeat::Beat;
use crate::live::listed::Listed;
use crate::live::outgoing::{Form, Outgoing};
use crate::live::outlet::{End, Outlet, SEND_PATIENCE};
use crate::live::resume;
use crate::live::resume::Position;
use crate::live::round::Round;
use crate::live::subscription::{Due, Subscription};
use crate::process::budget::{Over, Reservation};
use crate::process::readers::Leave;
use crate::server::Server;
use crate::text::json;

/// Max number of subscriptions of a client.
const SUBSCRIPTIONS_MAX: usize = 64;
/// Max number of patterns of a client.
pub const PATTERNS_MAX: usize = 10_000;
/// Duration above which a send counts as held up by the client.
const PROMPT_SEND: Duration = Duration::from_millis(50);
/// Period above which updates keep a rhythm, leaving with a frame that just arrived.
const PACED: Duration = Duration::from_millis(5);
/// Max bytes of an update besides its windows, in either form.
const UPDATE_BYTES_MAX: usize = 192;
/// Size above which an update counts against the client's memory until it is sent.
const LARGE_UPDATE_BYTES: usize = 64 << 10;
/// Bytes reserved at first for the messages of a job; a part of a history reserves more.
const JOB_BYTES: usize = 0;
/// Max size of parsed patterns as a multiple of the message they came in.
const PATTERN_FACTOR: usize = 4;
/// Max bytes of the window buffer kept for the next update.
const BODY_BYTES_KEPT: usize = 1 << 20;
/// Min time between two matchings of new channels.
const REMATCH_PAUSE: Duration = Duration::from_millis(20);
/// Min time before channels without room are tried again.
const ROOM_PAUSE: Duration = Duration::from_secs(2);

/// Input from a client.
#[derive(Debug)]
pub enum Said {
    /// A JSON message.
    Text(Utf8Bytes),
    /// A binary message.
    Bytes,
    /// A subscription requested other than by a message.
    Subscribe(Box<SubscribeRequest>),
    /// Input without meaning here.
    Nothing,
    /// A part of a message for which there is no memory.
    TooMuch(Over),
    /// The departure of the client.
    Leave,
}

/// A message of a client, parsed.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Request {
    Subscribe(Subscribe),
    Unsubscribe { id: i64 },
}

/// Serves a client of live data or of a playback until the client leaves or the feed ends.
pub async fn serve<O: Outlet>(
    outlet: O,
    said: impl Stream<Item = Said> + Unpin + Send,
    server: Arc<Server>,
    scene: Scene,
    address: IpAddr,
) {
    let live = scene.live.clone();
    live.counters().clients.fetch_add(1, Relaxed);
    let mut client = Subscriber {
        wake: Arc::new(Notify::new()),
        server,
        scene: Arc::new(scene),
        round: Round::default(),
        address,
        outlet,
        active: BTreeMap::new(),
        body: Vec::new(),
        lost: 0,
        dropped: 0,
        unplaced: None,
    };
    if let Err(End::Stuck) = client.run(said).await {
        client.outlet.abandon();
        tracing::warn!("a live client took nothing for {} s and was let go", SEND_PATIENCE.as_secs());
    }
    drop(client);
    live.counters().clients.fetch_sub(1, Relaxed);
}

/// Blocking work, and the reply if there is no memory for it.
struct Job<T> {
    /// Bytes to reserve before it starts.
    bytes: usize,
    of: T,
    run: fn(&Surroundings<'_>, Reservation, T) -> Done,
    refuse: fn(&Scene, T, &str) -> Done,
}

struct Subscriber<O> {
    server: Arc<Server>,
    scene: Arc<Scene>,
    /// Newest jump of the playback reported to the client.
    round: Round,
    /// Address of the client.
    address: IpAddr,
    outlet: O,
    wake: Arc<Notify>,
    active: BTreeMap<i64, Active>,
    /// Buffer of the windows of an update.
    body: Vec<u8>,
    /// Notices this client lost, and the number of them not yet reported by an update.
    lost: u64,
    dropped: u64,
    /// Time at which to retry matches without room, and the channels of the smallest one.
    unplaced: Option<(Instant, u64)>,
}

impl<O: Outlet> Subscriber<O> {
    async fn run(&mut self, mut said: impl Stream<Item = Said> + Unpin + Send) -> Result<(), End> {
        let first = Asides::of(&self.server, &self.scene);
        self.round = first.round();
        self.hello().await?;
        // Futures that did not complete stay registered from one turn to the next, because a turn happens for each
        // frame and each of a thousand clients.
        let mut asides = FuturesUnordered::from_iter([first.next()]);
        let wake = self.wake.clone();
        let mut woken = pin!(wake.notified());
        let mut timer = pin!(tokio::time::sleep_until(Instant::now()));
        let mut matched_at = Instant::now();
        let mut rematch = false;
        let mut jumped: Option<Round> = None;
        let mut job: Option<JoinSet<Done>> = None;
        loop {
            if job.is_none()
                && let Some(round) = jumped.take()
            {
                self.tell_round(round).await?;
                job = self.show_held();
            }
            let grown_at = rematch.then_some(matched_at + REMATCH_PAUSE);
            let room_at = self.unplaced.map(|(at, _)| at);
            let rematch_at = grown_at.into_iter().chain(room_at).min().filter(|_| job.is_none());
            if rematch_at.is_some_and(|at| at <= Instant::now()) {
                let again = self.has_room();
                if again || grown_at.is_some_and(|at| at <= Instant::now()) {
                    rematch = false;
                    job = self.rematch(again);
                }
                continue;
            }
            let next = self.flush().await?;
            let next = next.into_iter().chain(rematch_at).min();
            if let Some(next) = next.filter(|next| timer.deadline() != *next) {
                timer.as_mut().reset(next);
            }
            tokio::select! {
                () = &mut woken => woken.set(wake.notified()),
                () = &mut timer, if next.is_some() => {}
                done = finished(&mut job), if job.is_some() => {
                    job = None;
                    matched_at = Instant::now();
                    if let Some(done) = done {
                        job = self.take_over(done).await?;
                    }
                }
                said = said.next(), if job.is_none() => match said {
                    Some(Said::Text(text)) => job = self.request(&text).await?,
                    Some(Said::Subscribe(wanted)) => job = self.subscribe_only(*wanted).await?,
                    Some(Said::Bytes) => self.error(None, "messages are JSON text").await?,
                    Some(Said::Nothing) => {}
                    Some(Said::TooMuch(over)) => {
                        self.error(None, &over.to_string()).await?;
                        return Err(End::Gone);
                    }
                    Some(Said::Leave) | None => return Err(End::Gone),
                },
                Some((rest, aside)) = asides.next() => {
                    asides.push(rest.next());
                    match aside {
                        Aside::Beat(beat) if beat.bytes.is_empty() => {}
                        Aside::Beat(beat) => self.beat(beat).await?,
                        Aside::Notice(text) => self.outlet.send(Outgoing::Text(text)).await?,
                        Aside::NoticesLost(n) => {
                            self.lost += n;
                            self.dropped += n;
                            self.scene.live.counters().dropped.fetch_add(n, Relaxed);
                        }
                        Aside::Grown => rematch = true,
                        Aside::Jumped(round) => jumped = Some(round),
                        Aside::Over(why) => {
                            self.error(None, &why).await?;
                            self.outlet.close().await;
                            return Ok(());
                        }
                        Aside::Stopping => {
                            self.outlet.close().await;
                            return Ok(());
                        }
                        Aside::Gone => return Ok(()),
                    }
                }
            }
        }
    }

    /// Sends due updates. Returns the time of the next look, even if nothing wakes the task before.
    async fn flush(&mut self) -> Result<Option<Instant>, End> {
        let mut next: Option<Instant> = None;
        let mut after = Bound::Unbounded;
        while let Some((&id, active)) = self.active.range_mut((after, Bound::Unbounded)).next() {
            after = Bound::Excluded(id);
            let now = Instant::now();
            let paced = active.period > PACED;
            let look_at = match active.listed.subscription().take_due(&active.turn(now, paced), &mut active.taken) {
                Due::Nothing => None,
                Due::AtItsTime => Some(active.next),
                Due::After(wait) => Some(now + wait),
                Due::Now => {
                    // Keeps the rhythm if there is one, without a burst after a pause.
                    active.next = (active.next + active.period).max(now + active.period / 2).max(now + SPACING);
                    let look_at = paced.then_some(active.next);
                    active.conflated += active.taken.missed;
                    self.scene.live.counters().conflated.fetch_add(active.taken.missed, Relaxed);
                    let epoch = active.taken.epoch;
                    for (stream, row) in std::mem::take(&mut active.taken.rewound) {
                        self.rewound(id, stream, epoch, row).await?;
                    }
                    self.update(id).await?;
                    look_at
                }
            };
            next = next.into_iter().chain(look_at).min();
        }
        Ok(next)
    }

    async fn update(&mut self, id: i64) -> Result<(), End> {
        let Some(active) = self.active.get_mut(&id) else { return Ok(()) };
        let store = self.server.ingest.store();
        let form = self.outlet.form();
        let body = &mut self.body;
        body.clear();
        let (mut windows, mut newest) = (0, i64::MIN);
        active.listed.subscription().take(&mut active.taken, |window| {
            newest = newest.max(window.window.time.1);
            let committed = store.committed_row(window.stream);
            match form {
                Form::Json => {
                    if windows > 0 {
                        body.push(b',');
                    }
                    window.write(body, committed);
                }
                Form::Binary => binary::push_window(body, window, committed),
            }
            windows += 1;
        });
        if windows == 0 {
            return Ok(());
        }
        let head = UpdateHead {
            id,
            epoch: active.taken.epoch,
            time: match self.scene.playback() {
                None => self.scene.now(),
                // Frames played just now may be ahead of the reported time.
                Some(playback) => newest.max(playback.at()),
            },
            conflated: std::mem::take(&mut active.conflated),
            dropped: std::mem::take(&mut self.dropped) + std::mem::take(&mut active.taken.dropped),
        };
        let mut out = Vec::with_capacity(body.len() + UPDATE_BYTES_MAX);
        let told = match form {
            Form::Json => {
                write_update(&mut out, &head, body);
                Outgoing::json(out)
            }
            Form::Binary => {
                binary::push_update(&mut out, &head, windows);
                out.extend_from_slice(body);
                Outgoing::Binary(out.into())
            }
        };
        if body.capacity() > BODY_BYTES_KEPT {
            body.clear();
            body.shrink_to(BODY_BYTES_KEPT);
        }
        let size = told.size_bytes();
        let subscription = active.listed.subscription().clone();
        let reserved = match size > LARGE_UPDATE_BYTES {
            false => None,
            true => {
                let taking = self.server.budget.take_patiently(self.address, size, SEND_PATIENCE);
                Some(Arc::new(taking.await.map_err(|_| End::Stuck)?))
            }
        };
        self.mark(&subscription, &store);
        let started = Instant::now();
        self.outlet.hold(reserved.clone());
        self.outlet.send(told).await?;
        self.outlet.hold(None);
        drop(reserved);
        let counters = self.scene.live.counters();
        counters.updates.fetch_add(1, Relaxed);
        let took = started.elapsed();
        if took > PROMPT_SEND {
            // Subscriptions with a rhythm are counted when they are polled.
            let missed = (took.as_nanos() / PROMPT_SEND.as_nanos()).max(1) as u64;
            for active in self.active.values_mut().filter(|active| active.period <= PACED) {
                counters.conflated.fetch_add(missed, Relaxed);
                active.conflated += missed;
            }
        }
        Ok(())
    }

    /// Sets the client's position after the messages now being sent.
    fn mark(&mut self, subscription: &Subscription, store: &Store) {
        if self.outlet.takes_marks() && self.scene.playback().is_none() {
            self.outlet.mark(Position::of(subscription, store).map_or_else(String::new, |p| p.to_string()));
        }
    }

    async fn hello(&mut self) -> Result<(), End> {
        let mut hello = serde_json::json!({
            "type": "hello",
            "version": env!("CARGO_PKG_VERSION"),
            "origin": self.server.origin(),
            "epoch": self.server.ingest.store().epoch(),
            "time": self.scene.now().to_string(),
            "heartbeat_ms": self.server.config.live.heartbeat_ms,
        });
        if let Some(playback) = self.scene.playback() {
            hello["playback"] = playback.state().json();
        }
        self.outlet.send(Outgoing::Text(hello.to_string().into())).await
    }

    /// Sends a heartbeat with the total of lost notices, since updates, which also report them, may not come.
    async fn beat(&mut self, beat: Beat) -> Result<(), End> {
        if self.lost == 0 || !self.outlet.reads_heartbeats() {
            return self.outlet.heartbeat(beat).await;
        }
        self.outlet.heartbeat(beat.with_dropped(self.lost)).await
    }

    async fn rewound(&mut self, id: i64, stream: StreamId, epoch: u32, row: u64) -> Result<(), End> {
        self.outlet.send(resume::rewound(id, stream, epoch, row)).await
    }

    /// Reports a jump, unless the client already knows it.
    async fn tell_round(&mut self, round: Round) -> Result<(), End> {
        if round.number <= self.round.number {
            return Ok(());
        }
        self.round = round;
        let message = serde_json::json!({ "type": "round", "round": round.number, "at": round.at.to_string() });
        self.outlet.send(Outgoing::Text(message.to_string().into())).await
    }

    async fn error(&mut self, id: Option<i64>, message: &str) -> Result<(), End> {
        self.outlet.send(Outgoing::error(id, message)).await
    }

    /// Acts on a message. Returns the job of a new subscription.
    async fn request(&mut self, text: &str) -> Result<Option<JoinSet<Done>>, End> {
        match serde_json::from_str::<Request>(text) {
            Err(error) => self.error(None, &format!("invalid message: {error}")).await.map(|()| None),
            Ok(Request::Unsubscribe { id }) => {
                if !self.forget(id) {
                    self.error(Some(id), "no such subscription").await?;
                }
                Ok(None)
            }
            Ok(Request::Subscribe(asked)) => {
                let id = asked.id;
                // Replaces the earlier subscription, even if the new one cannot be made.
                self.forget(id);
                let held = self.reserve(text.len()).map_err(|over| over.to_string());
                let wanted = held.and_then(|held| Ok(SubscribeRequest::check(asked)?.holding(held)));
                match wanted {
                    Ok(wanted) => self.subscribe(wanted).await,
                    Err(message) => self.error(Some(id), &message).await.map(|()| None),
                }
            }
        }
    }

    /// Reserves memory for the patterns of a message.
    fn reserve(&self, message_bytes: usize) -> Result<Reservation, Over> {
        self.server.budget.take(self.address, begin::counted(message_bytes * PATTERN_FACTOR))
    }

    /// Starts making the only subscription of a client that sends no messages. If that fails, reports why and ends.
    async fn subscribe_only(&mut self, wanted: SubscribeRequest) -> Result<Option<JoinSet<Done>>, End> {
        match self.reserve(wanted.message_bytes()) {
            Ok(held) => self.subscribe(wanted.holding(held)).await,
            Err(over) => {
                self.error(Some(wanted.id), &over.to_string()).await?;
                Err(End::Gone)
            }
        }
    }

    /// Ends a subscription. Returns whether it existed.
    fn forget(&mut self, id: i64) -> bool {
        self.active.remove(&id).is_some()
    }

    /// Starts making a subscription.
    async fn subscribe(&mut self, wanted: SubscribeRequest) -> Result<Option<JoinSet<Done>>, End> {
        let id = wanted.id;
        if self.active.len() >= SUBSCRIPTIONS_MAX {
            let message = format!("at most {SUBSCRIPTIONS_MAX} subscriptions a connection");
            return self.error(Some(id), &message).await.map(|()| None);
        }
        let patterns = wanted.patterns + self.active.values().map(|a| a.patterns).sum::<usize>();
        if patterns > PATTERNS_MAX {
            let message = format!("{patterns} patterns, at most {PATTERNS_MAX} a connection");
            return self.error(Some(id), &message).await.map(|()| None);
        }
        let begin = Begin { wanted, form: self.outlet.form(), budget: self.channels_left(), wake: self.wake.clone() };
        let job = Job {
            bytes: if begin.wants_history() { PART_BYTES } else { JOB_BYTES },
            of: begin,
            run: |around, reserved, begin| begin.run(around, reserved),
            refuse: |_, begin, why| Done {
                messages: vec![Outgoing::error(Some(begin.wanted.id), why)],
                refused: true,
                ..Done::default()
            },
        };
        Ok(Some(self.start(job)))
    }

    /// Runs a job on a matcher thread once there is memory for its messages. Dropping the job, as when the client has
    /// left, ends it.
    fn start<T: Send + 'static>(&self, job: Job<T>) -> JoinSet<Done> {
        let (server, scene, address) = (self.server.clone(), self.scene.clone(), self.address);
        let mut started = JoinSet::new();
        started.spawn(async move {
            let Job { bytes, of, run, refuse } = job;
            let reserved = match server.budget.take_patiently(address, bytes, SEND_PATIENCE).await {
                Ok(reserved) => reserved,
                Err(over) => return refuse(&scene, of, &over.to_string()),
            };
            let reading = server.clone();
            let read = move |leave: &Leave| match leave.check() {
                Ok(()) => run(&Surroundings { server: &reading, scene: &scene, leave }, reserved, of),
                Err(_) => Done::default(),
            };
            server.matchers.read_with(Leave::unlimited(), read).await.unwrap_or_else(|error| {
                tracing::error!(%error, "a live client's read ended by a defect");
                Done::default()
            })
        });
        started
    }

    /// Returns the number of channels the client may still add.
    fn channels_left(&self) -> u64 {
        CLIENT_CHANNELS_MAX.saturating_sub(self.active.values().map(|a| a.channels).sum())
    }

    /// Returns whether it is time to retry matches without room, and the smallest one may fit.
    fn has_room(&mut self) -> bool {
        let Some((at, channels)) = self.unplaced else { return false };
        let now = Instant::now();
        if at > now {
            return false;
        }
        let has_room = begin::may_fit(&self.server, self.address, channels, self.channels_left());
        let waits = !has_room && !self.active.is_empty();
        self.unplaced = waits.then_some((now + ROOM_PAUSE, channels));
        has_room
    }

    /// Matches new channels against all subscriptions. If `again` is set, also retries those without room.
    fn rematch(&mut self, again: bool) -> Option<JoinSet<Done>> {
        if self.active.is_empty() {
            return None;
        }
        let subscriptions: Vec<Arc<Listed>> = self.active.values().map(|a| a.listed.clone()).collect();
        Some(self.start(Job {
            bytes: JOB_BYTES,
            of: (subscriptions, (self.channels_left(), again)),
            run: |around, reserved, (subscriptions, room)| begin::match_new(around, &subscriptions, room, reserved),
            refuse: |_, _, why| Done {
                messages: vec![Outgoing::error(None, why)],
                fewest_kept: Some(0),
                ..Done::default()
            },
        }))
    }

    /// Reads the initial values of a playback that jumped.
    fn show_held(&mut self) -> Option<JoinSet<Done>> {
        let of = |active: &Active| active.listed.subscription().clone();
        let subscriptions: Vec<Arc<Subscription>> = self.active.values().map(of).collect();
        Some(self.start(Job {
            bytes: JOB_BYTES,
            of: subscriptions,
            run: |around, reserved, subscriptions| begin::show_held(around, &subscriptions, reserved),
            refuse: |_, subscriptions, why| begin::show_nothing(&subscriptions, why),
        }))
    }

    /// Applies the result of a job and sends its messages. Returns the next job.
    async fn take_over(&mut self, done: Done) -> Result<Option<JoinSet<Done>>, End> {
        if let Some(active) = done.begun {
            self.active.insert(active.listed.subscription().id, active);
        }
        if let Some(channels) = done.fewest_kept {
            let at = self.unplaced.map_or_else(|| Instant::now() + ROOM_PAUSE, |(at, _)| at);
            self.unplaced = Some((at, channels));
        }
        for (id, channels, windows) in done.added {
            if let Some(active) = self.active.get_mut(&id) {
                active.add(channels, windows);
            }
        }
        // A jump must be reported before any of its data is sent.
        let newest = done.release.iter().map(|(_, _, round)| *round).max_by_key(|round| round.number);
        self.tell_round(newest.unwrap_or_default()).await?;
        let reserved = done.reserved.map(|mut reserved| {
            // The memory for making the messages is no longer needed; shrinking always succeeds.
            let size: usize = done.messages.iter().map(Outgoing::size_bytes).sum();
            let _ = reserved.resize(size.min(reserved.bytes()));
            Arc::new(reserved)
        });
        self.outlet.hold(reserved.clone());
        for message in done.messages {
            self.outlet.send(message).await?;
        }
        self.outlet.hold(None);
        drop(reserved);
        let store = self.server.ingest.store();
        for (subscription, slots, round) in done.release {
            subscription.release(slots, round);
            self.mark(&subscription, &store);
        }
        if done.refused && self.outlet.is_single() {
            return Err(End::Gone);
        }
        let Some(backlog) = done.backlog else { return Ok(None) };
        Ok(Some(self.start(Job {
            bytes: PART_BYTES,
            of: backlog,
            run: |around, reserved, backlog| begin::read_on(around, backlog, Some(reserved)),
            refuse: |scene, backlog, why| begin::give_up(scene, &backlog, why),
        })))
    }
}

async fn finished(job: &mut Option<JoinSet<Done>>) -> Option<Done> {
    let Some(job) = job else { return std::future::pending().await };
    match job.join_next().await? {
        Ok(done) => Some(done),
        Err(error) => {
            tracing::error!(%error, "a live client's read ended by a defect");
            None
        }
    }
}

/// Appends a JSON update with these windows.
pub(crate) fn write_update(out: &mut Vec<u8>, head: &UpdateHead, windows: &[u8]) {
    out.extend_from_slice(b"{\"type\":\"update\",\"id\":");
    json::push(out, &head.id);
    out.extend_from_slice(b",\"epoch\":");
    json::push_number(out, head.epoch as u64);
    out.extend_from_slice(b",\"time\":");
    json::push_big(out, head.time);
    out.extend_from_slice(b",\"streams\":[");
    out.extend_from_slice(windows);
    out.extend_from_slice(b"],\"conflated\":");
    json::push_number(out, head.conflated);
    out.extend_from_slice(b",\"dropped\":");
    json::push_number(out, head.dropped);
    out.push(b'}');
}
