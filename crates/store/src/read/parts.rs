//! Blocks read in parts: the front of a wide block, and the requested columns.

use std::ops::Range;
use std::sync::Arc;

use crate::block::{self, Block, Front};
use crate::bytes::FormatError;
use crate::model::refusal::ScanError;
use crate::read::stream_view::StreamView;
use crate::segment::directory::{BlockRef, Residents, Segment};

/// Bytes of a block that are read first, mostly its front: a fixed number, and numbers per channel and per row.
const FIRST_BYTES: (usize, usize, usize) = (1 << 10, 16, 3);
/// Max gap in bytes between two columns that is read rather than skipped.
const BETWEEN_BYTES: usize = 4 << 10;

/// Parted block of which some parts were read.
pub(crate) struct PartedBlock<'a> {
    stream: &'a StreamView,
    segment: &'a Arc<Segment>,
    block: &'a BlockRef,
    residents: &'a Residents,
    /// Buffer as long as the block; bytes that were not read are undefined.
    bytes: Vec<u8>,
    front: Front,
}

impl Drop for PartedBlock<'_> {
    fn drop(&mut self) {
        self.residents.keep_buffer(std::mem::take(&mut self.bytes));
    }
}

impl<'a> PartedBlock<'a> {
    /// Reads the front of a block. Returns `None` if the block is not parted.
    ///
    /// # Errors
    /// When the disk fails, or the front is damaged.
    pub(crate) fn open(
        stream: &'a StreamView,
        segment: &'a Arc<Segment>,
        block: &'a BlockRef,
        residents: &'a Residents,
    ) -> Result<Option<PartedBlock<'a>>, ScanError> {
        let damaged = |error: FormatError| stream.damaged(segment, block, error);
        let mut bytes = residents.buffer(block.len as usize);
        let (least, of_channel, of_row) = FIRST_BYTES;
        let channels = stream.stream.layout.channels.len();
        let first = (least + of_channel * channels + of_row * block.rows as usize).min(bytes.len());
        segment.read_into(&mut bytes[..first], block.offset.into(), residents)?;
        let Some(begun) = block::begin(&bytes).map_err(damaged)? else { return Ok(None) };
        if let Some(more) = bytes.get_mut(first..begun.1).filter(|more| !more.is_empty()) {
            segment.read_into(more, u64::from(block.offset) + first as u64, residents)?;
        }
        let front = Front::read(begun, &bytes).map_err(damaged)?;
        let header = front.header();
        let is_block = header.stream == stream.stream.id
            && header.first_row == block.first_row
            && header.rows == block.rows as usize
            && header.length_bytes == block.len as usize;
        if !is_block {
            return Err(stream.misplaced(segment, block, header.stream, Some(&header.first_row)));
        }
        Ok(Some(PartedBlock { stream, segment, block, residents, bytes, front }))
    }

    /// Reads these channels; adjacent ones with one read.
    ///
    /// # Errors
    /// When the disk fails, or one is damaged.
    pub(crate) fn load(&mut self, channels: impl Iterator<Item = usize>) -> Result<(), ScanError> {
        let mut wanted: Vec<(Range<usize>, usize)> =
            channels.filter_map(|channel| Some((self.front.channel(channel)?, channel))).collect();
        wanted.sort_unstable_by_key(|(range, _)| range.start);
        for run in wanted.chunk_by(|a, b| b.0.start <= a.0.end + BETWEEN_BYTES) {
            let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else { continue };
            self.read(first.start..last.end)?;
            for (range, channel) in run {
                let checked = self.front.check_channel(*channel, &self.bytes[range.clone()]);
                checked.map_err(|error| self.damaged(range.start, error))?;
            }
        }
        Ok(())
    }

    /// Reads the statistics.
    ///
    /// # Errors
    /// When the disk fails, or they are damaged.
    pub(crate) fn load_statistics(&mut self) -> Result<(), ScanError> {
        let Some(range) = self.front.statistics() else { return Ok(()) };
        self.read(range.clone())?;
        let checked = self.front.check_statistics(&self.bytes[range.clone()]);
        checked.map_err(|error| self.damaged(range.start, error))
    }

    fn read(&mut self, range: Range<usize>) -> Result<(), ScanError> {
        let at = u64::from(self.block.offset) + range.start as u64;
        let part = self.bytes.get_mut(range).filter(|part| !part.is_empty());
        part.map_or(Ok(()), |part| self.segment.read_into(part, at, self.residents))
    }

    fn damaged(&self, at: usize, error: FormatError) -> ScanError {
        let offset = u64::from(self.block.offset) + at as u64;
        ScanError::Damaged { file: self.segment.path(), offset, reason: error.to_string() }
    }

    /// Returns the block with the parts that were read.
    ///
    /// # Errors
    /// When its positions lie beyond its end.
    pub(crate) fn block(&self) -> Result<Block<'_>, ScanError> {
        self.front.block(&self.bytes).map_err(|error| self.stream.damaged(self.segment, self.block, error))
    }
}
