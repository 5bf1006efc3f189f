//! How the server opens its store: at start, and again after the disk failed.

use std::path::PathBuf;
use std::time::Duration;

use strongback_store::{OpenError, Store, StoreOptions};

/// Waits before each attempt to open a poisoned store again.
const REOPEN_WAITS: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5)];

/// How the store is opened.
pub struct Opening {
    open: Box<dyn Fn(i64) -> Result<Store, OpenError> + Send + Sync>,
    /// Waits before each attempt to open it again after the disk failed. When as many attempts in a row came to
    /// nothing, the server ends.
    pub reopen_waits: Vec<Duration>,
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening").field("reopen_waits", &self.reopen_waits).finish_non_exhaustive()
    }
}

impl Opening {
    /// Opens by a function of the instant, nanoseconds since 1970 UTC.
    pub fn new(open: impl Fn(i64) -> Result<Store, OpenError> + Send + Sync + 'static) -> Opening {
        Opening { open: Box::new(open), reopen_waits: REOPEN_WAITS.to_vec() }
    }

    /// Opens the store of a folder.
    pub fn of_folder(dir: PathBuf, options: StoreOptions) -> Opening {
        Opening::new(move |now| Store::open(&dir, options.clone(), now))
    }

    /// Opens the store.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(&self, now: i64) -> Result<Store, OpenError> {
        (self.open)(now)
    }
}
