//! The rate a stream is expected to send at, given by its period or learnt from its arrivals, and whether it keeps it.
//!
//! Pure: the caller polls each stream about once a second with its frame count and newest frame; nothing here runs for
//! each frame. Between two polls, `n` frames span the time between the newest frames of the two. Their mean period is
//! exact, whatever the moment of the poll and however many frames a delivery holds.
//!
//! A period is learnt once nearly all of [`SAMPLES`] such means agree as well as those of a clocked source do; those of
//! a Poisson process deviate by `1/√n` of it. It is forgotten if the source pauses again and again, and then takes ever
//! longer to be learnt again. A learnt period is an estimate: its silences are reported, but never counted as loss.

use std::time::Duration;

use crate::process::clock::LEAP_NS;

/// Number of means kept.
const SAMPLES: usize = 16;
/// Means that must agree for a period to be learnt, and the number below which it is forgotten.
const AGREE: usize = 14;
const KEEP: usize = 10;
/// Tolerated deviation of the mean of `n` frames: `SPREAD / √n` of the period (Poisson: `1 / √n`), at least the min.
const SPREAD: f64 = 0.3;
const SPREAD_MIN: f64 = 0.01;
/// Relative difference up to which two learnt periods count as the same.
const SAME: f64 = 0.05;
/// Regular samples after which a longer period replaces the learnt one; until then the stream counts as slow.
const SLOWER_SAMPLES: u32 = 60;
/// Pauses, each within [`PAUSES_WITHIN_NS`] of the one before, after which a learnt period is forgotten.
const PAUSES: u32 = 3;
const PAUSES_WITHIN_NS: i64 = 3_600_000_000_000;
/// Regular samples required before a forgotten period is learnt again; doubled each time within this range.
const NEEDED: std::ops::RangeInclusive<u32> = 32..=4096;
/// Minimum time without a frame after which a stream is silent, however fast it is.
const SILENT_AFTER_NS: i64 = 2_000_000_000;
/// Max leap of a source's clock that a silence may span: a day.
const LEAP_NS_MAX: i64 = 86_400_000_000_000;
/// Periods without a frame after which a stream is silent: for a given period, and for a learnt one.
const SILENT_PERIODS: (f64, f64) = (3.0, 5.0);
/// Multiple of the longest time between two deliveries after which a stream that sends in deliveries is silent.
const SILENT_DELIVERIES: f64 = 2.5;
/// Fractions of the expected rate: slow below the first, no longer slow from the second on.
const SLOW: (f64, f64) = (0.9, 0.95);
/// Minimum time, and minimum number of periods, over which a rate is measured.
const RATE_NS: f64 = 5e9;
const RATE_PERIODS: f64 = 10.0;

/// Origin of an expected rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RateOrigin {
    /// Given by the configuration or the source.
    Given,
    /// Learnt from the arrivals.
    Learnt,
    /// No expected rate: nothing is known, or the stream is irregular.
    #[default]
    None,
}

/// Status of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamStatus {
    /// Nothing received since the server started.
    #[default]
    Never,
    /// Receiving, or no rate is expected.
    Ok,
    /// Receiving at less than nine tenths of the expected rate.
    Slow,
    /// No longer receiving.
    Silent,
}

/// State of a stream at one poll.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Time of the poll, nanoseconds since 1970 UTC.
    pub now: i64,
    /// Frames received, including refused ones, excluding duplicates.
    pub frames: u64,
    /// `receive_time` of the newest frame.
    pub received: Option<i64>,
    /// `source_time` of that frame.
    pub source: Option<i64>,
    /// `time` of that frame.
    pub time: Option<i64>,
    /// Given period, nanoseconds.
    pub given_ns: Option<i64>,
    /// Whether a period may be learnt.
    pub may_learn: bool,
}

/// A silence or slowness that began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Began {
    /// Status that began: silent or slow.
    pub status: StreamStatus,
    /// Time at which it began.
    pub since: i64,
    /// Expected rate, frames a second.
    pub expected_rate_hz: f64,
    /// Actual rate, frames a second; 0 if silent.
    pub rate_hz: f64,
    /// Origin of the expected rate.
    pub expected: RateOrigin,
}

/// A silence or slowness that ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndedSilence {
    /// Status that ended: silent or slow.
    pub status: StreamStatus,
    /// Begin and end, nanoseconds since 1970 UTC.
    pub span: (i64, i64),
    /// Frames expected within the span.
    pub expected_frames: u64,
    /// For a silence: the number of missing frames, and the `time` of the frames before and after it.
    pub missing: Option<(u64, i64, i64)>,
}

/// Changes found by a poll.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StatusChanges {
    /// The status that ended, before the one that began.
    pub ended: Option<EndedSilence>,
    /// The status that began.
    pub began: Option<Began>,
}

/// The frames between two polls.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Mean period, nanoseconds.
    period: f32,
    /// Time they span, nanoseconds.
    span: f32,
}

impl Sample {
    fn frames(&self) -> f64 {
        f64::from(self.span) / f64::from(self.period)
    }

    fn agrees_with(&self, period: f64) -> bool {
        let spread = (SPREAD / self.frames().sqrt()).max(SPREAD_MIN);
        (f64::from(self.period) / period - 1.0).abs() <= spread
    }
}

/// The newest frame at a poll.
#[derive(Clone, Copy, Debug)]
struct NewestSeen {
    frames: u64,
    received: i64,
    source: Option<i64>,
    time: i64,
}

/// The expected rate of one stream and its status.
#[derive(Clone, Debug, Default)]
pub struct Expectation {
    newest: Option<NewestSeen>,
    samples: Vec<Sample>,
    given: Option<f64>,
    learnt: Option<f64>,
    /// Consecutive polls with regular samples; once a period is learnt, with samples that do not match it.
    steady: u32,
    needed: u32,
    pauses: u32,
    last_pause: i64,
    status: StreamStatus,
    since: i64,
    looked: i64,
}

impl Expectation {
    /// Returns the learnt period in nanoseconds.
    pub fn learnt_period_ns(&self) -> Option<i64> {
        self.learnt.map(|period| period as i64)
    }

    /// Starts waiting for a stream that was received until the previous server ended; its silence counts from `start`.
    pub fn begin(&mut self, start: i64) {
        if self.newest.is_none() {
            self.newest = Some(NewestSeen { frames: 0, received: start, source: None, time: start });
            (self.looked, self.since) = (start, start);
            self.set(StreamStatus::Ok, start);
        }
    }

    /// Shifts all reception times by `by_ns`, the amount by which the wall clock was set.
    pub fn leap(&mut self, by_ns: i64) {
        let set = |at: &mut i64| *at = at.saturating_add(by_ns);
        if let Some(newest) = &mut self.newest {
            if newest.time == newest.received {
                set(&mut newest.time);
            }
            set(&mut newest.received);
        }
        if self.looked != 0 {
            [&mut self.since, &mut self.looked, &mut self.last_pause].into_iter().for_each(set);
        }
    }

    /// Returns the newest frame at a poll. A frame stamped by a clock that has been set since counts as received now.
    fn newest_at(&self, seen: &Seen) -> Option<NewestSeen> {
        let stamped = seen.received.filter(|_| seen.frames > 0)?;
        let before = self.newest.map_or(stamped, |before| before.received);
        let by_this_clock = stamped.saturating_sub(seen.now) <= LEAP_NS && before.saturating_sub(stamped) <= LEAP_NS;
        let received = if by_this_clock { stamped } else { seen.now };
        let time = seen.time.filter(|time| *time != stamped).unwrap_or(received);
        Some(NewestSeen { frames: seen.frames, received, source: seen.source, time })
    }

    /// Updates the state from a poll and returns the changes.
    pub fn look(&mut self, seen: &Seen) -> StatusChanges {
        if self.looked == 0 {
            self.since = seen.now;
        }
        self.looked = seen.now;
        self.given = seen.given_ns.filter(|ns| *ns > 0).map(|ns| ns as f64);
        if self.given.is_some() || !seen.may_learn {
            self.learnt = None;
        }
        let waited = self.newest.filter(|newest| newest.frames == 0);
        let Some(newest) = self.newest_at(seen).or(waited) else { return StatusChanges::default() };
        let received = newest.received;
        let before = self.newest.filter(|before| before.frames <= seen.frames);
        let mut turn = StatusChanges::default();
        match before {
            None => {
                self.samples.clear();
                if self.status == StreamStatus::Never {
                    self.set(StreamStatus::Ok, received);
                }
                self.newest = Some(newest);
            }
            Some(before) if before.frames < newest.frames => {
                turn.ended = self.take(&before, newest, seen.may_learn);
                self.newest = Some(newest);
            }
            Some(_) => {}
        }
        let since = self.newest.map_or(received, |n| n.received);
        let wanted = match self.silent_after() {
            Some(after) if seen.now.saturating_sub(since) as f64 > after => StreamStatus::Silent,
            _ if self.is_slow() => StreamStatus::Slow,
            _ => StreamStatus::Ok,
        };
        if wanted != self.status {
            turn.ended = turn.ended.or(self.end(seen.now));
            let from = if wanted == StreamStatus::Silent { since } else { seen.now };
            self.set(wanted, from);
            if let (StreamStatus::Silent | StreamStatus::Slow, Some(expected_rate_hz)) =
                (wanted, self.expected_rate_hz())
            {
                let rate_hz = if wanted == StreamStatus::Silent { 0.0 } else { self.mean_rate_hz().unwrap_or(0.0) };
                let expected = self.expected();
                turn.began = Some(Began { status: wanted, since: from, expected_rate_hz, rate_hz, expected });
            }
        }
        turn
    }

    /// Ends the current silence or slowness, if any, at shutdown.
    pub fn finish(&mut self, now: i64) -> Option<EndedSilence> {
        let newest = self.newest?;
        let mut ended = self.end(now)?;
        if ended.status == StreamStatus::Silent {
            let to = newest.time.saturating_add(now.saturating_sub(newest.received));
            ended.missing = Some((ended.expected_frames, newest.time, to)).filter(|m| m.0 > 0);
        }
        self.set(StreamStatus::Ok, now);
        Some(ended)
    }

    /// Returns what a stream missed until `until`, or `None` if it was not silent then. `newest` is its newest frame.
    /// The result equals that of [`Expectation::finish`] for a stream polled all the time.
    pub fn missed_until(newest: &Seen, until: i64) -> Option<EndedSilence> {
        let mut of = Expectation::default();
        of.look(newest);
        of.look(&Seen { now: until, ..*newest });
        of.finish(until)
    }

    /// Returns what a stream missed from `start` until `until` if nothing was received since `start`, when the server
    /// began to wait for it ([`Expectation::begin`]). `newest` is its newest frame before `start`.
    pub fn missed_since(start: i64, newest: &Seen, until: i64) -> Option<EndedSilence> {
        let mut of = Expectation::default();
        of.begin(start);
        of.look(&Seen { now: until, frames: 0, received: None, source: None, time: None, ..*newest });
        of.finish(until)
    }

    /// Adds the frames received since the last poll.
    fn take(&mut self, before: &NewestSeen, newest: NewestSeen, may_learn: bool) -> Option<EndedSilence> {
        let frames = newest.frames - before.frames;
        let span = newest.received.saturating_sub(before.received) as f64;
        let sample = Sample { period: (span / frames as f64) as f32, span: span as f32 };
        let was_silent = self.status == StreamStatus::Silent;
        let mut ended = None;
        if was_silent {
            ended = self.end(before.received.saturating_add((span - (frames - 1) as f64 * self.period()) as i64));
            if let (Some(ended), Some(period)) = (&mut ended, self.period_ns()) {
                ended.missing = missing(before, &newest, frames, period);
            }
            self.set(StreamStatus::Ok, newest.received);
        }
        // Frames delivered late account for the time since the previous frame; after a pause they do not.
        let is_pause = was_silent && !self.period_ns().is_some_and(|period| sample.agrees_with(period));
        if is_pause {
            self.samples.clear();
            self.pause(newest.received);
        } else if before.frames > 0 && span > 0.0 && is_paced(before, &newest, span) {
            if self.samples.len() == SAMPLES {
                self.samples.remove(0);
            }
            self.samples.reserve_exact(SAMPLES - self.samples.len());
            self.samples.push(sample);
            if may_learn && self.given.is_none() {
                self.learn();
            }
        }
        ended
    }

    /// Counts a pause of a stream whose period is learnt.
    fn pause(&mut self, now: i64) {
        if self.learnt.is_none() {
            return;
        }
        let again = now.saturating_sub(self.last_pause) < PAUSES_WITHIN_NS;
        (self.pauses, self.last_pause) = (if again { self.pauses + 1 } else { 1 }, now);
        if self.pauses >= PAUSES {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.learnt = None;
        (self.steady, self.pauses) = (0, 0);
        self.needed = (self.needed * 2).clamp(*NEEDED.start(), *NEEDED.end());
    }

    fn learn(&mut self) {
        if self.samples.len() < SAMPLES {
            return;
        }
        let mut periods: Vec<f32> = self.samples.iter().map(|s| s.period).collect();
        periods.sort_unstable_by(f32::total_cmp);
        let median = f64::from(periods[SAMPLES / 2]);
        let agree: Vec<&Sample> = self.samples.iter().filter(|s| s.agrees_with(median)).collect();
        let is_regular = agree.len() >= AGREE;
        let (span, frames) = agree.iter().fold((0.0, 0.0), |(span, n), s| (span + f64::from(s.span), n + s.frames()));
        let mean = if frames > 0.0 { span / frames } else { median };
        match self.learnt {
            // Once forgotten, a period is learnt again only if all samples agree.
            None if is_regular && (self.needed == 0 || agree.len() == SAMPLES) => {
                self.steady += 1;
                if self.steady > self.needed {
                    (self.learnt, self.steady) = (Some(mean), 0);
                }
            }
            None => self.steady = 0,
            Some(known) if is_regular && (mean / known - 1.0).abs() > SAME => {
                self.steady += 1;
                if mean < known || self.steady >= SLOWER_SAMPLES {
                    (self.learnt, self.steady) = (Some(mean), 0);
                }
            }
            Some(_) if is_regular => self.steady = 0,
            // Samples around a change of the period are irregular too; only a long irregularity makes it forgotten.
            Some(known) if self.samples.iter().filter(|s| s.agrees_with(known)).count() < KEEP => {
                self.steady += 1;
                if self.steady >= SLOWER_SAMPLES / 2 {
                    self.forget();
                }
            }
            Some(_) => {}
        }
    }

    fn set(&mut self, status: StreamStatus, since: i64) {
        (self.status, self.since) = (status, since);
    }

    /// Returns the silence or slowness that ends at `now`, or `None` if there is none.
    fn end(&self, now: i64) -> Option<EndedSilence> {
        let to = now.max(self.since);
        let expected = self.period_ns().map_or(0.0, |period| to.saturating_sub(self.since) as f64 / period);
        let expected_frames =
            if self.status == StreamStatus::Silent { (expected.round() - 1.0).max(0.0) } else { expected };
        matches!(self.status, StreamStatus::Silent | StreamStatus::Slow).then_some(EndedSilence {
            status: self.status,
            span: (self.since, to),
            expected_frames: expected_frames as u64,
            missing: None,
        })
    }

    fn period_ns(&self) -> Option<f64> {
        self.given.or(self.learnt)
    }

    fn period(&self) -> f64 {
        self.period_ns().unwrap_or(0.0)
    }

    /// Returns the time in nanoseconds without a frame after which the stream is silent.
    fn silent_after(&self) -> Option<f64> {
        let periods = if self.given.is_some() { SILENT_PERIODS.0 } else { SILENT_PERIODS.1 };
        let period = self.period_ns()?;
        let agree = self.samples.iter().filter(|s| s.agrees_with(period));
        let longest = agree.map(|s| f64::from(s.span)).fold(0.0, f64::max);
        // A poll comes about once a second, so shorter spans are no deliveries.
        let deliveries = if longest > SILENT_AFTER_NS as f64 { longest * SILENT_DELIVERIES } else { 0.0 };
        Some((SILENT_AFTER_NS as f64).max(period * periods).max(deliveries))
    }

    /// Returns the frames a second over the newest samples, or `None` if they are too few.
    fn mean_rate_hz(&self) -> Option<f64> {
        let enough = RATE_NS.max(self.period() * RATE_PERIODS);
        let (mut span, mut frames) = (0.0, 0.0);
        for sample in self.samples.iter().rev() {
            span += f64::from(sample.span);
            frames += sample.frames();
            if span >= enough {
                return Some(frames * 1e9 / span);
            }
        }
        None
    }

    fn is_slow(&self) -> bool {
        let limit = if self.status == StreamStatus::Slow { SLOW.1 } else { SLOW.0 };
        match (self.mean_rate_hz(), self.expected_rate_hz()) {
            (Some(rate), Some(expected)) => rate < expected * limit,
            _ => false,
        }
    }

    /// Returns the current rate in frames a second.
    pub fn rate_hz(&self) -> f64 {
        let Some(newest) = self.newest else { return 0.0 };
        let mut samples = self.samples.iter().rev();
        let rate = self.mean_rate_hz().or_else(|| samples.next().map(|s| 1e9 / f64::from(s.period))).unwrap_or(0.0);
        // A stream that stopped has a rate of 0.
        let quiet = self.looked.saturating_sub(newest.received) as f64;
        let longest = self.samples.iter().map(|s| f64::from(s.span)).fold(SILENT_AFTER_NS as f64, f64::max);
        if self.status == StreamStatus::Silent || quiet > longest * SILENT_DELIVERIES { 0.0 } else { rate }
    }

    /// Returns the expected rate in frames a second.
    pub fn expected_rate_hz(&self) -> Option<f64> {
        self.period_ns().map(|period| 1e9 / period)
    }

    /// Returns the origin of the expected rate.
    pub fn expected(&self) -> RateOrigin {
        match (self.given, self.learnt) {
            (Some(_), _) => RateOrigin::Given,
            (None, Some(_)) => RateOrigin::Learnt,
            (None, None) => RateOrigin::None,
        }
    }

    /// Returns the status.
    pub fn status(&self) -> StreamStatus {
        self.status
    }

    /// Returns the time at which the status began, nanoseconds since 1970 UTC.
    pub fn since(&self) -> i64 {
        self.since
    }
}

/// Returns whether the source's clock ran about as fast as ours; data sent from a file does not keep that pace.
fn is_paced(before: &NewestSeen, newest: &NewestSeen, span: f64) -> bool {
    match (before.source, newest.source) {
        (Some(from), Some(to)) => (0.5..=2.0).contains(&(to.saturating_sub(from) as f64 / span)),
        _ => true,
    }
}

/// Returns the number of frames missing between two polls, by both clocks, and the `time`s around them. `frames` is the
/// number received between the polls. Frames that arrive late with the stamps they should have are not missing, nor are
/// those that a clock skipped by leaping.
fn missing(before: &NewestSeen, newest: &NewestSeen, frames: u64, period: f64) -> Option<(u64, i64, i64)> {
    // For a stream awaited since a start, the begin is known by the reception clock alone.
    let begun =
        NewestSeen { time: newest.time.saturating_sub(newest.received.saturating_sub(before.received)), ..*before };
    let before = if before.frames == 0 { &begun } else { before };
    let by = |from: i64, to: i64| (to.saturating_sub(from) as f64 / period).round() - frames as f64;
    let missing = by(before.time, newest.time).min(by(before.received, newest.received));
    // A time in a wrong unit would put the begin into 1970.
    let before = if begun.time.saturating_sub(before.time) > LEAP_NS_MAX { &begun } else { before };
    let after = newest.time.saturating_sub(((frames - 1) as f64 * period) as i64).max(before.time);
    (missing >= 1.0).then_some((missing as u64, before.time, after))
}

/// Formats a time span for people: `850 ms`, `12.3 s`, `4.5 min`, `3.2 h`, `2.1 days`.
pub fn in_words(span: Duration) -> String {
    match span.as_secs_f64() {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7_200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3_600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests;
