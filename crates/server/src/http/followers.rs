//! `/api/followers`: copies of stored data in other databases.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use strongback_sources::instant;

use super::answer::{self, Failure, Parameters};
use crate::process::clock::now_ns;
use crate::server::Server;

/// Answers `GET /api/followers`.
pub(super) async fn list(State(server): State<Arc<Server>>) -> Response {
    answer::json(&json!({ "followers": server.archives.cards() }))
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
