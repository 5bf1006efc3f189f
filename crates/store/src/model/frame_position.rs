//! Positions in the one order of frames: `time`, stream, row.

use crate::model::stream::StreamId;

/// The position of a frame, or one between frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FramePosition {
    /// `time`, nanoseconds since 1970 UTC.
    pub time: i64,
    /// The stream.
    pub stream: StreamId,
    /// The row.
    pub row: u64,
}

impl FramePosition {
    /// Before everything.
    pub const START: FramePosition = FramePosition { time: i64::MIN, stream: StreamId(0), row: 0 };

    /// Behind all frames of a `time`.
    pub fn after(time: i64) -> FramePosition {
        FramePosition { time, stream: StreamId(u32::MAX), row: u64::MAX }
    }

    /// Before all frames of a `time`.
    pub fn before(time: i64) -> FramePosition {
        FramePosition::after(time.saturating_sub(1))
    }

    /// Returns the newest `time` whose frames of a stream all lie before the position. The frames of the position's own
    /// stream and time count as one.
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
