//! Sealed segments whose files are lost, as reported in the ledger and recorded in the checkpoint: see
//! [`crate::open::missing`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::append::Writer;
use crate::append::ledger::{Gap, GapCause};
use crate::engine::Engine;
use crate::log::checkpoint::SealedRows;
use crate::model::stream::Stream;
use crate::segment::directory::{Segment, file_name};
use crate::upkeep::sealer::Sealer;

/// Rows of a stream that were durable and are lost.
pub(crate) struct LostRows {
    pub(crate) stream: u32,
    pub(crate) rows: Range<u64>,
    /// `time` of the data before and after.
    pub(crate) time: (i64, i64),
}

impl LostRows {
    /// Sets the `time` of the data after them.
    pub(crate) fn end_before(&mut self, time: i64) {
        self.time = (self.time.0.min(time), time);
    }
}

/// Returns the rows that are missing with a sealed segment, as far as the checkpoint knows: those of streams that have
/// none in a newer one. Readers no longer look for their newest block in it.
pub(crate) fn forget_blocks(writer: &Writer, segment: &Segment) -> Vec<LostRows> {
    let mut lost = Vec::new();
    for (id, stream) in writer.streams.iter() {
        let sealed = stream.slot.sealed.load_full();
        if stream.slot.group != segment.group || !(segment.places.0..=segment.places.1).contains(&sealed.newest_segment)
        {
            continue;
        }
        let rows = sealed.newest_first_row..stream.slot.open.load().first_row;
        if rows.start < rows.end {
            lost.push(LostRows { stream: id, rows, time: segment.state.lock().time });
        }
        stream.slot.sealed.store(Arc::new(SealedRows { last: None, ..(*sealed).clone() }));
    }
    lost
}

/// Returns the gap that names the file of a lost segment. It does not count rows of streams that have newer ones: only
/// the neighbours of the segment know them.
pub(crate) fn gap_of(segment: &Segment, now: i64) -> Gap {
    let state = *segment.state.lock();
    let known = |(from, to): (i64, i64)| (from <= to).then_some((from, to));
    Gap {
        id: 0,
        stream: None,
        cause: GapCause::Damaged,
        source: "strongback".into(),
        name: file_name(segment.id),
        session: None,
        sequence: None,
        rows: None,
        time: known(state.time).or(known(state.stored)).unwrap_or((now, now)),
        count: 0,
    }
}

/// Returns the gap of lost rows.
pub(crate) fn gap_of_rows(stream: &Stream, LostRows { stream: id, rows, time }: &LostRows) -> Gap {
    Gap {
        id: 0,
        stream: Some(*id),
        cause: GapCause::Damaged,
        source: stream.source.clone(),
        name: stream.key.to_string(),
        session: None,
        sequence: None,
        rows: Some((rows.start, rows.end - 1)),
        time: *time,
        count: rows.end - rows.start,
    }
}

impl Sealer {
    /// Reports sealed segments whose files readers found missing.
    pub(crate) fn tell_vanished(&mut self, engine: &Engine) {
        if !engine.shared.residents.take_vanished() {
            return;
        }
        let now = engine.shared.paces.now();
        for segment in engine.shared.segments.load_full().iter().filter(|segment| segment.is_lost()) {
            let known = |noted: &Arc<Segment>| Arc::ptr_eq(noted, segment);
            if segment.state.lock().told_lost || self.untold.segments.iter().any(known) {
                continue;
            }
            // Compaction has nothing to look for in it.
            segment.state.lock().left = true;
            let mut writer = engine.writer.lock();
            for rows in forget_blocks(&writer, segment) {
                let stream = writer.streams[rows.stream].slot.stream.load_full();
                writer.gaps.push(gap_of_rows(&stream, &rows));
            }
            writer.gaps.push(gap_of(segment, now));
            drop(writer);
            self.untold.segments.push(segment.clone());
            self.untold.commit = None;
        }
    }

    /// Makes the next checkpoint record the lost segments whose gaps are durable. Returns whether there are any.
    pub(crate) fn note_told(&mut self, engine: &Engine) -> bool {
        if self.untold.segments.is_empty() {
            return false;
        }
        let commit = match self.untold.commit {
            Some(commit) => commit,
            None => {
                let writer = engine.writer.lock();
                if writer.gaps.has(GapCause::Damaged) {
                    return false;
                }
                *self.untold.commit.insert(writer.unit.newest_commit())
            }
        };
        if engine.committed.load(Ordering::Acquire) < commit {
            return false;
        }
        for segment in std::mem::take(&mut self.untold).segments {
            segment.state.lock().told_lost = true;
            // A segment dropped meanwhile is in no checkpoint any more.
            if !segment.expired.load(Ordering::Acquire) {
                self.checkpoints.note_segment(segment);
            }
        }
        true
    }
}
