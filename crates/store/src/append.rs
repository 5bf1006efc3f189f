//! The append side: everything that one short lock guards. Frames become rows of open chunks and, the same
//! words, records of the unit that the next commit writes.

pub(crate) mod catalog_room;
pub(crate) mod chunk;
pub(crate) mod held;
pub(crate) mod lane;
pub(crate) mod ledger;
pub(crate) mod recent;
pub(crate) mod recent_file;
pub(crate) mod reducer;
pub(crate) mod refused;
pub(crate) mod sequence;
pub(crate) mod stream_slot;
pub(crate) mod waiting_gaps;

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::{ArcSwap, ArcSwapOption};
use hashbrown::HashTable;

use crate::append::catalog_room::{catalog_bytes, room_of};
use crate::append::chunk::{CHUNK_BYTES, Chunk};
use crate::append::held::HeldRecords;
use crate::append::recent::RecentRows;
use crate::append::reducer::Reducer;
use crate::append::refused::RefusedFrames;
use crate::append::sequence::{Seen, SequenceTracker};
use crate::append::stream_slot::{OpenRows, SlotTable, StreamSlot};
use crate::append::waiting_gaps::WaitingGaps;
use crate::catalog::group::GAPS_TABLE;
use crate::catalog::group::{Group, Groups};
use crate::catalog::{self, Histories, ShapeHistory};
use crate::disk::space::Space;
use crate::log::checkpoint::SealedRows;
use crate::log::record::{self, Control};
use crate::log::{UNIT_HEADER_BYTES, unit_bytes};
use crate::model::counts::Counts;
use crate::model::frame::FrameRef;
use crate::model::limits::FRAME_BYTES_MAX;
use crate::model::row::{RowScratch, RowShape, Shapes, is_time};
use crate::model::stream::*;
use crate::{Refusal, Reject};

/// Bytes of the ring kept free for the units that begin an epoch or end a run; a small one can spare none.
pub(crate) fn reserve_bytes(ring_bytes: u64) -> u64 {
    if ring_bytes < 1 << 20 { 0 } else { 64 << 10 }
}

/// A part of a segment that a stream's definition, a frame, or a chunk of rows may take: so that a block with all that
/// its footer says of it finds room in an empty one.
const PART_OF_SEGMENT: u64 = 8;

/// What became of a frame: its row, none for a duplicate. It stays in registers, as what makes it is inlined: read
/// back from memory it waited for all words of the row to get there first, a tenth of the time of an append.
pub(crate) type Taken = Result<Option<u64>, Box<Reject>>;

/// The row of a frame that needs none: what is stored stands for it.
pub(crate) const REDUCED: u64 = u64::MAX;

/// What the append side keeps of a stream.
pub(crate) struct StreamWriter {
    pub(crate) slot: Arc<StreamSlot>,
    pub(crate) history: Arc<ShapeHistory>,
    pub(crate) shape: Arc<RowShape>,
    /// Number of that shape.
    pub(crate) shape_number: u16,
    pub(crate) source_clock: bool,
    /// The chunk that takes the next row, if any.
    pub(crate) chunk: Option<Arc<Chunk>>,
    /// Capacity of the newest chunk: the next one is larger.
    pub(crate) capacity: Option<u16>,
    pub(crate) next_row: u64,
    /// Next row when this epoch began.
    pub(crate) opened_row: u64,
    /// Pending commit in which it was last marked dirty.
    pub(crate) dirty: u64,
    pub(crate) tracker: Option<Box<SequenceTracker>>,
    /// Whether it waits to be sealed.
    pub(crate) due: bool,
    /// Serial of its definition in the checkpoint.
    pub(crate) saved_serial: Option<u32>,
    /// Newest `time`, of streams whose `time` is the source's.
    pub(crate) newest_time: i64,
    /// What was sealed lately of such a stream.
    pub(crate) recent: Option<Box<RecentRows>>,
    /// If any of its channels has a reduction.
    pub(crate) reducer: Option<Box<Reducer>>,
    pub(crate) counts: Counts,
}

impl StreamWriter {
    /// Takes over a layout that grew.
    fn set_layout(&mut self, history: ShapeHistory, shape: Arc<RowShape>, histories: &mut Histories) {
        self.shape_number = history.newest;
        self.shape = shape;
        self.history = histories.share(history);
    }

    /// Which of a frame's stamps is its `time`.
    pub(crate) fn time_of(&self, (receive, source): (i64, Option<i64>)) -> i64 {
        source.filter(|_| self.source_clock).unwrap_or(receive)
    }
}

/// The tracker of a stream whose sequence nothing is known of.
pub(crate) fn new_tracker(slot: &StreamSlot) -> Box<SequenceTracker> {
    Box::new(SequenceTracker::new(slot.stream.load().sequence_modulus.unwrap_or(1 << 32)))
}

/// Everything behind the append lock.
pub(crate) struct Writer {
    pub(crate) slots: Arc<SlotTable>,
    pub(crate) streams: Vec<StreamWriter>,
    /// Streams by their key.
    index: HashTable<u32>,
    /// What a stream without rows has: one for all.
    no_rows: Arc<OpenRows>,
    none_sealed: Arc<SealedRows>,
    hasher: foldhash::fast::RandomState,
    pub(crate) shapes: Shapes,
    histories: Histories,
    pub(crate) groups: Groups,
    pub(crate) channels: u32,
    max_streams: u32,
    /// Records of the commit to come.
    pub(crate) pending: Vec<u64>,
    /// Its number.
    pub(crate) pending_commit: u64,
    /// Streams with frames in it.
    pub(crate) dirty: Vec<u32>,
    /// Where its unit will begin.
    pub(crate) head: u64,
    /// Where the log's oldest needed unit begins.
    pub(crate) tail: u64,
    pub(crate) ring_bytes: u64,
    /// Most bytes of a unit's records: beyond, someone has to commit first.
    pending_max: usize,
    /// Bytes of the ring that somebody was refused for want of: the log's oldest rows are sealed for them.
    pub(crate) wanted_bytes: u64,
    /// Most bytes of a definition, of one frame's record, and of a chunk.
    pub(crate) definition_max: usize,
    pub(crate) part_max: usize,
    chunk_max: usize,
    /// What checkpoints hold of the catalog, and the most that they have room for, where that is bounded.
    pub(crate) catalog_bytes: u64,
    pub(crate) catalog_room: Option<u64>,
    pub(crate) scratch: RowScratch,
    /// Where the log has frames that got no row.
    pub(crate) records: HeldRecords,
    pub(crate) closed: bool,
    /// No segment space can be had.
    pub(crate) disk_full: bool,
    /// Why nothing is taken until the disk takes again what it refused, if so.
    pub(crate) held: Option<Refusal>,
    /// Memory of all open chunks.
    pub(crate) open_bytes: usize,
    /// Rises with each change of the catalog.
    pub(crate) catalog_version: Arc<AtomicU64>,
    /// Gaps found since the last commit.
    pub(crate) gaps: WaitingGaps,
    /// Number of `strongback.gaps`.
    pub(crate) gaps_stream: Option<u32>,
    /// Frames refused that no gap row tells of yet.
    pub(crate) refused: RefusedFrames,
    /// A `time` further ahead of its reception is counted.
    pub(crate) max_future_ns: i64,
    /// Streams with rows enough for a block.
    pub(crate) due: Vec<u32>,
    /// Streams whose definition changed since the last checkpoint.
    pub(crate) changed: Vec<u32>,
    /// Every chunk ever begun whose rows may not be in a segment yet, in the order of the log.
    pub(crate) chunks: VecDeque<ChunkAt>,
}

/// A chunk in the order of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkAt {
    pub(crate) position: u64,
    pub(crate) stream: u32,
    pub(crate) first_row: u64,
}

/// Rows in memory from which a stream is sealed: a block's, and the newest that stay.
pub(crate) const DUE_ROWS: u64 = 1536;
/// Chunks' worth of bytes in memory from which a stream is sealed.
const DUE_CHUNKS: usize = 3;

impl Writer {
    pub(crate) fn new(slots: Arc<SlotTable>, max_streams: u32, version: Arc<AtomicU64>) -> Writer {
        Writer {
            slots,
            streams: Vec::new(),
            index: HashTable::new(),
            no_rows: Arc::default(),
            none_sealed: Arc::default(),
            hasher: foldhash::fast::RandomState::default(),
            shapes: Shapes::default(),
            histories: Histories::default(),
            groups: Groups::default(),
            channels: 0,
            max_streams,
            pending: Vec::new(),
            pending_commit: 1,
            dirty: Vec::new(),
            head: 0,
            tail: 0,
            ring_bytes: 0,
            pending_max: 0,
            wanted_bytes: 0,
            definition_max: 0,
            part_max: FRAME_BYTES_MAX,
            chunk_max: CHUNK_BYTES,
            catalog_bytes: 0,
            catalog_room: None,
            scratch: RowScratch::default(),
            records: HeldRecords::default(),
            closed: false,
            disk_full: false,
            held: None,
            open_bytes: 0,
            catalog_version: version,
            gaps: WaitingGaps::default(),
            gaps_stream: None,
            refused: RefusedFrames::default(),
            max_future_ns: i64::MAX,
            due: Vec::new(),
            changed: Vec::new(),
            chunks: VecDeque::new(),
        }
    }

    /// Says how large the log's ring and segments are.
    pub(crate) fn set_sizes(&mut self, ring_bytes: u64, space: &Space) {
        let ring = usize::try_from(ring_bytes).unwrap_or(usize::MAX);
        let quarter = ring / 4 - UNIT_HEADER_BYTES;
        let part = (space.segment_bytes / PART_OF_SEGMENT) as usize;
        self.ring_bytes = ring_bytes;
        self.pending_max = quarter.min(16 << 20);
        self.part_max = FRAME_BYTES_MAX.min(part).min(quarter);
        self.definition_max = part.min(ring / 2);
        self.chunk_max = CHUNK_BYTES.min(part);
        self.catalog_room = space.fixed.map(|fixed| room_of(&fixed));
        self.groups.set_gaps_apart(space.fixed.is_none());
    }

    /// Whether `bytes` more records fit into the pending unit and the ring.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let records = self.pending.len() * 8 + bytes;
        (self.pending.is_empty() || records <= self.pending_max)
            && self.is_free(records, reserve_bytes(self.ring_bytes) + self.records.bytes as u64)
    }

    /// Bytes of the ring kept free for a unit with the rows of these held frames.
    pub(crate) fn held_room(bytes: usize) -> u64 {
        if bytes > 0 { unit_bytes(bytes) } else { 0 }
    }

    /// Room without which gap rows wait for the next commit.
    pub(crate) fn gaps_room(&self) -> usize {
        (self.pending_max / 4).min(1 << 16)
    }

    /// Whether a unit of these records fits into the ring and leaves a reserve.
    pub(crate) fn is_free(&self, records: usize, reserve: u64) -> bool {
        self.head + unit_bytes(records) + reserve <= self.tail + self.ring_bytes
    }

    fn find(&self, key: &StreamKey) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.index.find(hash, |&id| self.streams[id as usize].slot.stream.load().key == *key).copied()
    }

    /// Finds, makes or grows a stream; the records of it go ahead of its next frame.
    pub(crate) fn resolve(
        &mut self,
        spec: &StreamSpec,
        internal: bool,
        now: i64,
    ) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        if self.closed {
            return Err(Reject::Refused(Refusal::Closed));
        }
        catalog::check_owner(&spec.key, internal)?;
        if let Some(id) = self.find(&spec.key) {
            let before = self.streams[id as usize].slot.stream.load_full();
            let growth = catalog::grow(&before, spec, self.channels)?;
            let Some(stream) = growth.stream else { return Ok((before, growth.indices)) };
            // A held frame has the shape and the reductions of its time. Who grows streams leaves the reserve alone, and the
            // room of those that others hold.
            let held = self.streams[id as usize].reducer.as_ref().and_then(|reducer| reducer.held.as_ref());
            let others = self.records.bytes - held.map_or(0, |held| held.record_bytes());
            let kept = reserve_bytes(self.ring_bytes) + Writer::held_room(others);
            if !self.flush_held(id as usize, kept, now) {
                return Err(Reject::Refused(Refusal::LogFull));
            }
            let stream = Arc::new(stream);
            let added = stream.layout.channels.len() - before.layout.channels.len();
            let writer = &self.streams[id as usize];
            let (newest, shape) = (writer.history.newest, writer.shape.clone());
            let mut history = (*writer.history).clone();
            let first_change = history.changes.len();
            let sequenced = stream.sequence_modulus.is_some() && history.sequenced_from.is_none();
            catalog::extend_history(&mut history, &growth.retyped, sequenced);
            history.serial += 1;
            let bytes = catalog::encode_channels(&stream, &history, &growth.touched, first_change);
            let group = writer.slot.group;
            let more = match self.catalog_room {
                Some(_) => {
                    let known = catalog_bytes(&before, &self.streams[id as usize].history, group);
                    catalog_bytes(&stream, &history, group).saturating_sub(known)
                }
                None => 0,
            };
            self.check_catalog(&stream, more)?;
            self.put_control(Control::Channels, &bytes)?;
            self.catalog_bytes += more;
            let shape_changed = history.newest != newest;
            let clock_changed = stream.clock != before.clock;
            let shape = if shape_changed { history.shape(history.newest, &mut self.shapes) } else { shape };
            let writer = &mut self.streams[id as usize];
            writer.set_layout(history, shape, &mut self.histories);
            writer.source_clock = stream.clock == Clock::Source;
            if shape_changed || clock_changed {
                writer.chunk = None;
            }
            self.slots.redefine(&writer.slot, stream.clone());
            self.follow_definition(id as usize);
            self.channels += added as u32;
            self.changed.push(id);
            self.catalog_version.fetch_add(1, std::sync::atomic::Ordering::Release);
            return Ok((stream, growth.indices));
        }
        catalog::check_key(&spec.key)?;
        // The store's own streams are few and must find a place.
        if !internal && self.streams.len() >= self.max_streams as usize || !self.slots.has_room() {
            return Err(Reject::TooManyStreams { stream: spec.key.to_string(), max_streams: self.max_streams });
        }
        let empty = Stream {
            id: StreamId(self.streams.len() as u32),
            key: spec.key.clone(),
            source: spec.source.clone(),
            clock: spec.clock,
            expected_period_ns: spec.expected_period_ns,
            sequence_modulus: spec.sequence_modulus,
            layout: Arc::new(Layout { version: 0, channels: Vec::new() }),
        };
        let growth = catalog::grow(&empty, spec, self.channels)?;
        let stream = growth.stream.unwrap_or(empty);
        let mut history =
            ShapeHistory { sequenced_from: stream.sequence_modulus.map(|_| 0), ..ShapeHistory::default() };
        catalog::extend_history(&mut history, &growth.retyped, false);
        let group = self.groups.of(&stream.key);
        let bytes = catalog::encode_stream(&stream, &history, group);
        let more = self.catalog_room.map_or(0, |_| catalog_bytes(&stream, &history, group));
        self.check_catalog(&stream, more)?;
        self.put_control(Control::Stream, &bytes)?;
        self.catalog_bytes += more;
        let stream = self.add_stream(stream, history, group);
        Ok((stream, growth.indices))
    }

    /// After a stream's definition changed: what its reductions and its sequences go by.
    fn follow_definition(&mut self, index: usize) {
        self.renew_reducer(index);
        let stream = &mut self.streams[index];
        if let Some(modulus) = stream.slot.stream.load().sequence_modulus
            && let Some(tracker) = &mut stream.tracker
            && tracker.count_by(modulus)
        {
            // Nobody remembers two sessions before the one that begins.
            self.gaps.urge(index as u32);
        }
    }

    pub(crate) fn put_control(&mut self, kind: Control, bytes: &[u8]) -> Result<(), Reject> {
        let size = 16 + bytes.len().next_multiple_of(8);
        if !self.has_room(size) {
            self.want(size);
            return Err(Reject::Refused(Refusal::LogFull));
        }
        record::put_control(&mut self.pending, kind, bytes);
        Ok(())
    }

    /// Adds a stream that is in the log already, or about to be.
    pub(crate) fn add_stream(&mut self, stream: Stream, history: ShapeHistory, group: Group) -> Arc<Stream> {
        let stream = Arc::new(stream);
        let shape = history.shape(history.newest, &mut self.shapes);
        let slot = Arc::new(StreamSlot {
            stream: ArcSwap::new(stream.clone()),
            open: ArcSwap::new(self.no_rows.clone()),
            held: ArcSwapOption::empty(),
            sealed: ArcSwap::new(self.none_sealed.clone()),
            committed_row: AtomicU64::new(0),
            group,
        });
        let id = self.streams.len() as u32;
        if stream.key.table == GAPS_TABLE {
            self.gaps_stream = Some(id);
        }
        self.slots.push(slot.clone());
        if self.streams.len() == self.streams.capacity() {
            // By eighths: doubled, the list would hold up to half of its memory for nothing.
            self.streams.reserve_exact((self.streams.len() / 8).max(64));
        }
        self.streams.push(StreamWriter {
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
        });
        self.renew_reducer(id as usize);
        let (hasher, streams) = (&self.hasher, &self.streams);
        let hash_of = |id: &u32| hasher.hash_one(&streams[*id as usize].slot.stream.load().key);
        self.index.insert_unique(hash_of(&id), id, hash_of);
        self.channels += stream.layout.channels.len() as u32;
        self.changed.push(id);
        self.catalog_version.fetch_add(1, std::sync::atomic::Ordering::Release);
        stream
    }

    /// Takes a whole definition back from a checkpoint: of a new stream, or newer than the one known.
    pub(crate) fn apply_stream(
        &mut self,
        (id, key, body, group): (StreamId, StreamKey, catalog::Body, Group),
    ) -> Option<()> {
        if !self.groups.has(group) {
            return None;
        }
        let serial = body.serial;
        let mut history = ShapeHistory::default();
        let stream = catalog::apply_body(id, key, &[], &mut history, body)?;
        match (id.0 as usize).cmp(&self.streams.len()) {
            std::cmp::Ordering::Greater => return None,
            std::cmp::Ordering::Equal if !self.slots.has_room() => return None,
            std::cmp::Ordering::Equal => {
                self.add_stream(stream, history, group);
            }
            std::cmp::Ordering::Less => {
                let writer = &mut self.streams[id.0 as usize];
                let before = writer.slot.stream.load().layout.channels.len();
                if serial <= writer.history.serial {
                    return Some(());
                }
                self.channels += stream.layout.channels.len().saturating_sub(before) as u32;
                let shape = history.shape(history.newest, &mut self.shapes);
                writer.set_layout(history, shape, &mut self.histories);
                writer.source_clock = stream.clock == Clock::Source;
                writer.chunk = None;
                self.slots.redefine(&writer.slot, Arc::new(stream));
                self.follow_definition(id.0 as usize);
                self.catalog_version.fetch_add(1, std::sync::atomic::Ordering::Release);
            }
        }
        Some(())
    }

    /// Says that rows before this one are in segments.
    pub(crate) fn set_sealed(&mut self, id: u32, first_row: u64) {
        if let Some(stream) = self.streams.get_mut(id as usize)
            && first_row > stream.next_row
        {
            stream.next_row = first_row;
            stream.slot.open.store(Arc::new(OpenRows::empty(first_row)));
        }
    }

    /// Takes a change of channels back from the log; what is known already is skipped.
    pub(crate) fn apply_channels(&mut self, id: StreamId, body: catalog::Body) -> Option<()> {
        let writer = self.streams.get_mut(id.0 as usize)?;
        let before = writer.slot.stream.load_full();
        if body.serial <= writer.history.serial {
            return Some(());
        }
        let channels = &before.layout.channels;
        let mut history = (*writer.history).clone();
        let stream = catalog::apply_body(id, before.key.clone(), channels, &mut history, body)?;
        self.channels += (stream.layout.channels.len() - channels.len()) as u32;
        self.changed.push(id.0);
        let shape = history.shape(history.newest, &mut self.shapes);
        writer.set_layout(history, shape, &mut self.histories);
        writer.source_clock = stream.clock == Clock::Source;
        writer.chunk = None;
        self.slots.redefine(&writer.slot, Arc::new(stream));
        self.follow_definition(id.0 as usize);
        self.catalog_version.fetch_add(1, std::sync::atomic::Ordering::Release);
        Some(())
    }

    /// Appends one frame. `told`: whoever sent it is told when it is refused, and may send it again.
    #[inline(always)]
    pub(crate) fn append(&mut self, frame: &FrameRef<'_>, now: i64, told: bool) -> Taken {
        let taken = self.offer(frame, now, told);
        if taken.as_ref().is_err_and(|reject| **reject == Reject::Refused(Refusal::LogFull)) {
            return self.refuse(frame, Refusal::LogFull, told);
        }
        taken
    }

    /// As [`Writer::append`], but a frame that finds the log full is not counted: it comes again.
    #[inline(always)]
    pub(crate) fn offer(&mut self, frame: &FrameRef<'_>, now: i64, told: bool) -> Taken {
        let head = frame.head();
        let index = head.stream.0 as usize;
        let Some(stream) = self.streams.get_mut(index) else {
            return Err(Box::new(Reject::BadName { name: format!("stream {index}"), why: "not in this store" }));
        };
        stream.counts.received += 1;
        let reject = match self.try_append(frame, now) {
            Ok(row) => return Ok(row),
            Err(reject) => reject,
        };
        let counts = &mut self.streams[index].counts;
        match *reject {
            Reject::Refused(Refusal::LogFull) => counts.received -= 1,
            Reject::Refused(ref refusal) => {
                counts.received -= 1;
                return self.refuse(frame, refusal.clone(), told);
            }
            _ => counts.rejected += 1,
        }
        Err(reject)
    }

    #[inline(always)]
    pub(crate) fn try_append(&mut self, frame: &FrameRef<'_>, now: i64) -> Taken {
        let head = frame.head();
        let index = head.stream.0 as usize;
        if self.closed {
            return Err(Box::new(Reject::Refused(Refusal::Closed)));
        }
        if self.disk_full {
            return Err(Box::new(Reject::Refused(Refusal::DiskFull)));
        }
        if let Some(refusal) = &self.held {
            return Err(Box::new(Reject::Refused(refusal.clone())));
        }
        if self.streams[index].reducer.is_some()
            && let Some(taken) = self.take_late(frame, now)
        {
            return taken;
        }
        let frame_max = self.part_max;
        let stream = &mut self.streams[index];
        if !is_time(head.receive_time) || head.source_time.is_some_and(|time| !is_time(time)) {
            return Err(Box::new(Reject::BadTime { stream: stream.slot.stream.load().key.to_string() }));
        }
        if let Err(misfit) = self.scratch.encode(&stream.shape, frame) {
            return Err(Box::new(misfit.reject(&stream.slot.stream.load())));
        }
        let size = record::frame_bytes(self.scratch.words.len(), self.scratch.text.len());
        if size > frame_max {
            let stream = stream.slot.stream.load().key.to_string();
            return Err(Box::new(Reject::TooLarge { stream, size_bytes: size }));
        }
        // With reductions there may be a row and a record of what is held, and room kept free for the row of that.
        let size = if stream.reducer.is_some() { 2 * size + 128 } else { size };
        if !self.has_room(size) {
            self.want(size);
            return Err(Box::new(Reject::Refused(Refusal::LogFull)));
        }
        let stream = &mut self.streams[index];
        if stream.shape.has_sequence
            && let Some(wire) = head.sequence
        {
            let tracker = stream.tracker.get_or_insert_with(|| new_tracker(&stream.slot));
            let judged = tracker.judge(wire, head.receive_time, head.source_time);
            if judged.seen == Seen::Duplicate {
                stream.counts.duplicate += 1;
                return Ok(None);
            }
            self.scratch.set_sequence(judged.sequence, judged.session);
            if judged.seen == Seen::Next {
                tracker.take(&judged, (head.receive_time, head.source_time), 0);
            } else {
                let before = tracker.newest(&judged);
                let gap = self.gaps.id_of(index as u32, &judged, head.receive_time);
                tracker.take(&judged, (head.receive_time, head.source_time), gap);
                stream.note_gap(&mut self.gaps, &judged, gap, before, head);
            }
        } else if stream.source_clock {
            let time = self.scratch.head().time(true);
            if time > stream.newest_time {
                stream.newest_time = time;
            } else {
                let open = stream.slot.open.load();
                if recent::is_duplicate(&self.scratch, &stream.shape, time, &open, stream.recent.as_deref()) {
                    stream.counts.duplicate += 1;
                    return Ok(None);
                }
            }
        }
        if self.streams[index].reducer.is_some() && self.reduce(frame, now) {
            return Ok(Some(REDUCED));
        }
        let row = self.push_row(index, now);
        let stream = &mut self.streams[index];
        if stream.source_clock
            && let Some(source) = head.source_time
            && source.saturating_sub(head.receive_time) > self.max_future_ns
        {
            stream.counts.future += 1;
        }
        stream.counts.stored += 1;
        stream.counts.points += self.scratch.points as u64;
        if stream.dirty != self.pending_commit {
            stream.dirty = self.pending_commit;
            self.dirty.push(index as u32);
        }
        let number = stream.shape_number;
        record::put_frame(&mut self.pending, index as u32, number, row, &self.scratch.words, &self.scratch.text);
        Ok(Some(row))
    }

    /// Puts the scratch row into the stream's open chunk; returns its ordinal.
    fn push_row(&mut self, index: usize, now: i64) -> u64 {
        let stream = &mut self.streams[index];
        let row = stream.next_row;
        if stream.source_clock {
            stream.newest_time = stream.newest_time.max(self.scratch.head().time(true));
        }
        let chunk = match &stream.chunk {
            Some(chunk) if !chunk.is_full() && chunk.shape_number == stream.shape_number => chunk,
            _ => {
                let shape = (stream.shape.clone(), stream.shape_number);
                let limits = (stream.capacity, self.chunk_max);
                let chunk = Arc::new(Chunk::new(row, shape, stream.source_clock, limits, now));
                stream.capacity = Some(chunk.capacity());
                self.open_bytes += chunk.size_bytes();
                let open = stream.slot.open.load();
                let mut chunks = Vec::with_capacity(open.chunks.len() + 1);
                chunks.extend(open.chunks.iter().cloned());
                chunks.push(chunk.clone());
                let first_row = chunks[0].first_row;
                let rows = row - first_row;
                let bytes = || chunks.iter().map(|chunk| chunk.size_bytes()).sum::<usize>();
                if !stream.due && (rows >= DUE_ROWS || bytes() >= DUE_CHUNKS * CHUNK_BYTES) {
                    stream.due = true;
                    self.due.push(index as u32);
                }
                self.chunks.push_back(ChunkAt { position: self.head, stream: index as u32, first_row: row });
                stream.slot.open.store(Arc::new(OpenRows { chunks, first_row }));
                stream.chunk.insert(chunk)
            }
        };
        chunk.push(&self.scratch, now);
        self.open_bytes += self.scratch.text.len();
        stream.next_row = row + 1;
        row
    }

    /// Puts a row back: of the log, or of a held frame. Rows below what is sealed are skipped by the caller.
    pub(crate) fn restore(&mut self, stream: u32, shape: u16, row: &mut Vec<u64>, text: &mut Vec<u8>, now: i64) {
        let index = stream as usize;
        std::mem::swap(&mut self.scratch.words, row);
        std::mem::swap(&mut self.scratch.text, text);
        let newest = self.streams[index].shape_number;
        if shape != newest {
            // Written under an older layout: a chunk of that shape.
            let old = self.streams[index].history.shape(shape, &mut self.shapes);
            let stream = &mut self.streams[index];
            let current = std::mem::replace(&mut stream.shape, old);
            if stream.chunk.as_ref().is_some_and(|c| c.shape_number != shape) {
                stream.chunk = None;
            }
            stream.shape_number = shape;
            self.push_row(index, now);
            let stream = &mut self.streams[index];
            stream.shape_number = newest;
            stream.shape = current;
            return;
        }
        let stream = &mut self.streams[index];
        if stream.chunk.as_ref().is_some_and(|c| c.shape_number != shape) {
            stream.chunk = None;
        }
        self.push_row(index, now);
    }
}
