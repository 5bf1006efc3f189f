//! Commits: appended records become a unit of the log, the unit is synced, and only then is it acknowledged.

use std::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::log::{LogWriter, ROWS_ONLY};
use crate::model::clock::Caller;
use crate::model::mutant::{self, Mutant};
use crate::model::trouble::{self, is_full, passes};
use crate::*;

/// The log's end, and the buffers that commits swap with those of the append side.
pub(crate) struct Committer {
    pub(crate) log: LogWriter,
    records: Vec<u64>,
    dirty: Vec<u32>,
    rows: Vec<(u32, u64)>,
    pub(crate) commits: u64,
    /// Number and flags of the unit to be written. If the disk refuses it, it is written again, unchanged, before any
    /// other.
    waits: Option<(u64, u32)>,
}

impl Committer {
    /// Makes the state at the end of a log.
    pub(crate) fn new(log: LogWriter) -> Committer {
        Committer { log, records: Vec::new(), dirty: Vec::new(), rows: Vec::new(), commits: 0, waits: None }
    }

    /// Returns the bytes of the records that wait to be written.
    pub(crate) fn unit_bytes(&self) -> usize {
        self.records.len() * 8
    }
}

impl Engine {
    /// Passes the commit numbers up to `last`, which a store before this one gave out for frames that are lost, by
    /// writing units even if they are empty. Stops if the log has no room beside that for held frames, or the disk
    /// refuses. What this store commits under the remaining numbers is durable, but is never reported as such.
    pub(crate) fn pass_commits(&self, last: u64, now: i64) {
        {
            let mut void = self.void_commits.lock();
            void.end = (last + 1).max(void.start);
        }
        while self.committed.load(Ordering::Acquire) < last {
            if !self.writer.lock().unit.fits_beside_held() {
                break;
            }
            let mut log = self.log.lock();
            if self.poison().is_some() || self.write_unit(&mut log, now, 0, true).is_err() {
                break;
            }
        }
    }

    pub(crate) fn commit(&self, now: i64) -> Result<CommitNumber, Refusal> {
        // One commit at a time: the frames of a caller that waits here are in the next unit, with those of others.
        let mut log = self.log.lock();
        match self.poison() {
            Some(refusal) => Err(refusal),
            None => self.write_unit(&mut log, now, 0, false),
        }
    }

    /// Writes a unit with the instant `now` to the log. Returns false if the log has room only for held frames, or
    /// nothing can be written.
    pub(crate) fn mark_log(&self, now: i64) -> std::io::Result<bool> {
        let mut log = self.log.lock();
        let is_free = self.writer.lock().unit.fits_beside_held();
        match self.poison() {
            None if is_free => self.write_unit(&mut log, now, 0, true).map(|_| true).map_err(trouble::of),
            _ => Ok(false),
        }
    }

    /// Accepts frames again after the disk refused for a time, once the unit that waits, if any, is written.
    pub(crate) fn take_again(&self, now: i64) -> Result<(), Refusal> {
        if !self.writer.lock().gate.is_held() || mutant::is_active(Mutant::RefuseForEver) {
            return Ok(());
        }
        let mut log = self.log.lock();
        self.write_waiting(&mut log, now)?;
        self.writer.lock().gate.release();
        Ok(())
    }

    /// Commits even while the store is being closed: the close itself and its checkpoint need it.
    pub(crate) fn write_commit(&self, now: i64, flags: u32) -> Result<CommitNumber, Refusal> {
        let mut log = self.log.lock();
        let failed = self.waiting.lock().clone();
        match failed {
            Some(refusal) => Err(refusal),
            None => self.write_unit(&mut log, now, flags, false),
        }
    }

    fn write_unit(&self, log: &mut Committer, now: i64, flags: u32, empty: bool) -> Result<CommitNumber, Refusal> {
        self.shared.paces.tell(Caller::Commit, now);
        self.write_waiting(log, now)?;
        let Committer { records, dirty, rows, waits, .. } = &mut *log;
        let (number, rows_only) = {
            let mut writer = self.writer.lock();
            writer.flush_gaps(now, false);
            if writer.unit.is_empty() && flags == 0 && !empty {
                return Ok(CommitNumber(self.committed.load(Ordering::Acquire)));
            }
            // Retention groups that an opening created wait here for room, and nothing is accepted before them.
            if !writer.unit.fits(0, 0) {
                return Err(Refusal::LogFull);
            }
            records.clear();
            dirty.clear();
            rows.clear();
            let handed_over = writer.unit.hand_over(records, dirty);
            rows.extend(dirty.iter().map(|&id| (id, writer.streams[id].next_row)));
            // Gap rows that found the unit full go first into the next one.
            writer.flush_gaps(now, false);
            handed_over
        };
        let flags = if rows_only { flags | ROWS_ONLY } else { flags };
        if mutant::is_active(Mutant::AcknowledgeEarly) {
            self.publish(rows, number);
        }
        *waits = Some((number, flags));
        self.write_waiting(log, now)?;
        Ok(CommitNumber(number))
    }

    /// Writes the unit that is to be written, if there is one. If the disk refuses for a time, the unit stays, and
    /// nothing is accepted until it is written: whole, at the same place.
    fn write_waiting(&self, log: &mut Committer, now: i64) -> Result<(), Refusal> {
        let Committer { log, records, rows, commits, waits, .. } = log;
        let Some((number, flags)) = *waits else { return Ok(()) };
        // The acknowledgement comes after the sync: nothing below this line may move above it.
        if let Err(error) = log.write_unit(records, self.epoch, flags, now) {
            if !passes(&error) {
                return Err(self.poisoned(&error));
            }
            let refusal = if is_full(&error) { Refusal::DiskFull } else { self.unwritable(&error) };
            self.writer.lock().gate.hold(refusal.clone());
            return Err(refusal);
        }
        if !log.ring.file.is_linked() {
            return Err(self.poisoned(&self.gone()));
        }
        debug_assert_eq!(number, log.link.commit);
        *waits = None;
        *commits += 1;
        self.links.lock().push_back(log.link);
        self.publish(rows, number);
        if records.capacity() > 4 << 20 {
            *records = Vec::new();
        }
        let mut writer = self.writer.lock();
        writer.gaps.note_durable(number);
        writer.gate.release();
        Ok(())
    }

    /// Publishes that a commit is durable.
    fn publish(&self, rows: &[(u32, u64)], number: u64) {
        for &(id, row) in rows {
            if let Some(slot) = self.shared.slots.get(StreamId(id)) {
                slot.committed_row.store(row, Ordering::Release);
            }
        }
        let waiting = self.waiting.lock();
        self.committed.store(number, Ordering::Release);
        self.condition.notify_all();
        drop(waiting);
    }
}
