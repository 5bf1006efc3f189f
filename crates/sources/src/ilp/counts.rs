//! Counters of the line protocol, over TCP and HTTP.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicU64};

use memchr::memchr;

use super::writer::WriteReport;
use crate::counts::{RejectedSample, Rejections, SAMPLE_BYTES, add};

/// Counters of lines, values and connections.
#[derive(Debug, Default)]
pub struct IlpCounts {
    /// Lines received, without blank lines and comments.
    pub received: AtomicU64,
    /// Bytes received.
    pub bytes: AtomicU64,
    /// Lines stored.
    pub stored: AtomicU64,
    /// Lines that the store had already stored.
    pub duplicate: AtomicU64,
    /// Lines that made no frame, by fault, and frames that the store refused, by reason.
    pub rejected: Rejections,
    /// Values stored in a second column, because their type does not fit the first.
    pub type_conflicts: AtomicU64,
    /// Time of the latest read, in nanoseconds since 1970 UTC; 0 before the first.
    pub last_receive_time: AtomicI64,
    /// Open TCP connections.
    pub connections: AtomicU64,
    /// TCP connections since the start.
    pub connections_total: AtomicU64,
    /// TCP connections refused because too many were open.
    pub connections_refused: AtomicU64,
    /// Silent TCP connections closed to make room.
    pub connections_evicted: AtomicU64,
    /// HTTP bodies refused as a whole, for bad gzip or size. Their lines are not counted.
    pub bodies_refused: AtomicU64,
}

impl IlpCounts {
    /// Adds the outcome for the lines of `buffer`, received at `receive_time` from `peer`.
    pub(crate) fn add_report(
        &self,
        bytes: u64,
        report: &WriteReport,
        buffer: &[u8],
        receive_time: i64,
        peer: Option<SocketAddr>,
    ) {
        add(&self.bytes, bytes);
        add(&self.received, report.received());
        add(&self.stored, report.stored);
        add(&self.duplicate, report.duplicate);
        add(&self.type_conflicts, report.type_conflicts);
        for ((reason, n), (offset, text)) in report.reasons.iter().zip(&report.samples) {
            let line = || {
                let line = buffer.get(*offset..).unwrap_or_default();
                &line[..memchr(b'\n', &line[..line.len().min(SAMPLE_BYTES)]).unwrap_or(line.len())]
            };
            self.rejected.add(reason, *n, receive_time, || RejectedSample::new(text, line()).sent_by(peer));
        }
    }
}
