//! Reading the statistics pyramid of one channel in a compacted segment: see [`crate::segment::pyramid`].

use std::ops::Range;
use std::sync::Arc;

use crate::model::excluded::ExcludedSpans;
use crate::model::refusal::ScanError;
use crate::model::stream::ChannelIndex;
use crate::read::stream_view::StreamView;
use crate::segment::directory::{BlockRef, Residents, Segment};
use crate::segment::pyramid::{FAN, Node, Table};

/// Pyramid of a channel.
pub(crate) struct Pyramid {
    segment: Arc<Segment>,
    /// Offset in the segment.
    start: u64,
    table: Table,
    /// All blocks of the stream in the segment.
    pub(crate) blocks: Vec<BlockRef>,
    /// Group read last of each level, with its number.
    groups: Vec<Option<(usize, Vec<Node>)>>,
    /// Spans in which values are left out, for which nodes do not stand.
    excluded: Option<Arc<ExcludedSpans>>,
}

impl Pyramid {
    /// Opens the pyramid of a stream's channel over all of these blocks. Returns `None` if there is none or it is damaged;
    /// callers then fall back to the blocks.
    ///
    /// # Errors
    /// When the disk fails, or the segment was expired.
    pub(crate) fn of(
        segment: &Arc<Segment>,
        (view, channel): (&StreamView, ChannelIndex),
        blocks: &[BlockRef],
        residents: &Residents,
    ) -> Result<Option<Pyramid>, ScanError> {
        if !segment.is_settled() {
            return Ok(None);
        }
        let (stream, excluded) = (view.stream.id.0, view.excluded_of(channel).cloned());
        let found = segment.pyramid(stream, channel.0.into(), residents)?;
        let Some((start, (table_bytes, all))) = found else { return Ok(None) };
        let bytes = segment.read_bytes(start, table_bytes as usize, residents)?;
        let table = Table::read(&bytes, all).ok().filter(|table| table.blocks == blocks.len());
        let Some(table) = table else { return Ok(None) };
        let groups = (0..table.levels()).map(|_| None).collect();
        Ok(Some(Pyramid { segment: segment.clone(), start, table, blocks: blocks.to_vec(), groups, excluded }))
    }

    /// Returns the number of levels.
    pub(crate) fn levels(&self) -> usize {
        self.table.levels()
    }

    /// Returns the number of nodes of a level.
    pub(crate) fn nodes(&self, level: usize) -> usize {
        self.blocks.len().div_ceil(FAN.pow(level as u32))
    }

    /// Returns the blocks that a node covers.
    pub(crate) fn blocks_of(&self, level: usize, node: usize) -> Range<usize> {
        self.table.blocks_of(level, node)
    }

    /// Returns the smallest and largest `time` of some of the blocks.
    pub(crate) fn time_of(&self, blocks: &Range<usize>) -> Option<(i64, i64)> {
        let of = self.blocks.get(blocks.clone())?;
        Some((of.first()?.time.0, of.last()?.time.1))
    }

    /// Reads a node, or returns `None` if it is damaged or covers values that are left out; callers then fall back to
    /// its blocks.
    ///
    /// # Errors
    /// When the disk fails, or the segment was expired.
    pub(crate) fn node(
        &mut self,
        level: usize,
        node: usize,
        residents: &Residents,
    ) -> Result<Option<&Node>, ScanError> {
        if let Some(excluded) = &self.excluded
            && self.time_of(&self.blocks_of(level, node)).is_none_or(|time| excluded.overlaps(time))
        {
            return Ok(None);
        }
        let number = node / FAN;
        if self.groups.get(level).is_some_and(|group| group.as_ref().is_none_or(|(have, _)| *have != number)) {
            let Some((offset, len)) = self.table.group(level, node) else { return Ok(None) };
            let bytes = self.segment.read_bytes(self.start + u64::from(offset), len as usize, residents)?;
            let nodes = self.table.nodes(&bytes, level, number, &self.blocks);
            self.groups[level] = Some((number, nodes.unwrap_or_default()));
        }
        let group = self.groups.get(level).and_then(|group| group.as_ref());
        Ok(group.and_then(|(_, nodes)| nodes.get(node % FAN)))
    }
}
