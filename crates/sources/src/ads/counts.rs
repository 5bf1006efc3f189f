//! Counters and troubles of a PLC: written by its thread, read by metrics and `/api/sources`.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::counts::Rejections;
use crate::notes::Notes;

/// Troubles that are kept one by one; all are counted.
pub const TROUBLES_MAX: usize = 1_000;

/// A symbol that gives no values, and why.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Trouble {
    /// Stream it is meant for.
    pub stream: String,
    /// The symbol, or the pattern that finds none.
    pub symbol: String,
    /// Why.
    pub why: String,
}

/// Counters of a PLC.
#[derive(Debug, Default)]
pub struct AdsCounts {
    /// Whether it is connected and answers.
    pub connected: AtomicBool,
    /// Connections that answered.
    pub connections: AtomicU64,
    /// Bytes received.
    pub bytes: AtomicU64,
    /// Messages received.
    pub messages: AtomicU64,
    /// Samples of notifications received.
    pub samples: AtomicU64,
    /// Frames made and handed to the sink.
    pub frames: AtomicU64,
    /// Frames the sink stored.
    pub stored: AtomicU64,
    /// Frames the sink had already.
    pub duplicate: AtomicU64,
    /// Messages that made no frame (`bad_message`, `wrong_length`, `unasked`, `unknown_answer`, `unknown_handle`), and
    /// frames that the store refused, by its reasons.
    pub rejected: Rejections,
    /// Requests that no answer came to in time.
    pub timeouts: AtomicU64,
    /// Cycles of notifications that did not come, by the PLC's stamps; each is in `strongback.gaps`, too.
    pub dropped_cycles: AtomicU64,
    /// Notifications that came long after their stamp, or after a later one.
    pub late: AtomicU64,
    /// Times the PLC's clock was set.
    pub clock_sets: AtomicU64,
    /// Times the program changed while it was read.
    pub program_changes: AtomicU64,
    /// Groups that came more than twice as fast as asked for, and are read instead.
    pub rate_alarms: AtomicU64,
    /// Handles of notifications now.
    pub handles: AtomicU64,
    /// Symbols read now.
    pub symbols: AtomicU64,
    /// Symbols that give no values now.
    pub missing: AtomicU64,
    /// Newest reception, nanoseconds since 1970 UTC; 0 before the first.
    pub last_receive_time: AtomicI64,
    troubles: Mutex<Vec<Trouble>>,
    /// What people are to know of.
    pub notes: Notes,
}

impl AdsCounts {
    /// Symbols that give no values: the first [`TROUBLES_MAX`].
    pub fn troubles(&self) -> Vec<Trouble> {
        self.troubles.lock().clone()
    }

    pub(crate) fn set_troubles(&self, mut troubles: Vec<Trouble>) {
        self.missing.store(troubles.len() as u64, Relaxed);
        troubles.truncate(TROUBLES_MAX);
        *self.troubles.lock() = troubles;
    }
}
