//! Commits of a store, for tasks that wait for new rows.
//!
//! The store wakes threads, not tasks. One thread waits for its commits while anyone follows them, and publishes the
//! newest.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use strongback_store::{CommitNumber, Refusal, Store, let_run};
use tokio::sync::watch;

/// Maximum wait for a commit, after which the thread ends if no one follows it.
const WAIT: Duration = Duration::from_secs(1);
/// Pause after a number that the store will never report as durable.
const VOID_PAUSE: Duration = Duration::from_millis(20);

/// State of a store's commits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Committed {
    /// Newest durable commit.
    pub(crate) number: u64,
    /// Reason why no further commits follow: the store was closed, or its disk failed.
    pub(crate) ended: Option<String>,
}

/// Commits of a store.
pub(crate) struct Commits {
    store: Store,
    newest: Arc<watch::Sender<Committed>>,
    is_followed: Arc<Mutex<bool>>,
}

impl Commits {
    pub(crate) fn new(store: Store) -> Commits {
        Commits { store, newest: Arc::default(), is_followed: Arc::default() }
    }

    /// Returns a receiver of the newest commit.
    ///
    /// # Errors
    /// If the thread that waits for commits cannot be started.
    pub(crate) fn follow(&self) -> io::Result<watch::Receiver<Committed>> {
        let mut is_followed = self.is_followed.lock();
        let receiver = self.newest.subscribe();
        if !*is_followed {
            let follower = Follower {
                store: self.store.clone(),
                newest: self.newest.clone(),
                is_followed: self.is_followed.clone(),
            };
            let thread = std::thread::Builder::new().name("sql-commits".to_owned()).spawn(move || follower.run())?;
            let_run(thread);
            *is_followed = true;
        }
        Ok(receiver)
    }
}

/// The thread that waits.
struct Follower {
    store: Store,
    newest: Arc<watch::Sender<Committed>>,
    is_followed: Arc<Mutex<bool>>,
}

impl Follower {
    fn run(self) {
        let mut last = self.store.committed().0;
        self.publish(last, None);
        loop {
            {
                let mut is_followed = self.is_followed.lock();
                if self.newest.receiver_count() == 0 {
                    *is_followed = false;
                    return;
                }
            }
            match self.store.wait_committed(CommitNumber(last + 1), WAIT) {
                Ok(_) => {}
                // A store that took over from a failed one does not report some numbers.
                Err(_) if !self.is_over() => std::thread::sleep(VOID_PAUSE),
                // Later followers find the end as well.
                Err(refusal) => return self.publish(self.store.committed().0, Some(refusal.to_string())),
            }
            let committed = self.store.committed().0;
            if committed != last {
                last = committed;
                self.publish(last, None);
            }
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.store.refusal(), Some(Refusal::Poisoned(_) | Refusal::Closed))
    }

    fn publish(&self, number: u64, ended: Option<String>) {
        self.newest.send_replace(Committed { number, ended });
    }
}
