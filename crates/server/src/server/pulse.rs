//! Periodic work of the server: heartbeats, rates, and reading new gaps and events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use strongback_query::{EventOrigin, EventRow};
use tokio::time::MissedTickBehavior;

use crate::live::heartbeat::{Heartbeat, SourceBeat};
use crate::process::clock;
use crate::process::clock::now_ns;
use crate::server::Server;
use crate::sources::clocks;
use crate::sources::ledger::{EventCard, GapCard};

/// Time between two polls of the sources.
const LOOK: Duration = Duration::from_secs(1);
/// Time between two polls for new gaps and events.
const FOLLOW: Duration = Duration::from_millis(100);
/// Max number of gaps, and of events, sent to pages at a time; the tables contain them all.
const TOLD_MAX: usize = 200;
/// Span over which the points a second of a heartbeat are counted.
const RATE_SPAN: Duration = Duration::from_secs(2);

/// Makes the heartbeats, shared by all clients.
pub async fn beat(server: Arc<Server>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(server.config.live.heartbeat_ms));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looked: Option<Instant> = None;
    let mut points: VecDeque<(Instant, u64)> = VecDeque::new();
    loop {
        ticks.tick().await;
        if looked.is_none_or(|at| at.elapsed() >= LOOK) {
            looked = Some(Instant::now());
            let looking = server.clone();
            note(&server).await;
            // On a separate thread, because with many streams it takes milliseconds.
            if let Err(error) = server.upkeep.spawn(move || look(&looking)).await {
                tracing::error!(%error, "the sources could not be looked at");
            }
        }
        let (so_far, last_data) = {
            let fanout = server.ingest.live().fanout();
            (fanout.points, fanout.newest_receive())
        };
        let now = Instant::now();
        points.push_back((now, so_far));
        while points.len() > 2 && points[1].0 + RATE_SPAN < now {
            points.pop_front();
        }
        let rate = match points.front() {
            Some((at, before)) if now > *at => (so_far - before) as f64 / now.duration_since(*at).as_secs_f64(),
            _ => 0.0,
        };
        let cards = server.roster.cards();
        let own = cards.iter().filter(|card| card.kind != "internal").map(|card| SourceBeat {
            name: &card.name,
            status: card.status,
            rate_hz: card.rate_hz,
            lost: card.counters.lost.saturating_sub(card.counters.filled),
        });
        let heartbeat = Heartbeat {
            time: now_ns(),
            epoch: server.ingest.store().epoch(),
            store: server.ingest.recording(),
            commit_ms: server.ingest.commit_latency().last_ms(),
            points_per_s: rate.round(),
            ingest_dropped: server.roster.kernel_drops(),
            last_data,
            sources: own.collect(),
        };
        server.heartbeat.send_replace(heartbeat.beat());
    }
}

/// Polls the sources and their clocks.
fn look(server: &Server) {
    let (now, steady) = clock::both();
    for event in server.roster.look(&server.ingest, (now, steady)) {
        server.ledger.record_or_say(&server.ingest, &event);
    }
    if let Some(leap) = server.ingest.new_clock_leap() {
        let event = clocks::leap::event(leap, server.config.store.clock_confirm_s, now);
        tracing::warn!("{}", event.text);
        server.ledger.record_or_say(&server.ingest, &event);
    }
    for event in server.clocks.look(&server.ingest, now) {
        tracing::warn!(source = event.source, "{}", event.text);
        server.ledger.record_or_say(&server.ingest, &event);
    }
}

/// Periodically records the state of this machine's clock.
pub async fn look_at_own_clock(server: Arc<Server>) {
    let period = Duration::from_nanos(clocks::PERIOD_NS.unsigned_abs());
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let looking = server.clone();
        let look = move || clocks::record_node(&looking.ingest, &clocks::node::look(), now_ns());
        if let Err(error) = server.upkeep.spawn(look).await {
            tracing::error!(%error, "the clock of this machine could not be looked at");
        }
    }
}

/// Loads the runs and the marks again whenever the store was reopened, which may have lost steps and marks that it had
/// accepted.
pub async fn load_runs_again(server: Arc<Server>) {
    let mut reopened = server.ingest.reopened();
    while reopened.changed().await.is_ok() {
        let loading = server.clone();
        match server.recorders.spawn(move || loading.runs.load(&loading.ingest.store())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "what was done with runs cannot all be read"),
            Err(error) => tracing::error!(%error, "the runs could not be loaded again"),
        }
        let loading = server.clone();
        match server.recorders.spawn(move || loading.marks.load(&loading.ingest.store())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the marks cannot all be read"),
            Err(error) => tracing::error!(%error, "the marks could not be loaded again"),
        }
    }
}

/// Starts the followers again whenever the store was reopened.
pub async fn start_archives_again(server: Arc<Server>) {
    let mut reopened = server.ingest.reopened();
    while reopened.changed().await.is_ok() {
        let starting = server.clone();
        if let Err(error) =
            server.recorders.spawn(move || starting.archives.start(&starting.ingest, &starting.ledger)).await
        {
            tracing::error!(%error, "the archives could not be started again");
        }
    }
}

/// Records the notes of sources as events.
async fn note(server: &Arc<Server>) {
    let noting = server.clone();
    let record = move || {
        for (source, note) in noting.roster.take_notes() {
            let level = note.level.to_owned();
            let event = EventRow { time_ns: note.time, level, source, text: note.text, origin: EventOrigin::Server };
            noting.ledger.record_or_say(&noting.ingest, &event);
        }
    };
    if let Err(error) = server.upkeep.spawn(record).await {
        tracing::error!(%error, "events of sources could not be recorded");
    }
}

/// Reads new gaps and events and sends them to the pages.
pub async fn follow(server: Arc<Server>) {
    let mut ticks = tokio::time::interval(FOLLOW);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let following = server.clone();
        let look = move || {
            following.ledger.retry(&following.ingest);
            following.ledger.follow(&following.ingest.store())
        };
        let news = match server.upkeep.spawn(look).await {
            Ok(Ok(news)) => news,
            Ok(Err(error)) => {
                tracing::error!(%error, "new gaps and events cannot be read");
                continue;
            }
            Err(error) => {
                tracing::error!(%error, "new gaps and events cannot be read");
                continue;
            }
        };
        let live = server.ingest.live();
        for event in news.events.iter().rev().take(TOLD_MAX).rev() {
            live.notify(tagged("event", &EventCard::from(event)));
        }
        for gap in news.gaps.iter().rev().take(TOLD_MAX).rev() {
            live.notify(tagged("gap", &GapCard::from(gap)));
        }
    }
}

fn tagged<T: serde::Serialize>(kind: &str, value: &T) -> String {
    let mut message = json!({ "type": kind });
    if let (Some(message), Ok(serde_json::Value::Object(fields))) =
        (message.as_object_mut(), serde_json::to_value(value))
    {
        message.extend(fields);
    }
    message.to_string()
}
