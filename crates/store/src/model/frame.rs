//! Frames on their way into the store, as sources produce them.

use crate::model::array::{ArrayType, Element, put_elements};
use crate::model::stream::{ChannelIndex, StreamId};
use crate::model::value::{CellState, ChannelType, Value, text_at, value_beside};

/// Stream, times and sequence of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Stream that the frame belongs to.
    pub stream: StreamId,
    /// Time at which this node received the frame, in nanoseconds since 1970 UTC.
    pub receive_time: i64,
    /// Sampling time according to the source, in nanoseconds since 1970 UTC.
    pub source_time: Option<i64>,
    /// Sequence as on the wire, modulo the stream's `sequence_modulus`.
    pub sequence: Option<u64>,
}

/// Cell of a frame in a batch: 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedCell {
    /// Bit pattern of the value. For texts, blobs and arrays: offset << 32 | length of their bytes.
    pub(crate) bits: u64,
    /// Index of the channel.
    pub(crate) channel: u16,
    channel_type: u8,
    /// Code of the state, if there is no value.
    pub(crate) state: u8,
}

/// Frames of any streams in the order of reception, with their cells row by row.
///
/// A batch can be reused: [`FrameBatch::clear`] keeps its memory. To build a frame, call `begin`, then `push` for each
/// cell, then `end`. Channels that are not pushed are *absent*.
#[derive(Clone, Debug, Default)]
pub struct FrameBatch {
    heads: Vec<(FrameHead, u32)>,
    cells: Vec<PackedCell>,
    text: Vec<u8>,
    open: Option<(FrameHead, usize, usize)>,
    answered: bool,
}

impl FrameBatch {
    /// Returns an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the sender is told which frames are refused and may send them again. Such frames are not counted as
    /// lost.
    pub fn set_answered(&mut self, answered: bool) {
        self.answered = answered;
    }

    /// Returns whether the sender is told of refused frames (see [`FrameBatch::set_answered`]); initially `false`.
    pub fn is_answered(&self) -> bool {
        self.answered
    }

    /// Removes all frames, but keeps the memory.
    pub fn clear(&mut self) {
        self.heads.clear();
        self.cells.clear();
        self.text.clear();
        self.open = None;
    }

    /// Starts a frame.
    #[inline]
    pub fn begin(&mut self, head: FrameHead) {
        debug_assert!(self.open.is_none(), "a frame is already open");
        self.open = Some((head, self.cells.len(), self.text.len()));
    }

    /// Adds a value to the open frame.
    #[inline]
    pub fn push(&mut self, channel: ChannelIndex, value: Value<'_>) {
        let bits = match value {
            Value::String(s) => self.put_beside(s.as_bytes()),
            Value::Array(array) => self.put_beside(array.bytes()),
            Value::Blob(blob) => self.put_beside(&blob.bytes()),
            other => other.bits(),
        };
        self.push_cell(channel, bits, value.channel_type());
    }

    /// Adds an array to the open frame.
    pub fn push_array<T: Element>(&mut self, channel: ChannelIndex, elements: &[T]) {
        let offset = self.text.len();
        put_elements(elements, &mut self.text);
        let bits = (offset as u64) << 32 | (self.text.len() - offset) as u64;
        self.push_cell(channel, bits, ChannelType::Array(ArrayType::variable(T::TYPE)));
    }

    fn push_cell(&mut self, channel: ChannelIndex, bits: u64, kind: ChannelType) {
        let channel_type = kind.code();
        self.cells.push(PackedCell { bits, channel: channel.0, channel_type, state: CellState::Value as u8 });
    }

    /// Stores the bytes of a text, array or blob reference, and returns `offset << 32 | length`.
    fn put_beside(&mut self, bytes: &[u8]) -> u64 {
        let offset = self.text.len() as u64;
        self.text.extend_from_slice(bytes);
        offset << 32 | bytes.len() as u64
    }

    /// Adds a cell without a value to the open frame.
    pub fn push_state(&mut self, channel: ChannelIndex, state: CellState) {
        debug_assert!(state != CellState::Value);
        self.cells.push(PackedCell { bits: 0, channel: channel.0, channel_type: 0, state: state as u8 });
    }

    /// Sets the source time of the open frame, for protocols that transmit it after the values.
    pub fn set_source_time(&mut self, source_time: Option<i64>) {
        if let Some((head, ..)) = &mut self.open {
            head.source_time = source_time;
        }
    }

    /// Ends the open frame.
    #[inline]
    pub fn end(&mut self) {
        if let Some((head, ..)) = self.open.take() {
            self.heads.push((head, self.cells.len() as u32));
        }
    }

    /// Discards the open frame, if any.
    pub fn abort(&mut self) {
        if let Some((_, cells, text)) = self.open.take() {
            self.cells.truncate(cells);
            self.text.truncate(text);
        }
    }

    /// Appends a copy of a frame of another batch.
    pub fn copy(&mut self, frame: &FrameRef<'_>) {
        self.begin(frame.head);
        self.cells.reserve(frame.cells.len());
        for cell in frame.cells {
            let is_beside = cell.kind().is_some_and(|kind| !kind.is_scalar());
            let bits = if is_beside { self.put_beside(cell.text(frame)) } else { cell.bits };
            self.cells.push(PackedCell { bits, ..*cell });
        }
        self.end();
    }

    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Returns whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Returns the number of cells of all frames.
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    /// Returns the size of heads, cells and text in bytes. Callers use it to bound a batch.
    pub fn size_bytes(&self) -> usize {
        self.heads.len() * size_of::<(FrameHead, u32)>() + self.cells.len() * size_of::<PackedCell>() + self.text.len()
    }

    /// Returns the frame at an index.
    #[inline]
    pub fn frame(&self, index: usize) -> FrameRef<'_> {
        let (head, end) = self.heads[index];
        let start = if index == 0 { 0 } else { self.heads[index - 1].1 };
        FrameRef { head, cells: &self.cells[start as usize..end as usize], text: &self.text }
    }

    /// Iterates over the frames in order.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = FrameRef<'_>> {
        (0..self.len()).map(|i| self.frame(i))
    }
}

/// Frame of a [`FrameBatch`].
#[derive(Clone, Copy, Debug)]
pub struct FrameRef<'a> {
    head: FrameHead,
    cells: &'a [PackedCell],
    text: &'a [u8],
}

impl<'a> FrameRef<'a> {
    /// Returns the frame's stream, times and sequence.
    pub fn head(&self) -> FrameHead {
        self.head
    }

    /// Returns the frame with another sequence, for sources that number frames later than they read them.
    pub fn with_sequence(mut self, sequence: Option<u64>) -> FrameRef<'a> {
        self.head.sequence = sequence;
        self
    }

    /// Returns the number of cells that the source provided.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Returns whether the source provided no cells.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Returns the size of the cells in bytes, including texts and arrays.
    pub fn size_bytes(&self) -> usize {
        let beside = |cell: &PackedCell| match cell.kind() {
            Some(kind) if !kind.is_scalar() => cell.text(self).len(),
            _ => 0,
        };
        size_of_val(self.cells) + self.cells.iter().map(beside).sum::<usize>()
    }

    /// Returns the packed cells.
    pub(crate) fn packed_cells(&self) -> &'a [PackedCell] {
        self.cells
    }

    /// Returns whether the cells are in the order of the layout: the first cell belongs to the first channel, and so
    /// on.
    pub fn is_in_place(&self) -> bool {
        self.cells.iter().enumerate().all(|(index, cell)| cell.channel as usize == index)
    }

    /// Returns the cell at an index in the source's order.
    #[inline]
    pub fn cell(&self, at: usize) -> Option<(ChannelIndex, Result<Value<'a>, CellState>)> {
        self.cells.get(at).map(|c| (ChannelIndex(c.channel), c.value(self.text)))
    }

    /// Returns the type and bits (see [`Value::from_bits`]) of the number or truth value at an index in the source's
    /// order. Returns `None` for other cells.
    #[inline]
    pub fn number(&self, at: usize) -> Option<(ChannelType, u64)> {
        let cell = self.cells.get(at)?;
        cell.kind().filter(|kind| kind.is_scalar()).map(|kind| (kind, cell.bits))
    }

    /// Iterates over the cells in the source's order: the channel, and the value or the state of the cell.
    pub fn cells(&self) -> impl ExactSizeIterator<Item = (ChannelIndex, Result<Value<'a>, CellState>)> + 'a {
        let text = self.text;
        self.cells.iter().map(move |c| (ChannelIndex(c.channel), c.value(text)))
    }
}

impl PackedCell {
    /// Returns 0 if the cell is a value for the channel with this index and of the type with this
    /// [`ChannelType::value_code`].
    #[inline(always)]
    pub(crate) fn differs(&self, channel: usize, code: u8) -> u32 {
        (u32::from(self.channel) ^ channel as u32) | u32::from(self.channel_type ^ code)
    }

    /// Returns the type of the value, or `None` if the cell has only a state.
    #[inline]
    pub(crate) fn kind(&self) -> Option<ChannelType> {
        ChannelType::from_code(self.channel_type)
    }

    /// Returns the bytes of the value, if it is a text, blob or array.
    pub(crate) fn text<'a>(&self, frame: &FrameRef<'a>) -> &'a [u8] {
        text_at(frame.text, self.bits)
    }

    #[inline]
    fn value<'a>(&self, text: &'a [u8]) -> Result<Value<'a>, CellState> {
        match ChannelType::from_code(self.channel_type) {
            Some(kind) if !kind.is_scalar() => {
                Ok(value_beside(kind, text_at(text, self.bits)).unwrap_or(Value::String("")))
            }
            Some(kind) => Ok(Value::from_bits(kind, self.bits)),
            None => Err(CellState::from_code(self.state).unwrap_or(CellState::Absent)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(stream: u32) -> FrameHead {
        FrameHead { stream: StreamId(stream), receive_time: 1, source_time: None, sequence: None }
    }

    #[test]
    fn a_copied_frame_is_the_same_whatever_stands_before_it() {
        let mut batch = FrameBatch::new();
        for stream in 0..2 {
            batch.begin(head(stream));
            batch.push(ChannelIndex(0), Value::String(if stream == 0 { "before" } else { "größe" }));
            batch.push_array(ChannelIndex(4), &[1.5f32, -2.0, 0.25]);
            batch.push_state(ChannelIndex(2), CellState::Absent);
            batch.push(ChannelIndex(1), Value::I8(-7));
            batch.end();
        }
        let mut other = FrameBatch::new();
        other.begin(head(9));
        other.push(ChannelIndex(0), Value::String("something else"));
        other.end();
        other.copy(&batch.frame(1));
        let [from, to] = [batch.frame(1), other.frame(1)];
        assert_eq!(to.head(), from.head());
        assert!(to.cells().eq(from.cells()), "{:?}", to.cells().collect::<Vec<_>>());
        assert_eq!((to.len(), to.size_bytes()), (4, 4 * 16 + "größe".len() + 12));
    }

    #[test]
    fn frames_come_out_as_they_went_in() {
        let mut batch = FrameBatch::new();
        batch.begin(head(0));
        batch.push(ChannelIndex(0), Value::F32(1.5));
        batch.push(ChannelIndex(3), Value::String("größe"));
        batch.end();
        batch.begin(head(1));
        batch.push(ChannelIndex(0), Value::String("dropped"));
        batch.abort();
        batch.begin(head(2));
        batch.push_state(ChannelIndex(1), CellState::Unknown);
        batch.push(ChannelIndex(2), Value::String(""));
        batch.end();
        let got: Vec<_> = batch.frames().map(|f| (f.head().stream.0, f.cells().collect::<Vec<_>>())).collect();
        assert_eq!(
            got,
            vec![
                (0, vec![(ChannelIndex(0), Ok(Value::F32(1.5))), (ChannelIndex(3), Ok(Value::String("größe")))]),
                (2, vec![(ChannelIndex(1), Err(CellState::Unknown)), (ChannelIndex(2), Ok(Value::String("")))]),
            ]
        );
    }
}
