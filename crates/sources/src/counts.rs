//! Counters of a source. Its threads write them; metrics and `/api/sources` read them.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::inetx::Tally;
use crate::notes::Notes;

/// Maximum bytes kept of a rejected input.
pub const SAMPLE_BYTES: usize = 64;
/// Maximum bytes kept of a rejection's text.
const SAMPLE_TEXT_BYTES: usize = 512;
/// Minimum time between two samples of a reason, so that a flood of bad datagrams costs a comparison each.
const SAMPLE_SPACING_NS: i64 = 250_000_000;
/// Maximum distinct reasons. Further ones are counted under [`OTHER_REASONS`].
const REASONS_MAX: usize = 64;
/// Reason used once there are too many.
const OTHER_REASONS: &str = "other";

/// A rejected datagram, line or message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedSample {
    /// Sender, if known.
    pub from: Option<SocketAddr>,
    /// Error message.
    pub text: String,
    /// First [`SAMPLE_BYTES`] bytes. Empty for a frame rejected by the store.
    pub bytes: Vec<u8>,
}

impl RejectedSample {
    /// Creates a sample from bytes of unknown origin.
    pub fn new(text: &(impl std::fmt::Display + ?Sized), bytes: &[u8]) -> RejectedSample {
        RejectedSample { from: None, text: text.to_string(), bytes: bytes[..bytes.len().min(SAMPLE_BYTES)].to_vec() }
    }

    /// Formats the bytes in hexadecimal.
    pub fn hex(&self) -> String {
        self.bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Formats the first bytes for people: quoted if they are printable text, otherwise in hexadecimal.
    pub fn shown(&self) -> String {
        // The last character may be cut off.
        let text = match std::str::from_utf8(&self.bytes) {
            Err(error) if error.error_len().is_none() => std::str::from_utf8(&self.bytes[..error.valid_up_to()]),
            read => read,
        };
        match text.map(|text| text.trim_end_matches(['\r', '\n'])) {
            Ok(text) if !text.is_empty() && !text.chars().any(|c| c.is_control() && c != '\t') => {
                format!("{text:?}")
            }
            _ => self.bytes.iter().take(SAMPLE_BYTES / 2).map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// Sets the sender.
    pub fn sent_by(self, peer: Option<SocketAddr>) -> RejectedSample {
        RejectedSample { from: peer, ..self }
    }
}

/// Rejections with one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Reason, as used in metrics.
    pub reason: &'static str,
    /// Count.
    pub count: u64,
    /// Time of the latest, in nanoseconds since 1970 UTC.
    pub last_time: i64,
    /// Sample taken at most a quarter of a second before the latest.
    pub sample: RejectedSample,
    sampled: i64,
}

/// Rejections by reason, each with a sample. The set of reasons is small and fixed by the code, but bounded
/// nevertheless.
#[derive(Debug, Default)]
pub struct Rejections {
    by_reason: Mutex<Vec<Rejected>>,
}

impl Rejections {
    /// Counts `n` rejections with a reason at `time`, in nanoseconds since 1970 UTC. `sample` is called at most a few
    /// times per second.
    pub fn add(&self, reason: &'static str, n: u64, time: i64, sample: impl FnOnce() -> RejectedSample) {
        let mut list = self.by_reason.lock();
        let reason = match list.len() < REASONS_MAX || list.iter().any(|have| have.reason == reason) {
            true => reason,
            false => OTHER_REASONS,
        };
        let bounded = |mut sample: RejectedSample| {
            sample.bytes.truncate(SAMPLE_BYTES);
            let end = sample.text.floor_char_boundary(SAMPLE_TEXT_BYTES);
            sample.text.truncate(end);
            sample
        };
        let Some(have) = list.iter_mut().find(|have| have.reason == reason) else {
            list.push(Rejected { reason, count: n, last_time: time, sample: bounded(sample()), sampled: time });
            return;
        };
        have.count += n;
        have.last_time = time;
        // After the clock is set back, take a new sample.
        if time < have.sampled || time.saturating_sub(have.sampled) >= SAMPLE_SPACING_NS {
            have.sampled = time;
            have.sample = bounded(sample());
        }
    }

    /// Returns the count of each reason.
    pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
        self.by_reason.lock().iter().map(|have| (have.reason, have.count)).collect()
    }

    /// Returns the total over all reasons.
    pub fn total(&self) -> u64 {
        self.by_reason.lock().iter().map(|have| have.count).sum()
    }

    /// Returns each reason with a sample.
    pub fn samples(&self) -> Vec<Rejected> {
        self.by_reason.lock().clone()
    }
}

/// Maximum unknown stream ids counted individually. Further ones are counted together.
pub const UNKNOWN_STREAMS_MAX: usize = 1_024;

/// Packets without a layout, by stream id.
#[derive(Debug, Default)]
pub struct UnknownStreams {
    by_id: Mutex<HashMap<u32, u64>>,
    others: AtomicU64,
}

impl UnknownStreams {
    /// Counts a packet. Returns whether its id is new.
    pub fn add(&self, stream_id: u32) -> bool {
        let mut map = self.by_id.lock();
        if let Some(count) = map.get_mut(&stream_id) {
            *count += 1;
            return false;
        }
        if map.len() < UNKNOWN_STREAMS_MAX {
            map.insert(stream_id, 1);
            return true;
        }
        self.others.fetch_add(1, Relaxed);
        false
    }

    /// Returns the packets per stream id, ascending by id, and those of ids beyond [`UNKNOWN_STREAMS_MAX`].
    pub fn snapshot(&self) -> (Vec<(u32, u64)>, u64) {
        let mut list: Vec<(u32, u64)> = self.by_id.lock().iter().map(|(id, n)| (*id, *n)).collect();
        list.sort_unstable();
        (list, self.others.load(Relaxed))
    }
}

/// Counters of a datagram source.
#[derive(Debug, Default)]
pub struct PacketCounts {
    /// Datagrams received.
    pub received: AtomicU64,
    /// Payload bytes received.
    pub bytes: AtomicU64,
    /// Frames passed to the sink.
    pub frames: AtomicU64,
    /// Frames that the sink stored.
    pub stored: AtomicU64,
    /// Frames that the sink had already stored.
    pub duplicate: AtomicU64,
    /// Datagrams that made no frame (`truncated`, `version`, `length`, `short_payload`, `oversized`, `unknown_stream`),
    /// and frames that the store refused, by reason.
    pub rejected: Rejections,
    /// Packets without a layout.
    pub unknown_streams: UnknownStreams,
    /// Datagrams the kernel dropped because the receive buffer was full.
    pub kernel_drops: AtomicU64,
    /// Properties stated in the packets of each stream id, in layout order. Unset before the source runs.
    pub tallies: OnceLock<Vec<Tally>>,
    /// Messages for the operator.
    pub notes: Notes,
    /// Datagrams without a kernel timestamp, stamped by the thread instead.
    pub unstamped: AtomicU64,
    /// Receive time of the latest datagram, in nanoseconds since 1970 UTC; 0 before the first.
    pub last_receive_time: AtomicI64,
    /// Size of the receive buffer granted by the kernel, in bytes.
    pub receive_buffer_bytes: AtomicU64,
    /// Socket errors.
    pub socket_errors: AtomicU64,
}

impl PacketCounts {
    /// Returns the counters of each stream id.
    pub fn tallies(&self) -> &[Tally] {
        self.tallies.get().map_or(&[], Vec::as_slice)
    }
}

/// Reads a counter.
pub fn get(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    if n != 0 {
        counter.fetch_add(n, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_as_text_and_bytes_as_bytes() {
        let shown = |bytes: &[u8]| RejectedSample::new("", bytes).shown();
        assert_eq!(shown(b"engine p=x\n"), "\"engine p=x\"");
        assert_eq!(shown("engine t=21°".as_bytes()), "\"engine t=21°\"");
        assert_eq!(shown(&"engine t=21°".as_bytes()[..12]), "\"engine t=21\"", "a character that is cut off");
        assert_eq!((shown(&[0x11, 0, 0xff]), shown(&[]), shown(b"\n")), ("1100ff".into(), String::new(), "0a".into()));
    }

    #[test]
    fn samples_are_new_few_and_short() {
        let rejections = Rejections::default();
        let mut made = 0;
        // A thousand per second for ten seconds.
        for n in 0..10_000_i64 {
            rejections.add("version", 1, n * 1_000_000, || {
                made += 1;
                RejectedSample::new(&format!("number {n} {}", "é".repeat(1_000)), &[7; 1_000])
            });
        }
        let [version] = &rejections.samples()[..] else { panic!("one reason") };
        assert_eq!((version.count, version.last_time, made), (10_000, 9_999_000_000, 40));
        assert!(version.sample.text.starts_with("number 9750 "), "{}", version.sample.text);
        assert!(version.sample.text.len() <= 512 && version.sample.bytes == [7; 64]);
        // Setting the clock back does not stop samples.
        rejections.add("version", 2, 5, || RejectedSample::new("after", b""));
        assert_eq!((rejections.samples()[0].count, rejections.samples()[0].sample.text.as_str()), (10_002, "after"));
    }

    #[test]
    fn reasons_are_bounded_and_none_is_lost() {
        let rejections = Rejections::default();
        for n in 0..1_000_u32 {
            let reason: &'static str = Box::leak(format!("r{n}").into_boxed_str());
            rejections.add(reason, 1, n.into(), RejectedSample::default);
        }
        assert!(rejections.snapshot().len() <= REASONS_MAX + 1);
        assert_eq!(rejections.snapshot().iter().map(|(_, n)| n).sum::<u64>(), 1_000);
    }
}
