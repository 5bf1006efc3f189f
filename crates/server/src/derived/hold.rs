//! Order of event time: frames are held back, and released by (`time`, stream, row).
//!
//! A frame is due once it has been held for the alignment time, and all frames before it are released with it. A
//! frame that arrives after one of its successors was released is late: it gets no turn here, and the caller records
//! it.

use std::collections::VecDeque;

use strongback_query::Cell;
use strongback_store::ChannelIndex;

use crate::reception::TappedFrame;
use crate::reception::order::Order;
use crate::reception::value::InputValue;

/// Max frames held; further ones are read from stored data when it is their turn.
const FRAMES_MAX: usize = 300_000;
/// Max bytes of frames held.
const BYTES_MAX: usize = 128 << 20;
/// Bytes per held frame for its place in the order and its arrival.
const PLACE_BYTES: usize = 64;

/// Place of a frame in the order: `time`, stream, row.
pub type Key = (i64, u32, u64);

/// Place before every frame.
pub const FIRST: Key = (i64::MIN, 0, 0);

/// Returns the place of a frame. One that was not recorded comes last of its stream and `time`.
pub fn key(frame: &TappedFrame<InputValue>) -> Key {
    (frame.time, frame.stream.0, frame.row.unwrap_or(u64::MAX))
}

/// Returns the place just before another one.
pub fn before(key: Key) -> Key {
    match key {
        (time, stream, row) if row > 0 => (time, stream, row - 1),
        (time, stream, _) if stream > 0 => (time, stream - 1, u64::MAX),
        (time, ..) => (time.saturating_sub(1), u32::MAX, u64::MAX),
    }
}

/// Frames held back until their turn.
#[derive(Debug, Default)]
pub struct Hold {
    order: Order<TappedFrame<InputValue>>,
    /// Arrivals of frames still held, in order; only of frames whose place is after all earlier arrivals.
    arrivals: VecDeque<(i64, Key)>,
    bytes: usize,
}

impl Hold {
    /// Adds a frame that arrived at `now`.
    pub fn push(&mut self, now: i64, frame: TappedFrame<InputValue>) {
        let key = key(&frame);
        self.bytes += bytes_of(&frame);
        self.order.push(frame.time, frame.stream, frame.row, frame);
        if self.arrivals.back().is_none_or(|(_, newest)| *newest < key) {
            self.arrivals.push_back((now, key));
        }
    }

    /// Shifts the arrivals by `by_ns`, because the clock was set by that much.
    pub fn leap(&mut self, by_ns: i64) {
        self.arrivals.iter_mut().for_each(|(arrival, _)| *arrival = arrival.saturating_add(by_ns));
    }

    /// Releases the frames that are due at `now`, held back by `align_ns`, but none from `limit` on.
    pub fn release(&mut self, now: i64, align_ns: i64, limit: Option<Key>) -> Vec<TappedFrame<InputValue>> {
        let mut due = None;
        while let Some((arrival, key)) = self.arrivals.front()
            && now.saturating_sub(*arrival) >= align_ns
            && limit.is_none_or(|limit| *key < limit)
        {
            due = Some(*key);
            self.arrivals.pop_front();
        }
        // A due frame beyond the limit releases those before the limit.
        let beyond = self.arrivals.front().is_some_and(|(arrival, _)| now.saturating_sub(*arrival) >= align_ns);
        let end = if beyond { limit.map(before).max(due) } else { due };
        end.map_or_else(Vec::new, |end| self.release_to(end))
    }

    /// Releases all frames up to and including a place.
    pub fn release_to(&mut self, end: Key) -> Vec<TappedFrame<InputValue>> {
        let mut frames = Vec::new();
        while self.order.first().is_some_and(|first| first <= end) {
            frames.extend(self.order.pop());
        }
        self.bytes -= frames.iter().map(bytes_of).sum::<usize>();
        frames
    }

    /// Removes all frames.
    pub fn clear(&mut self) {
        *self = Hold::default();
    }

    /// Returns the place of the earliest frame held.
    pub fn first(&self) -> Option<Key> {
        self.order.first()
    }

    /// Returns whether there is no space for another frame.
    pub fn is_full(&self) -> bool {
        self.order.len() >= FRAMES_MAX || self.bytes >= BYTES_MAX
    }

    /// Returns whether half of the space is used.
    pub fn is_half_full(&self) -> bool {
        self.order.len() >= FRAMES_MAX / 2 || self.bytes >= BYTES_MAX / 2
    }
}

/// Returns the bytes that a held frame takes.
fn bytes_of(frame: &TappedFrame<InputValue>) -> usize {
    let of_text = |(_, seen): &(ChannelIndex, InputValue)| match &seen.0 {
        Cell::Text(text) => text.len(),
        _ => 0,
    };
    let texts: usize = frame.readings.iter().map(of_text).sum();
    PLACE_BYTES + size_of_val(frame) + size_of_val(frame.readings.as_slice()) + texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongback_store::StreamId;

    fn frame(time: i64, stream: u32, row: u64) -> TappedFrame<InputValue> {
        TappedFrame { stream: StreamId(stream), row: Some(row), time, receive_time: time, readings: Vec::new() }
    }

    #[test]
    fn whoever_comes_within_the_alignment_has_its_turn() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut hold, mut sent, mut out) = (Hold::default(), Vec::new(), Vec::new());
            let (mut released, mut late) = (FIRST, 0);
            // Frames every 1, each delayed by up to 30; 20 are waited for.
            let mut coming: Vec<(i64, TappedFrame<InputValue>)> = (0..200)
                .map(|n| {
                    (n + random.i64(0..if seed % 2 == 0 { 20 } else { 30 }), frame(n / 2, random.u32(0..3), n as u64))
                })
                .collect();
            coming.sort_by_key(|(arrival, frame)| (*arrival, frame.row));
            let mut coming = coming.into_iter().peekable();
            for now in 0..260 {
                while let Some((_, frame)) = coming.next_if(|(arrival, _)| *arrival == now) {
                    if key(&frame) < released {
                        late += 1;
                        continue;
                    }
                    sent.push(key(&frame));
                    hold.push(now, frame);
                }
                if random.bool() {
                    for frame in hold.release(now, 20, None) {
                        released = key(&frame);
                        out.push(released);
                    }
                }
            }
            sent.sort_unstable();
            assert_eq!(out, sent, "seed {seed}");
            assert!(hold.first().is_none() && (seed % 2 == 1 || late == 0), "seed {seed}: {late} late");
        }
    }

    #[test]
    fn texts_take_the_room_that_they_need() {
        let text = "x".repeat(1_024);
        let texts: Vec<_> = (0..64).map(|at| (ChannelIndex(at), InputValue(Cell::text(&text)))).collect();
        let mut hold = Hold::default();
        let (mut half, mut frames) = (0, 0);
        while !hold.is_full() {
            half += i64::from(!hold.is_half_full());
            hold.push(0, TappedFrame { readings: texts.clone(), ..frame(frames, 1, frames as u64) });
            frames += 1;
        }
        // Each takes 64 KiB of text, plus the overhead of a frame.
        assert!((1_800..2_048).contains(&frames), "{frames} frames");
        assert!((half - frames / 2).abs() <= 1, "{half} of {frames} frames");
        assert_eq!(hold.release_to((frames / 2, 0, 0)).len() as i64, frames / 2);
        assert!(!hold.is_full());
        assert_eq!(hold.release(20, 20, None).len() as i64, frames - frames / 2);
        assert_eq!(hold.bytes, 0);
    }

    #[test]
    fn a_clock_that_is_set_changes_no_turn() {
        let mut hold = Hold::default();
        hold.push(7_200, frame(5, 1, 5));
        hold.leap(-7_200);
        assert!(hold.release(19, 20, None).is_empty());
        assert_eq!(hold.release(20, 20, None).len(), 1);
    }

    #[test]
    fn a_limit_lets_only_those_before_it_go() {
        let mut hold = Hold::default();
        [5, 3, 9].into_iter().for_each(|time| hold.push(0, frame(time, 1, time as u64)));
        let times = |frames: Vec<TappedFrame<InputValue>>| frames.iter().map(|frame| frame.time).collect::<Vec<_>>();
        assert!(hold.release(19, 20, None).is_empty());
        assert_eq!(times(hold.release(20, 20, Some((5, 1, 5)))), [3]);
        assert_eq!(times(hold.release(20, 20, Some((5, 1, 6)))), [5]);
        assert_eq!(times(hold.release(20, 20, None)), [9]);
        assert_eq!((before((4, 2, 7)), before((4, 2, 0))), ((4, 2, 6), (4, 1, u64::MAX)));
    }
}
