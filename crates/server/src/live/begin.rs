//! Makes subscriptions: matches patterns, reads what came before. Runs on matcher threads, one job a client.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::Deserialize;
use strongback_store::{StreamId, View};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::binary;
use super::outlet::{Form, Told};
use super::place::Round;
use super::resume::Resume;
use super::scene::Scene;
use super::snapshot::{self, History};
use super::subscription::{Held, Match, PatternSet, Subscription, Taken, Turn};
use crate::channel::ChannelCard;
use crate::clock::now_ns;
use crate::json;
use crate::server::Server;

/// Channels over all subscriptions of a client.
pub const CLIENT_CHANNELS_MAX: u64 = 200_000;
/// Channels over all clients: about 150 bytes each.
const ALL_CHANNELS_MAX: u64 = 4_000_000;
/// Comparisons of patterns with wildcards to make one subscription.
const COMPARISONS_MAX: usize = 50_000_000;
/// Bytes of the patterns in these comparisons: each is compared as often as a name has bytes at worst.
const COMPARED_BYTES_MAX: usize = 1_000_000_000;
/// Buckets of one history.
const HISTORY_BUCKETS_MAX: usize = 2_000_000;
/// Bytes after which a history goes on in a further message.
const HISTORY_MESSAGE_BYTES: usize = 1 << 20;
/// Shortest time between two updates of a subscription.
pub const SPACING: Duration = Duration::from_millis(1);

/// What a client asks for.
#[derive(Debug, Deserialize)]
pub struct Subscribe {
    /// The client's number for it.
    pub id: i64,
    /// Patterns.
    pub channels: Vec<String>,
    /// Most updates a second.
    pub max_rate_hz: Option<f64>,
    /// Seconds of history to begin with.
    pub history_s: Option<f64>,
    /// Buckets of the history.
    pub history_points: Option<usize>,
    /// Where the client stood.
    pub resume: Option<Resume>,
}

/// What a client asks for, checked.
#[derive(Debug)]
pub struct Wanted {
    /// The client's number for it.
    pub id: i64,
    /// Number of patterns.
    pub patterns: usize,
    set: PatternSet,
    period: Duration,
    /// Seconds, and buckets.
    history: Option<(f64, usize)>,
    resume: Option<Resume>,
}

impl Wanted {
    /// Checks what a client asks for.
    ///
    /// # Errors
    /// What is wrong with it, for the client.
    pub fn check(asked: Subscribe) -> Result<Wanted, String> {
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
        Ok(Wanted { id: asked.id, patterns, set, period, history, resume: asked.resume })
    }
}

/// A subscription in force.
pub struct Active {
    /// What it gathers.
    pub subscription: Arc<Subscription>,
    /// Time between updates.
    pub period: Duration,
    /// No update before then.
    pub next: Instant,
    /// Updates merged, not yet told.
    pub conflated: u64,
    /// Number of its patterns.
    pub patterns: usize,
    /// Number of its channels.
    pub channels: u64,
    /// Windows on their way.
    pub taken: Taken,
}

impl Active {
    /// Where it stands in its rhythm at `now`.
    pub fn turn(&self, now: Instant, paced: bool) -> Turn {
        let past = |since: Instant, until: Instant| until.saturating_duration_since(since).as_nanos() as i64;
        Turn {
            now: now_ns(),
            overdue_ns: past(self.next, now) - past(now, self.next),
            paced_ns: paced.then_some(self.period.as_nanos() as i64),
        }
    }
}

/// What a matcher thread made for the connection.
#[derive(Default)]
pub struct Done {
    /// Messages, in order.
    pub messages: Vec<Told>,
    /// Streams to let go once the messages are sent, by subscription; of a playback, unless it jumped since.
    pub release: Vec<(Arc<Subscription>, Vec<u32>, Round)>,
    /// A subscription that is in force now.
    pub begun: Option<Active>,
    /// Whether a subscription was asked for and could not be made.
    pub refused: bool,
    /// Channels added to subscriptions in force.
    pub added: Vec<(i64, u64)>,
}

/// A subscription to be made, on a matcher thread.
pub struct Begin {
    /// What is asked for.
    pub wanted: Wanted,
    /// How the client is told.
    pub form: Form,
    /// Channels that the client may still have.
    pub budget: u64,
    /// Wakes the client.
    pub wake: Arc<Notify>,
}

impl Begin {
    /// Makes the subscription, or says why not.
    pub fn run(self, server: &Server, scene: &Scene) -> Done {
        let id = self.wanted.id;
        self.make(server, scene).unwrap_or_else(|message| Done {
            messages: vec![Told::error(Some(id), &message)],
            refused: true,
            ..Done::default()
        })
    }

    fn make(self, server: &Server, scene: &Scene) -> Result<Done, String> {
        let Begin { wanted: Wanted { id, patterns, set, period, history, resume }, form, budget, wake } = self;
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
        let mut found = subscription.find_new(&catalog.streams, Some(&mut used));
        let matched: u64 = found.iter().map(|f| f.channels.len() as u64).sum();
        allow(server, matched, budget)?;
        live.add(subscription.clone());
        let hold = history.is_some() || resume.is_some();
        let (view, store) = live.adopt(&subscription, &mut found, hold, || server.ingest.store());
        let mut messages = vec![subscribed("subscribed", &subscription, &found, Some(&used))];
        // Who comes back to a playback joins it anew.
        if let Some(resume) = resume.as_ref().filter(|_| scene.playback().is_none()) {
            let resumed = resume.check(&store, &view, id, &mut messages);
            // A history has these rows already.
            let missed = found.iter().filter_map(|f| Some((f, resumed.row(f.stream.id)?)));
            let missed = missed.filter(|_| history.is_none());
            if let Err(error) = snapshot::catch_up((&view, store.epoch()), &subscription, missed) {
                tracing::warn!(%error, "frames that a client missed cannot all be read");
            }
        }
        let before = messages.len();
        if let Some((seconds, points)) = history {
            let now = scene.now();
            let grid = now.saturating_sub((seconds * 1e9) as i64)..now.saturating_add(1);
            let points = points.clamp(1, HISTORY_BUCKETS_MAX / (matched as usize).max(1) + 1);
            history_messages(server, &view, (id, form), &found, grid, points, &mut messages);
        }
        let release = match scene.playback() {
            None => (subscription.clone(), found.iter().map(|f| f.slot).collect(), Round::default()),
            Some(_) => {
                let (round, held) = subscription.held();
                let goes_on = |(found, held): (&Match, &Held)| {
                    found.end_time == held.since.last_time_of(held.stream).saturating_add(1)
                };
                if !found.iter().zip(&held).all(goes_on) {
                    // It jumped meanwhile: the history is not part of what comes.
                    messages.truncate(before);
                }
                show(&view, &subscription, (round, &held), &mut messages)
            }
        };
        Ok(Done {
            messages,
            release: vec![release],
            begun: Some(Active {
                subscription,
                period,
                next: Instant::now(),
                conflated: 0,
                patterns,
                channels: matched,
                taken: Taken::default(),
            }),
            ..Done::default()
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
    view: &View,
    (id, form): (i64, Form),
    found: &[Match],
    grid: Range<i64>,
    points: usize,
    messages: &mut Vec<Told>,
) {
    let gaps = |stream: StreamId, time: &Range<i64>| server.ledger.open_spans(stream, time);
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
        messages.push(match (History::read(view, id, &part, grid.clone(), points, &gaps), form) {
            (Ok(history), Form::Json) => Told::json(history.json()),
            (Ok(history), Form::Binary) => Told::Binary(binary::history(&history).into()),
            (Err(error), _) => Told::error(Some(id), &format!("history cannot be read: {error}")),
        });
        if rest.is_empty() {
            return;
        }
    }
}

fn subscribed(kind: &str, subscription: &Subscription, found: &[Match], used: Option<&[bool]>) -> Told {
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
    Told::json(out)
}

/// Matches new channels against subscriptions in force; at most `budget` channels more.
pub fn match_new(server: &Server, scene: &Scene, subscriptions: &[Arc<Subscription>], budget: u64) -> Done {
    let mut done = Done::default();
    let catalog = server.ingest.store().catalog();
    let mut budget = budget;
    for subscription in subscriptions {
        let mut found = subscription.find_new(&catalog.streams, None);
        if found.is_empty() {
            continue;
        }
        let matched: u64 = found.iter().map(|f| f.channels.len() as u64).sum();
        if let Err(message) = allow(server, matched, budget) {
            done.messages.push(Told::error(Some(subscription.id), &message));
            continue;
        }
        budget -= matched;
        let (view, store) = scene.live.adopt(subscription, &mut found, true, || server.ingest.store());
        done.messages.push(subscribed("channels", subscription, &found, None));
        done.added.push((subscription.id, matched));
        if scene.playback().is_some() {
            let (round, held) = subscription.held();
            done.release.push(show(&view, subscription, (round, &held), &mut done.messages));
            continue;
        }
        if let Err(error) = snapshot::catch_up((&view, store.epoch()), subscription, found.iter().map(|f| (f, 0))) {
            tracing::warn!(%error, "frames before a new channel was matched cannot be read");
        }
        done.release.push((subscription.clone(), found.iter().map(|f| f.slot).collect(), Round::default()));
    }
    done
}

/// Of a playback: what streams that are held had before what is played.
pub fn show_held(server: &Server, subscriptions: &[Arc<Subscription>]) -> Done {
    let mut done = Done::default();
    let view = server.ingest.store().view();
    for subscription in subscriptions {
        let (round, held) = subscription.held();
        done.release.push(show(&view, subscription, (round, &held), &mut done.messages));
    }
    done
}

/// Adds the snapshot of a subscription's held streams; answers what is to be let go behind it.
fn show(
    view: &View,
    subscription: &Arc<Subscription>,
    (round, held): (Round, &[Held]),
    messages: &mut Vec<Told>,
) -> (Arc<Subscription>, Vec<u32>, Round) {
    if !held.is_empty() {
        messages.push(snapshot::state_of(view, subscription.id, round.number, held));
    }
    (subscription.clone(), held.iter().map(|held| held.slot).collect(), round)
}
