//! Frames that reached a store which took nothing: what becomes a row of `strongback.gaps` when it takes data
//! again. Of each stream at most one row a second, and one more for each run of refused frames that a loss interrupts;
//! bounded by the number of streams.
//!
//! Invariant: within the range of sequences that a row names, nothing is missing but frames that it counts. So whatever
//! is lost in between has a row of its own, also after an end of the store that comes before that row is durable.

use hashbrown::HashSet;

use crate::append::ledger::{Gap, GapCause, gaps_spec};
use crate::append::sequence::session::INTERVALS_MAX;
use crate::append::sequence::{Run, Seen};
use crate::append::waiting_gaps::ROW_SPACING_NS;
use crate::append::{Taken, Writer, new_tracker, reserve_bytes};
use crate::log::unit_bytes;
use crate::model::frame::{FrameHead, FrameRef};
use crate::model::stream::Stream;
use crate::{Refusal, Reject};

/// Most runs of refused frames of one stream that wait apart: half as many as the losses that its session remembers, as
/// one lies between each two. Later ones join, and what is lost in between gets its row with theirs.
const RUNS_MAX: u32 = INTERVALS_MAX as u32 / 2;
/// Runs of all streams that wait apart.
const ALL_RUNS_MAX: usize = 16_384;

/// What was refused of one stream since its last row.
#[derive(Clone, Copy, Debug)]
struct Span {
    id: u64,
    count: u64,
    /// Smallest and largest `time`.
    time: (i64, i64),
    /// Session, lowest and highest sequence; none where no frame has a sequence.
    sequence: Option<Run>,
    /// When its last row was written.
    written: i64,
    /// Runs before it that wait apart.
    runs: u32,
    /// Whether its range holds losses of others.
    joined: bool,
}

/// By stream and cause.
#[derive(Debug, Default)]
pub(crate) struct RefusedFrames {
    spans: hashbrown::HashMap<(u32, GapCause), Span, foldhash::fast::RandomState>,
    /// Runs that ended before their row was written, in their order.
    ended: Vec<((u32, GapCause), Span)>,
}

impl RefusedFrames {
    /// Id of the row that tells of refused frames of this stream. `misses`: whether any of these sequences of a session
    /// are missing for another reason.
    pub(crate) fn id_of(
        &mut self,
        (stream, cause): (u32, GapCause),
        sequence: Option<Run>,
        misses: impl Fn(Run) -> bool,
        next_id: &mut u64,
    ) -> u64 {
        let span = self.spans.entry((stream, cause)).or_insert_with(|| Span::empty(i64::MIN));
        if !span.takes(sequence, misses) {
            if span.runs < RUNS_MAX && self.ended.len() < ALL_RUNS_MAX {
                let next = Span { runs: span.runs + 1, ..Span::empty(span.written) };
                self.ended.push(((stream, cause), std::mem::replace(span, next)));
            } else {
                span.joined = true;
            }
        }
        if span.id == 0 {
            *next_id += 1;
            span.id = *next_id;
        }
        span.id
    }

    /// Counts frames whose row has an id already.
    pub(crate) fn add(&mut self, of: (u32, GapCause), count: u64, time: (i64, i64), sequence: Option<Run>) {
        let Some(span) = self.spans.get_mut(&of) else { return };
        span.sequence = match (span.sequence, sequence) {
            (Some((session, a, b)), Some((same, c, d))) if session == same => Some((session, a.min(c), b.max(d))),
            // Beyond what waits apart the newest session counts.
            (before, new) => new.or(before),
        };
        span.time = (span.time.0.min(time.0), span.time.1.max(time.1));
        span.count += count;
    }

    /// Streams of whose losses some lie in the range of a row.
    fn joined(&self) -> impl Iterator<Item = u32> {
        self.spans.iter().filter(|(_, span)| span.joined).map(|((stream, _), _)| *stream)
    }

    /// Ids of the rows that are not written yet.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = u64> {
        let ended = self.ended.iter().map(|(_, span)| span.id);
        ended.chain(self.spans.values().map(|span| span.id).filter(|&id| id != 0))
    }

    /// Whether there is nothing to tell.
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty() && self.ended.is_empty()
    }

    /// Takes the rows that are due at `now`, and those of the streams that `also` says; all of them at the end.
    pub(crate) fn take_due(
        &mut self,
        (now, all): (i64, bool),
        also: impl Fn(u32) -> bool,
        stream: impl Fn(u32) -> Option<arc_swap::Guard<std::sync::Arc<Stream>>>,
        out: &mut Vec<Gap>,
    ) {
        let is_due = |id: u32, span: &Span| {
            all || also(id) || now.saturating_sub(span.written) >= ROW_SPACING_NS || now < span.written
        };
        let mut tell = |(id, cause): (u32, GapCause), span: &Span| {
            let Some(stream) = stream(id) else { return };
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
        };
        let spans = &self.spans;
        let ends = |of: &(u32, GapCause)| spans.get(of).is_none_or(|span| is_due(of.0, span));
        self.ended.extract_if(.., |(of, _)| ends(of)).for_each(|(of, span)| tell(of, &span));
        self.spans.retain(|&of, span| {
            if !is_due(of.0, span) {
                return true;
            }
            if span.count == 0 {
                return false;
            }
            tell(of, span);
            *span = Span::empty(now);
            true
        });
    }

    /// Takes over what another one has not told yet.
    pub(crate) fn take_over(&mut self, before: &RefusedFrames) {
        self.ended.extend(&before.ended);
        self.spans.extend(before.spans.iter().filter(|(_, span)| span.count > 0));
    }
}

impl Span {
    fn empty(written: i64) -> Span {
        let time = (i64::MAX, i64::MIN);
        Span { id: 0, count: 0, time, sequence: None, written, runs: 0, joined: false }
    }

    /// Whether its range may grow to more sequences.
    fn takes(&self, sequence: Option<Run>, misses: impl Fn(Run) -> bool) -> bool {
        let (Some((session, a, b)), Some((of, c, d))) = (self.sequence, sequence) else { return true };
        session == of && !(c > b && misses((session, b + 1, c - 1)) || d < a && misses((session, d + 1, a - 1)))
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
        self.refused.joined().for_each(|stream| self.gaps.urge(stream));
        let mut losses = self.gaps.take_due(now, all);
        // What was refused among the losses that a row names is not taken for one of them: its row comes first.
        let of_sequence = |gap: &Gap| gap.stream.filter(|_| gap.cause == GapCause::Sequence);
        let told: HashSet<u32> = losses.iter().filter_map(of_sequence).collect();
        let streams = &self.streams;
        let definition = |id: u32| streams.get(id as usize).map(|s| s.slot.stream.load());
        let mut found = Vec::new();
        self.refused.take_due((now, all), |id| told.contains(&id), definition, &mut found);
        if losses.iter().any(|gap| gap.cause == GapCause::Filled) {
            // Before the row of its gap it would fill what no row says is missing.
            let waiting: HashSet<u64> = self.refused.waiting().collect();
            let waits = |gap: &mut Gap| gap.cause == GapCause::Filled && waiting.contains(&gap.id);
            let early = losses.extract_if(.., waits).collect();
            self.gaps.put_back(early);
        }
        found.append(&mut losses);
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
        if stream.slot.stream.load().key.is_internal() {
            return;
        }
        let times = (head.receive_time, head.source_time);
        let time = stream.time_of(times);
        let of = (id, if told { GapCause::Refused } else { GapCause::NotRecorded });
        let mut run = None;
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
                Seen::After { .. } | Seen::Restart => self.gaps.id_of(id, &judged, head.receive_time),
            };
            let before = tracker.newest(&judged);
            tracker.take(&judged, times, gap);
            run = Some((judged.session, judged.sequence, judged.sequence));
            let row = self.refused.id_of(of, run, |between| tracker.misses(between), &mut self.gaps.next_id);
            tracker.miss_taken(&judged, row);
            // No row will say so: the state does.
            if !std::mem::replace(&mut tracker.unsaved, true) {
                self.changed.push(id);
            }
            if judged.seen != Seen::Late {
                stream.note_gap(&mut self.gaps, &judged, gap, before, head);
            }
        } else {
            self.refused.id_of(of, None, |_| false, &mut self.gaps.next_id);
        }
        if !told {
            stream.counts.lost += 1;
        }
        self.refused.add(of, 1, (time, time), run);
    }
}
