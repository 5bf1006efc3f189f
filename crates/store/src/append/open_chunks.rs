//! Open chunks of all streams: their order in the log, the streams that wait to be sealed, and the memory taken.

use std::collections::VecDeque;
use std::sync::Arc;
use std::vec::Drain;

use crate::append::StreamWriter;
use crate::append::chunk::{CHUNK_BYTES, Chunk, ChunkAt};
use crate::append::stream_registry::StreamRegistry;
use crate::append::stream_slot::OpenRows;
use crate::log::LogPosition;
use crate::model::row::RowScratch;

/// Rows in memory at which a stream is due for sealing: those of a block, and the newest, which stay.
pub(crate) const DUE_ROWS: u64 = 1536;
/// Bytes in memory, as a multiple of [`CHUNK_BYTES`], at which a stream is due for sealing.
const DUE_CHUNKS: usize = 3;

/// Every chunk whose rows may not be in a segment yet.
#[derive(Debug)]
pub(crate) struct OpenChunks {
    /// Chunks in the order of the log.
    order: VecDeque<ChunkAt>,
    /// Streams with enough rows for a block.
    due: Vec<u32>,
    /// Bytes of memory of all chunks.
    bytes: usize,
    /// Max bytes of one chunk.
    chunk_max: usize,
}

impl OpenChunks {
    /// Makes an empty list.
    pub(super) fn new() -> OpenChunks {
        OpenChunks { order: VecDeque::new(), due: Vec::new(), bytes: 0, chunk_max: CHUNK_BYTES }
    }

    /// Sets the max bytes that a segment has for a chunk.
    pub(super) fn set_part(&mut self, part: usize) {
        self.chunk_max = CHUNK_BYTES.min(part);
    }

    /// Puts a row into the open chunk of its stream. `position` is where its unit will begin in the log. Returns the
    /// row's ordinal.
    #[inline]
    pub(super) fn push_row(
        &mut self,
        (id, stream): (u32, &mut StreamWriter),
        scratch: &RowScratch,
        position: LogPosition,
        now: i64,
    ) -> u64 {
        let row = stream.next_row;
        if stream.source_clock {
            stream.newest_time = stream.newest_time.max(scratch.head().time(true));
        }
        let chunk = match &stream.chunk {
            Some(chunk) if !chunk.is_full() && chunk.fits(stream.shape_number, stream.source_clock) => chunk,
            _ => {
                let shape = (stream.shape.clone(), stream.shape_number);
                let limits = (stream.capacity, self.chunk_max);
                let chunk = Arc::new(Chunk::new(row, shape, stream.source_clock, limits, now));
                stream.capacity = Some(chunk.capacity());
                self.bytes += chunk.size_bytes();
                let open = stream.slot.open.load();
                let mut chunks = Vec::with_capacity(open.chunks.len() + 1);
                chunks.extend(open.chunks.iter().cloned());
                chunks.push(chunk.clone());
                let first_row = chunks[0].first_row;
                let rows = row - first_row;
                let bytes = || chunks.iter().map(|chunk| chunk.size_bytes()).sum::<usize>();
                if !stream.due && (rows >= DUE_ROWS || bytes() >= DUE_CHUNKS * CHUNK_BYTES) {
                    stream.due = true;
                    self.due.push(id);
                }
                self.order.push_back(ChunkAt { position, stream: id, first_row: row });
                stream.slot.open.store(Arc::new(OpenRows { chunks, first_row }));
                stream.chunk.insert(chunk)
            }
        };
        chunk.push(scratch, now);
        self.bytes += scratch.text.len();
        stream.next_row = row + 1;
        row
    }

    /// Takes the streams that have enough rows for a block.
    pub(crate) fn take_due(&mut self) -> Drain<'_, u32> {
        self.due.drain(..)
    }

    /// Returns the bytes of memory of all chunks.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Notes that chunks of `bytes` in total have left memory.
    pub(crate) fn release(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Returns where the unit of the oldest chunk begins in the log, or [`LogPosition::END`] if there is none.
    pub(crate) fn first_position(&self) -> LogPosition {
        self.order.front().map_or(LogPosition::END, |chunk| chunk.position)
    }

    /// Returns the chunks from index `place` on, in the order of the log, or `None` past the last one.
    pub(crate) fn from(&self, place: usize) -> Option<impl Iterator<Item = &ChunkAt>> {
        (place < self.order.len()).then(|| self.order.iter().skip(place))
    }

    /// Forgets the oldest chunk if its rows are in segments. Returns whether they are.
    pub(crate) fn drop_first(&mut self, streams: &StreamRegistry) -> bool {
        let Some(first) = self.order.front() else { return false };
        let is_sealed = first.first_row < streams[first.stream].slot.open.load().first_row;
        if is_sealed {
            self.order.pop_front();
        }
        is_sealed
    }
}
