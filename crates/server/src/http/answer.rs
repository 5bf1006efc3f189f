//! Answers: JSON bodies, errors as `{"error", "code"}`, and the headers of every answer.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use strongback_store::ScanError;

use crate::process::readers::ReadError;
use crate::text::json;

/// An error in the form clients see it.
#[derive(Debug)]
pub struct Failure {
    /// HTTP status.
    pub status: StatusCode,
    /// Error code for programs.
    pub code: &'static str,
    /// Message for people.
    pub message: String,
}

impl Failure {
    /// Returns the error for an invalid request.
    pub fn bad_request(message: impl Into<String>) -> Failure {
        Failure { status: StatusCode::BAD_REQUEST, code: "bad_request", message: message.into() }
    }

    /// Returns the error for a resource that is not available now.
    pub fn unavailable(message: impl Into<String>) -> Failure {
        Failure { status: StatusCode::SERVICE_UNAVAILABLE, code: "unavailable", message: message.into() }
    }

    /// Returns the error for a defect of the server or its disk, and logs it.
    pub fn internal(error: impl std::fmt::Display) -> Failure {
        tracing::error!("a request failed: {error}");
        Failure { status: StatusCode::INTERNAL_SERVER_ERROR, code: "internal", message: error.to_string() }
    }

    /// Returns the error for a request that the present state does not allow.
    pub fn conflict(message: impl Into<String>) -> Failure {
        Failure { status: StatusCode::CONFLICT, code: "conflict", message: message.into() }
    }

    /// Returns the error for a missing resource.
    pub fn not_found(message: impl Into<String>) -> Failure {
        Failure { status: StatusCode::NOT_FOUND, code: "not_found", message: message.into() }
    }

    /// Returns the error for an unknown path.
    pub fn nothing_at(path: &str) -> Failure {
        Failure::not_found(format!("nothing at {path}"))
    }
}

impl From<ScanError> for Failure {
    fn from(error: ScanError) -> Failure {
        match error {
            ScanError::Expired | ScanError::BlobExpired { .. } | ScanError::ViewTooOld => {
                Failure::unavailable(error.to_string())
            }
            other => Failure::internal(other),
        }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        match error {
            ReadError::Scan(error) => error.into(),
            ReadError::Over(over) => over.into(),
            ReadError::TooLong(_) => {
                Failure { status: StatusCode::SERVICE_UNAVAILABLE, code: "timeout", message: error.to_string() }
            }
            ReadError::Left => Failure::unavailable(error.to_string()),
            ReadError::Defect(_) => Failure::internal(error),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response =
            (self.status, json(&serde_json::json!({ "error": self.message, "code": self.code }))).into_response();
        if matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Returns a response with a value as its JSON body.
pub fn json<T: Serialize + ?Sized>(value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => json_bytes(bytes),
        Err(error) => Failure::internal(error).into_response(),
    }
}

/// A JSON object with one long list, written item by item: as values, a list of a hundred thousand would take many times
/// the bytes of its text.
#[derive(Debug)]
pub struct JsonList {
    out: Vec<u8>,
    len: usize,
}

impl JsonList {
    /// Begins an object with the list under `name`, which needs no escapes.
    pub fn new(name: &str) -> JsonList {
        JsonList { out: format!("{{\"{name}\":[").into_bytes(), len: 0 }
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds an item.
    pub fn push<T: Serialize + ?Sized>(&mut self, item: &T) {
        if self.len > 0 {
            self.out.push(b',');
        }
        self.len += 1;
        json::push(&mut self.out, item);
    }

    /// Ends the object with further fields.
    pub fn finish(mut self, fields: &serde_json::Map<String, serde_json::Value>) -> Response {
        self.out.push(b']');
        for (name, value) in fields {
            self.out.push(b',');
            json::push(&mut self.out, name);
            self.out.push(b':');
            json::push(&mut self.out, value);
        }
        self.out.push(b'}');
        json_bytes(self.out)
    }
}

/// Returns a response with a body that already is JSON.
pub fn json_bytes(bytes: impl Into<axum::body::Bytes>) -> Response {
    let bytes = bytes.into();
    ([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")], bytes).into_response()
}

/// Query parameters; invalid ones are answered in JSON.
#[derive(Debug)]
pub struct Parameters<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Parameters<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(parameters)) => Ok(Parameters(parameters)),
            Err(error) => Err(Failure::bad_request(error.to_string())),
        }
    }
}

/// A JSON body; an empty one counts as `{}`. An invalid or too large body is answered in JSON.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| match rejection.status() {
            status @ StatusCode::PAYLOAD_TOO_LARGE => {
                let message = "the body is larger than 2 MiB".to_owned();
                Failure { status, code: "too_large", message }
            }
            _ => Failure::bad_request(format!("the body cannot be read: {}", rejection.body_text())),
        })?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let read = serde_json::from_slice(text);
        read.map(JsonBody).map_err(|error| Failure::bad_request(format!("invalid body: {error}")))
    }
}

/// Returns the error for a method that the path does not allow.
pub async fn wrong_method() -> Failure {
    Failure {
        status: StatusCode::METHOD_NOT_ALLOWED,
        code: "method_not_allowed",
        message: "method not allowed on this path".to_owned(),
    }
}

/// Adds headers that keep browsers from sniffing types, framing the page and leaking referrers.
pub async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN"));
    response
}
