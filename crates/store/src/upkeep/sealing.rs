//! What sealing works with: segments that are being written, rows that are encoded, and what was sealed lately.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;

use crate::append::StreamWriter;
use crate::append::chunk::Chunk;
use crate::append::recent::{RECENT_BYTES_MAX, RecentOrder};
use crate::block::Encoder;
use crate::catalog::group::Group;
use crate::codec::CodecMemory;
use crate::segment::file::SegmentFile;

type Hash = foldhash::fast::RandomState;

/// Streams whose codec memory is kept.
const MEMORIES_MAX: usize = 16_384;

/// How far rows of a stream are encoded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EncodedRows {
    pub(super) to: u64,
    /// Session and highest sequence before; none: not known, or there is none.
    pub(super) newest: Option<(u32, i64)>,
}

/// The state of sealing between its slices.
pub(crate) struct Sealing {
    encoder: Encoder,
    memories: HashMap<u32, CodecMemory, Hash>,
    /// Open segments by group.
    pub(crate) open: BTreeMap<Group, SegmentFile>,
    /// By group, the stream after the last of which the newest finished segment says where its blocks are.
    pub(super) covered_to: BTreeMap<Group, u32>,
    /// Streams that wait for a block of their own.
    pub(super) queue: VecDeque<u32>,
    /// First row of a stream that is not encoded yet, where that is not the first in memory, with the session and highest
    /// sequence before it.
    encoded_to: HashMap<u32, EncodedRows, Hash>,
    /// Newest `time` sealed of a stream.
    sealed_time: HashMap<u32, i64, Hash>,
    /// Hashes of rows sealed lately, and how many bytes they may take.
    recent: RecentOrder,
    recent_max: usize,
}

impl Sealing {
    /// Starts with nothing encoded.
    pub(super) fn new() -> Sealing {
        Sealing {
            encoder: Encoder::new(),
            memories: HashMap::default(),
            open: BTreeMap::new(),
            covered_to: BTreeMap::new(),
            queue: VecDeque::new(),
            encoded_to: HashMap::default(),
            sealed_time: HashMap::default(),
            recent: RecentOrder::default(),
            recent_max: RECENT_BYTES_MAX,
        }
    }

    /// Returns the encoder, and what it remembers of a stream.
    pub(super) fn encoder_of(&mut self, stream: u32) -> (&mut Encoder, &mut CodecMemory) {
        if self.memories.len() >= MEMORIES_MAX {
            self.memories.clear();
        }
        (&mut self.encoder, self.memories.entry(stream).or_default())
    }

    /// Returns how far rows of a stream are encoded.
    pub(super) fn encoded(&self, stream: u32) -> EncodedRows {
        self.encoded_to.get(&stream).copied().unwrap_or_default()
    }

    /// Notes how far rows of a stream are encoded.
    pub(super) fn note_encoded(&mut self, stream: u32, rows: EncodedRows) {
        self.encoded_to.insert(stream, rows);
    }

    /// Notes that rows before this one have left memory.
    pub(super) fn note_released(&mut self, stream: u32, end: u64) {
        if self.encoded_to.get(&stream).is_some_and(|encoded| encoded.to <= end) {
            self.encoded_to.remove(&stream);
        }
    }

    /// After an error that leaves the store usable: what was taken and did not get into a write group is taken again.
    pub(crate) fn forget_taken(&mut self) {
        self.encoded_to.clear();
        for entry in self.open.values().flat_map(|file| file.waiting()) {
            let encoded = self.encoded_to.entry(entry.header.stream.0).or_default();
            encoded.to = encoded.to.max(entry.header.next_row());
        }
    }

    /// Notes the times of rows of a stream that are being sealed; `before` asks for the newest one that was sealed before
    /// the first of them. Returns the newest time before these.
    pub(super) fn note_sealed_time(&mut self, stream: u32, newest: i64, before: impl FnOnce() -> i64) -> i64 {
        let known = self.sealed_time.entry(stream).or_insert_with(before);
        let before = *known;
        *known = newest.max(before);
        before
    }

    /// Takes back that rows of a stream were being sealed.
    pub(super) fn reset_sealed_time(&mut self, stream: u32, newest: i64) {
        self.sealed_time.insert(stream, newest);
    }

    /// Takes in what streams remember after recovery.
    pub(crate) fn begin_recent(&mut self, streams: &mut [StreamWriter]) {
        self.recent.begin(streams);
    }

    /// Sets how many bytes the hashes of rows sealed lately may take.
    pub(crate) fn set_recent_max(&mut self, bytes: usize) {
        self.recent_max = bytes;
    }

    /// Remembers a chunk of a stream that is leaving memory.
    pub(super) fn keep_recent(&mut self, chunk: (u32, &Chunk), streams: &mut [StreamWriter]) {
        self.recent.keep(chunk, self.recent_max, streams);
    }

    /// Bytes of all hashes, entries of the order, and lists.
    #[cfg(test)]
    pub(crate) fn recent_sizes(&self) -> (usize, usize, usize) {
        self.recent.sizes()
    }
}
