//! Blocks of a stream decoded with several channels at once, for readers of one channel each that go through the same
//! span side by side. Without it, each of them would read and check the same bytes, and decode the same times.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::model::batch::Batch;
use crate::model::refusal::ScanError;
use crate::model::stream::{ChannelIndex, StreamId};
use crate::read::shared::Shared;
use crate::read::stream_view::StreamView;
use crate::segment::directory::{BlockRef, Segment};

/// Cells of the blocks that are kept, with their rows and times.
const CELLS_MAX: usize = 1 << 19;
/// Columns of a batch besides its channels: rows and both times.
const OTHER_COLUMNS: usize = 3;

/// Block decoded with some channels.
#[derive(Clone)]
pub(crate) struct DecodedBlock {
    pub(crate) batch: Arc<Batch>,
    /// Column of the batch that has the reader's channel.
    pub(crate) column: usize,
    /// Whether frames are known missing before its first one.
    pub(crate) gap_before: bool,
}

/// The blocks that were decoded last.
pub(crate) struct DecodedBlocks {
    stream: StreamId,
    channels: Vec<ChannelIndex>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Blocks by segment and first row, the newest last.
    blocks: VecDeque<((u64, u64), Arc<Batch>, bool)>,
    cells: usize,
    /// Largest first `time` among the blocks that were decoded with all channels.
    to: Option<i64>,
}

impl DecodedBlocks {
    /// Creates an empty one, for readers of these channels of a stream.
    pub(crate) fn new(stream: StreamId, channels: Vec<ChannelIndex>) -> DecodedBlocks {
        DecodedBlocks { stream, channels, kept: Mutex::default() }
    }

    /// Returns a block with a reader's channel. It is decoded with all channels, unless it lies before those that were,
    /// so that a reader which fell behind reads its own channel alone.
    ///
    /// # Errors
    /// When the disk fails, or the block is damaged.
    pub(crate) fn read(
        &self,
        stream: &StreamView,
        (segment, block): (&Arc<Segment>, &BlockRef),
        channel: ChannelIndex,
        shared: &Shared,
    ) -> Result<DecodedBlock, ScanError> {
        let column = self.channels.iter().position(|known| *known == channel);
        let Some(column) = column.filter(|_| self.stream == stream.stream.id) else {
            return alone(stream, (segment, block), channel, shared);
        };
        let key = (segment.id, block.first_row);
        let mut kept = self.kept.lock();
        let found = kept.blocks.iter().rev().find(|(of, ..)| *of == key);
        if let Some((_, batch, gap_before)) = found {
            return Ok(DecodedBlock { batch: batch.clone(), column, gap_before: *gap_before });
        }
        if kept.to.is_some_and(|to| block.time.0 <= to) {
            drop(kept);
            return alone(stream, (segment, block), channel, shared);
        }
        let (batch, gap_before) = stream.read_with_gap(segment, block, &self.channels, shared)?;
        let batch = Arc::new(batch);
        kept.to = Some(block.time.0);
        kept.cells += self.cells(&batch);
        kept.blocks.push_back((key, batch.clone(), gap_before));
        while kept.cells > CELLS_MAX
            && kept.blocks.len() > 1
            && let Some((_, oldest, _)) = kept.blocks.pop_front()
        {
            kept.cells -= self.cells(&oldest);
        }
        Ok(DecodedBlock { batch, column, gap_before })
    }

    fn cells(&self, batch: &Batch) -> usize {
        batch.len() * (self.channels.len() + OTHER_COLUMNS)
    }
}

/// Decodes a block with one channel.
///
/// # Errors
/// When the disk fails, or the block is damaged.
pub(crate) fn alone(
    stream: &StreamView,
    (segment, block): (&Arc<Segment>, &BlockRef),
    channel: ChannelIndex,
    shared: &Shared,
) -> Result<DecodedBlock, ScanError> {
    let (batch, gap_before) = stream.read_with_gap(segment, block, &[channel], shared)?;
    Ok(DecodedBlock { batch: Arc::new(batch), column: 0, gap_before })
}
