//! The streams of the append side: found by key or number, made, and given newer definitions.

use std::hash::BuildHasher;
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec::Drain;

use arc_swap::{ArcSwap, ArcSwapOption};
use hashbrown::HashTable;

use crate::Reject;
use crate::append::StreamWriter;
use crate::append::stream_slot::{OpenRows, SlotTable, StreamSlot};
use crate::bytes::{RecordError, contradiction};
use crate::catalog::group::{GAPS_TABLE, Group};
use crate::catalog::{Histories, ShapeHistory};
use crate::log::checkpoint::SealedRows;
use crate::model::counts::Counts;
use crate::model::row::{RowShape, Shapes};
use crate::model::stream::{Clock, Stream, StreamKey};
use crate::model::value::ChannelType;

/// All streams, and the state that they share.
pub(crate) struct StreamRegistry {
    slots: Arc<SlotTable>,
    /// Streams by number.
    list: Vec<StreamWriter>,
    /// Numbers by key.
    index: HashTable<u32>,
    hasher: foldhash::fast::RandomState,
    /// Empty rows, shared by all streams without rows.
    no_rows: Arc<OpenRows>,
    none_sealed: Arc<SealedRows>,
    shapes: Shapes,
    histories: Histories,
    channels: u32,
    max_streams: u32,
    /// Version of the catalog, which rises with each change of a definition.
    version: Arc<AtomicU64>,
    /// Number of `strongback.gaps`.
    gaps_stream: Option<u32>,
    /// Streams whose definition or state changed since the last checkpoint.
    changed: Vec<u32>,
}

impl Index<u32> for StreamRegistry {
    type Output = StreamWriter;

    #[inline(always)]
    fn index(&self, id: u32) -> &StreamWriter {
        &self.list[id as usize]
    }
}

impl IndexMut<u32> for StreamRegistry {
    #[inline(always)]
    fn index_mut(&mut self, id: u32) -> &mut StreamWriter {
        &mut self.list[id as usize]
    }
}

impl StreamRegistry {
    /// Makes a registry without streams that publishes to a table and a counter of the readers.
    pub(super) fn new(slots: Arc<SlotTable>, max_streams: u32, version: Arc<AtomicU64>) -> StreamRegistry {
        StreamRegistry {
            slots,
            list: Vec::new(),
            index: HashTable::new(),
            hasher: foldhash::fast::RandomState::default(),
            no_rows: Arc::default(),
            none_sealed: Arc::default(),
            shapes: Shapes::default(),
            histories: Histories::default(),
            channels: 0,
            max_streams,
            version,
            gaps_stream: None,
            changed: Vec::new(),
        }
    }

    /// Sets the initial value of row hashes.
    pub(crate) fn set_hash_key(&mut self, key: u64) {
        self.shapes.hash_key = key;
    }

    /// Returns the number of streams.
    pub(crate) fn len(&self) -> u32 {
        self.list.len() as u32
    }

    /// Returns the number of channels of all streams.
    pub(crate) fn channels(&self) -> u32 {
        self.channels
    }

    /// Returns a stream.
    #[inline(always)]
    pub(crate) fn get(&self, id: u32) -> Option<&StreamWriter> {
        self.list.get(id as usize)
    }

    /// Returns a stream.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut StreamWriter> {
        self.list.get_mut(id as usize)
    }

    /// Returns a stream that a record names.
    ///
    /// # Errors
    /// If there is no such stream.
    pub(crate) fn known(&mut self, id: u32) -> Result<&mut StreamWriter, RecordError> {
        self.get_mut(id).ok_or_else(|| contradiction(format!("stream {id} is not known")))
    }

    /// Iterates over all streams with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &StreamWriter)> {
        (0..).zip(&self.list)
    }

    /// Iterates over all streams with their numbers.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut StreamWriter)> {
        (0..).zip(&mut self.list)
    }

    /// Returns all streams by number.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [StreamWriter] {
        &mut self.list
    }

    /// Gives back the memory that the list has beyond its streams.
    pub(super) fn shrink_to_fit(&mut self) {
        self.list.shrink_to_fit();
    }

    /// Finds a stream by its key.
    pub(super) fn find(&self, key: &StreamKey) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.index.find(hash, |&id| self.list[id as usize].slot.stream.load().key == *key).copied()
    }

    /// Returns whether the readers' table has room for one more stream.
    pub(super) fn has_slot(&self) -> bool {
        self.slots.has_room()
    }

    /// Refuses a stream for which there is no room. `max_streams` does not apply to the store's own streams, which are
    /// few.
    ///
    /// # Errors
    /// There are too many streams.
    pub(super) fn check_room(&self, key: &StreamKey, internal: bool) -> Result<(), Reject> {
        if !internal && self.len() >= self.max_streams || !self.has_slot() {
            return Err(Reject::TooManyStreams { stream: key.to_string(), max_streams: self.max_streams });
        }
        Ok(())
    }

    /// Returns the shape of a history's newest rows.
    pub(super) fn newest_shape(&mut self, history: &ShapeHistory) -> Arc<RowShape> {
        history.shape(history.newest, &mut self.shapes)
    }

    /// Returns the shape of a stream's rows under an older layout.
    pub(super) fn older_shape(&mut self, id: u32, number: u16) -> Arc<RowShape> {
        self.list[id as usize].history.shape(number, &mut self.shapes)
    }

    /// Returns the shape of that number in a stream.
    ///
    /// # Errors
    /// If there is no such stream, or none of its shapes has that number yet.
    pub(crate) fn shape_of(&mut self, id: u32, number: u16) -> Result<Arc<RowShape>, RecordError> {
        let stream = self.known(id)?;
        match number {
            number if number > stream.history.newest => {
                let newest = stream.history.newest;
                Err(contradiction(format!("stream {id} has shapes up to {newest}, and none of number {number}")))
            }
            number if number == stream.shape_number => Ok(stream.shape.clone()),
            number => Ok(self.older_shape(id, number)),
        }
    }

    /// Returns the shape of rows with channels of these types.
    pub(super) fn shape_with(&mut self, has_sequence: bool, kinds: Vec<ChannelType>) -> Arc<RowShape> {
        self.shapes.get(has_sequence, kinds)
    }

    /// Adds a stream that is in the log already, or about to be.
    pub(super) fn add(&mut self, stream: Stream, history: ShapeHistory, group: Group) -> Arc<Stream> {
        let stream = Arc::new(stream);
        let shape = self.newest_shape(&history);
        let slot = Arc::new(StreamSlot {
            stream: ArcSwap::new(stream.clone()),
            open: ArcSwap::new(self.no_rows.clone()),
            held: ArcSwapOption::empty(),
            sealed: ArcSwap::new(self.none_sealed.clone()),
            committed_row: AtomicU64::new(0),
            group,
        });
        let id = self.len();
        if stream.key.table == GAPS_TABLE {
            self.gaps_stream = Some(id);
        }
        self.slots.push(slot.clone());
        if self.list.len() == self.list.capacity() {
            // Grow by eighths: doubling could leave up to half of the list's memory unused.
            self.list.reserve_exact((self.list.len() / 8).max(64));
        }
        let mut added = StreamWriter {
            slot,
            shape_number: history.newest,
            history: self.histories.share(history),
            shape,
            source_clock: stream.clock == Clock::Source,
            chunk: None,
            capacity: None,
            next_row: 0,
            opened_row: 0,
            dirty: 0,
            tracker: None,
            due: false,
            saved_serial: None,
            newest_time: i64::MIN,
            recent: None,
            reducer: None,
            counts: Counts::default(),
        };
        added.renew_reducer();
        self.list.push(added);
        let (hasher, list) = (&self.hasher, &self.list);
        let hash_of = |id: &u32| hasher.hash_one(&list[*id as usize].slot.stream.load().key);
        self.index.insert_unique(hash_of(&id), id, hash_of);
        self.channels += stream.layout.channels.len() as u32;
        self.note_changed(id);
        self.version.fetch_add(1, Ordering::Release);
        stream
    }

    /// Replaces a stream's definition with a newer one, with the shape of its newest rows. `ends_chunk`: the next rows
    /// begin another chunk. Returns whether a session begins, before which the losses so far must be reported.
    pub(super) fn redefine(
        &mut self,
        stream: Arc<Stream>,
        history: ShapeHistory,
        shape: Arc<RowShape>,
        ends_chunk: bool,
    ) -> bool {
        let writer = &mut self.list[stream.id.0 as usize];
        let before = writer.slot.stream.load().layout.channels.len();
        self.channels += stream.layout.channels.len().saturating_sub(before) as u32;
        writer.shape_number = history.newest;
        writer.shape = shape;
        writer.history = self.histories.share(history);
        writer.source_clock = stream.clock == Clock::Source;
        if ends_chunk {
            writer.chunk = None;
        }
        self.slots.redefine(&writer.slot, stream);
        let begins_session = writer.follow_definition();
        self.version.fetch_add(1, Ordering::Release);
        begins_session
    }

    /// Notes that rows before this one are in segments.
    pub(crate) fn set_sealed(&mut self, id: u32, first_row: u64) {
        if self.get(id).is_some_and(|stream| first_row > stream.next_row) {
            self.set_first_open(id, first_row);
        }
    }

    /// Sets the first row that is not in a segment, which may be before the one that was known, as a segment was
    /// damaged. There are no rows in memory.
    pub(crate) fn set_first_open(&mut self, id: u32, first_row: u64) {
        if let Some(stream) = self.get_mut(id)
            && first_row != stream.next_row
        {
            stream.next_row = first_row;
            stream.slot.open.store(Arc::new(OpenRows::empty(first_row)));
        }
    }

    /// Returns whether a stream is `strongback.gaps`.
    pub(crate) fn is_gaps(&self, id: u32) -> bool {
        self.gaps_stream == Some(id)
    }

    /// Returns the version of the catalog, which rises with each change of a definition.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Raises the version of the catalog to at least this one.
    pub(crate) fn raise_version(&self, version: u64) {
        self.version.fetch_max(version, Ordering::AcqRel);
    }

    /// Notes that a stream changed since the last checkpoint.
    pub(crate) fn note_changed(&mut self, id: u32) {
        self.changed.push(id);
    }

    /// Takes the streams that changed since the last checkpoint.
    pub(crate) fn take_changed(&mut self) -> Drain<'_, u32> {
        self.changed.drain(..)
    }
}

impl StreamWriter {
    /// Adapts reductions and sequences to a changed definition. Returns whether a session begins.
    fn follow_definition(&mut self) -> bool {
        self.renew_reducer();
        let modulus = self.slot.stream.load().sequence_modulus;
        modulus.zip(self.tracker.as_mut()).is_some_and(|(modulus, tracker)| tracker.count_by(modulus))
    }
}
