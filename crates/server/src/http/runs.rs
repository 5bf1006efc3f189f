//! `/api/runs`: named runs, their clocks, and their release.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use strongback_query::{EventOrigin, EventRow};
use strongback_sources::{Sink, instant};
use strongback_store::Pattern;

use super::answer::{self, Failure, JsonBody, Parameters};

use crate::process::clock::now_ns;
use crate::runs::cards::{cards, in_words, not_released};
use crate::runs::clock::{RunState, RunStep};
use crate::runs::log;
use crate::runs::log::{RunError, RunStepRow, TimedRun};
use crate::server::Server;

/// Parameters of the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    at: Option<String>,
}

/// Parameters of a step.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepQuery {
    at: Option<String>,
    channels: Option<String>,
}

/// Body of a step: its parameters, as an alternative to the query string.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepRequest {
    at: Option<String>,
    channels: Option<Vec<String>>,
}

/// Body of a release, which has no keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseRequest {}

/// Returns a parameter given in the query string or in the body.
fn only<T>(name: &str, in_query: Option<T>, in_body: Option<T>) -> Result<Option<T>, Failure> {
    match (in_query, in_body) {
        (Some(_), Some(_)) => {
            Err(Failure::bad_request(format!("{name} is given twice: in the query string and in the body")))
        }
        (in_query, in_body) => Ok(in_query.or(in_body)),
    }
}

fn time(text: Option<&str>, now: i64) -> Result<i64, Failure> {
    text.map_or(Ok(now), |text| instant::parse(text, now).map_err(Failure::bad_request))
}

/// Answers `GET /api/runs`.
pub(super) async fn list(
    State(server): State<Arc<Server>>,
    Parameters(query): Parameters<ListQuery>,
) -> Result<Response, Failure> {
    let at = time(query.at.as_deref(), now_ns())?;
    let store = server.ingest.store();
    let runs = server.readers.spawn(move || store.runs()).await.map_err(Failure::internal)?;
    Ok(answer::json(&json!({ "at": at.to_string(), "runs": cards(&runs, &server.runs.runs(), at) })))
}

/// Answers `POST /api/runs/{name}/{step}` once the step is durable.
pub(super) async fn step(
    State(server): State<Arc<Server>>,
    Path((name, word)): Path<(String, String)>,
    Parameters(query): Parameters<StepQuery>,
    JsonBody(request): JsonBody<StepRequest>,
) -> Result<Response, Failure> {
    let at = only("at", query.at, request.at)?;
    let channels = only("channels", query.channels.as_deref().map(Pattern::split), request.channels)?;
    let now = now_ns();
    let step = match word.as_str() {
        "start" => RunStep::Start,
        "t0" => RunStep::T0(time(at.as_deref(), now)?),
        "hold" => RunStep::Hold,
        "resume" => RunStep::Resume,
        "stop" => RunStep::Stop,
        _ => return Err(Failure::nothing_at(&format!("/api/runs/{name}/{word}"))),
    };
    if at.is_some() && !matches!(step, RunStep::T0(_)) {
        return Err(Failure::bad_request("at goes with t0 alone: other steps are taken now"));
    }
    if channels.is_some() && step != RunStep::Start {
        return Err(Failure::bad_request("channels go with start alone"));
    }
    let channels = channels.unwrap_or_default();
    let taking = server.clone();
    let about = name.clone();
    // Waits for the commit, so it must not run on the threads that serve other requests.
    let taken = server.recorders.spawn(move || take(&taking, &about, step, &channels, now));
    let (run, words) = taken.await.map_err(Failure::internal)?.map_err(|error| match error {
        RunError::Unknown(_) => Failure::not_found(error.to_string()),
        RunError::Step { .. } => Failure::conflict(error.to_string()),
        RunError::Bad(_) => Failure::bad_request(error.to_string()),
        RunError::Refused(_) | RunError::NotDurable(_) => Failure::unavailable(error.to_string()),
    })?;
    Ok(answer::json(&json!({ "name": name, "at": now.to_string(), "words": words, "clock": run.card(now) })))
}

/// Takes a step, waits until it is durable, and records an event. A step not known to be durable also counts and is
/// recorded as an event.
fn take(
    server: &Server,
    name: &str,
    step: RunStep,
    channels: &[String],
    now: i64,
) -> Result<(TimedRun, String), RunError> {
    let ingest = &server.ingest;
    let write = |row: &RunStepRow<'_>| {
        let (stream, indices) = ingest.resolve_own(&RunStepRow::spec())?;
        let appended = ingest.accept_waiting(&row.batch(stream.id, &indices));
        log::stored(appended.outcomes)?;
        Ok(ingest.wait_durable(appended.commit))
    };
    let (run, durable) = server.runs.step(name, step, channels, now, write)?;
    let words = in_words(name, step, &run.clock, now);
    tracing::info!("{words}");
    let event = EventRow {
        time_ns: now,
        level: "info".to_owned(),
        source: "run".to_owned(),
        text: words.clone(),
        origin: EventOrigin::Server,
    };
    server.ledger.record_or_say(ingest, &event);
    durable.map_err(RunError::NotDurable)?;
    Ok((run, words))
}

/// Returns the run the page shows: the newest one under way, or else the configured one.
pub(super) fn shown(server: &Server) -> serde_json::Value {
    let Some((name, run)) = server.runs.current() else { return server.view.clone() };
    let t0 = |state| (run.clock.state() == state).then(|| run.clock.t0_now().map(|t0| t0.to_string())).flatten();
    let stands = (run.clock.state() == RunState::Held).then(|| run.clock.t(now_ns()).map(|t| t.to_string())).flatten();
    let mut view = match &server.view {
        serde_json::Value::Object(view) => view.clone(),
        // No view is configured, so the page picks its panels.
        _ => [("title".to_owned(), json!("")), ("panels".to_owned(), json!([]))].into_iter().collect(),
    };
    let state = run.clock.state().name();
    let shown = json!({ "name": name, "t0": t0(RunState::Counting), "clock": null, "held_t": stands, "state": state });
    view.insert("run".to_owned(), shown);
    view.into()
}

/// Answers `POST /api/runs/{name}/release` once the release is durable.
pub(super) async fn release(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    JsonBody(ReleaseRequest {}): JsonBody<ReleaseRequest>,
) -> Result<Response, Failure> {
    let generation = server.ingest.generation_now();
    let refused = |refusal| Failure::unavailable(format!("not released: {refusal}"));
    let Some(commit) = server.ingest.store().release_run(&name, now_ns()).map_err(refused)? else {
        let has_clock = server.runs.runs().contains_key(&name);
        let message = not_released(&name, has_clock);
        return Err(match has_clock {
            true => Failure::conflict(message),
            false => Failure::not_found(message),
        });
    };
    server.ingest.durable(generation.ticket(commit)).await.map_err(refused)?;
    tracing::info!(run = name, "released: its data may be dropped when space is needed");
    Ok(answer::json(&json!({ "name": name, "protected": false })))
}
