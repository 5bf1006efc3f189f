//! A place in the one order in which streams are played: `time`, stream, row.

use strongback_store::StreamId;

/// What lies between two jumps of a playback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// How often it jumped before.
    pub number: u64,
    /// Where it went, nanoseconds since 1970 UTC.
    pub at: i64,
}

/// A place: that of a frame, or between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// `time`, nanoseconds since 1970 UTC.
    pub time: i64,
    /// The stream.
    pub stream: StreamId,
    /// The row.
    pub row: u64,
}

impl Place {
    /// Before everything.
    pub const START: Place = Place { time: i64::MIN, stream: StreamId(0), row: 0 };

    /// Behind all frames of a `time`.
    pub fn after(time: i64) -> Place {
        Place { time, stream: StreamId(u32::MAX), row: u64::MAX }
    }

    /// Before all frames of a `time`.
    pub fn before(time: i64) -> Place {
        Place::after(time.saturating_sub(1))
    }

    /// The newest `time` whose frames of a stream all lie before it, those of its own row's time taken as one.
    pub fn last_time_of(self, stream: StreamId) -> i64 {
        if stream <= self.stream { self.time } else { self.time.saturating_sub(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_divides_each_stream() {
        let place = Place { time: 5, stream: StreamId(3), row: 8 };
        assert_eq!([2, 3, 4].map(|stream| place.last_time_of(StreamId(stream))), [5, 5, 4]);
        assert_eq!((Place::after(5).last_time_of(StreamId(9)), Place::before(5).last_time_of(StreamId(9))), (5, 4));
        assert!(Place::before(5) < place && place < Place::after(5) && Place::START < Place::before(i64::MIN + 2));
    }
}
