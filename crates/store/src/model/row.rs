//! Rows: a frame as words, the same in the commit log and in an open block.
//!
//! ```text
//! word  meaning
//! 0     receive_time, i64
//! 1     source_time, i64; i64::MIN: none
//! 2     sequence, i64, unwrapped; i64::MIN: none      only in layouts with a sequence
//! 3     session, u32                                  only in layouts with a sequence
//! …     cell states, 2 bits a channel, 32 channels a word, the first lowest
//! …     values: 8-byte channels a word each, then 4-byte, 2-byte and 1-byte ones, each group
//!       starting on a word and packed from the low end
//! ```
//! The value of a text, array or blob is `offset << 32 | length` into the bytes beside the row, which follow it in the
//! log and are kept beside it in an open block. The bytes of an array are its elements, little-endian; those of a blob
//! its reference. Words are little-endian on disk.

use std::sync::Arc;

use crate::model::frame::{FrameRef, PackedCell};
use crate::model::mutant::{self, Mutant};
use crate::model::refusal::Misfit;
use crate::model::value::{CellState, ChannelType, Value, text_at, value_beside};

/// Value of an absent source_time or sequence: the one instant that no frame can have.
pub(crate) const NONE: i64 = i64::MIN;

/// Indices of the words in a row's head, as in the module's table.
const RECEIVE: usize = 0;
const SOURCE: usize = 1;
const SEQUENCE: usize = 2;
const SESSION: usize = 3;
/// Number of words in the head of a row without a sequence, and of one with it.
const HEAD_WORDS: usize = 2;
const SEQUENCED_HEAD_WORDS: usize = 4;

/// Stamps of a frame: receive_time and source_time.
pub(crate) type Stamps = (i64, Option<i64>);

/// The head of a row, whose words a function reads: of a slice, or of the atomics of an open block.
#[derive(Clone, Copy)]
pub(crate) struct RowHead<W>(pub(crate) W);

/// Returns the head of a row's words.
#[inline(always)]
pub(crate) fn head_of(words: &[u64]) -> RowHead<impl Fn(usize) -> u64> {
    RowHead(|word| words[word])
}

impl<W: Fn(usize) -> u64> RowHead<W> {
    /// Returns receive_time.
    #[inline(always)]
    pub(crate) fn receive(&self) -> i64 {
        (self.0)(RECEIVE) as i64
    }

    /// Returns source_time.
    #[inline(always)]
    pub(crate) fn source(&self) -> Option<i64> {
        Some((self.0)(SOURCE) as i64).filter(|&time| time != NONE)
    }

    /// Returns receive_time and source_time.
    #[inline(always)]
    pub(crate) fn stamps(&self) -> Stamps {
        (self.receive(), self.source())
    }

    /// Returns the `time` of the row: source_time if the source's clock counts and it has one, else receive_time.
    #[inline(always)]
    pub(crate) fn time(&self, source_clock: bool) -> i64 {
        match self.source() {
            Some(time) if source_clock => time,
            _ => self.receive(),
        }
    }

    /// Returns the sequence and its session, if the row has one. Its layout must have room for them.
    #[inline(always)]
    pub(crate) fn sequence(&self) -> Option<(i64, u32)> {
        let sequence = (self.0)(SEQUENCE) as i64;
        (sequence != NONE).then(|| (sequence, (self.0)(SESSION) as u32))
    }
}

/// Returns whether an instant can be stored. All can but `i64::MIN`, which means none, and `i64::MAX`: a span excludes
/// its end, so that none could hold it.
#[inline(always)]
pub(crate) fn is_time(instant: i64) -> bool {
    instant != NONE && (instant != i64::MAX || mutant::is_active(Mutant::LastInstant))
}

/// States of 32 channels that are all absent.
const ABSENT_WORD: u64 = 0x5555_5555_5555_5555;

/// Place of a channel's value in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Field {
    /// Index of the word in the row.
    pub(crate) word: u32,
    /// Lowest bit of the value in that word.
    pub(crate) shift: u8,
    /// [`ChannelType::value_code`] of the type.
    code: u8,
    /// Type of the value.
    pub(crate) kind: ChannelType,
}

impl Field {
    pub(crate) fn new(word: u32, shift: u8, kind: ChannelType) -> Field {
        Field { word, shift, code: kind.value_code(), kind }
    }

    /// Returns 0 if the length that `bits` states is one that a value of the field can have, otherwise 1.
    fn misses(&self, bits: u64) -> u32 {
        match self.kind {
            ChannelType::Array(array) => u32::from(!array.takes(bits as u32 as usize / array.element().size_bytes())),
            ChannelType::Blob => u32::from(bits as u32 as usize != crate::model::blob_ref::REFERENCE_BYTES),
            _ => 0,
        }
    }
}

/// Shape of rows, shared by all streams with the same types in the same order.
#[derive(Debug)]
pub(crate) struct RowShape {
    /// Whether rows have a sequence and a session.
    pub(crate) has_sequence: bool,
    /// Whether any channel is text or an array.
    pub(crate) has_text: bool,
    /// First word of the cell states.
    pub(crate) states: usize,
    /// Fields by channel index.
    pub(crate) fields: Vec<Field>,
    /// Row with no cell.
    template: Vec<u64>,
    /// State words of a row in which every cell is a value.
    whole_states: Vec<u64>,
    /// Whether every channel is a number with a word of its own, so that they stand in order at the row's end.
    words_each: bool,
    /// Initial value for hashes of its rows.
    pub(crate) hash_key: u64,
}

impl RowShape {
    /// Makes the shape for channels of these types.
    pub(crate) fn new(has_sequence: bool, kinds: &[ChannelType], hash_key: u64) -> RowShape {
        let states = if has_sequence { SEQUENCED_HEAD_WORDS } else { HEAD_WORDS };
        let state_words = kinds.len().div_ceil(32);
        let mut fields = vec![Field::new(0, 0, ChannelType::Bool); kinds.len()];
        let mut word = states + state_words;
        for size in [8, 4, 2, 1] {
            let mut shift = 0;
            for (field, &kind) in fields.iter_mut().zip(kinds).filter(|(_, k)| k.size_bytes() == size) {
                if shift == 64 {
                    (word, shift) = (word + 1, 0);
                }
                *field = Field::new(word as u32, shift as u8, kind);
                shift += size * 8;
            }
            if shift > 0 {
                word += 1;
            }
        }
        let mut template = vec![0; word];
        template[SOURCE] = NONE as u64;
        if has_sequence {
            template[SEQUENCE] = NONE as u64;
        }
        template[states..states + state_words].fill(ABSENT_WORD);
        let whole_states =
            (0..state_words).map(|n| ABSENT_WORD.checked_shl((kinds.len() - n * 32) as u32 * 2).unwrap_or(0)).collect();
        let has_text = kinds.iter().any(|kind| !kind.is_scalar());
        let words_each = !has_text && kinds.iter().all(|k| k.size_bytes() == 8);
        RowShape { has_sequence, has_text, states, fields, template, whole_states, words_each, hash_key }
    }

    /// Returns a row with no cell.
    pub(crate) fn template(&self) -> &[u64] {
        &self.template
    }

    /// Returns the number of words in a row.
    pub(crate) fn words(&self) -> usize {
        self.template.len()
    }

    /// Returns the value of a channel of a row, if it has one.
    pub(crate) fn value<'a>(&self, words: &[u64], text: &'a [u8], channel: usize) -> Option<Value<'a>> {
        let field = self.fields.get(channel)?;
        if words.get(self.states + channel / 32)? >> (channel % 32 * 2) & 3 != CellState::Value as u64 {
            return None;
        }
        let bits = words.get(field.word as usize)? >> field.shift & mask(field.kind);
        if field.kind.is_scalar() {
            return Some(Value::from_bits(field.kind, bits));
        }
        value_beside(field.kind, text_at(text, bits))
    }
}

/// Row being encoded: the words and text of one frame. It is reused from frame to frame.
#[derive(Debug, Default)]
pub(crate) struct RowScratch {
    /// Words, as in the module's table.
    pub(crate) words: Vec<u64>,
    /// Bytes of its texts and arrays, one after the other.
    pub(crate) text: Vec<u8>,
    /// Number of cells with a value.
    pub(crate) points: u32,
}

impl RowScratch {
    /// Returns the head of the row.
    #[inline(always)]
    pub(crate) fn head(&self) -> RowHead<impl Fn(usize) -> u64> {
        head_of(&self.words)
    }

    /// Sets the sequence of a row whose layout has one.
    #[inline(always)]
    pub(crate) fn set_sequence(&mut self, sequence: i64, session: u32) {
        self.words[SEQUENCE] = sequence as u64;
        self.words[SESSION] = u64::from(session);
    }

    /// Encodes a frame. The caller sets sequence and session.
    pub(crate) fn encode(&mut self, shape: &RowShape, frame: &FrameRef<'_>) -> Result<(), Misfit> {
        self.words.clear();
        self.words.extend_from_slice(&shape.template);
        self.text.clear();
        self.points = 0;
        let head = frame.head();
        self.words[RECEIVE] = head.receive_time as u64;
        self.words[SOURCE] = head.source_time.unwrap_or(NONE) as u64;
        if self.put_whole(shape, frame) {
            return Ok(());
        }
        for cell in frame.packed_cells() {
            let channel = cell.channel as usize;
            let Some(&field) = shape.fields.get(channel) else {
                return Err(Misfit { channel, found: cell.kind().unwrap_or(ChannelType::Bool), elements: None });
            };
            let Some(kind) = cell.kind() else {
                self.set_state(shape, channel, cell.state);
                continue;
            };
            let bits = if kind.code() == field.code {
                if let ChannelType::Array(array) = kind
                    && field.misses(cell.bits) != 0
                {
                    let elements = Some(cell.text(frame).len() / array.element().size_bytes());
                    return Err(Misfit { channel, found: kind, elements });
                }
                if kind.is_scalar() { cell.bits } else { self.put_text(cell, frame) }
            } else {
                let value = (kind.is_scalar() && field.kind.is_scalar())
                    .then(|| Value::from_bits(kind, cell.bits).convert(field.kind))
                    .flatten();
                value.ok_or(Misfit { channel, found: kind, elements: None })?.bits()
            };
            let word = &mut self.words[field.word as usize];
            let states = shape.states + channel / 32;
            let shift = channel % 32 * 2;
            // A channel given twice: the later value stands.
            if !field.kind.is_scalar() {
                *word = 0;
            } else if *word >> field.shift != 0 {
                *word &= !(mask(field.kind) << field.shift);
            }
            self.words[field.word as usize] |= bits << field.shift;
            if self.words[states] >> shift & 3 != CellState::Value as u64 {
                self.words[states] &= !(3 << shift);
                self.points += 1;
            }
        }
        Ok(())
    }

    /// Puts the cells of a frame that has a value for every channel, in order and of its type, as nearly all frames do.
    /// Returns false if this one has not; the row then still has no cell.
    fn put_whole(&mut self, shape: &RowShape, frame: &FrameRef<'_>) -> bool {
        let cells = frame.packed_cells();
        if cells.len() != shape.fields.len() {
            return false;
        }
        let begin = shape.states + shape.whole_states.len();
        // Decided once at the end: a branch for each cell would cost more than the copying.
        let mut differing = 0;
        let checked = cells.iter().zip(&shape.fields).enumerate();
        if shape.words_each {
            for (slot, (index, (cell, field))) in self.words[begin..].iter_mut().zip(checked) {
                differing |= cell.differs(index, field.code);
                *slot = cell.bits;
            }
        } else {
            for (index, (cell, field)) in checked {
                differing |= cell.differs(index, field.code);
                let bits = if field.kind.is_scalar() {
                    cell.bits
                } else {
                    differing |= field.misses(cell.bits);
                    self.put_text(cell, frame)
                };
                self.words[field.word as usize] |= bits << field.shift;
            }
        }
        if differing != 0 {
            self.words[begin..].copy_from_slice(&shape.template[begin..]);
            self.text.clear();
            return false;
        }
        self.words[shape.states..begin].copy_from_slice(&shape.whole_states);
        self.points = cells.len() as u32;
        true
    }

    /// Adds the bytes of a cell's text or array. Returns their offset and length.
    fn put_text(&mut self, cell: &PackedCell, frame: &FrameRef<'_>) -> u64 {
        let bytes = cell.text(frame);
        let at = self.text.len() as u64;
        self.text.extend_from_slice(bytes);
        at << 32 | bytes.len() as u64
    }

    /// Removes a cell's value, if it has one, and sets its state.
    pub(crate) fn set_state(&mut self, shape: &RowShape, channel: usize, state: u8) {
        let (states, shift) = (shape.states + channel / 32, channel % 32 * 2);
        if self.words[states] >> shift & 3 == CellState::Value as u64 {
            self.points -= 1;
        }
        self.words[states] = self.words[states] & !(3 << shift) | (state as u64 & 3) << shift;
        let field = shape.fields[channel];
        self.words[field.word as usize] &= !(mask(field.kind) << field.shift);
    }
}

impl RowScratch {
    /// Keeps only the bytes of cells that are values.
    pub(crate) fn compact_text(&mut self, shape: &RowShape) {
        if !shape.has_text {
            return;
        }
        let before = std::mem::take(&mut self.text);
        let texts = shape.fields.iter().enumerate().filter(|(_, f)| !f.kind.is_scalar());
        for (channel, field) in texts {
            let state = self.words[shape.states + channel / 32] >> (channel % 32 * 2) & 3;
            if state != CellState::Value as u64 {
                continue;
            }
            let word = &mut self.words[field.word as usize];
            let (offset, len) = ((*word >> 32) as usize, *word as u32 as usize);
            *word = (self.text.len() as u64) << 32 | len as u64;
            self.text.extend_from_slice(before.get(offset..offset + len).unwrap_or_default());
        }
    }
}

/// Returns a mask of all bits of a value of a type.
pub(crate) fn mask(kind: ChannelType) -> u64 {
    match kind.size_bytes() {
        8 => u64::MAX,
        n => (1 << (n * 8)) - 1,
    }
}

/// Shapes in use, so that 100,000 streams of one float share one.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    known: hashbrown::HashMap<(bool, Vec<ChannelType>), Arc<RowShape>, foldhash::fast::RandomState>,
    /// Hash key of the store, which keeps senders from making up frames with equal hashes.
    pub(crate) hash_key: u64,
}

impl Shapes {
    /// Returns the shape of these types.
    pub(crate) fn get(&mut self, has_sequence: bool, kinds: Vec<ChannelType>) -> Arc<RowShape> {
        // Long shapes are rarely shared, and a stream that grows channel by channel would leave each behind.
        if kinds.len() > 64 {
            return Arc::new(RowShape::new(has_sequence, &kinds, self.hash_key));
        }
        if self.known.len() > 4096 {
            self.known.retain(|_, shape| Arc::strong_count(shape) > 1);
        }
        let key = (has_sequence, kinds);
        if let Some(shape) = self.known.get(&key) {
            return shape.clone();
        }
        let shape = Arc::new(RowShape::new(has_sequence, &key.1, self.hash_key));
        self.known.insert(key, shape.clone());
        shape
    }
}
