//! Rate of a channel's values, compared with the expected one. Pure, and independent of when it is polled.
//!
//! Values are counted by reception in steps, ten per window, that begin at multiples of a step since 1970. So the
//! same values give the same steps wherever counting begins. At the end of each step the rate is the number of values
//! in the window before it, its end included, divided by its length.

use super::rule::{Level, Why};

/// Steps per window.
const STEPS: usize = 10;

/// Expected rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateBounds {
    low: Option<f64>,
    high: Option<f64>,
    /// Length of a step, nanoseconds.
    step_ns: i64,
    /// Level of a rate out of bounds.
    pub level: Level,
}

impl RateBounds {
    /// Creates bounds: not below `low`, not above `high` (both in Hz), counted over `window_ns`.
    pub fn new(low: Option<f64>, high: Option<f64>, window_ns: i64, level: Level) -> Self {
        RateBounds { low, high, step_ns: (window_ns / STEPS as i64).max(1), level }
    }

    fn window_ns(&self) -> i64 {
        self.step_ns.saturating_mul(STEPS as i64)
    }

    /// Returns why a rate is out of bounds, and the bound, or `None` if it is within.
    fn beyond(&self, rate_hz: f64) -> Option<(Why, f64)> {
        let low = self.low.filter(|low| rate_hz < *low).map(|low| (Why::Slow, low));
        low.or_else(|| self.high.filter(|high| rate_hz > *high).map(|high| (Why::Fast, high)))
    }
}

/// Rate out of bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Off {
    /// Direction: slow or fast.
    pub why: Why,
    /// Rate when it was found, in Hz; `None` if that was before a restart.
    pub rate_hz: Option<f64>,
    /// Bound that was passed, in Hz.
    pub bound: Option<f64>,
}

/// State of a channel's rate.
#[derive(Clone, Debug, Default)]
pub struct ChannelRate {
    /// Receive time since which values are counted; `None` before that.
    since: Option<i64>,
    /// Whether counting begins with the first value, which has not arrived yet.
    waits: bool,
    /// End of the step in progress.
    end: i64,
    open: u32,
    /// Counts of the steps before it, in a ring.
    counts: [u32; STEPS],
    oldest: usize,
    /// Consecutive steps at whose end the rate was as expected.
    well: usize,
    /// Deviation of the rate, if it is out of bounds.
    pub off: Option<Off>,
}

impl ChannelRate {
    /// Begins counting at an instant of reception (nanoseconds since 1970 UTC), unless it has begun.
    pub fn begin(&mut self, expected: &RateBounds, receive_time: i64) {
        if self.since.is_none() || std::mem::take(&mut self.waits) {
            self.since = Some(receive_time);
            let before = receive_time.saturating_sub(1).div_euclid(expected.step_ns);
            self.end = before.saturating_add(1).saturating_mul(expected.step_ns);
        }
    }

    /// Continues at an instant of reception after an unknown interval. A window without any value from there on is
    /// judged; if a value arrives earlier, counting begins with it. A deviation found before stays.
    pub fn go_on(&mut self, expected: &RateBounds, receive_time: i64) {
        *self = ChannelRate { off: self.off, ..ChannelRate::default() };
        self.begin(expected, receive_time);
        self.waits = true;
    }

    /// Shifts all instants by `by_ns`, because the clock of reception was set by that much. The step in progress is
    /// extended by less than a step, to end at a multiple of a step by the new clock.
    pub fn leap(&mut self, expected: &RateBounds, by_ns: i64) {
        let Some(since) = &mut self.since else { return };
        *since = since.saturating_add(by_ns);
        let before = self.end.saturating_add(by_ns).saturating_sub(1).div_euclid(expected.step_ns);
        self.end = before.saturating_add(1).saturating_mul(expected.step_ns);
    }

    /// Counts a value. Steps that were [due](ChannelRate::due) before its reception must be closed already.
    pub fn count(&mut self) {
        self.open = self.open.saturating_add(1);
    }

    /// Returns the end of the step in progress, if it is before `receive_time`. Everything received before
    /// `receive_time` must have been counted.
    pub fn due(&mut self, expected: &RateBounds, receive_time: i64) -> Option<i64> {
        let since = self.since?;
        let is_silent = self.open == 0 && self.counts == [0; STEPS];
        let is_settled = expected.low.is_some() == self.off.is_some();
        let judged_ns = expected.window_ns().saturating_add(expected.step_ns);
        if is_silent && is_settled && self.end.saturating_sub(judged_ns) >= since {
            // It was judged with an empty window: nothing changes before the next value.
            let passed = receive_time.saturating_sub(self.end).div_euclid(expected.step_ns);
            self.end = self.end.saturating_add(passed.max(0).saturating_mul(expected.step_ns));
        }
        (self.end < receive_time).then_some(self.end)
    }

    /// Closes the step in progress, and judges the rate at its end.
    pub fn close(&mut self, expected: &RateBounds) {
        self.counts[self.oldest] = std::mem::take(&mut self.open);
        self.oldest = (self.oldest + 1) % STEPS;
        let (end, window_ns) = (self.end, expected.window_ns());
        self.end = end.saturating_add(expected.step_ns);
        if self.since.is_none_or(|since| end.saturating_sub(window_ns) < since) {
            return;
        }
        let count: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        let rate_hz = count as f64 * 1e9 / window_ns as f64;
        match expected.beyond(rate_hz) {
            Some((why, bound)) => {
                self.well = 0;
                if self.off.is_none_or(|off| off.why != why) {
                    self.off = Some(Off { why, rate_hz: Some(rate_hz), bound: Some(bound) });
                }
            }
            None => {
                self.well = (self.well + 1).min(STEPS);
                // The rate must be as expected for a whole window, or one near the bound would toggle.
                if self.well == STEPS {
                    self.off = None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// Returns when the rate changed between in and out of bounds, computed step by step from the times of all
    /// values.
    fn naive(expected: &RateBounds, received: &[i64], until: i64) -> Vec<(i64, Option<Why>)> {
        let (step, window) = (expected.step_ns, expected.step_ns * STEPS as i64);
        let (mut told, mut off, mut well) = (Vec::new(), None, 0);
        let mut end = (received[0] - 1).div_euclid(step) * step + step;
        while end < until {
            if end - window >= received[0] {
                let count = received.iter().filter(|at| (end - window + 1..=end).contains(*at)).count();
                let rate_hz = count as f64 * 1e9 / window as f64;
                let now = expected.beyond(rate_hz).map(|(why, _)| why);
                well = if now.is_some() { 0 } else { well + 1 };
                let next = if now.is_some() || well >= STEPS { now } else { off };
                if next != off {
                    told.push((end, next));
                }
                off = next;
            }
            end += step;
        }
        told
    }

    #[test]
    fn the_rate_is_that_of_a_look_at_all_values_however_often_it_is_asked() {
        let (mut slow, mut fast, mut well) = (0, 0, 0);
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (low, high) = [(Some(80.0), None), (None, Some(130.0)), (Some(80.0), Some(130.0))][random.usize(0..3)];
            let expected = RateBounds::new(low, high, 200 * MS, Level::Warning);
            let (mut at, mut received) = (random.i64(0..1_000) * MS, Vec::new());
            while received.len() < 600 {
                // 100 Hz, slower, faster, or a long silence.
                let (period, count) = [(10, 60), (17, 40), (6, 80), (4_000, 1)][random.usize(0..4)];
                for _ in 0..count {
                    // Often exactly at the end of a step.
                    at += random.i64(period / 2..=period * 3 / 2) * MS;
                    received.push(at);
                }
            }
            let until = at + 1_000 * MS;
            let (mut rate, mut told, mut off) = (ChannelRate::default(), Vec::new(), None);
            let mut pass = |rate: &mut ChannelRate, receive_time: i64| {
                while let Some(end) = rate.due(&expected, receive_time) {
                    rate.close(&expected);
                    let now = rate.off.map(|off| off.why);
                    if now != off {
                        told.push((end, now));
                    }
                    off = now;
                }
            };
            let mut clock = received[0];
            for &at in &received {
                // The clock is sometimes polled between two values.
                while random.bool() && clock < at {
                    clock = random.i64(clock..=at);
                    pass(&mut rate, clock);
                }
                pass(&mut rate, at);
                rate.begin(&expected, at);
                rate.count();
                clock = at;
            }
            pass(&mut rate, until);
            assert_eq!(told, naive(&expected, &received, until), "seed {seed}");
            for (_, why) in told {
                match why {
                    Some(Why::Slow) => slow += 1,
                    Some(_) => fast += 1,
                    None => well += 1,
                }
            }
        }
        assert!(slow > 300 && fast > 300 && well > 300, "{slow} {fast} {well}");
    }

    #[test]
    fn a_year_of_silence_is_passed_at_once() {
        let expected = RateBounds::new(Some(0.5), None, 100 * MS, Level::Watch);
        let mut rate = ChannelRate::default();
        rate.begin(&expected, 0);
        rate.count();
        let closed = std::iter::from_fn(|| rate.due(&expected, 365 * 86_400_000 * MS).map(|_| rate.close(&expected)));
        assert!(closed.count() < 50);
        assert_eq!(rate.off.map(|off| (off.why, off.rate_hz)), Some((Why::Slow, Some(0.0))));
    }
}
