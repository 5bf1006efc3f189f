//! A channel on a grid of instants.

use crate::model::reduction::Reduction;
use crate::model::refusal::ScanError;
use crate::model::stream::{ChannelIndex, Interpolation, StreamId};
use crate::read::intervals::Reading;
use crate::read::sample_run::SampleCursor;
use crate::read::view::View;

/// Max number of instants in a grid.
pub const GRID_MAX: usize = 1 << 24;

/// Equidistant instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// First instant, nanoseconds since 1970 UTC.
    pub start: i64,
    /// Distance in nanoseconds; at least 1.
    pub step_ns: u64,
    /// Number of instants; at most [`GRID_MAX`] are answered.
    pub count: usize,
}

/// Rule for values between those stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resample {
    /// The newest value at or before the instant; a lossy channel is reconstructed by its own rule.
    AsOf,
    /// The channel's interpolation: held, or on the line to the next value.
    Interpolated,
}

impl Grid {
    /// Returns an instant of the grid; instants beyond the end of time become its last.
    fn instant(&self, index: usize) -> i64 {
        let offset = (index as u64).saturating_mul(self.step_ns.max(1));
        self.start.saturating_add_unsigned(offset)
    }
}

impl View {
    /// Returns the value of a channel at each instant of a grid, as [`View::value_at`] would one by one (with as-of,
    /// the value after an instant is ignored). Reads the stored data once.
    ///
    /// # Errors
    /// As for a scan.
    pub fn resample(
        &self,
        stream: StreamId,
        column: ChannelIndex,
        grid: Grid,
        how: Resample,
    ) -> Result<Vec<Option<Reading>>, ScanError> {
        let count = grid.count.min(GRID_MAX);
        let mut out = Vec::with_capacity(count);
        let end = grid.instant(count.saturating_sub(1));
        let runs = if count == 0 { None } else { self.samples(stream, column, grid.start, end)? };
        let Some(runs) = runs else {
            out.resize(count, None);
            return Ok(out);
        };
        let channel = runs.channel();
        let reduced = matches!(channel.reduction, Reduction::SwingingDoor { .. });
        let linear = channel.interpolation == Interpolation::Linear && (how == Resample::Interpolated || reduced);
        let mut cursor = SampleCursor::new(runs)?;
        for index in 0..count {
            let at = grid.instant(index);
            out.push(cursor.seek(at)?.at(at, linear));
        }
        Ok(out)
    }
}
