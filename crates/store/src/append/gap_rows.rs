//! Rows of `strongback.gaps`: written into the unit with the frames that showed the gaps; and frames that are refused,
//! of which such rows tell later.

use crate::append::ledger::{Gap, GapCause, gaps_spec};
use crate::append::sequence::Seen;
use crate::append::{Taken, Writer, new_tracker};
use crate::model::frame::{FrameBatch, FrameHead, FrameRef};
use crate::{Refusal, Reject};

impl Writer {
    /// Makes rows of the gaps that are due, so that they are durable with the frames that showed them. Without room they
    /// wait for the next commit. `all`: those that would wait for their second to be over, too.
    pub(crate) fn flush_gaps(&mut self, now: i64, all: bool) {
        if self.gaps.is_empty() || self.gate.is_disk_full() && !all || !self.unit.has_room(self.unit.gaps_room()) {
            return;
        }
        // At the end they are left in the log, which needs no space for a segment.
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
        // A name of any length finds room in a row: what cannot be written would hold up all others.
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

    /// Counts a frame that a store which takes nothing refuses.
    pub(crate) fn refuse(&mut self, frame: &FrameRef<'_>, refusal: Refusal, told: bool) -> Taken {
        let head = frame.head();
        if let Some(stream) = self.streams.get_mut(head.stream.0) {
            stream.counts.received += 1;
            stream.counts.rejected += 1;
            self.note_refused(head, told);
        }
        Err(Box::new(Reject::Refused(refusal)))
    }

    /// Notes what a refused frame leaves missing, each frame once: what comes after it finds no gap in the
    /// sequence, and if it comes again, it fills its gap.
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
                // Nothing is lost with it, or what is was counted.
                Seen::Duplicate | Seen::Filled { .. } => return,
                Seen::Next | Seen::Late => 0,
                Seen::After { .. } | Seen::Restart => gaps.id_of(id, &judged, head.receive_time),
            };
            let before = tracker.newest(&judged);
            tracker.take(&judged, times, gap);
            run = Some((judged.session, judged.sequence, judged.sequence));
            let row = gaps.id_of_refused(of, run, |between| tracker.misses(between));
            tracker.miss_taken(&judged, row);
            // No row will say so: the state does.
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
