//! `/api/followers`: copies of stored data in other databases.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use strongback_sources::instant;

use super::answer::{self, Failure, JsonBody, Parameters};
use crate::archives::AddError;
use crate::process::clock::now_ns;
use crate::server::Server;

/// Answers `GET /api/followers`.
pub(super) async fn list(State(server): State<Arc<Server>>) -> Response {
    answer::json(&json!({ "followers": server.archives.cards() }))
}

fn failure(error: AddError) -> Failure {
    match error {
        AddError::Bad(_) => Failure::bad_request(error.to_string()),
        AddError::Unknown(_) => Failure::not_found(error.to_string()),
        AddError::Conflict(_) => Failure::conflict(error.to_string()),
        AddError::File(_) => Failure::unavailable(error.to_string()),
    }
}

/// Answers `PUT /api/followers/{name}` once the archive is kept. Its body has the keys of `[[archive]]`.
pub(super) async fn add(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    JsonBody(keys): JsonBody<Map<String, Value>>,
) -> Result<Response, Failure> {
    let (adding, of) = (server.clone(), name.clone());
    let add = move || adding.archives.add(&of, keys, &adding.ingest, &adding.ledger);
    server.recorders.spawn(add).await.map_err(Failure::internal)?.map_err(failure)?;
    Ok(card(&server, &name))
}

/// Answers `DELETE /api/followers/{name}`. What was delivered stays.
pub(super) async fn remove(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Result<Response, Failure> {
    let (removing, of) = (server.clone(), name.clone());
    let remove = move || removing.archives.remove(&of, &removing.ingest, &removing.ledger);
    server.recorders.spawn(remove).await.map_err(Failure::internal)?.map_err(failure)?;
    Ok(answer::json(&json!({ "name": name, "removed": true })))
}

/// Answers `POST /api/followers/{name}/pause`.
pub(super) async fn pause(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Result<Response, Failure> {
    set_paused(&server, name, true).await
}

/// Answers `POST /api/followers/{name}/resume`.
pub(super) async fn resume(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Result<Response, Failure> {
    set_paused(&server, name, false).await
}

/// Parameters of a backfill.
#[derive(Debug, Deserialize)]
pub(super) struct BackfillQuery {
    /// `time` of the first frames, or `start`.
    from: Option<String>,
}

/// Answers `POST /api/followers/{name}/backfill?from=…`.
pub(super) async fn backfill(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    Parameters(query): Parameters<BackfillQuery>,
) -> Result<Response, Failure> {
    let time = match query.from.as_deref() {
        None | Some("") => return Err(Failure::bad_request("from is missing: a time, or start")),
        Some("start") => i64::MIN,
        Some(text) => instant::parse(text, now_ns()).map_err(Failure::bad_request)?,
    };
    match server.archives.backfill(&name, time) {
        None => Err(Failure::not_found(format!("there is no archive {name:?}"))),
        Some(Err(why)) => Err(Failure::conflict(format!("archive {name:?}: {why}"))),
        Some(Ok(())) => Ok(card(&server, &name)),
    }
}

fn card(server: &Server, name: &str) -> Response {
    let card = server.archives.cards().into_iter().find(|card| card.name == name);
    answer::json(&json!({ "follower": card }))
}

async fn set_paused(server: &Arc<Server>, name: String, is_paused: bool) -> Result<Response, Failure> {
    let (setting, of) = (server.clone(), name.clone());
    let done = server.recorders.spawn(move || match is_paused {
        true => setting.archives.pause(&of),
        false => setting.archives.resume(&of),
    });
    match done.await.map_err(Failure::internal)? {
        None => Err(Failure::not_found(format!("there is no archive {name:?}"))),
        Some(Err(error)) => Err(Failure::internal(format!("archive {name:?}: not kept for the next start: {error}"))),
        Some(Ok(())) => Ok(card(server, &name)),
    }
}
