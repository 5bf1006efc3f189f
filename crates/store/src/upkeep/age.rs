//! Ages of segments, by the confirmed clock.
//!
//! Segments of a group go in the order in which they were created, so what a wrong clock wrote into one is bounded by
//! its neighbours: if the instant of its newest row cannot be right, it goes once a later segment shows that all before
//! that are too old. A segment that got rows since the store was opened goes only after its max age has passed since
//! then, whatever the clock says meanwhile. The next opening has only instants to go by: data stored before a leap is
//! noted to be no older than the leap, by the clock after it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::model::clock::{PLAUSIBLE_FROM, WallClock};
use crate::segment::directory::{GroupList, Segment, SegmentList, SegmentState};

/// Span in which a segment got what it got since the opening, by its steady clock.
#[derive(Clone, Copy, Debug, Default)]
struct Filled {
    /// Begin: none of that was stored before.
    first: i64,
    /// End: none of that was stored after.
    last: i64,
}

/// Clock that ages are counted by, and the times at which segments got their rows.
pub(crate) struct Aging {
    pub(crate) clock: WallClock,
    /// Times at which segments that were open or begun since the opening got their rows since, by number.
    filled: hashbrown::HashMap<u64, Filled, foldhash::fast::RandomState>,
    /// Instant last noted in segments as the one before which nothing in them was stored.
    pub(super) noted_leap: Option<i64>,
    /// Whether the log is still to be marked with an instant after the leap.
    pub(super) mark_due: bool,
}

impl Aging {
    /// Counts by a clock, with no known segment yet.
    pub(super) fn new(clock: WallClock) -> Aging {
        Aging { clock, filled: Default::default(), noted_leap: None, mark_due: false }
    }

    /// Returns whether a segment was open or begun since the opening.
    pub(super) fn is_filled(&self, segment: &Segment) -> bool {
        self.filled.contains_key(&segment.place())
    }

    /// Forgets a segment that does not exist any more.
    pub(super) fn forget(&mut self, segment: &Segment) {
        self.filled.remove(&segment.place());
    }

    /// Notes that a segment was begun, or got rows or a blob.
    pub(crate) fn note_filled(&mut self, place: u64) {
        let steady = self.clock.steady();
        self.filled.entry(place).or_insert(Filled { first: steady, last: steady }).last = steady;
    }

    /// Moves the times of replaced segments to the segment that stands for them.
    pub(crate) fn join_filled(&mut self, old: &[Arc<Segment>], new: &Segment) {
        let of_old = old.iter().filter_map(|segment| self.filled.remove(&segment.place()));
        let join = |a: Filled, b: Filled| Filled { first: a.first.min(b.first), last: a.last.max(b.last) };
        if let Some(filled) = of_old.reduce(join) {
            self.filled.insert(new.place(), filled);
        }
    }

    /// Returns the instants at which data can have been stored, as far as is known: up to the clock of now. Returns
    /// `None` if no clock is confirmed yet: then nothing goes by age.
    fn plausible(&self) -> Option<RangeInclusive<i64>> {
        let now = self.clock.now()?;
        Some(if self.clock.is_believed() { i64::MIN..=i64::MAX } else { PLAUSIBLE_FROM..=now })
    }

    /// Returns whether enough time has passed for what was stored in a segment since the opening to be this old: the
    /// first of it, or all. The newest instant does not say when the last of it was stored: the clock may have been
    /// behind then.
    fn has_aged(&self, segment: &Segment, age: i64, all: bool) -> bool {
        let has_passed = |since: i64| self.clock.steady().saturating_sub(since) >= age;
        let filled = self.filled.get(&segment.place());
        self.clock.is_believed() || filled.is_none_or(|filled| has_passed(if all { filled.last } else { filled.first }))
    }

    /// Counts what was there at an opening as if it were stored by it: segments that stay open; those stored last, as
    /// it is not known when an unconfirmed clock was set right; and all, if the clock cannot be right for both.
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
        // Open segments count from the next opening, too.
        self.noted_leap = Some(not_before).filter(|_| is_noted);
    }

    /// Returns the sealed segments whose newest row is older than `age`, oldest first.
    pub(crate) fn aged(&self, segments: &GroupList, age: i64) -> Vec<Arc<Segment>> {
        let (mut aged, mut unknown) = (Vec::new(), Vec::new());
        let Some((now, plausible)) = self.clock.now().zip(self.plausible()) else { return aged };
        let (before, mut newest) = (now.saturating_sub(age), i64::MIN);
        for (segment, state) in segments.sealed() {
            // A row cannot be older than those before it, either.
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

    /// Returns whether the oldest row of an open segment is older than `age`.
    pub(crate) fn has_aged_row(&self, segment: &Segment, age: i64) -> bool {
        let Some((now, plausible)) = self.clock.now().zip(self.plausible()) else { return false };
        let SegmentState { stored, .. } = *segment.state.lock();
        let oldest = [stored.0, stored.1].into_iter().find(|instant| plausible.contains(instant));
        oldest.is_some_and(|oldest| oldest < now.saturating_sub(age)) && self.has_aged(segment, age, false)
    }
}
