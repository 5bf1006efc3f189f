//! Gaps that were found and have no row of `strongback.gaps` yet: what got lost on the way, and what was refused.

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
    /// Frames refused that no gap row tells of yet.
    refused: RefusedFrames,
}

impl GapsFound {
    /// Sets the number after which gaps found from now on are numbered.
    pub(crate) fn begin(&mut self, before: u64) {
        self.waiting.next_id = before;
    }

    /// Returns the newest id that was given out.
    pub(crate) fn newest_id(&self) -> u64 {
        self.waiting.next_id
    }

    /// Returns whether there is nothing to tell.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.refused.is_empty()
    }

    /// Returns whether any that waits has this cause.
    pub(crate) fn has(&self, cause: GapCause) -> bool {
        self.waiting.has(cause)
    }

    /// Returns the ids of gaps whose row is not durable with the commit `committed`.
    pub(crate) fn undurable(&self, committed: u64) -> HashSet<u64> {
        self.waiting.ids(committed).chain(self.refused.waiting()).collect()
    }

    /// Forgets which rows the commits up to this one hold: they are durable.
    pub(crate) fn note_durable(&mut self, committed: u64) {
        self.waiting.note_durable(committed);
    }

    /// Returns the id for what a frame of a stream showed that is received now: that of the row it joins, or a new one.
    pub(super) fn id_of(&mut self, stream: u32, judged: &Judged, received: i64) -> u64 {
        self.waiting.id_of(stream, judged, received)
    }

    /// Adds what a frame of a stream showed that is received now, with the id of [`GapsFound::id_of`].
    pub(super) fn add(&mut self, stream: &Stream, judged: &Judged, id: u64, stamps: ((i64, i64), i64)) {
        self.waiting.add(stream, judged, id, stamps);
    }

    /// Adds a gap that somebody else found.
    pub(crate) fn push(&mut self, gap: Gap) {
        self.waiting.push(gap);
    }

    /// Adds what was found missing in the log and no row names. Returns its id, or `None` if too many gaps wait.
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
        // With another it would have no row that names it, and each opening would find it again.
        self.waiting.push_apart(gap)
    }

    /// Lets what a stream lost get its row with the next commit.
    pub(super) fn urge(&mut self, stream: u32) {
        self.waiting.urge(stream);
    }

    /// Returns the id of the row that tells of refused frames of a stream. `misses`: whether any of these sequences of a
    /// session are missing for another reason.
    pub(crate) fn id_of_refused(
        &mut self,
        of: (u32, GapCause),
        sequence: Option<Run>,
        misses: impl Fn(Run) -> bool,
    ) -> u64 {
        self.refused.id_of(of, sequence, misses, &mut self.waiting.next_id)
    }

    /// Counts refused frames whose row has an id already.
    pub(crate) fn count_refused(&mut self, of: (u32, GapCause), count: u64, time: (i64, i64), sequence: Option<Run>) {
        self.refused.add(of, count, time, sequence);
    }

    /// Takes those whose row is to be written now, in the order of their rows; all of them at the end.
    pub(super) fn take_due(
        &mut self,
        now: i64,
        all: bool,
        definition: impl Fn(u32) -> Option<Guard<Arc<Stream>>>,
    ) -> Vec<Gap> {
        self.refused.joined().for_each(|stream| self.waiting.urge(stream));
        let mut losses = self.waiting.take_due(now, all);
        // What was refused among the losses that a row names is not taken for one of them: its row comes first.
        let of_sequence = |gap: &Gap| gap.stream.filter(|_| gap.cause == GapCause::Sequence);
        let told: hashbrown::HashSet<u32> = losses.iter().filter_map(of_sequence).collect();
        let mut found = Vec::new();
        self.refused.take_due((now, all), |id| told.contains(&id), definition, &mut found);
        if losses.iter().any(|gap| gap.cause == GapCause::Filled) {
            // Before the row of its gap it would fill what no row says is missing.
            let waiting: hashbrown::HashSet<u64> = self.refused.waiting().collect();
            let waits = |gap: &mut Gap| gap.cause == GapCause::Filled && waiting.contains(&gap.id);
            let early = losses.extract_if(.., waits).collect();
            self.put_back(early);
        }
        found.append(&mut losses);
        found
    }

    /// Notes that a row was written, into the unit of a commit.
    pub(super) fn note_written(&mut self, gap: &Gap, commit: u64, now: i64) {
        self.waiting.note_written(gap, commit, now);
    }

    /// Takes back what found no room.
    pub(super) fn put_back(&mut self, gaps: Vec<Gap>) {
        self.waiting.put_back(gaps);
    }

    /// Forgets streams that got no row lately.
    pub(super) fn forget_quiet(&mut self, now: i64) {
        self.waiting.forget_quiet(now);
    }

    /// Takes over what another one has no durable rows for yet: those that it had written come with `commit`. `knows`:
    /// whether that one knows all that a stream lost, so that what opening found of it would be counted twice.
    pub(crate) fn take_over(&mut self, before: &GapsFound, commit: u64, knows: impl Fn(u32) -> bool) {
        self.waiting.take_over(&before.waiting, commit, knows);
        self.refused.take_over(&before.refused);
    }
}
