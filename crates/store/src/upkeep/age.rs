//! What is too old to be kept, by the clock that was confirmed.
//!
//! Segments of a group go in the order in which they were made, so what a clock that was wrong wrote into one is bounded
//! by its neighbours: where the instant of its newest row cannot be right it goes once a later segment shows that all
//! before that are too old. What got rows since the store was opened goes only after as much time has passed since then
//! as it may be old, whatever the clock says meanwhile. The next opening has only instants to go by: so what was stored
//! before a leap is noted to be no older than the leap, by the clock that it came to.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::model::clock::{PLAUSIBLE_FROM, WallClock};
use crate::segment::directory::{GroupList, Segment, SegmentList, SegmentState};

/// When a segment got what it got since the opening, by its steady clock.
#[derive(Clone, Copy, Debug, Default)]
struct Filled {
    /// Before it none of that was stored.
    first: i64,
    /// After it none was.
    last: i64,
}

/// The clock that ages are counted by, and what is known of when segments got their rows.
pub(crate) struct Aging {
    pub(crate) clock: WallClock,
    /// Of segments that were open or begun since the opening, by their numbers: when they got what they got since.
    filled: hashbrown::HashMap<u64, Filled, foldhash::fast::RandomState>,
    /// What segments were last said to hold nothing of before.
    pub(super) noted_leap: Option<i64>,
    /// Whether the log is to be marked with an instant after the leap still.
    pub(super) mark_due: bool,
}

impl Aging {
    /// Counts by a clock, and knows of no segment yet.
    pub(super) fn new(clock: WallClock) -> Aging {
        Aging { clock, filled: Default::default(), noted_leap: None, mark_due: false }
    }

    /// Returns whether a segment was open or begun since the opening.
    pub(super) fn is_filled(&self, segment: &Segment) -> bool {
        self.filled.contains_key(&segment.place())
    }

    /// Forgets a segment that is no more.
    pub(super) fn forget(&mut self, segment: &Segment) {
        self.filled.remove(&segment.place());
    }

    /// Notes that a segment was begun, or got rows or a blob.
    pub(crate) fn note_filled(&mut self, place: u64) {
        let steady = self.clock.steady();
        self.filled.entry(place).or_insert(Filled { first: steady, last: steady }).last = steady;
    }

    /// Lets a segment that stands for others have got what they got.
    pub(crate) fn join_filled(&mut self, old: &[Arc<Segment>], new: &Segment) {
        let of_old = old.iter().filter_map(|segment| self.filled.remove(&segment.place()));
        let join = |a: Filled, b: Filled| Filled { first: a.first.min(b.first), last: a.last.max(b.last) };
        if let Some(filled) = of_old.reduce(join) {
            self.filled.insert(new.place(), filled);
        }
    }

    /// The instants at which data can have been stored, as far as is known: up to the clock of now. None: no clock was
    /// confirmed yet, and nothing goes by age.
    fn plausible(&self) -> Option<RangeInclusive<i64>> {
        let now = self.clock.now()?;
        Some(if self.clock.is_believed() { i64::MIN..=i64::MAX } else { PLAUSIBLE_FROM..=now })
    }

    /// Whether so much time has passed that what was stored in a segment since the opening can be so old: the first of
    /// it, or all. The newest instant does not say when the last of it was stored: the clock may have been behind then.
    fn has_aged(&self, segment: &Segment, age: i64, all: bool) -> bool {
        let has_passed = |since: i64| self.clock.steady().saturating_sub(since) >= age;
        let filled = self.filled.get(&segment.place());
        self.clock.is_believed() || filled.is_none_or(|filled| has_passed(if all { filled.last } else { filled.first }))
    }

    /// Counts what was there at an opening as if it were stored by it: what goes on to be written to; what was stored last,
    /// as nobody knows when a clock that was not confirmed was set right; all, where the clock cannot be right for both.
    pub(crate) fn count_as_of_now(&mut self, all: &SegmentList, last_commit: Option<i64>) {
        let not_before = self.clock.not_before();
        let is_odd = self.clock.state().newest.is_some();
        let doubted_from = last_commit.or(all.newest_stored()).and_then(|ended| self.clock.doubted_from(ended));
        let mut is_noted = !is_odd;
        for segment in all.iter() {
            let mut state = segment.state.lock();
            let is_doubted = is_odd || doubted_from.is_some_and(|from| state.stored.1 >= from);
            if is_doubted || !state.sealed {
                state.not_before = not_before;
                self.filled.insert(segment.place(), Filled::default());
                is_noted &= !state.sealed;
            }
        }
        // What is open is of the next opening, too.
        self.noted_leap = Some(not_before).filter(|_| is_noted);
    }

    /// Sealed segments whose newest row is older than this, oldest first.
    pub(crate) fn aged(&self, segments: &GroupList, age: i64) -> Vec<Arc<Segment>> {
        let (mut aged, mut unknown) = (Vec::new(), Vec::new());
        let Some((now, plausible)) = self.clock.now().zip(self.plausible()) else { return aged };
        let (before, mut newest) = (now.saturating_sub(age), i64::MIN);
        for (segment, state) in segments.sealed() {
            // Nor can a row be older than those before it.
            let can_be = |instant: i64| plausible.contains(&instant) && (instant >= newest || self.clock.is_believed());
            let is_old = |instant: i64| can_be(instant) && instant < before;
            if !self.has_aged(segment, age, true) {
                break;
            }
            if is_old(state.stored.1) {
                newest = state.stored.1;
                aged.append(&mut unknown);
                aged.push(segment.clone());
            } else if can_be(state.stored.1) {
                if is_old(state.stored.0) {
                    aged.append(&mut unknown);
                }
                break;
            } else {
                unknown.push(segment.clone());
            }
        }
        aged
    }

    /// Whether the oldest row of an open segment is older than this.
    pub(crate) fn has_aged_row(&self, segment: &Segment, age: i64) -> bool {
        let Some((now, plausible)) = self.clock.now().zip(self.plausible()) else { return false };
        let SegmentState { stored, .. } = *segment.state.lock();
        let oldest = [stored.0, stored.1].into_iter().find(|instant| plausible.contains(instant));
        oldest.is_some_and(|oldest| oldest < now.saturating_sub(age)) && self.has_aged(segment, age, false)
    }
}
