//! What an HTTP client is told of its write, in words that make real clients stop or retry rightly.
//!
//! Telegraf takes a 400 as final only where the text says `partial write` or `unable to parse`; anything else it
//! sends again for ever, and the good lines of the batch with it.

use serde_json::json;
use strongback_store::Refusal;

use super::writer::WriteReport;

/// Seconds after which a client shall try again.
const RETRY_AFTER_S: u64 = 1;

/// Status, headers and body of the answer to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Header `Retry-After`, in seconds.
    pub retry_after_s: Option<u64>,
    /// Body, of type `application/json`; none for 204.
    pub body: Option<String>,
}

impl Answer {
    /// Nothing to complain of.
    pub fn written() -> Answer {
        Answer { status: 204, retry_after_s: None, body: None }
    }

    /// A request that is wrong as a whole: nothing of it was written, sending it again does not help.
    pub fn invalid(message: &str) -> Answer {
        let message = format!("unable to parse: {message}");
        let body = json!({"code": "invalid", "error": message, "message": message});
        Answer { status: 400, retry_after_s: None, body: Some(body.to_string()) }
    }

    /// A body over the limit.
    pub fn too_large(limit_bytes: usize) -> Answer {
        let message = format!("the body has more than {limit_bytes} bytes: write fewer lines at once");
        let body = json!({"code": "request too large", "error": message, "message": message});
        Answer { status: 413, retry_after_s: None, body: Some(body.to_string()) }
    }

    /// The store takes nothing now: try again later.
    pub fn unavailable(refusal: &Refusal) -> Answer {
        let message = format!("not written, try again: {refusal}");
        let body = json!({"code": "unavailable", "error": message, "message": message});
        Answer { status: 503, retry_after_s: Some(RETRY_AFTER_S), body: Some(body.to_string()) }
    }

    /// The answer to a write whose accepted lines are durable.
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
