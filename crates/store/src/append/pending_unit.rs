//! The pending unit: the records of the next commit, and the room that the log's ring has for them.

use crate::append::held::{Held, HeldRecords};
use crate::log::record::{self, Control};
use crate::log::{Link, LogPosition, RECORDS_BYTES_MAX, UNIT_HEADER_BYTES, unit_bytes};
use crate::{Refusal, Reject};

/// Returns the bytes of the ring kept free for the units that begin an epoch or end a run; 0 for a ring below 1 MiB.
pub(crate) fn reserve_bytes(ring_bytes: u64) -> u64 {
    if ring_bytes < 1 << 20 { 0 } else { 64 << 10 }
}

/// Returns the bytes of the ring kept free for a unit with the rows of held frames, `bytes` in total.
pub(crate) fn held_room(bytes: usize) -> u64 {
    if bytes > 0 { unit_bytes(bytes) } else { 0 }
}

/// Returns the bytes of the records of a unit that takes a quarter of a ring.
pub(super) fn quarter_of(ring_bytes: u64) -> usize {
    usize::try_from(ring_bytes).unwrap_or(usize::MAX) / 4 - UNIT_HEADER_BYTES
}

/// The unit that the next commit writes.
#[derive(Debug)]
pub(crate) struct PendingUnit {
    records: Vec<u64>,
    /// Whether they are rows alone.
    rows_only: bool,
    /// Number of its commit.
    number: u64,
    /// Streams with frames in it.
    dirty: Vec<u32>,
    /// Position in the log at which it will begin.
    head: LogPosition,
    /// Position in the log at which the oldest needed unit begins.
    tail: LogPosition,
    ring_bytes: u64,
    /// Max bytes of a unit's records; beyond, a commit is needed first.
    records_max: usize,
    /// Bytes of the ring for lack of which an append was refused; the log's oldest rows are sealed to free them.
    wanted_bytes: u64,
    /// Records of held frames in the log, and the room kept for their rows.
    pub(super) held: HeldRecords,
}

impl PendingUnit {
    /// Makes the first unit of a log whose size is not known yet.
    pub(super) fn new() -> PendingUnit {
        PendingUnit {
            records: Vec::new(),
            rows_only: true,
            number: 1,
            dirty: Vec::new(),
            head: LogPosition::default(),
            tail: LogPosition::default(),
            ring_bytes: 0,
            records_max: 0,
            wanted_bytes: 0,
            held: HeldRecords::default(),
        }
    }

    /// Sets the size of the log's ring.
    pub(super) fn set_ring(&mut self, ring_bytes: u64) {
        self.ring_bytes = ring_bytes;
        self.records_max = quarter_of(ring_bytes).min(RECORDS_BYTES_MAX);
    }

    /// Begins the first unit after recovery, behind the log's end, with the records that wait for room.
    pub(crate) fn begin(&mut self, end: &Link, tail: LogPosition, records: Vec<u64>) {
        self.rows_only = records.is_empty();
        (self.number, self.head, self.tail, self.records) = (end.commit + 1, end.position, tail, records);
    }

    /// Moves to the position of a unit that is read back from the log.
    pub(crate) fn read_back(&mut self, position: LogPosition) {
        self.head = position;
    }

    /// Hands the records and the streams with frames over to be written, in exchange for empty buffers, and begins the
    /// next unit. Returns the number of the commit, and whether the records are rows alone.
    pub(crate) fn hand_over(&mut self, records: &mut Vec<u64>, dirty: &mut Vec<u32>) -> (u64, bool) {
        std::mem::swap(&mut self.records, records);
        std::mem::swap(&mut self.dirty, dirty);
        self.number += 1;
        self.head = self.head + unit_bytes(records.len() * 8);
        (self.number - 1, std::mem::replace(&mut self.rows_only, true))
    }

    /// Returns the number of its commit.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of the commit that makes everything so far durable.
    pub(crate) fn newest_commit(&self) -> u64 {
        self.number - u64::from(self.is_empty())
    }

    /// Returns the position in the log at which it will begin.
    #[inline(always)]
    pub(crate) fn head(&self) -> LogPosition {
        self.head
    }

    /// Returns the position in the log at which the oldest needed unit begins.
    pub(crate) fn tail(&self) -> LogPosition {
        self.tail
    }

    /// Moves the log's tail.
    pub(crate) fn set_tail(&mut self, position: LogPosition) {
        self.tail = position;
    }

    /// Returns the size of the log's ring.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.ring_bytes
    }

    /// Returns whether it has no record.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the bytes of its records.
    fn bytes(&self) -> usize {
        self.records.len() * 8
    }

    /// Returns whether `bytes` more records fit into it and the ring.
    #[inline]
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let records = self.bytes() + bytes;
        (self.is_empty() || records <= self.records_max)
            && self.is_free(records, reserve_bytes(self.ring_bytes) + held_room(self.held.bytes()))
    }

    /// Returns whether it fits into the ring with `bytes` more records and leaves a reserve.
    pub(crate) fn fits(&self, bytes: usize, reserve: u64) -> bool {
        self.is_free(self.bytes() + bytes, reserve)
    }

    /// Returns whether it fits into the ring beside the room for the rows of held frames.
    pub(crate) fn fits_beside_held(&self) -> bool {
        self.fits(0, held_room(self.held.bytes()))
    }

    /// Returns whether the ring has room for more than its reserves.
    pub(crate) fn is_log_free(&self) -> bool {
        self.is_free(0, 2 * reserve_bytes(self.ring_bytes) + held_room(self.held.bytes()))
    }

    /// Returns whether a unit of these records fits into the ring and leaves a reserve.
    #[inline]
    fn is_free(&self, records: usize, reserve: u64) -> bool {
        self.head + unit_bytes(records) + reserve <= self.tail + self.ring_bytes
    }

    /// Returns the bytes of the ring kept free beyond the room for the held frame of one stream.
    pub(super) fn kept_beside(&self, held_bytes: usize) -> u64 {
        reserve_bytes(self.ring_bytes) + held_room(self.held.bytes() - held_bytes)
    }

    /// Returns whether `bytes` more of held frames would exceed a quarter of the ring.
    pub(super) fn is_crowded(&self, bytes: usize) -> bool {
        (self.held.bytes() + bytes) as u64 > self.ring_bytes / 4
    }

    /// Returns the bytes of room without which gap rows wait for the next commit.
    pub(crate) fn gaps_room(&self) -> usize {
        (self.records_max / 4).min(1 << 16)
    }

    /// Asks upkeep to free as much of the log as `bytes` more records need, with the room that is kept free. A quarter
    /// of a small log may not be enough, and each retry would be refused for ever.
    #[cold]
    pub(super) fn want(&mut self, bytes: usize) {
        let kept_free = reserve_bytes(self.ring_bytes) + held_room(self.held.bytes());
        let wanted = unit_bytes(self.bytes()) + unit_bytes(bytes) + kept_free;
        self.wanted_bytes = self.wanted_bytes.max(wanted.min(self.ring_bytes));
    }

    /// Takes the bytes of the ring for lack of which an append was refused.
    pub(crate) fn take_wanted(&mut self) -> u64 {
        std::mem::take(&mut self.wanted_bytes)
    }

    /// Adds a control record.
    ///
    /// # Errors
    /// The log has no room for it.
    pub(crate) fn put_control(&mut self, kind: Control, bytes: &[u8]) -> Result<(), Reject> {
        let size = 16 + bytes.len().next_multiple_of(8);
        if !self.has_room(size) {
            self.want(size);
            return Err(Reject::Refused(Refusal::LogFull));
        }
        self.rows_only = false;
        record::put_control(&mut self.records, kind, bytes);
        Ok(())
    }

    /// Adds a control record that frees room once it is durable. It may use half of the reserve, but none of the room
    /// for held frames.
    ///
    /// # Errors
    /// The log has no room for it.
    pub(crate) fn put_release(&mut self, kind: Control, bytes: &[u8]) -> Result<(), Reject> {
        let size = 16 + bytes.len().next_multiple_of(8);
        if !self.fits(size, reserve_bytes(self.ring_bytes) / 2 + held_room(self.held.bytes())) {
            return Err(Reject::Refused(Refusal::LogFull));
        }
        self.rows_only = false;
        record::put_control(&mut self.records, kind, bytes);
        Ok(())
    }

    /// Adds the row of a frame. `dirty` is the pending commit in which its stream was last marked.
    #[inline(always)]
    pub(super) fn put_frame(
        &mut self,
        (stream, shape): (u32, u16),
        row: (u64, bool),
        (words, text): (&[u64], &[u8]),
        dirty: &mut u64,
    ) {
        if *dirty != self.number {
            *dirty = self.number;
            self.dirty.push(stream);
        }
        record::put_frame(&mut self.records, (stream, shape), row, words, text);
    }

    /// Adds the record of a held frame, or writes over the one at `at`. Returns its place.
    pub(super) fn put_held(&mut self, stream: u32, held: &Held, at: Option<(usize, usize)>) -> (usize, usize) {
        self.rows_only = false;
        held.put(stream, &mut self.records, at)
    }

    /// Returns the position of the first unit with a held frame that is needed once `committed` is durable.
    pub(crate) fn first_held(&mut self, committed: u64) -> Option<LogPosition> {
        self.held.first(committed)
    }

    /// Returns at most `most` streams whose held frame has its only record before a position.
    pub(crate) fn held_before(&self, position: LogPosition, most: usize) -> Vec<u32> {
        self.held.before(position, most)
    }
}
