//! A view of one stream, and reading its blocks.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::append::held::Held;
use crate::append::stream_slot::OpenRows;
use crate::block::Block;
use crate::bytes::FormatError;
use crate::catalog::group::Group;
use crate::codec::stats::ColumnStatistics;
use crate::log::checkpoint::SealedRows;
use crate::model::batch::Batch;
use crate::model::excluded::{ExcludedChannels, ExcludedSpans};
use crate::model::limits::{PARTED_BYTES, PARTED_CHANNELS, STATISTICS_MIN_ROWS};
use crate::model::mutant::{self, Mutant};
use crate::model::refusal::ScanError;
use crate::model::stream::{ChannelIndex, Stream, StreamId};
use crate::read::parts::PartedBlock;
use crate::read::shared::Shared;
use crate::segment::directory::{BlockRef, Segment, SegmentList};

/// View of one stream.
#[derive(Clone, Debug)]
pub(crate) struct StreamView {
    /// Definition of the stream: at least as new as every row.
    pub(crate) stream: Arc<Stream>,
    /// Retention group of its segments.
    pub(crate) group: Group,
    /// Rows in memory.
    pub(crate) open: Arc<OpenRows>,
    /// Number of rows of the last chunk that belong to the view.
    pub(crate) last_len: usize,
    /// Newest frame, if it got no row.
    pub(crate) held: Option<Arc<Held>>,
    /// Next row.
    pub(crate) next_row: u64,
    /// State of its rows in segments: at least those below the open ones.
    pub(crate) sealed: Arc<SealedRows>,
    /// Segments, taken after the open rows.
    pub(crate) segments: Arc<SegmentList>,
    /// Values that are left out.
    pub(crate) excluded: Option<Arc<ExcludedChannels>>,
}

impl StreamView {
    /// Returns the segments that may hold rows of it with `from ≤ time ≤ to`, oldest first.
    pub(crate) fn segments(&self, from: i64, to: i64) -> Vec<Arc<Segment>> {
        let mut found = self.segments.overlapping(self.group, from, to);
        found.retain(|segment| segment.places.0 <= self.sealed.newest_segment);
        found
    }

    /// Returns its blocks in a segment, as far as this view reads them there, in row order.
    pub(crate) fn blocks(&self, segment: &Arc<Segment>, shared: &Shared) -> Result<Vec<BlockRef>, ScanError> {
        let mut blocks = segment.blocks(self.stream.id.0, &shared.residents)?;
        blocks.retain(|block| block.end_row() <= self.open.first_row);
        Ok(blocks)
    }

    /// Returns its blocks in a segment that may have rows and times in these ranges.
    pub(crate) fn blocks_of(
        &self,
        segment: &Arc<Segment>,
        ranges: (&Range<i64>, &Range<u64>),
        shared: &Shared,
    ) -> Result<Vec<BlockRef>, ScanError> {
        let mut blocks = segment.blocks_within(self.stream.id.0, ranges, &shared.residents)?;
        blocks.retain(|block| block.end_row() <= self.open.first_row);
        Ok(blocks)
    }

    /// Returns the spans in which values of a channel are left out.
    pub(crate) fn excluded_of(&self, channel: ChannelIndex) -> Option<&Arc<ExcludedSpans>> {
        self.excluded.as_ref()?.of(channel)
    }

    /// Returns whether the value of a channel at an instant is left out.
    pub(crate) fn excludes(&self, channel: ChannelIndex, time: i64) -> bool {
        self.excluded_of(channel).is_some_and(|spans| spans.contains(time))
    }

    /// Makes the cells of a batch absent that are left out. `channels` are those of its columns.
    pub(crate) fn leave_out(&self, batch: &mut Batch, channels: impl Iterator<Item = ChannelIndex>) {
        if let Some(excluded) = &self.excluded {
            excluded.leave_out(batch, channels);
        }
    }

    /// Returns whether a block may be parted, as far as that is known without reading it.
    pub(crate) fn may_be_parted(&self, block: &BlockRef) -> bool {
        let layout = &self.stream.layout.channels;
        let wide = || layout.len() >= PARTED_CHANNELS || layout.iter().any(|c| c.channel_type.tiles().is_some());
        block.part.is_none() && block.len as usize >= PARTED_BYTES && wide()
    }

    /// Reads columns of a block, in the types of the stream in this view.
    pub(crate) fn read(
        &self,
        segment: &Arc<Segment>,
        block: &BlockRef,
        columns: &[ChannelIndex],
        shared: &Shared,
    ) -> Result<Batch, ScanError> {
        self.read_with_gap(segment, block, columns, shared).map(|(batch, _)| batch)
    }

    /// Reads columns of a block, like [`StreamView::read`], and returns whether frames are known missing before its
    /// first one, which a part of an older mixed block does not record.
    pub(crate) fn read_with_gap(
        &self,
        segment: &Arc<Segment>,
        block: &BlockRef,
        columns: &[ChannelIndex],
        shared: &Shared,
    ) -> Result<(Batch, bool), ScanError> {
        let damaged = |error| self.damaged(segment, block, error);
        let layout = &self.stream.layout;
        let residents = &shared.residents;
        shared.blocks_decoded.fetch_add(1, Ordering::Relaxed);
        if self.is_worth_parting(block, columns)
            && let Some(mut parts) = PartedBlock::open(self, segment, block, residents)?
        {
            parts.load(columns.iter().map(|column| column.0.into()))?;
            let read = parts.block()?;
            let mut batch = read.decode(layout, columns).map_err(damaged)?;
            self.leave_out(&mut batch, columns.iter().copied());
            return Ok((batch, read.header().gap_before));
        }
        let (mut batch, gap_before) = match block.part {
            None => {
                let bytes = segment.read_block(block, residents)?;
                let read = Block::read(&bytes).map_err(damaged)?;
                (read.decode(layout, columns).map_err(damaged)?, read.header().gap_before)
            }
            Some(part) => {
                let parts = segment.read_parts(block, part, residents)?;
                let gap_before = parts.get(part as usize).is_some_and(|part| part.header.gap_before);
                (parts.decode(part as usize, layout, columns).map_err(damaged)?, gap_before)
            }
        };
        let is_block = batch.stream == self.stream.id
            && batch.rows.first() == Some(&block.first_row)
            && batch.len() == block.rows as usize;
        if !is_block {
            return Err(self.misplaced(segment, block, batch.stream, batch.rows.first()));
        }
        self.leave_out(&mut batch, columns.iter().copied());
        Ok((batch, gap_before))
    }

    /// Calls `of` with a block whose columns are not decoded. Returns `None` if the block has no statistics, if values
    /// of these channels in it are left out, if `of` returns `None`, or if it is not the block that the index names,
    /// which decoding it would report.
    pub(crate) fn ask<T>(
        &self,
        segment: &Arc<Segment>,
        block: &BlockRef,
        channels: &[ChannelIndex],
        shared: &Shared,
        of: impl Fn(&Block<'_>) -> Result<Option<T>, FormatError>,
    ) -> Result<Option<T>, ScanError> {
        if block.part.is_some() || (block.rows as usize) < STATISTICS_MIN_ROWS {
            return Ok(None);
        }
        let is_left_out = |channel: &ChannelIndex| self.excluded_of(*channel).is_some_and(|s| s.overlaps(block.time));
        let is_believed = mutant::is_active(Mutant::BelieveExcludedBlocks);
        if self.excluded.is_some() && channels.iter().any(is_left_out) && !is_believed {
            return Ok(None);
        }
        let residents = &shared.residents;
        if self.may_be_parted(block)
            && let Some(mut parts) = PartedBlock::open(self, segment, block, residents)?
        {
            parts.load_statistics()?;
            return self.ask_it(&parts.block()?, block, of).map_err(|error| self.damaged(segment, block, error));
        }
        self.ask_bytes(segment, block, &segment.read_block(block, residents)?, of)
    }

    /// Returns the statistics of channels of a block, if [`StreamView::ask`] can tell them.
    pub(crate) fn statistics(
        &self,
        segment: &Arc<Segment>,
        block: &BlockRef,
        channels: &[ChannelIndex],
        shared: &Shared,
    ) -> Result<Option<Vec<ColumnStatistics>>, ScanError> {
        self.ask(segment, block, channels, shared, |read| {
            channels.iter().map(|channel| read.statistics_of(channel.0.into())).collect()
        })
    }

    /// Calls `of` with a block of which all bytes were read, like [`StreamView::ask`]. Callers see to values that are left
    /// out.
    pub(crate) fn ask_bytes<T>(
        &self,
        segment: &Arc<Segment>,
        block: &BlockRef,
        bytes: &[u8],
        of: impl Fn(&Block<'_>) -> Result<Option<T>, FormatError>,
    ) -> Result<Option<T>, ScanError> {
        if (block.rows as usize) < STATISTICS_MIN_ROWS {
            return Ok(None);
        }
        let asked = Block::read(bytes).and_then(|read| self.ask_it(&read, block, of));
        asked.map_err(|error| self.damaged(segment, block, error))
    }

    /// Calls `of` with what was read, if it is the block that the index names.
    fn ask_it<T>(
        &self,
        read: &Block<'_>,
        block: &BlockRef,
        of: impl Fn(&Block<'_>) -> Result<Option<T>, FormatError>,
    ) -> Result<Option<T>, FormatError> {
        let header = read.header();
        let is_it = header.stream == self.stream.id && header.first_row == block.first_row;
        if is_it { of(read) } else { Ok(None) }
    }

    /// Returns an error for a block that holds other rows than those in the directory.
    pub(crate) fn misplaced(
        &self,
        segment: &Segment,
        block: &BlockRef,
        stream: StreamId,
        row: Option<&u64>,
    ) -> ScanError {
        ScanError::Damaged {
            file: segment.path(),
            offset: block.offset.into(),
            reason: format!("holds row {row:?} of stream {}", stream.0),
        }
    }

    /// Returns an error for a damaged block.
    pub(crate) fn damaged(&self, segment: &Segment, block: &BlockRef, error: FormatError) -> ScanError {
        segment.damaged(block.offset.into(), error)
    }

    /// Returns the chunks and the number of their rows in the view, oldest first.
    pub(crate) fn chunks(&self) -> impl DoubleEndedIterator<Item = (&Arc<crate::append::chunk::Chunk>, usize)> {
        let last = self.open.chunks.len().wrapping_sub(1);
        self.open.chunks.iter().enumerate().map(move |(i, c)| (c, if i == last { self.last_len } else { c.len() }))
    }
}
