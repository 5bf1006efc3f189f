//! Line protocol over HTTP: `/write` (InfluxDB 1), `/api/v2/write` (InfluxDB 2), and the paths around them that
//! clients probe. A 204 means that every line is durable.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde::Deserialize;
use strongback_sources::ilp::gzip::{self, GzipError};
use strongback_sources::ilp::{Answer, Precision};

use super::answer::{self, Failure, Parameters};
use crate::clock::now_ns;
use crate::server::Server;

/// Longest time between two pieces of a body.
const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// Bodies up to this size are parsed where they arrive; larger ones would hold up other connections.
const SMALL_BODY_BYTES: usize = 16 << 10;

/// Parameters of both writes; `db`, `rp`, `bucket`, `org`, `u`, `p`, `consistency` are taken and mean nothing.
#[derive(Debug, Deserialize)]
pub(super) struct WriteQuery {
    precision: Option<String>,
}

/// `POST /write`
pub(super) async fn v1(
    State(server): State<Arc<Server>>,
    Parameters(query): Parameters<WriteQuery>,
    request: Request,
) -> Response {
    let precision = match query.precision.as_deref() {
        None | Some("") => Precision::from_v1("ns"),
        Some(name) => Precision::from_v1(name),
    };
    write(&server, precision, query.precision, request).await
}

/// `POST /api/v2/write`
pub(super) async fn v2(
    State(server): State<Arc<Server>>,
    Parameters(query): Parameters<WriteQuery>,
    request: Request,
) -> Response {
    let precision = match query.precision.as_deref() {
        None | Some("") => Precision::from_v2("ns"),
        Some(name) => Precision::from_v2(name),
    };
    write(&server, precision, query.precision, request).await
}

async fn write(server: &Arc<Server>, precision: Option<Precision>, name: Option<String>, request: Request) -> Response {
    let Some(precision) = precision else {
        let name = name.unwrap_or_default();
        return respond(Answer::invalid(&format!("invalid precision {name:?}; ns, us, ms and s are right")));
    };
    let limit = (server.config.http.max_body_mib as usize) << 20;
    let (parts, body) = request.into_parts();
    let body = match read_body(body, &parts.headers, limit).await {
        Ok(body) => body,
        Err(answer) => {
            server.ingress.counts().bodies_refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            return respond(*answer);
        }
    };
    // One stamp for the request, when all of it was there.
    let receive_time = now_ns();
    let epoch = server.ingest.generation_now();
    let ingress = server.ingress.clone();
    let report = if body.len() <= SMALL_BODY_BYTES {
        ingress.write_body(&body, precision, receive_time)
    } else {
        tokio::task::block_in_place(|| ingress.write_body(&body, precision, receive_time))
    };
    drop(body);
    if let Some(commit) = report.commit
        && let Err(refusal) = server.ingest.durable(epoch.ticket(commit)).await
    {
        return respond(Answer::unavailable(&refusal));
    }
    respond(Answer::of(&report))
}

/// Reads a body within its bounds of size, time, and size once decompressed.
async fn read_body(body: Body, headers: &HeaderMap, limit: usize) -> Result<Bytes, Box<Answer>> {
    let too_large = || Box::new(Answer::too_large(limit));
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    if announced.is_some_and(|n: usize| n > limit) {
        return Err(too_large());
    }
    let mut pieces = body.into_data_stream();
    let mut whole: Vec<u8> = Vec::new();
    let mut first: Option<Bytes> = None;
    loop {
        let piece = match tokio::time::timeout(BODY_PATIENCE, pieces.next()).await {
            Ok(None) => break,
            Ok(Some(Ok(piece))) => piece,
            Ok(Some(Err(error))) => return Err(Box::new(Answer::invalid(&format!("the body broke off: {error}")))),
            Err(_) => {
                let message = format!("no piece of the body for {} s", BODY_PATIENCE.as_secs());
                return Err(Box::new(Answer { status: 408, ..Answer::invalid(&message) }));
            }
        };
        let have = first.as_ref().map_or(whole.len(), Bytes::len);
        if have + piece.len() > limit {
            return Err(too_large());
        }
        match (first.take(), whole.is_empty()) {
            (None, true) => first = Some(piece),
            (Some(before), _) => {
                whole.reserve(announced.unwrap_or(0).clamp(before.len() + piece.len(), limit));
                whole.extend_from_slice(&before);
                whole.extend_from_slice(&piece);
            }
            (None, false) => whole.extend_from_slice(&piece),
        }
    }
    let body = first.unwrap_or_else(|| whole.into());
    match headers.get(header::CONTENT_ENCODING).map(|v| v.as_bytes()) {
        None | Some(b"" | b"identity") => Ok(body),
        Some(b"gzip" | b"x-gzip") => {
            let inflated = tokio::task::block_in_place(|| gzip::inflate(&body, limit));
            inflated.map(Bytes::from).map_err(|error| match error {
                GzipError::TooLarge { .. } => too_large(),
                other => Box::new(Answer::invalid(&other.to_string())),
            })
        }
        Some(other) => {
            let other = String::from_utf8_lossy(other).into_owned();
            Err(Box::new(Answer {
                status: 415,
                ..Answer::invalid(&format!("content encoding {other:?}; gzip is right"))
            }))
        }
    }
}

fn respond(answer: Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = match answer.body {
        None => status.into_response(),
        Some(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
    };
    if let Some(seconds) = answer.retry_after_s {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Parameters of `/query`.
#[derive(Debug, Deserialize)]
pub(super) struct InfluxQuery {
    q: Option<String>,
}

/// `POST /query`: Telegraf creates its database before it writes. There is nothing to create; whatever else is
/// asked in InfluxQL is refused with the right place to ask.
pub(super) async fn query(
    State(_): State<Arc<Server>>,
    Parameters(query): Parameters<InfluxQuery>,
    request: Request,
) -> Response {
    let mut q = query.q.unwrap_or_default();
    if q.is_empty() {
        let headers = request.headers().clone();
        if let Ok(body) = read_body(request.into_body(), &headers, 64 << 10).await {
            // application/x-www-form-urlencoded
            let uri = format!("/?{}", String::from_utf8_lossy(&body));
            let uri = uri.parse().unwrap_or_default();
            if let Ok(form) = axum::extract::Query::<InfluxQuery>::try_from_uri(&uri) {
                q = form.0.q.unwrap_or_default();
            }
        }
    }
    let word = q.trim_start().get(..15).unwrap_or_default();
    if word.eq_ignore_ascii_case("create database") {
        return answer::json(&serde_json::json!({ "results": [{ "statement_id": 0 }] }));
    }
    Failure::bad_request("InfluxQL is not spoken here: POST /api/sql takes SQL, as does the PostgreSQL port")
        .into_response()
}

/// `/api/v4/write`: the QuestDB client's WebSocket.
pub(super) async fn v4() -> Response {
    Failure::not_found(
        "the WebSocket transport (ws::) is not offered: use http:: or tcp:: in the client's configuration",
    )
    .into_response()
}
