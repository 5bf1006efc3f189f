//! `/api/live`: one WebSocket client and its subscriptions.
//!
//! A connection has one task. It waits for whichever comes first: a message of the client, frames for one of
//! its subscriptions, a heartbeat, an event or gap, a grown catalog, a finished read. While the socket takes no
//! bytes the task waits in the send; its windows merge meanwhile, and the next update says how many updates
//! that cost. What blocks (matching, history) runs on a reader thread, one job at a time, during which the
//! client's messages wait: a flood of messages is its sender's own problem.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use futures::{SinkExt, StreamExt};
use serde::Deserialize;
use strongback_store::StreamId;
use tokio::sync::{Notify, broadcast};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::channel::ChannelCard;
use crate::clock::now_ns;
use crate::json;
use crate::live::resume::{self, Resume};
use crate::live::snapshot;
use crate::live::subscription::{Match, PatternSet, Subscription, Taken};
use crate::server::{Server, stopped};

/// Subscriptions of a client.
const SUBSCRIPTIONS_MAX: usize = 64;
/// Patterns of a client.
const PATTERNS_MAX: usize = 10_000;
/// Channels over all subscriptions of a client.
const CLIENT_CHANNELS_MAX: u64 = 200_000;
/// Channels over all clients: about 150 bytes each.
const ALL_CHANNELS_MAX: u64 = 4_000_000;
/// Comparisons of patterns with wildcards to make one subscription.
const COMPARISONS_MAX: usize = 50_000_000;
/// Buckets of one history.
const HISTORY_BUCKETS_MAX: usize = 2_000_000;
/// Bytes after which a history goes on in a further message.
const HISTORY_MESSAGE_BYTES: usize = 1 << 20;
/// Largest message of a client.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Shortest time between two updates of a subscription.
const SPACING: Duration = Duration::from_millis(1);
/// A client that takes no byte for so long is let go.
const SEND_PATIENCE: Duration = Duration::from_secs(30);
/// A send that takes longer than this was held up by the client.
const PROMPT_SEND: Duration = Duration::from_millis(50);
/// Shortest time between two matchings of new channels.
const REMATCH_PAUSE: Duration = Duration::from_millis(20);

/// What a client says.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Request {
    Subscribe(Subscribe),
    Unsubscribe { id: i64 },
}

#[derive(Debug, Deserialize)]
struct Subscribe {
    id: i64,
    channels: Vec<String>,
    max_rate_hz: Option<f64>,
    history_s: Option<f64>,
    history_points: Option<usize>,
    resume: Option<Resume>,
}

/// A subscription in force.
struct Active {
    subscription: Arc<Subscription>,
    /// Time between updates.
    period: Duration,
    next: Instant,
    conflated: u64,
    patterns: usize,
    channels: u64,
    taken: Taken,
}

/// What a reader thread made for the connection.
struct Done {
    /// Messages, in order.
    messages: Vec<Vec<u8>>,
    /// Streams to let go once the messages are sent, by subscription.
    release: Vec<(Arc<Subscription>, Vec<u32>)>,
    /// A subscription that is in force now.
    begun: Option<Active>,
    /// Channels added to subscriptions in force.
    added: Vec<(i64, u64)>,
}

/// Why the connection ends.
enum End {
    /// The client closed it, or is gone.
    Gone,
    /// It took no byte for [`SEND_PATIENCE`].
    Stuck,
}

/// Serves a client until it leaves or the server stops.
pub async fn serve(socket: WebSocket, server: Arc<Server>) {
    let counters = server.ingest.live().counters();
    counters.clients.fetch_add(1, Relaxed);
    let (sink, stream) = socket.split();
    let mut client = Client {
        wake: Arc::new(Notify::new()),
        server: server.clone(),
        sink,
        active: BTreeMap::new(),
        buffer: Vec::with_capacity(16 * 1024),
        dropped: 0,
    };
    if let Err(End::Stuck) = client.run(stream).await {
        tracing::warn!("a live client took nothing for {} s and was let go", SEND_PATIENCE.as_secs());
    }
    for (_, active) in std::mem::take(&mut client.active) {
        server.ingest.live().remove(&active.subscription);
    }
    counters.clients.fetch_sub(1, Relaxed);
}

struct Client {
    server: Arc<Server>,
    sink: futures::stream::SplitSink<WebSocket, Message>,
    wake: Arc<Notify>,
    active: BTreeMap<i64, Active>,
    buffer: Vec<u8>,
    /// Notices that this client lost, not yet told.
    dropped: u64,
}

impl Client {
    async fn run(&mut self, mut stream: futures::stream::SplitStream<WebSocket>) -> Result<(), End> {
        let server = self.server.clone();
        let live = server.ingest.live().clone();
        let mut notices = live.notices();
        let mut heartbeats = server.heartbeat.subscribe();
        let mut stopping = server.stopping.subscribe();
        let mut catalog = live.catalog();
        let mut matched_at = Instant::now();
        let mut rematch = false;
        let mut job: Option<JoinHandle<Done>> = None;
        self.hello().await?;
        heartbeats.mark_changed();
        loop {
            let next = self.flush().await?;
            let wait = next.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            let rematch_at = matched_at + REMATCH_PAUSE;
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(wait), if next.is_some() => {}
                done = finished(&mut job), if job.is_some() => {
                    job = None;
                    matched_at = Instant::now();
                    if let Some(done) = done {
                        self.take_over(done).await?;
                    }
                }
                message = stream.next(), if job.is_none() => match message {
                    Some(Ok(Message::Text(text))) => job = self.request(&text).await?,
                    Some(Ok(Message::Binary(_))) => self.error(None, "messages are JSON text").await?,
                    Some(Ok(Message::Close(_))) | Some(Err(_)) | None => return Err(End::Gone),
                    Some(Ok(_)) => {}
                },
                changed = heartbeats.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    let text = heartbeats.borrow_and_update().to_string();
                    if !text.is_empty() {
                        self.send_text(text.into()).await?;
                    }
                }
                notice = notices.recv() => match notice {
                    Ok(text) => self.send_text(Utf8Bytes::from(&*text)).await?,
                    Err(broadcast::error::RecvError::Lagged(n)) => {
                        self.dropped += n;
                        live.counters().dropped.fetch_add(n, Relaxed);
                    }
                    Err(broadcast::error::RecvError::Closed) => return Ok(()),
                },
                changed = catalog.changed() => {
                    rematch |= changed.is_ok();
                    catalog.borrow_and_update();
                }
                () = tokio::time::sleep_until(rematch_at), if rematch && job.is_none() => {
                    rematch = false;
                    job = self.rematch();
                }
                () = stopped(&mut stopping) => {
                    let _ = tokio::time::timeout(Duration::from_secs(1), self.sink.close()).await;
                    return Ok(());
                }
            }
        }
    }

    /// Sends what is due; returns when the next update is.
    async fn flush(&mut self) -> Result<Option<Instant>, End> {
        let mut next: Option<Instant> = None;
        let ids: Vec<i64> = self.active.keys().copied().collect();
        for id in ids {
            let Some(active) = self.active.get_mut(&id) else { continue };
            if !active.subscription.is_dirty() {
                continue;
            }
            let now = Instant::now();
            if now < active.next {
                next = Some(next.map_or(active.next, |n| n.min(active.next)));
                continue;
            }
            active.subscription.take(&mut active.taken);
            // A steady rhythm where there is one, but no burst after a pause.
            active.next = (active.next + active.period).max(now + active.period / 2).max(now + SPACING);
            let rewound = std::mem::take(&mut active.taken.rewound);
            let epoch = active.taken.epoch();
            for (stream, row) in rewound {
                self.rewound(id, stream, epoch, row).await?;
            }
            self.update(id).await?;
        }
        Ok(next)
    }

    async fn update(&mut self, id: i64) -> Result<(), End> {
        let Some(active) = self.active.get_mut(&id) else { return Ok(()) };
        if active.taken.is_empty() {
            return Ok(());
        }
        let store = self.server.ingest.store();
        let out = &mut self.buffer;
        out.clear();
        out.extend_from_slice(b"{\"type\":\"update\",\"id\":");
        json::push(out, &id);
        out.extend_from_slice(b",\"epoch\":");
        json::push_number(out, active.taken.epoch() as u64);
        out.extend_from_slice(b",\"time\":");
        json::push_big(out, now_ns());
        out.extend_from_slice(b",\"streams\":");
        active.taken.write_streams(out, |stream| store.committed_row(stream));
        out.extend_from_slice(b",\"conflated\":");
        json::push_number(out, std::mem::take(&mut active.conflated));
        out.extend_from_slice(b",\"dropped\":");
        json::push_number(out, std::mem::take(&mut self.dropped));
        out.push(b'}');
        let period = active.period.max(PROMPT_SEND);
        let started = Instant::now();
        self.send_buffer().await?;
        let counters = self.server.ingest.live().counters();
        counters.updates.fetch_add(1, Relaxed);
        let took = started.elapsed();
        if took > PROMPT_SEND {
            let missed = (took.as_nanos() / period.as_nanos()).max(1) as u64;
            counters.conflated.fetch_add(missed, Relaxed);
            for active in self.active.values_mut() {
                active.conflated += missed;
            }
        }
        Ok(())
    }

    async fn hello(&mut self) -> Result<(), End> {
        let hello = serde_json::json!({
            "type": "hello",
            "version": env!("CARGO_PKG_VERSION"),
            "origin": self.server.origin(),
            "epoch": self.server.ingest.store().epoch(),
            "time": now_ns().to_string(),
            "heartbeat_ms": self.server.config.live.heartbeat_ms,
        });
        self.send_text(hello.to_string().into()).await
    }

    async fn rewound(&mut self, id: i64, stream: StreamId, epoch: u32, row: u64) -> Result<(), End> {
        self.send_text(resume::rewound(id, stream, epoch, row).into()).await
    }

    async fn error(&mut self, id: Option<i64>, message: &str) -> Result<(), End> {
        let message = serde_json::json!({ "type": "error", "id": id, "message": message });
        self.send_text(message.to_string().into()).await
    }

    async fn send_buffer(&mut self) -> Result<(), End> {
        let text = match Utf8Bytes::try_from(bytes::Bytes::copy_from_slice(&self.buffer)) {
            Ok(text) => text,
            Err(error) => unreachable!("messages are written from UTF-8: {error}"),
        };
        self.send_text(text).await
    }

    async fn send_text(&mut self, text: Utf8Bytes) -> Result<(), End> {
        match tokio::time::timeout(SEND_PATIENCE, self.sink.send(Message::Text(text))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Gone),
            Err(_) => Err(End::Stuck),
        }
    }

    /// Acts on a message; a subscription is made by a job.
    async fn request(&mut self, text: &str) -> Result<Option<JoinHandle<Done>>, End> {
        match serde_json::from_str::<Request>(text) {
            Err(error) => self.error(None, &format!("not understood: {error}")).await.map(|()| None),
            Ok(Request::Unsubscribe { id }) => {
                match self.active.remove(&id) {
                    Some(active) => self.server.ingest.live().remove(&active.subscription),
                    None => self.error(Some(id), "no such subscription").await?,
                }
                Ok(None)
            }
            Ok(Request::Subscribe(wanted)) => {
                let id = wanted.id;
                match self.subscribe(wanted) {
                    Ok(job) => Ok(Some(job)),
                    Err(message) => self.error(Some(id), &message).await.map(|()| None),
                }
            }
        }
    }

    fn subscribe(&mut self, wanted: Subscribe) -> Result<JoinHandle<Done>, String> {
        let id = wanted.id;
        let live = self.server.ingest.live().clone();
        if let Some(before) = self.active.remove(&id) {
            live.remove(&before.subscription);
        }
        if self.active.len() >= SUBSCRIPTIONS_MAX {
            return Err(format!("at most {SUBSCRIPTIONS_MAX} subscriptions a connection"));
        }
        let patterns = wanted.channels.len() + self.active.values().map(|a| a.patterns).sum::<usize>();
        if patterns > PATTERNS_MAX {
            return Err(format!("{patterns} patterns, at most {PATTERNS_MAX} a connection"));
        }
        let period = match wanted.max_rate_hz {
            None => SPACING,
            Some(hz) if hz.is_finite() && (0.001..=1e6).contains(&hz) => Duration::from_secs_f64(1.0 / hz).max(SPACING),
            Some(_) => return Err("max_rate_hz must be within 0.001 to 1000000".to_owned()),
        };
        let history = match wanted.history_s {
            None => None,
            Some(s) if s.is_finite() && (0.0..=1e9).contains(&s) => Some((s, wanted.history_points.unwrap_or(600))),
            Some(_) => return Err("history_s must be seconds, at least 0".to_owned()),
        };
        let begin = Begin {
            id,
            period,
            history,
            patterns: wanted.channels.len(),
            set: PatternSet::parse(wanted.channels).map_err(|e| e.to_string())?,
            resume: wanted.resume,
            budget: CLIENT_CHANNELS_MAX.saturating_sub(self.active.values().map(|a| a.channels).sum()),
            wake: self.wake.clone(),
        };
        let server = self.server.clone();
        Ok(self.server.readers.spawn(move || begin.run(&server)))
    }

    /// Matches new channels against all subscriptions.
    fn rematch(&mut self) -> Option<JoinHandle<Done>> {
        if self.active.is_empty() {
            return None;
        }
        let used: u64 = self.active.values().map(|a| a.channels).sum();
        let subscriptions: Vec<Arc<Subscription>> = self.active.values().map(|a| a.subscription.clone()).collect();
        let server = self.server.clone();
        Some(self.server.readers.spawn(move || match_new(&server, &subscriptions, CLIENT_CHANNELS_MAX - used)))
    }

    async fn take_over(&mut self, done: Done) -> Result<(), End> {
        if let Some(active) = done.begun {
            self.active.insert(active.subscription.id, active);
        }
        for (id, channels) in done.added {
            if let Some(active) = self.active.get_mut(&id) {
                active.channels += channels;
            }
        }
        for message in done.messages {
            self.buffer = message;
            self.send_buffer().await?;
        }
        for (subscription, slots) in done.release {
            subscription.release(slots);
        }
        Ok(())
    }
}

async fn finished(job: &mut Option<JoinHandle<Done>>) -> Option<Done> {
    match job {
        Some(job) => match job.await {
            Ok(done) => Some(done),
            Err(error) => {
                tracing::error!(%error, "a live client's read ended by a defect");
                None
            }
        },
        None => std::future::pending().await,
    }
}

/// A subscription to be made, on a reader thread.
struct Begin {
    id: i64,
    period: Duration,
    history: Option<(f64, usize)>,
    resume: Option<Resume>,
    patterns: usize,
    set: PatternSet,
    budget: u64,
    wake: Arc<Notify>,
}

impl Begin {
    fn run(self, server: &Server) -> Done {
        let id = self.id;
        self.make(server).unwrap_or_else(|message| {
            let message = serde_json::json!({ "type": "error", "id": id, "message": message });
            Done {
                messages: vec![message.to_string().into_bytes()],
                release: Vec::new(),
                begun: None,
                added: Vec::new(),
            }
        })
    }

    fn make(self, server: &Server) -> Result<Done, String> {
        let live = server.ingest.live();
        let catalog = server.ingest.store().catalog();
        let channels: usize = catalog.streams.iter().map(|s| s.layout.channels.len()).sum();
        if self.set.globs().saturating_mul(channels) > COMPARISONS_MAX {
            return Err(format!(
                "{} patterns with wildcards over {channels} channels are too many; name channels in full, or use \
                 wider patterns",
                self.set.globs()
            ));
        }
        let mut used = self.set.marks();
        let subscription = Arc::new(Subscription::new(self.id, self.set, self.wake, 0));
        let mut found: Vec<Match> =
            catalog.streams.iter().filter_map(|s| subscription.find(s, Some(&mut used))).collect();
        let matched: u64 = found.iter().map(|f| f.channels.len() as u64).sum();
        allow(server, matched, self.budget)?;
        live.add(subscription.clone());
        let hold = self.history.is_some() || self.resume.is_some();
        let (view, store) = live.adopt(&subscription, &mut found, hold, || server.ingest.store());
        let mut messages = vec![subscribed("subscribed", &subscription, &found, Some(&used))];
        if let Some(resume) = &self.resume {
            let resumed = resume.check(&store, &view, self.id, &mut messages);
            // A history has these rows already.
            let missed = found.iter().filter_map(|f| Some((f, *resumed.get(&f.stream.id)?)));
            let missed = missed.filter(|_| self.history.is_none());
            if let Err(error) = snapshot::catch_up((&view, store.epoch()), &subscription, missed) {
                tracing::warn!(%error, "frames that a client missed cannot all be read");
            }
        }
        if let Some((seconds, points)) = self.history {
            let now = now_ns();
            let grid = now.saturating_sub((seconds * 1e9) as i64)..now.saturating_add(1);
            let points = points.clamp(1, HISTORY_BUCKETS_MAX / (matched as usize).max(1) + 1);
            history_messages(server, &view, self.id, &found, grid, points, &mut messages);
        }
        let slots = found.iter().map(|f| f.slot).collect();
        Ok(Done {
            messages,
            release: vec![(subscription.clone(), slots)],
            begun: Some(Active {
                subscription,
                period: self.period,
                next: Instant::now(),
                conflated: 0,
                patterns: self.patterns,
                channels: matched,
                taken: Taken::default(),
            }),
            added: Vec::new(),
        })
    }
}

fn allow(server: &Server, channels: u64, budget: u64) -> Result<(), String> {
    if channels > budget {
        return Err(format!("{channels} channels match, at most {CLIENT_CHANNELS_MAX} a connection"));
    }
    let all = server.ingest.live().counters().channels.load(Relaxed);
    if all + channels > ALL_CHANNELS_MAX {
        return Err(format!("the server's clients watch {all} channels already, at most {ALL_CHANNELS_MAX}"));
    }
    Ok(())
}

/// Writes a history as messages of bounded size.
fn history_messages(
    server: &Server,
    view: &strongback_store::View,
    id: i64,
    found: &[Match],
    grid: std::ops::Range<i64>,
    points: usize,
    messages: &mut Vec<Vec<u8>>,
) {
    let gaps = |stream: StreamId, time: &std::ops::Range<i64>| server.ledger.open_spans(stream, time);
    let mut rest: VecDeque<&Match> = found.iter().collect();
    loop {
        // As many streams as surely fit, at least one.
        let mut part = Vec::new();
        let mut bytes = 0;
        while let Some(next) = rest.front() {
            let more = next.channels.len() * points.min(64) * 96;
            if !part.is_empty() && bytes + more > HISTORY_MESSAGE_BYTES {
                break;
            }
            bytes += more;
            part.extend(rest.pop_front());
        }
        match snapshot::history(view, id, &part, grid.clone(), points, &gaps) {
            Ok(message) => messages.push(message),
            Err(error) => {
                let message = serde_json::json!({
                    "type": "error", "id": id, "message": format!("history cannot be read: {error}"),
                });
                messages.push(message.to_string().into_bytes());
            }
        }
        if rest.is_empty() {
            return;
        }
    }
}

fn subscribed(kind: &str, subscription: &Subscription, found: &[Match], used: Option<&[bool]>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 * found.len() + 64);
    out.extend_from_slice(b"{\"type\":");
    json::push(&mut out, kind);
    out.extend_from_slice(b",\"id\":");
    json::push(&mut out, &subscription.id);
    out.extend_from_slice(b",\"channels\":[");
    let mut first = true;
    for found in found {
        for index in &found.channels {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            json::push(&mut out, &ChannelCard::new(&found.stream, &found.stream.layout.channels[*index as usize]));
        }
    }
    out.push(b']');
    if let Some(used) = used {
        out.extend_from_slice(b",\"unmatched\":");
        json::push(&mut out, &subscription.patterns.unused(used));
    }
    out.push(b'}');
    out
}

fn match_new(server: &Server, subscriptions: &[Arc<Subscription>], budget: u64) -> Done {
    let mut done = Done { messages: Vec::new(), release: Vec::new(), begun: None, added: Vec::new() };
    let catalog = server.ingest.store().catalog();
    let mut budget = budget;
    for subscription in subscriptions {
        let mut found: Vec<Match> = Vec::new();
        for stream in &catalog.streams {
            match subscription.find(stream, None) {
                Some(new) => found.push(new),
                None => subscription.refresh(stream),
            }
        }
        if found.is_empty() {
            continue;
        }
        let matched: u64 = found.iter().map(|f| f.channels.len() as u64).sum();
        if let Err(message) = allow(server, matched, budget) {
            let message = serde_json::json!({ "type": "error", "id": subscription.id, "message": message });
            done.messages.push(message.to_string().into_bytes());
            continue;
        }
        budget -= matched;
        let (view, store) = server.ingest.live().adopt(subscription, &mut found, true, || server.ingest.store());
        done.messages.push(subscribed("channels", subscription, &found, None));
        done.added.push((subscription.id, matched));
        if let Err(error) = snapshot::catch_up((&view, store.epoch()), subscription, found.iter().map(|f| (f, 0))) {
            tracing::warn!(%error, "frames before a new channel was matched cannot be read");
        }
        done.release.push((subscription.clone(), found.iter().map(|f| f.slot).collect()));
    }
    done
}
