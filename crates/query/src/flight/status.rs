//! Errors of queries as statuses of gRPC. The SQLSTATE stands in the message, because statuses have few codes.

use tonic::{Code, Status};

use crate::error::{QueryError, sqlstate};

/// Converts an error to a status.
pub(super) fn status(error: QueryError) -> Status {
    let hint = error.hint.map_or(String::new(), |hint| format!(" {hint}"));
    Status::new(code(error.sqlstate), format!("{} (SQLSTATE {}){hint}", error.message, error.sqlstate))
}

fn code(state: &str) -> Code {
    match state {
        sqlstate::FEATURE_NOT_SUPPORTED => Code::Unimplemented,
        sqlstate::READ_ONLY => Code::FailedPrecondition,
        sqlstate::INVALID_PASSWORD => Code::Unauthenticated,
        sqlstate::UNDEFINED_TABLE | sqlstate::INVALID_CATALOG_NAME => Code::NotFound,
        sqlstate::QUERY_CANCELED => Code::Cancelled,
        sqlstate::ADMIN_SHUTDOWN | sqlstate::CANNOT_CONNECT_NOW => Code::Unavailable,
        sqlstate::SNAPSHOT_TOO_OLD => Code::Aborted,
        sqlstate::DATA_CORRUPTED => Code::DataLoss,
        sqlstate::IO_ERROR | sqlstate::INTERNAL_ERROR => Code::Internal,
        other => match &other[..2] {
            "40" => Code::Aborted,
            "53" | "54" => Code::ResourceExhausted,
            _ => Code::InvalidArgument,
        },
    }
}

/// Returns the error for a message that is not one of Flight SQL.
pub(super) fn malformed(what: &str) -> QueryError {
    QueryError::new(sqlstate::PROTOCOL_VIOLATION, format!("invalid message: {what}"))
}
