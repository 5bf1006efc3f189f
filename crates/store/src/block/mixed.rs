//! Mixed blocks: frames of many quiet streams, row-major, under one checksum.
//!
//! Streams with too few rows for a block each are stored together, so that the log's tail can advance; compaction
//! turns them into ordinary blocks later. The header is a block's with the flag `mixed`; `rows` counts the frames of
//! all streams and `first_row` is 0. Sections, varints unless noted:
//!
//! ```text
//! 3 parts: count, then for each stream
//!          stream, layout_version, channels, type u8 of each [length − 1 u16 if an array of fixed length],
//!          first_row, rows,
//!          flags u8: 1 time_sorted, 2 overlaps_previous, 4 source_clock, 8 gap_before,
//!                    16 source_time, 32 sequence, 64 session, 128 gap_before is known; if not set, as in older
//!                    parts, only the sequences of the rows before tell
//!          time_min − the block's, time_max − time_min, bytes of its rows
//! 4 rows:  the rows of each part in turn:
//!          flags u8: 1 source_time, 2 equal to receive_time, 4 sequence, 8 one more than the last,
//!                    16 cell states, 32 another session
//!          receive_time zigzag, less the last row's (the first: less the block's time_min)
//!          [source_time zigzag, less receive_time] [sequence zigzag, less the last] [session]
//!          [cell states, two bits each, lowest first]
//!          values: little-endian in their type's size; text and arrays: number of bytes, then the bytes
//! ```

use std::ops::Range;

use crate::block::{
    self, BlockHeader, BlockMeta, HEADER_BYTES, SECTION_PARTS, SECTION_ROWS, SKIPPABLE, checked_body, put_section,
};
use crate::bytes::{Cursor, FormatError, check_limit, malformed, put_signed, put_varint};
use crate::codec;
use crate::model::array::ArrayRef;
use crate::model::batch::{Batch, Column, ColumnValues, OptionalTimes};
use crate::model::limits::{
    BLOCK_ALIGN_BYTES, BLOCK_BYTES_MAX, BLOCK_CELLS_MAX, BLOCK_ROWS_MAX, CHANNELS_MAX, COLUMN_TEXT_BYTES_MAX,
    MIXED_PARTS_MAX, SECTIONS_MAX,
};
use crate::model::stream::{ChannelIndex, Layout, StreamId};
use crate::model::value::{CellState, ChannelType, Value};

/// The `stream` of a mixed block's header.
pub const NO_STREAM: StreamId = StreamId(u32::MAX);

const PART_TIME_SORTED: u8 = 1;
const PART_OVERLAPS: u8 = 2;
const PART_SOURCE_CLOCK: u8 = 4;
const PART_GAP_BEFORE: u8 = 8;
const PART_SOURCE_TIME: u8 = 16;
const PART_SEQUENCE: u8 = 32;
const PART_SESSION: u8 = 64;
const PART_GAP_KNOWN: u8 = 128;

const ROW_SOURCE_TIME: u8 = 1;
const ROW_SAME_TIME: u8 = 2;
const ROW_SEQUENCE: u8 = 4;
const ROW_NEXT_SEQUENCE: u8 = 8;
const ROW_STATES: u8 = 16;
const ROW_SESSION: u8 = 32;

/// Rows of one stream for a mixed block.
#[derive(Clone, Copy, Debug)]
pub struct MixedPart<'a> {
    /// Frames of the stream; columns are the layout's channels in order, rows are consecutive.
    pub batch: &'a Batch,
    /// Version of the stream's layout.
    pub layout_version: u32,
    /// Whether some `time` is not after every `time` of the stream's earlier blocks.
    pub overlaps_previous: bool,
    /// Whether frames are known missing before the first one.
    pub gap_before: bool,
}

/// Appends a mixed block to `out` and returns its header. `meta.overlaps_previous` and `meta.gaps` are ignored: each
/// part has its own.
///
/// # Errors
/// When a part is empty or contradicts itself, or a limit is exceeded; `out` is then unchanged.
pub fn encode(meta: &BlockMeta<'_>, parts: &[MixedPart<'_>], out: &mut Vec<u8>) -> Result<BlockHeader, FormatError> {
    check_limit("streams of a mixed block", parts.len() as u64, MIXED_PARTS_MAX)?;
    let mut total = 0usize;
    let mut time = (i64::MAX, i64::MIN);
    for part in parts {
        check_part(part.batch)?;
        total += part.batch.len();
        for t in part.batch.times() {
            time = (time.0.min(t), time.1.max(t));
        }
    }
    check_limit("rows of a block", total as u64, BLOCK_ROWS_MAX)?;
    if total == 0 {
        return Err(malformed("a block of no rows"));
    }
    let (mut directory, mut rows) = (Vec::new(), Vec::new());
    put_varint(&mut directory, parts.len() as u64);
    for part in parts {
        put_part(part, time.0, &mut directory, &mut rows);
    }
    let start = out.len();
    out.resize(start + HEADER_BYTES, 0);
    put_section(SECTION_PARTS, &directory, out);
    put_section(SECTION_ROWS, &rows, out);
    let header = BlockHeader {
        length_bytes: 0,
        origin: meta.origin,
        epoch: meta.epoch,
        stream: NO_STREAM,
        layout_version: 0,
        rows: total,
        first_row: 0,
        time,
        stored: meta.stored,
        time_sorted: false,
        overlaps_previous: false,
        source_clock: false,
        gap_before: false,
        mixed: true,
    };
    block::finish(header, start, out)
}

fn check_part(batch: &Batch) -> Result<(), FormatError> {
    let rows = batch.len();
    let first = *batch.rows.first().ok_or(malformed("a block of no rows"))?;
    check_limit("channels of a block", batch.columns.len() as u64, CHANNELS_MAX)?;
    check_limit("cells of a block", (rows * batch.columns.len().max(1)) as u64, BLOCK_CELLS_MAX)?;
    if first.checked_add(rows as u64).is_none() || batch.rows.iter().zip(first..).any(|(row, want)| *row != want) {
        return Err(malformed("rows are not consecutive"));
    }
    let fits = |times: &OptionalTimes| {
        times.values.len() == rows && times.valid.as_ref().is_none_or(|valid| valid.len() == rows)
    };
    let whole = batch.receive_time.len() == rows
        && batch.source_time.as_ref().is_none_or(fits)
        && batch.sequence.as_ref().is_none_or(fits)
        && batch.session.as_ref().is_none_or(|s| s.len() == rows)
        && batch
            .columns
            .iter()
            .all(|c| c.values.len() == rows && c.states.as_ref().is_none_or(|states| states.len() == rows));
    if whole { Ok(()) } else { Err(malformed("columns of different lengths")) }
}

fn put_part(part: &MixedPart<'_>, time_min: i64, directory: &mut Vec<u8>, rows: &mut Vec<u8>) {
    let batch = part.batch;
    let times = batch.times();
    let (low, high) = times.iter().fold((i64::MAX, i64::MIN), |(lo, hi), t| (lo.min(*t), hi.max(*t)));
    put_varint(directory, batch.stream.0.into());
    put_varint(directory, part.layout_version.into());
    put_varint(directory, batch.columns.len() as u64);
    batch.columns.iter().for_each(|c| c.values.channel_type().put(directory));
    put_varint(directory, batch.rows[0]);
    put_varint(directory, batch.len() as u64);
    let flags = [
        (times.is_sorted(), PART_TIME_SORTED),
        (part.overlaps_previous, PART_OVERLAPS),
        (batch.source_clock, PART_SOURCE_CLOCK),
        (part.gap_before, PART_GAP_BEFORE),
        (batch.source_time.is_some(), PART_SOURCE_TIME),
        (batch.sequence.is_some(), PART_SEQUENCE),
        (batch.session.is_some(), PART_SESSION),
        (true, PART_GAP_KNOWN),
    ];
    directory.push(flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag));
    put_varint(directory, low.abs_diff(time_min));
    put_varint(directory, high.abs_diff(low));
    let start = rows.len();
    let mut last = Last { receive: time_min, sequence: 0, session: 0 };
    for row in 0..batch.len() {
        put_row(batch, row, &mut last, rows);
    }
    put_varint(directory, (rows.len() - start) as u64);
}

/// State of the row before, which the next row is written relative to.
struct Last {
    receive: i64,
    sequence: i64,
    session: u32,
}

fn put_row(batch: &Batch, row: usize, last: &mut Last, out: &mut Vec<u8>) {
    let receive = batch.receive_time[row];
    let source = batch.source_time.as_ref().and_then(|t| t.get(row));
    let sequence = batch.sequence.as_ref().and_then(|t| t.get(row));
    let session = batch.session.as_ref().map(|s| s[row]);
    let states = batch.columns.iter().any(|c| c.states.as_ref().is_some_and(|s| s[row] != CellState::Value));
    let flags = [
        (source.is_some(), ROW_SOURCE_TIME),
        (source == Some(receive), ROW_SAME_TIME),
        (sequence.is_some(), ROW_SEQUENCE),
        (sequence == Some(last.sequence.wrapping_add(1)), ROW_NEXT_SEQUENCE),
        (states, ROW_STATES),
        (session.is_some_and(|s| s != last.session), ROW_SESSION),
    ];
    let flags = flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag);
    out.push(flags);
    put_signed(out, receive.wrapping_sub(last.receive));
    last.receive = receive;
    if let Some(source) = source.filter(|_| flags & ROW_SAME_TIME == 0) {
        put_signed(out, source.wrapping_sub(receive));
    }
    if let Some(sequence) = sequence {
        if flags & ROW_NEXT_SEQUENCE == 0 {
            put_signed(out, sequence.wrapping_sub(last.sequence));
        }
        last.sequence = sequence;
    }
    if let Some(session) = session.filter(|_| flags & ROW_SESSION != 0) {
        put_varint(out, session.into());
        last.session = session;
    }
    if states {
        let of = |c: &Column| c.states.as_ref().map_or(0, |s| s[row] as u8);
        for four in batch.columns.chunks(4) {
            out.push(four.iter().enumerate().fold(0, |byte, (i, c)| byte | of(c) << (2 * i)));
        }
    }
    for column in &batch.columns {
        if column.states.as_ref().is_some_and(|s| s[row] != CellState::Value) {
            continue;
        }
        match &column.values {
            // Bytes are copied directly, not through `Value`, so that the stored data is exactly what was given.
            ColumnValues::String { offsets, bytes } | ColumnValues::Array { offsets, bytes, .. } => {
                let bytes = &bytes[offsets[row] as usize..offsets[row + 1] as usize];
                put_varint(out, bytes.len() as u64);
                out.extend_from_slice(bytes);
            }
            values => {
                let size = values.channel_type().size_bytes();
                out.extend_from_slice(&values.value(row).bits().to_le_bytes()[..size]);
            }
        }
    }
}

/// Entry of one stream's part of a mixed block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartEntry {
    /// Header as if the part were a block; `length_bytes` are those of its rows.
    pub header: BlockHeader,
    types: Vec<ChannelType>,
    flags: u8,
    start: usize,
}

/// Mixed block whose checksums were checked and whose directory was read.
#[derive(Debug)]
pub struct MixedBlock<'a> {
    header: BlockHeader,
    parts: Vec<PartEntry>,
    rows: &'a [u8],
}

/// Consecutive parts of a mixed block, without the bytes of the rest.
pub(crate) struct MixedParts {
    /// Index in the block of the first part.
    first: usize,
    time_min: i64,
    parts: Vec<PartEntry>,
    rows: Vec<u8>,
}

impl<'a> MixedBlock<'a> {
    /// Reads the mixed block at the beginning of `bytes`.
    ///
    /// # Errors
    /// When the bytes are damaged, have an unknown format, or contradict themselves.
    pub fn read(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let (header, body) = checked_body(bytes)?;
        if !header.mixed {
            return Err(malformed("one stream's block where a mixed one is expected"));
        }
        let mut cursor = Cursor::at(HEADER_BYTES as u64, body);
        let (mut directory, mut rows) = (None, None);
        for _ in 0..SECTIONS_MAX {
            let kind = cursor.u8("section")?;
            let length = cursor.count("bytes of a section", body.len())?;
            let section = cursor.part(length, "section")?;
            match kind {
                SECTION_PARTS => directory = Some(section),
                SECTION_ROWS => {
                    rows = Some(section.unread());
                    break;
                }
                skippable if skippable & SKIPPABLE != 0 => {}
                unknown => return Err(FormatError::Unsupported { what: "section", found: unknown.into() }),
            }
        }
        let (Some(directory), Some(rows)) = (directory, rows) else {
            return Err(malformed("a mixed block without parts or rows"));
        };
        if cursor.remaining() >= BLOCK_ALIGN_BYTES {
            return Err(malformed("bytes behind the last section"));
        }
        let parts = read_parts(directory, &header, rows.len())?;
        Ok(MixedBlock { header, parts, rows })
    }

    /// Returns the block's header.
    pub fn header(&self) -> &BlockHeader {
        &self.header
    }

    /// Returns the parts in the order they were given.
    pub fn parts(&self) -> &[PartEntry] {
        &self.parts
    }

    /// Decodes one part: see [`block::Block::decode`].
    ///
    /// # Errors
    /// When the bytes do not match the directory, or a channel is not in `layout`.
    pub fn decode(&self, part: usize, layout: &Layout, channels: &[ChannelIndex]) -> Result<Batch, FormatError> {
        let part = self.parts.get(part).ok_or(malformed(BEYOND))?;
        part.decode(self.rows, self.header.time.0, layout, channels)
    }

    /// Copies some of the parts.
    pub(crate) fn some(&self, parts: Range<usize>) -> MixedParts {
        let first = parts.start.min(self.parts.len());
        let mut parts = self.parts[first..parts.end.clamp(first, self.parts.len())].to_vec();
        let start = parts.first().map_or(0, |part| part.start);
        let end = parts.last().map_or(start, |part| part.start + part.header.length_bytes);
        parts.iter_mut().for_each(|part| part.start -= start);
        // Reading the block checked that the parts lie within the rows.
        let rows = self.rows.get(start..end).unwrap_or_default().to_vec();
        MixedParts { first, time_min: self.header.time.0, parts, rows }
    }
}

impl MixedParts {
    /// Returns the memory taken, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let types: usize = self.parts.iter().map(|part| part.types.capacity()).sum();
        self.rows.len() + self.parts.len() * size_of::<PartEntry>() + types * size_of::<ChannelType>()
    }

    /// Returns a part by its index in the block.
    pub(crate) fn get(&self, part: usize) -> Option<&PartEntry> {
        self.parts.get(part.checked_sub(self.first)?)
    }

    /// Decodes one part, as [`MixedBlock::decode`] does.
    pub(crate) fn decode(&self, part: usize, layout: &Layout, channels: &[ChannelIndex]) -> Result<Batch, FormatError> {
        self.get(part).ok_or(malformed(BEYOND))?.decode(&self.rows, self.time_min, layout, channels)
    }
}

/// Error for a part that does not exist.
const BEYOND: &str = "a part beyond the mixed block";

impl PartEntry {
    fn decode(
        &self,
        rows: &[u8],
        time_min: i64,
        layout: &Layout,
        channels: &[ChannelIndex],
    ) -> Result<Batch, FormatError> {
        let mut bytes = Cursor::new(rows.get(self.start..).unwrap_or_default());
        let mut cursor = Cursor::new(bytes.take(self.header.length_bytes, "rows of a part")?);
        let mut batch = self.decode_rows(time_min, &mut cursor)?;
        if cursor.remaining() > 0 {
            return Err(malformed("bytes left behind the rows of a part"));
        }
        check_limit("cells asked for", (batch.len() * channels.len()) as u64, BLOCK_CELLS_MAX)?;
        let mut stored: Vec<Option<Column>> = batch.columns.drain(..).map(Some).collect();
        for (at, channel) in channels.iter().enumerate() {
            let wanted = layout.channels.get(channel.0 as usize).ok_or(malformed("a channel beyond the layout"))?;
            let again = channels[..at].iter().position(|c| c == channel);
            let column = match stored.get_mut(channel.0 as usize) {
                _ if again.is_some() => batch.columns[again.unwrap_or_default()].clone(),
                Some(column) => {
                    let column = column.take().ok_or(malformed("a channel asked for twice"))?;
                    Column { values: codec::widen(column.values, wanted.channel_type)?, states: column.states }
                }
                None => block::absent(batch.len(), wanted.channel_type),
            };
            batch.columns.push(column);
        }
        Ok(batch)
    }
}

fn read_parts(mut cursor: Cursor<'_>, block: &BlockHeader, rows_len: usize) -> Result<Vec<PartEntry>, FormatError> {
    let bytes = cursor.remaining();
    let count = cursor.count("streams of a mixed block", MIXED_PARTS_MAX)?;
    // A part takes at least eight bytes of the directory, so a hostile count cannot allocate more than that.
    let mut parts = Vec::with_capacity(count.min(bytes / 8 + 1));
    let (mut start, mut rows_left, mut cells_left) = (0, block.rows, BLOCK_CELLS_MAX);
    for _ in 0..count {
        let stream = StreamId(cursor.varint32("stream")?);
        let layout_version = cursor.varint32("layout version")?;
        let channels = cursor.count("channels of a block", CHANNELS_MAX)?;
        let mut types = Vec::new();
        for _ in 0..channels {
            types.push(cursor.channel_type("channel type")?);
        }
        let first_row = cursor.varint("first row")?;
        let rows = cursor.count("rows of a part", rows_left)?;
        let flags = cursor.u8("flags of a part")?;
        let low = block.time.0.checked_add_unsigned(cursor.varint("time of a part")?);
        let span = cursor.varint("time of a part")?;
        let high = low.and_then(|low| low.checked_add_unsigned(span));
        let length_bytes = cursor.count("bytes of a part", rows_len)?;
        let (Some(low), Some(high)) = (low, high) else { return Err(malformed("time range of a part")) };
        if rows == 0 || first_row.checked_add(rows as u64).is_none() || high > block.time.1 {
            return Err(malformed("row or time range of a part"));
        }
        let cells = rows * (channels + 1);
        cells_left = cells_left.checked_sub(cells).ok_or(FormatError::Limit {
            what: "cells of a block",
            offset: None,
            found: cells as u64,
            limit: BLOCK_CELLS_MAX as u64,
        })?;
        rows_left -= rows;
        let header = BlockHeader {
            length_bytes,
            stream,
            layout_version,
            rows,
            first_row,
            time: (low, high),
            time_sorted: flags & PART_TIME_SORTED != 0,
            overlaps_previous: flags & PART_OVERLAPS != 0,
            source_clock: flags & PART_SOURCE_CLOCK != 0,
            gap_before: flags & PART_GAP_BEFORE != 0,
            mixed: true,
            ..block.clone()
        };
        parts.push(PartEntry { header, types, flags, start });
        start += length_bytes;
    }
    if start != rows_len || rows_left != 0 || cursor.remaining() > 0 {
        return Err(malformed("the parts do not add up to the mixed block"));
    }
    Ok(parts)
}

impl PartEntry {
    /// Returns the types of the channels as stored.
    pub fn types(&self) -> &[ChannelType] {
        &self.types
    }

    /// Returns whether `gap_before` of the header is known. It is not in older parts; there only the sequences of the
    /// rows before the part tell whether frames are missing between.
    pub fn knows_gap(&self) -> bool {
        self.has(PART_GAP_KNOWN)
    }

    /// Returns whether the batch had this column.
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn decode_rows(&self, time_min: i64, cursor: &mut Cursor<'_>) -> Result<Batch, FormatError> {
        let rows = self.header.rows;
        let mut receive_time = Vec::with_capacity(rows);
        let (mut source, mut sequence) = (Nullable::default(), Nullable::default());
        let mut session = Vec::new();
        let mut columns: Vec<ColumnValues> = self.types.iter().map(|t| ColumnValues::empty(*t)).collect();
        let mut states: Vec<Vec<CellState>> = vec![Vec::new(); self.types.len()];
        let mut any_states = vec![false; self.types.len()];
        let mut last = Last { receive: time_min, sequence: 0, session: 0 };
        for _ in 0..rows {
            let flags = cursor.u8("flags of a row")?;
            last.receive = last.receive.wrapping_add(cursor.signed("receive_time")?);
            receive_time.push(last.receive);
            source.push(match flags & (ROW_SOURCE_TIME | ROW_SAME_TIME) {
                0 => None,
                ROW_SOURCE_TIME => Some(last.receive.wrapping_add(cursor.signed("source_time")?)),
                _ => Some(last.receive),
            });
            if flags & ROW_SEQUENCE != 0 {
                let step = if flags & ROW_NEXT_SEQUENCE != 0 { 1 } else { cursor.signed("sequence")? };
                last.sequence = last.sequence.wrapping_add(step);
            }
            sequence.push((flags & ROW_SEQUENCE != 0).then_some(last.sequence));
            if flags & ROW_SESSION != 0 {
                last.session = u32::try_from(cursor.varint("session")?).map_err(|_| malformed("session"))?;
            }
            if self.has(PART_SESSION) {
                session.push(last.session);
            }
            let packed = match flags & ROW_STATES {
                0 => &[][..],
                _ => cursor.take(self.types.len().div_ceil(4), "cell states")?,
            };
            for (index, values) in columns.iter_mut().enumerate() {
                let code = packed.get(index / 4).map_or(0, |byte| byte >> (2 * (index % 4)) & 3);
                let state = CellState::from_code(code).ok_or(malformed("cell state"))?;
                any_states[index] |= state != CellState::Value;
                states[index].push(state);
                read_cell(cursor, values, state)?;
            }
        }
        Ok(Batch {
            stream: self.header.stream,
            rows: (self.header.first_row..self.header.next_row()).collect(),
            receive_time,
            source_time: source.finish(self.has(PART_SOURCE_TIME)),
            sequence: sequence.finish(self.has(PART_SEQUENCE)),
            session: self.has(PART_SESSION).then_some(session),
            source_clock: self.header.source_clock,
            columns: columns
                .into_iter()
                .zip(states)
                .zip(any_states)
                .map(|((values, states), any)| Column { values, states: any.then_some(states) })
                .collect(),
        })
    }
}

/// Collector of values that may be null.
#[derive(Default)]
struct Nullable {
    values: Vec<i64>,
    valid: Vec<bool>,
}

impl Nullable {
    fn push(&mut self, value: Option<i64>) {
        self.values.push(value.unwrap_or_default());
        self.valid.push(value.is_some());
    }

    fn finish(self, present: bool) -> Option<OptionalTimes> {
        let all = self.valid.iter().all(|v| *v);
        present.then_some(OptionalTimes { values: self.values, valid: (!all).then_some(self.valid) })
    }
}

fn put_beside(more: &[u8], bytes: &mut Vec<u8>) -> Result<(), FormatError> {
    check_limit("bytes of text in a column", (bytes.len() + more.len()) as u64, COLUMN_TEXT_BYTES_MAX)?;
    bytes.extend_from_slice(more);
    Ok(())
}

/// Reads one value and appends it to those before; a cell without a value becomes zero, false, empty text or an empty
/// array.
fn read_cell(cursor: &mut Cursor<'_>, values: &mut ColumnValues, state: CellState) -> Result<(), FormatError> {
    let is_value = state == CellState::Value;
    match values {
        ColumnValues::String { offsets, bytes } => {
            if is_value {
                let text = cursor.text("text", BLOCK_BYTES_MAX)?;
                put_beside(text.as_bytes(), bytes)?;
            }
            offsets.push(bytes.len() as u32);
            return Ok(());
        }
        ColumnValues::Array { kind, offsets, bytes } => {
            if is_value {
                let len = cursor.count("bytes of an array", BLOCK_BYTES_MAX)?;
                let array = ArrayRef::new(kind.element(), cursor.take(len, "array")?);
                let array = array.filter(|array| kind.takes(array.len())).ok_or(malformed("an array of its type"))?;
                put_beside(array.bytes(), bytes)?;
            }
            offsets.push(bytes.len() as u32);
            return Ok(());
        }
        _ => {}
    }
    let kind = values.channel_type();
    let mut bits = [0; 8];
    if is_value {
        let size = kind.size_bytes();
        bits[..size].copy_from_slice(cursor.take(size, "value")?);
    }
    match (values, Value::from_bits(kind, u64::from_le_bytes(bits))) {
        (ColumnValues::Bool(v), Value::Bool(value)) => v.push(value),
        (ColumnValues::I8(v), Value::I8(value)) => v.push(value),
        (ColumnValues::I16(v), Value::I16(value)) => v.push(value),
        (ColumnValues::I32(v), Value::I32(value)) => v.push(value),
        (ColumnValues::I64(v), Value::I64(value)) => v.push(value),
        (ColumnValues::U8(v), Value::U8(value)) => v.push(value),
        (ColumnValues::U16(v), Value::U16(value)) => v.push(value),
        (ColumnValues::U32(v), Value::U32(value)) => v.push(value),
        (ColumnValues::U64(v), Value::U64(value)) => v.push(value),
        (ColumnValues::F32(v), Value::F32(value)) => v.push(value),
        (ColumnValues::F64(v), Value::F64(value)) => v.push(value),
        _ => return Err(malformed("a value of another type")),
    }
    Ok(())
}
