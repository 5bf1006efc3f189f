//! Effects of a frame's sequence on its stream: counts, gaps found, and the state that recovery restores.

use super::{Judged, Seen, UNCOUNTED, UNKNOWN_GAP, advance};
use crate::append::gaps_found::GapsFound;
use crate::append::{StreamWriter, new_tracker};
use crate::model::frame::FrameHead;
use crate::model::row::{Stamps, head_of};

impl StreamWriter {
    /// Restores the sequence of a row of the log. `source_clock`: its `time` is its source_time.
    pub(crate) fn restore_sequence(&mut self, words: &[u64], row: u64, source_clock: bool, follows_lost: bool) {
        let head = head_of(words);
        let Some((sequence, session)) = head.sequence() else { return };
        let slot = &self.slot;
        let tracker = self.tracker.get_or_insert_with(|| new_tracker(slot));
        let stamps = head.stamps();
        let time_of = |(receive, source): Stamps| source.filter(|_| source_clock).unwrap_or(receive);
        // Frames lost with their rows have a gap row already.
        let gap = if follows_lost { UNCOUNTED } else { UNKNOWN_GAP };
        if row >= tracker.known_row
            && let Some(before) = tracker.restore(sequence, session, stamps, gap)
            && !follows_lost
        {
            let (from, to) = tracker.untold_time.unwrap_or((i64::MAX, i64::MIN));
            tracker.untold_time = Some((from.min(time_of(before)), to.max(time_of(stamps))));
        }
        if row < self.next_row {
            // The checkpoint may be older than the block.
            tracker.sealed = Some(advance(tracker.sealed, (sequence, session)));
        } else if tracker.is_position && tracker.sealed.is_some_and(|s| s.0 == session && s.1 >= sequence) {
            tracker.sealed = None;
        }
    }

    /// Counts and reports what the sequence of a frame showed: a loss, a filled gap, a restart. `before`: stamps of the
    /// newest frame before it, if known.
    #[cold]
    pub(crate) fn note_gap(
        &mut self,
        gaps: &mut GapsFound,
        judged: &Judged,
        gap: u64,
        before: Option<Stamps>,
        head: FrameHead,
    ) {
        match judged.seen {
            Seen::After { from, to } => self.counts.lost += (to - from + 1) as u64,
            Seen::Filled { .. } => {
                self.counts.filled += 1;
                self.counts.late += 1;
            }
            Seen::Restart => self.counts.restarts += 1,
            Seen::Late => {
                self.counts.late += 1;
                return;
            }
            Seen::Next | Seen::Duplicate => return,
        }
        let after = (head.receive_time, head.source_time);
        let time = (self.time_of(before.unwrap_or(after)), self.time_of(after));
        gaps.add(&self.slot.stream.load(), judged, gap, (time, head.receive_time));
    }
}
