//! Numbers cycles, so that the store's ledger can detect missing ones.
//!
//! The number of a frame is its device time divided by its cycle, then incremented from frame to frame. It does not
//! depend on when this program started, so a gap shows up even across a restart of the server. The PLC's own cycle
//! drifts slightly against its clock; the phase follows it, so that drift does not count as loss.
//!
//! A timestamp half a cycle late or more is either the first after a loss, or is itself late and followed by early
//! ones. Only later timestamps can tell the two apart, so the number of such a frame waits for them: see
//! [`Cycles::judge`]. A loss is counted only once time has advanced without the missing cycles.

/// Number of cycles used to estimate the real cycle.
const MEDIAN_OF: usize = 33;
/// Minimum cycles before the median is used, and minimum before the shortest is used.
const MEDIAN_FROM: usize = 9;
const SHORTEST_FROM: usize = 3;
/// Factor above the requested cycle from which a longer cycle counts as the PLC's own rather than as loss.
const SLOWER: f64 = 1.5;
/// Divisor for the share of a frame's jitter that the phase absorbs: 1 / 64.
const PHASE_SHARE: i64 = 64;
/// Minimum gain of the device clock on ours within one frame that counts as setting the clock.
const STEP_NS: i64 = 1_000_000_000;
/// Consecutive later timestamps needed to confirm a suspected loss.
const CONFIRMED_BY: usize = 4;
/// Maximum frames waiting for their numbers.
const WAITING_MAX: usize = 256;

/// Position of a timestamp relative to the cycles before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Number of its cycle.
    pub number: u64,
    /// Whether a frame of this cycle came before. A repeated frame gets no number of its own.
    pub is_known: bool,
    /// Missing cycles between this one and the newest before it.
    pub dropped: u64,
    /// Whether the timestamp is older than the newest.
    pub is_old: bool,
    /// Whether the device's clock was set.
    pub clock_set: bool,
}

/// Smallest loss that the waiting timestamps agree on.
#[derive(Clone, Copy, Debug)]
struct Least {
    /// Cycles missing before the first waiting timestamp.
    dropped: u64,
    /// Index of the last timestamp that confirms it.
    last: usize,
    /// Timestamps after the first that confirms it, none of which reduces it.
    since_first: usize,
}

/// Counter of the cycles of one group.
#[derive(Clone, Debug)]
pub struct Cycles {
    asked_ns: i64,
    newest: Option<Newest>,
    /// Timestamps after the newest whose numbers are pending, ascending.
    waiting: Vec<i64>,
    /// Ring of the latest distances between timestamps.
    distances: [i64; MEDIAN_OF],
    seen: usize,
    /// Whether to skip the next distance, because the PLC was subscribed again in between.
    is_apart: bool,
    real_ns: i64,
}

/// The newest numbered frame.
#[derive(Clone, Copy, Debug)]
struct Newest {
    number: u64,
    stamp: i64,
    /// Expected timestamp, with the jitter of single frames smoothed.
    phase: i64,
    /// Minimum time from timestamp to reception so far.
    transit: i64,
    /// Bit set of received numbers among the newest 64, with the newest in the lowest bit.
    came: u64,
}

impl Newest {
    /// Returns how many cycles a timestamp is after this frame, rounded to nearest.
    fn cycles_to(&self, stamp: i64, real_ns: i64) -> i64 {
        stamp.saturating_sub(self.phase).saturating_add(real_ns / 2).div_euclid(real_ns)
    }

    /// Numbers the frame of a timestamp, after `dropped` missing cycles.
    fn advance(&mut self, stamp: i64, dropped: u64, real_ns: i64) -> Judged {
        let cycles = i64::try_from(dropped).unwrap_or(i64::MAX).saturating_add(1);
        let due = self.phase.saturating_add(cycles.saturating_mul(real_ns));
        let off = stamp.saturating_sub(due);
        // More than half a cycle early is another phase: the task was restarted.
        self.phase = if off < -real_ns / 2 { stamp } else { due.saturating_add(off / PHASE_SHARE) };
        self.stamp = stamp;
        // Numbers count the requested cycle, except that a slower PLC counts its own.
        self.number = self.number.saturating_add(1).saturating_add(dropped);
        self.came = self.came.checked_shl(1 + dropped.min(64) as u32).unwrap_or(0) | 1;
        Judged { number: self.number, dropped, ..Judged::default() }
    }
}

impl Cycles {
    /// Creates a counter for a cycle in nanoseconds.
    pub fn new(cycle_ns: i64) -> Cycles {
        let asked_ns = cycle_ns.max(1);
        Cycles {
            asked_ns,
            newest: None,
            waiting: Vec::new(),
            distances: [0; MEDIAN_OF],
            seen: 0,
            is_apart: false,
            real_ns: asked_ns,
        }
    }

    /// Returns the cycle by timestamps, in nanoseconds: the requested one, unless the PLC's is longer by more than
    /// half.
    pub fn real_ns(&self) -> i64 {
        self.real_ns
    }

    /// Forgets the measured cycle, because the PLC is subscribed again. The time until its next frame is not a cycle.
    /// Numbers continue.
    pub fn ask_again(&mut self) {
        self.seen = 0;
        self.is_apart = true;
    }

    /// Judges the timestamp of a frame (nanoseconds since 1970) received at `receive_time`. Appends to `judged` the
    /// frames that are now decided, waiting ones first, in the order given: usually one, or none if this frame waits
    /// for later timestamps.
    pub fn judge(&mut self, stamp: i64, receive_time: i64, judged: &mut Vec<Judged>) {
        let transit = receive_time.saturating_sub(stamp);
        let Some(newest) = self.newest else {
            let number = (stamp.max(0) / self.asked_ns) as u64;
            self.newest = Some(Newest { number, stamp, phase: stamp, transit, came: 1 });
            return judged.push(Judged { number, ..Judged::default() });
        };
        let since = stamp.saturating_sub(self.waiting.last().copied().unwrap_or(newest.stamp));
        let set = transit < newest.transit.saturating_sub(STEP_NS) || since < -STEP_NS;
        if set || since <= 0 {
            self.decide(judged);
        }
        let Some(newest) = &mut self.newest else { return };
        if set {
            let number = newest.number + 1;
            *newest = Newest { number, stamp, phase: stamp, transit, came: 1 };
            return judged.push(Judged { number, clock_set: true, ..Judged::default() });
        }
        newest.transit = newest.transit.min(transit);
        if since <= 0 {
            let back = (since.unsigned_abs() + self.real_ns as u64 / 2) / self.real_ns as u64;
            // Frames further back are not tracked; store this one without a number.
            let is_known = back >= 64 || newest.came >> back & 1 != 0;
            newest.came |= 1_u64.checked_shl(back as u32).unwrap_or(0);
            let number = newest.number.saturating_sub(back);
            return judged.push(Judged { number, is_known, is_old: true, ..Judged::default() });
        }
        self.learn(since);
        let real_ns = self.real_ns;
        let Some(newest) = &mut self.newest else { return };
        let nearest = newest.cycles_to(stamp, real_ns);
        if !self.waiting.is_empty() || nearest > 1 {
            self.waiting.push(stamp);
            return self.decide_confirmed(judged);
        }
        judged.push(match since < real_ns / 2 && nearest <= 0 {
            // Not a cycle of its own: a notification starts with a sample regardless of its cycle.
            true => Judged { number: newest.number, is_known: true, ..Judged::default() },
            false => newest.advance(stamp, 0, real_ns),
        });
    }

    /// Reports whether a frame waits for its number.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Decides all waiting frames with what is known, because no later frame came in time.
    pub fn decide(&mut self, judged: &mut Vec<Judged>) {
        while let Some(found) = self.least() {
            self.take(found, judged);
        }
    }

    /// Decides waiting frames, as far as later timestamps confirm them.
    fn decide_confirmed(&mut self, judged: &mut Vec<Judged>) {
        while let Some(found) = self.least() {
            let is_confirmed = found.dropped == 0 || found.since_first >= CONFIRMED_BY;
            if !is_confirmed && self.waiting.len() < WAITING_MAX {
                return;
            }
            self.take(found, judged);
        }
    }

    /// Finds the smallest number of cycles missing before the first waiting frame that the waiting timestamps agree on.
    fn least(&self) -> Option<Least> {
        let newest = self.newest.as_ref()?;
        let mut least: Option<Least> = None;
        for (i, stamp) in self.waiting.iter().enumerate() {
            let missing = newest.cycles_to(*stamp, self.real_ns).saturating_sub(i as i64 + 1).max(0) as u64;
            match &mut least {
                Some(known) if missing > known.dropped => known.since_first += 1,
                Some(known) if missing == known.dropped => (known.last, known.since_first) = (i, known.since_first + 1),
                _ => least = Some(Least { dropped: missing, last: i, since_first: 0 }),
            }
        }
        least
    }

    /// Numbers the waiting frames up to the last timestamp that confirms the loss.
    fn take(&mut self, found: Least, judged: &mut Vec<Judged>) {
        let Some(newest) = &mut self.newest else { return };
        let mut dropped = found.dropped;
        let mut phase = newest.phase;
        for stamp in self.waiting.drain(..=found.last) {
            judged.push(newest.advance(stamp, dropped, self.real_ns));
            phase = phase.saturating_add((dropped as i64 + 1).saturating_mul(self.real_ns));
            dropped = 0;
            // The last timestamp makes up for lateness in between.
            newest.phase = phase;
        }
        let off = newest.stamp.saturating_sub(phase);
        newest.phase = if off < -self.real_ns / 2 { newest.stamp } else { phase.saturating_add(off / PHASE_SHARE) };
    }

    fn learn(&mut self, distance: i64) {
        if std::mem::take(&mut self.is_apart) {
            return;
        }
        self.distances[self.seen % MEDIAN_OF] = distance;
        self.seen += 1;
        let known = &self.distances[..self.seen.min(MEDIAN_OF)];
        // Computing a median every cycle would cost more than it is worth.
        let typical = if self.seen < SHORTEST_FROM {
            None
        } else if self.seen < MEDIAN_FROM {
            known.iter().copied().min()
        } else if self.seen.is_multiple_of(MEDIAN_FROM) {
            let mut sorted = [0; MEDIAN_OF];
            let sorted = &mut sorted[..known.len()];
            sorted.copy_from_slice(known);
            sorted.sort_unstable();
            // If timestamps come in pairs, the median may be either of the two distances.
            let sum: i128 = sorted.iter().map(|distance| i128::from(*distance)).sum();
            let mean = i64::try_from(sum / sorted.len() as i128).unwrap_or(i64::MAX);
            Some(sorted[sorted.len() / 2].min(mean))
        } else {
            None
        };
        if let Some(typical) = typical {
            let slower = typical as f64 > self.asked_ns as f64 * SLOWER;
            self.real_ns = if slower { typical } else { self.asked_ns };
        }
    }
}

/// Frame rate watch, to detect a PLC that sends more than requested.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateWatch {
    since: i64,
    frames: u64,
}

/// Time over which a rate is measured.
const WATCH_NS: i64 = 1_000_000_000;

impl RateWatch {
    /// Counts a frame received at `now`. Once a second has passed, returns its frames per second.
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
mod tests;
