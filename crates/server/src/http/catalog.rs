//! `/api/channels`, `/api/sources`, `/api/view`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use strongback_store::Pattern;

use super::answer::{self, Failure, Parameters};
use crate::server::Server;
use crate::text::channel::ChannelCard;
use crate::text::json;

/// Default number of channels in one answer.
const CHANNELS: usize = 10_000;
/// Max number of channels in one answer.
const CHANNELS_MAX: usize = 100_000;

/// Parameters of `/api/channels`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChannelsQuery {
    pattern: Option<String>,
    limit: Option<usize>,
    offset: Option<usize>,
}

/// Answers `GET /api/channels`.
pub(super) async fn channels(
    State(server): State<Arc<Server>>,
    Parameters(query): Parameters<ChannelsQuery>,
) -> Result<Response, Failure> {
    let pattern =
        Pattern::parse(query.pattern.as_deref().unwrap_or("*")).map_err(|e| Failure::bad_request(e.to_string()))?;
    let limit = query.limit.unwrap_or(CHANNELS).min(CHANNELS_MAX);
    let offset = query.offset.unwrap_or(0);
    let catalog = server.ingest.store().catalog();
    let list = move || {
        let mut out = Vec::with_capacity(64 * 1024);
        out.extend_from_slice(b"{\"version\":");
        json::push_big(&mut out, catalog.version);
        out.extend_from_slice(b",\"channels\":[");
        let mut total = 0;
        for stream in &catalog.streams {
            for channel in &stream.layout.channels {
                if !pattern.matches(&stream.key, &channel.name) {
                    continue;
                }
                if (offset..offset.saturating_add(limit)).contains(&total) {
                    if total > offset {
                        out.push(b',');
                    }
                    json::push(&mut out, &ChannelCard::new(stream, channel));
                }
                total += 1;
            }
        }
        out.extend_from_slice(b"],\"total\":");
        json::push_number(&mut out, total as u64);
        out.push(b'}');
        out
    };
    let body = server.readers.spawn(list).await.map_err(Failure::internal)?;
    Ok(answer::json_bytes(body))
}

/// Answers `GET /api/sources`.
pub(super) async fn sources(State(server): State<Arc<Server>>) -> Response {
    answer::json(&serde_json::json!({ "sources": *server.roster.cards() }))
}

/// Answers `GET /api/view`.
pub(super) async fn view(State(server): State<Arc<Server>>) -> Response {
    answer::json(&super::runs::shown(&server))
}
