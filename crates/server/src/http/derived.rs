//! `/api/derived`: channels computed from others, and their values for a past span.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{self, Failure, JsonBody, Parameters};
use super::reading::range;
use crate::alarms::limits::history;
use crate::derived::backfill::{self, BackfillHost, StartError};
use crate::derived::binding;
use crate::derived::book::{BookError, Definitions, DerivedEntry};
use crate::derived::definition::{DerivedTable, value_of};
use crate::derived::instance::{Counts, Evaluated};
use crate::derived::past::{NotTied, Past};
use crate::process::clock::now_ns;
use crate::process::readers::{Leave, ReadError};
use crate::server::Server;
use crate::text::json::{Big, JsonCell as CellText};

/// Default and max number of results in one answer.
const RESULTS: usize = 1_000;
const RESULTS_MAX: usize = 100_000;

fn failure(error: BookError) -> Failure {
    match error {
        BookError::Bad { .. } => Failure::bad_request(error.to_string()),
        BookError::Unknown(_) => Failure::not_found(error.to_string()),
        BookError::Unfit { .. } | BookError::Conflict(_) => Failure::conflict(error.to_string()),
        BookError::File { .. } => Failure::unavailable(format!("not kept: {error}")),
    }
}

/// Returns a derived channel in the form the interface shows.
fn card(server: &Server, entry: &DerivedEntry) -> Value {
    let table = &entry.definition;
    let status = server.derived.status(&table.name, entry.version);
    let earlier: Vec<Value> = entry
        .earlier
        .iter()
        .map(|earlier| {
            json!({
                "version": earlier.version,
                "since": earlier.since.to_string(),
                "definition": earlier.definition,
            })
        })
        .collect();
    let backfills: Vec<Value> = entry
        .backfills
        .iter()
        .map(|of| {
            json!({
                "version": of.version,
                "from": of.from.to_string(),
                "to": of.to.to_string(),
                "late": of.late,
                "state": of.state,
                "at": of.at.to_string(),
                "frames": of.frames.to_string(),
            })
        })
        .collect();
    json!({
        "name": table.name,
        "trigger": table.trigger,
        "expression": table.expression,
        "unit": table.unit,
        "description": table.description,
        "align_ms": table.align_ms,
        "version": entry.version,
        "since": entry.since.to_string(),
        "configured": entry.configured,
        "state": status.as_ref().map_or("waiting", |status| status.state(now_ns())),
        "trouble": status.as_ref().and_then(|status| status.trouble(now_ns())),
        "waits": status.as_ref().map(|status| status.waits.clone()).unwrap_or_default(),
        "evaluations": status.map(|status| status.evaluations).unwrap_or_default(),
        "earlier": earlier,
        "backfills": backfills,
    })
}

/// Answers `GET /api/derived`.
pub(super) async fn list(State(server): State<Arc<Server>>) -> Response {
    let all = server.derived.book().listed();
    let cards: Vec<Value> = all.iter().map(|entry| card(&server, entry)).collect();
    answer::json(&json!({ "derived": cards }))
}

/// Answers `GET /api/derived/{name}`.
pub(super) async fn one(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Result<Response, Failure> {
    let entry = server.derived.book().get(&name).cloned();
    let entry = entry.ok_or_else(|| failure(BookError::Unknown(name)))?;
    Ok(answer::json(&card(&server, &entry)))
}

/// Body of a PUT.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DerivedRequest {
    trigger: String,
    expression: String,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    description: String,
    align_ms: Option<u32>,
    /// Whether to accept it although its channels do not exist yet.
    #[serde(default)]
    wait: bool,
}

/// Answers `PUT /api/derived/{name}` once the definition is stored.
pub(super) async fn put(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    JsonBody(wish): JsonBody<DerivedRequest>,
) -> Result<Response, Failure> {
    let DerivedRequest { trigger, expression, unit, description, align_ms, wait } = wish;
    let table = DerivedTable { name, trigger, expression, unit, description, align_ms };
    let putting = server.clone();
    // Writes the file and plans expressions off the threads that serve other requests.
    let put = move || {
        let (derived, now) = (&putting.derived, now_ns());
        let definition = derived.book().compile(table).map_err(failure)?;
        let table = &definition.table;
        let entry = DerivedEntry::first(table.clone(), now);
        let catalog = putting.ingest.store().catalog();
        if binding::is_received(&definition, &catalog) {
            let message = format!("{:?} is a received channel: give the results another name", definition.path());
            return Err(failure(BookError::Conflict(message)));
        }
        let versions = derived.versions();
        match Past::all(&definition, &entry, &catalog, |path| versions.get(path).copied()) {
            Ok(_) => {}
            Err(NotTied::Missing(_)) if wait => {}
            Err(error) => return Err(Failure::bad_request(format!("{:?}: {error}", table.name))),
        }
        let put = |book: &mut Definitions| Ok((book.put(&definition, now)?, book.get(&table.name).cloned()));
        let (version, entry) = derived.change(put).map_err(failure)?;
        tracing::info!("derived channel {}: version {version}", table.name);
        Ok(entry.map(|entry| card(&putting, &entry)))
    };
    let card = server.recorders.spawn(put).await.map_err(Failure::internal)??;
    Ok(answer::json(&card))
}

/// Answers `DELETE /api/derived/{name}`. The values it produced stay.
pub(super) async fn remove(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Result<Response, Failure> {
    let removing = server.clone();
    let remove = move || {
        removing.derived.change(|book| book.remove(&name)).map_err(failure)?;
        tracing::info!("derived channel {name}: removed");
        Ok::<_, Failure>(json!({ "name": name, "removed": true }))
    };
    let answer = server.recorders.spawn(remove).await.map_err(Failure::internal)??;
    Ok(answer::json(&answer))
}

/// Span of a backfill.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Span {
    from: Option<String>,
    to: Option<String>,
    #[serde(default = "yes")]
    late: bool,
}

fn yes() -> bool {
    true
}

/// Answers `POST /api/derived/{name}/backfill` once the backfill has begun, with the version it writes.
pub(super) async fn backfill(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    JsonBody(span): JsonBody<Span>,
) -> Result<Response, Failure> {
    let time = range(span.from.as_deref(), span.to.as_deref(), i64::MIN)?;
    let time = time.start..time.end.min(now_ns());
    let host = BackfillHost {
        derived: server.derived.clone(),
        ingest: server.ingest.clone(),
        ledger: server.ledger.clone(),
        stopping: server.stopping.subscribe(),
    };
    let start = move || backfill::start(host, &name, time, span.late).map(|version| (name, version));
    let started = server.recorders.spawn(start).await.map_err(Failure::internal)?;
    let (name, version) = started.map_err(|error| match error {
        StartError::Book(error) => failure(error),
        StartError::NotTied(error) => Failure::bad_request(error.to_string()),
        StartError::Busy => Failure { status: StatusCode::TOO_MANY_REQUESTS, code: "busy", message: error.to_string() },
        StartError::NoThread(error) => Failure::internal(error),
    })?;
    Ok(answer::json(&json!({ "name": name, "version": version })))
}

/// Parameters of `/api/derived/{name}/past`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DerivedPastQuery {
    from: Option<String>,
    to: Option<String>,
    limit: Option<usize>,
    late: Option<bool>,
}

/// Answers `GET /api/derived/{name}/past` with its values for a span of stored data. Nothing is stored.
pub(super) async fn past(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    Parameters(query): Parameters<DerivedPastQuery>,
) -> Result<Response, Failure> {
    let span = range(query.from.as_deref(), query.to.as_deref(), i64::MIN)?;
    let limit = query.limit.unwrap_or(RESULTS).min(RESULTS_MAX);
    let with_late = query.late.unwrap_or(false);
    let reading = server.clone();
    let read = move |leave: &Leave| {
        let (store, versions) = (reading.ingest.store(), reading.derived.versions());
        let (definition, entry) = reading.derived.book().find(&name).map_err(failure)?;
        let all = Past::all(&definition, &entry, &store.catalog(), |path| versions.get(path).copied());
        let all = all.map_err(|error| Failure::bad_request(error.to_string()))?;
        let (mut results, mut truncated, mut counts) = (answer::JsonList::new("results"), false, Counts::default());
        for mut one in all {
            let trigger = one.trigger().key.to_string();
            let each = |found: &[Evaluated], _| {
                for (frame, outcome) in found {
                    truncated = results.len() >= limit;
                    if truncated {
                        return false;
                    }
                    results.push(&json!({
                        "trigger": trigger,
                        "time": frame.time.to_string(),
                        "row": frame.row.map(|row| row.to_string()),
                        "value": outcome.as_ref().map(|cell| CellText(value_of(cell))),
                    }));
                }
                leave.check().is_ok()
            };
            one.evaluate(|| store.view(), span.clone(), with_late, &mut counts, each).map_err(ReadError::from)?;
            leave.check()?;
        }
        // Read after the evaluation, so that it covers everything the evaluation could not know.
        let late_known_from = match with_late {
            true => None,
            false => history::late(&store.view()).map_err(ReadError::from)?.known_from,
        };
        let mut rest = serde_json::Map::new();
        rest.insert("version".to_owned(), json!(entry.version));
        rest.insert("truncated".to_owned(), json!(truncated));
        rest.insert("failed".to_owned(), json!(counts.failed));
        rest.insert("zero_divisors".to_owned(), json!(counts.zero_divisors));
        rest.insert("late_known_from".to_owned(), json!(late_known_from.map(Big)));
        Ok::<_, Failure>(results.finish(&rest))
    };
    server.scans.read(server.patience(), read).await
}
