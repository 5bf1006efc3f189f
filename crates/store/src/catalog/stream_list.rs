//! List of all streams at one moment, in chunks that successive lists share: adding one stream to 100,000 copies one
//! chunk instead of the list.

use std::ops::Index;
use std::sync::Arc;

use crate::model::stream::Stream;

/// Number of streams in a chunk of the list.
pub(crate) const BUCKET: usize = 1024;

/// Streams of one bucket of the slot table.
#[derive(Debug)]
pub(crate) struct StreamChunk {
    /// Change counter of the bucket when the chunk was made.
    pub(crate) changes: u64,
    pub(crate) streams: Vec<Arc<Stream>>,
}

/// All streams at one moment, by number. Cheap to clone; successive lists of a store share what did not change.
#[derive(Clone, Debug, Default)]
pub struct StreamList {
    /// Chunks of the list; all but the last are full.
    pub(crate) chunks: Vec<Arc<StreamChunk>>,
    pub(crate) len: usize,
}

impl StreamList {
    /// Returns the number of streams.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no stream.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the stream of a number.
    pub fn get(&self, number: usize) -> Option<&Arc<Stream>> {
        self.chunks.get(number / BUCKET)?.streams.get(number % BUCKET)
    }

    /// Iterates over all streams, by number.
    pub fn iter(&self) -> Streams<'_> {
        self.iter_from(0)
    }

    /// Iterates over the streams from a number on. Those before it are not visited.
    pub fn iter_from(&self, first: usize) -> Streams<'_> {
        Streams { list: self, next: first }
    }

    /// Iterates over the streams that are new, or have another definition, compared with an older list of the same
    /// store. Chunks shared by both lists are skipped.
    pub fn changed_since<'a>(&'a self, older: &'a StreamList) -> impl Iterator<Item = &'a Arc<Stream>> {
        let changed = self.chunks.iter().enumerate().map(|(i, chunk)| (chunk, older.chunks.get(i)));
        let changed = changed.filter(|(chunk, old)| !old.is_some_and(|old| Arc::ptr_eq(chunk, old)));
        changed.flat_map(|(chunk, old)| {
            let old = old.map_or(&[][..], |old| &old.streams);
            let same = |i: usize, stream: &Arc<Stream>| old.get(i).is_some_and(|old| Arc::ptr_eq(old, stream));
            chunk.streams.iter().enumerate().filter(move |(i, stream)| !same(*i, stream)).map(|(_, stream)| stream)
        })
    }
}

impl Index<usize> for StreamList {
    type Output = Arc<Stream>;

    fn index(&self, number: usize) -> &Arc<Stream> {
        &self.chunks[number / BUCKET].streams[number % BUCKET]
    }
}

impl<'a> IntoIterator for &'a StreamList {
    type Item = &'a Arc<Stream>;
    type IntoIter = Streams<'a>;

    fn into_iter(self) -> Streams<'a> {
        self.iter()
    }
}

/// Iterator over a [`StreamList`].
#[derive(Clone, Debug)]
pub struct Streams<'a> {
    list: &'a StreamList,
    next: usize,
}

impl<'a> Iterator for Streams<'a> {
    type Item = &'a Arc<Stream>;

    fn next(&mut self) -> Option<&'a Arc<Stream>> {
        let stream = self.list.get(self.next)?;
        self.next += 1;
        Some(stream)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let rest = self.list.len.saturating_sub(self.next);
        (rest, Some(rest))
    }
}

impl ExactSizeIterator for Streams<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::*;

    fn spec(n: usize, channels: &[&str]) -> StreamSpec {
        StreamSpec {
            key: StreamKey::new("table", [("n".to_owned(), n.to_string())]),
            source: "test".into(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: channels.iter().map(|name| ChannelSpec::new(*name, ChannelType::F64)).collect(),
        }
    }

    #[test]
    fn a_new_list_shares_what_did_not_change() {
        let disk = crate::disk::fault::FaultDisk::new(1);
        let store = Store::open_on(Arc::new(disk), StoreOptions::default(), 1).expect("opened");
        let mut random = fastrand::Rng::with_seed(7);
        let mut older = store.catalog();
        let mut count = 0;
        for step in 0..400 {
            // Some are new, some grow, and some are only looked up.
            let mut changed = std::collections::BTreeSet::new();
            for _ in 0..random.usize(0..20) {
                let (n, grows) = match random.u8(0..3) {
                    0 if count > 0 => (random.usize(0..count), true),
                    _ => {
                        count += 1;
                        (count - 1, false)
                    }
                };
                let name = format!("c{step}");
                let names: &[&str] = if grows { &["x", &name] } else { &["x"] };
                changed.insert(store.resolve(&spec(n, names), 1).expect("resolved").0.id.0);
            }
            let newer = store.catalog();
            assert_eq!(newer.version, store.catalog_version());
            assert_eq!((newer.streams.len(), newer.streams.iter().len()), (count, count));
            let told: Vec<u32> = newer.streams.changed_since(&older.streams).map(|stream| stream.id.0).collect();
            assert_eq!(told, changed.iter().copied().collect::<Vec<_>>(), "step {step}");
            for (number, stream) in newer.streams.iter().enumerate() {
                let now = store.resolve(&spec(number, &["x"]), 1).expect("resolved").0;
                assert!(Arc::ptr_eq(stream, &now) && stream.id.0 as usize == number, "step {step}: {number}");
            }
            let chunks = older.streams.chunks.iter().zip(&newer.streams.chunks).enumerate();
            let copied = chunks.filter(|(_, (old, new))| !Arc::ptr_eq(old, new)).map(|(i, _)| i as u32);
            let touched: std::collections::BTreeSet<u32> = changed.iter().map(|id| id / BUCKET as u32).collect();
            assert!(copied.eq(touched.into_iter().filter(|i| (*i as usize) < older.streams.chunks.len())));
            older = newer;
        }
        assert!(count > 2 * BUCKET);
        assert_eq!(older.streams.iter_from(count - 3).count(), 3);
        assert!(older.streams.get(count).is_none());
    }
}
