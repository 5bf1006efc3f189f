//! Maps the raw text of measurement and tags to a stream of the store, so that a line costs one lookup.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use parking_lot::Mutex;
use strongback_store::{ChannelIndex, ChannelType, StreamId};

/// Maximum entries shared by all writers. A full cache is cleared, so a million spellings cost time but no memory.
const SHARED_MAX: usize = 1 << 18;
/// Maximum entries that one writer caches without a lock.
const LOCAL_MAX: usize = 1 << 16;
/// Minimum fields for an entry to have an index.
const INDEXED_MIN: usize = 8;

/// A field of a stream, as spelled on lines.
#[derive(Clone, Debug)]
pub(crate) struct KnownField {
    pub(crate) raw_name: Box<str>,
    /// Type of the value on the line.
    pub(crate) kind: ChannelType,
    pub(crate) channel: ChannelIndex,
    /// Whether the channel is a second column, because the type did not fit the first.
    pub(crate) conflict: bool,
}

/// Immutable cache entry of a key. It is replaced when it grows.
#[derive(Debug)]
pub(crate) struct KeyEntry {
    key: Box<str>,
    hash: u64,
    pub(crate) stream: StreamId,
    /// Fields in the order seen on lines, so that those of the next line are found by position.
    pub(crate) fields: Vec<KnownField>,
    /// Maximum channels the store allows, once it reported that the stream has reached it.
    pub(crate) full: Option<usize>,
    index: HashTable<u16>,
}

impl KeyEntry {
    pub(crate) fn new(key: &str, stream: StreamId, fields: Vec<KnownField>) -> KeyEntry {
        let mut index = HashTable::new();
        if fields.len() >= INDEXED_MIN {
            index.reserve(fields.len(), |_| 0);
            for (i, field) in fields.iter().enumerate() {
                let hash = hash_of(&field.raw_name);
                index.insert_unique(hash, i as u16, |i| hash_of(&fields[*i as usize].raw_name));
            }
        }
        KeyEntry { key: key.into(), hash: hash_of(key), stream, fields, full: None, index }
    }

    /// Returns the field with a name and type. `position` is its position on earlier lines.
    #[inline]
    pub(crate) fn field(&self, position: usize, raw_name: &str, kind: ChannelType) -> Option<&KnownField> {
        let fits = |f: &&KnownField| f.kind == kind && *f.raw_name == *raw_name;
        if let Some(field) = self.fields.get(position).filter(fits) {
            return Some(field);
        }
        if self.fields.len() < INDEXED_MIN {
            return self.fields.iter().find(fits);
        }
        let found = self.index.find(hash_of(raw_name), |i| fits(&&self.fields[*i as usize]))?;
        Some(&self.fields[*found as usize])
    }
}

#[inline]
pub(crate) fn hash_of(text: &str) -> u64 {
    // Seeded per process, so that senders cannot choose colliding keys.
    FixedState::with_seed(seed()).hash_one(text.as_bytes())
}

fn seed() -> u64 {
    use std::sync::OnceLock;
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| std::hash::RandomState::new().hash_one(0_u64))
}

type Table = HashTable<Arc<KeyEntry>>;

fn find<'a>(table: &'a Table, hash: u64, key: &str) -> Option<&'a Arc<KeyEntry>> {
    table.find(hash, |e| *e.key == *key)
}

/// Inserts an entry, or replaces the one with its key.
fn put(table: &mut Table, entry: Arc<KeyEntry>, limit: usize) {
    if let Some(old) = table.find_mut(entry.hash, |e| e.key == entry.key) {
        *old = entry;
        return;
    }
    if table.len() >= limit {
        table.clear();
    }
    table.insert_unique(entry.hash, entry, |e| e.hash);
}

/// Entries of all writers.
#[derive(Debug, Default)]
pub(crate) struct SharedCache {
    table: Mutex<(u64, Table)>,
}

impl SharedCache {
    /// Returns the entry of a key, if it belongs to this generation of the sink.
    fn get(&self, generation: u64, hash: u64, key: &str) -> Option<Arc<KeyEntry>> {
        let table = self.table.lock();
        if table.0 == generation { find(&table.1, hash, key).cloned() } else { None }
    }

    fn put(&self, generation: u64, entry: Arc<KeyEntry>) {
        let mut table = self.table.lock();
        if table.0 != generation {
            *table = (generation, Table::new());
        }
        put(&mut table.1, entry, SHARED_MAX);
    }
}

/// Entries of one writer, backed by the shared ones.
#[derive(Debug)]
pub(crate) struct Cache {
    shared: Arc<SharedCache>,
    local: Table,
    generation: u64,
}

impl Cache {
    pub(crate) fn new(shared: Arc<SharedCache>) -> Cache {
        Cache { shared, local: Table::new(), generation: 0 }
    }

    /// Clears all entries if the sink's numbers changed.
    pub(crate) fn set_generation(&mut self, generation: u64) {
        if self.generation != generation {
            self.generation = generation;
            self.local.clear();
        }
    }

    /// Returns the cached entry of a key.
    #[inline]
    pub(crate) fn get(&mut self, key: &str) -> Option<Arc<KeyEntry>> {
        let hash = hash_of(key);
        if let Some(entry) = find(&self.local, hash, key) {
            return Some(Arc::clone(entry));
        }
        let entry = self.shared.get(self.generation, hash, key)?;
        put(&mut self.local, Arc::clone(&entry), LOCAL_MAX);
        Some(entry)
    }

    /// Returns the latest entry of a key, which another writer may have extended.
    pub(crate) fn newest(&mut self, key: &str) -> Option<Arc<KeyEntry>> {
        let entry = self.shared.get(self.generation, hash_of(key), key)?;
        put(&mut self.local, Arc::clone(&entry), LOCAL_MAX);
        Some(entry)
    }

    /// Adds an entry for all writers.
    pub(crate) fn put(&mut self, entry: Arc<KeyEntry>) {
        put(&mut self.local, Arc::clone(&entry), LOCAL_MAX);
        self.shared.put(self.generation, entry);
    }
}
