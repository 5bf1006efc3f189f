//! `/api/layouts`: the page's layouts by name, each with a tag (`ETag`) that keeps two writers from overwriting each
//! other.

use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::json;

use super::answer::{self, Failure};
use crate::server::Server;
use crate::server::layouts::{BYTES_MAX, LayoutError, Precondition};

impl From<LayoutError> for Failure {
    fn from(error: LayoutError) -> Failure {
        let (status, code) = match &error {
            LayoutError::Name(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            LayoutError::Unknown(_) => (StatusCode::NOT_FOUND, "not_found"),
            LayoutError::Broken { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "bad_layout"),
            LayoutError::Conflict { .. } => (StatusCode::PRECONDITION_FAILED, "conflict"),
            LayoutError::Full => (StatusCode::INSUFFICIENT_STORAGE, "full"),
            LayoutError::Disk { error: cause, .. } if takes_nothing(cause) => {
                tracing::warn!("a layout was not kept: {error}");
                return Failure::unavailable(format!("the disk cannot be written: {cause}"));
            }
            LayoutError::Disk { .. } => return Failure::internal(error),
        };
        Failure { status, code, message: error.to_string() }
    }
}

/// Returns whether the disk refuses writes for now: it is full or read-only.
fn takes_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem)
}

/// Parses `If-Match` and `If-None-Match`.
fn expected(headers: &HeaderMap) -> Result<Precondition, Failure> {
    let refused = || Failure::bad_request("If-Match: \"TAG\", If-None-Match: *, or neither");
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default().trim());
    match (text(header::IF_MATCH), text(header::IF_NONE_MATCH)) {
        (None, None) => Ok(Precondition::Any),
        (None, Some("*")) => Ok(Precondition::Nothing),
        (Some(tag), None) => {
            // A compressing proxy makes the tag weak; the text stays the same.
            let quoted = tag.strip_prefix("W/").unwrap_or(tag).strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
            quoted.map(|tag| Precondition::Tag(tag.to_owned())).ok_or_else(refused)
        }
        _ => Err(refused()),
    }
}

fn with_tag(mut response: Response, tag: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(&format!("\"{tag}\"")) {
        response.headers_mut().insert(header::ETAG, value);
    }
    response
}

/// Answers `GET /api/layouts`.
pub(super) async fn list(State(server): State<Arc<Server>>) -> Result<Response, Failure> {
    let layouts = server.layouts.clone();
    let list = server.readers.spawn(move || layouts.list()).await.map_err(Failure::internal)??;
    let cards: Vec<_> = list
        .iter()
        .map(|entry| {
            json!({
                "name": entry.name,
                "title": entry.title.as_ref().ok(),
                "error": entry.title.as_ref().err(),
                "etag": entry.tag,
                "changed": entry.changed_ns.map(|ns| ns.to_string()),
            })
        })
        .collect();
    Ok(answer::json(&json!({ "layouts": cards })))
}

/// Answers `GET /api/layouts/{name}`.
pub(super) async fn get(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Result<Response, Failure> {
    let layouts = server.layouts.clone();
    let layout = server.readers.spawn(move || layouts.get(&name)).await.map_err(Failure::internal)??;
    Ok(with_tag(answer::json_bytes(layout.text), &layout.tag))
}

/// Answers `PUT /api/layouts/{name}` once the layout is durable.
pub(super) async fn put(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let expected = expected(&headers)?;
    let text: Bytes = axum::body::to_bytes(body, BYTES_MAX).await.map_err(|_| Failure {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        code: "too_large",
        message: format!("a layout has at most {BYTES_MAX} bytes"),
    })?;
    let layouts = server.layouts.clone();
    let about = name.clone();
    let put = move || layouts.put(&about, &text, &expected);
    let (tag, new) = server.recorders.spawn(put).await.map_err(Failure::internal)??;
    let mut response = with_tag(answer::json(&json!({ "name": name, "etag": tag })), &tag);
    *response.status_mut() = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(response)
}

/// Answers `DELETE /api/layouts/{name}`.
pub(super) async fn delete(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let expected = expected(&headers)?;
    let layouts = server.layouts.clone();
    let about = name.clone();
    server.recorders.spawn(move || layouts.delete(&about, &expected)).await.map_err(Failure::internal)??;
    Ok(answer::json(&json!({ "name": name, "deleted": true })))
}
