//! Numbers of blocks by what a reader did with them.

/// Numbers of blocks by what a reader did with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Blocks that were decoded.
    pub read: u64,
    /// Blocks of which the statistics were taken in place of their rows.
    pub by_statistics: u64,
    /// Blocks below nodes of statistics pyramids that were taken in place of their rows.
    pub by_pyramid: u64,
    /// Blocks that were passed over, because by their statistics no row of them fulfils the conditions.
    pub passed: u64,
}

impl BlockCounts {
    /// Returns what was added since an earlier state.
    pub fn since(&self, before: &BlockCounts) -> BlockCounts {
        BlockCounts {
            read: self.read - before.read,
            by_statistics: self.by_statistics - before.by_statistics,
            by_pyramid: self.by_pyramid - before.by_pyramid,
            passed: self.passed - before.passed,
        }
    }
}
