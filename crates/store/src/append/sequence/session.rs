//! One session of a source's sequence: which of its frames were seen.
//!
//! Invariant: a frame counts as seen only if it was: it lies within the range and in no interval. Whatever has to be
//! forgotten for want of room becomes *not seen*, so that a frame that may never have come is stored, not dropped.

use crate::model::mutant::{self, Mutant};
use crate::model::row::Stamps;

/// Intervals of frames not seen that are remembered of a session.
pub(crate) const INTERVALS_MAX: usize = 256;
/// Gap of what is missing while no row of `strongback.gaps` was found that says so.
pub(crate) const UNKNOWN_GAP: u64 = u64::MAX;
/// Gap of what was not seen and never counted as lost: it lies before the first frame that was.
pub(crate) const UNCOUNTED: u64 = u64::MAX - 1;
/// Receive stamp of what was never received.
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

/// Whether it can be an unwrapped sequence. What the disk says may be anything and is counted from.
pub(crate) fn can_be(sequence: i64) -> bool {
    sequence.unsigned_abs() <= 1 << 62
}

/// What was seen of one session.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Session {
    pub(crate) number: u32,
    /// Lowest and highest unwrapped sequence; one more than the highest, then it: none is known to have been seen. Nothing
    /// is known of what lies below.
    pub(crate) range: Option<(i64, i64)>,
    /// Stamps of its first frame.
    pub(crate) begun: Stamps,
    /// Stamps of the frame with the highest sequence.
    pub(crate) newest: Stamps,
    /// Least `source_time` of all its frames.
    pub(crate) least_source: Option<i64>,
    /// Source time that was the highest of late, and its reception: a source's clock may be set back.
    pub(crate) ahead: Option<(i64, i64)>,
    /// Within the range, ascending and apart from each other.
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

    /// Finds the interval that a sequence is missing from.
    pub(crate) fn interval_of(&self, sequence: i64) -> Option<MissingRange> {
        let at = self.missing.partition_point(|i| i.to < sequence);
        self.missing.get(at).filter(|i| i.from <= sequence).copied()
    }

    /// How many sequences lie between one and those of the range: 0 within it.
    pub(crate) fn distance(&self, sequence: i64) -> i64 {
        self.range.map_or(i64::MAX, |(lowest, highest)| {
            sequence.saturating_sub(highest).max(lowest.saturating_sub(sequence)).max(0)
        })
    }

    /// Marks a frame as seen. `gap` names what it shows to be missing.
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

    /// How far ahead the source's clock was within the time in which frames may come out of order.
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

    /// Marks an interval, of which nothing is marked yet, as not seen; an empty one is none. Beyond what is remembered the
    /// lowest goes, and with it all that is known of what lies below.
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

    /// Forgets the lowest intervals, and what lies below them.
    pub(crate) fn forget_lowest(&mut self, count: usize) {
        let Some(last) = self.missing.drain(..count).next_back() else { return };
        self.range = self.range.map(|(_, highest)| (last.to + 1, highest));
    }

    /// Forgets what lies below a sequence.
    pub(crate) fn forget_below(&mut self, sequence: i64) {
        let Some((lowest, highest)) = self.range.filter(|(lowest, _)| *lowest < sequence) else { return };
        self.missing.retain(|i| i.to >= sequence);
        // What is missing at the new end is as unknown as what lies below it.
        let first = self.missing.first().filter(|i| i.from <= sequence).map(|i| i.to + 1);
        if first.is_some() {
            self.missing.remove(0);
        }
        self.range = Some((first.unwrap_or(sequence).clamp(lowest, highest + 1), highest));
    }

    /// Names the gap of what is missing within a range and has none.
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

    /// Marks frames beyond the highest as missing in `gap`, and those before them as missing without a gap's name.
    pub(crate) fn expect(&mut self, (from, to): (i64, i64), gap: u64) {
        let (lowest, highest) = self.range.unwrap_or((from, from - 1));
        if to > highest {
            self.range = Some((lowest, to));
            self.miss(MissingRange { from: highest + 1, to: from - 1, gap: UNKNOWN_GAP });
            self.miss(MissingRange { from: from.max(highest + 1), to, gap });
        }
    }

    /// First and last sequence and number of the frames that are missing without a gap's name.
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

    /// Lets what is missing without a gap's name count as never lost.
    pub(crate) fn uncount_unnamed(&mut self) {
        for old in std::mem::take(&mut self.missing) {
            let gap = if old.gap == UNKNOWN_GAP { UNCOUNTED } else { old.gap };
            self.miss(MissingRange { gap, ..old });
        }
    }

    /// How many frames are missing that were counted as lost.
    pub(crate) fn open_frames(&self) -> u64 {
        let counted = self.missing.iter().filter(|i| i.gap != UNCOUNTED);
        counted.map(MissingRange::frames).sum()
    }

    /// Whether any sequence from `from` to `to` is missing.
    pub(crate) fn misses(&self, from: i64, to: i64) -> bool {
        let at = self.missing.partition_point(|i| i.to < from);
        self.missing.get(at).is_some_and(|i| i.from <= to)
    }

    /// Finds what was seen here and not in `durable`, in its order: frames that went back with a disk that failed. What
    /// a stream with reductions left out in between is not distinguished from what was never seen.
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
