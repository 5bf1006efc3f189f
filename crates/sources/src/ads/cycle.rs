//! Numbers for cycles: what lets the store's ledger see a cycle that did not come.
//!
//! The number of a frame is its device time over its cycle, counted on from frame to frame, so that it does not depend
//! on this program's start: what a restart of the server missed is a gap as well. The PLC's own cycle runs a little off
//! its clock; the phase follows it, so that a drift is no loss.

/// Cycles over which the real cycle is judged.
const MEDIAN_OF: usize = 33;
/// Cycles seen before a median is worth something, and the shortest of them.
const MEDIAN_FROM: usize = 9;
const SHORTEST_FROM: usize = 3;
/// A real cycle this many times that asked for is the PLC's, not a loss.
const SLOWER: f64 = 1.5;
/// How much of a frame's jitter the phase takes on: 1 / 64.
const PHASE_SHARE: i64 = 64;
/// A device clock that gains this much on ours within a frame was set.
const STEP_NS: i64 = 1_000_000_000;

/// What a stamp is to the cycles before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Number of its cycle.
    pub number: u64,
    /// A frame of this cycle came before; a further one has no number of its own.
    pub is_known: bool,
    /// Cycles between it and the newest before it, that did not come.
    pub dropped: u64,
    /// It is older than the newest.
    pub is_old: bool,
    /// The device's clock was set.
    pub clock_set: bool,
}

/// Counts the cycles of one group.
#[derive(Clone, Debug)]
pub struct Cycles {
    asked_ns: i64,
    newest: Option<Newest>,
    /// Newest distances between stamps, a ring.
    distances: [i64; MEDIAN_OF],
    seen: usize,
    /// The next distance is none of the PLC's: it was asked anew in between.
    is_apart: bool,
    real_ns: i64,
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    number: u64,
    stamp: i64,
    /// Where it was expected, with the jitter of single frames smoothed.
    phase: i64,
    /// Least time from stamp to reception so far.
    transit: i64,
    /// Which of the newest 64 numbers came, the newest in the lowest bit.
    came: u64,
}

impl Cycles {
    /// For a cycle in nanoseconds.
    pub fn new(cycle_ns: i64) -> Cycles {
        let asked_ns = cycle_ns.max(1);
        Cycles { asked_ns, newest: None, distances: [0; MEDIAN_OF], seen: 0, is_apart: false, real_ns: asked_ns }
    }

    /// The cycle by the stamps, nanoseconds: that asked for unless the PLC's is longer by half and more.
    pub fn real_ns(&self) -> i64 {
        self.real_ns
    }

    /// The PLC is asked anew: its cycle may be another, and the time until it comes is none. Numbers go on.
    pub fn ask_again(&mut self) {
        self.seen = 0;
        self.is_apart = true;
    }

    /// Judges the stamp of a frame (nanoseconds since 1970) that was received at `receive_time`.
    pub fn judge(&mut self, stamp: i64, receive_time: i64) -> Judged {
        let transit = receive_time.saturating_sub(stamp);
        let Some(newest) = &mut self.newest else {
            let number = (stamp.max(0) / self.asked_ns) as u64;
            self.newest = Some(Newest { number, stamp, phase: stamp, transit, came: 1 });
            return Judged { number, ..Judged::default() };
        };
        let since = stamp.saturating_sub(newest.stamp);
        let set = transit < newest.transit.saturating_sub(STEP_NS) || since < -STEP_NS;
        if set {
            let number = newest.number + 1;
            *newest = Newest { number, stamp, phase: stamp, transit, came: 1 };
            return Judged { number, clock_set: true, ..Judged::default() };
        }
        newest.transit = newest.transit.min(transit);
        if since <= 0 {
            let back = (since.unsigned_abs() + self.real_ns as u64 / 2) / self.real_ns as u64;
            // Further back nobody knows any more: it is stored without a number.
            let is_known = back >= 64 || newest.came >> back & 1 != 0;
            newest.came |= 1_u64.checked_shl(back as u32).unwrap_or(0);
            let number = newest.number.saturating_sub(back);
            return Judged { number, is_known, is_old: true, ..Judged::default() };
        }
        self.learn(since);
        let real_ns = self.real_ns;
        let Some(newest) = &mut self.newest else { return Judged::default() };
        if since < real_ns / 8 {
            // No cycle of its own: a sample that a notification begins with, whatever its cycle.
            return Judged { number: newest.number, is_known: true, ..Judged::default() };
        }
        let expected = newest.phase.saturating_add(real_ns);
        // Half a cycle late is the next one already.
        let extra = (stamp.saturating_sub(expected).saturating_add(real_ns / 2)).div_euclid(real_ns).max(0);
        let due = expected.saturating_add(extra.saturating_mul(real_ns));
        let off = stamp.saturating_sub(due);
        // Far too early is another phase: a task that began anew.
        newest.phase = if off < -real_ns / 2 { stamp } else { due.saturating_add(off / PHASE_SHARE) };
        newest.stamp = stamp;
        // Numbers are of the cycle asked for; a PLC that is slower counts its own.
        newest.number += 1 + extra as u64;
        newest.came = newest.came.checked_shl(1 + extra.min(64) as u32).unwrap_or(0) | 1;
        Judged { number: newest.number, dropped: extra as u64, ..Judged::default() }
    }

    fn learn(&mut self, distance: i64) {
        if std::mem::take(&mut self.is_apart) {
            return;
        }
        self.distances[self.seen % MEDIAN_OF] = distance;
        self.seen += 1;
        let known = &self.distances[..self.seen.min(MEDIAN_OF)];
        // A median each cycle would cost more than it tells.
        let typical = if self.seen < SHORTEST_FROM {
            None
        } else if self.seen < MEDIAN_FROM {
            known.iter().copied().min()
        } else if self.seen.is_multiple_of(MEDIAN_FROM) {
            let mut sorted = [0; MEDIAN_OF];
            let sorted = &mut sorted[..known.len()];
            sorted.copy_from_slice(known);
            sorted.sort_unstable();
            Some(sorted[sorted.len() / 2])
        } else {
            None
        };
        if let Some(typical) = typical {
            let slower = typical as f64 > self.asked_ns as f64 * SLOWER;
            self.real_ns = if slower { typical } else { self.asked_ns };
        }
    }
}

/// Frames in a time: whether a PLC sends more than it was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateWatch {
    since: i64,
    frames: u64,
}

/// Time over which a rate is measured.
const WATCH_NS: i64 = 1_000_000_000;

impl RateWatch {
    /// Takes a frame received at `now`. When a second is over, returns the frames a second in it.
    pub fn frame(&mut self, now: i64) -> Option<f64> {
        if self.frames == 0 || now < self.since {
            *self = RateWatch { since: now, frames: 1 };
            return None;
        }
        self.frames += 1;
        let span = now - self.since;
        if span < WATCH_NS {
            return None;
        }
        let rate = (self.frames - 1) as f64 * 1e9 / span as f64;
        *self = RateWatch { since: now, frames: 1 };
        Some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: i64 = 1_780_000_000_000_000_000;
    const MS: i64 = 1_000_000;

    /// Runs stamps (in ms after T0) at a cycle; returns what was dropped in all, and the last judgement.
    fn run(cycle_ms: i64, stamps_us: impl IntoIterator<Item = i64>) -> (u64, Judged) {
        let mut cycles = Cycles::new(cycle_ms * MS);
        let (mut dropped, mut last, mut number) = (0, Judged::default(), None);
        for us in stamps_us {
            let stamp = T0 + us * 1_000;
            last = cycles.judge(stamp, stamp + 300_000);
            if !last.is_old && !last.clock_set {
                assert_eq!(number.map_or(last.number, |n| n + 1 + last.dropped), last.number, "at {us} µs");
                number = Some(last.number);
            }
            dropped += last.dropped;
        }
        (dropped, last)
    }

    #[test]
    fn numbers_are_those_of_the_clock_and_dropped_cycles_are_counted() {
        let (dropped, last) = run(10, [0, 10_000, 20_000, 50_000, 60_000]);
        assert_eq!((dropped, last.number), (2, T0 as u64 / 10_000_000 + 6));
        // After a restart of the server the numbers go on where they would have been.
        let (_, again) = run(10, [100_000]);
        assert_eq!(again.number, T0 as u64 / 10_000_000 + 10);
    }

    #[test]
    fn jitter_and_drift_are_no_loss() {
        let mut random = fastrand::Rng::with_seed(7);
        let jitter: Vec<i64> = (0..20_000).map(|n| n * 1_000 + random.i64(-200..200)).collect();
        assert_eq!(run(1, jitter).0, 0);
        // A clock that runs 1 in 1,000 off makes 20 cycles more in 20,000.
        assert_eq!(run(1, (0..20_000).map(|n| n * 1_001)).0, 0);
        assert_eq!(run(1, (0..20_000).map(|n| n * 999)).0, 0);
        // Every loss is seen all the same.
        assert_eq!(run(1, (0..20_000).filter(|n| n % 100 != 50).map(|n| n * 1_001)).0, 200);
    }

    #[test]
    fn a_plc_with_a_longer_cycle_of_its_own_loses_nothing() {
        // But for the first two, when nobody knows yet.
        assert_eq!(run(1, (0..1_000).map(|n| n * 10_000)).0, 2 * 9);
        assert_eq!(run(1, (0..1_000).filter(|n| *n != 500).map(|n| n * 10_000)).0, 2 * 9 + 1);
        let mut cycles = Cycles::new(MS);
        (0..50).for_each(|n| _ = cycles.judge(T0 + n * 10 * MS, T0 + n * 10 * MS));
        assert_eq!(cycles.real_ns(), 10 * MS);
        // It is remembered when the connection is another; a cycle of its own that ended is not.
        cycles.ask_again();
        assert_eq!(cycles.judge(T0 + 600 * MS, T0 + 600 * MS).dropped, 10);
        (601..611).for_each(|n| _ = cycles.judge(T0 + n * MS, T0 + n * MS));
        assert_eq!(cycles.real_ns(), MS);
    }

    #[test]
    fn a_clock_that_is_set_is_no_loss_and_an_old_stamp_has_its_own_number() {
        let mut cycles = Cycles::new(10 * MS);
        let first = cycles.judge(T0, T0 + MS);
        let second = cycles.judge(T0 + 10 * MS, T0 + 11 * MS);
        let old = cycles.judge(T0, T0 + 12 * MS);
        assert_eq!((old.number, old.is_old, old.is_known), (first.number, true, true));
        let day = 86_400_000 * MS;
        let set = cycles.judge(T0 + day, T0 + 21 * MS);
        assert_eq!((set.number, set.clock_set, set.dropped), (second.number + 1, true, 0));
        let back = cycles.judge(T0 + 20 * MS, T0 + 31 * MS);
        assert_eq!((back.number, back.clock_set), (second.number + 2, true));
        // A stall of the network is neither: all come, late.
        for n in 3..500 {
            let judged = cycles.judge(T0 + n * 10 * MS, T0 + 5_000 * MS + n);
            assert_eq!((judged.dropped, judged.clock_set, judged.is_old), (0, false, false), "{n}");
        }
        // What was lost during the stall is seen.
        assert_eq!(cycles.judge(T0 + 5_100 * MS, T0 + 5_101 * MS).dropped, 10);
    }

    #[test]
    fn a_cycle_that_came_late_fills_its_place_once() {
        let mut cycles = Cycles::new(10 * MS);
        let first = cycles.judge(T0, T0);
        assert_eq!(cycles.judge(T0 + 30 * MS, T0 + 30 * MS).dropped, 2);
        let late = cycles.judge(T0 + 20 * MS, T0 + 31 * MS);
        assert_eq!((late.number, late.is_old, late.is_known), (first.number + 2, true, false));
        assert!(cycles.judge(T0 + 20 * MS, T0 + 32 * MS).is_known);
        assert_eq!(cycles.judge(T0 + 40 * MS, T0 + 41 * MS).number, first.number + 4);
    }

    #[test]
    fn samples_between_cycles_have_no_number_and_hide_no_loss() {
        let mut cycles = Cycles::new(100 * MS);
        let first = cycles.judge(T0, T0);
        for early in 1..10 {
            assert!(cycles.judge(T0 + early * MS, T0 + early * MS).is_known);
        }
        // Then the task's own phase.
        for n in 0..10 {
            let stamp = T0 + (60 + 100 * n) * MS;
            let judged = cycles.judge(stamp, stamp);
            assert_eq!((judged.number, judged.dropped, judged.is_known), (first.number + 1 + n as u64, 0, false));
        }
        let stamp = T0 + (60 + 100 * 11) * MS;
        assert_eq!(cycles.judge(stamp, stamp).dropped, 1);
    }

    #[test]
    fn a_rate_is_measured_over_a_second() {
        let mut watch = RateWatch::default();
        let rates: Vec<f64> = (0..3_000).filter_map(|n| watch.frame(T0 + n * MS)).collect();
        assert_eq!(rates.len(), 2);
        assert!(rates.iter().all(|rate| (*rate - 1_000.0).abs() < 2.0), "{rates:?}");
    }
}
