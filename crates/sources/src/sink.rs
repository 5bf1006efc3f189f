//! Destination of the frames of sources.

use std::sync::Arc;
use std::time::Duration;

use strongback_store::{
    Appended, BlobError, BlobRef, ChannelIndex, CommitNumber, FrameBatch, Outcome, Refusal, Reject, Stream, StreamId,
    StreamSpec,
};

/// Destination of the sources' frames: the server's ingest path (store, then live). Sources never touch the disk
/// themselves, and UDP sources never wait.
pub trait Sink: Send + Sync {
    /// Finds, creates or extends a stream, like [`strongback_store::Store::resolve`].
    ///
    /// The sink may fill in what the source cannot know: units, descriptions, expected periods.
    fn resolve(&self, spec: &StreamSpec) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject>;

    /// Accepts frames: stores them, shows them live and counts them. Frames refused by the store are still shown,
    /// marked `not recorded`.
    fn accept(&self, batch: &FrameBatch) -> Appended;

    /// Does the same as [`Sink::accept`], for sources that can push back (TCP, HTTP, files): offers frames refused with
    /// [`Refusal::LogFull`] again after the commit that makes room. A sink that shows frames live should override this,
    /// so that frames offered twice are shown once.
    fn accept_waiting(&self, batch: &FrameBatch) -> Appended {
        offer_until_taken(self, batch)
    }

    /// Blocks until a commit is durable.
    fn wait_durable(&self, commit: CommitNumber) -> Result<(), Refusal>;

    /// Stores an image or other bytes for a stream. They are durable when this returns, and frames may then contain the
    /// reference.
    ///
    /// # Errors
    /// If the sink stores no blobs, or as for [`strongback_store::Store::blob`].
    fn put_blob(&self, stream: StreamId, _bytes: &[u8]) -> Result<BlobRef, BlobError> {
        Err(BlobError::NoBlobs { stream: format!("stream {}", stream.0) })
    }

    /// Counts rejections of input for a known stream that did not become frames.
    fn count_rejected(&self, stream: StreamId, frames: u64);

    /// Returns a number that increases when earlier stream and channel numbers become invalid (the store was reopened
    /// after a failed disk). Sources then resolve their streams again.
    fn generation(&self) -> u64 {
        0
    }
}

/// Maximum consecutive offers without any frame being accepted, about ten seconds.
const FRUITLESS_OFFERS_MAX: u32 = 200;
/// Maximum pause after a fruitless offer.
const PAUSE_MAX: Duration = Duration::from_millis(50);

fn log_full(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Rejected(Reject::Refused(Refusal::LogFull)))
}

fn offer_until_taken<S: Sink + ?Sized>(sink: &S, batch: &FrameBatch) -> Appended {
    let mut appended = sink.accept(batch);
    let mut open: Vec<usize> = (0..appended.outcomes.len()).filter(|i| log_full(&appended.outcomes[*i])).collect();
    let mut fruitless = 0;
    while !open.is_empty() && fruitless < FRUITLESS_OFFERS_MAX {
        if sink.wait_durable(appended.commit).is_err() {
            break;
        }
        let mut rest = FrameBatch::new();
        rest.set_answered(batch.is_answered());
        for &i in &open {
            rest.copy(&batch.frame(i));
        }
        let again = sink.accept(&rest);
        appended.commit = appended.commit.max(again.commit);
        let before = open.len();
        let mut still = Vec::new();
        for (&i, outcome) in open.iter().zip(again.outcomes) {
            if log_full(&outcome) {
                still.push(i);
            } else {
                appended.outcomes[i] = outcome;
            }
        }
        open = still;
        if open.len() < before {
            fruitless = 0;
        } else {
            // The commit made no room, because the log's tail has yet to be sealed.
            fruitless += 1;
            std::thread::sleep(Duration::from_millis(1 << fruitless.min(6)).min(PAUSE_MAX));
        }
    }
    appended
}
