//! `POST /api/sql`: SQL queries with JSON answers.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use strongback_query::QueryError;

use super::answer::{self, Failure, JsonBody};
use super::reading::mark_use;
use crate::server::Server;

/// Default number of rows in an answer.
const ROWS: usize = 1000;
/// Max number of rows in an answer; larger results go over the PostgreSQL wire or `/api/export`.
const ROWS_MAX: usize = 100_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    sql: String,
    limit: Option<usize>,
    marks: Option<String>,
}

/// Answers `POST /api/sql`.
pub(super) async fn sql(
    State(server): State<Arc<Server>>,
    JsonBody(question): JsonBody<Question>,
) -> Result<Response, Failure> {
    let limit = question.limit.unwrap_or(ROWS).min(ROWS_MAX);
    let patience = server.patience();
    let engine = server.query.now().with_marks(mark_use(question.marks.as_deref())?);
    match engine.sql_json(&question.sql, limit, patience).await {
        Ok(body) => Ok(answer::json_bytes(Bytes::from_owner(body))),
        Err(error) => Ok(refusal(&error)),
    }
}

/// Returns the answer for a statement that failed.
pub(super) fn refusal(error: &QueryError) -> Response {
    let mut body = serde_json::json!({ "error": error.to_string(), "code": "sql", "sqlstate": error.sqlstate });
    if let Some(hint) = &error.hint {
        body["hint"] = hint.as_str().into();
    }
    let mut response = answer::json(&body);
    // Classes 53 (resources), 57 (cancelled) and XX (defects) are not errors of the query.
    *response.status_mut() = match &error.sqlstate.as_bytes()[..2] {
        b"53" | b"57" => StatusCode::SERVICE_UNAVAILABLE,
        b"XX" => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    };
    response
}
