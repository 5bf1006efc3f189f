//! One order for frames from all threads; for limits, the order of reception.
//!
//! Sources are not synchronised, but everything is stamped at reception by one clock. Frames are held back briefly
//! and released in the order of (receive time, stream, row). The same frames read from the store have the same order,
//! so live and replay give the same results. A frame that is handed in after its turn is released next. The caller
//! records its new turn, so that stored data gives the same order again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use strongback_store::StreamId;

/// Frames that are held back.
#[derive(Debug)]
pub struct Order<T> {
    held: BinaryHeap<Reverse<HeldFrame<T>>>,
    /// Receive time before which everything was released.
    watermark: i64,
    arrived: u64,
}

#[derive(Debug)]
struct HeldFrame<T> {
    /// Turn, stream, row, and order of arrival.
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
    /// Returns the turn of something received at `receive_time` (nanoseconds since 1970 UTC): that time, or later if
    /// later ones were already released.
    pub fn turn(&self, receive_time: i64) -> i64 {
        receive_time.max(self.watermark)
    }

    /// Adds an item with its turn. Equal turns of a stream are ordered by row; items without a row come last.
    pub fn push(&mut self, turn: i64, stream: StreamId, row: Option<u64>, item: T) {
        self.arrived += 1;
        self.held.push(Reverse(HeldFrame { key: (turn, stream.0, row.unwrap_or(u64::MAX), self.arrived), item }));
    }

    /// Removes and returns the next item with a turn before `watermark`, which never decreases.
    pub fn pop_before(&mut self, watermark: i64) -> Option<T> {
        self.watermark = self.watermark.max(watermark);
        if self.held.peek()?.0.key.0 >= self.watermark {
            return None;
        }
        self.held.pop().map(|Reverse(held)| held.item)
    }

    /// Returns turn, stream and row of the earliest item held back.
    pub fn first(&self) -> Option<(i64, u32, u64)> {
        self.held.peek().map(|Reverse(held)| (held.key.0, held.key.1, held.key.2))
    }

    /// Removes and returns the earliest item, whatever its turn.
    pub fn pop(&mut self) -> Option<T> {
        self.held.pop().map(|Reverse(held)| held.item)
    }

    /// Returns the number of items held back.
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
                // Handed in up to 12 after reception, while the order waits for 8.
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
