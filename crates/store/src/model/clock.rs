//! The callers' clock, judged: the store reads none, and data that is dropped by age is gone for good.
//!
//! ```text
//!  append(now) · commit(now) · maintain(now) ──> [Paces]      how long a view is held
//!  maintain(now), maintain_at(now, steady) ────> [WallClock]  the instant that ages are counted to, if it is confirmed
//! ```
//! Invariants: nothing is dropped by age before the clock went on without a leap for `clock_confirm`; nothing that was
//! stored since the store was opened before as much time has passed as it may be old. Time that passed is what the
//! caller's steady clock says; without one, the steps from call to call that are no longer than [`STEP_MAX_NS`].

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use crate::model::mutant::{self, Mutant};

/// Longest step from one call to the next that is taken for time that passed, if the caller has no steady clock.
const STEP_MAX_NS: i64 = 60_000_000_000;
/// Least distance that is a leap: more than a slewed or read late clock shows.
const LEAP_NS: i64 = 500_000_000;
/// By how much a clock that is being slewed may run fast or slow: a part of the time that passed.
const SLEW: i64 = 1_000;
/// After so long the distance to the steady clock is taken again as where the clock stands.
const ANCHOR_NS: i64 = 3_600_000_000_000;
/// By so much leaps must have moved the clock before segments are said to hold nothing of before them.
const NOTED_NS: i64 = 5_000_000_000;
/// Further ahead of what the store holds no clock is believed without being said: a year.
const AHEAD_NS: i64 = 365 * 86_400_000_000_000;
/// Data cannot have been stored before this program was there: a clock that said so was not set. 2020.
pub(crate) const PLAUSIBLE_FROM: i64 = 1_577_836_800_000_000_000;

/// A leap of the callers' clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockLeap {
    /// What the clock would have said, nanoseconds since 1970 UTC; of an opening the newest instant that the store holds.
    pub from: i64,
    /// What it said.
    pub to: i64,
}

/// What the store makes of its callers' clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockTrust {
    /// Whether it went on without a leap for as long as `clock_confirm` says: else nothing is dropped by age.
    pub confirmed: bool,
    /// Leaps since the store was opened, that of the opening itself among them.
    pub leaps: u64,
    /// The newest of them.
    pub newest: Option<ClockLeap>,
}

/// The clock that ages of stored data are counted by.
#[derive(Debug)]
pub(crate) struct WallClock {
    confirm_ns: i64,
    /// Wall and steady clock at the last call.
    last: Option<(i64, i64)>,
    /// Whether the caller has a steady clock: then other calls do not count.
    has_steady: bool,
    /// The caller's steady clock at the last call that told it.
    steady_told: Option<i64>,
    /// Wall less steady clock, and the steady clock when that was taken.
    anchor: (i64, i64),
    /// The steady clock at the newest leap, or at the opening.
    since: i64,
    /// Wall less steady clock of the clock that was confirmed last.
    trusted: Option<i64>,
    /// Instant before which nothing was stored since the opening, by the clock that leaps came to; and wall less steady
    /// clock when that was said.
    not_before: i64,
    noted: i64,
    state: ClockTrust,
}

impl WallClock {
    /// A clock of a store that is being opened, which holds nothing newer than one of these: the newest row in segments,
    /// and the newest commit.
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

    /// Takes in what the caller's clocks say; `steady`: nanoseconds since any instant, of a clock that nobody sets.
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
            // It says nothing of the time before it was told first.
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

    /// Takes in what the caller's clock says at the end, where no steady clock is beside it.
    pub(crate) fn observe_last(&mut self, now: i64) {
        (self.has_steady, self.steady_told) = (false, None);
        self.observe(now, None);
    }

    /// Compares the two clocks.
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

    /// Begins to compare the two clocks where they stand: after a leap, or a step that may have been one.
    fn begin_at(&mut self, now: i64, steady: i64) {
        let offset = now.saturating_sub(steady);
        (self.anchor, self.since) = ((offset, steady), steady);
        if offset.saturating_sub(self.noted).saturating_abs() > NOTED_NS {
            (self.not_before, self.noted) = (now, offset);
        }
    }

    /// What is made of it.
    pub(crate) fn state(&self) -> ClockTrust {
        self.state
    }

    /// The time that passed since the store was opened, as far as it is known.
    pub(crate) fn steady(&self) -> i64 {
        self.last.map_or(0, |(_, steady)| steady)
    }

    /// The instant of the newest leap, by the clock that it came to: what was stored since the opening and before it has
    /// instants of a clock that was wrong, and is no older than that. Without a leap the instant of the opening.
    pub(crate) fn not_before(&self) -> i64 {
        self.not_before
    }

    /// The instant from which on what earlier openings stored counts as stored by this one, if they ended then: their clock
    /// may have been wrong for as long as none is confirmed, and right again only after their end.
    pub(crate) fn doubted_from(&self, ended: i64) -> Option<i64> {
        let is_believed = self.is_believed() || mutant::is_active(Mutant::BelieveEnd);
        (!is_believed).then(|| ended.saturating_sub(self.confirm_ns))
    }

    /// Whether every clock is to be believed at once.
    pub(crate) fn is_believed(&self) -> bool {
        self.confirm_ns == 0
    }

    /// The instant to which ages are counted: of the clock that was confirmed last, and never one that the clock of now
    /// has not reached. None: none was confirmed.
    pub(crate) fn now(&self) -> Option<i64> {
        let (wall, steady) = self.last?;
        Some(self.trusted?.saturating_add(steady).min(wall))
    }
}

/// Who tells the time. Each has a clock for itself: two that are apart must not make time pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Append,
    Commit,
    Upkeep,
}

/// Time that passed by a clock that may leap: steps back count as none.
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
            // Not threads that came in another order: the clock was set back.
            self.newest.store(now, Ordering::Relaxed);
        }
    }
}

/// Time that passed, as each caller tells it.
#[derive(Debug)]
pub(crate) struct Paces {
    /// What the newest call said.
    now: AtomicI64,
    callers: [Pace; 3],
    /// The caller's steady clock, once it told one: then it alone counts.
    steady: Pace,
    has_steady: AtomicBool,
}

/// Where the clocks stood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    callers: [i64; 3],
    /// If there is a steady clock.
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

    /// Takes in the time that a call came with.
    #[inline]
    pub(crate) fn tell(&self, caller: Caller, now: i64) {
        self.now.store(now, Ordering::Relaxed);
        self.callers[caller as usize].tell(now);
    }

    /// Takes in the caller's steady clock.
    pub(crate) fn tell_steady(&self, steady: i64) {
        if !self.has_steady.load(Ordering::Acquire) {
            self.steady.newest.store(steady, Ordering::Relaxed);
            self.has_steady.store(true, Ordering::Release);
        }
        self.steady.tell(steady);
    }

    /// The time of the newest call: forward or back, as the clock was set.
    pub(crate) fn now(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Where the clocks stand.
    pub(crate) fn mark(&self) -> Mark {
        let passed = |pace: &Pace| pace.passed.load(Ordering::Relaxed);
        let steady = self.has_steady.load(Ordering::Acquire).then(|| passed(&self.steady));
        Mark { callers: std::array::from_fn(|n| passed(&self.callers[n])), steady }
    }

    /// Nanoseconds that passed since: by the steady clock, else by the caller whose clock went on furthest.
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

    /// Both clocks go on second by second.
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
            // Ages are counted on by the old clock, and not beyond the new one.
            assert_eq!(clock.now(), Some(before.min(to)), "{leap}");
            run(&mut clock, 10, Some(HOUR));
            assert_eq!(clock.now(), Some((before + 10 * S).min(to.saturating_add(10 * S))), "{leap}");
            // Back: as if nothing had been.
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

    /// The steady clock says nothing of the time between the opening and the call that tells it first.
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
        // Half a second in each thousand, for ten hours.
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
        // Two clocks that are a month apart make no time pass.
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
        // A steady clock alone counts from where it is told on.
        paces.tell_steady(7);
        let mark = paces.mark();
        paces.tell(Caller::Append, i64::MAX);
        paces.tell_steady(7 + S);
        assert_eq!(paces.since(&mark), S);
    }
}
