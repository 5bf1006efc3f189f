//! Sequences: judges frames by their number, across wraps, restarts of the source and openings of the store.
//!
//! ```text
//!  wire number ─> which session ─> unwrapped ─> next · after a gap · fills one · late · seen before
//! ```
//! A frame that was never seen is stored, in whatever order it arrives; only a frame that was seen is a duplicate.
//! Memory is bounded: [`session::INTERVALS_MAX`] intervals a session, and the session before the newest for
//! [`REORDER_NS`]. A frame beyond the bound is stored again, never dropped.

mod noted;
pub(crate) mod saved;
pub(crate) mod session;

use session::{MissingRange, Session, can_be};
pub(crate) use session::{UNCOUNTED, UNKNOWN_GAP};

use crate::model::mutant::{self, Mutant};
use crate::model::row::Stamps;

/// Max distance back at which a frame can be late; further back it is a restart, unless its source time says otherwise.
const REORDER_FRAMES: i64 = 1024;
/// Max distance back at which a missing frame is late even if its source time, from before the clock was set back, is
/// newer.
const SET_BACK_FRAMES: i64 = 64;
/// Nanoseconds after the newest frame from which a repeated sequence is a restart, if the source gives no time. Frames
/// of the session before a restart are recognized for as long.
const REORDER_NS: i64 = 2_000_000_000;

/// Max distance back at which a frame without a source time is late if this machine's clock was set back before it came;
/// further back the source restarted.
const OVERTAKEN_FRAMES: i64 = 8;
/// Max frames that a leap forward may lose; one over more frames is a restart.
const LEAP_FRAMES: i64 = 1 << 24;

/// Max modulus of wire sequences; a larger one counts as this. Half of the range of unwrapped sequences
/// ([`session::can_be`]): from any wire number on, more frames can follow than any sender sends.
const MODULUS_MAX: u64 = 1 << 61;

/// A run of sequences: session, first and last.
pub(crate) type Run = (u32, i64, i64);

/// Judgement of a frame by its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The next sequence, or the first.
    Next,
    /// A leap: frames before this one are missing.
    After {
        /// First missing.
        from: i64,
        /// Last missing.
        to: i64,
    },
    /// A missing frame that arrived after all.
    Filled {
        /// Gap that it was missing from.
        gap: u64,
    },
    /// A frame before the first one seen of its session, or before all that is remembered; not known to have been
    /// counted as lost.
    Late,
    /// A frame that was seen before.
    Duplicate,
    /// A restart of the source's sequence.
    Restart,
}

/// A judged frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Session of the frame.
    pub(crate) session: u32,
    /// Unwrapped sequence of the frame.
    pub(crate) sequence: i64,
    pub(crate) seen: Seen,
}

/// Tracker of the wire sequence of one stream, which it unwraps.
#[derive(Clone, Debug)]
pub(crate) struct SequenceTracker {
    /// Modulus of wire sequences.
    pub(crate) modulus: u64,
    session: Session,
    /// The previous session, for as long as frames of both may arrive.
    ended: Option<Box<Session>>,
    /// Session and highest sequence of the rows before the first in memory.
    pub(crate) sealed: Option<(u32, i64)>,
    /// First row of the log that the saved state does not include.
    pub(crate) known_row: u64,
    /// Whether it was restored from a position alone, as older versions wrote it, which may be ahead of the rows.
    pub(crate) is_position: bool,
    /// Whether a change that no row records is still to be saved.
    pub(crate) unsaved: bool,
    /// `time` before and after the frames that recovery found missing and no row names.
    pub(crate) untold_time: Option<(i64, i64)>,
}

impl SequenceTracker {
    pub(crate) fn new(modulus: u64) -> Self {
        SequenceTracker {
            modulus: modulus.clamp(2, MODULUS_MAX),
            session: Session::new(0),
            ended: None,
            sealed: None,
            known_row: 0,
            is_position: false,
            unsaved: false,
            untold_time: None,
        }
    }

    /// Sets the modulus of wire sequences from the next frame on. If it differs and frames were seen, that frame begins
    /// a session, as its distance from them is unknown. Returns whether it does.
    pub(crate) fn count_by(&mut self, modulus: u64) -> bool {
        let modulus = modulus.clamp(2, MODULUS_MAX);
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

    /// Returns the stamps of the newest frame before a judged one, where a gap before it begins, or `None` if unknown.
    pub(crate) fn newest(&self, judged: &Judged) -> Option<Stamps> {
        let before = self.sessions().find(|s| s.number == judged.session).unwrap_or(&self.session);
        if mutant::is_active(Mutant::ForgetNewest) {
            return Some((i64::MIN, Some(i64::MIN)));
        }
        Some(before.newest).filter(|_| before.newest.0 != crate::model::row::NONE)
    }

    /// Continues after a position: session and highest sequence.
    pub(crate) fn resume(&mut self, number: u32, highest: i64) {
        self.session = Session { range: can_be(highest).then_some((highest, highest)), ..Session::new(number) };
        self.is_position = true;
    }

    /// Restores a frame of the log as it was first judged. Frames that it shows to be missing belong to `gap`; if there
    /// are any, returns the stamps of the frame before.
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

    /// Judges a frame without changing anything. The result is meant for [`SequenceTracker::take`].
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
            // Near zero again without having been near the end: neither a wrap nor such a large loss.
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
        // A missing frame came late, whatever a clock that was set since says.
        let near = -step <= if newer == Some(true) { SET_BACK_FRAMES } else { REORDER_FRAMES };
        if let Some(MissingRange { gap, .. }) = missing.filter(|i| i.gap != UNCOUNTED)
            && near
            && (!quiet || newer.is_none())
        {
            return judged(sequence, Seen::Filled { gap });
        }
        // This machine's clock was set back, perhaps while the source was not heard.
        let set_back = received.saturating_sub(receive_time) > REORDER_NS && -step > OVERTAKEN_FRAMES;
        // A source whose time continues while its sequence falls back restarted.
        if newer == Some(true) || newer.is_none() && (!within || quiet || set_back) {
            return restart;
        }
        match missing {
            Some(MissingRange { gap: UNCOUNTED, .. }) => judged(sequence, Seen::Late),
            Some(MissingRange { gap, .. }) => judged(sequence, Seen::Filled { gap }),
            None if sequence < lowest => judged(sequence, Seen::Late),
            // Older than the whole session: no frame of it was seen at that time.
            None if source_time.is_some_and(|now| self.session.least_source.is_some_and(|least| now < least)) => {
                restart
            }
            None => judged(sequence, Seen::Duplicate),
        }
    }

    /// Judges a frame by the session before the newest. Returns `None` if it does not belong to that.
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
            // Without a clock, it belongs to the session in whose order it is less out of place.
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

    /// Returns the distance of a wire number from an unwrapped sequence, the shorter way round.
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

    /// Takes in a judged frame. Frames that it shows to be missing belong to `gap`.
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

    /// Marks a sequence that was taken as missing after all, in `gap`.
    pub(crate) fn miss_taken(&mut self, judged: &Judged, gap: u64) {
        if let Some(session) = self.session_mut(judged.session) {
            session.miss(MissingRange { from: judged.sequence, to: judged.sequence, gap });
        }
    }

    /// Continues from the tracker of a store that failed. Frames that it took and this one, which knows what is
    /// durable, did not are missing; `gap_of` returns the gap of each run of them.
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

    /// Returns whether any sequence of a run is missing.
    pub(crate) fn misses(&self, (number, from, to): Run) -> bool {
        self.sessions().find(|s| s.number == number).is_some_and(|session| session.misses(from, to))
    }

    /// Assigns a gap to the frames missing within a range. Its row is found after the frames that showed it, or before
    /// them if the missing frames arrived and were not recorded.
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

    /// Returns the missing frames that no row names: of each session its number, first and last sequence, and their
    /// count.
    pub(crate) fn untold(&self) -> Vec<(u32, (i64, i64), u64)> {
        let of = |session: &Session| session.unnamed().map(|(range, count)| (session.number, range, count));
        self.sessions().filter_map(of).collect()
    }

    /// Marks the missing frames that no row names as never lost.
    pub(crate) fn uncount_untold(&mut self) {
        self.session.uncount_unnamed();
        if let Some(ended) = self.ended.as_deref_mut() {
            ended.uncount_unnamed();
        }
    }

    /// Forgets which frames were seen, as the rows of some of them are gone.
    pub(crate) fn doubt(&mut self) {
        self.ended = None;
        self.session.missing.clear();
        self.session.range = self.session.range.map(|(_, highest)| (highest + 1, highest));
    }

    /// Counts the frames that were counted as lost and are still missing, in the remembered sessions.
    pub(crate) fn open_frames(&self) -> u64 {
        self.sessions().map(Session::open_frames).sum()
    }

    /// Returns the stamps of the newest frame.
    pub(crate) fn newest_stamps(&self) -> Stamps {
        self.session.newest
    }
}

/// Returns the session and highest sequence up to a row, given those before it.
pub(crate) fn advance(before: Option<(u32, i64)>, (sequence, session): (i64, u32)) -> (u32, i64) {
    match before {
        Some((same, highest)) if same == session => (session, highest.max(sequence)),
        _ => (session, sequence),
    }
}

#[cfg(test)]
mod tests;
