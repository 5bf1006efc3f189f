//! One channel under one limit: takes values, and returns changes of level. Pure, and independent of when it is
//! polled.
//!
//! Each channel has its own time line: the `time` of its newest value, which never decreases, advanced by the clock
//! of reception. Events between two values (a value that stays beyond a bound, a channel that goes silent) have the
//! instant on that line at which they became due, whether the next value or the clock reveals them.

use super::rate::{ChannelRate, Off};
use super::rule::{Level, Rule, TROUBLE, Why};
use crate::reception::value::LimitValue;

/// Change of level.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelChange {
    /// Time of the change on the channel's time line, nanoseconds since 1970 UTC.
    pub time: i64,
    /// Same instant by the clock of reception.
    pub receive_time: i64,
    /// Level before.
    pub from: Level,
    /// Level from then on.
    pub to: Level,
    /// Reason, unless the new level is normal.
    pub why: Option<Why>,
    /// Deciding value: that beyond a bound, the newest before silence, or the rate in Hz.
    pub value: Option<LimitValue>,
    /// Bound that was passed.
    pub bound: Option<f64>,
}

/// State of a channel under a limit.
#[derive(Clone, Debug)]
pub struct LimitState {
    /// Place of the newest value on the time line, and its `receive_time`.
    newest: Option<(i64, i64)>,
    /// Highest `time` of a value, and its `receive_time`. Values with an earlier or the same time, as of a clock that
    /// stands still or of one frame that was ahead, have the place that the clock of reception has reached from there.
    highest: Option<(i64, i64)>,
    value: Option<LimitValue>,
    /// Time since which values are at each level or above.
    since: [Option<i64>; TROUBLE.len()],
    /// Level of the values, once they persisted.
    of_values: Level,
    is_stale: bool,
    rate: ChannelRate,
    /// Whether the limit applies; `None` until its context has a value. Until then nothing is judged, and a reported
    /// level stays.
    holds: Option<bool>,
    told: (Level, Option<Why>),
}

impl LimitState {
    /// Creates the state of a limit that applies from the start, or once its context says so.
    pub fn new(rule: &Rule) -> Self {
        LimitState {
            newest: None,
            highest: None,
            value: None,
            since: [None; TROUBLE.len()],
            of_values: Level::Normal,
            is_stale: false,
            rate: ChannelRate::default(),
            holds: rule.context.is_none().then_some(true),
            told: (Level::Normal, None),
        }
    }

    /// Resumes at a level that was reported before a restart.
    pub fn resume(&mut self, rule: &Rule, level: Level, why: Option<Why>) {
        self.told = (level, why);
        match why {
            Some(Why::Stale) => {
                self.is_stale = true;
                // A silence has its own level at most, so a higher level is that of the values.
                let is_worse = rule.stale.is_none_or(|(_, of_silence)| level > of_silence);
                self.of_values = if is_worse { level } else { Level::Normal };
            }
            Some(why @ (Why::Slow | Why::Fast)) => self.rate.off = Some(Off { why, rate_hz: None, bound: None }),
            _ => self.of_values = level,
        }
    }

    /// Takes the newest value recorded before the judge began, as if received at these times; silence counts from
    /// there. Never lowers the reported level, since later values may not be recorded.
    pub fn prime(
        &mut self,
        rule: &Rule,
        (time, receive_time): (i64, i64),
        value: LimitValue,
        out: &mut Vec<LevelChange>,
    ) {
        let told = self.told.0;
        (self.newest, self.highest) = (Some((time, receive_time)), Some((time, receive_time)));
        if self.is_stale || self.rate.off.is_some() {
            // Find the level of the values, which was hidden by that of the silence or the rate.
            let beyond = |at: &usize| rule.bounds[*at].beyond(&value, rule.hysteresis).is_some();
            let hidden = (0..TROUBLE.len()).rev().find(|at| TROUBLE[*at] <= told && beyond(at));
            self.of_values = self.of_values.max(hidden.map_or(Level::Normal, |at| TROUBLE[at]));
        }
        self.value = Some(value);
        if self.holds != Some(true) {
            return;
        }
        let before = self.of_values;
        self.assess(rule, time);
        if !self.is_stale {
            self.settle(rule, time);
            self.of_values = self.of_values.max(before);
            if self.of_values > told {
                self.tell(rule, (time, receive_time), out);
            }
        }
    }

    /// Continues at an instant of reception after an unknown interval, which counts as neither silence nor a low rate
    /// nor persistence. `told` is the level reported for the channel; if it differs from the level found, reports the
    /// change.
    pub fn go_on(&mut self, rule: &Rule, receive_time: i64, told: (Level, Option<Why>), out: &mut Vec<LevelChange>) {
        let Some((newest, received)) = &mut self.newest else { return };
        let by = receive_time.saturating_sub(*received).max(0);
        *newest = newest.saturating_add(by);
        *received = received.saturating_add(by);
        let at = (*newest, *received);
        self.highest = self.highest.map(|(time, received)| (time.saturating_add(by), received.saturating_add(by)));
        self.since.iter_mut().flatten().for_each(|since| *since = since.saturating_add(by));
        if let Some(expected) = rule.rate.as_ref().filter(|_| self.holds == Some(true)) {
            self.rate.go_on(expected, at.1);
        }
        if self.told != told {
            self.told = told;
            self.tell(rule, at, out);
        }
    }

    fn is_held(&self) -> bool {
        self.holds == Some(true)
    }

    /// Takes a value; calls must be in the order of `receive_time`.
    pub fn value(
        &mut self,
        rule: &Rule,
        (time, receive_time): (i64, i64),
        value: LimitValue,
        out: &mut Vec<LevelChange>,
    ) {
        self.pass(rule, receive_time, out);
        let place = match self.highest {
            Some((highest, received)) if time <= highest => {
                highest.saturating_add(receive_time.saturating_sub(received).max(0))
            }
            _ => {
                self.highest = Some((time, receive_time));
                time
            }
        };
        let time = self.newest.map_or(place, |(newest, _)| newest.max(place));
        // Among several values of one reception, one may have persisted.
        self.persist_until(rule, time, receive_time, out);
        self.newest = Some((time, receive_time));
        self.value = Some(value);
        if self.is_held() {
            self.is_stale = false;
            if let Some(expected) = &rule.rate {
                self.rate.begin(expected, receive_time);
                self.rate.count();
            }
            self.assess(rule, time);
            self.settle(rule, time);
            self.tell(rule, (time, receive_time), out);
        }
    }

    /// Shifts all instants of reception by `by_ns`, and times equal to them, because the clock was set by that much.
    pub fn leap(&mut self, rule: &Rule, by_ns: i64) {
        if let Some(expected) = &rule.rate {
            self.rate.leap(expected, by_ns);
        }
        if let Some((time, received)) = &mut self.highest {
            *time = if time == received { time.saturating_add(by_ns) } else { *time };
            *received = received.saturating_add(by_ns);
        }
        let Some((time, received)) = &mut self.newest else { return };
        let of_reception = time == received;
        *received = received.saturating_add(by_ns);
        if of_reception {
            *time = *received;
            self.since.iter_mut().flatten().for_each(|since| *since = since.saturating_add(by_ns));
        }
    }

    /// Advances the clock of reception; everything before `receive_time` must have been passed in.
    pub fn pass(&mut self, rule: &Rule, receive_time: i64, out: &mut Vec<LevelChange>) {
        if let Some(expected) = rule.rate.as_ref().filter(|_| self.is_held()) {
            while let Some(end) = self.rate.due(expected, receive_time) {
                // Report what became due before that first.
                self.pass_values(rule, end, out);
                self.rate.close(expected);
                if let Some((newest, received)) = self.newest {
                    self.tell(rule, (newest.saturating_add(end.saturating_sub(received)), end), out);
                }
            }
        }
        self.pass_values(rule, receive_time, out);
    }

    /// Reports silence, and values that persist.
    fn pass_values(&mut self, rule: &Rule, receive_time: i64, out: &mut Vec<LevelChange>) {
        let Some((newest, received)) = self.newest.filter(|_| self.is_held()) else { return };
        let stale = rule.stale.filter(|_| !self.is_stale).map(|(after, _)| after);
        let silent = stale.filter(|after| received.saturating_add(*after) < receive_time);
        let line = newest.saturating_add(receive_time.saturating_sub(received));
        match silent {
            Some(after) => {
                let at = (newest.saturating_add(after), received.saturating_add(after));
                self.persist_until(rule, at.0, at.1, out);
                self.is_stale = true;
                // Values that did not persist before the silence no longer count.
                for (since, level) in self.since.iter_mut().zip(TROUBLE) {
                    *since = since.filter(|_| level <= self.of_values);
                }
                self.tell(rule, at, out);
            }
            None => self.persist_until(rule, line, receive_time, out),
        }
    }

    /// Sets whether the limit applies from `receive_time` on, according to its context.
    pub fn context(&mut self, rule: &Rule, holds: bool, receive_time: i64, out: &mut Vec<LevelChange>) {
        if self.holds == Some(holds) {
            return;
        }
        self.pass(rule, receive_time, out);
        // Before its context had a value, the limit may have applied all along, so a level reported before a restart
        // stays.
        let goes_on = self.holds.is_none() && holds;
        self.holds = Some(holds);
        let Some((newest, received)) = &mut self.newest else {
            if !holds {
                (self.of_values, self.is_stale, self.rate) = (Level::Normal, false, ChannelRate::default());
                self.tell(rule, (receive_time, receive_time), out);
            }
            return;
        };
        // The time line continues from here: silence while the limit did not apply does not count.
        *newest = newest.saturating_add(receive_time.saturating_sub(*received).max(0));
        *received = receive_time.max(*received);
        let time = *newest;
        if !goes_on {
            (self.since, self.of_values, self.is_stale) = ([None; TROUBLE.len()], Level::Normal, false);
            self.rate = ChannelRate::default();
        }
        if holds {
            if let Some(expected) = &rule.rate {
                self.rate.begin(expected, receive_time);
            }
            self.assess(rule, time);
            if !self.is_stale {
                self.settle(rule, time);
            }
        }
        self.tell(rule, (time, receive_time), out);
    }

    /// Updates which levels the newest value is beyond, from `time` on.
    fn assess(&mut self, rule: &Rule, time: i64) {
        let Some(value) = &self.value else { return };
        let mut beyond = false;
        for at in (0..TROUBLE.len()).rev() {
            let inset = if TROUBLE[at] <= self.of_values { rule.hysteresis } else { 0.0 };
            beyond |= rule.bounds[at].beyond(value, inset).is_some();
            self.since[at] = beyond.then(|| self.since[at].unwrap_or(time));
        }
    }

    /// Sets the level of the values at a time, from what persisted until then.
    fn settle(&mut self, rule: &Rule, time: i64) {
        let persisted = |since: &Option<i64>| since.is_some_and(|since| time.saturating_sub(since) >= rule.persist_ns);
        // A level reported before a restart does not have to persist again.
        let held = |at: usize| self.since[at].is_some() && TROUBLE[at] <= self.of_values;
        let level = (0..TROUBLE.len()).rev().find(|&at| held(at) || persisted(&self.since[at]));
        self.of_values = level.map_or(Level::Normal, |at| TROUBLE[at]);
    }

    /// Reports levels that persisted before `time`, none of them later than `receive_time`.
    fn persist_until(&mut self, rule: &Rule, time: i64, receive_time: i64, out: &mut Vec<LevelChange>) {
        let Some((newest, received)) = self.newest.filter(|_| self.is_held() && !self.is_stale) else { return };
        loop {
            let due = |at: usize| {
                let due = self.since[at]?.saturating_add(rule.persist_ns);
                (TROUBLE[at] > self.of_values && due < time).then_some(due)
            };
            let Some(due) = (0..TROUBLE.len()).filter_map(due).min() else { return };
            self.settle(rule, due);
            let at = received.saturating_add(due.saturating_sub(newest)).min(receive_time);
            self.tell(rule, (due, at), out);
        }
    }

    /// Reports a change, if there is one.
    fn tell(&mut self, rule: &Rule, (time, receive_time): (i64, i64), out: &mut Vec<LevelChange>) {
        let stale = rule.stale.filter(|_| self.is_stale).map_or(Level::Normal, |(_, level)| level);
        let off = self.rate.off.zip(rule.rate);
        let of_rate = off.map_or(Level::Normal, |(_, expected)| expected.level);
        let level = self.of_values.max(stale).max(of_rate);
        let passed = || {
            let inset = rule.hysteresis;
            let value = self.value.as_ref()?;
            level.place().and_then(|at| rule.bounds[at..].iter().rev().find_map(|bounds| bounds.beyond(value, inset)))
        };
        let mut value = self.value.clone();
        let (why, bound) = match (level, off) {
            (Level::Normal, _) => (None, None),
            _ if self.is_stale => (Some(Why::Stale), None),
            (_, Some((off, _))) if of_rate > self.of_values => {
                value = off.rate_hz.map(LimitValue::Number).or(value);
                (Some(off.why), off.bound)
            }
            _ => passed().map_or((None, None), |(why, bound)| (Some(why), bound)),
        };
        if (level, why) != self.told {
            let from = self.told.0;
            out.push(LevelChange { time, receive_time, from, to: level, why, value, bound });
            self.told = (level, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::tests::rule;
    use super::*;

    /// Naive model, evaluated instant by instant.
    struct Naive {
        value: Option<f64>,
        last: i64,
        since: [Option<i64>; 3],
        level: Level,
        is_stale: bool,
        told: Level,
    }

    impl Naive {
        fn at(&mut self, rule: &Rule, now: i64, value: Option<f64>) -> Option<(i64, Level)> {
            if let Some(value) = value {
                (self.value, self.last, self.is_stale) = (Some(value), now, false);
            }
            let value = self.value?;
            let stale = rule.stale.expect("stale");
            if !self.is_stale && now - self.last >= stale.0 {
                self.is_stale = true;
                for (since, level) in self.since.iter_mut().zip(TROUBLE) {
                    *since = since.filter(|_| level <= self.level);
                }
            }
            if !self.is_stale {
                let beyond = |at: usize| {
                    let inset = if TROUBLE[at] <= self.level { rule.hysteresis } else { 0.0 };
                    let (low, high) = (rule.bounds[at].low.expect("low"), rule.bounds[at].high.expect("high"));
                    value > high - inset || value < low + inset
                };
                let is_beyond = [0, 1, 2].map(|at| (at..3).any(beyond));
                for (since, is_beyond) in self.since.iter_mut().zip(is_beyond) {
                    *since = is_beyond.then(|| since.unwrap_or(now));
                }
                let raised = |at: &usize| {
                    self.since[*at].is_some_and(|since| TROUBLE[*at] <= self.level || now - since >= rule.persist_ns)
                };
                self.level = (0..3).rev().find(raised).map_or(Level::Normal, |at| TROUBLE[at]);
            }
            let level = if self.is_stale { self.level.max(stale.1) } else { self.level };
            let changed = level != self.told;
            self.told = level;
            changed.then_some((now, level))
        }
    }

    #[test]
    fn changes_are_those_of_a_look_at_every_instant_however_often_the_clock_is_asked() {
        let mut seen = [0; 4];
        for seed in 0..400 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (persist, hysteresis) = (random.i64(0..6) as f64, f64::from(random.u8(0..4)));
            let keys = format!(
                "watch = {{ low = -10, high = 10 }}\nwarning = {{ low = -20, high = 20 }}\n\
                 critical = {{ low = -30, high = 30 }}\npersist_ms = {persist}\nhysteresis = {hysteresis}\n\
                 stale_ms = 12\nstale = \"warning\""
            );
            let rule = rule(&keys).expect("a rule");
            let ms = 1_000_000;
            let offset = random.i64(-50..50) * ms;
            let mut machine = LimitState::new(&rule);
            let mut naive = Naive {
                value: None,
                last: 0,
                since: [None; 3],
                level: Level::Normal,
                is_stale: false,
                told: Level::Normal,
            };
            let (mut out, mut wanted, mut next, mut number) = (Vec::new(), Vec::new(), 0, 0.0_f64);
            for now in 0..400_i64 {
                // The rule counts in milliseconds, and so does the naive model.
                let value = (now == next).then(|| {
                    number = (number + f64::from(random.i8(-9..=9))).clamp(-35.0, 35.0);
                    next = now + if random.u8(0..20) == 0 { random.i64(8..30) } else { random.i64(1..5) };
                    number
                });
                wanted.extend(naive.at(&rule, now * ms, value));
                if let Some(value) = value {
                    let times = (now * ms + offset, now * ms);
                    machine.value(&rule, times, LimitValue::Number(value), &mut out);
                } else if random.bool() {
                    machine.pass(&rule, now * ms, &mut out);
                }
            }
            machine.pass(&rule, 400 * ms, &mut out);
            assert!(out.iter().all(|change| change.time - offset == change.receive_time), "seed {seed}");
            // The reason may change between silence and value while the level stays.
            let levels: Vec<(i64, Level)> =
                out.iter().filter(|c| c.from != c.to).map(|c| (c.time - offset, c.to)).collect();
            assert_eq!(levels, wanted, "seed {seed}");
            levels.iter().for_each(|(_, level)| seen[*level as usize] += 1);
        }
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
    }

    fn run(
        machine: &mut LimitState,
        rule: &Rule,
        values: &[(i64, f64)],
    ) -> Vec<(i64, Level, Option<Why>, Option<f64>)> {
        let mut out = Vec::new();
        for (time, value) in values {
            machine.value(rule, (*time, *time), LimitValue::Number(*value), &mut out);
        }
        out.into_iter().map(|c| (c.time, c.to, c.why, c.bound)).collect()
    }

    #[test]
    fn a_value_of_one_instant_counts_and_times_never_fall() {
        let rule = rule("warning = { high = 5 }\ncritical = { high = 9 }").expect("a rule");
        let mut machine = LimitState::new(&rule);
        let told = run(&mut machine, &rule, &[(10, 1.0), (20, 9.5), (21, 1.0), (15, 6.0)]);
        let high = Some(Why::High);
        let wanted = [
            (20, Level::Critical, high, Some(9.0)),
            (21, Level::Normal, None, None),
            (21, Level::Warning, high, Some(5.0)),
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn a_value_persists_after_a_frame_that_was_ahead_and_by_a_clock_that_stands_still() {
        let rule = rule("critical = { high = 10 }\npersist_ms = 200").expect("a rule");
        let (ms, hour) = (1_000_000, 3_600_000_000_000);
        for (ahead, step) in [(hour, 10 * ms), (0, 0), (-hour, 10 * ms)] {
            let (mut machine, mut out) = (LimitState::new(&rule), Vec::new());
            machine.value(&rule, (ahead, 0), LimitValue::Number(1.0), &mut out);
            for n in 1..=30 {
                machine.value(&rule, (n * step, n * 10 * ms), LimitValue::Number(99.0), &mut out);
            }
            let told: Vec<_> = out.iter().map(|change| (change.to, change.receive_time)).collect();
            assert_eq!(told, [(Level::Critical, 210 * ms)], "{ahead} {step}");
        }
    }

    #[test]
    fn late_values_do_not_move_the_times_of_those_in_order() {
        let rule = rule("critical = { high = 10 }\npersist_ms = 200").expect("a rule");
        let ms = 1_000_000;
        let (mut machine, mut out) = (LimitState::new(&rule), Vec::new());
        // Each pair of frames is exchanged on the way.
        for n in 0..5_000_i64 {
            let value = if n < 4_000 { 1.0 } else { 99.0 };
            machine.value(&rule, ((n ^ 1) * ms, n * ms + 500), LimitValue::Number(value), &mut out);
        }
        let told: Vec<_> = out.iter().map(|change| (change.to, change.time / ms)).collect();
        assert_eq!(told, [(Level::Critical, 4_201)]);
    }

    #[test]
    fn a_context_switches_the_limit_off_and_on() {
        let rule = rule("watch = { low = 0 }\nwhile = { channel = \"m.state\", is = [\"RUN\"] }").expect("a rule");
        let (mut machine, mut out) = (LimitState::new(&rule), Vec::new());
        machine.value(&rule, (1, 1), LimitValue::Number(-1.0), &mut out);
        assert_eq!(out, [], "not known to hold");
        machine.context(&rule, true, 5, &mut out);
        machine.context(&rule, true, 6, &mut out);
        machine.context(&rule, false, 9, &mut out);
        machine.value(&rule, (10, 10), LimitValue::Number(-2.0), &mut out);
        let told: Vec<(i64, Level)> = out.iter().map(|c| (c.time, c.to)).collect();
        assert_eq!(told, [(5, Level::Watch), (9, Level::Normal)]);
    }

    #[test]
    fn what_was_told_before_a_restart_is_not_told_again() {
        let rule = rule("warning = { high = 5 }\npersist_ms = 100").expect("a rule");
        let mut machine = LimitState::new(&rule);
        machine.resume(&rule, Level::Warning, Some(Why::High));
        assert_eq!(run(&mut machine, &rule, &[(10, 6.0)]), []);
        assert_eq!(run(&mut machine, &rule, &[(20, 4.0)]), [(20, Level::Normal, None, None)]);
    }

    fn primed(rule: &Rule, told: (Level, Option<Why>), value: f64) -> (LimitState, Vec<(i64, Level, Option<Why>)>) {
        let (mut machine, mut out) = (LimitState::new(rule), Vec::new());
        machine.resume(rule, told.0, told.1);
        machine.prime(rule, (100, 100), LimitValue::Number(value), &mut out);
        (machine, out.into_iter().map(|c| (c.time, c.to, c.why)).collect())
    }

    #[test]
    fn a_channel_that_never_comes_again_after_a_restart_is_stale() {
        let rule = rule("warning = { high = 5 }\nstale_ms = 1\nstale = \"critical\"").expect("a rule");
        let (mut machine, told) = primed(&rule, (Level::Normal, None), 1.0);
        assert_eq!(told, []);
        let mut out = Vec::new();
        machine.go_on(&rule, 5_000_000, (Level::Normal, None), &mut out);
        machine.pass(&rule, 5_999_999, &mut out);
        assert_eq!(out, [], "silence counts from the start");
        machine.pass(&rule, 7_000_000, &mut out);
        let told: Vec<_> = out.iter().map(|c| (c.receive_time, c.to, c.why)).collect();
        assert_eq!(told, [(6_000_000, Level::Critical, Some(Why::Stale))]);
    }

    #[test]
    fn the_level_of_values_behind_a_silence_lives_through_a_restart() {
        let rule =
            rule("warning = { high = 5 }\ncritical = { high = 9 }\npersist_ms = 1\nstale_ms = 1").expect("a rule");
        for (level, value) in [(Level::Critical, 9.5), (Level::Warning, 6.0)] {
            let (mut machine, told) = primed(&rule, (level, Some(Why::Stale)), value);
            assert_eq!(told, []);
            // The value returns as it was: no second wait, and no lower level in between.
            let told = run(&mut machine, &rule, &[(200, value)]);
            let levels: Vec<_> = told.iter().map(|(_, to, why, _)| (*to, *why)).collect();
            assert_eq!(levels, [(level, Some(Why::High))]);
        }
    }

    #[test]
    fn what_is_recorded_raises_at_a_start_and_lowers_nothing() {
        let rule = rule("warning = { high = 5 }\ncritical = { high = 9 }").expect("a rule");
        assert_eq!(primed(&rule, (Level::Normal, None), 6.0).1, [(100, Level::Warning, Some(Why::High))]);
        let (mut machine, told) = primed(&rule, (Level::Critical, Some(Why::High)), 1.0);
        assert_eq!(told, []);
        assert_eq!(run(&mut machine, &rule, &[(200, 1.0)]), [(200, Level::Normal, None, None)]);
    }

    #[test]
    fn a_context_that_is_not_known_keeps_what_was_told() {
        let rule = rule("watch = { low = 0 }\npersist_ms = 1\nwhile = { channel = \"m.s\", is = [\"RUN\"] }");
        let rule = rule.expect("a rule");
        for holds in [true, false] {
            let (mut machine, told) = primed(&rule, (Level::Watch, Some(Why::Low)), -1.0);
            assert_eq!(told, []);
            let mut out = Vec::new();
            machine.pass(&rule, 9_000_000, &mut out);
            assert_eq!(out, [], "not known");
            machine.context(&rule, holds, 9_000_000, &mut out);
            let told: Vec<_> = out.iter().map(|c| (c.receive_time, c.to)).collect();
            let cleared = [(9_000_000, Level::Normal)];
            assert_eq!(told, cleared[..usize::from(!holds)]);
        }
    }
}
