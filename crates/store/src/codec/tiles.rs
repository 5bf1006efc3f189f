//! Arrays by element: the history of one element of a channel occupies a small part of a block.
//!
//! ```text
//!              tile 0          tile 1
//!           ┌ 0 1 2 3 ┐ ┌ 4 5 6 7 ┐ … elements
//! row 0     │ · · · · │ │ · · · · │
//! row 1     │ · · · · │ │ · ·       an array of variable length ends where it ends
//! row 2     │ · · · · │ │ · · · · │
//! ```
//! A tile is a column of single values, encoded like any other. Its order, by element or by row, determines the element
//! and row of each value. The table of the tiles, with a checksum of each, is stored among the values of the block; the
//! tiles are at the end:
//!
//! ```text
//! table: [lengths of the values, integer stream: variable length only], elements of a tile, offset of the first tile
//!        in the section of tiles, order u8 (0 by element, 1 by row), then of each tile:
//!        codec u8 (0x80: length of its parameters follows), its values' length, CRC32C u32 of parameters and values
//! ```
//! Numbers are varints. The last tile may have fewer elements. The number of tiles follows from the longest value.

use std::ops::Range;

use super::{ChannelMemory, Codec, Effort, Encoded, Scratch, decode as decode_values, encode as encode_values};
use crate::bytes::{Cursor, FormatError, check_limit, malformed, put_varint};
use crate::codec::integer;
use crate::model::array::{ArrayType, ElementType};
use crate::model::batch::values_of;
use crate::model::batch::{Column, ColumnValues};
use crate::model::limits::{ARRAY_LENGTH_MAX, CODEC_PARAMETER_BYTES_MAX, COLUMN_TEXT_BYTES_MAX};
use crate::model::value::CellState;

/// Target size of a tile's elements before encoding, in bytes. Reading one element decodes that many, and codecs need
/// some thousand values to work well.
const TILE_BYTES: usize = 16 << 10;
const HAS_PARAMETERS: u8 = 0x80;

/// Order of the values in a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TileOrder {
    /// All rows of the first element, then of the next: follows each element over time.
    Element = 0,
    /// All elements of the first row, then of the next: follows the shape of a curve.
    Row = 1,
}

/// Returns whether lengths differ so much that walking over the values element by element would find mostly none. Such
/// tiles are stored by row, so that no reader walks over more than four times the elements that there are.
fn is_ragged(lengths: &[u32]) -> bool {
    let total: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    4 * total < u64::from(longest) * lengths.len() as u64
}

/// Arrays to encode. `offsets` are in bytes, one more than values.
#[derive(Clone, Copy)]
pub(crate) struct Arrays<'a> {
    pub(crate) kind: ArrayType,
    pub(crate) offsets: &'a [u32],
    pub(crate) bytes: &'a [u8],
}

impl Arrays<'_> {
    fn lengths(&self) -> Vec<u32> {
        let size = self.kind.element().size_bytes() as u32;
        self.offsets.windows(2).map(|pair| (pair[1] - pair[0]) / size).collect()
    }
}

/// Appends the table of the tiles to `table`, and the tiles to `tiles`.
///
/// # Errors
/// If a value does not match its type, or if the column is too large.
pub(crate) fn encode(
    arrays: Arrays<'_>,
    memory: &mut ChannelMemory,
    effort: Effort,
    scratch: &mut Scratch,
    (table, tiles): (&mut Vec<u8>, &mut Vec<u8>),
) -> Result<Encoded, FormatError> {
    check_limit("bytes of arrays in a column", arrays.bytes.len() as u64, COLUMN_TEXT_BYTES_MAX)?;
    let lengths = arrays.lengths();
    if lengths.is_empty() {
        return Ok(Encoded::new(Codec::None));
    }
    if !lengths.iter().all(|length| arrays.kind.takes(*length as usize)) {
        return Err(malformed("an array of its type"));
    }
    let longest = lengths.iter().copied().max().unwrap_or(0) as usize;
    // For rows of different lengths, tiles of short ones have fewer values.
    let elements = (longest * TILE_BYTES / arrays.bytes.len().max(1)).clamp(1, longest.max(1));
    if arrays.kind.length().is_none() {
        let lengths: Vec<i64> = lengths.iter().map(|length| i64::from(*length)).collect();
        integer::encode(&lengths, table);
    }
    put_varint(table, elements as u64);
    put_varint(table, tiles.len() as u64);
    let mut tile = TileCoder { arrays, values: Vec::new(), memory, effort, scratch };
    let order = if is_ragged(&lengths) { TileOrder::Row } else { tile.better_order(0..elements.min(longest)) };
    table.push(order as u8);
    for from in (0..longest).step_by(elements) {
        let start = tiles.len();
        let encoded = tile.encode(from..(from + elements).min(longest), order, tiles);
        let parameters = encoded.parameter_bytes;
        table.push(encoded.codec as u8 | if parameters > 0 { HAS_PARAMETERS } else { 0 });
        if parameters > 0 {
            put_varint(table, parameters as u64);
        }
        put_varint(table, (tiles.len() - start - parameters) as u64);
        table.extend_from_slice(&crc32c::crc32c(&tiles[start..]).to_le_bytes());
    }
    Ok(Encoded::new(Codec::Tiles))
}

/// Encoder of tiles, one after the other.
struct TileCoder<'a, 's> {
    arrays: Arrays<'a>,
    /// Values of the current tile, little-endian.
    values: Vec<u8>,
    memory: &'s mut ChannelMemory,
    effort: Effort,
    scratch: &'s mut Scratch,
}

impl TileCoder<'_, '_> {
    /// Returns the order in which a tile is smaller. It is tried on one tile and used for all.
    fn better_order(&mut self, elements: Range<usize>) -> TileOrder {
        if self.arrays.offsets.len() <= 2 || elements.len() <= 1 {
            return TileOrder::Row;
        }
        let (mut by_element, mut by_row) = (Vec::new(), Vec::new());
        self.encode(elements.clone(), TileOrder::Element, &mut by_element);
        self.encode(elements, TileOrder::Row, &mut by_row);
        if by_element.len() < by_row.len() { TileOrder::Element } else { TileOrder::Row }
    }

    fn encode(&mut self, elements: Range<usize>, order: TileOrder, out: &mut Vec<u8>) -> Encoded {
        self.values.clear();
        match self.arrays.kind.element().size_bytes() {
            1 => self.gather::<1>(elements, order),
            2 => self.gather::<2>(elements, order),
            4 => self.gather::<4>(elements, order),
            _ => self.gather::<8>(elements, order),
        }
        let values = values_of(self.arrays.kind.element(), &self.values);
        encode_values(&values, self.memory, self.effort, self.scratch, out)
    }

    fn gather<const N: usize>(&mut self, elements: Range<usize>, order: TileOrder) {
        let Arrays { offsets, bytes, .. } = self.arrays;
        let of = |row: usize| bytes[offsets[row] as usize..offsets[row + 1] as usize].as_chunks::<N>().0;
        let rows = 0..offsets.len() - 1;
        match order {
            TileOrder::Row => {
                for row in rows {
                    let array = of(row);
                    let within = elements.start.min(array.len())..elements.end.min(array.len());
                    self.values.extend_from_slice(array[within].as_flattened());
                }
            }
            TileOrder::Element => {
                for element in elements {
                    for row in rows.clone() {
                        if let Some(value) = of(row).get(element) {
                            self.values.extend_from_slice(value);
                        }
                    }
                }
            }
        }
    }
}

/// Inverts [`values_of`].
fn bytes_of(values: &ColumnValues) -> Vec<u8> {
    macro_rules! bytes {
        ($values:expr) => {
            $values.iter().flat_map(|value| value.to_le_bytes()).collect()
        };
    }
    match values {
        ColumnValues::Bool(v) => v.iter().map(|value| u8::from(*value)).collect(),
        ColumnValues::I8(v) => bytes!(v),
        ColumnValues::I16(v) => bytes!(v),
        ColumnValues::I32(v) => bytes!(v),
        ColumnValues::I64(v) => bytes!(v),
        ColumnValues::U8(v) => bytes!(v),
        ColumnValues::U16(v) => bytes!(v),
        ColumnValues::U32(v) => bytes!(v),
        ColumnValues::U64(v) => bytes!(v),
        ColumnValues::F32(v) => bytes!(v),
        ColumnValues::F64(v) => bytes!(v),
        ColumnValues::String { .. } | ColumnValues::Array { .. } => Vec::new(),
    }
}

/// Location and encoding of a tile.
#[derive(Clone, Copy, Debug)]
struct Tile {
    codec: Codec,
    parameter_bytes: usize,
    /// Bytes of parameters and values.
    bytes: usize,
    crc: u32,
    /// Offset in the section of tiles.
    at: usize,
}

/// Table of a column's tiles, read and checked.
#[derive(Debug)]
pub(crate) struct TileTable {
    kind: ArrayType,
    /// Number of elements of each value, in the order of rows.
    lengths: Vec<u32>,
    longest: usize,
    /// Elements in a tile.
    elements: usize,
    order: TileOrder,
    tiles: Vec<Tile>,
}

impl TileTable {
    /// Reads the table of `values` values. All tiles of the block take `tiles_bytes`.
    ///
    /// # Errors
    /// If it contradicts itself or exceeds a limit.
    pub(crate) fn read(
        kind: ArrayType,
        bytes: &[u8],
        values: usize,
        tiles_bytes: usize,
    ) -> Result<TileTable, FormatError> {
        let mut cursor = Cursor::new(bytes);
        let mut table =
            TileTable { kind, lengths: Vec::new(), longest: 0, elements: 1, order: TileOrder::Row, tiles: Vec::new() };
        if values == 0 {
            return if bytes.is_empty() { Ok(table) } else { Err(malformed("values of no row")) };
        }
        table.lengths = match kind.length() {
            Some(length) => vec![length as u32; values],
            None => {
                let mut lengths = vec![0; values];
                integer::decode(&mut cursor, &mut lengths, |v| u32::try_from(v).unwrap_or(u32::MAX))?;
                lengths
            }
        };
        let total: u64 = table.lengths.iter().map(|length| u64::from(*length)).sum();
        table.longest = table.lengths.iter().copied().max().unwrap_or(0) as usize;
        check_limit("elements of an array", table.longest as u64, ARRAY_LENGTH_MAX)?;
        let total_bytes = total * kind.element().size_bytes() as u64;
        check_limit("bytes of arrays in a column", total_bytes, COLUMN_TEXT_BYTES_MAX)?;
        table.elements = cursor.count("elements of a tile", ARRAY_LENGTH_MAX)?;
        if table.elements == 0 {
            return Err(malformed("tiles of no element"));
        }
        let mut at = cursor.count("offset of a tile", tiles_bytes)?;
        table.order = match cursor.u8("order of tiles")? {
            0 if is_ragged(&table.lengths) => return Err(malformed("tiles by element of ragged arrays")),
            0 => TileOrder::Element,
            1 => TileOrder::Row,
            unknown => return Err(FormatError::Unsupported { what: "order of tiles", found: unknown.into() }),
        };
        for _ in 0..table.longest.div_ceil(table.elements) {
            let code = cursor.u8("codec")?;
            let codec = Codec::from_code(code & !HAS_PARAMETERS)
                .ok_or(FormatError::Unsupported { what: "codec", found: code.into() })?;
            let parameter_bytes = match code & HAS_PARAMETERS {
                0 => 0,
                _ => cursor.count("bytes of codec parameters", CODEC_PARAMETER_BYTES_MAX)?,
            };
            let bytes = parameter_bytes + cursor.count("bytes of a tile", tiles_bytes)?;
            let crc = cursor.u32("checksum of a tile")?;
            table.tiles.push(Tile { codec, parameter_bytes, bytes, crc, at });
            at = check_limit("bytes of tiles", (at + bytes) as u64, tiles_bytes)?;
        }
        if cursor.remaining() > 0 {
            return Err(malformed("bytes left behind a table of tiles"));
        }
        Ok(table)
    }

    fn tiles_of(&self, elements: &Range<usize>) -> Range<usize> {
        let end = elements.end.min(self.longest);
        if elements.start >= end {
            return 0..0;
        }
        elements.start / self.elements..(end - 1) / self.elements + 1
    }

    /// Returns the range in the section of tiles that holds the tiles of some elements.
    pub(crate) fn span(&self, elements: &Range<usize>) -> Range<usize> {
        match &self.tiles[self.tiles_of(elements)] {
            [] => 0..0,
            [first, .., last] => first.at..last.at + last.bytes,
            [only] => only.at..only.at + only.bytes,
        }
    }

    /// Decodes a tile. Returns its elements, and its values in the tile's order. `section` holds the section of tiles
    /// from `from` on.
    fn tile(&self, index: usize, section: &[u8], from: usize) -> Result<(Range<usize>, Vec<u8>), FormatError> {
        let tile = self.tiles[index];
        let at = tile.at.checked_sub(from).ok_or(malformed("a tile that was not read"))?;
        let bytes = Cursor::new(section.get(at..).unwrap_or_default()).take(tile.bytes, "tile of an array")?;
        let found = crc32c::crc32c(bytes);
        if found != tile.crc {
            return Err(FormatError::Checksum { what: "tile of an array", expected: tile.crc, found });
        }
        let elements = index * self.elements..((index + 1) * self.elements).min(self.longest);
        let within = |length: &u32| (*length as usize).min(elements.end).saturating_sub(elements.start);
        let count = self.lengths.iter().map(within).sum();
        let (parameters, values) = bytes.split_at(tile.parameter_bytes);
        let kind = self.kind.element().channel_type();
        Ok((elements, bytes_of(&decode_values(kind, tile.codec, parameters, values, count)?)))
    }

    /// Calls `take` for each value of a tile with the index of the array, the elements, and their position in the tile.
    /// In row order, adjacent elements of a row are passed together.
    fn each(&self, elements: Range<usize>, mut take: impl FnMut(usize, Range<usize>, usize)) {
        let mut at = 0;
        match self.order {
            TileOrder::Row => {
                for (value, length) in self.lengths.iter().enumerate() {
                    let length = *length as usize;
                    let within = elements.start.min(length)..elements.end.min(length);
                    let count = within.len();
                    take(value, within, at);
                    at += count;
                }
            }
            TileOrder::Element => {
                for element in elements {
                    for (value, length) in self.lengths.iter().enumerate() {
                        if element < *length as usize {
                            take(value, element..element + 1, at);
                            at += 1;
                        }
                    }
                }
            }
        }
    }

    /// Decodes all values.
    ///
    /// # Errors
    /// If a tile is damaged.
    pub(crate) fn decode(&self, section: &[u8]) -> Result<ColumnValues, FormatError> {
        let size = self.kind.element().size_bytes();
        let mut offsets = Vec::with_capacity(self.lengths.len() + 1);
        let mut end = 0;
        offsets.push(0);
        for length in &self.lengths {
            end += length * size as u32;
            offsets.push(end);
        }
        let mut bytes = vec![0; end as usize];
        for index in 0..self.tiles.len() {
            let (elements, values) = self.tile(index, section, 0)?;
            self.each(elements, |value, elements, at| {
                let to = offsets[value] as usize + elements.start * size;
                let len = elements.len() * size;
                bytes[to..to + len].copy_from_slice(&values[at * size..at * size + len]);
            });
        }
        Ok(ColumnValues::Array { kind: self.kind, offsets, bytes })
    }

    /// Decodes some elements. `section` holds the section of tiles from `from` on: at least their [`TileTable::span`].
    ///
    /// # Errors
    /// If one of their tiles is damaged.
    pub(crate) fn pick(
        &self,
        section: &[u8],
        from: usize,
        rows_of_values: &[usize],
        out: &mut ElementColumns,
    ) -> Result<(), FormatError> {
        let size = self.kind.element().size_bytes();
        for index in self.tiles_of(&out.elements) {
            let (elements, values) = self.tile(index, section, from)?;
            self.each(elements, |value, elements, at| {
                let wanted = elements.start.max(out.elements.start)..elements.end.min(out.elements.end);
                for element in wanted {
                    let at = (at + element - elements.start) * size;
                    out.put(rows_of_values[value], element, &values[at..at + size]);
                }
            });
        }
        Ok(())
    }
}

/// Columns of single elements under construction. Initially, every cell is absent.
#[derive(Debug)]
pub(crate) struct ElementColumns {
    element: ElementType,
    elements: Range<usize>,
    columns: Vec<(Vec<u8>, Vec<CellState>)>,
}

impl ElementColumns {
    pub(crate) fn new(element: ElementType, elements: Range<usize>, rows: usize) -> ElementColumns {
        let empty = (vec![0; rows * element.size_bytes()], vec![CellState::Absent; rows]);
        ElementColumns { element, columns: vec![empty; elements.len()], elements }
    }

    /// Returns the range of elements.
    pub(crate) fn elements(&self) -> Range<usize> {
        self.elements.clone()
    }

    /// Sets the value of an element in a row.
    pub(crate) fn put(&mut self, row: usize, element: usize, value: &[u8]) {
        let (values, states) = &mut self.columns[element - self.elements.start];
        values[row * value.len()..(row + 1) * value.len()].copy_from_slice(value);
        states[row] = CellState::Value;
    }

    /// Sets the elements of a row from an array, as far as they are in range.
    pub(crate) fn put_array(&mut self, row: usize, array: &[u8]) {
        let size = self.element.size_bytes();
        for element in self.elements().take_while(|element| (element + 1) * size <= array.len()) {
            self.put(row, element, &array[element * size..(element + 1) * size]);
        }
    }

    /// Sets the state of a row without an array.
    pub(crate) fn put_state(&mut self, row: usize, state: CellState) {
        self.columns.iter_mut().for_each(|(_, states)| states[row] = state);
    }

    /// Returns a column for each element.
    pub(crate) fn finish(self) -> impl Iterator<Item = Column> {
        self.columns.into_iter().map(move |(values, states)| {
            let whole = states.iter().all(|state| *state == CellState::Value);
            Column { values: values_of(self.element, &values), states: (!whole).then_some(states) }
        })
    }
}
