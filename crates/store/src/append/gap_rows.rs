//! Rows of `strongback.gaps`, written into the unit of the frames that showed the gaps; and the accounting of refused
//! frames, which such rows report later.

use crate::append::ledger::{Gap, GapCause, gaps_spec};
use crate::append::sequence::Seen;
use crate::append::{Taken, Writer, new_tracker};
use crate::model::frame::{FrameBatch, FrameHead, FrameRef};
use crate::{Refusal, Reject};

impl Writer {
    /// Writes rows for the gaps that are due, so that they become durable with the frames that showed them. Without
    /// room they wait for the next commit. `all`: also writes those that still wait for their second to pass.
    pub(crate) fn flush_gaps(&mut self, now: i64, all: bool) {
        if self.gaps.is_empty() || self.gate.is_disk_full() && !all || !self.unit.has_room(self.unit.gaps_room()) {
            return;
        }
        // At the end of a run the rows are left in the log, which needs no segment space.
        let disk_full = self.gate.set_disk_full(false);
        self.put_gaps(now, all);
        self.gate.set_disk_full(disk_full);
    }

    fn put_gaps(&mut self, now: i64, all: bool) {
        let Writer { streams, gaps, .. } = self;
        let mut found = gaps.take_due(now, all, |id| Some(streams.get(id)?.slot.stream.load()));
        if found.is_empty() {
            return;
        }
        let Ok((stream, _)) = self.resolve(&gaps_spec(), true, now) else { return self.gaps.put_back(found) };
        let mut batch = FrameBatch::new();
        // Names are cut to fit into a row: a row that cannot be written would hold up all others.
        let text_max = self.frame_max / 4;
        let mut put = |this: &mut Writer, gap: &Gap| {
            batch.clear();
            gap.push(&stream, now, text_max, &mut batch);
            let done = matches!(this.offer(&batch.frame(0), now, true), Ok(Some(_)));
            if done {
                this.gaps.note_written(gap, this.unit.number(), now);
            }
            done
        };
        let written = found.iter().take_while(|gap| put(self, gap)).count();
        self.gaps.put_back(found.split_off(written));
        self.gaps.forget_quiet(now);
    }

    /// Counts a refused frame and returns its refusal.
    pub(crate) fn refuse(&mut self, frame: &FrameRef<'_>, refusal: Refusal, told: bool) -> Taken {
        let head = frame.head();
        if let Some(stream) = self.streams.get_mut(head.stream.0) {
            stream.counts.received += 1;
            stream.counts.rejected += 1;
            self.note_refused(head, told);
        }
        Err(Box::new(Reject::Refused(refusal)))
    }

    /// Notes that a refused frame is missing, each frame once. If its sender is not `told`, later frames find no gap in
    /// the sequence, and the frame fills its gap if it comes again.
    fn note_refused(&mut self, head: FrameHead, told: bool) {
        let id = head.stream.0;
        let Writer { streams, gaps, .. } = self;
        let stream = &mut streams[id];
        if stream.slot.stream.load().key.is_internal() {
            return;
        }
        let times = (head.receive_time, head.source_time);
        let time = stream.time_of(times);
        let of = (id, if told { GapCause::Refused } else { GapCause::NotRecorded });
        let (mut run, mut is_changed) = (None, false);
        if let Some(wire) = head.sequence
            && stream.shape.has_sequence
            && !told
        {
            let tracker = stream.tracker.get_or_insert_with(|| new_tracker(&stream.slot));
            let judged = tracker.judge(wire, head.receive_time, head.source_time);
            let gap = match judged.seen {
                // A duplicate loses nothing, and a missing frame was counted as lost already.
                Seen::Duplicate | Seen::Filled { .. } => return,
                Seen::Next | Seen::Late => 0,
                Seen::After { .. } | Seen::Restart => gaps.id_of(id, &judged, head.receive_time),
            };
            let before = tracker.newest(&judged);
            tracker.take(&judged, times, gap);
            run = Some((judged.session, judged.sequence, judged.sequence));
            let row = gaps.id_of_refused(of, run, |between| tracker.misses(between));
            tracker.miss_taken(&judged, row);
            // No row will record this, so the saved state must.
            is_changed = !std::mem::replace(&mut tracker.unsaved, true);
            if judged.seen != Seen::Late {
                stream.note_gap(gaps, &judged, gap, before, head);
            }
        } else {
            gaps.id_of_refused(of, None, |_| false);
        }
        if !told {
            stream.counts.lost += 1;
        }
        gaps.count_refused(of, 1, (time, time), run);
        if is_changed {
            streams.note_changed(id);
        }
    }
}
