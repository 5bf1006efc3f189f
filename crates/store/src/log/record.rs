//! Records of the commit log: the content of a unit, in words of 8 bytes.
//!
//! ```text
//! word 0: bits 0–31 stream, 32–47 number of its shape, 48–63 units of 16 bytes of text
//! frame:   word 1 bits 0–61 row, 62–63 its clock; then the row's words (crate::model::row); then its text, padded with
//!          zeros to 16 bytes
//! control: stream = 2³² − 1, bits 32–47 kind; word 1 bytes that follow, padded with zeros to 8
//! ```
//! The clock says which of its times is the `time` of the row: 1 receive_time, 2 source_time if it has one; only if the
//! superblock has the incompatible feature 4. 0, in rows of versions before this feature: as the stream's definition
//! says when they are read.

use crate::bytes::{Cursor, FormatError, RecordError, contradiction};
use crate::log::UNIT_HEADER_BYTES;
use crate::model::limits::ROWS_MAX;

/// Stream number of a control record.
pub(crate) const CONTROL: u32 = u32::MAX;

/// Kinds of control records. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Control {
    /// Stream with all its channels.
    Stream = 1,
    /// New or changed channels of a stream.
    Channels = 2,
    /// Retention group: a run that is protected or released, or a configured group.
    Group = 3,
    /// Newest frame of a stream with reductions that has no row (crate::append::held).
    Held = 4,
}

/// Bit of a frame's second word from which on it states the clock.
const CLOCK_AT: u32 = ROWS_MAX.trailing_zeros();

/// Returns the number of a stated clock.
#[inline(always)]
pub(crate) fn clock_code(source_clock: bool) -> u64 {
    1 + u64::from(source_clock)
}

/// Returns whether a stated clock is that of the source; `None` if it is not stated.
///
/// # Errors
/// If the number is unknown.
pub(crate) fn is_source_clock(code: u64) -> Result<Option<bool>, RecordError> {
    match code {
        0 => Ok(None),
        1 | 2 => Ok(Some(code == 2)),
        _ => Err(contradiction(format!("a row has the clock {code}, which is not known"))),
    }
}

/// Appends a frame: header, row and text padded to 16 bytes. `source_clock`: the `time` of the row is its source_time.
#[inline(always)]
pub(crate) fn put_frame(
    out: &mut Vec<u64>,
    (stream, shape): (u32, u16),
    (row, source_clock): (u64, bool),
    words: &[u64],
    text: &[u8],
) {
    let units = text.len().div_ceil(16) as u64;
    out.push(stream as u64 | (shape as u64) << 32 | units << 48);
    out.push(row | clock_code(source_clock) << CLOCK_AT);
    out.extend_from_slice(words);
    if units > 0 {
        let end = out.len() + units as usize * 2;
        put_bytes(out, text);
        out.resize(end, 0);
    }
}

/// Returns the number of bytes that [`put_frame`] adds.
pub(crate) fn frame_bytes(words: usize, text: usize) -> usize {
    16 + words * 8 + text.div_ceil(16) * 16
}

/// Appends a control record.
pub(crate) fn put_control(out: &mut Vec<u64>, kind: Control, bytes: &[u8]) {
    out.push(CONTROL as u64 | (kind as u64) << 32);
    out.push(bytes.len() as u64);
    put_bytes(out, bytes);
}

fn put_bytes(out: &mut Vec<u64>, bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<8>();
    out.extend(whole.iter().map(|&w| u64::from_le_bytes(w)));
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        out.push(u64::from_le_bytes(last));
    }
}

/// Decoded record. The words and text of a frame are read separately.
#[derive(Debug)]
pub(crate) enum Record<'a> {
    /// Frame; the remaining bytes begin with the words of its row. `clock`: see [`is_source_clock`].
    Frame { stream: u32, shape: u16, row: u64, clock: u64, text_bytes: usize },
    /// Control record with its content.
    Control { kind: u16, content: Cursor<'a> },
}

/// Reader of the records of a unit. Offsets count from the beginning of the unit.
#[derive(Clone, Copy)]
pub(crate) struct Records<'a>(Cursor<'a>);

impl<'a> Records<'a> {
    /// Returns a reader of the bytes that follow a unit's header.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Records(Cursor::at(UNIT_HEADER_BYTES as u64, bytes))
    }

    /// Returns the offset of the next record.
    pub(crate) fn offset(&self) -> u64 {
        self.0.offset()
    }

    /// Returns the number of bytes not yet read.
    pub(crate) fn remaining(&self) -> usize {
        self.0.remaining()
    }

    /// Reads the head of the next record. Returns `None` at the end or if the bytes are invalid.
    pub(crate) fn next_record(&mut self) -> Option<Record<'a>> {
        let head = self.0.u64("head of a record").ok()?;
        let second = self.0.u64("head of a record").ok()?;
        let (stream, low) = (head as u32, (head >> 32) as u16);
        if stream != CONTROL {
            let (row, clock) = (second & (ROWS_MAX - 1), second >> CLOCK_AT);
            return Some(Record::Frame { stream, shape: low, row, clock, text_bytes: (head >> 48) as usize * 16 });
        }
        let len = usize::try_from(second).ok()?;
        let mut padded = self.0.part(len.checked_next_multiple_of(8)?, "control record").ok()?;
        Some(Record::Control { kind: low, content: padded.part(len, "control record").ok()? })
    }

    /// Reads the words and the text of the frame whose head was read last.
    ///
    /// # Errors
    /// If the bytes are too short.
    pub(crate) fn frame(
        &mut self,
        words: usize,
        text_bytes: usize,
        row: &mut Vec<u64>,
        text: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        let bytes = self.0.take(words * 8, "words of a row")?;
        let tail = self.0.take(text_bytes, "text of a row")?;
        row.clear();
        row.extend(bytes.as_chunks::<8>().0.iter().map(|&w| u64::from_le_bytes(w)));
        text.clear();
        text.extend_from_slice(tail);
        Ok(())
    }
}
