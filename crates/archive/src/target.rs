//! The contract of a target.

use std::collections::HashMap;
use std::ops::AddAssign;

use strongback_store::StreamId;

use crate::delivery::{Delivery, StreamFrames};

/// A system that frames are delivered to. It is used by one thread, which may block in its calls.
pub trait Target: Send {
    /// Connects, and returns the first row of each stream that is not durable there, if the target itself keeps
    /// positions. Otherwise it must recognise frames that come again. Called before the first delivery, and again after
    /// [`TargetError::Unavailable`] and [`TargetError::Moved`].
    ///
    /// # Errors
    /// Returns an error if the target cannot be used now.
    fn open(&mut self) -> Result<Option<HashMap<StreamId, u64>>, TargetError>;

    /// Returns whether frames that are there already are recognised, so that any may be delivered again.
    fn recognises_frames(&self) -> bool {
        false
    }

    /// Returns whether frames come with the number of earlier ones of their stream with the same time, for a target that
    /// knows them by it.
    fn counts_repeats(&self) -> bool {
        false
    }

    /// Makes all frames of a delivery durable at the target, with tables and columns for them. Frames that are there
    /// already stay as they are.
    ///
    /// # Errors
    /// Returns an error if any frame may not be durable. Others may be.
    fn deliver(&mut self, delivery: &Delivery) -> Result<Delivered, TargetError>;
}

/// What became of a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Bytes sent.
    pub bytes: u64,
    /// Values that the target cannot represent, and that are NULL there.
    pub altered_values: u64,
}

impl AddAssign for Delivered {
    fn add_assign(&mut self, other: Delivered) {
        self.bytes += other.bytes;
        self.altered_values += other.altered_values;
    }
}

/// Reason why frames are not delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The target takes nothing now: it is not reachable, full, read-only, or rejects our credentials.
    #[error("{0}")]
    Unavailable(String),
    /// The target takes nothing of these streams now, for example because somebody changed their table.
    #[error("{reason}")]
    Streams {
        /// Streams concerned.
        streams: Vec<StreamId>,
        /// Description.
        reason: String,
    },
    /// The target rejects the content of at least one frame, and would always do so.
    #[error("{0}")]
    Rejected(String),
    /// The positions that the target keeps are not those of this follower: another one has the same name.
    #[error("{0}")]
    Moved(String),
}

impl TargetError {
    /// Returns the error for a target that takes nothing of the streams of some frames now.
    pub(crate) fn of(parts: &[&StreamFrames], reason: String) -> TargetError {
        TargetError::Streams { streams: parts.iter().map(|part| part.id()).collect(), reason }
    }
}

/// Reason why a target has no table as frames need it.
pub(crate) enum TableError {
    /// The target answers nothing now.
    Away(TargetError),
    /// The target refuses it, or it does not fit, in words.
    Unfit(String),
}

impl TableError {
    pub(crate) fn into_error(self, parts: &[&StreamFrames]) -> TargetError {
        match self {
            TableError::Away(error) => error,
            TableError::Unfit(reason) => TargetError::of(parts, reason),
        }
    }
}
