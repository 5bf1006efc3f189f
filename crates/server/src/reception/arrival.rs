//! Arrival times of frames per stream. Runs on the hot path, so it takes only a few integer operations per frame.
//!
//! Kept under the fan-out's lock, which ingest holds anyway. Once a second [`Arrivals::take`] passes the windows of
//! streams that had frames with a stamp to the estimates ([`crate::sources::clocks::estimate`]).

use strongback_sources::clock::is_never_set;
use strongback_store::StreamId;

/// Number of streams that are timed, the first of the store; others have neither histogram nor clock.
pub const STREAMS_MAX: usize = 16_384;
/// Upper bounds, inclusive, of the histogram's buckets of times between frames, nanoseconds. One more bucket holds
/// longer times. The limits of [`OVER_NS`] are among the bounds.
pub const EDGES_NS: [i64; 22] = [
    10_000,
    100_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    15_000_000,
    20_000_000,
    25_000_000,
    35_000_000,
    45_000_000,
    60_000_000,
    80_000_000,
    110_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    60_000_000_000,
];
/// Limits over which times between frames are counted, nanoseconds.
pub const OVER_NS: [i64; 5] = [2_000_000, 5_000_000, 25_000_000, 45_000_000, 110_000_000];
/// Frames received longer ago, or further ahead, than this are imported, not live.
const LIVE_NS: i64 = 60_000_000_000;

/// Statistics of one stream over a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivalWindow {
    /// Min delay in the window, nanoseconds.
    pub least_ns: i64,
    /// `receive_time` of the frame with the min delay.
    pub at: i64,
    /// Mean delay minus min delay, nanoseconds.
    pub above_ns: i64,
    /// Whether the stamps are from before the clock was set.
    pub never_set: bool,
}

/// For each power of two, the first bucket that a time of that magnitude can be in.
const FIRST_BUCKET: [u8; 64] = {
    let mut first = [0; 64];
    let mut power = 0;
    while power < 64 {
        let mut bucket = 0;
        while bucket < EDGES_NS.len() && (EDGES_NS[bucket] as u64) < 1_u64 << power {
            bucket += 1;
        }
        first[power] = bucket as u8;
        power += 1;
    }
    first
};

/// Returns the bucket of a time between two frames.
#[inline]
fn bucket_of(gap_ns: i64) -> usize {
    let mut bucket = FIRST_BUCKET[gap_ns.max(1).ilog2() as usize] as usize;
    while bucket < EDGES_NS.len() && gap_ns > EDGES_NS[bucket] {
        bucket += 1;
    }
    bucket
}

/// Number of times between frames in each bucket, since start.
pub type Histogram = [u64; EDGES_NS.len() + 1];

/// Counts the times over each limit of [`OVER_NS`].
pub fn over(counts: &Histogram) -> [u64; OVER_NS.len()] {
    OVER_NS.map(|limit| {
        let within = EDGES_NS.iter().filter(|edge| **edge <= limit).count();
        counts[within..].iter().sum()
    })
}

#[derive(Clone, Debug)]
struct Arrival {
    /// Newest `receive_time`; 0 before the first.
    last: i64,
    /// Frames with a stamp in this window.
    frames: u32,
    never_set: bool,
    least_ns: i64,
    least_at: i64,
    /// First delay of the window; delays are summed as differences from it.
    reference_ns: i64,
    sum_ns: i64,
    counts: Histogram,
}

const NOTHING: Arrival = Arrival {
    last: 0,
    frames: 0,
    never_set: false,
    least_ns: 0,
    least_at: 0,
    reference_ns: 0,
    sum_ns: 0,
    counts: [0; EDGES_NS.len() + 1],
};

/// Arrival times of all streams.
#[derive(Debug, Default)]
pub struct Arrivals {
    streams: Vec<Arrival>,
    /// Streams with a window.
    touched: Vec<StreamId>,
}

impl Arrivals {
    /// Adds a new frame, not a duplicate. Times are nanoseconds since 1970 UTC.
    #[inline]
    pub fn frame(&mut self, stream: StreamId, receive_time: i64, source_time: Option<i64>, now: i64) {
        let at = stream.0 as usize;
        if at >= self.streams.len() {
            if at >= STREAMS_MAX {
                return;
            }
            self.streams.resize(at + 1, NOTHING);
        }
        if now.saturating_sub(receive_time).unsigned_abs() > LIVE_NS as u64 {
            return;
        }
        let arrival = &mut self.streams[at];
        let gap_ns = receive_time.saturating_sub(arrival.last);
        // Do not count frames that overtook each other in this process, or a clock that was set back.
        if gap_ns >= 0 {
            if arrival.last != 0 {
                arrival.counts[bucket_of(gap_ns)] += 1;
            }
            arrival.last = receive_time;
        } else if gap_ns < -LIVE_NS {
            arrival.last = receive_time;
        }
        let Some(source_time) = source_time else { return };
        let delay_ns = receive_time.saturating_sub(source_time);
        if arrival.frames == 0 {
            self.touched.push(stream);
            (arrival.least_ns, arrival.least_at) = (delay_ns, receive_time);
            (arrival.reference_ns, arrival.sum_ns) = (delay_ns, 0);
            arrival.never_set = is_never_set(source_time, receive_time);
        } else if delay_ns < arrival.least_ns {
            (arrival.least_ns, arrival.least_at) = (delay_ns, receive_time);
            arrival.never_set = is_never_set(source_time, receive_time);
        }
        arrival.sum_ns = arrival.sum_ns.saturating_add(delay_ns.saturating_sub(arrival.reference_ns));
        arrival.frames = arrival.frames.saturating_add(1);
    }

    /// Ends the windows and moves them to `windows`, which is cleared first.
    pub fn take(&mut self, windows: &mut Vec<(StreamId, ArrivalWindow)>) {
        windows.clear();
        for stream in self.touched.drain(..) {
            let arrival = &mut self.streams[stream.0 as usize];
            let mean_ns = arrival.reference_ns.saturating_add(arrival.sum_ns / i64::from(arrival.frames.max(1)));
            windows.push((
                stream,
                ArrivalWindow {
                    least_ns: arrival.least_ns,
                    at: arrival.least_at,
                    above_ns: mean_ns.saturating_sub(arrival.least_ns),
                    never_set: arrival.never_set,
                },
            ));
            arrival.frames = 0;
        }
    }

    /// Returns the histogram of times between frames of a stream, or `None` before the second frame and for streams
    /// that are not timed.
    pub fn histogram(&self, stream: StreamId) -> Option<Histogram> {
        let counts = self.streams.get(stream.0 as usize)?.counts;
        counts.iter().any(|n| *n > 0).then_some(counts)
    }

    /// Clears all state, because stream numbers now refer to other streams.
    pub fn clear(&mut self) {
        *self = Arrivals::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: i64 = 1_780_000_000_000_000_000;
    const STREAM: StreamId = StreamId(3);

    #[test]
    fn buckets_are_those_of_their_edges() {
        let slow = |gap: i64| EDGES_NS.iter().position(|edge| gap <= *edge).unwrap_or(EDGES_NS.len());
        let mut random = fastrand::Rng::with_seed(1);
        let near = EDGES_NS.iter().flat_map(|edge| [edge - 1, *edge, edge + 1]);
        let any = (0..100_000).map(|_| random.i64(0..=i64::MAX) >> random.u32(0..63));
        for gap in near.chain(any).chain([0, 1, i64::MAX]) {
            assert_eq!(bucket_of(gap), slow(gap), "{gap}");
        }
        assert!(EDGES_NS.is_sorted() && OVER_NS.iter().all(|limit| EDGES_NS.contains(limit)));
    }

    #[test]
    fn times_between_frames_are_counted_and_so_are_those_over_limits() {
        let mut arrivals = Arrivals::default();
        let gaps = [1_000_000, 2_000_000, 2_000_001, 30_000_000, 44_000_000, 111_000_000, 0];
        let mut at = T0;
        arrivals.frame(STREAM, at, None, at);
        assert_eq!(arrivals.histogram(STREAM), None);
        for gap in gaps {
            at += gap;
            arrivals.frame(STREAM, at, None, at);
        }
        // Older than the newest frame: not counted.
        arrivals.frame(STREAM, at - 5, None, at);
        let counts = arrivals.histogram(STREAM).unwrap();
        assert_eq!(counts.iter().sum::<u64>(), gaps.len() as u64);
        assert_eq!(over(&counts), [4, 3, 3, 1, 1]);
        // Imported frames have old times.
        arrivals.frame(STREAM, T0 - 3_600_000_000_000, Some(1), at);
        assert_eq!(arrivals.histogram(STREAM).unwrap(), counts);
        arrivals.frame(StreamId(STREAMS_MAX as u32), at, Some(at), at);
        assert_eq!(arrivals.histogram(StreamId(STREAMS_MAX as u32)), None);
        let mut windows = Vec::new();
        arrivals.take(&mut windows);
        assert_eq!(windows, []);
    }

    #[test]
    fn windows_have_the_least_delay_and_how_far_the_mean_is_above() {
        let mut arrivals = Arrivals::default();
        let mut windows = Vec::new();
        for (n, delay) in [5_000, 2_000, 8_000, 5_000].into_iter().enumerate() {
            let at = T0 + n as i64 * 1_000_000;
            arrivals.frame(STREAM, at, Some(at - delay), at);
        }
        arrivals.frame(StreamId(1), T0, Some(755_000_000_000), T0);
        arrivals.take(&mut windows);
        let window = ArrivalWindow { least_ns: 2_000, at: T0 + 1_000_000, above_ns: 3_000, never_set: false };
        assert_eq!(windows[0], (STREAM, window));
        assert!(windows[1].1.never_set && windows.len() == 2);
        arrivals.take(&mut windows);
        assert_eq!(windows, []);
    }
}
