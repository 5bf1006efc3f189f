//! The countdown: one clock with holds, the marks on it, and the recycle to the next attempt.

use crate::noise::Random;

/// Start of the clock after a recycle, milliseconds from T-0.
pub(crate) const START_MS: i64 = -600_000;
/// Time at which the next attempt begins, milliseconds from T-0.
pub(crate) const RECYCLE_MS: i64 = 240_000;
/// Time of the planned hold, milliseconds from T-0.
const PLANNED_HOLD_MS: i64 = -90_000;
/// Time at which an attempt is held when a limit is exceeded, milliseconds from T-0.
const LIMIT_HOLD_MS: i64 = -40_000;

/// Severity of an event, as `/api/events` spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For information.
    Info,
    /// Worth a look.
    Watch,
    /// Needs attention.
    Warning,
}

impl Level {
    /// Returns the word used by `/api/events`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Watch => "watch",
            Level::Warning => "warning",
        }
    }
}

/// Event on the pad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PadEvent {
    /// Time, nanoseconds since the pad's start.
    pub time_ns: i64,
    /// Description for people.
    pub text: String,
    /// Severity of the event.
    pub level: Level,
}

/// Marks on the clock: milliseconds from T-0, text, severity.
const MARKS: [(i64, &str, Level); 17] = [
    (-595_000, "LOX line chilldown", Level::Info),
    (-560_000, "Fuel loading", Level::Info),
    (-540_000, "LOX loading", Level::Info),
    (-330_000, "Fuel at flight level", Level::Info),
    (-300_000, "LOX at flight level, replenish", Level::Info),
    (-240_000, "Strongback retracting", Level::Info),
    (-120_000, "Internal power", Level::Info),
    (-70_000, "Flight termination armed", Level::Watch),
    (-60_000, "Tank pressurisation", Level::Info),
    (-31_000, "Terminal count", Level::Watch),
    (-15_000, "Water deluge", Level::Info),
    (-3_000, "Engine start", Level::Watch),
    (0, "Lift-off", Level::Watch),
    (70_000, "Maximum dynamic pressure", Level::Info),
    (145_000, "Main engine cut-off", Level::Watch),
    (180_000, "Pad safed", Level::Info),
    (200_000, "Next vehicle on the pad", Level::Info),
];

/// The countdown clock. It stops during holds and returns to the start after each flight.
#[derive(Clone, Debug)]
pub(crate) struct Countdown {
    clock_ms: i64,
    hold_left_ms: i64,
    attempt: u32,
    holds: [(i64, i64); 2],
    random: Random,
}

impl Countdown {
    /// Returns a clock at `clock_ms` from T-0 (negative before it).
    pub(crate) fn new(seed: u64, clock_ms: i64) -> Self {
        let mut countdown = Countdown {
            clock_ms: clock_ms.clamp(START_MS, RECYCLE_MS - 1),
            hold_left_ms: 0,
            attempt: 1,
            holds: [(PLANNED_HOLD_MS, 0), (LIMIT_HOLD_MS, 0)],
            random: Random::new(seed, 0xc0de),
        };
        countdown.plan_holds();
        countdown
    }

    fn plan_holds(&mut self) {
        self.holds[0].1 = (self.random.between(15.0, 30.0) * 1000.0) as i64;
        // From the second attempt on, about every third is held a second time, by a limit.
        let limit = self.attempt > 1 && self.random.uniform() < 1.0 / 3.0;
        self.holds[1].1 = if limit { (self.random.between(20.0, 60.0) * 1000.0) as i64 } else { 0 };
    }

    /// Advances by `step_ms` and calls `say` for each event.
    pub(crate) fn step(&mut self, step_ms: i64, mut say: impl FnMut(String, Level)) {
        if self.hold_left_ms > 0 {
            self.hold_left_ms -= step_ms;
            if self.hold_left_ms <= 0 {
                say("Hold released".into(), Level::Info);
            }
            return;
        }
        let before = self.clock_ms;
        self.clock_ms += step_ms;
        for (mark_ms, text, level) in MARKS {
            if before < mark_ms && mark_ms <= self.clock_ms {
                say(text.into(), level);
            }
        }
        for (index, (at_ms, length_ms)) in self.holds.into_iter().enumerate() {
            if length_ms > 0 && before < at_ms && at_ms <= self.clock_ms {
                self.hold_left_ms = length_ms;
                let seconds = -at_ms / 1000;
                let (why, level) = match index {
                    0 => ("planned", Level::Info),
                    _ => ("ullage pressure rate outside limits", Level::Warning),
                };
                say(format!("Hold at T−{:02}:{:02}, {why}", seconds / 60, seconds % 60), level);
            }
        }
        if self.clock_ms >= RECYCLE_MS {
            self.clock_ms = START_MS;
            self.attempt += 1;
            self.plan_holds();
            say(format!("Countdown {} begins", self.attempt), Level::Info);
        }
    }

    /// Returns the seconds from T-0, negative before it.
    pub(crate) fn clock_s(&self) -> f64 {
        self.clock_ms as f64 / 1000.0
    }

    /// Returns whether the clock is held.
    pub(crate) fn holding(&self) -> bool {
        self.hold_left_ms > 0
    }

    /// Returns the number of the launch attempt, from 1.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the mode of the vehicle's guidance.
    pub(crate) fn mode(&self) -> &'static str {
        match self.clock_ms {
            ..-540_000 => "SAFE",
            -540_000..-120_000 => "STANDBY",
            -120_000..-31_000 if self.holding() => "HOLD",
            -120_000..-31_000 => "PRE_TERMINAL",
            -31_000..-3_000 => "TERMINAL_COUNT",
            -3_000..0 => "IGNITION",
            0..145_000 => "ASCENT",
            145_000..180_000 => "COAST",
            _ => "SAFE",
        }
    }

    /// Returns the phase of the pad.
    pub(crate) fn phase(&self) -> &'static str {
        match self.clock_ms {
            _ if self.holding() => "HOLD",
            ..-540_000 => "CHILLDOWN",
            -540_000..-300_000 => "LOADING",
            -300_000..-60_000 => "REPLENISH",
            -60_000..-31_000 => "PRESSURISATION",
            -31_000..0 => "TERMINAL",
            0..180_000 => "FLIGHT",
            _ => "RECYCLE",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_holds_flies_and_recycles() {
        let mut countdown = Countdown::new(1, -100_000);
        let mut said = Vec::new();
        let mut held_ms = 0;
        // Long enough for three attempts.
        for _ in 0..3 * 1_100_000 / 5 {
            countdown.step(5, |text, _| said.push(text));
            if countdown.holding() {
                held_ms += 5;
            }
        }
        assert!(held_ms >= 3 * 15_000, "{held_ms}");
        let count = |needle: &str| said.iter().filter(|s| s.starts_with(needle)).count();
        assert!(count("Lift-off") >= 3, "{said:?}");
        assert_eq!(count("Hold released"), count("Hold at"));
        assert!(count("Countdown") >= 2);
        let first = said.iter().position(|s| s == "Lift-off");
        let engine = said.iter().position(|s| s == "Engine start");
        assert!(engine < first);
    }
}
