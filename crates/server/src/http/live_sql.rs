//! `/api/sql/live`: the result of a statement and its changes, as events, lines, or over a WebSocket.

mod socket;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use futures::{StreamExt, stream};
use serde::Deserialize;
use serde::de::IgnoredAny;
use strongback_query::{LiveKind, LiveMessage, SUBSCRIBE_INTERVAL, SUBSCRIBE_LATENESS, SubscribeRequest};

use super::answer::Failure;
use super::live;
use super::live::events::Framing;
use super::sql;
use crate::process::connections::Connection;
use crate::server::{Server, stopped};

/// Id of a subscription that is the only one of its connection.
const ID: i64 = 1;
/// Pause of a browser before it connects again, in milliseconds, as the first line of events.
const RETRY: &[u8] = b"retry: 1000\n\n";

/// A subscription as a client requests it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Subscribe {
    /// Number of the subscription, chosen by the client.
    id: i64,
    sql: String,
    interval_ms: Option<u64>,
    lateness_ms: Option<u64>,
    idle_ms: Option<u64>,
    resume: Option<String>,
}

impl Subscribe {
    fn request(self, server: &Server, address: IpAddr) -> SubscribeRequest {
        let time = |time_ms: Option<u64>, default| time_ms.map_or(default, Duration::from_millis);
        SubscribeRequest {
            sql: self.sql,
            interval: time(self.interval_ms, SUBSCRIBE_INTERVAL),
            lateness: time(self.lateness_ms, SUBSCRIBE_LATENESS),
            idle: self.idle_ms.map(Duration::from_millis),
            resume: self.resume,
            timeout: server.patience(),
            address,
        }
    }
}

/// Parameters of `/api/sql/live` without a WebSocket.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LiveQuery {
    /// Checked in `guard`.
    #[serde(rename = "access_token")]
    _token: Option<IgnoredAny>,
    sql: Option<String>,
    interval_ms: Option<u64>,
    lateness_ms: Option<u64>,
    idle_ms: Option<u64>,
    resume: Option<String>,
    format: Option<String>,
}

/// Parameters of `/api/sql/live` over a WebSocket.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SocketQuery {
    /// Checked in `guard`.
    #[serde(rename = "access_token")]
    _token: Option<IgnoredAny>,
}

/// Answers `GET /api/sql/live`.
pub(super) async fn live(
    State(server): State<Arc<Server>>,
    Extension(connection): Extension<Arc<Connection>>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(_) if !headers.contains_key(header::UPGRADE) => return answer(server, connection, &uri, &headers).await,
        Err(error) => return Err(Failure::bad_request(format!("this is no WebSocket: {error}"))),
    };
    Query::<SocketQuery>::try_from_uri(&uri).map_err(|e| Failure::bad_request(e.to_string()))?;
    let seat = live::seat(&server, &connection)?;
    socket::answer(upgrade, server, connection, seat)
}

/// Serves one subscription as events or lines.
async fn answer(
    server: Arc<Server>,
    connection: Arc<Connection>,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Response, Failure> {
    let Query(query) = Query::<LiveQuery>::try_from_uri(uri).map_err(|e| Failure::bad_request(e.to_string()))?;
    let Some(sql) = query.sql else {
        return Err(Failure::bad_request(
            "without a WebSocket, sql=SELECT… is the statement to follow, as events (text/event-stream) or as lines of \
             JSON (format=jsonl)",
        ));
    };
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let framing = match &query.format {
        Some(name) => Framing::from_name(name)
            .ok_or_else(|| Failure::bad_request(format!("format {name:?} is none of sse, jsonl")))?,
        None => text(header::ACCEPT.as_str()).and_then(Framing::from_accept).unwrap_or(Framing::Events),
    };
    let is_events = framing == Framing::Events;
    // A client without a position sends an empty one.
    let stood = text(live::LAST_EVENT_ID).filter(|id| is_events && !id.is_empty());
    let LiveQuery { interval_ms, lateness_ms, idle_ms, resume, .. } = query;
    let resume = stood.map(str::to_owned).or(resume).filter(|position| !position.is_empty());
    let wanted = Subscribe { id: ID, sql, interval_ms, lateness_ms, idle_ms, resume };
    let seat = live::seat(&server, &connection)?;
    let id = wanted.id;
    let request = wanted.request(&server, connection.address().ip());
    let messages = match server.query.now().subscribe(request, (!is_events).then_some(id)).await {
        Ok(messages) => messages,
        Err(error) => return Ok(sql::refusal(&error)),
    };
    let mut stopping = server.stopping.subscribe();
    let pieces = messages.flat_map(move |message| {
        // Given back with the body.
        let _held = &seat;
        stream::iter(if is_events { event(message) } else { line(message) })
    });
    let first = stream::iter(is_events.then_some(Bytes::from_static(RETRY)));
    let until = Box::pin(async move { stopped(&mut stopping).await });
    let pieces = first.chain(pieces).take_until(until).map(Ok::<_, Infallible>);
    let headers = [
        (header::CONTENT_TYPE.as_str(), framing.content_type()),
        (header::CACHE_CONTROL.as_str(), "no-store"),
        (live::BUFFERING, "no"),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// Returns the pieces of an event. Rows without a position clear that of the client, which could not continue there.
fn event(message: LiveMessage) -> [Bytes; 3] {
    let mut head = format!("event: {}\n", message.kind.name());
    match (message.kind, message.position) {
        (LiveKind::Columns | LiveKind::Error, _) => {}
        (_, position) => {
            head.push_str("id: ");
            head.push_str(&position.unwrap_or_default());
            head.push('\n');
        }
    }
    head.push_str("data: ");
    [Bytes::from(head), Bytes::from_owner(message.body), Bytes::from_static(b"\n\n")]
}

/// Returns the pieces of a line.
fn line(message: LiveMessage) -> [Bytes; 3] {
    [Bytes::new(), Bytes::from_owner(message.body), Bytes::from_static(b"\n")]
}
