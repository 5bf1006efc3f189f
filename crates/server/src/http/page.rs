//! The page, embedded in the binary: built from `web/` before cargo runs.

use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Response};
use rust_embed::RustEmbed;

use super::answer::Failure;

/// `web/dist`, if it was there when the binary was built.
#[derive(RustEmbed)]
#[folder = "$CARGO_MANIFEST_DIR/../../web/dist"]
#[allow_missing = true]
struct Page;

const NO_PAGE: &str = "<!doctype html><title>Strongback</title><p>This binary was built without its page. \
    <code>make build</code> builds both; the interface under <code>/api</code> works without it.</p>";

/// Answers `GET /`.
pub(super) async fn index(headers: HeaderMap) -> Response {
    match file("index.html", &headers) {
        Some(response) => response,
        None => (StatusCode::OK, [(header::CACHE_CONTROL, "no-cache")], Html(NO_PAGE)).into_response(),
    }
}

/// Answers `GET /assets/…`.
pub(super) async fn asset(uri: Uri, headers: HeaderMap) -> Result<Response, Failure> {
    file(uri.path().trim_start_matches('/'), &headers).ok_or_else(|| Failure::nothing_at(uri.path()))
}

/// Answers every other path with a file beside the page's index (icons), or 404.
pub(super) async fn other(uri: Uri, headers: HeaderMap) -> Result<Response, Failure> {
    let path = uri.path().trim_start_matches('/');
    // Only files of the page's own folder; any other path must stay unknown to probing clients.
    if path.contains('/') || !path.contains('.') {
        return Err(Failure::nothing_at(uri.path()));
    }
    file(path, &headers).ok_or_else(|| Failure::nothing_at(uri.path()))
}

fn file(path: &str, headers: &HeaderMap) -> Option<Response> {
    let file = Page::get(path)?;
    let hash = file.metadata.sha256_hash();
    let tag: String = hash[..12].iter().map(|b| format!("{b:02x}")).collect();
    let tag = format!("\"{tag}\"");
    // Names of assets contain their hash; the index does not.
    let caching = if path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    let known = headers.get(header::IF_NONE_MATCH).and_then(|v| v.to_str().ok());
    if known.is_some_and(|known| known.split(',').any(|k| k.trim().trim_start_matches("W/") == tag)) {
        return Some((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    let kind = mime_guess::from_path(path).first_or_octet_stream();
    let kind = match kind.type_() {
        mime_guess::mime::TEXT => format!("{kind}; charset=utf-8"),
        _ => kind.to_string(),
    };
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, caching.to_owned()), (header::ETAG, tag)];
    Some((headers, file.data.into_owned()).into_response())
}
