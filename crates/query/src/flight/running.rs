//! Statements that run now, by the identifiers in their tickets, so that other calls can cancel them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// Bytes of an identifier.
pub(super) const ID_BYTES: usize = 16;

/// Statements that run, with the flags that cancel them. A ticket can be redeemed several times at once.
#[derive(Default)]
pub(super) struct RunningStatements {
    flags: Mutex<HashMap<[u8; ID_BYTES], Vec<watch::Sender<bool>>>>,
}

/// A running statement, forgotten when dropped.
pub(super) struct RunningStatement {
    all: Arc<RunningStatements>,
    id: Option<[u8; ID_BYTES]>,
    flag: watch::Sender<bool>,
}

impl RunningStatements {
    /// Registers a statement. Without an identifier it cannot be cancelled by other calls.
    pub(super) fn register(self: &Arc<Self>, id: Option<[u8; ID_BYTES]>) -> RunningStatement {
        let flag = watch::Sender::new(false);
        if let Some(id) = id {
            self.flags.lock().entry(id).or_default().push(flag.clone());
        }
        RunningStatement { all: self.clone(), id, flag }
    }

    /// Cancels the statements of a ticket. Returns `false` if none runs.
    pub(super) fn cancel(&self, id: [u8; ID_BYTES]) -> bool {
        let flags = self.flags.lock();
        let found = flags.get(&id);
        found.into_iter().flatten().for_each(|flag| _ = flag.send_replace(true));
        found.is_some()
    }
}

impl RunningStatement {
    /// Returns the flag that cancels it.
    pub(super) fn cancelled(&self) -> watch::Receiver<bool> {
        self.flag.subscribe()
    }
}

impl Drop for RunningStatement {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut flags = self.all.flags.lock();
        if let Some(of_ticket) = flags.get_mut(&id) {
            of_ticket.retain(|flag| !flag.same_channel(&self.flag));
            if of_ticket.is_empty() {
                flags.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_run_on_a_ticket_are_cancelled_and_no_others() {
        let all = Arc::new(RunningStatements::default());
        let of = |id: u8| all.register(Some([id; ID_BYTES]));
        let (one, again, other) = (of(1), of(1), of(2));
        assert!(all.cancel([1; ID_BYTES]));
        assert!(*one.cancelled().borrow() && *again.cancelled().borrow() && !*other.cancelled().borrow());
        drop(one);
        assert!(all.cancel([1; ID_BYTES]));
        drop((again, other));
        assert!(!all.cancel([1; ID_BYTES]) && all.flags.lock().is_empty());
    }
}
