//! Errors that keep a source from starting.

use strongback_store::Reject;

use crate::udp::SocketError;

/// Reason why a source does not start. Each variant names the source.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket error.
    #[error("source {name}: {source}")]
    Socket {
        /// Name of the source.
        name: String,
        /// Cause.
        source: SocketError,
    },
    /// A stream refused by the store.
    #[error("source {name}: {source}")]
    Stream {
        /// Name of the source.
        name: String,
        /// Cause.
        source: Reject,
    },
    /// A thread that could not be started.
    #[error("source {name}: {source}")]
    Thread {
        /// Name of the source.
        name: String,
        /// Cause.
        source: std::io::Error,
    },
}
