//! Single elements of arrays as ordinary columns. Of a block, only the part before its tiles and the tiles needed are
//! read.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::append::chunk::Chunk;
use crate::bytes::FormatError;
use crate::codec::tiles::ElementColumns;
use crate::model::array::ArrayType;
use crate::model::batch::{Batch, Column, ColumnValues};
use crate::model::limits::{BLOCK_CELLS_MAX, CHANNELS_MAX};
use crate::model::refusal::ScanError;
use crate::model::stream::{ChannelIndex, Layout};
use crate::model::value::{CellState, Value};
use crate::read::parts::PartedBlock;
use crate::read::request::ElementRange;
use crate::read::shared::Shared;
use crate::read::stream_view::StreamView;
use crate::segment::directory::{BlockRef, Segment};

/// Columns of a block are read individually if they are at most one in this many.
const FEW: usize = 4;

impl ElementRange {
    /// Returns the range of elements as indices.
    fn range(&self) -> Range<usize> {
        self.elements.start as usize..self.elements.end as usize
    }

    /// Returns the type of the requested arrays.
    fn kind(&self, layout: &Layout) -> Option<ArrayType> {
        layout.channels.get(self.channel.0 as usize)?.channel_type.array()
    }
}

/// Returns an error for elements of a channel that is not an array, and for more columns than a layout may have.
pub(crate) fn check(ranges: &[ElementRange], layout: &Layout) -> Result<(), ScanError> {
    for range in ranges {
        if range.kind(layout).is_none() {
            let name = layout.channels.get(range.channel.0 as usize).map_or("that there is not", |c| &c.name);
            return Err(ScanError::Elements { why: format!("elements of channel {name}, which is not an array") });
        }
    }
    let wanted: usize = ranges.iter().map(|range| range.range().len()).sum();
    if wanted > CHANNELS_MAX {
        return Err(ScanError::Elements { why: format!("{wanted} elements at once; at most {CHANNELS_MAX}") });
    }
    Ok(())
}

fn check_cells(ranges: &[ElementRange], rows: usize) -> Result<(), ScanError> {
    let cells = rows * ranges.iter().map(|range| range.range().len()).sum::<usize>();
    if cells > BLOCK_CELLS_MAX {
        let why = format!("{cells} elements of one block; at most {BLOCK_CELLS_MAX}: ask for fewer at once");
        return Err(ScanError::Elements { why });
    }
    Ok(())
}

/// Returns the channel of each column of a batch that has columns, and behind them single elements of arrays.
pub(crate) fn channels(columns: &[ChannelIndex], ranges: &[ElementRange]) -> impl Iterator<Item = ChannelIndex> {
    let of_range = |range: &ElementRange| std::iter::repeat_n(range.channel, range.range().len());
    columns.iter().copied().chain(ranges.iter().flat_map(of_range))
}

/// Converts a column of arrays to columns of some of its elements.
fn of_column(column: &Column, kind: ArrayType, elements: Range<usize>) -> impl Iterator<Item = Column> {
    let rows = column.values.len();
    let mut out = ElementColumns::new(kind.element(), elements, rows);
    for row in 0..rows {
        match column.cell(row) {
            Ok(Value::Array(array)) => out.put_array(row, array.bytes()),
            Ok(_) => {}
            Err(state) => out.put_state(row, state),
        }
    }
    out.finish()
}

/// Appends the elements of some rows of a chunk; their ranges were checked.
pub(crate) fn add_of_chunk(chunk: &Chunk, rows: &[u32], ranges: &[ElementRange], layout: &Layout, batch: &mut Batch) {
    for range in ranges {
        let (Some(kind), channel) = (range.kind(layout), range.channel.0 as usize) else { continue };
        let mut out = ElementColumns::new(kind.element(), range.range(), rows.len());
        for (at, row) in rows.iter().map(|row| *row as usize).enumerate() {
            match chunk.state(row, channel) {
                CellState::Value => {
                    if let Value::Array(array) = chunk.value(row, channel) {
                        out.put_array(at, array.bytes());
                    }
                }
                state => out.put_state(at, state),
            }
        }
        batch.columns.extend(out.finish());
    }
}

impl StreamView {
    /// Returns whether few of a block's columns are requested, and no whole arrays.
    pub(crate) fn is_worth_parting(&self, block: &BlockRef, columns: &[ChannelIndex]) -> bool {
        let layout = &self.stream.layout.channels;
        let tiles =
            |index: &ChannelIndex| layout.get(index.0 as usize).is_some_and(|c| c.channel_type.tiles().is_some());
        self.may_be_parted(block)
            && !columns.iter().any(tiles)
            && (columns.len() * FEW <= layout.len() || layout.iter().any(|c| c.channel_type.array().is_some()))
    }

    /// Reads columns of a block, followed by single elements of arrays, of which only the tiles that contain them are
    /// read. The ranges were checked.
    pub(crate) fn read_elements(
        &self,
        segment: &Arc<Segment>,
        block: &BlockRef,
        columns: &[ChannelIndex],
        ranges: &[ElementRange],
        shared: &Shared,
    ) -> Result<Batch, ScanError> {
        check_cells(ranges, block.rows as usize)?;
        if self.is_worth_parting(block, columns)
            && let Some(batch) = self.read_parts(segment, block, columns, ranges, shared)?
        {
            return Ok(batch);
        }
        // Whole arrays are requested as well, or so little that one read suffices.
        let mut wanted = columns.to_vec();
        wanted.extend(ranges.iter().map(|range| range.channel));
        let mut batch = self.read(segment, block, &wanted, shared)?;
        let arrays = batch.columns.split_off(columns.len().min(batch.columns.len()));
        for (range, column) in ranges.iter().zip(&arrays) {
            if let ColumnValues::Array { kind, .. } = &column.values {
                batch.columns.extend(of_column(column, *kind, range.range()));
            }
        }
        Ok(batch)
    }

    /// Reads a block in parts, or returns `None` if it is not parted.
    fn read_parts(
        &self,
        segment: &Arc<Segment>,
        block: &BlockRef,
        columns: &[ChannelIndex],
        ranges: &[ElementRange],
        shared: &Shared,
    ) -> Result<Option<Batch>, ScanError> {
        let damaged = |error: FormatError| self.damaged(segment, block, error);
        let Some(mut parts) = PartedBlock::open(self, segment, block, &shared.residents)? else { return Ok(None) };
        let arrays = ranges.iter().map(|range| range.channel);
        parts.load(columns.iter().copied().chain(arrays).map(|channel| channel.0.into()))?;
        let read = parts.block()?;
        shared.blocks_decoded.fetch_add(1, Ordering::Relaxed);
        let mut batch = read.decode(&self.stream.layout, columns).map_err(damaged)?;
        for range in ranges {
            let Some(kind) = range.kind(&self.stream.layout) else { continue };
            let mut out = ElementColumns::new(kind.element(), range.range(), batch.len());
            if let Some((table, states)) = read.tiles_of(range.channel.0 as usize).map_err(damaged)? {
                let span = table.span(&out.elements());
                let at = u64::from(block.offset) + (read.tiles_at() + span.start) as u64;
                // Only a tile is damaged, and its offset is known; others can still be read.
                let in_tile = |error: FormatError| ScanError::Damaged {
                    file: segment.path(),
                    offset: at,
                    reason: error.to_string(),
                };
                let tiles = match span.is_empty() {
                    true => Vec::new(),
                    false => segment.read_bytes(at, span.len(), &shared.residents)?,
                };
                let of_values: Vec<usize> = match &states {
                    None => (0..batch.len()).collect(),
                    Some(states) => (0..batch.len()).filter(|row| states[*row] == CellState::Value).collect(),
                };
                for (row, state) in states.iter().flatten().enumerate() {
                    out.put_state(row, if *state == CellState::Value { CellState::Absent } else { *state });
                }
                table.pick(&tiles, span.start, &of_values, &mut out).map_err(in_tile)?;
            }
            batch.columns.extend(out.finish());
        }
        self.leave_out(&mut batch, self::channels(columns, ranges));
        Ok(Some(batch))
    }
}
