//! `GET /api/export`: exports as a stream.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde::Deserialize;
use strongback_query::{ExportFormat, ExportMarks, ExportRequest};

use super::answer::{Failure, Parameters};
use super::reading::patterns;
use super::reading::range;
use crate::process::connections::Connection;
use crate::server::Server;

/// Parameters of `/api/export`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportQuery {
    from: Option<String>,
    to: Option<String>,
    channels: Option<String>,
    format: Option<String>,
    marks: Option<String>,
}

/// Answers `GET /api/export` as a stream. If the export fails under way, the connection is broken off, so that no
/// client takes a part for the whole.
pub(super) async fn export(
    State(server): State<Arc<Server>>,
    Extension(connection): Extension<Arc<Connection>>,
    Parameters(query): Parameters<ExportQuery>,
) -> Result<Response, Failure> {
    let name = query.format.as_deref().unwrap_or("csv");
    let format = ExportFormat::from_name(name)
        .ok_or_else(|| Failure::bad_request(format!("format {name:?} is none of csv, jsonl, parquet")))?;
    let marks = query.marks.as_deref().unwrap_or("apply");
    let marks = ExportMarks::from_name(marks)
        .ok_or_else(|| Failure::bad_request(format!("marks {marks:?} is none of apply, ignore, show")))?;
    let request = ExportRequest {
        time: range(query.from.as_deref(), query.to.as_deref(), i64::MIN)?,
        patterns: patterns(query.channels.as_deref().unwrap_or("*"))?,
        format,
        marks,
    };
    let under_way = server.exports.begin(&connection).map_err(Failure::unavailable)?;
    let stream = server.query.now().export(request).await.map_err(|e| Failure::bad_request(e.to_string()))?;
    let stream = stream.map(move |chunk| {
        // Keeps the guard until the stream is dropped.
        let _ = &under_way;
        chunk.inspect_err(|error| tracing::error!(%error, "an export ended early"))
    });
    let file = format!("attachment; filename=\"strongback.{name}\"");
    let headers = [
        (header::CONTENT_TYPE, format.content_type()),
        (header::CONTENT_DISPOSITION, file.as_str()),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, Body::from_stream(stream)).into_response())
}
