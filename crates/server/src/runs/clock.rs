//! The clock of a run: T-0, holds, and T± at any instant. Pure: callers supply the time.
//!
//! `t(at) = at − T-0 − holds`, where holds is the time spent in holds until then. Setting T-0 again states when it
//! is, whatever was held before: earlier holds are dropped, and a hold in progress counts from then on.

/// Max holds of a run.
const HOLDS_MAX: usize = 1_000;

/// Action on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStep {
    /// Start of the run.
    Start,
    /// T-0 at this instant, nanoseconds since 1970 UTC.
    T0(i64),
    /// Hold of the clock.
    Hold,
    /// End of the hold.
    Resume,
    /// End of the run.
    Stop,
}

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Begun, T-0 not known yet.
    Planned,
    /// Clock running.
    Counting,
    /// Clock held.
    Held,
    /// Ended.
    Stopped,
}

impl RunState {
    /// Returns the name of the state.
    pub fn name(self) -> &'static str {
        match self {
            RunState::Planned => "planned",
            RunState::Counting => "counting",
            RunState::Held => "held",
            RunState::Stopped => "stopped",
        }
    }
}

/// Reason why a step is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// Run that is started already.
    #[error("already started")]
    Begun,
    /// Name of a run that was started and stopped.
    #[error("already stopped, and a name cannot be reused; start another run")]
    Used,
    /// Run that is stopped.
    #[error("already stopped; start another run")]
    Ended,
    /// Run without T-0, which has no clock to hold.
    #[error("has no T-0 yet")]
    NoT0,
    /// Clock that is held already.
    #[error("already held")]
    Held,
    /// Clock that is not held.
    #[error("not held")]
    NotHeld,
    /// Too many holds.
    #[error("already held {HOLDS_MAX} times, the limit")]
    HoldsMax,
}

/// Clock of a run that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunClock {
    /// Start of the run, nanoseconds since 1970 UTC.
    pub started: i64,
    /// End of the run, nanoseconds since 1970 UTC.
    pub stopped: Option<i64>,
    /// T-0 as it was set, nanoseconds since 1970 UTC.
    pub t0: Option<i64>,
    /// Start and end of each hold since T-0 was set; a hold in progress has no end.
    pub holds: Vec<(i64, Option<i64>)>,
}

impl RunClock {
    /// Creates the clock of a run that starts.
    pub fn new(started: i64) -> RunClock {
        RunClock { started, stopped: None, t0: None, holds: Vec::new() }
    }

    /// Applies a step at an instant. Instants before the newest step count as that of the newest step, in case the
    /// clock was set back.
    ///
    /// # Errors
    /// Returns why the step is not possible; nothing changes then.
    pub fn take(&mut self, step: RunStep, at: i64) -> Result<(), StepError> {
        let at = at.max(self.newest());
        match (step, self.state()) {
            (RunStep::Start, RunState::Stopped) => Err(StepError::Used),
            (RunStep::Start, _) => Err(StepError::Begun),
            (_, RunState::Stopped) => Err(StepError::Ended),
            (RunStep::T0(t0), state) => {
                self.t0 = Some(t0);
                self.holds.clear();
                if state == RunState::Held {
                    self.holds.push((at, None));
                }
                Ok(())
            }
            (RunStep::Hold | RunStep::Resume, RunState::Planned) => Err(StepError::NoT0),
            (RunStep::Hold, RunState::Held) => Err(StepError::Held),
            (RunStep::Hold, _) if self.holds.len() >= HOLDS_MAX => Err(StepError::HoldsMax),
            (RunStep::Hold, _) => {
                self.holds.push((at, None));
                Ok(())
            }
            (RunStep::Resume, RunState::Held) => {
                if let Some((_, end)) = self.holds.last_mut() {
                    *end = Some(at);
                }
                Ok(())
            }
            (RunStep::Resume, _) => Err(StepError::NotHeld),
            (RunStep::Stop, _) => {
                self.stopped = Some(at);
                Ok(())
            }
        }
    }

    /// Returns the current state.
    pub fn state(&self) -> RunState {
        match (self.stopped, self.t0, self.holds.last()) {
            (Some(_), ..) => RunState::Stopped,
            (None, None, _) => RunState::Planned,
            (None, _, Some((_, None))) => RunState::Held,
            _ => RunState::Counting,
        }
    }

    /// Returns T± at an instant, nanoseconds: negative before T-0. Returns `None` without a T-0. After its end the
    /// clock stands still.
    pub fn t(&self, at: i64) -> Option<i64> {
        let at = at.min(self.stopped.unwrap_or(i64::MAX));
        Some(at.saturating_sub(self.t0?).saturating_sub(self.held(at)))
    }

    /// Returns T-0 shifted by the holds so far: for a running clock, the instant at which it shows 0.
    pub fn t0_now(&self) -> Option<i64> {
        self.t0.map(|t0| t0.saturating_add(self.held(i64::MAX)))
    }

    /// Returns the time spent in holds up to an instant. For `i64::MAX`, a hold in progress counts as 0.
    fn held(&self, at: i64) -> i64 {
        let of = |(from, to): &(i64, Option<i64>)| {
            let to = to.unwrap_or(if at == i64::MAX { *from } else { at }).min(at);
            to.saturating_sub(*from).max(0)
        };
        self.holds.iter().map(of).fold(0, i64::saturating_add)
    }

    /// Returns the newest instant of its steps.
    fn newest(&self) -> i64 {
        let hold = self.holds.last().map(|(from, to)| to.unwrap_or(*from));
        hold.into_iter().chain(self.stopped).fold(self.started, i64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: i64 = 1_000_000_000;

    #[test]
    fn holds_stop_the_clock_and_move_t0() {
        let mut clock = RunClock::new(0);
        assert_eq!((clock.state(), clock.t(5), clock.t0_now()), (RunState::Planned, None, None));
        assert_eq!(clock.take(RunStep::Hold, 1), Err(StepError::NoT0));
        assert_eq!(clock.take(RunStep::Start, 1), Err(StepError::Begun));
        clock.take(RunStep::T0(100 * S), 10 * S).unwrap();
        assert_eq!((clock.state(), clock.t(40 * S)), (RunState::Counting, Some(-60 * S)));
        assert_eq!(clock.take(RunStep::Resume, 40 * S), Err(StepError::NotHeld));
        clock.take(RunStep::Hold, 40 * S).unwrap();
        assert_eq!((clock.state(), clock.t(70 * S)), (RunState::Held, Some(-60 * S)));
        assert_eq!(clock.take(RunStep::Hold, 71 * S), Err(StepError::Held));
        clock.take(RunStep::Resume, 80 * S).unwrap();
        assert_eq!((clock.t(80 * S), clock.t(140 * S), clock.t0_now()), (Some(-60 * S), Some(0), Some(140 * S)));
        // Earlier readings are unchanged.
        assert_eq!((clock.t(30 * S), clock.t(60 * S)), (Some(-70 * S), Some(-60 * S)));
        clock.take(RunStep::Hold, 90 * S).unwrap();
        // T-0 is set again in a hold: the hold continues.
        clock.take(RunStep::T0(200 * S), 95 * S).unwrap();
        assert_eq!((clock.state(), clock.t(120 * S)), (RunState::Held, Some(-105 * S)));
        // The clock of the machine was set back.
        clock.take(RunStep::Resume, 50 * S).unwrap();
        assert_eq!(clock.holds, [(95 * S, Some(95 * S))]);
        clock.take(RunStep::Stop, 210 * S).unwrap();
        assert_eq!((clock.state(), clock.t(500 * S)), (RunState::Stopped, Some(10 * S)));
        assert_eq!(clock.take(RunStep::T0(0), 211 * S), Err(StepError::Ended));
        assert_eq!(clock.take(RunStep::Start, 211 * S), Err(StepError::Used));
    }

    fn steps() -> impl Strategy<Value = Vec<(u8, RunStep)>> {
        let step = prop_oneof![
            (-50_i64..150).prop_map(RunStep::T0),
            Just(RunStep::Hold),
            Just(RunStep::Hold),
            Just(RunStep::Resume),
            Just(RunStep::Resume),
            Just(RunStep::Stop),
        ];
        prop::collection::vec((0_u8..9, step), 0..24)
    }

    proptest! {
        /// Compares with a clock that is advanced tick by tick.
        #[test]
        fn it_shows_what_a_clock_on_a_wall_would(steps in steps()) {
            let mut clock = RunClock::new(0);
            let (mut shown, mut held, mut ended): (Option<i64>, bool, bool) = (None, false, false);
            let mut ticks = Vec::new();
            let mut now = 0_i64;
            for (pause, step) in steps {
                for _ in 0..pause {
                    now += 1;
                    if let Some(shown) = &mut shown && !held && !ended {
                        *shown += 1;
                    }
                    ticks.push((now, shown));
                }
                let can = match step {
                    _ if ended => false,
                    RunStep::T0(_) | RunStep::Stop => true,
                    RunStep::Hold => shown.is_some() && !held,
                    RunStep::Resume => held,
                    RunStep::Start => false,
                };
                prop_assert_eq!(clock.take(step, now).is_ok(), can);
                if !can {
                    continue;
                }
                match step {
                    RunStep::T0(t0) => {
                        // Earlier readings were by another T-0.
                        ticks.clear();
                        shown = Some(now - t0);
                    }
                    RunStep::Hold => held = true,
                    RunStep::Resume => held = false,
                    RunStep::Stop => ended = true,
                    RunStep::Start => {}
                }
                prop_assert_eq!(clock.t(now), shown);
            }
            for (at, shown) in ticks.into_iter().filter(|(_, shown)| shown.is_some()) {
                prop_assert_eq!(clock.t(at), shown, "at {} of {:?}", at, clock);
            }
            if clock.state() == RunState::Counting {
                prop_assert_eq!(clock.t0_now().and_then(|t0| clock.t(t0.max(now))), clock.t0_now().map(|t0| (now - t0).max(0)));
            }
        }
    }
}
