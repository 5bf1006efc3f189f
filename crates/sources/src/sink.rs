//! Where sources hand their frames.

use std::sync::Arc;

use strongback_store::{
    Appended, ChannelIndex, CommitNumber, FrameBatch, Refusal, Reject, Stream, StreamId, StreamSpec,
};

/// What stands behind the sources: the server's ingest path (store, then live). Sources never touch the
/// disk themselves, and UDP sources never wait.
pub trait Sink: Send + Sync {
    /// Finds, makes or grows a stream: [`strongback_store::Store::resolve`].
    fn resolve(&self, spec: &StreamSpec) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject>;

    /// Takes frames: stored, shown live, counted. When the store refuses they are still shown, marked
    /// `not recorded`.
    fn accept(&self, batch: &FrameBatch) -> Appended;

    /// Blocks until a commit is durable.
    fn wait_durable(&self, commit: CommitNumber) -> Result<(), Refusal>;

    /// Counts frames of a known stream that were rejected before they became frames.
    fn count_rejected(&self, stream: StreamId, frames: u64);
}
