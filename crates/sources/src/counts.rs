//! Counters of a source: written by its threads, read by metrics and `/api/sources`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::inetx::Tally;
use crate::notes::Notes;

/// Rejections by reason. The set of reasons is small and fixed by the code; it is bounded all the same.
#[derive(Debug, Default)]
pub struct Rejections {
    by_reason: Mutex<Vec<(&'static str, u64)>>,
}

impl Rejections {
    /// Counts `n` rejections for a reason.
    pub fn add(&self, reason: &'static str, n: u64) {
        let mut list = self.by_reason.lock();
        match list.iter_mut().find(|(have, _)| *have == reason) {
            Some((_, count)) => *count += n,
            None => list.push((reason, n)),
        }
    }

    /// Every reason counted so far.
    pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
        self.by_reason.lock().clone()
    }

    /// Sum over all reasons.
    pub fn total(&self) -> u64 {
        self.by_reason.lock().iter().map(|(_, n)| n).sum()
    }
}

/// Most unknown stream ids counted one by one; further ones are counted together.
pub const MAX_UNKNOWN_STREAMS: usize = 1_024;

/// Packets without a layout, by stream id.
#[derive(Debug, Default)]
pub struct UnknownStreams {
    by_id: Mutex<HashMap<u32, u64>>,
    others: AtomicU64,
}

impl UnknownStreams {
    /// Counts a packet; says whether its id is new.
    pub fn add(&self, stream_id: u32) -> bool {
        let mut map = self.by_id.lock();
        if let Some(count) = map.get_mut(&stream_id) {
            *count += 1;
            return false;
        }
        if map.len() < MAX_UNKNOWN_STREAMS {
            map.insert(stream_id, 1);
            return true;
        }
        self.others.fetch_add(1, Relaxed);
        false
    }

    /// Packets by stream id, ascending, and those of ids beyond [`MAX_UNKNOWN_STREAMS`].
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
    /// Bytes of their payloads.
    pub bytes: AtomicU64,
    /// Frames made and handed to the sink.
    pub frames: AtomicU64,
    /// Frames the sink stored.
    pub stored: AtomicU64,
    /// Frames the sink had already.
    pub duplicate: AtomicU64,
    /// Datagrams that made no frame (`truncated`, `version`, `length`, `short_payload`, `oversized`,
    /// `unknown_stream`), and frames that the store refused, by its reasons.
    pub rejected: Rejections,
    /// Packets without a layout.
    pub unknown_streams: UnknownStreams,
    /// Datagrams the kernel dropped because the receive buffer was full.
    pub kernel_drops: AtomicU64,
    /// What the packets of each stream id say of themselves, in the order of the layout; none before the source runs.
    pub tallies: OnceLock<Vec<Tally>>,
    /// What people are to know of.
    pub notes: Notes,
    /// Datagrams without a kernel stamp (they got the thread's time).
    pub unstamped: AtomicU64,
    /// Reception of the newest datagram, nanoseconds since 1970 UTC; 0 before the first.
    pub last_receive_time: AtomicI64,
    /// Bytes of receive buffer that the kernel gave.
    pub receive_buffer_bytes: AtomicU64,
    /// Errors of the socket.
    pub socket_errors: AtomicU64,
}

impl PacketCounts {
    /// What the packets of each stream id say of themselves.
    pub fn tallies(&self) -> &[Tally] {
        self.tallies.get().map_or(&[], Vec::as_slice)
    }
}

/// A counter's value.
pub fn get(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    if n != 0 {
        counter.fetch_add(n, Relaxed);
    }
}
