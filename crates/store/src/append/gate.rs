//! The gate of the append side: whether frames are accepted, and if not, why.

use crate::{Refusal, Reject};

/// Reasons to refuse frames.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: bool,
    /// Whether no segment space is available.
    disk_full: bool,
    /// Reason to refuse everything until the disk accepts the writes that it refused.
    held: Option<Refusal>,
}

impl Gate {
    /// Returns whether frames are accepted, as far as the log has room for them.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        !self.closed && !self.disk_full && self.held.is_none()
    }

    /// Returns why frames are refused, or `None` if they are accepted.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self {
            Gate { closed: true, .. } => Some(Refusal::Closed),
            Gate { disk_full: true, .. } => Some(Refusal::DiskFull),
            Gate { held, .. } => held.clone(),
        }
    }

    /// Checks that the store is not closed.
    ///
    /// # Errors
    /// The store is closed.
    pub(crate) fn check_closed(&self) -> Result<(), Reject> {
        if self.closed { Err(Reject::Refused(Refusal::Closed)) } else { Ok(()) }
    }

    /// Returns whether the store is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Closes the gate, or reopens it for rows that the store itself appends while it is being closed.
    pub(crate) fn set_closed(&mut self, closed: bool) {
        self.closed = closed;
    }

    /// Returns whether no segment space is available.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.disk_full
    }

    /// Notes whether segment space is used up. Returns the previous note.
    pub(crate) fn set_disk_full(&mut self, disk_full: bool) -> bool {
        std::mem::replace(&mut self.disk_full, disk_full)
    }

    /// Returns whether the disk refused a write that it has not accepted since.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Refuses everything until the disk accepts the writes that it refused.
    pub(crate) fn hold(&mut self, refusal: Refusal) {
        self.held = Some(refusal);
    }

    /// Notes that the disk accepted the writes that it had refused.
    pub(crate) fn release(&mut self) {
        self.held = None;
    }
}
