//! Why a source does not start.

use strongback_store::Reject;

use crate::udp::SocketError;

/// Why a source does not start. Each names the source.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its socket cannot be had.
    #[error("source {name}: {source}")]
    Socket {
        /// Name of the source.
        name: String,
        /// Why.
        source: SocketError,
    },
    /// The store refuses one of its streams.
    #[error("source {name}: {source}")]
    Stream {
        /// Name of the source.
        name: String,
        /// Why.
        source: Reject,
    },
    /// No thread can be had.
    #[error("source {name}: {source}")]
    Thread {
        /// Name of the source.
        name: String,
        /// Why.
        source: std::io::Error,
    },
}
