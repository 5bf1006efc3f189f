//! Decoding of a block's bytes: directory, statistics and columns.

use std::borrow::Cow;
use std::ops::Range;

use super::front::{Front, Places, front_bytes};
use super::{
    BlockHeader, HAS_PARAMETERS, HAS_STATES, HEADER_BYTES, SECTION_DIRECTORY, SECTION_STATISTICS, SECTION_VALUES,
    SKIPPABLE, SYSTEM_COLUMNS, read_header_and_crc,
};
use crate::bytes::{Cursor, FormatError, check_limit, malformed};
use crate::codec::stats::ColumnStatistics;
use crate::codec::tiles::TileTable;
use crate::codec::{self, Codec, integer};
use crate::model::array::ArrayType;
use crate::model::batch::{Batch, Column, ColumnValues, OptionalTimes};
use crate::model::limits::{BLOCK_ALIGN_BYTES, BLOCK_CELLS_MAX, CHANNELS_MAX, CODEC_PARAMETER_BYTES_MAX, SECTIONS_MAX};
use crate::model::mutant::{self, Mutant};
use crate::model::stream::{ChannelIndex, Layout};
use crate::model::value::{CellState, ChannelType};

/// Table of a column's tiles, and its cell states unless every cell is a value.
pub(crate) type TilesOf = (TileTable, Option<Vec<CellState>>);

/// Entry of one column in a block's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnEntry {
    /// Type of the values as stored.
    pub channel_type: ChannelType,
    /// Codec of the values.
    pub codec: Codec,
    /// Bytes of the cell states; 0 if every cell is a value.
    pub states_bytes: usize,
    /// Bytes of the codec's parameters.
    pub parameter_bytes: usize,
    /// Bytes of the values.
    pub values_bytes: usize,
    pub(super) start: usize,
}

impl ColumnEntry {
    /// Returns the bytes of the column, without its directory entry.
    pub fn bytes(&self) -> usize {
        self.states_bytes + self.parameter_bytes + self.values_bytes
    }
}

/// Returns header and body of the block at the beginning of `bytes` after checking both checksums.
pub(crate) fn checked_body(bytes: &[u8]) -> Result<(BlockHeader, &[u8]), FormatError> {
    let (header, expected) = read_header_and_crc(bytes)?;
    let whole = Cursor::new(bytes).take(header.length_bytes, "block")?;
    let body = &whole[HEADER_BYTES..];
    let found = crc32c::crc32c(body);
    if expected != found && !mutant::is_active(Mutant::NoBlockCheck) {
        return Err(FormatError::Checksum { what: "block body", expected, found });
    }
    Ok((header, body))
}

/// States, parameters and values of a column.
type ColumnParts<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// Block whose checksums were checked and whose directory was read; columns are decoded on demand.
#[derive(Debug)]
pub struct Block<'a> {
    header: BlockHeader,
    columns: Cow<'a, [ColumnEntry]>,
    statistics: Option<&'a [u8]>,
    values: &'a [u8],
    tiles: &'a [u8],
    /// Offset of the tiles in the block.
    tiles_at: usize,
}

impl<'a> Block<'a> {
    /// Reads the block at the beginning of `bytes`.
    ///
    /// # Errors
    /// When the bytes are damaged, have an unknown format, or contradict themselves.
    pub fn read(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let (header, body) = checked_body(bytes)?;
        if header.mixed {
            return Err(malformed("a mixed block where one stream's is expected"));
        }
        if let Some(front) = front_bytes(&header, bytes)? {
            let whole = &bytes[..HEADER_BYTES + body.len()];
            return Front::read((header, front), bytes)?.into_block(whole);
        }
        let (directory, statistics, values) = read_sections(body)?;
        let columns = Cow::Owned(read_directory(directory, header.rows, values.len())?);
        Ok(Block { header, columns, statistics, values, tiles: &[], tiles_at: 0 })
    }

    /// Returns a parted block, given the positions of its values, statistics and tiles in `bytes`.
    pub(super) fn of_front(
        header: BlockHeader,
        columns: Cow<'a, [ColumnEntry]>,
        (values, statistics, tiles): Places,
        bytes: &'a [u8],
    ) -> Result<Self, FormatError> {
        let tiles_at = tiles.start;
        let part = |range: Range<usize>| bytes.get(range).ok_or(malformed("a block shorter than its places"));
        let (values, statistics, tiles) = (part(values)?, statistics.map(part).transpose()?, part(tiles)?);
        Ok(Block { header, columns, statistics, values, tiles, tiles_at })
    }

    /// Returns the block's header.
    pub fn header(&self) -> &BlockHeader {
        &self.header
    }

    /// Returns the directory of the channels, by [`ChannelIndex`].
    pub fn columns(&self) -> &[ColumnEntry] {
        &self.columns[SYSTEM_COLUMNS..]
    }

    /// Returns the bytes of receive_time, source_time, sequence and session together.
    pub fn system_bytes(&self) -> usize {
        self.columns[..SYSTEM_COLUMNS].iter().map(ColumnEntry::bytes).sum()
    }

    /// Returns the statistics of the channels, by [`ChannelIndex`], without decoding a value. Returns `None` for
    /// blocks of few rows.
    ///
    /// # Errors
    /// When the section contradicts itself.
    pub fn statistics(&self) -> Result<Option<Vec<ColumnStatistics>>, FormatError> {
        let Some(bytes) = self.statistics else { return Ok(None) };
        let mut cursor = Cursor::new(bytes);
        let read = self
            .columns()
            .iter()
            .map(|entry| ColumnStatistics::read(&mut cursor, entry.channel_type, self.header.rows, self.header.time))
            .collect::<Result<_, _>>()?;
        Ok(Some(read))
    }

    /// Returns the statistics of one channel, or `None` for blocks of few rows. A channel the block does not have yet
    /// is absent in every row.
    ///
    /// # Errors
    /// When the section contradicts itself.
    pub(crate) fn statistics_of(&self, channel: usize) -> Result<Option<ColumnStatistics>, FormatError> {
        let Some(bytes) = self.statistics else { return Ok(None) };
        let (rows, time) = (self.header.rows, self.header.time);
        let mut cursor = Cursor::new(bytes);
        for (index, entry) in self.columns().iter().enumerate() {
            let read = ColumnStatistics::read(&mut cursor, entry.channel_type, rows, time)?;
            if index == channel {
                return Ok(Some(read));
            }
        }
        Ok(Some(ColumnStatistics::of_absent(rows)))
    }

    /// Decodes times, sequences and the requested channels, in the requested order, in the types of `layout` (the
    /// stream's current one). A channel the block does not have yet is absent in every row.
    ///
    /// # Errors
    /// When the bytes do not match the directory, or a channel is not in `layout`.
    pub fn decode(&self, layout: &Layout, channels: &[ChannelIndex]) -> Result<Batch, FormatError> {
        let rows = self.header.rows;
        check_limit("cells asked for", (rows * channels.len()) as u64, BLOCK_CELLS_MAX)?;
        let (receive_time, source_time) = self.times()?;
        let sequence = self.optional(2, None)?;
        let session = self.session()?;
        let columns = channels
            .iter()
            .map(|channel| {
                let wanted = layout.channels.get(channel.0 as usize).ok_or(malformed("a channel beyond the layout"))?;
                match self.columns().get(channel.0 as usize) {
                    Some(entry) => self.column(entry, wanted.channel_type),
                    None => Ok(absent(rows, wanted.channel_type)),
                }
            })
            .collect::<Result<_, _>>()?;
        Ok(Batch {
            stream: self.header.stream,
            rows: (self.header.first_row..self.header.next_row()).collect(),
            receive_time,
            source_time,
            sequence,
            session,
            source_clock: self.header.source_clock,
            columns,
        })
    }

    /// Returns sequences and sessions of the rows, or `None` if no row has a sequence.
    ///
    /// # Errors
    /// When the bytes do not match the directory.
    pub(crate) fn sequences(&self) -> Result<Option<(OptionalTimes, Vec<u32>)>, FormatError> {
        Ok(self.optional(2, None)?.zip(self.session()?))
    }

    /// Decodes one channel in the type it is stored in.
    pub(crate) fn column_as_stored(&self, index: usize) -> Result<Column, FormatError> {
        let entry = self.columns().get(index).ok_or(malformed("a channel beyond the directory"))?;
        self.column(entry, entry.channel_type)
    }

    /// Returns the bytes of a column: states, parameters, values.
    fn parts(&self, entry: &ColumnEntry) -> Result<ColumnParts<'a>, FormatError> {
        let mut bytes = Cursor::new(self.values.get(entry.start..).unwrap_or_default());
        Ok((
            bytes.take(entry.states_bytes, "cell states")?,
            bytes.take(entry.parameter_bytes, "codec parameters")?,
            bytes.take(entry.values_bytes, "values")?,
        ))
    }

    fn column(&self, entry: &ColumnEntry, wanted: ChannelType) -> Result<Column, FormatError> {
        let rows = self.header.rows;
        let (states, parameters, values) = self.parts(entry)?;
        let decode = |count: usize| match entry.channel_type.tiles() {
            Some(kind) => self.tile_table(entry, kind, values, count)?.decode(self.tiles),
            None => codec::decode(entry.channel_type, entry.codec, parameters, values, count),
        };
        if states.is_empty() {
            return Ok(Column { values: codec::widen(decode(rows)?, wanted)?, states: None });
        }
        let states = read_states(states, rows)?;
        let valid = states.iter().filter(|s| **s == CellState::Value).count();
        let values = scatter(codec::widen(decode(valid)?, wanted)?, &states);
        Ok(Column { values, states: Some(states) })
    }

    fn tile_table(
        &self,
        entry: &ColumnEntry,
        kind: ArrayType,
        bytes: &[u8],
        values: usize,
    ) -> Result<TileTable, FormatError> {
        if entry.codec != if values == 0 { Codec::None } else { Codec::Tiles } || entry.parameter_bytes > 0 {
            return Err(FormatError::Unsupported { what: "codec for this type: code", found: entry.codec as u64 });
        }
        TileTable::read(kind, bytes, values, self.tiles.len())
    }

    /// Returns the table of an array channel's tiles, from which columns of single elements are read, and its cell
    /// states. Returns `None` if the block does not have the channel.
    ///
    /// # Errors
    /// When the bytes do not match the directory.
    pub(crate) fn tiles_of(&self, channel: usize) -> Result<Option<TilesOf>, FormatError> {
        let Some(entry) = self.columns().get(channel) else { return Ok(None) };
        let ChannelType::Array(kind) = entry.channel_type else { return Err(malformed("elements of single values")) };
        let (states, _, table) = self.parts(entry)?;
        let states = if states.is_empty() { None } else { Some(read_states(states, self.header.rows)?) };
        let valid = match &states {
            Some(states) => states.iter().filter(|s| **s == CellState::Value).count(),
            None => self.header.rows,
        };
        Ok(Some((self.tile_table(entry, kind, table, valid)?, states)))
    }

    /// Returns the offset of the tiles in the block.
    pub(crate) fn tiles_at(&self) -> usize {
        self.tiles_at
    }

    fn times(&self) -> Result<(Vec<i64>, Option<OptionalTimes>), FormatError> {
        let [receive, source] = [&self.columns[0], &self.columns[1]];
        if receive.codec == Codec::TimeDifference {
            let source = self.optional(1, None)?.filter(|s| s.valid.is_none());
            let source = source.ok_or(malformed("receive_time relative to a source_time with nulls"))?;
            let mut times = self.integers(receive, self.header.rows)?;
            times.iter_mut().zip(&source.values).for_each(|(t, base)| *t = t.wrapping_add(*base));
            return Ok((times, Some(source)));
        }
        if receive.codec != Codec::Integer || receive.states_bytes > 0 {
            return Err(malformed("receive_time with nulls"));
        }
        let times = self.integers(receive, self.header.rows)?;
        let source = match source.codec {
            Codec::SameTime => Some(OptionalTimes { values: times.clone(), valid: None }),
            _ => self.optional(1, Some(&times))?,
        };
        Ok((times, source))
    }

    /// Decodes a nullable system column; its values may be relative to `base`.
    fn optional(&self, index: usize, base: Option<&[i64]>) -> Result<Option<OptionalTimes>, FormatError> {
        let entry = &self.columns[index];
        let rows = self.header.rows;
        if entry.codec == Codec::None && entry.states_bytes == 0 {
            return Ok(None);
        }
        let (states, ..) = self.parts(entry)?;
        let valid: Option<Vec<bool>> = match states {
            [] => None,
            states => Some(read_states(states, rows)?.iter().map(|s| *s == CellState::Value).collect()),
        };
        let is_relative = entry.codec == Codec::TimeDifference;
        let base = base.filter(|_| is_relative);
        if is_relative && base.is_none() {
            return Err(malformed("a column relative to nothing"));
        }
        let Some(valid) = valid else {
            let mut values = self.integers(entry, rows)?;
            values.resize(rows, 0);
            let sums = values.iter_mut().zip(base.unwrap_or_default());
            sums.for_each(|(value, base)| *value = value.wrapping_add(*base));
            return Ok(Some(OptionalTimes { values, valid: None }));
        };
        let mut found = self.integers(entry, valid.iter().filter(|valid| **valid).count())?.into_iter();
        let mut value = |(row, valid): (usize, &bool)| match valid {
            true => found.next().unwrap_or_default().wrapping_add(base.map_or(0, |base| base[row])),
            false => 0,
        };
        let values = valid.iter().enumerate().map(&mut value).collect();
        Ok(Some(OptionalTimes { values, valid: Some(valid) }))
    }

    fn session(&self) -> Result<Option<Vec<u32>>, FormatError> {
        let entry = &self.columns[3];
        if entry.codec == Codec::None {
            return Ok(None);
        }
        Ok(Some(self.integers(entry, self.header.rows)?.into_iter().map(|v| v as u32).collect()))
    }

    /// Decodes the values of a system column.
    fn integers(&self, entry: &ColumnEntry, count: usize) -> Result<Vec<i64>, FormatError> {
        let (_, parameters, values) = self.parts(entry)?;
        let codec = match entry.codec {
            Codec::TimeDifference => Codec::Integer,
            codec => codec,
        };
        match codec::decode(ChannelType::I64, codec, parameters, values, count)? {
            ColumnValues::I64(values) => Ok(values),
            _ => Err(malformed("a system column of another type")),
        }
    }
}

/// Reads and decodes a block in one call: see [`Block::read`] and [`Block::decode`].
///
/// # Errors
/// As for [`Block::read`] and [`Block::decode`].
pub fn decode(bytes: &[u8], layout: &Layout, channels: &[ChannelIndex]) -> Result<Batch, FormatError> {
    Block::read(bytes)?.decode(layout, channels)
}

/// Returns a column that is absent in every row.
pub(crate) fn absent(rows: usize, kind: ChannelType) -> Column {
    let states = vec![CellState::Absent; rows];
    Column { values: scatter(ColumnValues::empty(kind), &states), states: Some(states) }
}

fn read_states(bytes: &[u8], rows: usize) -> Result<Vec<CellState>, FormatError> {
    let mut cursor = Cursor::new(bytes);
    let mut codes = vec![0u8; rows];
    integer::decode(&mut cursor, &mut codes, |v| u8::try_from(v).unwrap_or(u8::MAX))?;
    if cursor.remaining() > 0 {
        return Err(malformed("bytes left behind cell states"));
    }
    codes.into_iter().map(|c| CellState::from_code(c).ok_or(malformed("cell state"))).collect()
}

/// Bytes of directory, statistics and values.
type BlockSections<'a> = (Cursor<'a>, Option<&'a [u8]>, &'a [u8]);

/// Reads the sections of a body that is not parted.
fn read_sections(body: &[u8]) -> Result<BlockSections<'_>, FormatError> {
    let mut cursor = Cursor::at(HEADER_BYTES as u64, body);
    let (mut directory, mut statistics) = (None, None);
    for _ in 0..SECTIONS_MAX {
        let kind = cursor.u8("section")?;
        let length = cursor.count("bytes of a section", body.len())?;
        let section = cursor.part(length, "section")?;
        let bytes = section.unread();
        match kind {
            SECTION_DIRECTORY => directory = Some(section),
            SECTION_STATISTICS => statistics = Some(bytes),
            // The values come last; what follows is padding.
            SECTION_VALUES if cursor.remaining() >= BLOCK_ALIGN_BYTES => {
                return Err(malformed("bytes behind the last section"));
            }
            SECTION_VALUES => match directory {
                Some(directory) => return Ok((directory, statistics, bytes)),
                None => break,
            },
            skippable if skippable & SKIPPABLE != 0 => {}
            unknown => return Err(FormatError::Unsupported { what: "section", found: unknown.into() }),
        }
    }
    Err(malformed("a block without directory or values"))
}

pub(super) fn read_directory(
    mut cursor: Cursor<'_>,
    rows: usize,
    values_len: usize,
) -> Result<Vec<ColumnEntry>, FormatError> {
    let channels = cursor.count("channels of a block", CHANNELS_MAX)?;
    check_limit("cells of a block", (rows * (channels + SYSTEM_COLUMNS)) as u64, BLOCK_CELLS_MAX)?;
    let mut columns = Vec::with_capacity(channels + SYSTEM_COLUMNS);
    let mut start = 0;
    for _ in 0..channels + SYSTEM_COLUMNS {
        let channel_type = cursor.channel_type("channel type")?;
        let code = cursor.u8("codec")?;
        let codec = Codec::from_code(code & !(HAS_PARAMETERS | HAS_STATES))
            .ok_or(FormatError::Unsupported { what: "codec", found: code.into() })?;
        let parameter_bytes = match code & HAS_PARAMETERS {
            0 => 0,
            _ => cursor.count("bytes of codec parameters", CODEC_PARAMETER_BYTES_MAX)?,
        };
        let states_bytes = match code & HAS_STATES {
            0 => 0,
            _ => cursor.count("bytes of cell states", values_len)?,
        };
        let values_bytes = cursor.count("bytes of values", values_len)?;
        let entry = ColumnEntry { channel_type, codec, states_bytes, parameter_bytes, values_bytes, start };
        start += entry.bytes();
        columns.push(entry);
    }
    if start != values_len || cursor.remaining() > 0 {
        return Err(malformed("the directory does not add up to the values"));
    }
    Ok(columns)
}

/// Reverses the encoder's `gather`; a cell without a value becomes zero, false, empty text or an empty array.
fn scatter(values: ColumnValues, states: &[CellState]) -> ColumnValues {
    fn spread<T: Copy + Default>(values: Vec<T>, states: &[CellState]) -> Vec<T> {
        let mut values = values.into_iter();
        states
            .iter()
            .map(|s| if *s == CellState::Value { values.next().unwrap_or_default() } else { T::default() })
            .collect()
    }
    match values {
        ColumnValues::Bool(v) => ColumnValues::Bool(spread(v, states)),
        ColumnValues::I8(v) => ColumnValues::I8(spread(v, states)),
        ColumnValues::I16(v) => ColumnValues::I16(spread(v, states)),
        ColumnValues::I32(v) => ColumnValues::I32(spread(v, states)),
        ColumnValues::I64(v) => ColumnValues::I64(spread(v, states)),
        ColumnValues::U8(v) => ColumnValues::U8(spread(v, states)),
        ColumnValues::U16(v) => ColumnValues::U16(spread(v, states)),
        ColumnValues::U32(v) => ColumnValues::U32(spread(v, states)),
        ColumnValues::U64(v) => ColumnValues::U64(spread(v, states)),
        ColumnValues::F32(v) => ColumnValues::F32(spread(v, states)),
        ColumnValues::F64(v) => ColumnValues::F64(spread(v, states)),
        ColumnValues::String { offsets, bytes } => {
            ColumnValues::String { offsets: spread_offsets(&offsets, states), bytes }
        }
        ColumnValues::Array { kind, offsets, bytes } => {
            ColumnValues::Array { kind, offsets: spread_offsets(&offsets, states), bytes }
        }
    }
}

fn spread_offsets(offsets: &[u32], states: &[CellState]) -> Vec<u32> {
    let mut ends = offsets[1..].iter().copied();
    let (mut at, mut end) = (Vec::with_capacity(states.len() + 1), 0);
    at.push(0);
    for state in states {
        if *state == CellState::Value {
            end = ends.next().unwrap_or(end);
        }
        at.push(end);
    }
    at
}
