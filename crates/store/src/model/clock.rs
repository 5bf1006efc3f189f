//! Trust in the callers' clock. The store reads no clock itself, and data dropped by age cannot be restored.
//!
//! ```text
//!  append(now) · commit(now) · maintain(now) ──> [Paces]      how long a view is held
//!  maintain(now), maintain_at(now, steady) ────> [WallClock]  the instant that ages are counted to, if it is confirmed
//! ```
//! Invariants: no data is dropped by age until the clock has advanced without a leap for `clock_confirm`. Data stored
//! since the opening is not dropped before its maximum age has actually passed. The time that passed is taken from the
//! caller's steady clock; without one, it is the sum of the steps from call to call that are no longer than
//! [`STEP_MAX_NS`].

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use crate::model::mutant::{self, Mutant};

/// Longest step between two calls that counts as elapsed time if the caller has no steady clock.
const STEP_MAX_NS: i64 = 60_000_000_000;
/// Smallest deviation that counts as a leap: larger than that of a slewed clock, or of one that is read late.
const LEAP_NS: i64 = 500_000_000;
/// Fraction of the elapsed time by which a slewed clock may run fast or slow: 1 / `SLEW`.
const SLEW: i64 = 1_000;
/// Interval after which the offset to the steady clock is measured again as the reference for leaps.
const ANCHOR_NS: i64 = 3_600_000_000_000;
/// Distance that leaps must have moved the clock before segments are said to hold nothing from before them.
const NOTED_NS: i64 = 5_000_000_000;
/// Largest distance (one year) by which a clock may be ahead of the stored data before it counts as a leap.
const AHEAD_NS: i64 = 365 * 86_400_000_000_000;
/// Earliest plausible time of stored data (2020): an earlier one is from a clock that was not set.
pub(crate) const PLAUSIBLE_FROM: i64 = 1_577_836_800_000_000_000;

/// Leap of the callers' clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockLeap {
    /// Time that the clock should have shown, in nanoseconds since 1970 UTC. For an opening, the newest stored instant.
    pub from: i64,
    /// Time that the clock showed.
    pub to: i64,
}

/// Trust that the store has in its callers' clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockTrust {
    /// Whether the clock advanced without a leap for `clock_confirm`. Otherwise nothing is dropped by age.
    pub confirmed: bool,
    /// Number of leaps since the store was opened, including that of the opening itself.
    pub leaps: u64,
    /// Newest leap.
    pub newest: Option<ClockLeap>,
}

/// Clock by which the ages of stored data are counted.
#[derive(Debug)]
pub(crate) struct WallClock {
    confirm_ns: i64,
    /// Wall clock and steady clock at the last call.
    last: Option<(i64, i64)>,
    /// Whether the caller has a steady clock. If so, calls without it do not count.
    has_steady: bool,
    /// Caller's steady clock at the last call that provided it.
    steady_told: Option<i64>,
    /// Wall clock minus steady clock, and the steady clock when this was measured.
    anchor: (i64, i64),
    /// Steady clock at the newest leap, or at the opening.
    since: i64,
    /// Wall clock minus steady clock when the clock was last confirmed.
    trusted: Option<i64>,
    /// Instant before which nothing was stored since the opening, by the clock after the leaps; and the wall clock
    /// minus the steady clock when this was noted.
    not_before: i64,
    noted: i64,
    state: ClockTrust,
}

impl WallClock {
    /// Returns the clock of a store that is being opened. `newest_stored` holds the instants of the newest row in
    /// segments and of the newest commit.
    pub(crate) fn new(confirm: Duration, now: i64, newest_stored: impl IntoIterator<Item = i64>) -> WallClock {
        let confirm_ns = match mutant::is_active(Mutant::BelieveClock) {
            true => 0,
            false => i64::try_from(confirm.as_nanos()).unwrap_or(i64::MAX),
        };
        let mut state = ClockTrust::default();
        let mut newest_stored: Vec<i64> = newest_stored.into_iter().collect();
        newest_stored.sort_unstable();
        for &newest in &newest_stored {
            let ahead = now.saturating_sub(newest);
            if !(-LEAP_NS..=AHEAD_NS).contains(&ahead) {
                state.leaps = 1;
                state.newest = Some(ClockLeap { from: newest, to: now });
            }
        }
        let is_believed = state.newest.is_none() && confirm_ns == 0;
        let not_before = if is_believed { newest_stored.last().copied().unwrap_or(i64::MIN) } else { now };
        let mut clock = WallClock {
            confirm_ns,
            not_before,
            noted: now,
            last: None,
            has_steady: false,
            steady_told: None,
            anchor: (now, 0),
            since: 0,
            trusted: None,
            state,
        };
        clock.observe(now, None);
        clock
    }

    /// Updates the clock from the caller's clocks. `steady` counts nanoseconds since any instant, on a clock that
    /// nobody sets.
    pub(crate) fn observe(&mut self, now: i64, steady: Option<i64>) {
        if steady.is_none() && self.has_steady {
            return;
        }
        let Some((wall, before)) = self.last else {
            self.last = Some((now, 0));
            self.judge(now, 0);
            return;
        };
        let step = now.saturating_sub(wall);
        let passed = match (self.steady_told, steady) {
            (Some(told), Some(steady)) => steady.saturating_sub(told).max(0),
            // A steady clock says nothing about the time before its first reading.
            (None, Some(_)) => {
                if (LEAP_NS..=STEP_MAX_NS).contains(&step) {
                    self.begin_at(now, before);
                }
                0
            }
            _ if (0..=STEP_MAX_NS).contains(&step) => step,
            _ => 0,
        };
        if let Some(steady) = steady {
            self.has_steady = true;
            self.steady_told = Some(steady);
        }
        let steady = before.saturating_add(passed);
        self.last = Some((now, steady));
        self.judge(now, steady);
    }

    /// Updates the clock from the caller's last call, which has no steady clock.
    pub(crate) fn observe_last(&mut self, now: i64) {
        (self.has_steady, self.steady_told) = (false, None);
        self.observe(now, None);
    }

    /// Compares the wall clock with the steady clock, and notes a leap or confirms the clock.
    fn judge(&mut self, now: i64, steady: i64) {
        let offset = now.saturating_sub(steady);
        let (anchored, at) = self.anchor;
        let slewed = LEAP_NS.saturating_add(steady.saturating_sub(at) / SLEW);
        if offset.saturating_sub(anchored).saturating_abs() > slewed {
            self.state.leaps += 1;
            self.state.newest = Some(ClockLeap { from: anchored.saturating_add(steady), to: now });
            self.begin_at(now, steady);
        } else if steady.saturating_sub(at) >= ANCHOR_NS {
            self.anchor = (offset, steady);
        }
        self.state.confirmed = steady.saturating_sub(self.since) >= self.confirm_ns;
        if self.state.confirmed {
            self.trusted = Some(offset);
        }
    }

    /// Restarts the comparison of the two clocks from their current values, after a leap or a step that may have been
    /// one.
    fn begin_at(&mut self, now: i64, steady: i64) {
        let offset = now.saturating_sub(steady);
        (self.anchor, self.since) = ((offset, steady), steady);
        if offset.saturating_sub(self.noted).saturating_abs() > NOTED_NS {
            (self.not_before, self.noted) = (now, offset);
        }
    }

    /// Returns the current trust in the clock.
    pub(crate) fn state(&self) -> ClockTrust {
        self.state
    }

    /// Returns the time that is known to have passed since the store was opened, in nanoseconds.
    pub(crate) fn steady(&self) -> i64 {
        self.last.map_or(0, |(_, steady)| steady)
    }

    /// Returns the instant of the newest leap, by the clock after it. Rows stored since the opening and before the leap
    /// have timestamps of a wrong clock, and are no older than this instant. Without a leap, returns the instant of the
    /// opening.
    pub(crate) fn not_before(&self) -> i64 {
        self.not_before
    }

    /// Returns the instant from which rows of earlier openings, which ended at `ended`, count as stored by this one.
    /// Returns `None` if every clock is trusted. Their clock may have been wrong while it was unconfirmed, and may only
    /// have been corrected after they ended.
    pub(crate) fn doubted_from(&self, ended: i64) -> Option<i64> {
        let is_believed = self.is_believed() || mutant::is_active(Mutant::BelieveEnd);
        (!is_believed).then(|| ended.saturating_sub(self.confirm_ns))
    }

    /// Returns whether every clock is trusted at once.
    pub(crate) fn is_believed(&self) -> bool {
        self.confirm_ns == 0
    }

    /// Returns the instant to which ages are counted: that of the clock confirmed last, but not beyond the current
    /// clock. Returns `None` if no clock was confirmed.
    pub(crate) fn now(&self) -> Option<i64> {
        let (wall, steady) = self.last?;
        Some(self.trusted?.saturating_add(steady).min(wall))
    }
}

/// Caller that provides the time. Each has its own clock, since a difference between two callers must not count as
/// elapsed time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Append,
    Commit,
    Upkeep,
}

/// Elapsed time by a clock that may leap. Steps back count as zero.
#[derive(Debug)]
struct Pace {
    newest: AtomicI64,
    passed: AtomicI64,
}

impl Pace {
    fn new(now: i64) -> Pace {
        Pace { newest: AtomicI64::new(now), passed: AtomicI64::new(0) }
    }

    fn tell(&self, now: i64) {
        let newest = self.newest.load(Ordering::Relaxed);
        if now > newest {
            let newest = self.newest.fetch_max(now, Ordering::Relaxed);
            let step = now.saturating_sub(newest).max(0);
            // Wraps after many leaps, as the differences do.
            self.passed.fetch_add(step, Ordering::Relaxed);
        } else if newest.saturating_sub(now) > LEAP_NS {
            // The clock was set back; this is not just threads arriving in another order.
            self.newest.store(now, Ordering::Relaxed);
        }
    }
}

/// Elapsed time, by the clock of each caller.
#[derive(Debug)]
pub(crate) struct Paces {
    /// Time of the newest call.
    now: AtomicI64,
    callers: [Pace; 3],
    /// Caller's steady clock. Once it was provided, only it counts.
    steady: Pace,
    has_steady: AtomicBool,
}

/// Elapsed time by each clock at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    callers: [i64; 3],
    /// Elapsed time by the steady clock, if there is one.
    steady: Option<i64>,
}

impl Paces {
    pub(crate) fn new(now: i64) -> Paces {
        Paces {
            now: AtomicI64::new(now),
            callers: std::array::from_fn(|_| Pace::new(now)),
            steady: Pace::new(0),
            has_steady: AtomicBool::new(false),
        }
    }

    /// Updates a caller's clock with the time of a call.
    #[inline]
    pub(crate) fn tell(&self, caller: Caller, now: i64) {
        self.now.store(now, Ordering::Relaxed);
        self.callers[caller as usize].tell(now);
    }

    /// Updates the caller's steady clock.
    pub(crate) fn tell_steady(&self, steady: i64) {
        if !self.has_steady.load(Ordering::Acquire) {
            self.steady.newest.store(steady, Ordering::Relaxed);
            self.has_steady.store(true, Ordering::Release);
        }
        self.steady.tell(steady);
    }

    /// Returns the time of the newest call, which may be earlier than that of the one before.
    pub(crate) fn now(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Returns a mark for measuring elapsed time.
    pub(crate) fn mark(&self) -> Mark {
        let passed = |pace: &Pace| pace.passed.load(Ordering::Relaxed);
        let steady = self.has_steady.load(Ordering::Acquire).then(|| passed(&self.steady));
        Mark { callers: std::array::from_fn(|n| passed(&self.callers[n])), steady }
    }

    /// Returns the nanoseconds since a mark: by the steady clock, or else by the caller whose clock advanced furthest.
    pub(crate) fn since(&self, mark: &Mark) -> i64 {
        let now = self.mark();
        match (now.steady, mark.steady) {
            (Some(now), before) => now.wrapping_sub(before.unwrap_or(0)),
            _ => now.callers.iter().zip(&mark.callers).map(|(now, then)| now.wrapping_sub(*then)).max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;
    const HOUR: i64 = 3_600 * S;
    const DAY: i64 = 24 * HOUR;
    const T0: i64 = 1_790_000_000 * S;

    fn clock(now: i64) -> WallClock {
        WallClock::new(Duration::from_secs(3_600), now, None)
    }

    /// Advances both clocks second by second.
    fn run(clock: &mut WallClock, seconds: i64, steady: Option<i64>) {
        for second in 1..=seconds {
            let (wall, _) = clock.last.expect("a call");
            clock.observe(wall.saturating_add(S), steady.map(|from| from.saturating_add(second * S)));
        }
    }

    #[test]
    fn a_clock_is_confirmed_by_going_on() {
        for steady in [None, Some(0), Some(5 * DAY)] {
            let mut clock = clock(T0);
            clock.observe(T0, steady);
            run(&mut clock, 3_599, steady);
            assert_eq!((clock.now(), clock.state().confirmed), (None, false), "{steady:?}");
            run(&mut clock, 1, steady.map(|from| from + 3_599 * S));
            assert_eq!((clock.now(), clock.state().leaps), (Some(T0 + HOUR), 0), "{steady:?}");
        }
    }

    #[test]
    fn every_leap_is_noticed_and_waited_for() {
        let leaps = [S, 90 * S, HOUR, 31 * DAY, 3_650 * DAY, i64::MAX / 2, i64::MAX];
        for leap in leaps.into_iter().flat_map(|leap| [leap, -leap]).chain([i64::MIN]) {
            let mut clock = clock(T0);
            clock.observe(T0, Some(0));
            run(&mut clock, 3_600, Some(0));
            let before = clock.now().expect("confirmed");
            let to = before.saturating_add(leap);
            clock.observe(to, Some(HOUR));
            assert_eq!((clock.state().leaps, clock.state().confirmed), (1, false), "{leap}");
            assert_eq!(clock.state().newest, Some(ClockLeap { from: before, to }));
            // Ages continue to be counted by the old clock, but not beyond the new one.
            assert_eq!(clock.now(), Some(before.min(to)), "{leap}");
            run(&mut clock, 10, Some(HOUR));
            assert_eq!(clock.now(), Some((before + 10 * S).min(to.saturating_add(10 * S))), "{leap}");
            // Set back: as if nothing had happened.
            clock.observe(before + 10 * S, Some(HOUR + 10 * S));
            assert_eq!(clock.now(), Some(before + 10 * S), "{leap}");
            run(&mut clock, 3_600, Some(HOUR + 10 * S));
            assert!(clock.state().confirmed);
        }
    }

    #[test]
    fn a_silence_is_no_leap_for_a_steady_clock_and_is_one_without() {
        for (steady, leaps) in [(Some(0), 0), (None, 1)] {
            let mut clock = clock(T0);
            clock.observe(T0, steady);
            clock.observe(T0 + 2 * HOUR, steady.map(|_| 2 * HOUR));
            assert_eq!(clock.state().leaps, leaps);
            assert_eq!(clock.state().confirmed, leaps == 0);
        }
    }

    /// A steady clock must say nothing about the time between the opening and its first reading.
    #[test]
    fn a_step_before_the_first_steady_instant_is_not_taken_for_time() {
        for step in [1, 7, 55, 60] {
            let mut clock = clock(T0 - step * S);
            clock.observe(T0, Some(DAY));
            assert_eq!((clock.steady(), clock.state()), (0, ClockTrust::default()), "{step}");
            assert_eq!(clock.not_before() == T0, step * S > NOTED_NS, "{step}");
            run(&mut clock, 3_600, Some(DAY));
            assert_eq!((clock.now(), clock.steady()), (Some(T0 + HOUR), HOUR), "{step}");
        }
    }

    #[test]
    fn a_slewed_clock_is_followed() {
        let mut clock = clock(T0);
        clock.observe(T0, Some(0));
        // Drift of half a second in each thousand, for ten hours.
        for second in 1..=36_000 {
            clock.observe(T0 + second * S + second * S / 2_000, Some(second * S));
        }
        assert_eq!(clock.state(), ClockTrust { confirmed: true, ..ClockTrust::default() });
        assert_eq!(clock.now(), Some(T0 + 10 * HOUR + 18 * S));
    }

    #[test]
    fn an_opening_beside_what_is_stored_is_told() {
        let of = |now, newest| WallClock::new(Duration::from_secs(3_600), now, Some(newest)).state().newest;
        assert_eq!(of(T0, T0 - 30 * DAY), None);
        assert_eq!(of(T0, T0), None);
        assert_eq!(of(T0 - S, T0), Some(ClockLeap { from: T0, to: T0 - S }));
        assert_eq!(of(T0, 300 * S), Some(ClockLeap { from: 300 * S, to: T0 }));
        assert_eq!(of(i64::MAX, i64::MIN), Some(ClockLeap { from: i64::MIN, to: i64::MAX }));
    }

    #[test]
    fn ages_go_on_after_a_leap_forward_and_back() {
        let paces = Paces::new(T0);
        for now in [T0, T0 + 3_650 * DAY, T0 + S] {
            paces.tell(Caller::Append, now);
            paces.tell(Caller::Upkeep, now);
        }
        assert_eq!(paces.now(), T0 + S);
        let mark = paces.mark();
        for second in 1..=61 {
            paces.tell(Caller::Upkeep, T0 + S + second * S);
            assert_eq!(paces.since(&mark), second * S);
        }
        // Two clocks that are a month apart must not count as elapsed time.
        let mark = paces.mark();
        for n in 0..100 {
            paces.tell(Caller::Append, T0 + S + n);
            paces.tell(Caller::Commit, T0 + 31 * DAY + n);
        }
        assert!(paces.since(&mark) >= 31 * DAY, "the first call of a caller is a step");
        let mark = paces.mark();
        for n in 100..200 {
            paces.tell(Caller::Append, T0 + S + n);
            paces.tell(Caller::Commit, T0 + 31 * DAY + n);
        }
        assert_eq!(paces.since(&mark), 100);
        // A steady clock alone counts from its first reading on.
        paces.tell_steady(7);
        let mark = paces.mark();
        paces.tell(Caller::Append, i64::MAX);
        paces.tell_steady(7 + S);
        assert_eq!(paces.since(&mark), S);
    }
}
