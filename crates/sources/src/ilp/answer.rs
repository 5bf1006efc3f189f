//! Responses to HTTP writes, worded so that existing clients stop or retry correctly.
//!
//! Telegraf takes a 400 as final only if the text contains `partial write` or `unable to parse`. Otherwise it resends
//! the batch for ever, including its good lines.

use serde_json::json;
use strongback_store::Refusal;

use super::writer::WriteReport;

/// Seconds after which a client should retry.
const RETRY_AFTER_S: u64 = 1;

/// Status, headers and body of the response to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Header `Retry-After`, in seconds.
    pub retry_after_s: Option<u64>,
    /// Body, of type `application/json`; `None` for 204.
    pub body: Option<String>,
}

impl Answer {
    /// Returns the response to a fully accepted write.
    pub fn written() -> Answer {
        Answer { status: 204, retry_after_s: None, body: None }
    }

    /// Returns the response to an invalid request. Nothing was written, and retrying does not help.
    pub fn invalid(message: &str) -> Answer {
        let message = format!("unable to parse: {message}");
        let body = json!({"code": "invalid", "error": message, "message": message});
        Answer { status: 400, retry_after_s: None, body: Some(body.to_string()) }
    }

    /// Returns the response to a body over the limit.
    pub fn too_large(limit_bytes: usize) -> Answer {
        let message = format!("the body has more than {limit_bytes} bytes: write fewer lines at once");
        let body = json!({"code": "request too large", "error": message, "message": message});
        Answer { status: 413, retry_after_s: None, body: Some(body.to_string()) }
    }

    /// Returns the response while the store accepts nothing. The client should retry.
    pub fn unavailable(refusal: &Refusal) -> Answer {
        let message = format!("not written, try again: {refusal}");
        let body = json!({"code": "unavailable", "error": message, "message": message});
        Answer { status: 503, retry_after_s: Some(RETRY_AFTER_S), body: Some(body.to_string()) }
    }

    /// Returns the response to a write whose accepted lines are durable.
    pub fn of(report: &WriteReport) -> Answer {
        if let Some(refusal) = &report.refusal {
            return Answer::unavailable(refusal);
        }
        let Some(error) = &report.first_error else {
            return Answer::written();
        };
        let accepted = report.accepted();
        let start = if accepted > 0 { "partial write" } else { "unable to parse" };
        let message = format!(
            "{start}: line {}, column {}: {} (accepted {accepted}, rejected {})",
            error.line, error.column, error.message, report.rejected
        );
        let body = json!({
            "code": "invalid",
            "error": message,
            "message": message,
            "line": error.line,
            "column": error.column,
            "accepted": accepted,
            "rejected": report.rejected,
        });
        Answer { status: 400, retry_after_s: None, body: Some(body.to_string()) }
    }
}
