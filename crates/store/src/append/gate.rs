//! The gate of the append side: whether frames are taken now, and why not.

use crate::{Refusal, Reject};

/// What keeps frames out.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: bool,
    /// No segment space can be had.
    disk_full: bool,
    /// Why nothing is taken until the disk takes again what it refused.
    held: Option<Refusal>,
}

impl Gate {
    /// Returns whether frames are taken, as far as the log has room for them.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        !self.closed && !self.disk_full && self.held.is_none()
    }

    /// Returns why frames are not taken.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self {
            Gate { closed: true, .. } => Some(Refusal::Closed),
            Gate { disk_full: true, .. } => Some(Refusal::DiskFull),
            Gate { held, .. } => held.clone(),
        }
    }

    /// Refuses everything if the store is closed.
    ///
    /// # Errors
    /// It is closed.
    pub(crate) fn check_closed(&self) -> Result<(), Reject> {
        if self.closed { Err(Reject::Refused(Refusal::Closed)) } else { Ok(()) }
    }

    /// Returns whether the store is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Closes it, or opens it for what the store itself appends while it is being closed.
    pub(crate) fn set_closed(&mut self, closed: bool) {
        self.closed = closed;
    }

    /// Returns whether no segment space can be had.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.disk_full
    }

    /// Notes whether segment space can be had. Returns what was noted before.
    pub(crate) fn set_disk_full(&mut self, disk_full: bool) -> bool {
        std::mem::replace(&mut self.disk_full, disk_full)
    }

    /// Returns whether the disk refused something that it has not taken yet.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Takes nothing until the disk takes again what it refused.
    pub(crate) fn hold(&mut self, refusal: Refusal) {
        self.held = Some(refusal);
    }

    /// Notes that the disk took what it had refused.
    pub(crate) fn release(&mut self) {
        self.held = None;
    }
}
