//! Gaps that have no row of `strongback.gaps` yet: one for each stream and cause, reported once a second for each
//! stream.
//!
//! A loss gets its row with the commit that makes the frame that showed it durable, unless its stream got a row within
//! the last second. Then it waits, and losses of the stream within a second of reception join it: first and last
//! sequence, and count. The rows in between show which frames of that range are missing. Late frames that fill it wait
//! with it. A recording that is read in a moment thus has a row for each of its seconds.
//!
//! Invariant: what waits is found again after a power cut. The log and the checkpoint record which frames were seen,
//! and opening adds rows for missing frames that have none (`crate::open::recovery`). Losses that they would forget do
//! not wait: those of a session before the one that ended last, and more pieces than are remembered.

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};

use crate::append::ledger::{Gap, GapCause};
use crate::append::sequence::session::INTERVALS_MAX;
use crate::append::sequence::{Judged, Seen};
use crate::model::mutant::{self, Mutant};
use crate::model::stream::Stream;

/// Min nanoseconds between two rows of a stream.
pub(crate) const ROW_SPACING_NS: i64 = 1_000_000_000;
/// Max losses, and late frames that fill them, that join before they get their row.
const PIECES_MAX: u32 = INTERVALS_MAX as u32 / 2;
/// Number of waiting gaps beyond which those found by callers join others of the same cause, stream and source.
const WAITING_JOIN: usize = 1024;
/// Max rows that wait for a store that accepts nothing; beyond, gaps are only counted.
const WAITING_MAX: usize = 65_536;

/// Index keys for the losses of a stream and for its restarts; all other keys are ids of gaps.
const LOSSES: u64 = 0;
const RESTARTS: u64 = u64::MAX;

type Hash = foldhash::fast::RandomState;

/// Gap rows of a stream: the last one, and the pieces that wait for the next.
#[derive(Clone, Copy, Debug)]
struct WaitingRows {
    /// Time at which its last row was written.
    written: i64,
    /// Reception of the frame that showed the oldest waiting piece.
    began: i64,
    /// Number of waiting pieces.
    pieces: u32,
    /// Whether the waiting pieces get their row with the next commit.
    urgent: bool,
}

impl Default for WaitingRows {
    fn default() -> WaitingRows {
        WaitingRows { written: i64::MIN, began: 0, pieces: 0, urgent: false }
    }
}

impl WaitingRows {
    fn add_piece(&mut self) {
        self.pieces += 1;
        self.urgent |= self.pieces >= PIECES_MAX;
    }

    /// Returns whether a gap shown by a frame received at `received` joins the waiting ones.
    fn takes(&self, received: i64) -> bool {
        self.pieces > 0 && received.abs_diff(self.began) < ROW_SPACING_NS as u64
    }

    fn is_due(&self, now: i64) -> bool {
        // Due as well after the clock was set back.
        self.urgent || now < self.written || now.saturating_sub(self.written) >= ROW_SPACING_NS
    }
}

/// Gaps without a row.
#[derive(Debug, Default)]
pub(crate) struct WaitingGaps {
    found: Vec<Gap>,
    index: HashMap<(u32, u64), usize, Hash>,
    rows: HashMap<u32, WaitingRows, Hash>,
    /// Gaps whose row is in a commit that is not durable yet: the commit, and the gap's id.
    written: VecDeque<(u64, u64)>,
    /// Newest id given out, with the epoch in the upper bits, so that no id is used twice.
    pub(super) next_id: u64,
}

impl WaitingGaps {
    /// Returns the gap id for what a frame received at `received` showed: that of the row it joins, or a new one; 0 for
    /// a late frame.
    pub(crate) fn id_of(&mut self, stream: u32, judged: &Judged, received: i64) -> u64 {
        match judged.seen {
            Seen::Filled { gap } => return gap,
            Seen::Late => return 0,
            Seen::After { .. } => {
                let joins = self.rows.get(&stream).is_some_and(|rows| rows.takes(received));
                let found = self.index.get(&(stream, LOSSES)).and_then(|&at| self.found.get(at));
                if let Some(gap) = found.filter(|gap| joins && gap.session == Some(judged.session)) {
                    return gap.id;
                }
            }
            _ => {}
        }
        self.next_id += 1;
        self.next_id
    }

    /// Returns whether no gap waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns whether any waiting gap has this cause.
    pub(crate) fn has(&self, cause: GapCause) -> bool {
        self.found.iter().any(|gap| gap.cause == cause)
    }

    /// Iterates over the ids of gaps whose row is not durable with the commit `committed`.
    pub(crate) fn ids(&self, committed: u64) -> impl Iterator<Item = u64> {
        // The row of a filled gap may have been written long ago.
        let found = self.found.iter().filter(|gap| gap.cause != GapCause::Filled).map(|gap| gap.id);
        let written = self.written.iter().filter(move |(commit, _)| *commit > committed).map(|(_, id)| *id);
        found.chain(written)
    }

    /// Forgets the rows in commits up to this one, which are durable.
    pub(crate) fn note_durable(&mut self, committed: u64) {
        while self.written.pop_front_if(|(commit, _)| *commit <= committed).is_some() {}
    }

    /// Adds a gap found outside the append path. Returns its id, or 0 if it joined another or gets no row.
    pub(crate) fn push(&mut self, gap: Gap) -> u64 {
        // While nothing can be written, gaps of the same cause, stream and source join.
        let same = |g: &&mut Gap| g.cause == gap.cause && g.stream == gap.stream && g.source == gap.source;
        if self.found.len() >= WAITING_JOIN
            && gap.rows.is_none()
            && let Some(waiting) = self.found.iter_mut().rev().take(WAITING_JOIN).find(same)
        {
            waiting.count += gap.count;
            waiting.time = (waiting.time.0.min(gap.time.0), waiting.time.1.max(gap.time.1));
            return 0;
        }
        self.push_apart(gap).unwrap_or(0)
    }

    /// Adds a gap that joins no other. Returns its id, or `None` if too many wait.
    pub(crate) fn push_apart(&mut self, mut gap: Gap) -> Option<u64> {
        if self.found.len() >= WAITING_MAX {
            return None;
        }
        self.next_id += 1;
        gap.id = self.next_id;
        self.found.push(gap);
        Some(self.next_id)
    }

    /// Adds what a frame of a stream showed, with the id from [`WaitingGaps::id_of`].
    pub(crate) fn add(
        &mut self,
        stream: &Stream,
        &Judged { session, sequence, seen }: &Judged,
        id: u64,
        (time, received): ((i64, i64), i64),
    ) {
        let (cause, range, count) = match seen {
            Seen::After { from, to } => (GapCause::Sequence, (from, to), (to - from + 1) as u64),
            Seen::Filled { .. } => (GapCause::Filled, (sequence, sequence), 1),
            _ => (GapCause::Restart, (sequence, sequence), 0),
        };
        // Losses of a session join, fillings of one gap, and restarts.
        let stream_id = stream.id.0;
        let key = match cause {
            GapCause::Sequence => LOSSES,
            GapCause::Filled => id,
            _ => RESTARTS,
        };
        let losses = self.index.get(&(stream_id, LOSSES)).and_then(|&at| self.found.get(at));
        let joins = if cause == GapCause::Filled {
            if losses.is_some_and(|losses| losses.id == id)
                && let Some(rows) = self.rows.get_mut(&stream_id)
            {
                rows.add_piece();
            }
            true
        } else {
            let rows = self.rows.entry(stream_id).or_default();
            let joins = rows.takes(received);
            if !joins {
                // Gaps that waited until now get their row with the next commit.
                rows.urgent |= rows.pieces > 0;
                rows.began = received;
            }
            rows.add_piece();
            joins
        };
        let same = |gap: &&mut Gap| joins && (gap.session == Some(session) || cause == GapCause::Restart);
        let waiting = self.index.get(&(stream_id, key)).and_then(|&at| self.found.get_mut(at));
        if let Some(gap) = waiting.filter(same) {
            gap.count += count;
            gap.time = (gap.time.0.min(time.0), gap.time.1.max(time.1));
            if cause == GapCause::Restart {
                // Only one session before the one that begins is remembered.
                self.rows.entry(stream_id).or_default().urgent = true;
                (gap.session, gap.sequence) = (Some(session), Some(range));
            } else {
                gap.sequence = gap.sequence.map(|(a, b)| (a.min(range.0), b.max(range.1)));
            }
            return;
        }
        if self.found.len() >= WAITING_MAX {
            return;
        }
        self.index.insert((stream_id, key), self.found.len());
        self.found.push(Gap {
            id,
            stream: Some(stream_id),
            cause,
            source: stream.source.clone(),
            name: stream.key.to_string(),
            session: Some(session),
            sequence: Some(range),
            rows: None,
            time,
            count,
        });
    }

    /// Makes a stream's losses get their row with the next commit.
    pub(crate) fn urge(&mut self, stream: u32) {
        if let Some(rows) = self.rows.get_mut(&stream) {
            rows.urgent |= rows.pieces > 0;
        }
    }

    /// Takes the gaps whose row is due, in the order in which they were found; with `all`, every gap.
    pub(crate) fn take_due(&mut self, now: i64, all: bool) -> Vec<Gap> {
        let all = all || self.found.len() > WAITING_MAX / 4 || mutant::is_active(Mutant::TellEachLoss);
        let is_due = |stream: Option<u32>| {
            let rows = stream.and_then(|id| self.rows.get(&id));
            all || rows.is_none_or(|rows| rows.is_due(now))
        };
        let of_sequence = |gap: &&Gap| gap.cause == GapCause::Sequence && !is_due(gap.stream);
        let waiting: HashSet<u64, Hash> = self.found.iter().filter(of_sequence).map(|gap| gap.id).collect();
        let waits = |gap: &mut Gap| match gap.cause {
            GapCause::Sequence | GapCause::Restart => !is_due(gap.stream),
            // Written before the row of its gap, it would fill a gap that no row reports.
            GapCause::Filled => waiting.contains(&gap.id),
            _ => false,
        };
        let mut found = std::mem::take(&mut self.found);
        let rest = found.extract_if(.., |gap| waits(gap)).collect();
        self.found = rest;
        self.note_places();
        found
    }

    /// Notes that a gap's row was written into the unit of a commit.
    pub(crate) fn note_written(&mut self, gap: &Gap, commit: u64, now: i64) {
        if gap.cause != GapCause::Filled {
            self.written.push_back((commit, gap.id));
        }
        if let Some(stream) = gap.stream
            && matches!(gap.cause, GapCause::Sequence | GapCause::Restart)
        {
            self.rows.insert(stream, WaitingRows { written: now, ..WaitingRows::default() });
        }
    }

    /// Forgets streams without a recent row.
    pub(crate) fn forget_quiet(&mut self, now: i64) {
        self.rows.retain(|_, rows| rows.pieces > 0 || !rows.is_due(now));
    }

    /// Takes back gaps whose rows found no room.
    pub(crate) fn put_back(&mut self, mut gaps: Vec<Gap>) {
        gaps.append(&mut self.found);
        self.found = gaps;
        self.note_places();
    }

    fn note_places(&mut self) {
        self.index.clear();
        for (at, gap) in self.found.iter().enumerate() {
            let key = match gap.cause {
                GapCause::Sequence => LOSSES,
                GapCause::Filled => gap.id,
                GapCause::Restart => RESTARTS,
                _ => continue,
            };
            if let Some(stream) = gap.stream {
                self.index.insert((stream, key), at);
            }
        }
    }

    /// Takes over the gaps that `before` has no durable rows for; rows it had written become durable with `commit`.
    /// `knows`: whether `before` knows all losses of a stream, so that those found by opening would be counted twice.
    pub(crate) fn take_over(&mut self, before: &WaitingGaps, commit: u64, knows: impl Fn(u32) -> bool) {
        self.written.extend(before.written.iter().map(|&(_, id)| (commit, id)));
        self.found.retain(|gap| gap.cause != GapCause::Sequence || !gap.stream.is_some_and(&knows));
        self.found.extend(before.found.iter().cloned());
        self.note_places();
    }
}
