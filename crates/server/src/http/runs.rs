//! `/api/runs`: named runs, and their release.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use super::answer::{self, Failure};
use crate::clock::now_ns;
use crate::runs::card;
use crate::server::Server;

/// `GET /api/runs`
pub(super) async fn list(State(server): State<Arc<Server>>) -> Result<Response, Failure> {
    let store = server.ingest.store();
    let runs = server.readers.spawn(move || store.runs()).await.map_err(Failure::internal)?;
    Ok(answer::json(&json!({ "runs": runs.iter().map(card).collect::<Vec<_>>() })))
}

/// `POST /api/runs/{name}/release`; answered when the release is durable.
pub(super) async fn release(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Result<Response, Failure> {
    let generation = server.ingest.generation_now();
    let refused = |refusal| Failure::unavailable(format!("not released: {refusal}"));
    let Some(commit) = server.ingest.store().release_run(&name, now_ns()).map_err(refused)? else {
        let message = format!("there is no run {name:?}");
        return Err(Failure { status: StatusCode::NOT_FOUND, code: "not_found", message });
    };
    server.ingest.durable(generation.ticket(commit)).await.map_err(refused)?;
    tracing::info!(run = name, "released: its data may be dropped when space is needed");
    Ok(answer::json(&json!({ "name": name, "protected": false })))
}
