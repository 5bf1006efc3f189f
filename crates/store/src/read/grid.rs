//! A channel on a grid of instants.

use crate::model::reduction::Reduction;
use crate::model::refusal::ScanError;
use crate::model::stream::{ChannelIndex, Interpolation, StreamId};
use crate::read::intervals::{Reading, between};
use crate::read::points::{Point, PointOrBlock, Points};
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
        let points = if count == 0 { None } else { Points::new(self, stream, column, grid.start..end)? };
        let Some(mut points) = points else {
            out.resize(count, None);
            return Ok(out);
        };
        let channel = points.channel();
        let reduced = matches!(channel.reduction, Reduction::SwingingDoor { .. });
        let linear = channel.interpolation == Interpolation::Linear && (how == Resample::Interpolated || reduced);
        let mut last: Option<Point> = None;
        while out.len() < count {
            let next = match points.next()? {
                Some(PointOrBlock::Point(point)) => Some(point),
                Some(PointOrBlock::Block(..)) => continue,
                None => None,
            };
            while out.len() < count {
                let at = grid.instant(out.len());
                if next.as_ref().is_some_and(|next| next.time <= at) {
                    break;
                }
                out.push(last.as_ref().and_then(|from| {
                    let value = match &next {
                        Some(next) if next.gap && from.time < at => return None,
                        Some(next) => between(from, next, at, linear),
                        None => from.value.clone(),
                    };
                    Some(Reading { value, since: from.time })
                }));
            }
            if next.is_none() {
                break;
            }
            last = next;
        }
        Ok(out)
    }
}
