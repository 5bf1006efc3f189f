//! Positions in the total order of frames: `time`, stream, row.

use crate::model::stream::StreamId;

/// Position of a frame, or between frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FramePosition {
    /// `time`, nanoseconds since 1970 UTC.
    pub time: i64,
    /// Stream of the frame.
    pub stream: StreamId,
    /// Row of the frame.
    pub row: u64,
}

impl FramePosition {
    /// Position before all frames.
    pub const START: FramePosition = FramePosition { time: i64::MIN, stream: StreamId(0), row: 0 };

    /// Returns the position after all frames of a `time`.
    pub fn after(time: i64) -> FramePosition {
        FramePosition { time, stream: StreamId(u32::MAX), row: u64::MAX }
    }

    /// Returns the position before all frames of a `time`.
    pub fn before(time: i64) -> FramePosition {
        FramePosition::after(time.saturating_sub(1))
    }

    /// Returns the newest `time` for which all frames of a stream are before the position. Frames with the same stream
    /// and time as the position count as before it.
    pub fn last_time_of(self, stream: StreamId) -> i64 {
        if stream <= self.stream { self.time } else { self.time.saturating_sub(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_divides_each_stream() {
        let position = FramePosition { time: 5, stream: StreamId(3), row: 8 };
        assert_eq!([2, 3, 4].map(|stream| position.last_time_of(StreamId(stream))), [5, 5, 4]);
        let (after, before) = (FramePosition::after(5), FramePosition::before(5));
        assert_eq!((after.last_time_of(StreamId(9)), before.last_time_of(StreamId(9))), (5, 4));
        assert!(before < position && position < after && FramePosition::START < FramePosition::before(i64::MIN + 2));
    }
}
