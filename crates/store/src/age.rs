//! What is too old to be kept, by the clock that was confirmed.
//!
//! Segments of a group go in the order in which they were made, so what a clock that was wrong wrote into one is bounded
//! by its neighbours: where the instant of its newest row cannot be right it goes once a later segment shows that all
//! before that are too old. What got rows since the store was opened goes only after as much time has passed since then
//! as it may be old, whatever the clock says meanwhile. The next opening has only instants to go by: so what was stored
//! before a leap is noted to be no older than the leap, by the clock that it came to.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::clock::PLAUSIBLE_FROM;
use crate::directory::{GroupList, Segment, SegmentState};
use crate::mutant::{self, Mutant};
use crate::seal::Sealer;
use crate::store::Inner;

impl Sealer {
    /// The instants at which data can have been stored, as far as is known: up to the clock of now. None: no clock was
    /// confirmed yet, and nothing goes by age.
    fn plausible(&self) -> Option<RangeInclusive<i64>> {
        let now = self.clock.now()?;
        Some(if self.clock.is_believed() { i64::MIN..=i64::MAX } else { PLAUSIBLE_FROM..=now })
    }

    /// Whether so much time has passed that what was stored in a segment since the opening can be so old.
    fn has_aged(&self, segment: &Segment, age: i64) -> bool {
        let begun = self.begun.get(&segment.place());
        self.clock.is_believed() || begun.is_none_or(|begun| self.clock.steady().saturating_sub(*begun) >= age)
    }

    /// Notes durably, after a leap of the clock, that what was stored since the opening is no older than the leap: the
    /// next opening has only instants to go by, and those of before it are of a clock that was wrong.
    pub(crate) fn note_leap(&mut self, store: &Inner, now: i64) -> io::Result<()> {
        let not_before = self.clock.not_before();
        if self.noted_leap == Some(not_before) || mutant::is_active(Mutant::ForgetLeap) {
            return Ok(());
        }
        let list = store.shared.segments.load_full();
        for segment in list.iter() {
            let newest = segment.state.lock().stored.1;
            if self.clock.doubted_from().is_some_and(|from| newest >= from) {
                self.begun.entry(segment.place()).or_insert(0);
            }
            if !self.begun.contains_key(&segment.place()) {
                continue;
            }
            segment.state.lock().not_before = not_before;
            self.changed_segments.insert(segment.id, segment.clone());
        }
        // Rows that are in the log alone are no older than its newest unit, wherever they get to.
        store.mark_log(now)?;
        self.write_checkpoint(store, None)?;
        self.noted_leap = Some(not_before);
        Ok(())
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
            if !self.has_aged(segment, age) {
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
        oldest.is_some_and(|oldest| oldest < now.saturating_sub(age)) && self.has_aged(segment, age)
    }
}
