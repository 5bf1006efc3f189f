//! Pending steps of a receiver: a bounded queue that drops and counts the oldest when full. Adding never waits.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Pending item. Numbers count from 1 without gaps, so that a receiver sees what was dropped.
#[derive(Debug)]
pub struct QueuedStep<T> {
    /// Number of the item.
    pub number: u64,
    /// Time at which it was added.
    pub since: Instant,
    /// Content.
    pub item: T,
}

/// Bounded queue between producers and the sending thread.
#[derive(Debug)]
pub struct Queue<T> {
    inner: Mutex<Inner<T>>,
    changed: Condvar,
    size_max: usize,
}

#[derive(Debug)]
struct Inner<T> {
    waiting: VecDeque<QueuedStep<T>>,
    taken: bool,
    number: u64,
    dropped: u64,
    is_stopping: bool,
    is_ended: bool,
}

impl<T> Queue<T> {
    /// Creates a queue of `size_max` items.
    pub fn new(size_max: usize) -> Self {
        let inner = Inner {
            waiting: VecDeque::new(),
            taken: false,
            number: 0,
            dropped: 0,
            is_stopping: false,
            is_ended: false,
        };
        Queue { inner: Mutex::new(inner), changed: Condvar::new(), size_max: size_max.max(1) }
    }

    /// Adds an item. If the queue is full, drops the oldest item and returns it.
    pub fn push(&self, item: T) -> Option<T> {
        let mut inner = self.inner.lock();
        inner.number += 1;
        let number = inner.number;
        let dropped = (inner.waiting.len() >= self.size_max).then(|| inner.waiting.pop_front()).flatten();
        inner.dropped += u64::from(dropped.is_some());
        inner.waiting.push_back(QueuedStep { number, since: Instant::now(), item });
        self.changed.notify_all();
        dropped.map(|dropped| dropped.item)
    }

    /// Takes the oldest item, waiting for one. Returns `None` if the queue is stopping and empty.
    pub fn take(&self) -> Option<QueuedStep<T>> {
        let mut inner = self.inner.lock();
        inner.taken = false;
        loop {
            if let Some(next) = inner.waiting.pop_front() {
                inner.taken = true;
                return Some(next);
            }
            if inner.is_stopping {
                return None;
            }
            self.changed.wait(&mut inner);
        }
    }

    /// Puts back an item that was taken but not sent, before all others.
    pub fn put_back(&self, waiting: QueuedStep<T>) {
        let mut inner = self.inner.lock();
        inner.taken = false;
        inner.waiting.push_front(waiting);
    }

    /// Waits for `span`, or until a stop. Returns whether the queue is stopping.
    pub fn pause(&self, span: Duration) -> bool {
        let until = Instant::now() + span;
        let mut inner = self.inner.lock();
        while !inner.is_stopping {
            if self.changed.wait_until(&mut inner, until).timed_out() {
                break;
            }
        }
        inner.is_stopping
    }

    /// Returns the number of items pending or being sent, and of those dropped.
    pub fn counts(&self) -> (u64, u64) {
        let inner = self.inner.lock();
        (inner.waiting.len() as u64 + u64::from(inner.taken), inner.dropped)
    }

    /// Begins a stop: pending items are attempted once more at most.
    pub fn stop(&self) {
        self.inner.lock().is_stopping = true;
        self.changed.notify_all();
    }

    /// Notes that the sending thread has ended.
    pub fn end(&self) {
        self.inner.lock().is_ended = true;
        self.changed.notify_all();
    }

    /// Waits until the sending thread has ended, or until `until`. Returns the items left, oldest first, and whether
    /// one is still being sent.
    pub fn leave(&self, until: Instant) -> (Vec<QueuedStep<T>>, bool) {
        let mut inner = self.inner.lock();
        while !inner.is_ended {
            if self.changed.wait_until(&mut inner, until).timed_out() {
                break;
            }
        }
        let is_sending = inner.taken && !inner.is_ended;
        (inner.waiting.drain(..).collect(), is_sending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_when_there_is_no_room_and_numbers_show_it() {
        let queue = Queue::new(3);
        let dropped: Vec<Option<u32>> = (1..=5).map(|item| queue.push(item)).collect();
        assert_eq!(dropped, [None, None, None, Some(1), Some(2)]);
        assert_eq!(queue.counts(), (3, 2));
        let first = queue.take().expect("3");
        assert_eq!((first.number, first.item, queue.counts()), (3, 3, (3, 2)));
        queue.put_back(first);
        assert_eq!(queue.counts(), (3, 2));
        assert_eq!(queue.take().map(|next| next.item), Some(3));
        // An item being sent takes no space in the queue, and is not dropped.
        assert_eq!(queue.push(6), None);
        assert_eq!(queue.push(7), Some(4));
        queue.stop();
        assert!(queue.pause(Duration::from_secs(3600)));
        let (left, is_sending) = queue.leave(Instant::now());
        assert_eq!(left.iter().map(|left| left.number).collect::<Vec<_>>(), [5, 6, 7]);
        assert!(is_sending);
        assert!(queue.take().is_none());
    }
}
