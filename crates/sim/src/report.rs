//! Report of a run of the pad, by its own counts.

use std::collections::BTreeMap;
use std::fmt;

use crate::ads::PlcReport;
use crate::pad::Spike;

/// Max number of gaps and spikes listed one by one in a report; all are counted.
pub(crate) const LISTED: usize = 1000;

/// Counts of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SourceReport {
    /// Number of frames handed to the network.
    pub frames_sent: u64,
    /// Number of values in them.
    pub points_sent: u64,
    /// Number of frames dropped because the connection was down or the server did not keep up.
    pub frames_dropped: u64,
}

/// Deliberate loss: consecutive packets withheld, their sequences skipped.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct GapMade {
    /// Table of the frames.
    pub table: String,
    /// iNET-X stream id.
    pub stream_id: u32,
    /// Sequence of the first withheld packet.
    pub first_sequence: u32,
    /// Number of withheld packets.
    pub packets: u64,
    /// Number of frames in them.
    pub frames: u64,
}

/// Report of a run.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct PadReport {
    /// Seed of the values.
    pub seed: u64,
    /// Duration in seconds, simulated and real.
    pub duration_s: f64,
    /// Counts of each source by name.
    pub sources: BTreeMap<&'static str, SourceReport>,
    /// Number of frames sent by all sources.
    pub frames_sent: u64,
    /// Number of values sent by all sources.
    pub points_sent: u64,
    /// Number of iNET-X packets sent.
    pub packets_sent: u64,
    /// Number of packets withheld on purpose.
    pub packets_lost: u64,
    /// Number of frames in withheld packets.
    pub frames_lost: u64,
    /// Number of gaps made by withholding packets.
    pub gaps_made: u64,
    /// First thousand gaps.
    pub gaps: Vec<GapMade>,
    /// First thousand spikes of one millisecond.
    pub spikes: Vec<Spike>,
    /// Number of countdown events that the server accepted.
    pub events_sent: u64,
    /// Number of countdown events that it did not accept.
    pub events_failed: u64,
    /// Number of times a line-protocol connection was re-established.
    pub reconnects: u64,
    /// Number of datagrams that the kernel refused to send.
    pub send_errors: u64,
    /// Number of 5 ms steps that began more than 5 ms late.
    pub late_steps: u64,
    /// Number of times the machine's clock jumped.
    pub clock_jumps: u64,
    /// CPU time of the process in seconds.
    pub cpu_s: f64,
    /// Report of its PLC as an ADS device, if it was one.
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
