//! Makes subscriptions: matches patterns and reads earlier data. Runs on matcher threads, one job a client.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::Deserialize;
use strongback_store::{OrderedScan, Steps, StreamId, View};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::backlog::Backlog;
use super::scene::Scene;
use crate::live::listed::Listed;
use crate::live::outgoing::{Form, Outgoing};
use crate::live::resume::Resume;
use crate::live::round::Round;
use crate::live::snapshot;
use crate::live::subscription::{HeldStream, Match, PatternSet, Subscription, TakenUpdate, UpdateTurn};
use crate::process::budget::Reservation;
use crate::process::clock::now_ns;
use crate::process::readers::Leave;
use crate::server::Server;
use crate::text::channel::ChannelCard;
use crate::text::json;

/// Max number of channels over all subscriptions of a client.
pub const CLIENT_CHANNELS_MAX: u64 = 200_000;
/// Max number of channels over all clients, about 150 bytes each.
const ALL_CHANNELS_MAX: u64 = 4_000_000;
/// Max number of wildcard comparisons to make one subscription.
const COMPARISONS_MAX: usize = 50_000_000;
/// Max total bytes of the patterns in these comparisons; the worst case compares each once for every byte of a name.
const COMPARED_BYTES_MAX: usize = 1_000_000_000;
/// Max number of buckets of one history.
const HISTORY_BUCKETS_MAX: usize = 2_000_000;
/// Approximate bytes of a channel in the message that names it, and in the one with its earlier values.
const CARD_BYTES: usize = 320;
const SNAPSHOT_BYTES: usize = 128;
/// Approximate bytes of a channel's window.
const WINDOW_BYTES: usize = 160;
/// Min time between two updates of a subscription.
pub const SPACING: Duration = Duration::from_millis(1);

/// Bytes that are not counted because they are few; the number of subscriptions is bounded.
const SMALL_BYTES: usize = 4 << 10;

/// Returns the bytes of these that count against the memory of a client.
pub(crate) fn counted(bytes: usize) -> usize {
    bytes.saturating_sub(SMALL_BYTES)
}

/// A client's request for a subscription.
#[derive(Debug, Deserialize)]
pub struct Subscribe {
    /// Id chosen by the client.
    pub id: i64,
    /// Patterns of channels.
    pub channels: Vec<String>,
    /// Max number of updates a second.
    pub max_rate_hz: Option<f64>,
    /// Seconds of history to start with.
    pub history_s: Option<f64>,
    /// Number of buckets of the history.
    pub history_points: Option<usize>,
    /// Position to resume at.
    pub resume: Option<Resume>,
}

/// A checked request for a subscription.
#[derive(Debug)]
pub struct SubscribeRequest {
    /// Id chosen by the client.
    pub id: i64,
    /// Number of patterns.
    pub patterns: usize,
    set: PatternSet,
    period: Duration,
    /// Seconds and buckets of the history.
    history: Option<(f64, usize)>,
    resume: Option<Resume>,
    /// Memory of its patterns, and of its windows once it is active.
    held: Option<Reservation>,
}

impl SubscribeRequest {
    /// Checks the request of a client.
    ///
    /// # Errors
    /// A message for the client, if the request is invalid.
    pub fn check(asked: Subscribe) -> Result<SubscribeRequest, String> {
        let period = match asked.max_rate_hz {
            None => SPACING,
            Some(hz) if hz.is_finite() && (0.001..=1e6).contains(&hz) => Duration::from_secs_f64(1.0 / hz).max(SPACING),
            Some(_) => return Err("max_rate_hz must be within 0.001 to 1000000".to_owned()),
        };
        let history = match asked.history_s {
            None => None,
            Some(s) if s.is_finite() && (0.0..=1e9).contains(&s) => Some((s, asked.history_points.unwrap_or(600))),
            Some(_) => return Err("history_s must be seconds, at least 0".to_owned()),
        };
        let patterns = asked.channels.len();
        let set = PatternSet::parse(asked.channels).map_err(|e| e.to_string())?;
        Ok(SubscribeRequest { id: asked.id, patterns, set, period, history, resume: asked.resume, held: None })
    }

    /// Returns the bytes of its patterns in a message, each with two quotes and a comma.
    pub fn message_bytes(&self) -> usize {
        self.set.size_bytes() + 3 * self.patterns
    }

    /// Attaches the memory reserved for its patterns.
    pub fn holding(self, held: Reservation) -> SubscribeRequest {
        SubscribeRequest { held: Some(held), ..self }
    }
}

/// An active subscription.
pub struct Active {
    /// Gathered values, registered with the fan-out while the subscription is active.
    pub listed: Arc<Listed>,
    /// Time between updates.
    pub period: Duration,
    /// Time before which no update is sent.
    pub next: Instant,
    /// Merged updates not yet reported to the client.
    pub conflated: u64,
    /// Number of its patterns.
    pub patterns: usize,
    /// Number of its channels.
    pub channels: u64,
    /// Windows being sent.
    pub taken: TakenUpdate,
    /// Memory of its patterns and windows, returned when it is dropped.
    held: Option<Reservation>,
}

impl Active {
    /// Adds channels and the memory of their windows.
    pub fn add(&mut self, channels: u64, windows: Reservation) {
        self.channels += channels;
        match &mut self.held {
            Some(held) => held.join(windows),
            none => *none = Some(windows),
        }
    }

    /// Returns its position in the update rhythm at `now`.
    pub fn turn(&self, now: Instant, paced: bool) -> UpdateTurn {
        let past = |since: Instant, until: Instant| until.saturating_duration_since(since).as_nanos() as i64;
        UpdateTurn {
            now: now_ns(),
            overdue_ns: past(self.next, now) - past(now, self.next),
            paced_ns: paced.then_some(self.period.as_nanos() as i64),
        }
    }
}

/// The surroundings of a job on its matcher thread.
pub struct Surroundings<'a> {
    /// The server.
    pub server: &'a Server,
    /// Feed the client watches.
    pub scene: &'a Scene,
    /// Signal that ends the job when the client has left.
    pub leave: &'a Leave,
}

/// Result of a job on a matcher thread, for the connection.
#[derive(Default)]
pub struct Done {
    /// Messages in order.
    pub messages: Vec<Outgoing>,
    /// Streams to release once the messages are sent, by subscription; for a playback, only if it has not jumped since.
    pub release: Vec<(Arc<Subscription>, Vec<u32>, Round)>,
    /// The new active subscription.
    pub begun: Option<Active>,
    /// Whether the requested subscription could not be made.
    pub refused: bool,
    /// Channels added to active subscriptions, by id, with the memory of their windows.
    pub added: Vec<(i64, u64, Reservation)>,
    /// Number of channels of the smallest pending match; pending matches had no room and are tried again.
    pub fewest_kept: Option<u64>,
    /// History to read once the messages were taken.
    pub backlog: Option<Backlog>,
    /// Memory of the messages.
    pub reserved: Option<Reservation>,
}

/// A subscription to be made on a matcher thread.
pub struct Begin {
    /// The request.
    pub wanted: SubscribeRequest,
    /// Form of the messages.
    pub form: Form,
    /// Number of channels the client may still add.
    pub budget: u64,
    /// Wakes the client's task.
    pub wake: Arc<Notify>,
}

impl Begin {
    /// Returns whether a history is requested.
    pub fn wants_history(&self) -> bool {
        self.wanted.history.is_some()
    }

    /// Makes the subscription, or reports why not. The memory of its messages is `reserved`.
    pub fn run(self, around: &Surroundings<'_>, reserved: Reservation) -> Done {
        let id = self.wanted.id;
        self.make(around, reserved).unwrap_or_else(|message| Done {
            messages: vec![Outgoing::error(Some(id), &message)],
            refused: true,
            ..Done::default()
        })
    }

    fn make(self, around: &Surroundings<'_>, mut reserved: Reservation) -> Result<Done, String> {
        let Surroundings { server, scene, .. } = *around;
        let Begin {
            wanted: SubscribeRequest { id, patterns, set, period, history, resume, mut held },
            form,
            budget,
            wake,
        } = self;
        let live = &scene.live;
        let catalog = server.ingest.store().catalog();
        let channels: usize = catalog.streams.iter().map(|s| s.layout.channels.len()).sum();
        if set.globs().saturating_mul(channels) > COMPARISONS_MAX
            || set.glob_bytes().saturating_mul(channels) > COMPARED_BYTES_MAX
        {
            return Err(format!(
                "{} patterns with wildcards over {channels} channels are too many; name channels in full, or use \
                 wider patterns",
                set.globs()
            ));
        }
        let mut used = set.marks();
        let subscription = Arc::new(Subscription::new(id, set, wake, 0));
        let found = subscription.find_new(&catalog.streams, Some(&mut used), Steps::of_look());
        let mut found = found.map_err(|costly| costly.to_string())?;
        let matched: u64 = found.iter().map(|f| f.channels.len() as u64).sum();
        allow(server, matched, budget)?;
        reserved.grow(counted(matched as usize * CARD_BYTES)).map_err(|over| over.to_string())?;
        if let Some(held) = &mut held {
            held.grow(counted(window_bytes(scene, &subscription, &found))).map_err(|over| over.to_string())?;
        }
        let listed = Arc::new(Listed::new(live.clone(), subscription.clone()));
        let hold = history.is_some() || resume.is_some();
        let (view, store) = live.adopt(&subscription, &mut found, hold, || server.ingest.store());
        let mut messages = vec![subscribed("subscribed", &subscription, &found, Some(&used))];
        // A client that returns to a playback joins it as a new one.
        if let Some(resume) = resume.as_ref().filter(|_| scene.playback().is_none()) {
            let resumed = resume.check(&store, &view, id, &mut messages);
            // A history already contains these rows.
            let missed = found.iter().filter_map(|f| Some((f, resumed.row(f.stream.id)?)));
            let missed = missed.filter(|_| history.is_none());
            let gaps = |stream: StreamId, time: &Range<i64>| server.ledger.open_spans(stream, time);
            if let Err(error) = snapshot::catch_up((&view, store.epoch()), &subscription, missed, &gaps) {
                tracing::warn!(%error, "frames that a client missed cannot all be read");
            }
        }
        let mut done = Done::default();
        match history {
            Some((seconds, points)) => {
                let now = scene.now();
                let grid = now.saturating_sub((seconds * 1e9) as i64)..now.saturating_add(1);
                let points = points.clamp(1, HISTORY_BUCKETS_MAX / (matched as usize).max(1) + 1);
                let backlog = Backlog::new(subscription.clone(), form, found.into(), grid, points);
                done = read_on(around, backlog, None);
            }
            None => let_go(&view, scene, &subscription, &found, &mut done),
        }
        messages.append(&mut done.messages);
        Ok(Done {
            messages,
            reserved: Some(reserved),
            begun: Some(Active {
                listed,
                period,
                next: Instant::now(),
                conflated: 0,
                patterns,
                channels: matched,
                taken: TakenUpdate::default(),
                held,
            }),
            ..done
        })
    }
}

/// Reads the next part of a history. After the last one, the streams of the subscription are released.
pub fn read_on(around: &Surroundings<'_>, mut backlog: Backlog, reserved: Option<Reservation>) -> Done {
    let Surroundings { server, scene, leave } = *around;
    let mut done = Done { reserved, ..Done::default() };
    // Rows before the start of the tails are the same in every later view.
    let view = server.ingest.store().view();
    let message = (!has_jumped(scene, &backlog)).then(|| backlog.read(server, &view, leave));
    // Data read across a jump does not belong to what is played now.
    let goes_on = !has_jumped(scene, &backlog);
    done.messages.extend(message.filter(|_| goes_on));
    if goes_on && !backlog.is_empty() {
        done.backlog = Some(backlog);
    } else {
        let_go(&view, scene, &backlog.subscription, &backlog.found, &mut done);
    }
    done
}

/// Drops the rest of a history and reports why.
pub fn give_up(scene: &Scene, backlog: &Backlog, why: &str) -> Done {
    let subscription = backlog.subscription.clone();
    let round = scene.playback().map(|_| subscription.held().0).unwrap_or_default();
    let slots = backlog.found.iter().map(|found| found.slot).collect();
    Done {
        messages: vec![Outgoing::error(Some(subscription.id), why)],
        release: vec![(subscription, slots, round)],
        ..Done::default()
    }
}

/// Releases the held streams of a playback without their earlier values, and reports why.
pub fn show_nothing(subscriptions: &[Arc<Subscription>], why: &str) -> Done {
    let mut done = Done::default();
    for subscription in subscriptions {
        let (round, held) = subscription.held();
        done.messages.push(Outgoing::error(Some(subscription.id), why));
        done.release.push((subscription.clone(), held.iter().map(|held| held.slot).collect(), round));
    }
    done
}

/// Returns whether a playback jumped since the streams of a history were found; always false for live data.
fn has_jumped(scene: &Scene, backlog: &Backlog) -> bool {
    if scene.playback().is_none() {
        return false;
    }
    let (_, held) = backlog.subscription.held();
    let goes_on =
        |(found, held): (&Match, &HeldStream)| found.end_time == held.since.last_time_of(held.stream).saturating_add(1);
    !backlog.found.iter().zip(&held).all(goes_on)
}

/// Releases the streams of a new subscription; for a playback, with their earlier values.
fn let_go(view: &View, scene: &Scene, subscription: &Arc<Subscription>, found: &[Match], done: &mut Done) {
    let release = match scene.playback() {
        None => (subscription.clone(), found.iter().map(|f| f.slot).collect(), Round::default()),
        Some(_) => {
            let (round, held) = subscription.held();
            show(view, subscription, (round, &held), &mut done.messages)
        }
    };
    done.release.push(release);
}

/// Returns the bytes of the windows of the streams found, and of the tables that lead to them.
fn window_bytes(scene: &Scene, subscription: &Subscription, found: &[Match]) -> usize {
    let channels: usize = found.iter().map(|found| found.channels.len()).sum();
    let tables = subscription.table_bytes(found);
    channels * WINDOW_BYTES + tables + scene.playback().map_or(0, |_| OrderedScan::memory_min(channels, found.len()))
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

fn subscribed(kind: &str, subscription: &Subscription, found: &[Match], used: Option<&[bool]>) -> Outgoing {
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
    Outgoing::json(out)
}

/// Matches new channels against active subscriptions, adding at most `budget` channels. Matches without room stay
/// pending with their subscriptions and are tried before the new ones if `again` is set.
pub fn match_new(
    around: &Surroundings<'_>,
    subscriptions: &[Arc<Listed>],
    (mut budget, again): (u64, bool),
    mut reserved: Reservation,
) -> Done {
    let mut done = Done::default();
    let catalog = around.server.ingest.store().catalog();
    for subscription in subscriptions.iter().map(|listed| listed.subscription()) {
        let found = subscription.find_new(&catalog.streams, None, Steps::of_look()).unwrap_or_else(|costly| {
            done.messages.push(Outgoing::error(Some(subscription.id), &costly.to_string()));
            Vec::new()
        });
        if again {
            let kept = subscription.take_kept(&catalog.streams);
            adopt_fitting(around, subscription, (kept, false), &mut budget, &mut reserved, &mut done);
        }
        // The new channels may belong to streams that were just adopted.
        let found = found.into_iter().map(|found| subscription.match_of(found.stream, found.channels)).collect();
        adopt_fitting(around, subscription, (found, true), &mut budget, &mut reserved, &mut done);
        done.fewest_kept = done.fewest_kept.into_iter().chain(subscription.fewest_kept()).min();
    }
    Done { reserved: Some(reserved), ..done }
}

/// Adopts the matches that have room, stream by stream if not all have, and keeps the others pending. Reports why, if
/// they are new.
fn adopt_fitting(
    around: &Surroundings<'_>,
    subscription: &Arc<Subscription>,
    (matches, are_new): (Vec<Match>, bool),
    budget: &mut u64,
    reserved: &mut Reservation,
    done: &mut Done,
) {
    let Surroundings { server, scene, .. } = *around;
    if matches.is_empty() {
        return;
    }
    let channels = |found: &[Match]| found.iter().map(|f| f.channels.len() as u64).sum::<u64>();
    let card_bytes = |found: &[Match]| channels(found) as usize * CARD_BYTES;
    // Matches may come in small numbers but often, so all windows are counted.
    let mut room = |found: &[Match], taken: u64, message_bytes: usize| {
        allow(server, taken + channels(found), *budget)?;
        let windows = reserved.beside(window_bytes(scene, subscription, found)).map_err(|over| over.to_string())?;
        reserved.grow(message_bytes).map_err(|over| over.to_string())?;
        Ok::<Reservation, String>(windows)
    };
    let (mut found, mut windows, mut left, mut why) =
        (Vec::<Match>::new(), None::<Reservation>, Vec::<Match>::new(), None::<String>);
    match room(&matches, 0, counted(card_bytes(&matches))) {
        Ok(all) => (found, windows) = (matches, Some(all)),
        Err(_) => {
            for one in matches {
                let alone = std::slice::from_ref(&one);
                match (room(alone, channels(&found), card_bytes(alone)), &mut windows) {
                    (Ok(more), Some(windows)) => windows.join(more),
                    (Ok(first), none) => *none = Some(first),
                    (Err(message), _) => {
                        why.get_or_insert(message);
                        left.push(one);
                        continue;
                    }
                }
                found.push(one);
            }
        }
    }
    if let Some(message) = why.filter(|_| are_new) {
        done.messages.push(Outgoing::error(Some(subscription.id), &message));
    }
    if subscription.keep(&left) {
        let message =
            "more channels match than are kept until there is room for them: subscribe again to have them all";
        done.messages.push(Outgoing::error(Some(subscription.id), message));
    }
    let Some(windows) = windows else { return };
    let matched = channels(&found);
    *budget = budget.saturating_sub(matched);
    let (view, store) = scene.live.adopt(subscription, &mut found, true, || server.ingest.store());
    done.messages.push(subscribed("channels", subscription, &found, None));
    done.added.push((subscription.id, matched, windows));
    if scene.playback().is_some() {
        let (round, held) = subscription.held();
        done.release.push(show(&view, subscription, (round, &held), &mut done.messages));
        return;
    }
    let gaps = |stream: StreamId, time: &Range<i64>| server.ledger.open_spans(stream, time);
    let all = found.iter().map(|f| (f, 0));
    if let Err(error) = snapshot::catch_up((&view, store.epoch()), subscription, all, &gaps) {
        tracing::warn!(%error, "frames before a new channel was matched cannot be read");
    }
    done.release.push((subscription.clone(), found.iter().map(|f| f.slot).collect(), Round::default()));
}

/// Returns whether `channels` more may fit for a client that may add `budget` more.
pub fn may_fit(server: &Server, address: IpAddr, channels: u64, budget: u64) -> bool {
    let windows = || server.budget.take(address, channels as usize * WINDOW_BYTES);
    allow(server, channels, budget).is_ok() && windows().is_ok()
}

/// Sends the earlier values of the held streams of a playback.
pub fn show_held(around: &Surroundings<'_>, subscriptions: &[Arc<Subscription>], mut reserved: Reservation) -> Done {
    let mut done = Done::default();
    let view = around.server.ingest.store().view();
    for subscription in subscriptions {
        let (round, held) = subscription.held();
        let channels: usize = held.iter().map(|held| held.channels.len()).sum();
        match reserved.grow(counted(channels * SNAPSHOT_BYTES)) {
            Ok(()) => done.release.push(show(&view, subscription, (round, &held), &mut done.messages)),
            Err(over) => {
                let slots = held.iter().map(|held| held.slot).collect();
                done.messages.push(Outgoing::error(Some(subscription.id), &over.to_string()));
                done.release.push((subscription.clone(), slots, round));
            }
        }
    }
    Done { reserved: Some(reserved), ..done }
}

/// Adds the snapshot of a subscription's held streams. Returns the streams to release after it.
fn show(
    view: &View,
    subscription: &Arc<Subscription>,
    (round, held): (Round, &[HeldStream]),
    messages: &mut Vec<Outgoing>,
) -> (Arc<Subscription>, Vec<u32>, Round) {
    if !held.is_empty() {
        messages.push(snapshot::state_of(view, subscription.id, round.number, held));
    }
    (subscription.clone(), held.iter().map(|held| held.slot).collect(), round)
}
