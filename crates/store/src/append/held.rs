//! Held frames: the newest frame of a stream with reductions, if all its values are within their bounds.
//!
//! It has no row. Readers see it as the stream's newest state. The log has it as a control record, which the stream's
//! next one replaces, so that acknowledged values are durable within their bounds. It gets its row when a swinging door
//! closes whose line it ends, when its place in the log is needed, and at a clean end.
//!
//! ```text
//! record held: u32 stream, u16 shape, u16 its clock (crate::log::record), u64 row it would get, the row's words
//!              (crate::model::row), its text
//! ```
//! The record is valid if no frame with that row or a later one follows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bytes::{Cursor, FormatError};
use crate::log::LogPosition;
use crate::log::record::{self, CONTROL, Control};
use crate::model::row::{RowShape, head_of, mask};
use crate::model::value::{CellState, Value};

/// Newest frame of a stream with reductions, without a row.
#[derive(Debug)]
pub(crate) struct Held {
    /// Row that it would get.
    pub(crate) row: u64,
    pub(crate) shape: Arc<RowShape>,
    /// Number of `shape` in its stream.
    pub(crate) shape_number: u16,
    /// Whether `time` is source_time.
    pub(crate) source_clock: bool,
    pub(crate) words: Box<[u64]>,
    pub(crate) text: Box<[u8]>,
}

impl Held {
    /// Reads the words and text that follow a record's head.
    ///
    /// # Errors
    /// If they do not fit the shape.
    pub(crate) fn read(
        head: HeldHead,
        shape: Arc<RowShape>,
        source_clock: bool,
        t: &mut Cursor<'_>,
    ) -> Result<Held, FormatError> {
        let words = t.take(shape.words() * 8, "words of a row")?;
        let words: Box<[u64]> = words.as_chunks::<8>().0.iter().map(|&w| u64::from_le_bytes(w)).collect();
        let begin = *t;
        let text = t.rest();
        let fits = shape.fields.iter().filter(|f| !f.kind.is_scalar()).all(|field| {
            let bits = words[field.word as usize] >> field.shift & mask(field.kind);
            (bits >> 32) + u64::from(bits as u32) <= text.len() as u64
        });
        if !fits {
            return Err(begin.invalid("text of a row", "a value lies beyond its end"));
        }
        Ok(Held { row: head.row, shape, shape_number: head.shape_number, source_clock, words, text: text.into() })
    }

    pub(crate) fn receive_time(&self) -> i64 {
        head_of(&self.words).receive()
    }

    pub(crate) fn source_time(&self) -> Option<i64> {
        head_of(&self.words).source()
    }

    pub(crate) fn time(&self) -> i64 {
        head_of(&self.words).time(self.source_clock)
    }

    /// Returns the state of a cell; absent beyond the shape.
    pub(crate) fn state(&self, channel: usize) -> CellState {
        if channel >= self.shape.fields.len() {
            return CellState::Absent;
        }
        let word = self.words[self.shape.states + channel / 32];
        CellState::from_code((word >> (channel % 32 * 2)) as u8 & 3).unwrap_or(CellState::Absent)
    }

    /// Returns the value of a cell, or `None` if it has none.
    pub(crate) fn value(&self, channel: usize) -> Option<Value<'_>> {
        self.shape.value(&self.words, &self.text, channel)
    }

    /// Counts the cells that are values.
    pub(crate) fn points(&self) -> u32 {
        (0..self.shape.fields.len()).filter(|&c| self.state(c) == CellState::Value).count() as u32
    }

    /// Returns the bytes of its record in the log, at least those of its row's record.
    pub(crate) fn record_bytes(&self) -> usize {
        record_bytes(self.words.len(), self.text.len())
    }

    /// Adds its record to `out`, or overwrites the one at `at` if that has the same length. Returns its place and
    /// length in words.
    pub(crate) fn put(&self, stream: u32, out: &mut Vec<u64>, at: Option<(usize, usize)>) -> (usize, usize) {
        let text = self.text.chunks(8).map(|piece| {
            let mut bytes = [0; 8];
            bytes[..piece.len()].copy_from_slice(piece);
            u64::from_le_bytes(bytes)
        });
        let head = [
            u64::from(CONTROL) | (Control::Held as u64) << 32,
            (16 + self.words.len() * 8 + self.text.len()) as u64,
            u64::from(stream) | u64::from(self.shape_number) << 32 | record::clock_code(self.source_clock) << 48,
            self.row,
        ];
        let words = head.into_iter().chain(self.words.iter().copied()).chain(text);
        let len = head.len() + self.words.len() + self.text.len().div_ceil(8);
        match at.filter(|&(_, had)| had == len) {
            Some((at, _)) => {
                out[at..at + len].iter_mut().zip(words).for_each(|(slot, word)| *slot = word);
                (at, len)
            }
            None => {
                out.extend(words);
                (out.len() - len, len)
            }
        }
    }
}

/// Returns the bytes of a held frame's record.
pub(crate) fn record_bytes(words: usize, text: usize) -> usize {
    32 + words * 8 + text.next_multiple_of(16)
}

/// Head of a held frame's record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldHead {
    pub(crate) stream: u32,
    pub(crate) shape_number: u16,
    /// Number of its clock (see [`record::is_source_clock`]).
    pub(crate) clock: u64,
    pub(crate) row: u64,
}

impl HeldHead {
    /// Reads the head of a record.
    ///
    /// # Errors
    /// If the record is too short.
    pub(crate) fn read(t: &mut Cursor<'_>) -> Result<HeldHead, FormatError> {
        let (stream, shape_number) = (t.u32("stream")?, t.u16("shape")?);
        let clock = t.u16("clock")?.into();
        Ok(HeldHead { stream, shape_number, clock, row: t.u64("row")? })
    }
}

/// Places in the log of the records of held frames that are still needed.
#[derive(Debug, Default)]
pub(crate) struct HeldRecords {
    /// By position of the unit, and stream: the commit after which a replaced record is not needed; `None` for a
    /// current one.
    places: BTreeMap<(LogPosition, u32), Option<u64>>,
    /// Bytes of the log kept free for the rows of all held frames.
    bytes: usize,
}

impl HeldRecords {
    /// Returns the bytes of the log kept free for the rows of all held frames.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves room for the row of a held frame.
    pub(crate) fn keep_room(&mut self, held: &Held) {
        self.bytes += held.record_bytes();
    }

    /// Releases the room for the row of a held frame.
    pub(crate) fn give_up_room(&mut self, held: &Held) {
        self.bytes -= held.record_bytes();
    }

    /// Notes that a stream's record is in the unit at `position`. The one at `before` is needed until `commit` is
    /// durable.
    pub(crate) fn place(&mut self, stream: u32, position: LogPosition, before: Option<LogPosition>, commit: u64) {
        if let Some(before) = before.filter(|&before| before != position) {
            self.replace(stream, before, commit);
        }
        self.places.insert((position, stream), None);
    }

    /// Notes that a stream's record is needed only until `commit` is durable.
    pub(crate) fn replace(&mut self, stream: u32, position: LogPosition, commit: u64) {
        self.places.insert((position, stream), Some(commit));
    }

    /// Forgets records not needed once `committed` is durable. Returns the position of the first unit with one that is.
    pub(crate) fn first(&mut self, committed: u64) -> Option<LogPosition> {
        while let Some(entry) = self.places.first_entry() {
            if entry.get().is_none_or(|until| until > committed) {
                return Some(entry.key().0);
            }
            entry.remove();
        }
        None
    }

    /// Forgets a place that was replaced before the commit preceding the one under way.
    pub(crate) fn forget(&mut self, stream: u32, position: LogPosition) {
        self.places.remove(&(position, stream));
    }

    /// Returns at most `most` streams whose held frame has its only record before a position.
    pub(crate) fn before(&self, position: LogPosition, most: usize) -> Vec<u32> {
        let old = self.places.range(..(position, 0)).filter(|(_, until)| until.is_none());
        old.map(|((_, stream), _)| *stream).take(most).collect()
    }
}
