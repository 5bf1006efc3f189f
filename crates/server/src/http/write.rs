//! Line protocol over HTTP: `/write` (InfluxDB 1), `/api/v2/write` (InfluxDB 2), and the paths around them that
//! clients probe. A 204 means that every line is durable.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde::Deserialize;
use strongback_sources::ilp::gzip::{self, GzipError};
use strongback_sources::ilp::{Answer, Precision};
use strongback_store::Refusal;

use super::answer::{self, Failure, Parameters};
use super::bounded::Intake;
use crate::process::clock::now_ns;
use crate::server::Server;

/// Expected growth of a gzip body with telemetry, as a factor and as bytes added to it.
const INFLATED_RATIO: usize = 16;
const INFLATED_BYTES: usize = 64 << 10;
/// Max size of a body parsed on the thread that received it; larger ones would hold up other connections.
const SMALL_BODY_BYTES: usize = 16 << 10;
/// Max bytes reserved for a body before they arrive.
const AHEAD_BYTES_MAX: usize = 1 << 20;

/// Parameters of both writes; `db`, `rp`, `bucket`, `org`, `u`, `p` and `consistency` are accepted and ignored.
#[derive(Debug, Deserialize)]
pub(super) struct WriteQuery {
    precision: Option<String>,
}

/// Answers `POST /write`.
pub(super) async fn v1(
    State(server): State<Arc<Server>>,
    Parameters(query): Parameters<WriteQuery>,
    request: Request,
) -> Response {
    let precision = match query.precision.as_deref() {
        None | Some("") => Precision::from_v1("ns"),
        Some(name) => Precision::from_v1(name),
    };
    let Some(precision) = precision else { return invalid(query.precision, "n, ns, u, us, ms, s, m and h") };
    write(&server, precision, request).await
}

/// Answers `POST /api/v2/write`.
pub(super) async fn v2(
    State(server): State<Arc<Server>>,
    Parameters(query): Parameters<WriteQuery>,
    request: Request,
) -> Response {
    let precision = match query.precision.as_deref() {
        None | Some("") => Precision::from_v2("ns"),
        Some(name) => Precision::from_v2(name),
    };
    let Some(precision) = precision else { return invalid(query.precision, "ns, us, ms and s") };
    write(&server, precision, request).await
}

fn invalid(precision: Option<String>, right: &str) -> Response {
    let precision = precision.unwrap_or_default();
    respond(Answer::invalid(&format!("invalid precision {precision:?}; expected one of {right}")))
}

async fn write(server: &Arc<Server>, precision: Precision, request: Request) -> Response {
    let limit = (server.config.http.max_body_mib as usize) << 20;
    let (parts, body) = request.into_parts();
    let intake = parts.extensions.get::<Arc<Intake>>();
    let body = match read_body(body, &parts.headers, limit, intake).await {
        Ok(body) => body,
        Err(answer) => {
            server.ingress.counts().bodies_refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            return respond(*answer);
        }
    };
    // Writes block their threads while the log is full; fewer may run at once than there are threads.
    let Ok(_turn) = server.writers.acquire().await else {
        return respond(Answer::unavailable(&Refusal::Closed));
    };
    // One stamp for the whole request, taken once all of it has arrived.
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

/// Reads a body, bounded in size both compressed and decompressed. Its time and memory are bounded as for all bodies.
async fn read_body(
    body: Body,
    headers: &HeaderMap,
    limit: usize,
    intake: Option<&Arc<Intake>>,
) -> Result<Bytes, Box<Answer>> {
    let too_large = || Box::new(Answer::too_large(limit));
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    if announced.is_some_and(|n: usize| n > limit) {
        return Err(too_large());
    }
    let mut pieces = body.into_data_stream();
    let mut whole: Vec<u8> = Vec::new();
    let mut first: Option<Bytes> = None;
    loop {
        let piece = match pieces.next().await {
            None => break,
            Some(Ok(piece)) => piece,
            Some(Err(error)) => return Err(Box::new(Answer::invalid(&format!("the body broke off: {error}")))),
        };
        let have = first.as_ref().map_or(whole.len(), Bytes::len);
        if have + piece.len() > limit {
            return Err(too_large());
        }
        match (first.take(), whole.is_empty()) {
            (None, true) => first = Some(piece),
            (Some(before), _) => {
                // The announced length is the client's claim, so only a bounded part of it is reserved.
                let ahead = announced.unwrap_or(0).min(AHEAD_BYTES_MAX);
                whole.reserve(ahead.max(before.len() + piece.len()));
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
            let likely = body.len().saturating_mul(INFLATED_RATIO).saturating_add(INFLATED_BYTES).min(limit);
            let inflated = match inflate(&body, 0, likely, intake)? {
                // Grows more than telemetry does: inflate up to the limit, in reserved memory.
                Err(GzipError::TooLarge { .. }) if likely < limit => inflate(&body, likely, limit, intake)?,
                inflated => inflated,
            };
            inflated.map(Bytes::from).map_err(|error| match error {
                GzipError::TooLarge { .. } => too_large(),
                other => Box::new(Answer::invalid(&other.to_string())),
            })
        }
        Some(other) => {
            let other = String::from_utf8_lossy(other).into_owned();
            Err(Box::new(Answer {
                status: 415,
                ..Answer::invalid(&format!("content encoding {other:?}; only gzip is supported"))
            }))
        }
    }
}

/// Inflates a body to at most `limit` bytes, `reserved` of which are already reserved.
fn inflate(
    body: &[u8],
    reserved: usize,
    limit: usize,
    intake: Option<&Arc<Intake>>,
) -> Result<Result<Vec<u8>, GzipError>, Box<Answer>> {
    if let Some(intake) = intake {
        intake.grow(limit - reserved).map_err(|over| Box::new(Answer::invalid(&over.to_string())))?;
    }
    Ok(tokio::task::block_in_place(|| gzip::inflate(body, limit)))
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

/// Answers `POST /query`: Telegraf creates its database before it writes. There is nothing to create; any other
/// InfluxQL is refused with a pointer to the right path.
pub(super) async fn query(
    State(_): State<Arc<Server>>,
    Parameters(query): Parameters<InfluxQuery>,
    request: Request,
) -> Response {
    let mut q = query.q.unwrap_or_default();
    if q.is_empty() {
        let headers = request.headers().clone();
        if let Ok(body) = read_body(request.into_body(), &headers, 64 << 10, None).await {
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

/// Refuses `/api/v4/write`, the QuestDB client's WebSocket.
pub(super) async fn v4() -> Response {
    Failure::not_found(
        "the WebSocket transport (ws::) is not offered: use http:: or tcp:: in the client's configuration",
    )
    .into_response()
}
