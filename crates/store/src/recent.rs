//! What a stream received lately: finds frames that a client sent twice, for streams whose `time` is the
//! source's. It costs nothing while `time` ascends; a frame whose `time` is not new is compared by hash and
//! then by values with the rows in memory, and by hash (64 bits) with those sealed since.

use std::collections::VecDeque;

use crate::chunk::Chunk;
use crate::row::{NONE, RowScratch, RowShape, mask};
use crate::stream_slot::OpenRows;
use crate::value::{CellState, ChannelType, Value};

/// Frames looked back over.
const FRAMES_MAX: usize = 65_536;

/// Hashes of sealed rows.
#[derive(Debug)]
struct Sealed {
    time: (i64, i64),
    hashes: Vec<u64>,
}

/// Hashes of rows sealed lately, oldest first.
#[derive(Debug, Default)]
pub(crate) struct RecentRows {
    lists: VecDeque<Sealed>,
    rows: usize,
}

impl RecentRows {
    /// Remembers a chunk that is leaving memory; returns by how many bytes it grew.
    pub(crate) fn keep(&mut self, chunk: &Chunk) -> isize {
        let Some(time) = chunk.time_range() else { return 0 };
        let hashes: Vec<u64> = (0..chunk.len())
            .map(|row| hash_cells(&chunk.shape, chunk.time(row), |w| chunk.row_word(row, w), chunk.row_text(row)))
            .collect();
        let mut grown = hashes.len() as isize * 8;
        self.rows += hashes.len();
        self.lists.push_back(Sealed { time, hashes });
        while self.rows > FRAMES_MAX {
            grown -= self.forget_oldest() as isize;
        }
        grown
    }

    /// Remembers a row of the log that is in a segment already.
    pub(crate) fn keep_row(&mut self, shape: &RowShape, words: &[u64], text: &[u8]) {
        let source = words[1] as i64;
        let time = if source != NONE { source } else { words[0] as i64 };
        let hash = hash_cells(shape, time, |w| words[w], text);
        self.rows += 1;
        match self.lists.back_mut() {
            Some(list) if list.hashes.len() < 1024 => {
                list.time = (list.time.0.min(time), list.time.1.max(time));
                list.hashes.push(hash);
            }
            _ => self.lists.push_back(Sealed { time: (time, time), hashes: vec![hash] }),
        }
        while self.rows > FRAMES_MAX {
            self.forget_oldest();
        }
    }

    /// Gives the oldest list up; returns its bytes.
    pub(crate) fn forget_oldest(&mut self) -> usize {
        self.lists.pop_front().map_or(0, |list| {
            self.rows -= list.hashes.len();
            list.hashes.len() * 8
        })
    }

    fn holds(&self, time: i64, hash: u64) -> bool {
        self.lists.iter().any(|l| (l.time.0..=l.time.1).contains(&time) && l.hashes.contains(&hash))
    }
}

/// Whether a frame is equal in `time` and all values to one in memory or sealed lately.
pub(crate) fn is_duplicate(
    row: &RowScratch,
    shape: &RowShape,
    time: i64,
    open: &OpenRows,
    recent: Option<&RecentRows>,
) -> bool {
    let hash = || hash_cells(shape, time, |w| row.words[w], &row.text);
    let mut left = FRAMES_MAX;
    for chunk in open.chunks.iter().rev() {
        let len = chunk.len();
        if left < len {
            return false;
        }
        left -= len;
        if chunk.time_range().is_none_or(|(min, max)| time < min || time > max) {
            continue;
        }
        let same = |at: usize| {
            hash() == hash_cells(&chunk.shape, time, |w| chunk.row_word(at, w), chunk.row_text(at))
                && values_equal(row, shape, chunk, at)
        };
        if chunk.sorted() {
            let from = chunk.lower_bound(time, len);
            if (from..len).take_while(|&at| chunk.time(at) == time).any(same) {
                return true;
            }
        } else if (0..len).filter(|&at| chunk.time(at) == time).any(same) {
            return true;
        }
    }
    recent.is_some_and(|recent| recent.holds(time, hash()))
}

fn values_equal(row: &RowScratch, shape: &RowShape, chunk: &Chunk, at: usize) -> bool {
    let channels = shape.fields.len().max(chunk.shape.fields.len());
    (0..channels).all(|channel| {
        let state = state_of(shape, &|w| row.words[w], channel);
        if state != chunk.state(at, channel) {
            return false;
        }
        if state != CellState::Value {
            return true;
        }
        let field = shape.fields[channel];
        let bits = row.words[field.word as usize] >> field.shift & mask(field.kind);
        match (field.kind, chunk.value(at, channel)) {
            (ChannelType::String, Value::String(text)) => text_of(bits, &row.text) == text.as_bytes(),
            (ChannelType::String, _) => false,
            (kind, value) => canonical(Value::from_bits(kind, bits)) == canonical(value),
        }
    })
}

fn state_of(shape: &RowShape, word: &impl Fn(usize) -> u64, channel: usize) -> CellState {
    if channel >= shape.fields.len() {
        return CellState::Absent;
    }
    let bits = word(shape.states + channel / 32) >> (channel % 32 * 2);
    CellState::from_code(bits as u8 & 3).unwrap_or(CellState::Absent)
}

fn text_of(bits: u64, text: &[u8]) -> &[u8] {
    let (offset, len) = ((bits >> 32) as usize, bits as u32 as usize);
    text.get(offset..offset + len).unwrap_or_default()
}

/// The same bits for the same number, whatever its channel was widened to since: what can become an f64 as
/// its bits there, the rest as 64-bit integers.
fn canonical(value: Value<'_>) -> u64 {
    match value {
        Value::I8(_) | Value::I16(_) | Value::I32(_) | Value::U8(_) | Value::U16(_) | Value::U32(_) | Value::F32(_) => {
            value.as_f64().map_or(0, f64::to_bits)
        }
        Value::I64(v) if v.unsigned_abs() <= 1 << 32 => (v as f64).to_bits(),
        Value::U64(v) if v <= 1 << 32 => (v as f64).to_bits(),
        other => other.bits(),
    }
}

/// Hash of a frame's time and cells (absent ones apart, so that a layout that grew changes nothing).
fn hash_cells(shape: &RowShape, time: i64, word: impl Fn(usize) -> u64, text: &[u8]) -> u64 {
    let mut hash = mix(0x9e37_79b9_7f4a_7c15, time as u64);
    for channel in 0..shape.fields.len() {
        let state = state_of(shape, &word, channel);
        if state == CellState::Absent {
            continue;
        }
        hash = mix(hash, (channel as u64) << 8 | state as u64);
        if state == CellState::Value {
            let field = shape.fields[channel];
            let bits = word(field.word as usize) >> field.shift & mask(field.kind);
            if field.kind == ChannelType::String {
                for piece in text_of(bits, text).chunks(8) {
                    let mut bytes = [0; 8];
                    bytes[..piece.len()].copy_from_slice(piece);
                    hash = mix(hash, u64::from_le_bytes(bytes) ^ (piece.len() as u64) << 60);
                }
            } else {
                hash = mix(hash, canonical(Value::from_bits(field.kind, bits)));
            }
        }
    }
    hash
}

fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word.wrapping_mul(0xff51_afd7_ed55_8ccd)) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

/// `time` of a scratch row.
pub(crate) fn time_of(row: &RowScratch, source_clock: bool) -> i64 {
    let source = row.words[1] as i64;
    if source_clock && source != NONE { source } else { row.words[0] as i64 }
}
