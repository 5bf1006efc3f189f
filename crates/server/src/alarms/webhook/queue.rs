//! What waits for a receiver: a bounded queue whose oldest goes when it is full, counted. Whoever puts something in never
//! waits.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Something that waits, with its number: dense from 1, so that a receiver sees what was dropped.
#[derive(Debug)]
pub struct QueuedStep<T> {
    /// Its number.
    pub number: u64,
    /// When it came.
    pub since: Instant,
    /// What it is.
    pub item: T,
}

/// A bounded queue between those who tell and the thread that sends.
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
    /// With room for so many.
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

    /// Puts something in; if there is no room, the oldest goes, and is given back.
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

    /// Takes the oldest, waiting for one. None: it is stopping, and nothing is left.
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

    /// Puts back what was taken and not sent, before all others.
    pub fn put_back(&self, waiting: QueuedStep<T>) {
        let mut inner = self.inner.lock();
        inner.taken = false;
        inner.waiting.push_front(waiting);
    }

    /// Waits so long, or until it is stopping: then true.
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

    /// How many wait or are being sent, and how many were dropped.
    pub fn counts(&self) -> (u64, u64) {
        let inner = self.inner.lock();
        (inner.waiting.len() as u64 + u64::from(inner.taken), inner.dropped)
    }

    /// From now on what waits is sent once or not at all.
    pub fn stop(&self) {
        self.inner.lock().is_stopping = true;
        self.changed.notify_all();
    }

    /// The thread that sends says that it is done.
    pub fn end(&self) {
        self.inner.lock().is_ended = true;
        self.changed.notify_all();
    }

    /// Waits for that, until an instant at most; what is left, oldest first, and whether something is still being sent.
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
        // What is being sent is not in the way of others, and is not dropped.
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
