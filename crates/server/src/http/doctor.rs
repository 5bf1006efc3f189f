//! `/api/doctor`: why data is missing.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::answer::{self, Failure, Parameters};
use super::reading::{instant_of, patterns};
use crate::doctor::{facts, judge};
use crate::process::clock::now_ns;
use crate::server::Server;

/// Parameters of `/api/doctor`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DoctorQuery {
    channel: Option<String>,
    at: Option<String>,
}

/// Answers `GET /api/doctor`.
pub(super) async fn doctor(
    State(server): State<Arc<Server>>,
    Parameters(query): Parameters<DoctorQuery>,
) -> Result<Response, Failure> {
    let now = now_ns();
    let at = instant_of(query.at.as_deref(), now)?;
    if at.is_some_and(|at| at > now) {
        return Err(Failure::bad_request("at is in the future"));
    }
    let channel = query.channel.filter(|channel| !channel.is_empty());
    let patterns = channel.as_deref().map_or(Ok(Vec::new()), patterns)?;
    let read = server.clone();
    let report = move || {
        let facts = facts::gather(&read, channel.as_deref(), &patterns, at, now);
        facts.map(|facts| judge(&facts))
    };
    let report = server.readers.spawn(report).await.map_err(Failure::internal)??;
    Ok(answer::json(&report))
}
