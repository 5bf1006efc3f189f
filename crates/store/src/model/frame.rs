//! Frames on their way into the store: what every source produces.

use crate::model::array::{ArrayType, Element, put_elements};
use crate::model::stream::{ChannelIndex, StreamId};
use crate::model::value::{CellState, ChannelType, Value, text_at, value_beside};

/// Everything of a frame but its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Stream it belongs to.
    pub stream: StreamId,
    /// When this node received it, nanoseconds since 1970 UTC.
    pub receive_time: i64,
    /// When its source says it was sampled, nanoseconds since 1970 UTC.
    pub source_time: Option<i64>,
    /// Sequence as on the wire, modulo the stream's `sequence_modulus`.
    pub sequence: Option<u64>,
}

/// One cell of a frame under way: 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedCell {
    /// Value's bit pattern; text and arrays: offset << 32 | length of their bytes.
    pub(crate) bits: u64,
    /// Index of the channel.
    pub(crate) channel: u16,
    channel_type: u8,
    /// State where there is no value.
    pub(crate) state: u8,
}

/// Frames of any streams in the order of their reception, cells row by row.
///
/// Reused between receptions: [`FrameBatch::clear`] keeps its memory. A frame is built by `begin`,
/// `push` for each cell it has, `end`; channels not pushed are *absent*.
#[derive(Clone, Debug, Default)]
pub struct FrameBatch {
    heads: Vec<(FrameHead, u32)>,
    cells: Vec<PackedCell>,
    text: Vec<u8>,
    open: Option<(FrameHead, usize, usize)>,
    answered: bool,
}

impl FrameBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says whether whoever sent the frames is told of those that are refused, and may send them again: then
    /// they are not counted as lost.
    pub fn set_answered(&mut self, answered: bool) {
        self.answered = answered;
    }

    /// See [`FrameBatch::set_answered`]; at first not.
    pub fn is_answered(&self) -> bool {
        self.answered
    }

    /// Forgets its frames, keeps its memory.
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

    /// Keeps the bytes of a text, array or reference to a blob; returns where they are.
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

    /// Sets the source time of the open frame, for protocols that say it after the values.
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

    /// Forgets the open frame, if any.
    pub fn abort(&mut self) {
        if let Some((_, cells, text)) = self.open.take() {
            self.cells.truncate(cells);
            self.text.truncate(text);
        }
    }

    /// Adds a frame of another batch.
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

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether it holds no frame.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Number of cells over all its frames.
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    /// Bytes of its cells and text: what callers bound a batch by.
    pub fn size_bytes(&self) -> usize {
        self.heads.len() * size_of::<(FrameHead, u32)>() + self.cells.len() * size_of::<PackedCell>() + self.text.len()
    }

    /// The frame at an index.
    #[inline]
    pub fn frame(&self, index: usize) -> FrameRef<'_> {
        let (head, end) = self.heads[index];
        let start = if index == 0 { 0 } else { self.heads[index - 1].1 };
        FrameRef { head, cells: &self.cells[start as usize..end as usize], text: &self.text }
    }

    /// Its frames in order.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = FrameRef<'_>> {
        (0..self.len()).map(|i| self.frame(i))
    }
}

/// A frame of a [`FrameBatch`].
#[derive(Clone, Copy, Debug)]
pub struct FrameRef<'a> {
    head: FrameHead,
    cells: &'a [PackedCell],
    text: &'a [u8],
}

impl<'a> FrameRef<'a> {
    /// Stream, times and sequence.
    pub fn head(&self) -> FrameHead {
        self.head
    }

    /// Returns the frame with another sequence, for sources that number frames later than they read them.
    pub fn with_sequence(mut self, sequence: Option<u64>) -> FrameRef<'a> {
        self.head.sequence = sequence;
        self
    }

    /// Number of cells the source gave.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether the source gave no cell.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Bytes of its cells and what they have beside them.
    pub fn size_bytes(&self) -> usize {
        let beside = |cell: &PackedCell| match cell.kind() {
            Some(kind) if !kind.is_scalar() => cell.text(self).len(),
            _ => 0,
        };
        size_of_val(self.cells) + self.cells.iter().map(beside).sum::<usize>()
    }

    /// The cells as they are packed.
    pub(crate) fn packed_cells(&self) -> &'a [PackedCell] {
        self.cells
    }

    /// Whether its cells stand where the layout has them: the first is of the first channel, and so on.
    pub fn is_in_place(&self) -> bool {
        self.cells.iter().enumerate().all(|(index, cell)| cell.channel as usize == index)
    }

    /// The cell at a place in the source's order.
    #[inline]
    pub fn cell(&self, at: usize) -> Option<(ChannelIndex, Result<Value<'a>, CellState>)> {
        self.cells.get(at).map(|c| (ChannelIndex(c.channel), c.value(self.text)))
    }

    /// Type and bits, as of [`Value::from_bits`], of the number or truth value at a place in the source's order; none of
    /// what else may be there.
    #[inline]
    pub fn number(&self, at: usize) -> Option<(ChannelType, u64)> {
        let cell = self.cells.get(at)?;
        cell.kind().filter(|kind| kind.is_scalar()).map(|kind| (kind, cell.bits))
    }

    /// The cells the source gave, in its order: the channel, and the value or why there is none.
    pub fn cells(&self) -> impl ExactSizeIterator<Item = (ChannelIndex, Result<Value<'a>, CellState>)> + 'a {
        let text = self.text;
        self.cells.iter().map(move |c| (ChannelIndex(c.channel), c.value(text)))
    }
}

impl PackedCell {
    /// 0 if it is a value of a type, by its [`ChannelType::value_code`], for the channel of this index.
    #[inline(always)]
    pub(crate) fn differs(&self, channel: usize, code: u8) -> u32 {
        (u32::from(self.channel) ^ channel as u32) | u32::from(self.channel_type ^ code)
    }

    /// Type of its value; none if it has only a state.
    #[inline]
    pub(crate) fn kind(&self) -> Option<ChannelType> {
        ChannelType::from_code(self.channel_type)
    }

    /// Its bytes, if its type is text or an array.
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
