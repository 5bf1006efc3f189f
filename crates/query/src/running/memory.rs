//! Memory of queries and answers: one limit for all, plus a little for each.
//!
//! Every query has a mebibyte of its own, so that large queries cannot keep small ones out. What grows by doubling counts
//! as much as it takes while it doubles, as operators report its size only after that.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool, MemoryReservation};
use parking_lot::Mutex;

/// Memory that a query has in addition to the shared memory, in bytes.
const OWN_BYTES: usize = 1 << 20;

/// Returns how many times the memory of an operator counts. The buffers of an aggregation double: the old and the new
/// one are there together. A join copies the rows that it collected into one batch.
fn weight(reservation: &MemoryReservation) -> usize {
    let name = reservation.consumer().name();
    if name.contains("Aggregate") || name.contains("HashTable") {
        3
    } else if name.contains("Join") {
        2
    } else {
        1
    }
}

/// A memory limit for all who share it.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    bytes_max: usize,
    used: AtomicUsize,
}

impl SharedMemory {
    pub(crate) fn new(bytes_max: usize) -> Arc<SharedMemory> {
        Arc::new(SharedMemory { bytes_max, used: AtomicUsize::new(0) })
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    fn grow(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn try_grow(&self, bytes: usize) -> bool {
        let grown = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
    }

    fn shrink(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A part of the shared memory, returned when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Arc<SharedMemory>,
    /// Bytes that do not count in the shared memory.
    free: usize,
    bytes: usize,
}

impl Share {
    /// Creates an empty share whose first `free` bytes do not count.
    pub(crate) fn new(memory: Arc<SharedMemory>, free: usize) -> Share {
        Share { memory, free, bytes: 0 }
    }

    /// Resizes the share. Returns `false`, and leaves it as it was, if there is not enough memory.
    #[must_use]
    pub(crate) fn try_resize(&mut self, bytes: usize) -> bool {
        let (old, new) = (self.bytes.saturating_sub(self.free), bytes.saturating_sub(self.free));
        if new > old && !self.memory.try_grow(new - old) {
            return false;
        }
        self.memory.shrink(old.saturating_sub(new));
        self.bytes = bytes;
        true
    }

    /// Returns its size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.shrink(self.bytes.saturating_sub(self.free));
    }
}

/// Memory pool of one query.
#[derive(Debug)]
pub(crate) struct QueryMemory {
    shared: Arc<SharedMemory>,
    /// Bytes in use. Locked while the shared memory changes accordingly, or two partitions at once might each count the
    /// free mebibyte, or neither.
    used: Mutex<usize>,
}

impl QueryMemory {
    pub(crate) fn new(shared: Arc<SharedMemory>) -> QueryMemory {
        QueryMemory { shared, used: Mutex::new(0) }
    }

    fn beyond(used: usize) -> usize {
        used.saturating_sub(OWN_BYTES)
    }
}

impl fmt::Display for QueryMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of at most {} bytes", self.reserved(), self.shared.bytes_max)
    }
}

impl Drop for QueryMemory {
    fn drop(&mut self) {
        self.shared.shrink(Self::beyond(*self.used.get_mut()));
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &str {
        "query"
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        let additional = additional.saturating_mul(weight(reservation));
        let mut used = self.used.lock();
        let grown = used.saturating_add(additional);
        self.shared.grow(Self::beyond(grown) - Self::beyond(*used));
        *used = grown;
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let mut used = self.used.lock();
        let left = used.saturating_sub(shrink.saturating_mul(weight(reservation)));
        self.shared.shrink(Self::beyond(*used) - Self::beyond(left));
        *used = left;
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let additional = additional.saturating_mul(weight(reservation));
        let mut used = self.used.lock();
        let grown = used.saturating_add(additional);
        if self.shared.try_grow(Self::beyond(grown) - Self::beyond(*used)) {
            *used = grown;
            return Ok(());
        }
        drop(used);
        Err(DataFusionError::ResourcesExhausted(format!(
            "out of memory: {} needs {additional} bytes more, all queries together have {} and hold {}",
            reservation.consumer().name(),
            self.shared.bytes_max,
            self.shared.used.load(Ordering::Relaxed),
        )))
    }

    fn reserved(&self) -> usize {
        *self.used.lock()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.shared.bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::MemoryConsumer;

    use super::*;

    #[test]
    fn a_query_has_a_little_when_others_hold_all() {
        let shared = SharedMemory::new(10 << 20);
        let pool = || Arc::new(QueryMemory::new(shared.clone())) as Arc<dyn MemoryPool>;
        let (one, other) = (pool(), pool());
        let large = MemoryConsumer::new("large").register(&one);
        large.try_grow(11 << 20).unwrap();
        assert!(large.try_grow(1).is_err());
        let small = MemoryConsumer::new("small").register(&other);
        small.try_grow(1 << 20).unwrap();
        assert!(small.try_grow(1).is_err());
        large.shrink(5 << 20);
        small.try_grow(5 << 20).unwrap();
        drop((large, small));
        drop((one, other));
        assert_eq!(shared.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_doubles_counts_with_its_next_size() {
        let shared = SharedMemory::new(10 << 20);
        let pool = Arc::new(QueryMemory::new(shared.clone())) as Arc<dyn MemoryPool>;
        let groups = MemoryConsumer::new("GroupedHashAggregateStream[0] (count)").register(&pool);
        groups.try_grow(3 << 20).unwrap();
        assert_eq!(shared.used.load(Ordering::Relaxed), 8 << 20);
        assert!(groups.try_grow(1 << 20).is_err());
        drop(groups);
        drop(pool);
        assert_eq!(shared.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_partitions_ask_for_at_once_adds_up() {
        let shared = SharedMemory::new(4 << 20);
        let pool = Arc::new(QueryMemory::new(shared.clone()));
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let pool = pool.clone() as Arc<dyn MemoryPool>;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let reservation = MemoryConsumer::new("partition").register(&pool);
                    for _ in 0..20_000 {
                        // Many of them fail.
                        let _ = reservation.try_grow(random.usize(..8 << 20));
                        reservation.shrink(random.usize(..=reservation.size()));
                    }
                });
            }
        });
        assert_eq!((pool.reserved(), shared.used.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn a_share_gives_back_what_it_had() {
        let shared = SharedMemory::new(100);
        let mut share = Share::new(shared.clone(), 10);
        assert!(share.try_resize(110));
        assert!(!share.try_resize(111));
        assert_eq!(share.bytes(), 110);
        assert!(share.try_resize(60));
        assert_eq!(shared.used.load(Ordering::Relaxed), 50);
        drop(share);
        assert_eq!(shared.used.load(Ordering::Relaxed), 0);
    }
}
