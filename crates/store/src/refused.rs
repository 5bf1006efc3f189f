//! Frames that reached a store which took nothing: what becomes a row of `strongback.gaps` when it takes data
//! again. Of each stream at most one row a second; bounded by the number of streams.

use crate::append::{Taken, Writer, new_tracker, reserve_bytes};
use crate::frame::{FrameHead, FrameRef};
use crate::ledger::{Gap, GapCause, gaps_spec};
use crate::log::unit_bytes;
use crate::sequence::Seen;
use crate::stream::Stream;
use crate::waiting_gaps::ROW_SPACING_NS;
use crate::{Refusal, Reject};

/// What was refused of one stream since its last row.
#[derive(Clone, Copy, Debug)]
struct Span {
    id: u64,
    count: u64,
    /// Smallest and largest `time`.
    time: (i64, i64),
    /// Session, lowest and highest sequence; none where a frame has no sequence or the session changed.
    sequence: Option<(u32, i64, i64)>,
    /// When its last row was written.
    written: i64,
}

/// By stream and cause.
#[derive(Debug, Default)]
pub(crate) struct RefusedFrames {
    spans: hashbrown::HashMap<(u32, GapCause), Span, foldhash::fast::RandomState>,
}

impl RefusedFrames {
    /// Id of the row that tells of this stream's refused frames.
    pub(crate) fn id_of(&mut self, stream: u32, cause: GapCause, next_id: &mut u64) -> u64 {
        let span = self.spans.entry((stream, cause)).or_insert_with(|| Span::empty(i64::MIN));
        if span.id == 0 {
            *next_id += 1;
            span.id = *next_id;
        }
        span.id
    }

    /// Counts frames whose row has an id already.
    pub(crate) fn add(
        &mut self,
        stream: u32,
        cause: GapCause,
        count: u64,
        time: (i64, i64),
        sequence: Option<(u32, i64, i64)>,
    ) {
        let Some(span) = self.spans.get_mut(&(stream, cause)) else { return };
        span.sequence = match (span.sequence, sequence) {
            (None, new) if span.count == 0 => new,
            (Some((session, a, b)), Some((same, c, d))) if session == same => Some((session, a.min(c), b.max(d))),
            _ => None,
        };
        span.time = (span.time.0.min(time.0), span.time.1.max(time.1));
        span.count += count;
    }

    /// Ids of the rows that are not written yet.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = u64> {
        self.spans.values().map(|span| span.id).filter(|&id| id != 0)
    }

    /// Whether there is nothing to tell.
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Takes the rows that are due at `now`; all of them at the end.
    pub(crate) fn take_due(
        &mut self,
        now: i64,
        all: bool,
        stream: impl Fn(u32) -> Option<arc_swap::Guard<std::sync::Arc<Stream>>>,
        out: &mut Vec<Gap>,
    ) {
        self.spans.retain(|&(id, cause), span| {
            let due = now.saturating_sub(span.written) >= ROW_SPACING_NS || now < span.written;
            if !due && !all {
                return true;
            }
            if span.count == 0 {
                return false;
            }
            if let Some(stream) = stream(id) {
                out.push(Gap {
                    id: span.id,
                    stream: Some(id),
                    cause,
                    source: stream.source.clone(),
                    name: stream.key.to_string(),
                    session: span.sequence.map(|s| s.0),
                    sequence: span.sequence.map(|s| (s.1, s.2)),
                    rows: None,
                    time: span.time,
                    count: span.count,
                });
            }
            *span = Span::empty(now);
            true
        });
    }

    /// Takes over what another one has not told yet.
    pub(crate) fn take_over(&mut self, before: &mut RefusedFrames) {
        for (key, old) in before.spans.drain().filter(|(_, s)| s.count > 0) {
            self.spans.insert(key, old);
        }
    }
}

impl Span {
    fn empty(written: i64) -> Span {
        Span { id: 0, count: 0, time: (i64::MAX, i64::MIN), sequence: None, written }
    }
}

impl Writer {
    /// Asks upkeep for as much of the log as `bytes` more records need, with what is kept free: a quarter of a small log
    /// may not be enough, and whoever offers them again would be refused for ever.
    #[cold]
    pub(crate) fn want(&mut self, bytes: usize) {
        let kept_free = reserve_bytes(self.ring_bytes) + self.records.bytes as u64;
        let wanted = unit_bytes(self.pending.len() * 8) + unit_bytes(bytes) + kept_free;
        self.wanted_bytes = self.wanted_bytes.max(wanted.min(self.ring_bytes));
    }

    /// Makes rows of the gaps that are due, so that they are durable with the frames that showed them. Without room they
    /// wait for the next commit. `all`: those that would wait for their second to be
    /// over, too.
    pub(crate) fn flush_gaps(&mut self, now: i64, all: bool) {
        let nothing = self.gaps.is_empty() && self.refused.is_empty();
        if nothing || self.disk_full && !all || !self.has_room(self.gaps_room()) {
            return;
        }
        // At the end they are left in the log, which needs no space for a segment.
        let disk_full = std::mem::take(&mut self.disk_full);
        self.put_gaps(now, all);
        self.disk_full = disk_full;
    }

    fn put_gaps(&mut self, now: i64, all: bool) {
        let mut found = self.gaps.take_due(now, all);
        let streams = &self.streams;
        let definition = |id: u32| streams.get(id as usize).map(|s| s.slot.stream.load());
        self.refused.take_due(now, all, definition, &mut found);
        if found.is_empty() {
            return;
        }
        let Ok((stream, _)) = self.resolve(&gaps_spec(), true, now) else { return self.gaps.put_back(found) };
        let mut batch = crate::FrameBatch::new();
        // A name of any length finds room in a row: what cannot be written would hold up all others.
        let text_max = self.part_max / 4;
        let mut put = |this: &mut Writer, gap: &Gap| {
            batch.clear();
            gap.push(&stream, now, text_max, &mut batch);
            let done = matches!(this.offer(&batch.frame(0), now, true), Ok(Some(_)));
            if done {
                this.gaps.note_written(gap, this.pending_commit, now);
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
        if let Some(stream) = self.streams.get_mut(head.stream.0 as usize) {
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
        let stream = &mut self.streams[id as usize];
        if stream.slot.group.is_own() {
            return;
        }
        let times = (head.receive_time, head.source_time);
        let (time, mut sequence) = (stream.time_of(times), None);
        let cause = if told { GapCause::Refused } else { GapCause::NotRecorded };
        let row = self.refused.id_of(id, cause, &mut self.gaps.next_id);
        if let Some(wire) = head.sequence
            && stream.shape.has_sequence
            && !told
        {
            let tracker = stream.tracker.get_or_insert_with(|| new_tracker(&stream.slot));
            let judged = tracker.judge(wire, head.receive_time, head.source_time);
            match judged.seen {
                // Nothing is lost with it, or what is was counted.
                Seen::Duplicate | Seen::Filled { .. } => return,
                Seen::Late => {}
                Seen::Next | Seen::After { .. } | Seen::Restart => {
                    let before = tracker.newest(&judged);
                    let gap =
                        if judged.seen == Seen::Next { 0 } else { self.gaps.id_of(id, &judged, head.receive_time) };
                    tracker.take(&judged, times, gap);
                    tracker.miss_taken(&judged, row);
                    // No row will say so: the state does.
                    if !std::mem::replace(&mut tracker.unsaved, true) {
                        self.changed.push(id);
                    }
                    sequence = Some((judged.session, judged.sequence, judged.sequence));
                    stream.note_gap(&mut self.gaps, &judged, gap, before, head);
                }
            }
        }
        if !told {
            stream.counts.lost += 1;
        }
        self.refused.add(id, cause, 1, (time, time), sequence);
    }
}
