//! The append side: all state behind one briefly held lock. A frame becomes a row of an open chunk and a record, of the
//! same words, in the unit that the next commit writes.

pub(crate) mod catalog_room;
pub(crate) mod chunk;
pub(crate) mod definitions;
pub(crate) mod gap_rows;
pub(crate) mod gaps_found;
pub(crate) mod gate;
pub(crate) mod held;
pub(crate) mod lane;
pub(crate) mod ledger;
pub(crate) mod open_chunks;
pub(crate) mod pending_unit;
pub(crate) mod recent;
pub(crate) mod recent_file;
pub(crate) mod reducer;
pub(crate) mod refused;
pub(crate) mod same_time;
pub(crate) mod sequence;
pub(crate) mod stream_registry;
pub(crate) mod stream_slot;
pub(crate) mod waiting_gaps;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::append::catalog_room::CatalogRoom;
use crate::append::chunk::Chunk;
use crate::append::gaps_found::GapsFound;
use crate::append::gate::Gate;
use crate::append::open_chunks::OpenChunks;
use crate::append::pending_unit::{PendingUnit, quarter_of};
use crate::append::recent::{ComparedRows, RecentRows};
use crate::append::reducer::Reducer;
use crate::append::same_time::SameTimes;
use crate::append::sequence::{Seen, SequenceTracker};
use crate::append::stream_registry::StreamRegistry;
use crate::append::stream_slot::{SlotTable, StreamSlot};
use crate::catalog::ShapeHistory;
use crate::catalog::group::Groups;
use crate::disk::space::Space;
use crate::log::record;
use crate::model::counts::Counts;
use crate::model::frame::FrameRef;
use crate::model::limits::FRAME_BYTES_MAX;
use crate::model::row::{RowScratch, RowShape, Stamps, is_time};
use crate::{Refusal, Reject};

/// Divisor of a segment's size that bounds a stream's definition, a frame and a chunk of rows, so that a block and its
/// entries in the footer fit into an empty segment.
const PART_OF_SEGMENT: u64 = 8;

/// Outcome of appending a frame: its row, or `None` for a duplicate. The functions that return it are inlined, which
/// keeps it in registers: reading it back from memory waited until all words of the row were there, a tenth of the time
/// of an append.
pub(crate) type Taken = Result<Option<u64>, Box<Reject>>;

/// Row number returned for a frame that needs no row because the stored values represent it.
pub(crate) const REDUCED: u64 = u64::MAX;

/// State of a stream on the append side.
pub(crate) struct StreamWriter {
    pub(crate) slot: Arc<StreamSlot>,
    pub(crate) history: Arc<ShapeHistory>,
    pub(crate) shape: Arc<RowShape>,
    /// Number of `shape` in the stream's history.
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
    /// Whether the stream is queued for sealing.
    pub(crate) due: bool,
    /// Serial of its definition in the checkpoint.
    pub(crate) saved_serial: Option<u32>,
    /// Newest `time`; kept only for streams whose `time` is the source time.
    pub(crate) newest_time: i64,
    /// Hashes of recently sealed rows of such a stream.
    pub(crate) recent: Option<Box<RecentRows>>,
    /// Reduction state, if any channel has a reduction.
    pub(crate) reducer: Option<Box<Reducer>>,
    pub(crate) counts: Counts,
}

impl StreamWriter {
    /// Returns the stamp that is a frame's `time`.
    pub(crate) fn time_of(&self, (receive, source): Stamps) -> i64 {
        source.filter(|_| self.source_clock).unwrap_or(receive)
    }

    /// Returns whether a frame whose `time` is not new is equal to a recent one. If it is not, it must be stored.
    fn is_duplicate(&self, row: &RowScratch, (id, time): (u32, i64), known: &mut SameTimes) -> bool {
        let open = self.slot.open.load();
        if let Some(is_known) = known.find((id, time), row, &self.shape, &open) {
            return is_known;
        }
        let rows = ComparedRows::new(&open, self.recent.as_deref());
        let Some(compared) = rows.compare(row, &self.shape, time) else { return true };
        if compared >= same_time::ROWS_MIN {
            known.keep((id, time), &self.shape, self.next_row, &rows);
        }
        false
    }
}

/// Makes the tracker of a stream whose past sequences are unknown.
pub(crate) fn new_tracker(slot: &StreamSlot) -> Box<SequenceTracker> {
    Box::new(SequenceTracker::new(slot.stream.load().sequence_modulus.unwrap_or(1 << 32)))
}

/// Everything behind the append lock: parts that each own their state, and the append path that connects them.
pub(crate) struct Writer {
    pub(crate) streams: StreamRegistry,
    pub(crate) groups: Groups,
    pub(crate) catalog_room: CatalogRoom,
    /// Records of the next commit.
    pub(crate) unit: PendingUnit,
    /// Rows that may not be in a segment yet.
    pub(crate) open: OpenChunks,
    /// Gaps found since the last commit.
    pub(crate) gaps: GapsFound,
    /// Whether frames are accepted.
    pub(crate) gate: Gate,
    /// Rows of times that have many.
    pub(crate) same_times: SameTimes,
    /// Row being encoded.
    scratch: RowScratch,
    /// Max bytes of one frame's record.
    frame_max: usize,
    /// Max nanoseconds by which a `time` may be ahead of its reception before it is counted as in the future.
    max_future_ns: i64,
}

impl Writer {
    pub(crate) fn new(slots: Arc<SlotTable>, max_streams: u32, version: Arc<AtomicU64>) -> Writer {
        Writer {
            streams: StreamRegistry::new(slots, max_streams, version),
            groups: Groups::default(),
            catalog_room: CatalogRoom::default(),
            unit: PendingUnit::new(),
            open: OpenChunks::new(),
            gaps: GapsFound::default(),
            gate: Gate::default(),
            same_times: SameTimes::default(),
            scratch: RowScratch::default(),
            frame_max: FRAME_BYTES_MAX,
            max_future_ns: i64::MAX,
        }
    }

    /// Sets the limits that follow from the size of the log's ring and of segments.
    pub(crate) fn set_sizes(&mut self, ring_bytes: u64, space: &Space) {
        let ring = usize::try_from(ring_bytes).unwrap_or(usize::MAX);
        let part = (space.segment_bytes / PART_OF_SEGMENT) as usize;
        self.frame_max = FRAME_BYTES_MAX.min(part).min(quarter_of(ring_bytes));
        self.unit.set_ring(ring_bytes);
        self.open.set_part(part);
        self.catalog_room.set_sizes(part.min(ring / 2), self.frame_max, space.fixed.as_ref());
        self.groups.set_gaps_apart(space.fixed.is_none());
    }

    /// Starts accepting frames after recovery has restored everything it found.
    pub(crate) fn begin(&mut self, max_future_ns: i64, now: i64) {
        self.max_future_ns = max_future_ns;
        self.settle_held(now);
        // The list grew by an eighth at a time and may have spare capacity.
        self.streams.shrink_to_fit();
    }

    /// Appends one frame. `told`: the sender is notified if the frame is refused, and may send it again.
    #[inline(always)]
    pub(crate) fn append(&mut self, frame: &FrameRef<'_>, now: i64, told: bool) -> Taken {
        let taken = self.offer(frame, now, told);
        if taken.as_ref().is_err_and(|reject| **reject == Reject::Refused(Refusal::LogFull)) {
            return self.refuse(frame, Refusal::LogFull, told);
        }
        taken
    }

    /// Appends a frame like [`Writer::append`], but does not count one that finds the log full: it will be offered
    /// again.
    #[inline(always)]
    pub(crate) fn offer(&mut self, frame: &FrameRef<'_>, now: i64, told: bool) -> Taken {
        let head = frame.head();
        let id = head.stream.0;
        let Some(stream) = self.streams.get_mut(id) else {
            return Err(Box::new(Reject::BadName { name: format!("stream {id}"), why: "not in this store" }));
        };
        stream.counts.received += 1;
        let reject = match self.try_append(frame, now) {
            Ok(row) => return Ok(row),
            Err(reject) => reject,
        };
        let counts = &mut self.streams[id].counts;
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
        let id = head.stream.0;
        if !self.gate.is_open()
            && let Some(refusal) = self.gate.refusal()
        {
            return Err(Box::new(Reject::Refused(refusal)));
        }
        if self.streams[id].reducer.is_some()
            && let Some(taken) = self.take_late(frame, now)
        {
            return taken;
        }
        let stream = &mut self.streams[id];
        if !is_time(head.receive_time) || head.source_time.is_some_and(|time| !is_time(time)) {
            return Err(Box::new(Reject::BadTime { stream: stream.slot.stream.load().key.to_string() }));
        }
        if let Err(misfit) = self.scratch.encode(&stream.shape, frame) {
            return Err(Box::new(misfit.reject(&stream.slot.stream.load())));
        }
        let size = record::frame_bytes(self.scratch.words.len(), self.scratch.text.len());
        if size > self.frame_max {
            let stream = stream.slot.stream.load().key.to_string();
            return Err(Box::new(Reject::TooLarge { stream, size_bytes: size }));
        }
        // With reductions, a frame may add a row and a record of a held frame, and needs room kept free for that
        // frame's row.
        let size = if stream.reducer.is_some() { 2 * size + 128 } else { size };
        if !self.unit.has_room(size) {
            self.unit.want(size);
            return Err(Box::new(Reject::Refused(Refusal::LogFull)));
        }
        let stream = &mut self.streams[id];
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
                let gap = self.gaps.id_of(id, &judged, head.receive_time);
                tracker.take(&judged, (head.receive_time, head.source_time), gap);
                stream.note_gap(&mut self.gaps, &judged, gap, before, head);
            }
        } else if stream.source_clock {
            let time = self.scratch.head().time(true);
            if time > stream.newest_time {
                stream.newest_time = time;
            } else if head.source_time.is_some() && stream.is_duplicate(&self.scratch, (id, time), &mut self.same_times)
            {
                // Frames without a source time may share their time of arrival; sent again, each has another.
                stream.counts.duplicate += 1;
                return Ok(None);
            }
        }
        if self.streams[id].reducer.is_some() && self.reduce(frame, now) {
            return Ok(Some(REDUCED));
        }
        let row = self.push_row(id, now);
        let stream = &mut self.streams[id];
        if stream.source_clock
            && let Some(source) = head.source_time
            && source.saturating_sub(head.receive_time) > self.max_future_ns
        {
            stream.counts.future += 1;
        }
        stream.counts.stored += 1;
        stream.counts.points += self.scratch.points as u64;
        let (words, text) = (&self.scratch.words, &self.scratch.text);
        let row_and_clock = (row, stream.source_clock);
        self.unit.put_frame((id, stream.shape_number), row_and_clock, (words, text), &mut stream.dirty);
        Ok(Some(row))
    }

    /// Puts the scratch row into the open chunk of a stream. Returns its ordinal.
    #[inline]
    fn push_row(&mut self, id: u32, now: i64) -> u64 {
        self.open.push_row((id, &mut self.streams[id]), &self.scratch, self.unit.head(), now)
    }

    /// Puts back a row of the log or of a held frame, of an older shape and clock of its stream or the newest. The caller
    /// skips rows that are already sealed.
    pub(crate) fn restore(
        &mut self,
        id: u32,
        (shape, source_clock): (u16, bool),
        row: &mut Vec<u64>,
        text: &mut Vec<u8>,
        now: i64,
    ) {
        std::mem::swap(&mut self.scratch.words, row);
        std::mem::swap(&mut self.scratch.text, text);
        let stream = &mut self.streams[id];
        let newest_clock = std::mem::replace(&mut stream.source_clock, source_clock);
        let newest = stream.shape_number;
        if shape == newest {
            self.push_row(id, now);
        } else {
            let older = self.streams.older_shape(id, shape);
            let stream = &mut self.streams[id];
            let current = std::mem::replace(&mut stream.shape, older);
            stream.shape_number = shape;
            self.push_row(id, now);
            let stream = &mut self.streams[id];
            (stream.shape_number, stream.shape) = (newest, current);
        }
        self.streams[id].source_clock = newest_clock;
    }
}
