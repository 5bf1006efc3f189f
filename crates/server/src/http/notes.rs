//! `/api/gaps` and `/api/events`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use strongback_query::{EventOrigin, EventRow, GapRow};
use strongback_store::{Pattern, Reject, StreamKey};

use super::answer::{self, Failure, JsonBody, Parameters};
use super::reading::{patterns, range};
use crate::instant;
use crate::process::clock::now_ns;
use crate::process::connections::Connection;
use crate::process::readers::Leave;
use crate::server::Server;
use crate::sources::ledger::{EventCard, EventError, GapCard};

/// Default number of rows in one answer.
const ROWS: usize = 1000;
/// Max number of rows in one answer.
const ROWS_MAX: usize = 100_000;

/// Parameters of `/api/gaps`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GapsQuery {
    from: Option<String>,
    to: Option<String>,
    limit: Option<usize>,
    source: Option<String>,
    stream: Option<String>,
}

/// Parameters of `/api/events`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    from: Option<String>,
    to: Option<String>,
    limit: Option<usize>,
}

fn rows(limit: Option<usize>) -> usize {
    limit.unwrap_or(ROWS).min(ROWS_MAX)
}

/// The patterns of a parameter; `None` matches everything.
struct Chosen(Option<Vec<Pattern>>);

impl Chosen {
    fn of(parameter: Option<&str>) -> Result<Chosen, Failure> {
        parameter.filter(|text| !text.is_empty()).map(patterns).transpose().map(Chosen)
    }

    fn has(&self, key: &StreamKey) -> bool {
        self.0.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches_stream(key)))
    }
}

/// Paths under which clients write records that are kept.
const KEPT: [&str; 6] = ["/api/events", "/api/alarms", "/api/runs", "/api/marks", "/api/layouts", "/api/derived"];

/// Limits how often a client may make requests that write such records.
pub(super) async fn allow(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let path = request.uri().path();
    if !is_read
        && KEPT.iter().any(|kept| path.starts_with(kept))
        && let Some(connection) = request.extensions().get::<Arc<Connection>>()
        && let Err(too_often) = server.allowance.take(connection.address().ip(), Instant::now())
    {
        return Failure { status: StatusCode::TOO_MANY_REQUESTS, code: "too_often", message: too_often.to_string() }
            .into_response();
    }
    next.run(request).await
}

/// Answers `GET /api/gaps`.
pub(super) async fn gaps(
    State(server): State<Arc<Server>>,
    Parameters(query): Parameters<GapsQuery>,
) -> Result<Response, Failure> {
    let range = range(query.from.as_deref(), query.to.as_deref(), i64::MIN)?;
    let sources = Chosen::of(query.source.as_deref())?;
    let streams = Chosen::of(query.stream.as_deref())?;
    let reading = server.clone();
    // On a reader thread, because there may be many gaps and long patterns.
    let read = move |_: &Leave| {
        let catalog = reading.ingest.store().catalog();
        let of_stream = |gap: &GapRow| match gap.stream.and_then(|id| catalog.stream(id)) {
            Some(stream) => streams.has(&stream.key),
            None => streams.0.is_none(),
        };
        // A source is matched as a stream name without tags.
        let of_source = |gap: &GapRow| sources.has(&StreamKey::new(gap.source.as_str(), []));
        let gaps = reading.ledger.gaps_where(&range, rows(query.limit), |gap| of_stream(gap) && of_source(gap));
        let cards: Vec<GapCard<'_>> = gaps.iter().map(GapCard::from).collect();
        Ok::<_, Failure>(answer::json(&BTreeMap::from([("gaps", cards)])))
    };
    server.readers.read(server.patience(), read).await
}

/// Answers `GET /api/events`.
pub(super) async fn events(
    State(server): State<Arc<Server>>,
    Parameters(query): Parameters<EventsQuery>,
) -> Result<Response, Failure> {
    let range = range(query.from.as_deref(), query.to.as_deref(), i64::MIN)?;
    let reading = server.clone();
    let read = move |_: &Leave| {
        let events = reading.ledger.events(&range, rows(query.limit));
        let cards: Vec<EventCard<'_>> = events.iter().map(EventCard::from).collect();
        Ok::<_, Failure>(answer::json(&BTreeMap::from([("events", cards)])))
    };
    server.readers.read(server.patience(), read).await
}

/// Body of `POST /api/events`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewEvent {
    time: Option<TimeText>,
    text: String,
    level: Option<String>,
    source: Option<String>,
}

/// A time as a number or as text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum TimeText {
    Number(i64),
    Text(String),
}

/// Answers `POST /api/events` once the event is durable.
pub(super) async fn add_event(
    State(server): State<Arc<Server>>,
    JsonBody(new): JsonBody<NewEvent>,
) -> Result<Response, Failure> {
    let now = now_ns();
    let time_ns = match new.time {
        None => now,
        Some(TimeText::Number(ns)) => ns,
        Some(TimeText::Text(text)) => instant::parse(&text, now).map_err(Failure::bad_request)?,
    };
    let event = EventRow {
        time_ns,
        level: new.level.unwrap_or_else(|| "info".to_owned()),
        source: new.source.unwrap_or_else(|| "api".to_owned()),
        text: new.text,
        origin: EventOrigin::Client,
    };
    // Waits while the store's log is full, so it must not run on the threads that serve other requests.
    let recording = server.clone();
    let written = server.recorders.spawn(move || {
        let ticket = recording.ledger.record(&recording.ingest, &event);
        (event, ticket)
    });
    let (event, ticket) = written.await.map_err(Failure::internal)?;
    let ticket = ticket.map_err(|error| match error {
        EventError::Refused(Reject::Refused(refusal)) => Failure::unavailable(format!("not written: {refusal}")),
        other => Failure::bad_request(other.to_string()),
    })?;
    let durable = server.ingest.durable(ticket).await;
    durable.map_err(|refusal| Failure::unavailable(format!("not written: {refusal}")))?;
    // Whoever has the answer finds the event.
    let reading = server.clone();
    let found = server.recorders.spawn(move || reading.ledger.catch_up(&reading.ingest.store()));
    if let Err(error) = found.await.map_err(Failure::internal)? {
        tracing::warn!(%error, "the event is durable, but cannot be read yet");
    }
    let mut response = answer::json(&EventCard::from(&event));
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}
