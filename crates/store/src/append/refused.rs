//! Refused frames, which become rows of `strongback.gaps` when the store accepts data again. Each stream gets at most
//! one row a second, and one more for each run of refused frames that a loss interrupts. Their number is bounded by
//! that of streams.
//!
//! Invariant: within the range of sequences that a row names, only frames that it counts are missing. A loss in between
//! thus has a row of its own, even if the store ends before that row is durable.

use crate::append::ledger::{Gap, GapCause};
use crate::append::sequence::Run;
use crate::append::sequence::session::INTERVALS_MAX;
use crate::append::waiting_gaps::ROW_SPACING_NS;
use crate::model::stream::Stream;

/// Max separate runs of refused frames of one stream: half as many as the losses that its session remembers, as one
/// lies between each two. Later runs join, and losses in between get their row with theirs.
const RUNS_MAX: u32 = INTERVALS_MAX as u32 / 2;
/// Max separate runs of refused frames of all streams.
const ALL_RUNS_MAX: usize = 16_384;

/// Refused frames of one stream since its last row.
#[derive(Clone, Copy, Debug)]
struct Span {
    id: u64,
    count: u64,
    /// Min and max `time`.
    time: (i64, i64),
    /// Session, lowest and highest sequence; `None` if no frame has a sequence.
    sequence: Option<Run>,
    /// Time at which its last row was written.
    written: i64,
    /// Number of separate runs before it.
    runs: u32,
    /// Whether its range includes other losses.
    joined: bool,
}

/// Refused frames without a row, by stream and cause.
#[derive(Debug, Default)]
pub(crate) struct RefusedFrames {
    spans: hashbrown::HashMap<(u32, GapCause), Span, foldhash::fast::RandomState>,
    /// Runs that ended before their row was written, in their order.
    ended: Vec<((u32, GapCause), Span)>,
}

impl RefusedFrames {
    /// Returns the id of the row that reports this stream's refused frames. `misses`: whether any sequence of a run is
    /// missing for another reason.
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

    /// Counts frames whose row already has an id.
    pub(crate) fn add(&mut self, of: (u32, GapCause), count: u64, time: (i64, i64), sequence: Option<Run>) {
        let Some(span) = self.spans.get_mut(&of) else { return };
        span.sequence = match (span.sequence, sequence) {
            (Some((session, a, b)), Some((same, c, d))) if session == same => Some((session, a.min(c), b.max(d))),
            // When runs join across sessions, the newest session counts.
            (before, new) => new.or(before),
        };
        span.time = (span.time.0.min(time.0), span.time.1.max(time.1));
        span.count += count;
    }

    /// Iterates over the streams with losses in the range of a row.
    pub(super) fn joined(&self) -> impl Iterator<Item = u32> {
        self.spans.iter().filter(|(_, span)| span.joined).map(|((stream, _), _)| *stream)
    }

    /// Iterates over the ids of the rows that are not written yet.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = u64> {
        let ended = self.ended.iter().map(|(_, span)| span.id);
        ended.chain(self.spans.values().map(|span| span.id).filter(|&id| id != 0))
    }

    /// Returns whether there is nothing to report.
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty() && self.ended.is_empty()
    }

    /// Takes the rows that are due at `now`, and those of streams for which `also` is true; with `all`, every row.
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

    /// Takes over the refused frames that `before` has not reported yet.
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

    /// Returns whether its range may grow to include more sequences.
    fn takes(&self, sequence: Option<Run>, misses: impl Fn(Run) -> bool) -> bool {
        let (Some((session, a, b)), Some((of, c, d))) = (self.sequence, sequence) else { return true };
        session == of && !(c > b && misses((session, b + 1, c - 1)) || d < a && misses((session, d + 1, a - 1)))
    }
}
