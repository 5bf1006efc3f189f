//! Opening of the server's store, at start and again after a disk failure.

use std::path::PathBuf;
use std::time::Duration;

use strongback_store::{OpenError, Store, StoreOptions};

/// Waits before each attempt to reopen a poisoned store.
const REOPEN_WAITS: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5)];

/// Function that opens the store with an origin, or any store if `None`, at an instant in nanoseconds since 1970 UTC.
type OpenStore = dyn Fn(Option<u128>, i64) -> Result<Store, OpenError> + Send + Sync;

/// Method of opening the store.
pub struct Opening {
    open: Box<OpenStore>,
    /// Waits before each attempt to reopen the store after a disk failure. The server ends once that many attempts in
    /// a row failed.
    pub reopen_waits: Vec<Duration>,
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening").field("reopen_waits", &self.reopen_waits).finish_non_exhaustive()
    }
}

impl Opening {
    /// Creates an opening from a function of the instant, nanoseconds since 1970 UTC.
    pub fn new(open: impl Fn(i64) -> Result<Store, OpenError> + Send + Sync + 'static) -> Opening {
        Opening { open: Box::new(move |_, now| open(now)), reopen_waits: REOPEN_WAITS.to_vec() }
    }

    /// Creates an opening of the store in a folder.
    pub fn of_folder(dir: PathBuf, options: StoreOptions) -> Opening {
        let open = move |origin, now| match origin {
            None => Store::open(&dir, options.clone(), now),
            Some(origin) => Store::reopen(&dir, origin, options.clone(), now),
        };
        Opening { open: Box::new(open), reopen_waits: REOPEN_WAITS.to_vec() }
    }

    /// Opens the store.
    ///
    /// # Errors
    /// Returns the errors of [`Store::open`].
    pub fn open(&self, now: i64) -> Result<Store, OpenError> {
        (self.open)(None, now)
    }

    /// Reopens the store with this origin.
    ///
    /// # Errors
    /// Returns the errors of [`Store::reopen`].
    pub fn reopen(&self, origin: u128, now: i64) -> Result<Store, OpenError> {
        (self.open)(Some(origin), now)
    }
}
