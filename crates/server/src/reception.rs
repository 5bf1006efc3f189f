//! Frames as limits and derived channels see them: tapped on arrival and ordered, or read from stored data.
//!
//! ```text
//! Fanout::publish ─> tap: readings of the requested channels     one lookup per frame
//!                 ─> order: frames held back, earliest first
//! store::View ────> replay: the same readings, from stored data
//! ```

pub mod arrival;
pub mod order;
pub mod replay;
pub mod tap;
pub mod turns;
pub mod value;

use strongback_store::{ChannelIndex, StreamId};

/// Frame reduced to its readings.
#[derive(Clone, Debug, PartialEq)]
pub struct TappedFrame<R> {
    /// Stream of the frame.
    pub stream: StreamId,
    /// Row of the frame, or `None` if it was shown but not stored.
    pub row: Option<u64>,
    /// `time` of the frame, nanoseconds since 1970 UTC.
    pub time: i64,
    /// Turn of the frame, nanoseconds since 1970 UTC: its receive time, or when limits judged it, if they judged it
    /// late.
    pub receive_time: i64,
    /// Readings of the requested channels.
    pub readings: Vec<(ChannelIndex, R)>,
}
