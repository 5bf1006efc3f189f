//! Gaps that were found and have no row of `strongback.gaps` yet: frames lost on the way, and frames refused.

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::Guard;

use crate::append::ledger::{Gap, GapCause};
use crate::append::refused::RefusedFrames;
use crate::append::sequence::{Judged, Run};
use crate::append::waiting_gaps::WaitingGaps;
use crate::model::stream::Stream;

/// Gaps found since the last rows were written.
#[derive(Debug, Default)]
pub(crate) struct GapsFound {
    waiting: WaitingGaps,
    /// Refused frames that no gap row reports yet.
    refused: RefusedFrames,
}

impl GapsFound {
    /// Sets the number that the ids of gaps found from now on follow.
    pub(crate) fn begin(&mut self, before: u64) {
        self.waiting.next_id = before;
    }

    /// Returns the newest id that was given out.
    pub(crate) fn newest_id(&self) -> u64 {
        self.waiting.next_id
    }

    /// Returns whether there is nothing to report.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.refused.is_empty()
    }

    /// Returns whether any waiting gap has this cause.
    pub(crate) fn has(&self, cause: GapCause) -> bool {
        self.waiting.has(cause)
    }

    /// Returns the ids of gaps whose row is not durable with the commit `committed`.
    pub(crate) fn undurable(&self, committed: u64) -> HashSet<u64> {
        self.waiting.ids(committed).chain(self.refused.waiting()).collect()
    }

    /// Forgets the rows in commits up to this one, which are durable.
    pub(crate) fn note_durable(&mut self, committed: u64) {
        self.waiting.note_durable(committed);
    }

    /// Returns the gap id for what a frame received at `received` showed: that of the row it joins, or a new one.
    pub(super) fn id_of(&mut self, stream: u32, judged: &Judged, received: i64) -> u64 {
        self.waiting.id_of(stream, judged, received)
    }

    /// Adds what a frame showed of its stream, with the id from [`GapsFound::id_of`]. `stamps`: `time` before and after
    /// the gap, and when the frame was received.
    pub(super) fn add(&mut self, stream: &Stream, judged: &Judged, id: u64, stamps: ((i64, i64), i64)) {
        self.waiting.add(stream, judged, id, stamps);
    }

    /// Adds a gap that was found outside the append path.
    pub(crate) fn push(&mut self, gap: Gap) {
        self.waiting.push(gap);
    }

    /// Adds frames that are missing in the log and that no row names. Returns the gap's id, or `None` if too many gaps
    /// wait.
    pub(crate) fn add_untold(
        &mut self,
        stream: &Stream,
        (session, sequence): (u32, (i64, i64)),
        count: u64,
        time: (i64, i64),
    ) -> Option<u64> {
        let gap = Gap {
            id: 0,
            stream: Some(stream.id.0),
            cause: GapCause::Sequence,
            source: stream.source.clone(),
            name: stream.key.to_string(),
            session: Some(session),
            sequence: Some(sequence),
            rows: None,
            time,
            count,
        };
        // Joined with another gap, it would have no row that names it, and each opening would find it again.
        self.waiting.push_apart(gap)
    }

    /// Makes a stream's losses get their row with the next commit.
    pub(super) fn urge(&mut self, stream: u32) {
        self.waiting.urge(stream);
    }

    /// Returns the id of the row that reports a stream's refused frames. `misses`: whether any sequence of a run is
    /// missing for another reason.
    pub(crate) fn id_of_refused(
        &mut self,
        of: (u32, GapCause),
        sequence: Option<Run>,
        misses: impl Fn(Run) -> bool,
    ) -> u64 {
        self.refused.id_of(of, sequence, misses, &mut self.waiting.next_id)
    }

    /// Counts refused frames whose row already has an id.
    pub(crate) fn count_refused(&mut self, of: (u32, GapCause), count: u64, time: (i64, i64), sequence: Option<Run>) {
        self.refused.add(of, count, time, sequence);
    }

    /// Takes the gaps whose row is due, in the order of their rows; with `all`, every gap.
    pub(super) fn take_due(
        &mut self,
        now: i64,
        all: bool,
        definition: impl Fn(u32) -> Option<Guard<Arc<Stream>>>,
    ) -> Vec<Gap> {
        self.refused.joined().for_each(|stream| self.waiting.urge(stream));
        let mut losses = self.waiting.take_due(now, all);
        // A loss row names a range of sequences. Refused frames within it need their row first, or they would be taken
        // for losses.
        let of_sequence = |gap: &Gap| gap.stream.filter(|_| gap.cause == GapCause::Sequence);
        let told: hashbrown::HashSet<u32> = losses.iter().filter_map(of_sequence).collect();
        let mut found = Vec::new();
        self.refused.take_due((now, all), |id| told.contains(&id), definition, &mut found);
        if losses.iter().any(|gap| gap.cause == GapCause::Filled) {
            // Written before the row of its gap, it would fill a gap that no row reports.
            let waiting: hashbrown::HashSet<u64> = self.refused.waiting().collect();
            let waits = |gap: &mut Gap| gap.cause == GapCause::Filled && waiting.contains(&gap.id);
            let early = losses.extract_if(.., waits).collect();
            self.put_back(early);
        }
        found.append(&mut losses);
        found
    }

    /// Notes that a gap's row was written into the unit of a commit.
    pub(super) fn note_written(&mut self, gap: &Gap, commit: u64, now: i64) {
        self.waiting.note_written(gap, commit, now);
    }

    /// Takes back gaps whose rows found no room.
    pub(super) fn put_back(&mut self, gaps: Vec<Gap>) {
        self.waiting.put_back(gaps);
    }

    /// Forgets streams without a recent row.
    pub(super) fn forget_quiet(&mut self, now: i64) {
        self.waiting.forget_quiet(now);
    }

    /// Takes over the gaps that `before` has no durable rows for; rows it had written become durable with `commit`.
    /// `knows`: whether `before` knows all losses of a stream, so that those found by opening would be counted twice.
    pub(crate) fn take_over(&mut self, before: &GapsFound, commit: u64, knows: impl Fn(u32) -> bool) {
        self.waiting.take_over(&before.waiting, commit, knows);
        self.refused.take_over(&before.refused);
    }
}
