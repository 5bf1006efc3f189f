//! One session of a source's sequence: which of its frames were seen.
//!
//! Invariant: a frame counts as seen only if it was seen: it lies within the range and in no interval. What must be
//! forgotten for lack of room becomes *not seen*, so that a frame that may never have arrived is stored, not dropped.

use crate::model::mutant::{self, Mutant};
use crate::model::row::Stamps;

/// Max intervals of missing frames remembered of a session.
pub(crate) const INTERVALS_MAX: usize = 256;
/// Gap id of missing frames while no row of `strongback.gaps` is known that reports them.
pub(crate) const UNKNOWN_GAP: u64 = u64::MAX;
/// Gap id of frames not seen and never counted as lost, such as those before the first frame seen.
pub(crate) const UNCOUNTED: u64 = u64::MAX - 1;
/// Receive stamp of a session without frames.
const NEVER: i64 = crate::model::row::NONE;

/// Consecutive sequences that were not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MissingRange {
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) gap: u64,
}

impl MissingRange {
    fn frames(&self) -> u64 {
        self.to.abs_diff(self.from).saturating_add(1)
    }
}

/// Returns whether it can be an unwrapped sequence. Values from the disk may be arbitrary, and later arithmetic must
/// not overflow.
pub(crate) fn can_be(sequence: i64) -> bool {
    sequence.unsigned_abs() <= 1 << 62
}

/// Frames seen of one session.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Session {
    pub(crate) number: u32,
    /// Lowest and highest unwrapped sequence; nothing is known of what lies below. If the lowest is one more than the
    /// highest, no frame is known to have been seen.
    pub(crate) range: Option<(i64, i64)>,
    /// Stamps of its first frame.
    pub(crate) begun: Stamps,
    /// Stamps of the frame with the highest sequence.
    pub(crate) newest: Stamps,
    /// Min `source_time` of all its frames.
    pub(crate) least_source: Option<i64>,
    /// Highest recent source time, and its reception: a source's clock may be set back.
    pub(crate) ahead: Option<(i64, i64)>,
    /// Missing frames within the range, ascending and apart from each other.
    pub(crate) missing: Vec<MissingRange>,
}

impl Session {
    pub(crate) fn new(number: u32) -> Session {
        Session {
            number,
            range: None,
            begun: (NEVER, None),
            newest: (NEVER, None),
            least_source: None,
            ahead: None,
            missing: Vec::new(),
        }
    }

    /// Returns the interval that a sequence is missing from, if any.
    pub(crate) fn interval_of(&self, sequence: i64) -> Option<MissingRange> {
        let at = self.missing.partition_point(|i| i.to < sequence);
        self.missing.get(at).filter(|i| i.from <= sequence).copied()
    }

    /// Returns the distance of a sequence from the range: 0 within it, `i64::MAX` if there is no range.
    pub(crate) fn distance(&self, sequence: i64) -> i64 {
        self.range.map_or(i64::MAX, |(lowest, highest)| {
            sequence.saturating_sub(highest).max(lowest.saturating_sub(sequence)).max(0)
        })
    }

    /// Marks a frame as seen. Frames that it shows to be missing belong to `gap`.
    pub(crate) fn place(&mut self, sequence: i64, stamps: Stamps, gap: u64) {
        if let Some(source) = stamps.1
            && self.least_source.is_none_or(|least| source < least)
        {
            self.least_source = Some(source);
        }
        let Some((lowest, highest)) = self.range else {
            (self.range, self.begun) = (Some((sequence, sequence)), stamps);
            self.be_newest(stamps);
            return;
        };
        if sequence > highest {
            self.range = Some((lowest, sequence));
            self.be_newest(stamps);
            self.miss(MissingRange { from: highest + 1, to: sequence - 1, gap });
        } else if sequence < lowest {
            self.range = Some((sequence, highest));
            if mutant::is_active(Mutant::ForgetBelow) {
                return;
            }
            self.miss(MissingRange { from: sequence + 1, to: lowest - 1, gap: UNCOUNTED });
        } else {
            self.see(sequence);
        }
    }

    fn be_newest(&mut self, stamps: Stamps) {
        if let Some(source) = stamps.1.filter(|time| *time >= self.ahead_at(stamps.0)) {
            self.ahead = Some((source, stamps.0));
        }
        self.newest = stamps;
    }

    /// Returns the highest source time within the time in which frames may arrive out of order, or `i64::MIN`.
    pub(crate) fn ahead_at(&self, receive_time: i64) -> i64 {
        let recent = self.ahead.filter(|(_, received)| receive_time.saturating_sub(*received) <= super::REORDER_NS);
        recent.map_or(i64::MIN, |(source_time, _)| source_time)
    }

    fn see(&mut self, sequence: i64) {
        let at = self.missing.partition_point(|i| i.to < sequence);
        let Some(found) = self.missing.get(at).filter(|i| i.from <= sequence).copied() else { return };
        self.missing.remove(at);
        self.miss(MissingRange { to: sequence - 1, ..found });
        self.miss(MissingRange { from: sequence + 1, ..found });
    }

    /// Marks an interval as not seen; ignores an empty one. No part of it may be marked yet. Beyond [`INTERVALS_MAX`]
    /// intervals, forgets the lowest one and everything below it.
    pub(crate) fn miss(&mut self, new: MissingRange) {
        if new.from > new.to {
            return;
        }
        let at = self.missing.partition_point(|i| i.to < new.from);
        match at.checked_sub(1).and_then(|before| self.missing.get_mut(before)) {
            Some(before) if before.gap == new.gap && before.to + 1 == new.from => before.to = new.to,
            _ => self.missing.insert(at, new),
        }
        if self.missing.len() > INTERVALS_MAX {
            self.forget_lowest(self.missing.len() - INTERVALS_MAX);
        }
    }

    /// Forgets the lowest intervals and everything below them.
    pub(crate) fn forget_lowest(&mut self, count: usize) {
        let Some(last) = self.missing.drain(..count).next_back() else { return };
        self.range = self.range.map(|(_, highest)| (last.to + 1, highest));
    }

    /// Forgets everything below a sequence.
    pub(crate) fn forget_below(&mut self, sequence: i64) {
        let Some((lowest, highest)) = self.range.filter(|(lowest, _)| *lowest < sequence) else { return };
        self.missing.retain(|i| i.to >= sequence);
        // Frames missing at the new lower end are as unknown as those below it.
        let first = self.missing.first().filter(|i| i.from <= sequence).map(|i| i.to + 1);
        if first.is_some() {
            self.missing.remove(0);
        }
        self.range = Some((first.unwrap_or(sequence).clamp(lowest, highest + 1), highest));
    }

    /// Assigns a gap to the frames within a range that are missing without one.
    pub(crate) fn name_gap(&mut self, (from, to): (i64, i64), gap: u64) {
        let unnamed = |i: &MissingRange| i.gap == UNKNOWN_GAP && i.from <= to && i.to >= from;
        if !self.missing.iter().any(unnamed) {
            return;
        }
        for old in std::mem::take(&mut self.missing) {
            if !unnamed(&old) {
                self.miss(old);
                continue;
            }
            self.miss(MissingRange { to: old.to.min(from.saturating_sub(1)), ..old });
            self.miss(MissingRange { from: old.from.max(from), to: old.to.min(to), gap });
            self.miss(MissingRange { from: old.from.max(to.saturating_add(1)), ..old });
        }
    }

    /// Marks frames beyond the highest as missing in `gap`, and those before them as missing without a named gap.
    pub(crate) fn expect(&mut self, (from, to): (i64, i64), gap: u64) {
        let (lowest, highest) = self.range.unwrap_or((from, from - 1));
        if to > highest {
            self.range = Some((lowest, to));
            self.miss(MissingRange { from: highest + 1, to: from - 1, gap: UNKNOWN_GAP });
            self.miss(MissingRange { from: from.max(highest + 1), to, gap });
        }
    }

    /// Returns the first and last sequence and the number of the frames that are missing without a named gap.
    pub(crate) fn unnamed(&self) -> Option<((i64, i64), u64)> {
        let mut found: Option<((i64, i64), u64)> = None;
        for interval in self.missing.iter().filter(|i| i.gap == UNKNOWN_GAP) {
            let count = interval.frames();
            found = Some(match found {
                None => ((interval.from, interval.to), count),
                Some(((from, _), before)) => ((from, interval.to), before + count),
            });
        }
        found
    }

    /// Marks frames that are missing without a named gap as never lost.
    pub(crate) fn uncount_unnamed(&mut self) {
        for old in std::mem::take(&mut self.missing) {
            let gap = if old.gap == UNKNOWN_GAP { UNCOUNTED } else { old.gap };
            self.miss(MissingRange { gap, ..old });
        }
    }

    /// Counts the frames that were counted as lost and are still missing.
    pub(crate) fn open_frames(&self) -> u64 {
        let counted = self.missing.iter().filter(|i| i.gap != UNCOUNTED);
        counted.map(MissingRange::frames).sum()
    }

    /// Returns whether any sequence from `from` to `to` is missing.
    pub(crate) fn misses(&self, from: i64, to: i64) -> bool {
        let at = self.missing.partition_point(|i| i.to < from);
        self.missing.get(at).is_some_and(|i| i.from <= to)
    }

    /// Returns the runs of frames seen here and not in `durable`, in order: frames that were lost with a failed disk.
    /// Frames that a stream with reductions left out in between are not distinguished from frames never seen.
    pub(crate) fn give_up(&mut self, durable: Option<&Session>, reduced: bool) -> Vec<(i64, i64)> {
        let mut void = Vec::new();
        let Some((lowest, highest)) = self.range else { return void };
        let mut put = |from: i64, to: i64| {
            if from <= to {
                void.push((from, to));
            }
        };
        let known = durable.and_then(|durable| Some((durable, durable.range?)));
        let mut seen_from = lowest;
        let ends = self.missing.clone();
        for end in ends.into_iter().map(|i| (i.from, i.to)).chain([(highest + 1, highest + 1)]) {
            let (from, to) = (seen_from, end.0 - 1);
            seen_from = end.1 + 1;
            let Some((durable, (_, durable_highest))) = known else {
                put(from, to);
                continue;
            };
            for missing in &durable.missing {
                let (from, to) = (from.max(missing.from), to.min(missing.to));
                match reduced && missing.gap == UNCOUNTED {
                    true => self.miss(MissingRange { from, to, gap: UNCOUNTED }),
                    false => put(from, to),
                }
            }
            put(from.max(durable_highest + 1), to);
        }
        if let Some((_, (durable_lowest, _))) = known {
            self.forget_below(durable_lowest);
        }
        void
    }
}
