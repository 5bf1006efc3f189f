//! Counters and troubles of a PLC. Its thread writes them; metrics and `/api/sources` read them.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::counts::Rejections;
use crate::notes::Notes;

/// Maximum troubles kept individually. All are counted.
pub const TROUBLES_MAX: usize = 1_000;

/// A symbol that yields no values, and why.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Trouble {
    /// Stream the symbol belongs to.
    pub stream: String,
    /// Symbol, or a pattern without a match.
    pub symbol: String,
    /// Cause.
    pub why: String,
}

/// Counters of a PLC.
#[derive(Debug, Default)]
pub struct AdsCounts {
    /// Whether the PLC is connected and answers.
    pub connected: AtomicBool,
    /// Connections on which the PLC answered.
    pub connections: AtomicU64,
    /// Bytes received.
    pub bytes: AtomicU64,
    /// Messages received.
    pub messages: AtomicU64,
    /// Samples of notifications received.
    pub samples: AtomicU64,
    /// Frames passed to the sink.
    pub frames: AtomicU64,
    /// Frames that the sink stored.
    pub stored: AtomicU64,
    /// Frames that the sink had already stored.
    pub duplicate: AtomicU64,
    /// Messages that made no frame (`bad_message`, `wrong_length`, `unasked`, `unknown_answer`, `unknown_handle`), and
    /// frames that the store refused, by reason.
    pub rejected: Rejections,
    /// Requests that timed out.
    pub timeouts: AtomicU64,
    /// Missing notification cycles, judged by the PLC's timestamps. Each is also recorded in `strongback.gaps`.
    pub dropped_cycles: AtomicU64,
    /// Notifications received long after their timestamp, or after one with a later timestamp.
    pub late: AtomicU64,
    /// Times the PLC's clock was set.
    pub clock_sets: AtomicU64,
    /// Times the program changed during reading.
    pub program_changes: AtomicU64,
    /// Groups switched to cyclic reads because they sent more than twice as often as requested.
    pub rate_alarms: AtomicU64,
    /// Current notification handles.
    pub handles: AtomicU64,
    /// Symbols currently read.
    pub symbols: AtomicU64,
    /// Symbols that currently yield no values.
    pub missing: AtomicU64,
    /// Latest receive time, in nanoseconds since 1970 UTC; 0 before the first.
    pub last_receive_time: AtomicI64,
    troubles: Mutex<Vec<Trouble>>,
    /// Messages for the operator.
    pub notes: Notes,
}

impl AdsCounts {
    /// Returns the symbols that yield no values, up to [`TROUBLES_MAX`].
    pub fn troubles(&self) -> Vec<Trouble> {
        self.troubles.lock().clone()
    }

    pub(crate) fn set_troubles(&self, mut troubles: Vec<Trouble>) {
        self.missing.store(troubles.len() as u64, Relaxed);
        troubles.truncate(TROUBLES_MAX);
        *self.troubles.lock() = troubles;
    }
}
