//! Report of what a PLC received and sent, by its own counts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Kinds of requests. A sum request counts once; releasing a handle is not a write.
pub(crate) const REQUESTS: [&str; 14] = [
    "read_device_info",
    "read",
    "write",
    "read_state",
    "write_control",
    "add_notification",
    "delete_notification",
    "read_write",
    "release_handle",
    "sum_read",
    "sum_write",
    "sum_read_write",
    "sum_add_notification",
    "sum_delete_notification",
];

/// Report of a simulated PLC.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct PlcReport {
    /// Number of cycles of the task, including those while stopped.
    pub cycles: u64,
    /// Number of cycles that began more than 1 ms late. None is skipped.
    pub late_cycles: u64,
    /// Number of times the task was so late that its clock was reset.
    pub clock_jumps: u64,
    /// Number of symbols of the program.
    pub symbols: u64,
    /// Version of the program, from 1.
    pub symbol_version: u8,
    /// Whether the program runs.
    pub running: bool,
    /// Number of clients accepted.
    pub connections: u64,
    /// Number of clients connected now.
    pub connections_open: u64,
    /// Number of clients refused because too many were connected.
    pub connections_refused: u64,
    /// Number of requests by kind; every kind is listed, even if zero.
    pub requests: BTreeMap<&'static str, u64>,
    /// Number of requests answered with an error.
    pub errors: u64,
    /// Number of packets that are not AMS, too long, or not a request; most end their connection.
    pub malformed: u64,
    /// Number of notification packets handed to the network.
    pub notifications_sent: u64,
    /// Number of stamps in them; each holds values of one cycle.
    pub stamps_sent: u64,
    /// Number of samples in them.
    pub samples_sent: u64,
    /// Number of samples dropped because their client did not read, or disconnected.
    pub samples_dropped: u64,
    /// Number of bytes sent, including replies and headers.
    pub bytes_sent: u64,
}

impl fmt::Display for PlcReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "PLC: {} cycles ({} late), {} symbols of version {}, {} clients, {} errors, {} malformed",
            self.cycles,
            self.late_cycles,
            self.symbols,
            self.symbol_version,
            self.connections,
            self.errors,
            self.malformed
        )?;
        let asked: Vec<String> =
            self.requests.iter().filter(|(_, n)| **n > 0).map(|(name, n)| format!("{name} {n}")).collect();
        if !asked.is_empty() {
            writeln!(f, "requests: {}", asked.join(", "))?;
        }
        write!(
            f,
            "sent: {} samples in {} stamps in {} packets, {} bytes; {} samples dropped",
            self.samples_sent, self.stamps_sent, self.notifications_sent, self.bytes_sent, self.samples_dropped
        )
    }
}

/// Counters behind a report.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) cycles: AtomicU64,
    pub(crate) late_cycles: AtomicU64,
    pub(crate) clock_jumps: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) connections_open: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    requests: [AtomicU64; REQUESTS.len()],
    pub(crate) errors: AtomicU64,
    pub(crate) malformed: AtomicU64,
    pub(crate) notifications_sent: AtomicU64,
    pub(crate) stamps_sent: AtomicU64,
    pub(crate) samples_sent: AtomicU64,
    pub(crate) samples_dropped: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
}

impl Counts {
    /// Counts a request by its name in [`REQUESTS`].
    pub(crate) fn request(&self, name: &str) {
        if let Some(index) = REQUESTS.iter().position(|r| *r == name) {
            add(&self.requests[index], 1);
        }
    }

    /// Returns the report, without the fields that the program provides.
    pub(crate) fn report(&self) -> PlcReport {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        PlcReport {
            cycles: of(&self.cycles),
            late_cycles: of(&self.late_cycles),
            clock_jumps: of(&self.clock_jumps),
            connections: of(&self.connections),
            connections_open: of(&self.connections_open),
            connections_refused: of(&self.connections_refused),
            requests: REQUESTS.iter().zip(&self.requests).map(|(name, n)| (*name, of(n))).collect(),
            errors: of(&self.errors),
            malformed: of(&self.malformed),
            notifications_sent: of(&self.notifications_sent),
            stamps_sent: of(&self.stamps_sent),
            samples_sent: of(&self.samples_sent),
            samples_dropped: of(&self.samples_dropped),
            bytes_sent: of(&self.bytes_sent),
            ..PlcReport::default()
        }
    }
}

/// Adds to a counter.
pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}
