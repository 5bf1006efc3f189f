//! What a sealed segment holds of a stream.

use crate::segment::directory::BlockRef;

/// Rows of a stream in a sealed segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeStream {
    pub(crate) rows: u64,
    pub(crate) blocks: u64,
    /// Smallest and largest `time`.
    pub(crate) time: (i64, i64),
    /// Row after the last.
    pub(crate) end_row: u64,
}

impl WholeStream {
    /// Sums up all blocks of a stream in a segment, or returns `None` if there is none.
    pub(crate) fn of(blocks: &[BlockRef]) -> Option<WholeStream> {
        let time = blocks.iter().map(|block| block.time).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        let rows = blocks.iter().map(|block| u64::from(block.rows)).sum();
        let end_row = blocks.iter().map(BlockRef::end_row).max()?;
        Some(WholeStream { rows, blocks: blocks.len() as u64, time, end_row })
    }
}
