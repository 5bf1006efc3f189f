//! `/api/live`: upgrades to a WebSocket, or answers with a stream of events or lines.

pub mod aside;
pub mod backlog;
pub mod begin;
pub mod events;
pub mod scene;
pub mod subscriber;
pub mod ws;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::answer::Failure;
use super::playbacks;
use super::reading::patterns;
use crate::http::live::begin::{Subscribe, SubscribeRequest};
use crate::http::live::events::Framing;
use crate::http::live::scene::Scene;
use crate::http::live::subscriber::PATTERNS_MAX;
use crate::http::live::ws::MESSAGE_BYTES_MAX;
use crate::live::binary::PROTOCOL;
use crate::live::outgoing::Form;
use crate::live::resume::Position;
use crate::live::seats::{Full, Seat};
use crate::process::connections::Connection;
use crate::server::Server;

/// Bytes read at once from a client. Small, because the whole buffer is cleared at each read and clients send little.
const READ_BYTES: usize = 4096;
/// Header with the position at which a client of events resumes.
pub(super) const LAST_EVENT_ID: &str = "last-event-id";
/// Header that keeps a proxy from buffering events.
pub(super) const BUFFERING: &str = "x-accel-buffering";
/// Id of the only subscription of a streamed answer.
const ID: i64 = 1;

/// Answers `GET /api/live`.
pub(super) async fn live(
    State(server): State<Arc<Server>>,
    Extension(connection): Extension<Arc<Connection>>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(_) if !headers.contains_key(header::UPGRADE) => return answer(server, connection, &uri, &headers),
        Err(error) => return Err(Failure::bad_request(format!("this is no WebSocket: {error}"))),
    };
    let Query(query) = Query::<SceneQuery>::try_from_uri(&uri).map_err(|e| Failure::bad_request(e.to_string()))?;
    let scene = scene(&server, query.playback.as_deref())?;
    let seat = seat(&server, &connection)?;
    let upgrade = upgrade.protocols([PROTOCOL]);
    let form = if upgrade.selected_protocol().is_some() { Form::Binary } else { Form::Json };
    let upgrade =
        upgrade.read_buffer_size(READ_BYTES).max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let serving = server.clone();
        server.viewers.spawn(async move {
            ws::serve(socket, serving, scene, (form, connection)).await;
            drop(seat);
        });
    }))
}

/// Takes the slot of a live client.
pub(super) fn seat(server: &Server, connection: &Connection) -> Result<Seat, Failure> {
    server.live_clients.take(connection.address().ip()).map_err(|full| match full {
        Full::All { .. } => Failure::unavailable(full.to_string()),
        Full::Address { .. } => {
            Failure { status: StatusCode::TOO_MANY_REQUESTS, code: "too_many_clients", message: full.to_string() }
        }
    })
}

/// Returns the feed to watch: live data or a playback.
fn scene(server: &Server, playback: Option<&str>) -> Result<Scene, Failure> {
    match playback {
        None => Ok(Scene::live(server)),
        Some(id) => Ok(Scene::of(&server.playbacks.get(id).map_err(playbacks::failure)?)),
    }
}

/// Parameters of `/api/live` over a WebSocket.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SceneQuery {
    /// Checked in `guard`.
    #[serde(rename = "access_token")]
    _token: Option<IgnoredAny>,
    playback: Option<String>,
}

/// Parameters of `/api/live` without a WebSocket.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LiveQuery {
    /// Checked in `guard`.
    #[serde(rename = "access_token")]
    _token: Option<IgnoredAny>,
    channels: Option<String>,
    max_rate_hz: Option<f64>,
    history_s: Option<f64>,
    history_points: Option<usize>,
    format: Option<String>,
    playback: Option<String>,
}

/// Serves one subscription as events or lines.
fn answer(
    server: Arc<Server>,
    connection: Arc<Connection>,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Response, Failure> {
    let Query(query) = Query::<LiveQuery>::try_from_uri(uri).map_err(|e| Failure::bad_request(e.to_string()))?;
    let Some(channels) = &query.channels else {
        return Err(Failure::bad_request(
            "this path speaks WebSocket; without one, channels=PATTERN,… is what is wanted, as events \
             (Accept: text/event-stream, or format=sse) or as lines of JSON",
        ));
    };
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let framing = match &query.format {
        Some(name) => Framing::from_name(name)
            .ok_or_else(|| Failure::bad_request(format!("format {name:?} is none of sse, jsonl")))?,
        None => text(header::ACCEPT.as_str()).and_then(Framing::from_accept).unwrap_or(Framing::Lines),
    };
    let channels: Vec<String> = patterns(channels)?.iter().map(|pattern| pattern.as_str().to_owned()).collect();
    if channels.len() > PATTERNS_MAX {
        return Err(Failure::bad_request(format!("{} patterns, at most {PATTERNS_MAX}", channels.len())));
    }
    // A client without a position sends an empty one.
    let stood = if framing == Framing::Events { text(LAST_EVENT_ID).filter(|id| !id.is_empty()) } else { None };
    let position = stood
        .map(|id| {
            Position::parse(id).ok_or_else(|| Failure::bad_request("Last-Event-ID is not a position of this server"))
        })
        .transpose()?;
    let wanted = SubscribeRequest::check(Subscribe {
        id: ID,
        channels,
        max_rate_hz: query.max_rate_hz,
        history_s: query.history_s,
        history_points: query.history_points,
        resume: position.map(Into::into),
    })
    .map_err(Failure::bad_request)?;
    let scene = scene(&server, query.playback.as_deref())?;
    let seat = seat(&server, &connection)?;
    let pieces = events::serve(wanted, framing, (server, scene), connection, seat);
    let headers = [
        (header::CONTENT_TYPE.as_str(), framing.content_type()),
        (header::CACHE_CONTROL.as_str(), "no-store"),
        (BUFFERING, "no"),
    ];
    Ok((headers, Body::from_stream(pieces.map(Ok::<_, std::convert::Infallible>))).into_response())
}
