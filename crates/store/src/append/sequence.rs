//! Sequences: what the number of a frame says of it, across wraps, restarts of its source, and openings of the store.
//!
//! ```text
//!  wire number ─> which session ─> unwrapped ─> next · after a gap · fills one · late · seen before
//! ```
//! A frame that was never seen is stored, whatever order it comes in; it is a duplicate only if it was seen. What is
//! remembered is bounded ([`session::INTERVALS_MAX`] intervals a session, and of the session before the newest for
//! [`REORDER_NS`]); what passes the bound is stored again and never dropped.

mod noted;
pub(crate) mod saved;
pub(crate) mod session;

use session::{MissingRange, Session, can_be};
pub(crate) use session::{UNCOUNTED, UNKNOWN_GAP};

use crate::model::mutant::{self, Mutant};
use crate::model::row::Stamps;

/// A sequence this far back can be a late frame; one further back whose source went on is a restart.
const REORDER_FRAMES: i64 = 1024;
/// A missing one this far back is late even if its source's clock, which was set back since, says that it is newer.
const SET_BACK_FRAMES: i64 = 64;
/// A repeated sequence this long after the newest is a restart, where the source gives no time; and so long after a
/// restart frames of the session before are known.
const REORDER_NS: i64 = 2_000_000_000;
/// A leap forward over more frames is a restart, not a loss.
const LEAP_FRAMES: i64 = 1 << 24;

/// A session, and first and last of its sequences that are meant.
pub(crate) type Run = (u32, i64, i64);

/// What a frame's sequence says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The next one, or the first.
    Next,
    /// Frames before it are missing.
    After {
        /// First missing.
        from: i64,
        /// Last missing.
        to: i64,
    },
    /// A missing one that came after all.
    Filled {
        /// The gap it was missing from.
        gap: u64,
    },
    /// Before the first one seen of its session, or before all that is remembered: never counted as lost by what is known.
    Late,
    /// Came before.
    Duplicate,
    /// The source began its sequence again.
    Restart,
}

/// A frame that was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Its session.
    pub(crate) session: u32,
    /// Its unwrapped sequence.
    pub(crate) sequence: i64,
    pub(crate) seen: Seen,
}

/// Follows the wire sequence of one stream and unwraps it.
#[derive(Clone, Debug)]
pub(crate) struct SequenceTracker {
    /// Wire sequences count modulo this.
    pub(crate) modulus: u64,
    session: Session,
    /// The session before it, for as long as frames of both may come.
    ended: Option<Box<Session>>,
    /// Session and highest sequence of the rows before the first in memory.
    pub(crate) sealed: Option<(u32, i64)>,
    /// Rows of the log before this one were taken before the state was saved.
    pub(crate) known_row: u64,
    /// Whether it was taken back from a position alone, as older versions wrote it, which may be ahead of the rows.
    pub(crate) is_position: bool,
    /// Whether a change that no row shows waits to be saved.
    pub(crate) unsaved: bool,
    /// `time` before and after the frames that recovery found missing and no row names.
    pub(crate) untold_time: Option<(i64, i64)>,
}

impl SequenceTracker {
    pub(crate) fn new(modulus: u64) -> Self {
        SequenceTracker {
            modulus: modulus.clamp(2, 1 << 62),
            session: Session::new(0),
            ended: None,
            sealed: None,
            known_row: 0,
            is_position: false,
            unsaved: false,
            untold_time: None,
        }
    }

    /// Wire sequences count modulo this from the next frame on. Where they did not, and some were seen, that frame begins a
    /// session: nothing is known of how far it is from those. Says whether it does.
    pub(crate) fn count_by(&mut self, modulus: u64) -> bool {
        let modulus = modulus.clamp(2, 1 << 62);
        let begins = std::mem::replace(&mut self.modulus, modulus) != modulus && self.session.range.is_some();
        if begins {
            self.begin(self.session.number.saturating_add(1));
        }
        begins
    }

    fn sessions(&self) -> impl Iterator<Item = &Session> {
        std::iter::once(&self.session).chain(self.ended.as_deref())
    }

    fn session_mut(&mut self, number: u32) -> Option<&mut Session> {
        if self.session.number == number {
            return Some(&mut self.session);
        }
        self.ended.as_deref_mut().filter(|ended| ended.number == number)
    }

    /// Stamps of the newest frame before one that was judged: where a gap before it begins. None: not known.
    pub(crate) fn newest(&self, judged: &Judged) -> Option<Stamps> {
        let before = self.sessions().find(|s| s.number == judged.session).unwrap_or(&self.session);
        if mutant::is_active(Mutant::ForgetNewest) {
            return Some((i64::MIN, Some(i64::MIN)));
        }
        Some(before.newest).filter(|_| before.newest.0 != crate::model::row::NONE)
    }

    /// Continues after a position.
    pub(crate) fn resume(&mut self, number: u32, highest: i64) {
        self.session = Session { range: can_be(highest).then_some((highest, highest)), ..Session::new(number) };
        self.is_position = true;
    }

    /// Takes a frame of the log back, as it was when it was judged first. Names what it finds missing `gap`; where it
    /// finds some, returns the stamps before.
    pub(crate) fn restore(&mut self, sequence: i64, number: u32, stamps: Stamps, gap: u64) -> Option<Stamps> {
        if !can_be(sequence) {
            return None;
        }
        if number > self.session.number {
            self.begin(number);
        }
        let session = self.session_mut(number)?;
        let (before, leaps) = (session.newest, session.range.is_some_and(|(_, highest)| sequence > highest + 1));
        session.place(sequence, stamps, gap);
        leaps.then_some(before)
    }

    /// Judges a frame; changes nothing. The result is meant for [`SequenceTracker::take`].
    pub(crate) fn judge(&self, wire: u64, receive_time: i64, source_time: Option<i64>) -> Judged {
        let wire = (wire % self.modulus) as i64;
        let number = self.session.number;
        let judged = |sequence, seen| Judged { session: number, sequence, seen };
        let Some((lowest, highest)) = self.session.range else { return judged(wire, Seen::Next) };
        if let Some(ended) = self.ended.as_deref()
            && let Some(judged) = self.judge_ended(ended, wire, (receive_time, source_time))
        {
            return judged;
        }
        let restart = Judged { session: number.saturating_add(1), sequence: wire, seen: Seen::Restart };
        let step = self.step(highest, wire);
        let sequence = highest + step;
        let (received, before) = self.session.newest;
        let newer = match (source_time, before) {
            (Some(now), Some(before)) => Some(now > before.max(self.session.ahead_at(receive_time))),
            _ => None,
        };
        if step > 0 {
            // Back near zero without having been near the end: not a wrap, and not that many lost.
            let again = step > REORDER_FRAMES && wire < REORDER_FRAMES && newer != Some(false);
            return match step {
                _ if again || step > LEAP_FRAMES => restart,
                1 => judged(sequence, Seen::Next),
                _ => judged(sequence, Seen::After { from: highest + 1, to: sequence - 1 }),
            };
        }
        let quiet = receive_time.saturating_sub(received) > REORDER_NS;
        let within = -step <= REORDER_FRAMES;
        let missing = self.session.interval_of(sequence);
        // One that is waited for came late, whatever a clock that was set since says.
        let near = -step <= if newer == Some(true) { SET_BACK_FRAMES } else { REORDER_FRAMES };
        if let Some(MissingRange { gap, .. }) = missing.filter(|i| i.gap != UNCOUNTED)
            && near
            && (!quiet || newer.is_none())
        {
            return judged(sequence, Seen::Filled { gap });
        }
        // A source whose time continues while its sequence falls back began again.
        if newer == Some(true) || newer.is_none() && (!within || quiet) {
            return restart;
        }
        match missing {
            Some(MissingRange { gap: UNCOUNTED, .. }) => judged(sequence, Seen::Late),
            Some(MissingRange { gap, .. }) => judged(sequence, Seen::Filled { gap }),
            None if sequence < lowest => judged(sequence, Seen::Late),
            // From before the whole session: no frame of it was seen at that time.
            None if source_time.is_some_and(|now| self.session.least_source.is_some_and(|least| now < least)) => {
                restart
            }
            None => judged(sequence, Seen::Duplicate),
        }
    }

    /// Judges a frame by the session before the newest; none: it is not of that.
    fn judge_ended(&self, ended: &Session, wire: i64, (receive_time, source_time): Stamps) -> Option<Judged> {
        if receive_time.saturating_sub(self.session.begun.0) > REORDER_NS {
            return None;
        }
        let (lowest, highest) = ended.range?;
        let step = self.step(highest, wire);
        let sequence = highest + step;
        let missing = ended.interval_of(sequence);
        let (first, newest) = self.session.range?;
        let near = self.session.distance(newest + self.step(newest, wire));
        // Frames that came before it if it is of that session.
        let overtaken = newest.saturating_sub(first).saturating_add(1).saturating_sub(step);
        let within = step.abs() <= REORDER_FRAMES;
        let belongs = match (source_time, ended.newest.1, self.session.begun.1) {
            // The source's clock tells the sessions apart if it was not set back in between.
            (Some(now), Some(last), Some(next)) if last < next && step <= 0 => now < last || now == last && step == 0,
            (Some(now), Some(last), Some(next)) if last < next => last < now && now < next && step < near,
            // Without one it is of the session in whose order it would be out of place by less.
            _ => step < 0 && near > overtaken && missing.is_some_and(|i| i.gap != UNCOUNTED),
        };
        if !within || !belongs {
            return None;
        }
        let seen = match missing {
            _ if step == 1 => Seen::Next,
            _ if step > 1 => Seen::After { from: highest + 1, to: sequence - 1 },
            Some(MissingRange { gap: UNCOUNTED, .. }) => Seen::Late,
            Some(MissingRange { gap, .. }) => Seen::Filled { gap },
            None if sequence < lowest => Seen::Late,
            None => Seen::Duplicate,
        };
        Some(Judged { session: ended.number, sequence, seen })
    }

    /// How far a wire number lies from an unwrapped sequence, the shorter way round.
    fn step(&self, from: i64, wire: i64) -> i64 {
        let modulus = self.modulus as i64;
        let step = (wire - from.rem_euclid(modulus)).rem_euclid(modulus);
        if step > modulus / 2 { step - modulus } else { step }
    }

    fn begin(&mut self, number: u32) {
        let ended = std::mem::replace(&mut self.session, Session::new(number));
        if ended.range.is_some() {
            self.ended = Some(Box::new(ended));
        }
    }

    /// Takes a judged frame that was stored. `gap` names what it finds missing.
    pub(crate) fn take(&mut self, judged: &Judged, stamps: Stamps, gap: u64) {
        if judged.seen == Seen::Restart {
            self.begin(judged.session);
        } else if self.ended.is_some() && stamps.0.saturating_sub(self.session.begun.0) > REORDER_NS {
            self.ended = None;
        }
        if let Some(session) = self.session_mut(judged.session) {
            session.place(judged.sequence, stamps, gap);
        }
    }

    /// Takes a sequence back that was taken: its frame is missing after all, in `gap`.
    pub(crate) fn miss_taken(&mut self, judged: &Judged, gap: u64) {
        if let Some(session) = self.session_mut(judged.session) {
            session.miss(MissingRange { from: judged.sequence, to: judged.sequence, gap });
        }
    }

    /// Continues where the tracker of a store that failed stood. What that one took and this one, which knows what is
    /// durable, did not is missing: in the gap that `gap_of` gives each run of it.
    pub(crate) fn take_over(
        &mut self,
        before: &SequenceTracker,
        reduced: bool,
        mut gap_of: impl FnMut(&SequenceTracker, Run) -> u64,
    ) {
        let durable = std::mem::replace(self, before.clone());
        (self.sealed, self.unsaved) = (durable.sealed, true);
        let mut void = Vec::new();
        for session in self.ended.as_deref_mut().into_iter().chain([&mut self.session]) {
            let known = durable.sessions().find(|s| s.number == session.number);
            let runs = session.give_up(known, reduced);
            void.extend(runs.into_iter().map(|(from, to)| (session.number, from, to)));
        }
        for run @ (number, from, to) in void {
            let gap = gap_of(self, run);
            if let Some(session) = self.session_mut(number) {
                session.miss(MissingRange { from, to, gap });
            }
        }
    }

    /// Whether any of these sequences of a session are missing.
    pub(crate) fn misses(&self, (number, from, to): Run) -> bool {
        self.sessions().find(|s| s.number == number).is_some_and(|session| session.misses(from, to))
    }

    /// Names the gap of what is missing within a range: its row is found after the frames that showed it, or before them
    /// where the frames themselves came and were not recorded.
    pub(crate) fn name_gap(&mut self, number: u32, range: (i64, i64), gap: u64) {
        if !can_be(range.0) || !can_be(range.1) {
            return;
        }
        if number > self.session.number {
            self.begin(number);
        }
        if let Some(session) = self.session_mut(number) {
            session.name_gap(range, gap);
            session.expect(range, gap);
        }
    }

    /// Finds what is missing and no row names: of each session its number, first and last sequence, and frames.
    pub(crate) fn untold(&self) -> Vec<(u32, (i64, i64), u64)> {
        let of = |session: &Session| session.unnamed().map(|(range, count)| (session.number, range, count));
        self.sessions().filter_map(of).collect()
    }

    /// Lets what is missing and no row names count as never lost.
    pub(crate) fn uncount_untold(&mut self) {
        self.session.uncount_unnamed();
        if let Some(ended) = self.ended.as_deref_mut() {
            ended.uncount_unnamed();
        }
    }

    /// Forgets which frames were seen: the rows of some of them are gone.
    pub(crate) fn doubt(&mut self) {
        self.ended = None;
        self.session.missing.clear();
        self.session.range = self.session.range.map(|(_, highest)| (highest + 1, highest));
    }

    /// How many frames are missing that were counted as lost, of the sessions that are remembered.
    pub(crate) fn open_frames(&self) -> u64 {
        self.sessions().map(Session::open_frames).sum()
    }

    /// Stamps of the newest frame.
    pub(crate) fn newest_stamps(&self) -> Stamps {
        self.session.newest
    }
}

/// Session and highest sequence up to a row, from those before it.
pub(crate) fn advance(before: Option<(u32, i64)>, (sequence, session): (i64, u32)) -> (u32, i64) {
    match before {
        Some((same, highest)) if same == session => (session, highest.max(sequence)),
        _ => (session, sequence),
    }
}

#[cfg(test)]
mod tests;
