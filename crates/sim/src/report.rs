//! What a run of the pad did, by its own count.

use std::collections::BTreeMap;
use std::fmt;

use crate::ads::PlcReport;
use crate::pad::Spike;

/// Gaps and spikes listed one by one in a report, at most; all are counted.
pub(crate) const LISTED: usize = 1000;

/// What one source sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SourceReport {
    /// Frames handed to the network.
    pub frames_sent: u64,
    /// Values in them.
    pub points_sent: u64,
    /// Frames thrown away because the connection was down or the server did not keep up.
    pub frames_dropped: u64,
}

/// A loss made on purpose: consecutive packets withheld, their sequences skipped.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct GapMade {
    /// Table of the frames.
    pub table: String,
    /// iNET-X stream id.
    pub stream_id: u32,
    /// Sequence of the first packet withheld.
    pub first_sequence: u32,
    /// Packets withheld.
    pub packets: u64,
    /// Frames in them.
    pub frames: u64,
}

/// What a run did.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct PadReport {
    /// Seed of the values.
    pub seed: u64,
    /// Simulated and real seconds.
    pub duration_s: f64,
    /// By source name.
    pub sources: BTreeMap<&'static str, SourceReport>,
    /// Frames sent by all sources.
    pub frames_sent: u64,
    /// Values sent by all sources.
    pub points_sent: u64,
    /// iNET-X packets sent.
    pub packets_sent: u64,
    /// Packets withheld on purpose.
    pub packets_lost: u64,
    /// Frames in the packets withheld.
    pub frames_lost: u64,
    /// Gaps made by withholding.
    pub gaps_made: u64,
    /// The gaps, the first thousand.
    pub gaps: Vec<GapMade>,
    /// Spikes of one millisecond, the first thousand.
    pub spikes: Vec<Spike>,
    /// Countdown events the server took.
    pub events_sent: u64,
    /// Countdown events it did not take.
    pub events_failed: u64,
    /// Times a line-protocol connection was made again.
    pub reconnects: u64,
    /// Datagrams the kernel refused to send.
    pub send_errors: u64,
    /// Steps of 5 ms that began more than 5 ms late.
    pub late_steps: u64,
    /// Times the machine's clock jumped.
    pub clock_jumps: u64,
    /// CPU seconds of the process.
    pub cpu_s: f64,
    /// What its PLC did as an ADS device, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plc: Option<PlcReport>,
}

impl fmt::Display for PadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<10} {:>12} {:>14} {:>9}", "source", "frames", "points", "dropped")?;
        for (name, source) in &self.sources {
            let SourceReport { frames_sent, points_sent, frames_dropped } = source;
            writeln!(f, "{name:<10} {frames_sent:>12} {points_sent:>14} {frames_dropped:>9}")?;
        }
        write!(
            f,
            "{:.1} s, {} gaps made ({} packets, {} frames withheld), {} spikes, {} events, {:.1} % of a core",
            self.duration_s,
            self.gaps_made,
            self.packets_lost,
            self.frames_lost,
            self.spikes.len(),
            self.events_sent,
            100.0 * self.cpu_s / self.duration_s.max(0.001),
        )?;
        match &self.plc {
            Some(plc) => write!(f, "\n{plc}"),
            None => Ok(()),
        }
    }
}
