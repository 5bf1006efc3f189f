//! `/api/followers`: copies of stored data in other databases.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::json;

use super::answer::{self, Failure};
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

async fn set_paused(server: &Arc<Server>, name: String, is_paused: bool) -> Result<Response, Failure> {
    let (setting, of) = (server.clone(), name.clone());
    let done = server.recorders.spawn(move || match is_paused {
        true => setting.archives.pause(&of),
        false => setting.archives.resume(&of),
    });
    match done.await.map_err(Failure::internal)? {
        None => Err(Failure::not_found(format!("there is no archive {name:?}"))),
        Some(Err(error)) => Err(Failure::internal(format!("archive {name:?}: not kept for the next start: {error}"))),
        Some(Ok(())) => {
            let card = server.archives.cards().into_iter().find(|card| card.name == name);
            Ok(answer::json(&json!({ "follower": card })))
        }
    }
}
