//! A disk without space: how long it has had none, and what was dropped for it.

/// State since the disk last had room for what was asked of it.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// Bytes that were dropped.
    pub(super) dropped_bytes: u64,
    /// Times in a row that the disk had no space.
    pub(super) times: u32,
    /// Reason why maintenance waits for the disk, if it does.
    held_up: Option<String>,
}

impl Shortage {
    /// Notes that the disk had room for what was asked of it.
    pub(crate) fn end(&mut self) {
        *self = Shortage::default();
    }

    /// Notes why maintenance waits for the disk.
    pub(crate) fn hold_up(&mut self, why: String) {
        self.held_up = Some(why);
    }

    /// Returns why maintenance waits for the disk, if so.
    pub(crate) fn held_up(&self) -> Option<String> {
        self.held_up.clone()
    }
}
