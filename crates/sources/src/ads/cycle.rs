//! Numbers for cycles: what lets the store's ledger see a cycle that did not come.
//!
//! The number of a frame is its device time over its cycle, counted on from frame to frame, so that it does not depend
//! on this program's start: what a restart of the server missed is a gap as well. The PLC's own cycle runs a little off
//! its clock; the phase follows it, so that a drift is no loss.
//!
//! A stamp that is half a cycle late or more is either the first after a loss, or one that is late itself and followed by
//! stamps that are early. Which of the two shows only with the stamps behind it, so the number of such a frame waits for
//! them: see [`Cycles::judge`]. A loss is counted once time has really gone on without the missing cycles.

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
/// Stamps in a row that take nothing back of a suspected loss, and confirm it.
const CONFIRMED_BY: usize = 4;
/// Most frames whose numbers wait.
const WAITING_MAX: usize = 256;

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

/// What stamps that wait agree on.
#[derive(Clone, Copy, Debug)]
struct Least {
    /// Cycles that are missing before the first of them.
    dropped: u64,
    /// The last stamp that says so.
    last: usize,
    /// Stamps behind the first that says so, none of which takes any of it back.
    since_first: usize,
}

/// Counts the cycles of one group.
#[derive(Clone, Debug)]
pub struct Cycles {
    asked_ns: i64,
    newest: Option<Newest>,
    /// Stamps behind the newest whose numbers wait, ascending.
    waiting: Vec<i64>,
    /// Newest distances between stamps, a ring.
    distances: [i64; MEDIAN_OF],
    seen: usize,
    /// The next distance is none of the PLC's: it was asked anew in between.
    is_apart: bool,
    real_ns: i64,
}

/// The newest frame that has its number.
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

impl Newest {
    /// Returns how many cycles a stamp is behind it, by the nearest.
    fn cycles_to(&self, stamp: i64, real_ns: i64) -> i64 {
        stamp.saturating_sub(self.phase).saturating_add(real_ns / 2).div_euclid(real_ns)
    }

    /// Takes the frame of a stamp, behind `dropped` cycles that did not come.
    fn advance(&mut self, stamp: i64, dropped: u64, real_ns: i64) -> Judged {
        let cycles = i64::try_from(dropped).unwrap_or(i64::MAX).saturating_add(1);
        let due = self.phase.saturating_add(cycles.saturating_mul(real_ns));
        let off = stamp.saturating_sub(due);
        // Far too early is another phase: a task that began anew.
        self.phase = if off < -real_ns / 2 { stamp } else { due.saturating_add(off / PHASE_SHARE) };
        self.stamp = stamp;
        // Numbers are of the cycle asked for; a PLC that is slower counts its own.
        self.number = self.number.saturating_add(1).saturating_add(dropped);
        self.came = self.came.checked_shl(1 + dropped.min(64) as u32).unwrap_or(0) | 1;
        Judged { number: self.number, dropped, ..Judged::default() }
    }
}

impl Cycles {
    /// For a cycle in nanoseconds.
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

    /// The cycle by the stamps, nanoseconds: that asked for unless the PLC's is longer by half and more.
    pub fn real_ns(&self) -> i64 {
        self.real_ns
    }

    /// The PLC is asked anew: its cycle may be another, and the time until it comes is none. Numbers go on.
    pub fn ask_again(&mut self) {
        self.seen = 0;
        self.is_apart = true;
    }

    /// Judges the stamp of a frame (nanoseconds since 1970) that was received at `receive_time`. Adds to `judged` what is
    /// known now of frames that waited and of this one, in the order in which they were given: mostly one, none if
    /// this one waits for the stamps behind it.
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
            // Further back nobody knows any more: it is stored without a number.
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
            // No cycle of its own: a sample that a notification begins with, whatever its cycle.
            true => Judged { number: newest.number, is_known: true, ..Judged::default() },
            false => newest.advance(stamp, 0, real_ns),
        });
    }

    /// Returns whether a frame waits for its number.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Decides on all frames that wait by what is known of them, as nothing came behind them for long enough.
    pub fn decide(&mut self, judged: &mut Vec<Judged>) {
        while let Some(found) = self.least() {
            self.take(found, judged);
        }
    }

    /// Decides on frames that wait as far as the stamps behind them say what they are.
    fn decide_confirmed(&mut self, judged: &mut Vec<Judged>) {
        while let Some(found) = self.least() {
            let is_confirmed = found.dropped == 0 || found.since_first >= CONFIRMED_BY;
            if !is_confirmed && self.waiting.len() < WAITING_MAX {
                return;
            }
            self.take(found, judged);
        }
    }

    /// Finds what the stamps that wait agree on: how many cycles are missing before the first of them at the least.
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

    /// Numbers the frames up to the last that says so.
    fn take(&mut self, found: Least, judged: &mut Vec<Judged>) {
        let Some(newest) = &mut self.newest else { return };
        let mut dropped = found.dropped;
        let mut phase = newest.phase;
        for stamp in self.waiting.drain(..=found.last) {
            judged.push(newest.advance(stamp, dropped, self.real_ns));
            phase = phase.saturating_add((dropped as i64 + 1).saturating_mul(self.real_ns));
            dropped = 0;
            // What is late here is made good by the last.
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
            // Of stamps that come in pairs the median is as good as any of the two distances.
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
mod tests;
