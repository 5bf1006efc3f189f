//! Cache of data read along with what was requested. A reader of many streams usually reads the next one after it,
//! whose entries and rows lie in the same stretch of a long index and in the same mixed block.

use std::hash::Hash;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

/// Max bytes kept of one kind of value.
const BYTES_MAX: usize = 16 << 20;

/// Values by segment and place, up to a number of bytes. Eviction is random: a reader of many streams visits all
/// places in turn, so the least recently used value would be the next one needed.
pub(crate) struct Neighbours<P, V> {
    kept: Mutex<KeptNeighbours<P, V>>,
}

struct KeptNeighbours<P, V> {
    /// Index of each value in `values`.
    places: HashMap<(u64, P), usize, foldhash::fast::RandomState>,
    values: Vec<NeighbourValue<P, V>>,
    bytes: usize,
    random: u64,
}

struct NeighbourValue<P, V> {
    key: (u64, P),
    value: Arc<V>,
    bytes: usize,
}

impl<P, V> Default for Neighbours<P, V> {
    fn default() -> Self {
        Neighbours {
            kept: Mutex::new(KeptNeighbours { places: HashMap::default(), values: Vec::new(), bytes: 0, random: 1 }),
        }
    }
}

impl<P: Copy + Eq + Hash, V> Neighbours<P, V> {
    /// Returns the value kept for a place of a segment.
    pub(crate) fn get(&self, key: (u64, P)) -> Option<Arc<V>> {
        let kept = self.kept.lock();
        kept.values.get(*kept.places.get(&key)?).map(|kept| kept.value.clone())
    }

    /// Keeps a value, unless it is large.
    pub(crate) fn keep(&self, key: (u64, P), value: V, bytes: impl Fn(&V) -> usize) -> Arc<V> {
        let bytes = bytes(&value) + size_of::<NeighbourValue<P, V>>() + size_of::<(u64, P, usize)>();
        let value = Arc::new(value);
        let mut kept = self.kept.lock();
        // Another reader may have read it at the same time.
        if bytes <= BYTES_MAX / 16 && !kept.places.contains_key(&key) {
            while kept.bytes + bytes > BYTES_MAX {
                kept.drop_one();
            }
            let at = kept.values.len();
            kept.places.insert(key, at);
            kept.values.push(NeighbourValue { key, value: value.clone(), bytes });
            kept.bytes += bytes;
        }
        value
    }

    /// Drops the values of these segments.
    pub(super) fn forget(&self, is_gone: impl Fn(u64) -> bool) {
        let mut kept = self.kept.lock();
        for at in (0..kept.values.len()).rev() {
            if is_gone(kept.values[at].key.0) {
                kept.drop_at(at);
            }
        }
    }
}

impl<P: Copy + Eq + Hash, V> KeptNeighbours<P, V> {
    fn drop_one(&mut self) {
        // A xorshift of 64 bits: Marsaglia, "Xorshift RNGs", 2003.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        if let Some(at) = (self.random as usize).checked_rem(self.values.len()) {
            self.drop_at(at);
        }
    }

    fn drop_at(&mut self, at: usize) {
        let gone = self.values.swap_remove(at);
        self.places.remove(&gone.key);
        self.bytes -= gone.bytes;
        if let Some(moved) = self.values.get(at) {
            self.places.insert(moved.key, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_fits_and_finds_each_where_it_is() {
        let neighbours = Neighbours::<u64, Vec<u8>>::default();
        let mut random = fastrand::Rng::with_seed(1);
        for turn in 0..20_000 {
            let key = (random.u64(..20), random.u64(..200));
            let want = vec![key.1 as u8; random.usize(..100_000)];
            match neighbours.get(key) {
                Some(found) => assert!(found.iter().all(|byte| *byte == key.1 as u8)),
                None => assert_eq!(*neighbours.keep(key, want.clone(), Vec::len), want),
            }
            if turn % 1_000 == 0 {
                neighbours.forget(|id| id == key.0);
                assert!(neighbours.get(key).is_none());
            }
            let kept = neighbours.kept.lock();
            assert!(kept.bytes <= BYTES_MAX && kept.values.len() == kept.places.len());
        }
        let kept = neighbours.kept.lock();
        assert!(kept.values.iter().enumerate().all(|(at, value)| kept.places.get(&value.key) == Some(&at)));
        assert!(kept.bytes > BYTES_MAX / 2 && kept.bytes >= kept.values.iter().map(|v| v.value.len()).sum());
    }

    #[test]
    fn large_values_are_not_kept() {
        let neighbours = Neighbours::<u64, Vec<u8>>::default();
        neighbours.keep((1, 1), vec![0; BYTES_MAX / 16 + 1], Vec::len);
        assert!(neighbours.get((1, 1)).is_none() && neighbours.kept.lock().bytes == 0);
    }
}
