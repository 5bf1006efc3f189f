//! `/api/alarms`: the alarms and their acknowledgement; `/api/limits`: the limits, also applied to the past.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;

use super::answer::{self, Failure, JsonBody, Parameters};
use super::reading::range;
use crate::alarms::limits::book::{ActError, AlarmList, AlarmStep};
use crate::alarms::limits::{ActFailure, past};
use crate::process::clock::now_ns;
use crate::process::readers::Leave;
use crate::server::Server;
use crate::text::json::Big;

/// Default and max number of changes in one answer.
const CHANGES: usize = 1_000;
const CHANGES_MAX: usize = 100_000;

/// Answers `GET /api/alarms`.
pub(super) async fn list(State(server): State<Arc<Server>>) -> Response {
    answer::json(&json!({ "alarms": server.limits.alarms() }))
}

/// Body of a user's action on an alarm.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Word {
    limit: String,
    channel: String,
    by: String,
    #[serde(default)]
    note: String,
    minutes: Option<f64>,
}

impl Word {
    fn check(self, wants_minutes: bool) -> Result<Word, Failure> {
        match (wants_minutes, self.minutes) {
            (true, None) => Err(Failure::bad_request("minutes: for how long")),
            (false, Some(_)) => Err(Failure::bad_request("minutes are for shelving alone")),
            _ => Ok(self),
        }
    }
}

/// Answers `GET /api/limits` with the configured limits.
pub(super) async fn limits(State(server): State<Arc<Server>>) -> Response {
    answer::json(&json!({ "limits": server.config.limit }))
}

async fn act(
    server: Arc<Server>,
    word: Word,
    step: impl FnOnce(&AlarmList, &Word, i64) -> Result<AlarmStep, ActError> + Send + 'static,
) -> Result<Response, Failure> {
    let acting = server.clone();
    let acted = move || {
        let ticket = acting.limits.act(&acting.ingest, |book, now| step(book, &word, now))?;
        Ok(ticket)
    };
    let ticket = server.readers.spawn(acted).await.map_err(Failure::internal)?.map_err(|error| match error {
        ActFailure::Act(error @ ActError::NotFound { .. }) => Failure::not_found(error.to_string()),
        ActFailure::Act(error @ (ActError::Already { .. } | ActError::NotShelved)) => {
            Failure::conflict(error.to_string())
        }
        ActFailure::Act(error) => Failure::bad_request(error.to_string()),
        ActFailure::Refused(error) => Failure::unavailable(format!("not written: {error}")),
    })?;
    let durable = server.ingest.durable(ticket).await;
    durable.map_err(|refusal| Failure::unavailable(format!("not written: {refusal}")))?;
    Ok(answer::json(&json!({ "durable": true })))
}

/// Answers `POST /api/alarms/acknowledge` once the acknowledgement is durable.
pub(super) async fn acknowledge(
    State(server): State<Arc<Server>>,
    JsonBody(word): JsonBody<Word>,
) -> Result<Response, Failure> {
    let step = |book: &AlarmList, word: &Word, now| {
        book.acknowledge((&word.limit, &word.channel), (&word.by, &word.note), now)
    };
    act(server, word.check(false)?, step).await
}

/// Answers `POST /api/alarms/shelve` once the shelving is durable.
pub(super) async fn shelve(
    State(server): State<Arc<Server>>,
    JsonBody(word): JsonBody<Word>,
) -> Result<Response, Failure> {
    let step = |book: &AlarmList, word: &Word, now| {
        let span_ns = (word.minutes.unwrap_or_default() * 60e9) as i64;
        book.shelve((&word.limit, &word.channel), (&word.by, &word.note), span_ns, now)
    };
    act(server, word.check(true)?, step).await
}

/// Answers `POST /api/alarms/unshelve` once the change is durable.
pub(super) async fn unshelve(
    State(server): State<Arc<Server>>,
    JsonBody(word): JsonBody<Word>,
) -> Result<Response, Failure> {
    let step = |book: &AlarmList, word: &Word, now| book.unshelve((&word.limit, &word.channel), &word.by, now);
    act(server, word.check(false)?, step).await
}

/// Parameters of `/api/limits/past`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsPastQuery {
    from: Option<String>,
    to: Option<String>,
    limit: Option<usize>,
}

/// Answers `GET /api/limits/past`: applies the current limits to a past span. Nothing is recorded or reported.
pub(super) async fn past(
    State(server): State<Arc<Server>>,
    Parameters(query): Parameters<LimitsPastQuery>,
) -> Result<Response, Failure> {
    let time = range(query.from.as_deref(), query.to.as_deref(), i64::MIN)?;
    let limit = query.limit.unwrap_or(CHANGES).min(CHANGES_MAX);
    let (rules, view) = (server.limits.rules().clone(), server.ingest.store().view());
    let read = move |leave: &Leave| {
        let (mut steps, mut truncated) = (answer::JsonList::new("changes"), false);
        let known_from = past::judge(&view, rules, time, now_ns(), leave, |verdict| {
            truncated = steps.len() == limit;
            if !truncated {
                steps.push(&AlarmStep::of(verdict).card());
            }
            !truncated
        })?;
        let mut rest = serde_json::Map::new();
        rest.insert("truncated".to_owned(), json!(truncated));
        rest.insert("late_known_from".to_owned(), json!(known_from.map(Big)));
        Ok::<_, Failure>(steps.finish(&rest))
    };
    server.scans.read(server.patience(), read).await
}
