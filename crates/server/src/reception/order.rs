//! One order for all that is looked at, whichever thread brought it: for limits that of reception.
//!
//! Sources are not synchronised, but everything is stamped at reception by one clock. Frames are held back a little and
//! let go in the order of (receive time, stream, row). The same frames read from the store come out in the same order, so
//! that what is decided on them live and in replay is the same. A frame that is handed in after its turn comes next: the
//! caller notes its new turn, with which the record gives the same order again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use strongback_store::StreamId;

/// Frames that are held back.
#[derive(Debug)]
pub struct Order<T> {
    held: BinaryHeap<Reverse<HeldFrame<T>>>,
    /// What was received before has been let go.
    watermark: i64,
    arrived: u64,
}

#[derive(Debug)]
struct HeldFrame<T> {
    /// Turn, stream, row, arrival.
    key: (i64, u32, u64, u64),
    item: T,
}

impl<T> PartialEq for HeldFrame<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<T> Eq for HeldFrame<T> {}

impl<T> PartialOrd for HeldFrame<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for HeldFrame<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Order { held: BinaryHeap::new(), watermark: i64::MIN, arrived: 0 }
    }
}

impl<T> Order<T> {
    /// The turn of what was received at `receive_time` (nanoseconds since 1970 UTC): that instant, unless later ones were
    /// let go already.
    pub fn turn(&self, receive_time: i64) -> i64 {
        receive_time.max(self.watermark)
    }

    /// Takes something with its turn. Rows decide between equal turns of a stream; without a row it comes last.
    pub fn push(&mut self, turn: i64, stream: StreamId, row: Option<u64>, item: T) {
        self.arrived += 1;
        self.held.push(Reverse(HeldFrame { key: (turn, stream.0, row.unwrap_or(u64::MAX), self.arrived), item }));
    }

    /// The next whose turn is before `watermark`, which never falls.
    pub fn pop_before(&mut self, watermark: i64) -> Option<T> {
        self.watermark = self.watermark.max(watermark);
        if self.held.peek()?.0.key.0 >= self.watermark {
            return None;
        }
        self.held.pop().map(|Reverse(held)| held.item)
    }

    /// Turn, stream and row of the earliest that is held back.
    pub fn first(&self) -> Option<(i64, u32, u64)> {
        self.held.peek().map(|Reverse(held)| (held.key.0, held.key.1, held.key.2))
    }

    /// The earliest, whatever its turn.
    pub fn pop(&mut self) -> Option<T> {
        self.held.pop().map(|Reverse(held)| held.item)
    }

    /// How many are held back.
    pub fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_arrival_the_order_is_that_of_the_turns() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut order = Order::default();
            let (mut clock, mut taken, mut out, mut late) = (0_i64, Vec::new(), Vec::new(), 0);
            for row in 0..300_u64 {
                clock += random.i64(0..5);
                // Handed in up to 12 after it was received; 8 are waited for.
                let (receive_time, stream) = (clock - random.i64(0..12), random.u32(0..3));
                let turn = order.turn(receive_time);
                assert!(turn == receive_time || turn <= clock - 8, "{receive_time} at {clock}");
                late += u64::from(turn > receive_time);
                taken.push((turn, stream, row));
                order.push(turn, StreamId(stream), Some(row), (turn, stream, row));
                out.extend(std::iter::from_fn(|| order.pop_before(clock - 8)));
            }
            out.extend(std::iter::from_fn(|| order.pop_before(i64::MAX)));
            taken.sort_unstable();
            assert_eq!(out, taken);
            assert!(order.held.is_empty() && late > 0);
        }
    }
}
