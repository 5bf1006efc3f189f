//! `/api/marks`: marks of stored values.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use strongback_query::{EventOrigin, EventRow, MarkRow, Quality};
use strongback_sources::Sink;
use strongback_store::Pattern;

use super::answer::{self, Failure, JsonBody, JsonList, Parameters};
use super::notes::TimeText;
use super::reading::{patterns, range};
use crate::instant;
use crate::marks::cards::{MarkCard, in_words};
use crate::marks::log::{self, MarkError, MarkRows, Statement};
use crate::process::clock::now_ns;
use crate::process::readers::Leave;
use crate::server::Server;

/// Default number of marks in one answer.
const ROWS: usize = 1_000;
/// Max number of marks in one answer.
const ROWS_MAX: usize = 100_000;

/// Channels as a list of patterns, or as one text with commas.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum ChannelsText {
    List(Vec<String>),
    Text(String),
}

/// Body of `POST /api/marks`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewMark {
    channels: ChannelsText,
    from: Option<TimeText>,
    to: Option<TimeText>,
    at: Option<TimeText>,
    quality: String,
    by: String,
    reason: String,
}

/// Parameters of `GET /api/marks`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MarksQuery {
    channels: Option<String>,
    from: Option<String>,
    to: Option<String>,
    all: Option<bool>,
    limit: Option<usize>,
}

impl NewMark {
    fn statement(self, now: i64) -> Result<Statement, Failure> {
        let time = |text: TimeText| match text {
            TimeText::Number(ns) => Ok(ns),
            TimeText::Text(text) => instant::parse(&text, now).map_err(Failure::bad_request),
        };
        let time = match (self.from, self.to, self.at) {
            (Some(from), Some(to), None) => time(from)?..time(to)?,
            (None, None, Some(at)) => {
                let at = time(at)?;
                at..at.saturating_add(1)
            }
            (None, None, None) | (Some(_), None, None) | (None, Some(_), None) => {
                let message = "from and to are needed, to exclusive, or at for one instant";
                return Err(Failure::bad_request(message));
            }
            _ => return Err(Failure::bad_request("at is one instant, and goes without from and to")),
        };
        let quality = Quality::from_name(&self.quality).ok_or_else(|| {
            Failure::bad_request(format!("quality {:?} is none of bad, uncertain, good", self.quality))
        })?;
        Ok(Statement { time, quality, by: self.by, reason: self.reason })
    }
}

/// Answers `POST /api/marks` once the marks are durable.
pub(super) async fn add(
    State(server): State<Arc<Server>>,
    JsonBody(mut new): JsonBody<NewMark>,
) -> Result<Response, Failure> {
    let now = now_ns();
    let channels = match std::mem::replace(&mut new.channels, ChannelsText::List(Vec::new())) {
        ChannelsText::List(patterns) => patterns,
        ChannelsText::Text(text) => Pattern::split(&text),
    };
    let statement = new.statement(now)?;
    let marking = server.clone();
    // Waits for the commit, so it must not run on the threads that serve other requests.
    let marked = server.recorders.spawn(move || mark(&marking, &channels, &statement, now));
    let marked = marked.await.map_err(Failure::internal)?.map_err(|error| match error {
        MarkError::Bad(_) => Failure::bad_request(error.to_string()),
        other => Failure::unavailable(other.to_string()),
    })?;
    let cards: Vec<MarkCard<'_>> = marked.iter().map(|mark| MarkCard::from(mark.as_ref())).collect();
    let mut response = answer::json(&BTreeMap::from([("marks", cards)]));
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

/// Marks values, waits until the marks are durable, and records an event.
fn mark(server: &Server, channels: &[String], statement: &Statement, now: i64) -> Result<Vec<Arc<MarkRow>>, MarkError> {
    let ingest = &server.ingest;
    let chosen = log::choose(&ingest.store().catalog(), channels)?;
    let write = |rows: &MarkRows| {
        let (stream, indices) = ingest.resolve_own(&MarkRows::spec())?;
        let appended = ingest.accept_waiting(&rows.batch(stream.id, &indices));
        Ok((appended.outcomes, ingest.wait_durable(appended.commit)))
    };
    let apply = |marks: &log::Marks| {
        let store = ingest.store();
        store.exclude(marks.excluded(&store.catalog()));
    };
    let marked = server.marks.mark(&chosen, statement, now, write, apply)?;
    let words = in_words(&marked);
    tracing::info!("{words}");
    let event = EventRow {
        time_ns: now,
        level: "info".to_owned(),
        source: "mark".to_owned(),
        text: words,
        origin: EventOrigin::Server,
    };
    server.ledger.record_or_say(ingest, &event);
    Ok(marked)
}

/// Answers `GET /api/marks`: the spans in which a mark counts, or all marks.
pub(super) async fn list(
    State(server): State<Arc<Server>>,
    Parameters(query): Parameters<MarksQuery>,
) -> Result<Response, Failure> {
    let time = range(query.from.as_deref(), query.to.as_deref(), i64::MIN)?;
    let chosen = query.channels.as_deref().filter(|text| !text.is_empty()).map(patterns).transpose()?;
    let limit = query.limit.unwrap_or(ROWS).min(ROWS_MAX);
    let reading = server.clone();
    // On a reader thread, because there may be many marks and long patterns.
    let read = move |_: &Leave| {
        let marks = reading.marks.now();
        let catalog = reading.ingest.store().catalog();
        let found = marks.list(&catalog, chosen.as_deref(), &time, query.all.unwrap_or(false));
        let found = found.map_err(|error| Failure::bad_request(error.to_string()))?;
        let mut list = JsonList::new("marks");
        found.iter().take(limit).for_each(|span| list.push(&MarkCard::from(span)));
        let fields = Map::from_iter([("truncated".to_owned(), Json::Bool(found.len() > limit))]);
        Ok::<_, Failure>(list.finish(&fields))
    };
    server.readers.read(server.patience(), read).await
}
