//! Seals: rows leave memory for blocks of a segment. Runs beside appends, on the caller's second thread, in
//! slices of about 1 ms.
//!
//! ```text
//!  open chunks ─> encode ─> write group in memory ─> [write, sync] ─> index ─> chunks are dropped
//! ```
//! Invariants: only committed rows are sealed, those of a stream in their order. A row is dropped from memory after its
//! block is synced and listed. The log's tail passes a row after that, and after a checkpoint that says so.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::append::Writer;
use crate::append::chunk::{CHUNK_BYTES, Chunk};
use crate::append::open_chunks::DUE_ROWS;
use crate::append::pending_unit::reserve_bytes;
use crate::append::stream_slot::StreamSlot;
use crate::block::BlockMeta;
use crate::block::leaps;
use crate::block::mixed::{self, MixedPart};
use crate::catalog::definition;
use crate::catalog::group::Group;
use crate::codec::Effort;
use crate::disk::space::Space;
use crate::engine::Engine;
use crate::log::LogPosition;
use crate::model::batch::{Batch, Column, ColumnValues};
use crate::model::limits::PAGE_BYTES;
use crate::model::mutant::{self, Mutant};
use crate::model::reduction::Reduction;
use crate::model::stream::{Stream, StreamId};
use crate::model::trouble::is_full;
use crate::model::value::CellState;
use crate::read::scan::optional;
use crate::segment::file::{SegmentFile, invalid};
use crate::segment::{Builder, SegmentHeader};
use crate::upkeep::sealer::Sealer;
use crate::upkeep::sealing::EncodedRows;
use crate::upkeep::turnover::last_blocks_max;

/// Cells that one slice encodes: about 1 ms.
const SLICE_CELLS: usize = 100_000;
/// Bytes of blocks that are written together, so that padding to a page wastes less than 3 %.
const GROUP_BYTES: usize = 128 << 10;
/// Min rows for a block of a stream's own when the log or memory is short.
const BLOCK_ROWS_MIN: usize = 256;
/// Rows of a block.
const BLOCK_ROWS: usize = 1024;
/// Chunks of the log's order that are examined each time that appends wait.
const CHUNKS_A_LOCK: usize = 512;
/// Max streams that one slice puts into a mixed block.
const MIXED_STREAMS: usize = 1024;
/// Min bytes of rows for a block of a stream's own, however few rows: arrays and long texts.
const BLOCK_BYTES_MIN: usize = 64 << 10;
/// Min bytes for rows with arrays, which a mixed block holds as they are.
const ARRAY_BYTES_MIN: usize = 2 << 10;
/// Max bytes of rows in one mixed block.
const MIXED_BYTES: usize = 4 << 20;
/// Rows whose cells go to columns at a time.
const TILE_ROWS: usize = 32;
/// Min rows for a block of a stream's own at a clean end.
const CLOSE_ROWS_MIN: usize = 16;

impl Sealer {
    /// Returns whether a group can get a segment without another being dropped for it.
    fn has_file(&self, engine: &Engine) -> bool {
        let kept = u64::from(self.keeps_slot(engine));
        engine.space.fixed.is_none() || self.disk.free_slots() > kept
    }

    /// Does about 1 ms of work. Returns whether more is waiting.
    pub(crate) fn slice(&mut self, engine: &Engine, now: i64) -> io::Result<bool> {
        self.name_written(engine)?;
        self.note_leap(engine, now)?;
        if self.note_told(engine) {
            self.write_checkpoint(engine, None)?;
        }
        drop_sealed(engine);
        let (ring, (head, tail), front, open_bytes, wanted, told) = {
            let mut writer = engine.writer.lock();
            self.sealing.queue.extend(writer.open.take_due());
            self.checkpoints.note_streams(writer.streams.take_changed());
            let Writer { unit, open, gaps, .. } = &mut *writer;
            let places = (unit.head(), unit.tail());
            // Another opening finds damage again that has no durable row yet.
            let told = self.sealing.damage_end.is_none()
                || gaps.undurable(engine.committed.load(Ordering::Acquire)).is_empty();
            (unit.ring_bytes(), places, open.first_position(), open.bytes(), unit.take_wanted(), told)
        };
        let mut cells = 0;
        while cells < SLICE_CELLS {
            let Some(id) = self.sealing.queue.pop_front() else { break };
            let taken = self.take_rows(engine, id, BLOCK_ROWS, usize::MAX);
            // Many rows came at once: the stream gets another turn.
            let again = taken.as_ref().is_some_and(|t| t.left >= DUE_ROWS);
            if let Some(taken) = taken {
                match self.encode_block(engine, taken) {
                    Ok(done) => cells += done,
                    Err(error) => {
                        self.sealing.queue.push_front(id);
                        return Err(error);
                    }
                }
            }
            if again {
                self.sealing.queue.push_back(id);
            } else if let Some(stream) = engine.writer.lock().streams.get_mut(id) {
                stream.due = false;
            }
        }
        // The oldest rows go first if they are in the log's last quarter, or in what an append needs of it, or before
        // damage, or if memory is over its budget.
        self.sealing.damage_end = self.sealing.damage_end.filter(|end| *end > tail);
        let damage_end = self.sealing.damage_end.filter(|_| told);
        let floor = (head + wanted.max(ring / 4)).back(ring).max(damage_end.unwrap_or_default());
        // A small log holds few rows: where they are the only ones, a block of them is smaller than one of mixed rows.
        let block_rows_min = if reserve_bytes(ring) == 0 { CLOSE_ROWS_MIN } else { BLOCK_ROWS_MIN };
        let over = open_bytes > engine.options.open_bytes;
        self.flush_held(engine, floor, now);
        let mut pressed = false;
        if cells < SLICE_CELLS {
            let mut few: BTreeMap<Group, Vec<SealedRows>> = BTreeMap::new();
            let mut waiting = HashSet::new();
            for id in self.oldest(engine, |position| position < floor || over, MIXED_STREAMS) {
                // The rows of a stream are put in their order: none before those that wait for the mixed block.
                if waiting.contains(&id) && !mutant::is_active(Mutant::SealPastFew) {
                    continue;
                }
                let Some(taken) = self.take_rows(engine, id, 1, usize::MAX) else { continue };
                pressed = true;
                if taken.has_block(block_rows_min) {
                    cells += self.encode_block(engine, taken)?;
                } else {
                    cells += taken.cells() + 16;
                    waiting.insert(id);
                    few.entry(taken.group).or_default().push(taken);
                }
                if cells >= SLICE_CELLS {
                    break;
                }
            }
            for (group, taken) in few {
                self.encode_mixed(engine, group, taken)?;
            }
        }
        let open: Vec<Group> = self.sealing.open.keys().copied().collect();
        for group in open {
            let waiting = self.sealing.open.get(&group).map_or(0, |file| file.waiting_bytes());
            // Rows that are encoded and wait for a full group hold up the log and memory as others do.
            if waiting >= GROUP_BYTES || waiting > 0 && (pressed || over || front < floor) {
                self.flush(engine, group)?;
            }
        }
        self.move_tail(engine, if damage_end.is_some() { 1 } else { ring / 8 })?;
        // Once a second of the caller's clock, and after each segment that was finished.
        if self.expiry_due || now.abs_diff(self.expiry_at) >= 1_000_000_000 {
            (self.expiry_due, self.expiry_at) = (false, now);
            self.expire(engine)?;
            self.make_spare(engine)?;
        }
        let more = !self.sealing.queue.is_empty() || cells >= SLICE_CELLS || pressed;
        if !more && engine.options.settle {
            // After all other work, and a slice a call: cold data can wait.
            self.settle_slice(engine, now, false)?;
        }
        Ok(more)
    }

    /// Gives rows to held frames whose place in the log is needed; the next commit frees it.
    fn flush_held(&self, engine: &Engine, floor: LogPosition, now: i64) {
        let mut writer = engine.writer.lock();
        if !writer.gate.is_closed() {
            for id in writer.unit.held_before(floor, MIXED_STREAMS) {
                // The room kept free is there for this: without it the log cannot advance.
                writer.flush_held(id, 0, now);
            }
        }
    }

    /// Returns at most `most` streams with the oldest rows of the log that are not encoded yet, as long as `wanted`
    /// holds.
    fn oldest(&self, engine: &Engine, wanted: impl Fn(LogPosition) -> bool, most: usize) -> Vec<u32> {
        let mut streams = Vec::new();
        // Only the sealer takes chunks from the front, so places hold while appends come in between.
        for from in (0..).step_by(CHUNKS_A_LOCK) {
            let writer = engine.writer.lock();
            let Some(chunks) = writer.open.from(from) else { break };
            for chunk in chunks.take(CHUNKS_A_LOCK) {
                if !wanted(chunk.position) || streams.len() >= most {
                    return streams;
                }
                let from = self.sealing.encoded(chunk.stream).to;
                let sealed = writer.streams[chunk.stream].slot.open.load().first_row;
                if chunk.first_row >= from.max(sealed) {
                    streams.push(chunk.stream);
                }
            }
        }
        streams
    }

    /// Takes the oldest rows of a stream that are not encoded yet, if there are at least `min_rows` and all are
    /// committed: those of whole chunks, until they reach the rows or bytes of a block, of at most `most_chunks`. A
    /// chunk that still grows is closed, so that it can leave memory as a whole.
    fn take_rows(&mut self, engine: &Engine, id: u32, min_rows: usize, most_chunks: usize) -> Option<SealedRows> {
        let most_bytes = (2 * CHUNK_BYTES).min(engine.space.segment_bytes as usize);
        let slot = engine.shared.slots.get(StreamId(id))?.clone();
        let committed = slot.committed_row.load(Ordering::Acquire);
        let open = slot.open.load_full();
        let encoded = self.sealing.encoded(id);
        let from = encoded.to.max(open.first_row);
        let mut chunks: Vec<Arc<Chunk>> = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        for chunk in open.chunks.iter().filter(|c| c.first_row >= from) {
            // Rows of another clock go into another block, and so do rows after lost ones.
            let same =
                chunks.last().is_none_or(|c| c.source_clock == chunk.source_clock && c.end_row() == chunk.first_row);
            if rows >= BLOCK_ROWS || bytes >= most_bytes || chunks.len() >= most_chunks || !same {
                break;
            }
            chunks.push(chunk.clone());
            rows += chunk.len();
            bytes += chunk.size_bytes();
        }
        let last = chunks.last()?;
        if rows < min_rows && bytes < most_bytes {
            return None;
        }
        if open.chunks.last().is_some_and(|newest| Arc::ptr_eq(newest, last)) {
            let mut writer = engine.writer.lock();
            let stream = &mut writer.streams[id];
            if stream.chunk.as_ref().is_some_and(|c| Arc::ptr_eq(c, last)) {
                stream.chunk = None;
                stream.capacity = None;
            }
        }
        let end = last.end_row();
        if end > committed {
            return None;
        }
        let stream = slot.stream.load_full();
        let stored = (chunks[0].stored, chunks.iter().map(|c| c.stored_last()).max()?);
        let (batch, points) = batch_of(&stream, &chunks);
        let mut before = None;
        if batch.sequence.is_some() {
            before = encoded.newest.or_else(|| {
                let writer = engine.writer.lock();
                let sealed = writer.streams[id].tracker.as_ref().and_then(|tracker| tracker.sealed);
                drop(writer);
                let waiting = open.chunks.iter().filter(|chunk| chunk.first_row < from);
                waiting.fold(sealed, |before, chunk| chunk.newest_sequence(before))
            });
        }
        let newest = chunks.iter().fold(before, |before, chunk| chunk.newest_sequence(before));
        self.sealing.note_encoded(id, EncodedRows { to: end, newest });
        if mutant::is_active(Mutant::SealAhead)
            && let Some(tracker) = &mut engine.writer.lock().streams[id].tracker
        {
            tracker.sealed = newest;
        }
        let left = slot.open.load().next_row() - end;
        let (overlaps, newest_before) = self.overlaps(id, &slot, &batch);
        let chunks = chunks.len();
        let group = slot.group;
        Some(SealedRows { group, stream, batch, points, stored, left, overlaps, newest_before, chunks, bytes, before })
    }

    /// Takes fewer of the rows that were just taken, because a block of all of them does not fit. Returns `None` if
    /// they are of one chunk.
    fn take_fewer(&mut self, engine: &Engine, taken: &SealedRows) -> Option<SealedRows> {
        let (id, first_row) = (taken.stream.id.0, *taken.batch.rows.first()?);
        if taken.chunks < 2 {
            return None;
        }
        self.sealing.note_encoded(id, EncodedRows { to: first_row, newest: taken.before });
        self.sealing.reset_sealed_time(id, taken.newest_before);
        self.take_rows(engine, id, 1, taken.chunks / 2)
    }

    /// Returns whether some time of a batch is before the newest time sealed of its stream, and that time.
    fn overlaps(&mut self, id: u32, slot: &StreamSlot, batch: &Batch) -> (bool, i64) {
        let (mut min, mut max) = (i64::MAX, i64::MIN);
        for row in 0..batch.len() {
            let time = batch.time(row);
            (min, max) = (min.min(time), max.max(time));
        }
        let before = self.sealing.note_sealed_time(id, max, || slot.sealed.load().time.1);
        (min < before, before)
    }

    /// Encodes rows of one stream as a block of their own. Returns the number of their cells.
    fn encode_block(&mut self, engine: &Engine, taken: SealedRows) -> io::Result<usize> {
        let group = taken.group;
        let gaps = taken.gap_rows();
        let meta = BlockMeta {
            origin: engine.origin,
            epoch: engine.epoch,
            stored: taken.stored,
            overlaps_previous: taken.overlaps,
            gaps: &gaps,
            max_future_ns: engine.shared.max_future_ns,
            effort: Effort::Seal,
        };
        let id = taken.stream.id.0;
        let (encoder, memory) = self.sealing.encoder_of(id);
        let mut bytes = Vec::new();
        encoder.encode(&meta, &taken.batch, &taken.stream.layout, memory, &mut bytes).map_err(invalid)?;
        let streams = std::slice::from_ref(&taken.stream);
        // The rest of a slot is worth another attempt if it is large: there the segment cannot be cut short behind its
        // footer.
        let worth_filling = |file: &SegmentFile| {
            file.free_bytes() >= engine.space.segment_bytes / 8 && !file.has_room(bytes.len(), streams)
        };
        let fill = engine.space.fixed.is_some() && self.sealing.open.get(&group).is_some_and(worth_filling);
        if (fill || !fits_alone(engine.space.segment_bytes, bytes.len(), streams))
            && let Some(fewer) = self.take_fewer(engine, &taken)
        {
            return self.encode_block(engine, fewer);
        }
        self.put(engine, group, &bytes, streams, taken.points)?;
        Ok(taken.cells())
    }

    /// Encodes few rows of many streams of one group as a mixed block.
    fn encode_mixed(&mut self, engine: &Engine, group: Group, mut taken: Vec<SealedRows>) -> io::Result<()> {
        if taken.is_empty() {
            return Ok(());
        }
        // The footer has the definitions of all its streams: they must leave room in an empty segment.
        let mut definitions = Vec::new();
        taken.iter().for_each(|t| definition::encode(&t.stream, &mut definitions));
        let bytes: usize = taken.iter().map(|t| t.bytes).sum();
        if taken.len() > 1 && (definitions.len() as u64 > engine.space.segment_bytes / 4 || bytes > MIXED_BYTES) {
            let second = taken.split_off(taken.len() / 2);
            self.encode_mixed(engine, group, taken)?;
            return self.encode_mixed(engine, group, second);
        }
        let none = (i64::MAX, i64::MIN);
        let join = |a: (i64, i64), b: (i64, i64)| (a.0.min(b.0), a.1.max(b.1));
        let stored = taken.iter().fold(none, |all, t| join(all, t.stored));
        let meta = BlockMeta {
            origin: engine.origin,
            epoch: engine.epoch,
            stored,
            overlaps_previous: false,
            gaps: &[],
            max_future_ns: engine.shared.max_future_ns,
            effort: Effort::Seal,
        };
        let parts: Vec<MixedPart<'_>> = taken
            .iter()
            .map(|t| MixedPart {
                batch: &t.batch,
                layout_version: t.stream.layout.version,
                overlaps_previous: t.overlaps,
                gap_before: t.gap_rows().contains(&0),
            })
            .collect();
        let mut bytes = Vec::new();
        mixed::encode(&meta, &parts, &mut bytes).map_err(invalid)?;
        let streams: Vec<_> = taken.iter().map(|t| t.stream.clone()).collect();
        if !fits_alone(engine.space.segment_bytes, bytes.len(), &streams) {
            if taken.len() == 1 {
                return taken.into_iter().try_for_each(|taken| self.encode_block(engine, taken).map(drop));
            }
            let second = taken.split_off(taken.len() / 2);
            self.encode_mixed(engine, group, taken)?;
            return self.encode_mixed(engine, group, second);
        }
        self.put(engine, group, &bytes, &streams, taken.iter().map(|t| t.points).sum())
    }

    /// Puts an encoded block into the group's write group. Finishes a segment that is full first.
    fn put(
        &mut self,
        engine: &Engine,
        group: Group,
        bytes: &[u8],
        streams: &[Arc<Stream>],
        points: u64,
    ) -> io::Result<()> {
        let has_room = self.sealing.open.get(&group).is_some_and(|file| file.has_room(bytes.len(), streams));
        if !has_room {
            if self.is_closing && !self.has_file(engine) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.flush(engine, group)?;
            self.finish_segment(engine, group)?;
            self.ensure_segment(engine, group, least_bytes(&engine.space, bytes.len(), streams))?;
        }
        let Some(file) = self.sealing.open.get_mut(&group) else { return Ok(()) };
        file.put(bytes, streams, points)?;
        let place = file.segment().place();
        self.ages.note_filled(place);
        Ok(())
    }

    /// Writes and syncs the encoded blocks of a group; then their rows leave memory.
    pub(crate) fn flush(&mut self, engine: &Engine, group: Group) -> io::Result<()> {
        let Some(file) = self.sealing.open.get(&group) else { return Ok(()) };
        // Recovery reads the blocks of open segments before the log: their streams must be known by then.
        let unknown = {
            let writer = engine.writer.lock();
            let mut waiting = file.waiting().iter();
            waiting.any(|entry| {
                let stream = &writer.streams[entry.header.stream.0];
                stream.saved_serial != Some(stream.history.serial)
            })
        };
        if unknown {
            self.write_checkpoint(engine, None)?;
        }
        let Some(file) = self.sealing.open.get_mut(&group) else { return Ok(()) };
        let (written, blocks) = file.flush()?;
        let segment = file.segment().clone();
        self.written_bytes += written;
        if written > 0 {
            self.checkpoints.note_segment(segment.clone());
        }
        for (id, block) in blocks {
            let end = block.end_row();
            self.release_rows(engine, id, &block, segment.id);
            self.sealing.note_released(id, end);
        }
        Ok(())
    }

    /// Seals everything, for a clean end. Rows that need another segment of a fixed size to be dropped stay in the log.
    pub(crate) fn seal_all(&mut self, engine: &Engine) -> io::Result<()> {
        self.free_settle(engine, engine.shared.paces.now())?;
        self.is_closing = true;
        match self.encode_all(engine) {
            Err(error) if is_full(&error) && engine.space.fixed.is_some() => self.sealing.forget_taken(),
            done => done?,
        }
        let open: Vec<Group> = self.sealing.open.keys().copied().collect();
        for group in open {
            self.flush(engine, group)?;
            // Finishing a half-full slot would cost the older data that its rest displaces.
            if engine.space.fixed.is_none() {
                self.finish_segment(engine, group)?;
            }
        }
        self.move_tail(engine, 1)?;
        self.note_leap(engine, engine.shared.paces.now())?;
        self.write_checkpoint(engine, None)
    }

    /// Encodes all rows in memory.
    fn encode_all(&mut self, engine: &Engine) -> io::Result<()> {
        let streams = engine.shared.slots.len();
        let mut few: BTreeMap<Group, Vec<SealedRows>> = BTreeMap::new();
        for id in 0..streams {
            while let Some(taken) = self.take_rows(engine, id, 1, usize::MAX) {
                // Further rows are put after these, which therefore do not wait for a mixed block.
                let is_followed = taken.left > 0 && !mutant::is_active(Mutant::SealPastFew);
                if taken.has_block(CLOSE_ROWS_MIN) || is_followed {
                    self.encode_block(engine, taken)?;
                } else {
                    let group = taken.group;
                    let waiting = few.entry(group).or_default();
                    waiting.push(taken);
                    if waiting.len() >= MIXED_STREAMS {
                        let taken = std::mem::take(waiting);
                        self.encode_mixed(engine, group, taken)?;
                    }
                }
            }
        }
        few.into_iter().try_for_each(|(group, taken)| self.encode_mixed(engine, group, taken))
    }
}

/// Rows that leave memory.
struct SealedRows {
    group: Group,
    stream: Arc<Stream>,
    batch: Batch,
    points: u64,
    stored: (i64, i64),
    /// Rows of the stream that stay.
    left: u64,
    overlaps: bool,
    /// Newest time of the stream that was sealed before.
    newest_before: i64,
    /// Number of chunks that the rows are from.
    chunks: usize,
    /// Bytes of these chunks.
    bytes: usize,
    /// Session and highest sequence of the rows before.
    before: Option<(u32, i64)>,
}

impl SealedRows {
    /// Returns whether it gets a block of its own, as it does from `rows_min` rows on.
    fn has_block(&self, rows_min: usize) -> bool {
        let arrays = || {
            self.batch.columns.iter().any(|c| matches!(&c.values, ColumnValues::Array { kind, .. } if !kind.is_blob()))
        };
        self.batch.len() >= rows_min || self.bytes >= BLOCK_BYTES_MIN || self.bytes >= ARRAY_BYTES_MIN && arrays()
    }

    /// Returns the rows before which frames are known to be missing.
    fn gap_rows(&self) -> Vec<u32> {
        let reduced = self.stream.layout.channels.iter().any(|c| c.reduction != Reduction::None);
        leaps::gap_rows(&self.batch, self.before, reduced)
    }

    /// Returns the number of cells to encode; eight bytes of arrays and text count as one.
    fn cells(&self) -> usize {
        (self.batch.len() * (self.batch.columns.len() + 2)).max(self.bytes / 8)
    }
}

/// Returns the bytes of the smallest segment to create for a block of these streams.
fn least_bytes(space: &Space, block_bytes: usize, streams: &[Arc<Stream>]) -> u64 {
    let mut size = space.least_segment().max((block_bytes as u64).next_multiple_of(PAGE_BYTES as u64));
    while size < space.segment_bytes && !fits_alone(size, block_bytes, streams) {
        size += (size / 8).next_multiple_of(PAGE_BYTES as u64);
    }
    size.min(space.segment_bytes)
}

/// Returns whether a block of these streams fits into an empty segment, with its entries in the footer.
fn fits_alone(size_bytes: u64, block_bytes: usize, streams: &[Arc<Stream>]) -> bool {
    if streams.len() == 1 && block_bytes as u64 <= size_bytes / 8 {
        return true;
    }
    let header =
        SegmentHeader { origin: 0, id: 0, generation: 0, size_bytes, created: 0, group: String::new(), blobs: false };
    let mut empty = Builder::new(header);
    empty.reserve(last_blocks_max(size_bytes));
    empty.fits(block_bytes, streams.len(), streams.iter().map(|stream| &**stream))
}

/// Returns the columns of consecutive chunks, in the stream's current types, and how many cells are values.
fn batch_of(stream: &Stream, chunks: &[Arc<Chunk>]) -> (Batch, u64) {
    let count: usize = chunks.iter().map(|c| c.len()).sum();
    let first = chunks[0].first_row;
    let of = |f: &dyn Fn(&Chunk, usize) -> i64| -> Vec<i64> {
        chunks.iter().flat_map(|c| (0..c.len()).map(|r| f(c, r))).collect()
    };
    let options = |f: &dyn Fn(&Chunk, usize) -> Option<i64>| {
        let all: Vec<Option<i64>> = chunks.iter().flat_map(|c| (0..c.len()).map(|r| f(c, r))).collect();
        optional(all.into_iter())
    };
    let sequence = options(&|c, r| c.sequence(r).map(|s| s.0));
    let session = sequence
        .as_ref()
        .map(|_| chunks.iter().flat_map(|c| (0..c.len()).map(|r| c.sequence(r).map_or(0, |s| s.1))).collect());
    let channels = &stream.layout.channels;
    let mut columns: Vec<Column> = channels
        .iter()
        .map(|c| Column { values: ColumnValues::with_capacity(c.channel_type, count), states: None })
        .collect();
    for chunk in chunks {
        let known = chunk.shape.fields.len();
        let union = chunk.states_union();
        // Rows are stored one after the other, so that a column's neighbours are cache lines apart: few rows at a time,
        // so that their lines are still cached when the next column comes.
        let mut order: Vec<usize> = (0..channels.len()).collect();
        order.sort_unstable_by_key(|&c| chunk.shape.fields.get(c).map_or(u32::MAX, |f| f.word));
        for from in (0..chunk.len()).step_by(TILE_ROWS) {
            let rows = from..chunk.len().min(from + TILE_ROWS);
            for &channel in &order {
                let all_values = channel < known && union[channel / 32] >> (channel % 32 * 2) & 3 == 0;
                chunk.append_cells(channel, rows.clone(), all_values, &mut columns[channel]);
            }
        }
    }
    let values = |column: &Column| match &column.states {
        None => count,
        Some(states) => states.iter().filter(|s| **s == CellState::Value).count(),
    };
    let points = columns.iter().map(values).sum::<usize>() as u64;
    let batch = Batch {
        stream: stream.id,
        rows: (first..first + count as u64).collect(),
        receive_time: of(&|c, r| c.receive_time(r)),
        source_time: options(&|c, r| c.source_time(r)),
        sequence,
        session,
        source_clock: chunks[0].source_clock,
        columns,
    };
    (batch, points)
}

/// Forgets chunks at the front that are in segments, a few each time that appends wait.
pub(crate) fn drop_sealed(engine: &Engine) {
    let mut more = true;
    while more {
        let mut writer = engine.writer.lock();
        let Writer { open, streams, .. } = &mut *writer;
        more = (0..CHUNKS_A_LOCK).all(|_| open.drop_first(streams));
    }
}
