//! State of sealing: segments that are being written, rows that are encoded, and hashes of recently sealed rows.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;

use crate::append::StreamWriter;
use crate::append::chunk::Chunk;
use crate::append::recent::{RECENT_BYTES_MAX, RecentOrder};
use crate::block::Encoder;
use crate::catalog::group::Group;
use crate::codec::CodecMemory;
use crate::log::LogPosition;
use crate::segment::file::SegmentFile;

type Hash = foldhash::fast::RandomState;

/// Max streams whose codec memory is kept.
const MEMORIES_MAX: usize = 16_384;

/// Progress of encoding the rows of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EncodedRows {
    pub(super) to: u64,
    /// Session and highest sequence before; `None` if not known, or if there is none.
    pub(super) newest: Option<(u32, i64)>,
}

/// State of sealing between its slices.
pub(crate) struct Sealing {
    encoder: Encoder,
    memories: HashMap<u32, CodecMemory, Hash>,
    /// Open segments by group.
    pub(crate) open: BTreeMap<Group, SegmentFile>,
    /// By group, the stream after the last one whose newest blocks the newest finished segment lists.
    pub(super) covered_to: BTreeMap<Group, u32>,
    /// End of damage in the log: until the log begins behind it, each opening reports it.
    pub(crate) damage_end: Option<LogPosition>,
    /// Streams that wait for a block of their own.
    pub(super) queue: VecDeque<u32>,
    /// First row of a stream that is not encoded yet, if that is not the first in memory, with the session and
    /// highest sequence before it.
    encoded_to: HashMap<u32, EncodedRows, Hash>,
    /// Newest `time` sealed of a stream.
    sealed_time: HashMap<u32, i64, Hash>,
    /// Hashes of recently sealed rows, and the max bytes that they may take.
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
            damage_end: None,
            queue: VecDeque::new(),
            encoded_to: HashMap::default(),
            sealed_time: HashMap::default(),
            recent: RecentOrder::default(),
            recent_max: RECENT_BYTES_MAX,
        }
    }

    /// Returns the encoder, and the codec memory of a stream.
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

    /// Forgets, after an error that leaves the store usable, rows that were taken and are in no write group: they are
    /// taken again.
    pub(crate) fn forget_taken(&mut self) {
        self.encoded_to.clear();
        for entry in self.open.values().flat_map(|file| file.waiting()) {
            let encoded = self.encoded_to.entry(entry.header.stream.0).or_default();
            encoded.to = encoded.to.max(entry.header.next_row());
        }
    }

    /// Notes the newest time of rows of a stream that are being sealed. `before` returns the newest one that was sealed
    /// before the first of them. Returns the newest time before these.
    pub(super) fn note_sealed_time(&mut self, stream: u32, newest: i64, before: impl FnOnce() -> i64) -> i64 {
        let known = self.sealed_time.entry(stream).or_insert_with(before);
        let before = *known;
        *known = newest.max(before);
        before
    }

    /// Sets the newest sealed time of a stream back: its rows were not sealed after all.
    pub(super) fn reset_sealed_time(&mut self, stream: u32, newest: i64) {
        self.sealed_time.insert(stream, newest);
    }

    /// Takes in the hashes that streams have after recovery.
    pub(crate) fn begin_recent(&mut self, streams: &mut [StreamWriter]) {
        self.recent.begin(streams);
    }

    /// Sets the max bytes of the hashes of recently sealed rows.
    pub(crate) fn set_recent_max(&mut self, bytes: usize) {
        self.recent_max = bytes;
    }

    /// Remembers a chunk of a stream that is leaving memory.
    pub(super) fn keep_recent(&mut self, chunk: (u32, &Chunk), streams: &mut [StreamWriter]) {
        self.recent.keep(chunk, self.recent_max, streams);
    }

    /// Returns the bytes of all hashes, the number of entries in the order, and the number of lists.
    #[cfg(test)]
    pub(crate) fn recent_sizes(&self) -> (usize, usize, usize) {
        self.recent.sizes()
    }
}
