//! Open chunks: consecutive rows of one stream in memory, of fixed capacity, that never move.
//!
//! One writer (under the store's append lock) fills rows and publishes their count; any number of readers
//! see the rows below the count that they took. The words are atomics written relaxed before the count is
//! released and read relaxed after it is acquired: no lock, no unsafe code.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::append::sequence;
use crate::append::stream_slot::OpenRows;
use crate::log::LogPosition;
use crate::model::batch::{Column, ColumnValues};
use crate::model::row::{RowHead, RowScratch, RowShape, mask};
use crate::model::value::{CellState, ChannelType, Value, text_at, value_beside};

/// Capacities in rows of a stream's successive chunks: few rows at first, so that 100,000 quiet streams stay small.
const CAPACITIES: [u32; 5] = [4, 16, 64, 256, ROWS_MAX];

/// Max rows of a chunk. A seal takes two chunks and leaves the newest in memory for live queries.
const ROWS_MAX: u32 = 512;

/// Bytes of words, and of texts, at which a chunk takes no more rows; it always takes at least one.
pub(crate) const CHUNK_BYTES: usize = 512 << 10;

/// Bytes that a chunk costs beyond itself: its reference counts, the stream's list and its entry there, and its place
/// in the order of the log.
const BESIDE_BYTES: usize =
    2 * size_of::<usize>() + size_of::<OpenRows>() + 3 * size_of::<usize>() + size_of::<ChunkAt>();

/// Place of a chunk in the order of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkAt {
    pub(crate) position: LogPosition,
    pub(crate) stream: u32,
    pub(crate) first_row: u64,
}

/// Consecutive rows of a stream.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Ordinal of its first row.
    pub(crate) first_row: u64,
    /// Shape of its rows.
    pub(crate) shape: Arc<RowShape>,
    /// Number of `shape` in its stream.
    pub(crate) shape_number: u16,
    /// Time its first row was appended, nanoseconds since 1970 UTC.
    pub(crate) stored: i64,
    /// Whether `time` is source_time.
    pub(crate) source_clock: bool,
    capacity: u32,
    /// Bytes of text and arrays beyond which the chunk is full.
    text_max: u32,
    words: Box<[AtomicU64]>,
    texts: Box<[OnceLock<Box<[u8]>>]>,
    text_bytes: AtomicU64,
    sorted: AtomicBool,
    time_min: AtomicI64,
    time_max: AtomicI64,
    stored_last: AtomicI64,
    published: AtomicU32,
}

impl Chunk {
    /// Makes an empty chunk. `before` is the capacity of the stream's previous chunk, if any. `most_bytes` bounds its
    /// words and its texts, but it takes at least one row.
    pub(crate) fn new(
        first_row: u64,
        shape: (Arc<RowShape>, u16),
        source_clock: bool,
        (before, most_bytes): (Option<u16>, usize),
        stored: i64,
    ) -> Chunk {
        let (shape, shape_number) = shape;
        let bytes_row = shape.words() * 8;
        let most = (most_bytes / bytes_row).clamp(1, ROWS_MAX as usize) as u32;
        let capacity = match before {
            None => CAPACITIES[0],
            Some(c) => CAPACITIES.into_iter().find(|&k| k > u32::from(c)).unwrap_or(ROWS_MAX),
        }
        .min(most);
        let words = (0..shape.words() * capacity as usize).map(|_| AtomicU64::new(0)).collect();
        let texts = (0..if shape.has_text { capacity } else { 0 }).map(|_| OnceLock::new()).collect();
        Chunk {
            first_row,
            shape,
            shape_number,
            stored,
            source_clock,
            capacity,
            text_max: most_bytes as u32,
            words,
            texts,
            text_bytes: AtomicU64::new(0),
            sorted: AtomicBool::new(true),
            time_min: AtomicI64::new(i64::MAX),
            time_max: AtomicI64::new(i64::MIN),
            stored_last: AtomicI64::new(stored),
            published: AtomicU32::new(0),
        }
    }

    /// Returns the max number of rows.
    pub(crate) fn capacity(&self) -> u16 {
        self.capacity as u16
    }

    /// Returns the number of rows published so far.
    pub(crate) fn len(&self) -> usize {
        self.published.load(Ordering::Acquire) as usize
    }

    /// Returns whether its rows have a shape and a clock.
    #[inline(always)]
    pub(crate) fn fits(&self, shape_number: u16, source_clock: bool) -> bool {
        self.shape_number == shape_number && self.source_clock == source_clock
    }

    /// Returns whether it takes no more rows.
    pub(crate) fn is_full(&self) -> bool {
        self.published.load(Ordering::Relaxed) == self.capacity
            || self.text_bytes.load(Ordering::Relaxed) > self.text_max.into()
    }

    /// Returns the ordinal after its last row.
    pub(crate) fn end_row(&self) -> u64 {
        self.first_row + self.len() as u64
    }

    /// Returns the bytes of memory it takes.
    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Chunk>()
            + BESIDE_BYTES
            + self.words.len() * 8
            + self.texts.len() * size_of::<OnceLock<Box<[u8]>>>()
            + self.text_bytes.load(Ordering::Relaxed) as usize
    }

    /// Adds a row and publishes it. Only the one writer may call it, on a chunk that is not full.
    pub(crate) fn push(&self, row: &RowScratch, stored: i64) {
        let index = self.published.load(Ordering::Relaxed) as usize;
        let at = index * row.words.len();
        for (slot, &word) in self.words[at..at + row.words.len()].iter().zip(&row.words) {
            slot.store(word, Ordering::Relaxed);
        }
        if !row.text.is_empty() {
            // Set once: a row is written once.
            let _ = self.texts[index].set(row.text.as_slice().into());
            self.text_bytes.fetch_add(row.text.len() as u64, Ordering::Relaxed);
        }
        let time = row.head().time(self.source_clock);
        if time < self.time_max.load(Ordering::Relaxed) {
            self.sorted.store(false, Ordering::Relaxed);
        } else {
            self.time_max.store(time, Ordering::Relaxed);
        }
        if time < self.time_min.load(Ordering::Relaxed) {
            self.time_min.store(time, Ordering::Relaxed);
        }
        // The caller's clock may step back.
        if stored > self.stored_last.load(Ordering::Relaxed) {
            self.stored_last.store(stored, Ordering::Relaxed);
        }
        self.published.store(index as u32 + 1, Ordering::Release);
    }

    /// Returns whether its rows ascend in `time`. Rows published after a reader took its count may already make it
    /// false.
    pub(crate) fn sorted(&self) -> bool {
        self.sorted.load(Ordering::Relaxed)
    }

    /// Returns the min and max `time`, or `None` if it has no rows. Rows published after a reader took its count may
    /// widen the range.
    pub(crate) fn time_range(&self) -> Option<(i64, i64)> {
        (self.len() > 0).then(|| (self.time_min.load(Ordering::Relaxed), self.time_max.load(Ordering::Relaxed)))
    }

    /// Returns the time its last row was appended, nanoseconds since 1970 UTC.
    pub(crate) fn stored_last(&self) -> i64 {
        self.stored_last.load(Ordering::Relaxed)
    }

    /// Returns the head of a row.
    fn head(&self, row: usize) -> RowHead<impl Fn(usize) -> u64> {
        RowHead(move |word| self.row_word(row, word))
    }

    /// Returns a word of a row.
    pub(crate) fn row_word(&self, row: usize, word: usize) -> u64 {
        self.words[row * self.shape.words() + word].load(Ordering::Relaxed)
    }

    /// Returns all words of a row.
    pub(crate) fn row_words(&self, row: usize) -> &[AtomicU64] {
        let words = self.shape.words();
        &self.words[row * words..(row + 1) * words]
    }

    /// Returns the receive_time of a row.
    pub(crate) fn receive_time(&self, row: usize) -> i64 {
        self.head(row).receive()
    }

    /// Returns the source_time of a row, if it has one.
    pub(crate) fn source_time(&self, row: usize) -> Option<i64> {
        self.head(row).source()
    }

    /// Returns the unwrapped sequence and the session of a row, if it has them.
    pub(crate) fn sequence(&self, row: usize) -> Option<(i64, u32)> {
        if !self.shape.has_sequence {
            return None;
        }
        self.head(row).sequence()
    }

    /// Returns the session and highest sequence up to its last row, given those before its first.
    pub(crate) fn newest_sequence(&self, before: Option<(u32, i64)>) -> Option<(u32, i64)> {
        let sequences = (0..self.len()).filter_map(|row| self.sequence(row));
        sequences.fold(before, |before, row| Some(sequence::advance(before, row)))
    }

    /// Returns the `time` of a row.
    pub(crate) fn time(&self, row: usize) -> i64 {
        self.head(row).time(self.source_clock)
    }

    /// Returns the first row of `0..len` at or after a time, in a sorted chunk.
    pub(crate) fn lower_bound(&self, time: i64, len: usize) -> usize {
        lower_bound(len, |row| self.time(row) < time)
    }

    /// Iterates over the rows of a `time`.
    pub(crate) fn rows_of(&self, time: i64) -> impl Iterator<Item = usize> {
        let (len, is_sorted) = (self.len(), self.sorted());
        let from = if is_sorted { self.lower_bound(time, len) } else { 0 };
        (from..len)
            .take_while(move |row| !is_sorted || self.time(*row) == time)
            .filter(move |row| self.time(*row) == time)
    }

    /// Returns the state of a cell; absent beyond the shape.
    pub(crate) fn state(&self, row: usize, channel: usize) -> CellState {
        if channel >= self.shape.fields.len() {
            return CellState::Absent;
        }
        let word = self.row_word(row, self.shape.states + channel / 32);
        CellState::from_code((word >> (channel % 32 * 2)) as u8 & 3).unwrap_or(CellState::Absent)
    }

    /// Returns the bit pattern of a cell whose state is a value.
    pub(crate) fn bits(&self, row: usize, channel: usize) -> u64 {
        let field = self.shape.fields[channel];
        self.row_word(row, field.word as usize) >> field.shift & mask(field.kind)
    }

    /// Returns the value of a cell whose state is a value.
    pub(crate) fn value(&self, row: usize, channel: usize) -> Value<'_> {
        let kind = self.shape.fields[channel].kind;
        if kind.is_scalar() {
            return Value::from_bits(kind, self.bits(row, channel));
        }
        value_beside(kind, self.text(row, self.bits(row, channel))).unwrap_or(Value::String(""))
    }

    fn text(&self, row: usize, bits: u64) -> &[u8] {
        text_at(self.row_text(row), bits)
    }

    /// Returns the bytes of all texts and arrays of a row.
    pub(crate) fn row_text(&self, row: usize) -> &[u8] {
        self.texts.get(row).and_then(|t| t.get()).map_or(&[][..], |t| t)
    }

    /// Marks the channels that have a value, or are explicitly unknown, in any row.
    pub(crate) fn mark_valued(&self, valued: &mut [bool]) {
        let words = self.shape.words();
        let known = self.shape.fields.len().min(valued.len());
        for (n, lane) in valued[..known].chunks_mut(32).enumerate() {
            // Two bits a channel; value (00) and unknown (11) count.
            let mut any = 0;
            for row in 0..self.len() {
                let word = self.words[row * words + self.shape.states + n].load(Ordering::Relaxed);
                any |= !(word ^ word >> 1) & 0x5555_5555_5555_5555;
            }
            for (i, valued) in lane.iter_mut().enumerate() {
                *valued |= any >> (i * 2) & 1 != 0;
            }
        }
    }

    /// Returns, for each 32 channels, the bits that are set in any row's state word. If both bits of a channel are 0,
    /// all its cells are values.
    pub(crate) fn states_union(&self) -> Vec<u64> {
        let mut union = vec![0; self.shape.fields.len().div_ceil(32)];
        for row in self.words.chunks_exact(self.shape.words().max(1)).take(self.len()) {
            for (all, word) in union.iter_mut().zip(&row[self.shape.states..]) {
                *all |= word.load(Ordering::Relaxed);
            }
        }
        union
    }

    /// Adds the cells of some rows to a column whose type is the channel's or a wider one.
    pub(crate) fn append_column(&self, channel: usize, rows: &[u32], out: &mut Column) {
        let rows = rows.iter().map(|&r| r as usize);
        // Usually every cell is a value: one pass over the state words decides.
        let is_value = |row| channel < self.shape.fields.len() && self.state(row, channel) == CellState::Value;
        let all_values = rows.clone().all(is_value);
        self.append_cells(channel, rows, all_values, out);
    }

    /// Adds cells like [`Chunk::append_column`], for a caller that knows whether every cell of the rows is a value.
    pub(crate) fn append_cells(
        &self,
        channel: usize,
        rows: impl ExactSizeIterator<Item = usize> + Clone,
        all_values: bool,
        out: &mut Column,
    ) {
        let before = out.values.len();
        if channel >= self.shape.fields.len() {
            out.values.push_filler(rows.len());
            add_states(out, before, rows.map(|_| CellState::Absent));
            return;
        }
        let field = self.shape.fields[channel];
        let words = self.shape.words();
        let base = field.word as usize;
        let bits = rows.clone().map(|r| self.words[r * words + base].load(Ordering::Relaxed) >> field.shift);
        macro_rules! same {
            ($v:expr, $t:ty) => {
                $v.extend(bits.map(|b| b as $t))
            };
        }
        match (&mut out.values, field.kind) {
            (ColumnValues::Bool(v), ChannelType::Bool) => v.extend(bits.map(|b| b & 1 != 0)),
            (ColumnValues::I8(v), ChannelType::I8) => same!(v, i8),
            (ColumnValues::I16(v), ChannelType::I16) => same!(v, i16),
            (ColumnValues::I32(v), ChannelType::I32) => same!(v, i32),
            (ColumnValues::I64(v), ChannelType::I64) => same!(v, i64),
            (ColumnValues::U8(v), ChannelType::U8) => same!(v, u8),
            (ColumnValues::U16(v), ChannelType::U16) => same!(v, u16),
            (ColumnValues::U32(v), ChannelType::U32) => same!(v, u32),
            (ColumnValues::U64(v), ChannelType::U64) => same!(v, u64),
            (ColumnValues::F32(v), ChannelType::F32) => v.extend(bits.map(|b| f32::from_bits(b as u32))),
            (ColumnValues::F64(v), ChannelType::F64) => v.extend(bits.map(f64::from_bits)),
            (ColumnValues::String { offsets, bytes }, ChannelType::String)
            | (ColumnValues::Array { offsets, bytes, .. }, ChannelType::Blob | ChannelType::Array(_)) => {
                for (row, bits) in rows.clone().zip(bits) {
                    if self.state(row, channel) == CellState::Value {
                        bytes.extend_from_slice(self.text(row, bits));
                    }
                    offsets.push(bytes.len() as u32);
                }
            }
            (values, kind) if kind.is_scalar() => {
                for b in bits {
                    values.push(Value::from_bits(kind, b & mask(kind)));
                }
            }
            (values, _) => values.push_filler(rows.len()),
        }
        if out.states.is_some() || !all_values {
            add_states(out, before, rows.map(|r| self.state(r, channel)));
        }
    }
}

/// Adds states to a column. If it has none yet, its first `before` rows become values.
pub(crate) fn add_states(out: &mut Column, before: usize, states: impl Iterator<Item = CellState>) {
    out.states.get_or_insert_with(|| vec![CellState::Value; before]).extend(states);
}

/// Returns the first index of `0..len` that is not `before`. All that are must precede all that are not.
pub(crate) fn lower_bound(len: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}
