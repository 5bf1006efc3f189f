//! Frames as limits and derived channels see them: tapped where they come in, put in one order, or read from the record.
//!
//! ```text
//! Fanout::publish ─> tap: readings of the channels asked for     a look-up a frame
//!                 ─> order: those that are held back, the earliest first
//! store::View ────> replay: the same readings, from what was recorded
//! ```

pub mod arrival;
pub mod order;
pub mod replay;
pub mod tap;
pub mod turns;
pub mod value;

use strongback_store::{ChannelIndex, StreamId};

/// A frame as it is looked at: its readings alone.
#[derive(Clone, Debug, PartialEq)]
pub struct TappedFrame<R> {
    /// Its stream.
    pub stream: StreamId,
    /// Its row, unless it reached the screens alone.
    pub row: Option<u64>,
    /// Its `time`, nanoseconds since 1970 UTC.
    pub time: i64,
    /// Its turn: when it was received, or, of one that limits judged late, when that was. Nanoseconds since 1970 UTC.
    pub receive_time: i64,
    /// Its readings of channels that were asked for.
    pub readings: Vec<(ChannelIndex, R)>,
}
