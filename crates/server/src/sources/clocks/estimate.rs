//! Estimate of a source's clock against the reception clock, from the delays of its frames. Pure.
//!
//! A frame's delay, `receive_time − source_time`, is the difference of the clocks plus the travel time. Travel has a
//! minimum and is often longer, so the *minimum* delays describe the clocks and all others describe the travel.
//!
//! ```text
//!  delay │      x            x   x      x                 windows of a second, the least delay of each
//!        │  x       x   x  ____________________ line      the line below all of them that lies closest:
//!        │____x____________x         x                    an edge of their lower convex hull
//!        └──────────────────────────────────── time
//! ```
//!
//! The offset is the line at the newest window, so it includes the minimum travel time, which cannot be told apart from
//! it. The drift is its slope. A window further off the line than the others explain is a suspect and changes nothing.
//! Several suspects in a row that agree are a jump, and the estimate restarts with them. Delays can be long for a while
//! without a jump but never too short, so fewer short suspects than long ones make a jump.

use crate::reception::arrival::ArrivalWindow;
use std::collections::VecDeque;

/// Max number of windows the line is fitted to, and their max time span.
const POINTS_MAX: usize = 256;
const SPAN_NS: i64 = 900_000_000_000;
/// Number of windows, and their time span, from which on the estimate is good.
const GOOD_POINTS: usize = 12;
const GOOD_SPAN_NS: i64 = 30_000_000_000;
/// Max slope of a clock; steeper lines are stamps that follow no clock (data sent later or out of order).
const DRIFT_PPM_MAX: f64 = 1_000.0;
/// Largest typical distance of windows from the line of a clock.
const RESIDUAL_NS_MAX: i64 = 2_000_000_000;
/// Distance from the line that makes a suspect: this many times the 90th percentile of the distances, at least the min.
const TOLERANCE_NS_MIN: i64 = 500_000;
const TOLERANCE_TIMES: i64 = 3;
/// Agreeing suspects in a row that make a jump: with delays too short, and too long.
const SHORT_SUSPECTS: usize = 3;
const LONG_SUSPECTS: usize = 12;
/// Suspects without agreement that restart the estimate: the stamps no longer follow the line.
const SUSPECTS_MAX: usize = 120;
/// Tolerated disorder of windows: several threads receive the frames of one stream.
const DISORDER_NS: i64 = 1_000_000_000;
/// Time without stamps after which the clock counts as gone.
const GONE_NS: i64 = 60_000_000_000;
/// Windows between two fits, and the number of points below which each window refits.
const REFIT_EVERY: u32 = 5;
const REFIT_ALWAYS_BELOW: usize = 60;

/// State of the estimate of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockState {
    /// Too few windows so far, or windows that do not agree.
    Learning,
    /// Offset and drift are reliable.
    Good,
    /// A clock that jumped and is being learnt again.
    Jumped,
    /// A clock that runs but was never set.
    NeverSet,
    /// A clock whose stamps stopped arriving.
    Gone,
}

impl ClockState {
    /// Returns the name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            ClockState::Learning => "learning",
            ClockState::Good => "good",
            ClockState::Jumped => "jumped",
            ClockState::NeverSet => "never set",
            ClockState::Gone => "gone",
        }
    }
}

/// The current estimate of a clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockReading {
    /// Source clock minus reception clock, nanoseconds; negative if the source is behind or the travel time is long.
    pub offset_ns: i64,
    /// Drift of the source's clock, parts per million; positive if it runs fast.
    pub drift_ppm: f64,
    /// Typical delay beyond that of the quickest frames, nanoseconds.
    pub spread_ns: i64,
    /// State of the estimate.
    pub state: ClockState,
    /// Jumps since the stream was first seen.
    pub jumps: u64,
    /// Time at which this state began, nanoseconds since 1970 UTC.
    pub since: i64,
}

/// A step of a source's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// `receive_time` of the first window after it, nanoseconds since 1970 UTC.
    pub at: i64,
    /// Amount by which the source's clock moved forwards, nanoseconds.
    pub by_ns: i64,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    /// Nanoseconds since the estimate's first window, so that differences are exact in `f64`.
    x: i64,
    y: i64,
    above: i64,
}

/// The line y = at_0 + slope · x.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    at_0: f64,
    slope: f64,
}

impl Line {
    fn at(&self, x: i64) -> i64 {
        (self.at_0 + self.slope * x as f64) as i64
    }
}

/// The estimate of one stream's clock.
#[derive(Clone, Debug)]
pub struct ClockEstimate {
    /// Reception time and delay of the first window; all points are relative to it.
    origin: (i64, i64),
    points: VecDeque<Point>,
    suspects: Vec<Point>,
    line: Line,
    tolerance_ns: i64,
    spread_ns: i64,
    since_fit: u32,
    state: ClockState,
    since: i64,
    jumps: u64,
    newest: i64,
}

impl ClockEstimate {
    /// Starts an estimate from a first window.
    pub fn new(window: &ArrivalWindow) -> ClockEstimate {
        let mut estimate = ClockEstimate {
            origin: (0, 0),
            points: VecDeque::new(),
            suspects: Vec::new(),
            line: Line::default(),
            tolerance_ns: TOLERANCE_NS_MIN,
            spread_ns: 0,
            since_fit: 0,
            state: ClockState::Learning,
            since: window.at,
            jumps: 0,
            newest: window.at,
        };
        let state = if window.never_set { ClockState::NeverSet } else { ClockState::Learning };
        estimate.begin_again(state, window.at, &[(window.at, window.least_ns, window.above_ns)]);
        estimate
    }

    /// Adds the next window. Returns a jump once it is confirmed.
    pub fn window(&mut self, window: &ArrivalWindow) -> Option<Jump> {
        let only = [(window.at, window.least_ns, window.above_ns)];
        let was_set = self.state != ClockState::NeverSet;
        if was_set == window.never_set {
            // The clock was set for the first time, or restarted: it is another clock, not a jump of this one.
            let state = if window.never_set { ClockState::NeverSet } else { ClockState::Learning };
            self.begin_again(state, window.at, &only);
            return None;
        }
        if window.at <= self.newest {
            if self.newest.saturating_sub(window.at) < DISORDER_NS {
                return None;
            }
            // The clock of reception was set back.
            let by_ns = self.newest_delay().saturating_sub(window.least_ns);
            return self.jump(window.at, by_ns, &only);
        }
        self.newest = window.at;
        if self.state == ClockState::Gone {
            let state = if self.is_enough() { ClockState::Good } else { ClockState::Learning };
            self.turn(state, window.at);
        }
        let (x, y) = (window.at.saturating_sub(self.origin.0), window.least_ns.saturating_sub(self.origin.1));
        let point = Point { x, y, above: window.above_ns };
        let off = y.saturating_sub(self.line.at(x));
        if self.is_enough() && off.saturating_abs() > self.tolerance_ns {
            return self.suspect(point, window.at);
        }
        // Long delays that ended lie above the line and do not distort it.
        let line = self.line;
        self.points.extend(self.suspects.drain(..).filter(|p| p.y > line.at(p.x)));
        self.add(point, off < 0);
        self.judge(window.at);
        None
    }

    /// Marks the clock as gone if no stamps arrive. `now` is nanoseconds since 1970 UTC.
    pub fn look(&mut self, now: i64) {
        if self.state != ClockState::Gone && now.saturating_sub(self.newest) > GONE_NS {
            self.turn(ClockState::Gone, now);
        }
    }

    /// Returns the current estimate.
    pub fn reading(&self) -> ClockReading {
        let known = self.is_enough();
        ClockReading {
            offset_ns: self.newest_delay().saturating_neg(),
            // Over a few seconds the slope is that of the travel time, not of the clock.
            drift_ppm: if known { 0.0 - self.line.slope * 1e6 } else { 0.0 },
            spread_ns: self.spread_ns,
            state: self.state,
            jumps: self.jumps,
            since: self.since,
        }
    }

    fn newest_delay(&self) -> i64 {
        let least = || self.points.iter().map(|p| p.y).min().unwrap_or(0);
        let newest = self.newest.saturating_sub(self.origin.0);
        let y = if self.is_enough() { self.line.at(newest) } else { least() };
        self.origin.1.saturating_add(y)
    }

    fn turn(&mut self, state: ClockState, at: i64) {
        if self.state != state {
            (self.state, self.since) = (state, at);
        }
    }

    /// Returns whether there are enough points, over a long enough span, for a meaningful line.
    fn is_enough(&self) -> bool {
        let span = self.points.back().zip(self.points.front()).map_or(0, |(b, f)| b.x.saturating_sub(f.x));
        self.points.len() >= GOOD_POINTS && span >= GOOD_SPAN_NS
    }

    fn begin_again(&mut self, state: ClockState, at: i64, windows: &[(i64, i64, i64)]) {
        self.points.clear();
        self.suspects.clear();
        (self.line, self.tolerance_ns, self.since_fit) = (Line::default(), TOLERANCE_NS_MIN, 0);
        if let Some((at, delay, _)) = windows.first() {
            self.origin = (*at, *delay);
        }
        for (at, delay, above) in windows {
            let (x, y) = (at.saturating_sub(self.origin.0), delay.saturating_sub(self.origin.1));
            self.add(Point { x, y, above: *above }, true);
            self.newest = *at;
        }
        self.turn(state, at);
    }

    fn jump(&mut self, at: i64, by_ns: i64, windows: &[(i64, i64, i64)]) -> Option<Jump> {
        // Only a clock that was known to be good can be seen to jump.
        let was_known = self.state == ClockState::Good;
        self.jumps += u64::from(was_known);
        let state = match self.state {
            ClockState::NeverSet => ClockState::NeverSet,
            ClockState::Good | ClockState::Jumped => ClockState::Jumped,
            ClockState::Learning | ClockState::Gone => ClockState::Learning,
        };
        self.begin_again(state, at, windows);
        was_known.then_some(Jump { at, by_ns })
    }

    fn suspect(&mut self, point: Point, at: i64) -> Option<Jump> {
        self.suspects.push(point);
        let off = |p: &Point| p.y.saturating_sub(self.line.at(p.x));
        let agree = |last: usize, short: bool| {
            let Some(newest) = self.suspects.len().checked_sub(last).map(|from| &self.suspects[from..]) else {
                return false;
            };
            let (low, high) =
                newest.iter().map(off).fold((i64::MAX, i64::MIN), |(low, high), o| (low.min(o), high.max(o)));
            high.saturating_sub(low) <= self.tolerance_ns && (if short { high < 0 } else { low > 0 })
        };
        let confirmed = [(SHORT_SUSPECTS, true), (LONG_SUSPECTS, false)].into_iter().find(|(n, s)| agree(*n, *s));
        if let Some((count, _)) = confirmed {
            let new = &self.suspects[self.suspects.len() - count..];
            let step = new.iter().map(off).min().unwrap_or(0);
            let first = self.origin.0.saturating_add(new[0].x);
            let windows: Vec<(i64, i64, i64)> = new
                .iter()
                .map(|p| (self.origin.0.saturating_add(p.x), self.origin.1.saturating_add(p.y), p.above))
                .collect();
            return self.jump(first, step.saturating_neg(), &windows);
        }
        if self.suspects.len() >= SUSPECTS_MAX {
            let (x, y) = (self.origin.0.saturating_add(point.x), self.origin.1.saturating_add(point.y));
            let state = if self.state == ClockState::NeverSet { ClockState::NeverSet } else { ClockState::Learning };
            self.begin_again(state, at, &[(x, y, point.above)]);
        }
        None
    }

    fn add(&mut self, point: Point, is_below: bool) {
        self.points.push_back(point);
        while self.points.len() > POINTS_MAX
            || self.points.front().is_some_and(|p| point.x.saturating_sub(p.x) > SPAN_NS)
        {
            self.points.pop_front();
        }
        self.since_fit += 1;
        if is_below || self.points.len() < REFIT_ALWAYS_BELOW || self.since_fit >= REFIT_EVERY {
            self.fit();
        }
    }

    /// Fits the line again.
    fn fit(&mut self) {
        self.since_fit = 0;
        self.line = line_below(&self.points);
        let mut residuals: Vec<i64> = self.points.iter().map(|p| p.y.saturating_sub(self.line.at(p.x))).collect();
        let mut above: Vec<i64> =
            residuals.iter().zip(&self.points).map(|(r, p)| r.saturating_add(p.above).max(0)).collect();
        let at = |list: &mut Vec<i64>, part: f64| {
            let place = ((list.len() as f64 * part) as usize).min(list.len().saturating_sub(1));
            if list.is_empty() { 0 } else { *list.select_nth_unstable(place).1 }
        };
        self.tolerance_ns = at(&mut residuals, 0.9).saturating_mul(TOLERANCE_TIMES).max(TOLERANCE_NS_MIN);
        self.spread_ns = at(&mut above, 0.5);
    }

    /// Updates the state after a new point.
    fn judge(&mut self, at: i64) {
        let follows = self.line.slope.abs() * 1e6 <= DRIFT_PPM_MAX
            && self.tolerance_ns <= RESIDUAL_NS_MAX.saturating_mul(TOLERANCE_TIMES);
        match self.state {
            ClockState::Learning | ClockState::Jumped if self.is_enough() && follows => {
                self.turn(ClockState::Good, at);
            }
            ClockState::Learning | ClockState::Jumped if self.is_enough() => {
                // The clock changed while it was being learnt: drop the older half.
                self.points.drain(..self.points.len() / 2);
                self.fit();
            }
            ClockState::Good if !follows => self.turn(ClockState::Learning, at),
            _ => {}
        }
    }
}

/// Returns the line below all points with the min sum of distances to them: the edge of the lower hull at their mean x.
fn line_below(points: &VecDeque<Point>) -> Line {
    let mut hull: Vec<(f64, f64)> = Vec::with_capacity(32);
    for p in points {
        let (x, y) = (p.x as f64, p.y as f64);
        while let [.., (ax, ay), (bx, by)] = hull[..]
            && (bx - ax) * (y - ay) - (by - ay) * (x - ax) <= 0.0
        {
            hull.pop();
        }
        hull.push((x, y));
    }
    let mean = points.iter().map(|p| p.x as f64).sum::<f64>() / points.len().max(1) as f64;
    let edge = hull.windows(2).find(|edge| edge[1].0 >= mean);
    match edge {
        Some(&[(ax, ay), (bx, by)]) if bx > ax => {
            let slope = (by - ay) / (bx - ax);
            Line { at_0: ay - slope * ax, slope }
        }
        _ => Line { at_0: hull.first().map_or(0.0, |p| p.1), slope: 0.0 },
    }
}

#[cfg(test)]
mod tests;
